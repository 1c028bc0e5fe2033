//! Collecting a backup: the lists of all selected types flow, page by page, into the store.

use std::sync::Arc;

use backup_actions::{
    ItemId,
    backup::{BackupVolumes, VolumeDecision, VolumePolicy},
};
use backup_core::{
    api::{Backup, BackupPhase, BackupSpec},
    resource_policy::{ResourcePolicy, Volume, VolumePlan, plan},
};
use backup_store::Scope;

use super::{
    actions::BackupActions,
    hooks::Hooks,
    observe::{self, Selection},
    report::{Report, scope_of},
    volume_snapshots::{SnapshotJournal, VolumeSnapshots},
};
use backup_runtime::Cluster;

use crate::{
    backup::Backups,
    job::cancellation::{Cancellation, StopReason},
};

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
pub(crate) use collector::{CollectError, CollectOutput, CollectPlan, CollectRequest, CollectedItems, Sink};
pub(crate) use scope::NamespaceScope;

/// What was collected of a backup, and what became of its volumes.
pub(crate) struct CollectedBackup {
    pub(crate) items: CollectedItems,
    pub(crate) volumes: Arc<BackupVolumes>,
}

/// Collects a backup from the start: selects, loads the actions, and collects. What could not be had is an error in the report.
pub(crate) async fn collect_backup<S: Sink>(
    cluster: &Cluster,
    kind: &Backups,
    backup: &Backup,
    hooks: &Hooks,
    snapshot_journal: SnapshotJournal,
    output: CollectOutput<'_, S>,
    cancellation: &Cancellation,
) -> Result<CollectedBackup, CollectError> {
    let selection = observe::selection(cluster, &backup.spec, kind.only_related_cluster_resources).await?;
    report_missing(output.report, &selection);
    let plan = &selection.plan;
    let volumes =
        Arc::new(BackupVolumes::with_policy(volume_policy(backup.spec.clone(), plan.policy.clone())));
    let actions = BackupActions::load(cluster, kind, &plan.served, &volumes).await;
    // Whatever its phase is: it is collected from the start.
    let mut shown = backup.clone();
    shown.status.phase = Some(BackupPhase::InProgress);
    let volume_snapshots =
        VolumeSnapshots::open(kind, &shown, snapshot_journal, &volumes, output.report, &actions.log).await?;
    let request = CollectRequest {
        client: &cluster.client,
        backup: &shown,
        plan,
        actions: &actions,
        hooks: Some(hooks),
        volume_snapshots: Some(volume_snapshots),
        cancellation,
    };
    Ok(CollectedBackup { items: collect(request, output).await?, volumes })
}

/// Collects everything into the sink. What could not be had, or is missing after a cancellation, is an error in the report.
async fn collect<'a, S: Sink>(
    request: CollectRequest<'a>,
    output: CollectOutput<'a, S>,
) -> Result<CollectedItems, CollectError> {
    let early_end = Some(request.cancellation);
    let mut collector = Collector::new(request, output, early_end);
    match collector.run().await {
        Err(CollectError::Stopped(StopReason::Cancelled)) => collector.report_cancelled(),
        result => result?,
    }
    Ok(collector.finish().await)
}

/// Replaces items by their last form when operations have ended; with each, whether all operations that ask for it have
/// completed. What could not be had is in the report.
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

/// What spec and resource policy say about the volume of a claim.
fn volume_policy(spec: BackupSpec, policy: Option<ResourcePolicy>) -> Box<VolumePolicy> {
    Box::new(move |claim, volume| {
        // That it is not done is an error of the claim, whether snapshots are taken or not: `unsupported_volumes`.
        let other = |what: &str| {
            VolumeDecision::Skip(format!("the resource policy asks for {what}, which is not done"))
        };
        match plan(&spec, policy.as_ref(), &Volume::persistent(Some(volume), Some(claim)), false) {
            VolumePlan::Snapshot => VolumeDecision::Snapshot,
            VolumePlan::Skip { reason } => VolumeDecision::Skip(reason),
            VolumePlan::FsBackup => other("a copy of its files"),
            VolumePlan::Custom { .. } => other("an action of its own"),
        }
    })
}

fn report_missing(report: &mut Report, selection: &Selection) {
    for name in &selection.unknown {
        report.warn(Scope::Velero, format!("no resource called {name} is served: it selects nothing"));
    }
    for problem in &selection.policy_problems {
        report.error(Scope::Velero, format!("the resource policy is not followed: {problem}"));
    }
    for group in &selection.unavailable {
        report.error(
            Scope::Velero,
            format!("API group {group} did not answer, so its types are missing from this backup; see its APIService"),
        );
    }
}

#[cfg(test)]
mod tests;
