//! Collects a backup: the lists of all selected types are written, page by page, into the store.

use backup_actions::ItemId;

use super::report::scope_of;
use crate::job::cancellation::StopReason;

mod ahead;
mod collector;
mod item;
mod item_block;
mod list;
mod order;
mod raw_item;
mod related_items;
mod scope;
mod unsupported_volumes;

use collector::Collector;
pub(crate) use collector::{
    CollectError, CollectOutput, CollectPlan, CollectRequest, CollectedItems, Sink,
};
pub(crate) use scope::{NamespaceScope, NeededNamespaces, without_match};

/// Collects everything into the sink. Items that cannot be read, or are missing after a
/// cancellation, are errors in the report.
pub(crate) async fn collect<'a, S: Sink>(
    request: CollectRequest<'a>,
    output: CollectOutput<'a, S>,
) -> Result<CollectedItems, CollectError> {
    let early_end = Some(request.cancellation);
    let mut collector = Collector::new(request, output, early_end);
    match collector.run().await {
        Err(CollectError::Stopped(StopReason::Cancelled)) => collector.report_cancelled(),
        result => result?,
    }
    collector.end_ahead().await?;
    Ok(collector.finish().await)
}

/// Replaces items by their final state when operations have ended. The flag of an item says whether
/// all operations that ask for it have completed. Items that cannot be read are in the report.
pub(crate) async fn collect_again<'a, S: Sink>(
    request: CollectRequest<'a>,
    output: CollectOutput<'a, S>,
    items: &[(ItemId, bool)],
) -> Result<CollectedItems, CollectError> {
    let mut collector = Collector::new(request, output, None);
    for problem in collector.request.actions.unusable() {
        collector.output.report.error_once(problem);
    }
    for (item, completed) in items {
        collector.update(item, *completed).await?;
    }
    let collected = collector.finish().await;
    for started in &collected.operations {
        let message = format!(
            "{}: {} has started operation {} although the backup is being finished; it is not followed",
            started.item, started.action, started.operation
        );
        collector.error(scope_of(started.item.namespace.as_deref()), message);
    }
    Ok(collected)
}

#[cfg(test)]
mod tests;
