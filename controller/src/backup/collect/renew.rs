//! Items that are read once more when operations have ended, and replace what was written of them before (Velero
//! `pkg/backup/backup.go`, `FinalizeBackup`, v1.18). They were asked for by actions, so no filter counts.

use backup_actions::ItemId;
use backup_runtime::errors::plain;

use super::{CollectError, Collected, Collector, Given, Sink, fetch, take::Way};
use crate::backup::report::scope_of;

/// Writes the items in their last form; with each, whether all operations that ask for it have completed. What could not
/// be had is in the report.
pub async fn renew<S: Sink>(
    given: Given<'_, S>,
    items: &[(ItemId, bool)],
) -> Result<Collected, CollectError> {
    let mut collector = Collector::new(given);
    for problem in collector.actions.unusable() {
        collector.report.error_once(problem);
    }
    for (item, completed) in items {
        collector.renew(item, *completed).await?;
    }
    let Collector { actions, report, .. } = &mut collector;
    actions.log.settle(|lines| report.said(lines)).await;
    for started in &collector.started {
        collector.report.error(
            scope_of(started.item.namespace.as_deref()),
            format!(
                "{}: {} has started operation {} although the backup is being finished; it is not followed",
                started.item, started.action, started.operation
            ),
        );
    }
    Ok(collector.collected())
}

impl<S: Sink> Collector<'_, S> {
    async fn renew(&mut self, id: &ItemId, completed: bool) -> Result<(), CollectError> {
        self.cancellation.check()?;
        let area = scope_of(id.namespace.as_deref());
        let Some(of) = self.kind(&id.group_resource) else {
            let message = format!("{id} could not be read again: the cluster does not serve it");
            self.report.error(area, message);
            return Ok(());
        };
        let namespace = id.namespace.as_deref().filter(|_| of.resource.namespaced);
        match fetch::object(self.client, &of.resource, namespace, &id.name).await {
            Ok(Some(text)) => {
                self.take(&of, &text, Way::Must, 0).await?;
            }
            // What failed is often removed by whoever failed.
            Ok(None) if !completed => {
                self.report.info(&format!("{id} is gone after its operation"));
            }
            Ok(None) => {
                let message = format!(
                    "{id} is gone after its operation has completed: this backup holds it as it was before"
                );
                self.report.warn(area, message);
            }
            Err(error) => {
                let message = format!(
                    "{} could not be read again after its operation: this backup holds it as it was before: {}",
                    id,
                    plain(&error)
                );
                self.report.error(area, message);
            }
        }
        Ok(())
    }
}
