//! Collects a backup's items into the store, and publishes the progress.

use std::{sync::Arc, time::Duration};

use backup_actions::backup::{BackupVolumes, VolumeDecision, VolumePolicy};
use backup_core::{
    api::{Backup, BackupPhase, BackupSpec},
    operation::BackupOperation,
    resource_policy::{ResourcePolicy, Volume, VolumePlan, plan},
    text::counted,
};
use backup_runtime::{
    Cluster,
    retry::{self, PatchOutcome},
};
use backup_store::{
    Abandonment, AwaitingBackup, BackupWriter, FileOwner, JobFiles, Location, PendingBackup, Scope,
    StoreError,
};
use kube::ResourceExt as _;

use super::{
    Backups,
    actions::{self, ActionJournal, BackupActions, StartedOperation},
    collect::{CollectError, CollectOutput, CollectRequest, CollectedItems, collect},
    hooks::{HookTakeover, Hooks},
    journal::BackupJournal,
    kind::Summary,
    leftovers::Leftovers,
    observe::{self, Selection},
    patches,
    progress::Progress,
    volume_snapshots::{SnapshotJournal, VolumeSnapshots},
};
use crate::{
    job::{
        cancellation::StopReason,
        lifecycle::{JobWork, Record, Work, WorkError, WorkResult},
        log_upload::{Subject, upload_log},
        operations::records,
        pending_end::CompletedWork,
        report::Report,
        waits::{WaitLog, Waits},
        worker::{Worker, WorkerError},
    },
    location::{LocationError, is_read_only},
};

/// Interval between two reports of progress.
const PROGRESS_PERIOD: Duration = Duration::from_secs(1);

/// State of an earlier attempt, and the journals that continue it.
struct EarlierAttempt {
    hooks: Hooks,
    actions: ActionJournal,
    snapshots: SnapshotJournal,
    pending_hooks: HookTakeover,
}

impl JobWork for Backups {
    /// A user may have made the location read-only, or deleted it, since it was opened. A failed
    /// read proves neither.
    async fn may_write(worker: &Worker<Self>, backup: &Backup) -> Result<(), WorkerError> {
        let name = backup.spec.storage_location.as_deref().unwrap_or_default();
        let reason = match worker.ctx.locations.get(name).await {
            Ok(location) if is_read_only(&location) => format!(
                "BackupStorageLocation {name} is read-only, so nothing is written there: this backup continues once its \
                 spec.accessMode is ReadWrite"
            ),
            Err(error @ LocationError::NotFound { .. }) => {
                format!("{error}; this backup continues once {name} exists again")
            }
            _ => return Ok(()),
        };
        Err(WorkerError::Blocked {
            reason,
            retryable: false,
        })
    }

    async fn work(
        worker: &mut Worker<Self>,
        work: Work<'_, Self>,
    ) -> Result<WorkResult<Self>, WorkError> {
        Box::pin(worker.collect(work)).await
    }

    async fn await_operations(
        _: &mut Worker<Self>,
        _: &Backup,
        collected: WorkResult<Self>,
    ) -> Result<(), WorkError> {
        let WorkResult {
            contents,
            files,
            summary,
        } = collected;
        contents
            .await_operations(files, summary.status)
            .await
            .map(|_| ())
            .map_err(WorkError::Store)
    }

    async fn upload(contents: BackupWriter) -> Result<PendingBackup, StoreError> {
        contents.finish().await
    }

    async fn discard(contents: BackupWriter) {
        contents.abort().await;
    }

    async fn discard_upload(upload: PendingBackup) {
        upload.discard().await;
    }

    async fn complete(
        worker: &mut Worker<Self>,
        backup: &Backup,
        _: &Location,
        awaiting: AwaitingBackup,
        operations: &[BackupOperation],
    ) -> Result<CompletedWork<Self>, WorkError> {
        worker.read_again(backup, awaiting, operations).await
    }
}

impl Worker<Backups> {
    /// Collects everything from the start.
    async fn collect(&mut self, work: Work<'_, Backups>) -> Result<WorkResult<Backups>, WorkError> {
        let Work {
            object: backup,
            location,
            lost,
            ..
        } = work;
        let opened = match lost {
            None => Box::pin(self.open(location)).await,
            Some(Record::Committed(plan)) => plan.begin_again().await,
            Some(Record::Awaiting(awaiting)) => awaiting.begin_again().await,
        };
        let mut writer = opened.map_err(WorkError::Store)?;
        let progress = Progress::default();
        let earlier = tokio::select! {
            earlier = self.take_up(location, &progress) => earlier.map_err(WorkError::Store),
            reason = self.cancellation.stopped() => Err(reason.into()),
        };
        let earlier = match earlier {
            Ok(earlier) => earlier,
            Err(error) => {
                writer.abort().await;
                return Err(error);
            }
        };
        let collected = tokio::select! {
            collected = self.fill(backup, location, &mut writer, &progress, &earlier) => collected,
            () = publish_progress(&self.ctx.cluster, backup, &progress, self.cancellation.waits()) => Err(WorkerError::Conflict.into()),
            // A list or a store that hangs must not delay the end of the process, or a deletion.
            reason = self.cancellation.stopped() => Err(reason.into()),
        };
        // The next leader runs pending commands; otherwise they would run twice.
        if !matches!(
            collected,
            Err(WorkError::Worker(WorkerError::Stopped(
                StopReason::NotLeader(_)
            )))
        ) {
            for problem in earlier.hooks.run_pending().await {
                tracing::warn!(backup = self.name, problem, "a pending post hook");
            }
            earlier.snapshots.settle().await;
        }
        match collected {
            Ok(files) => Ok(WorkResult {
                contents: writer,
                files,
                summary: Summary::of(&progress),
            }),
            Err(error) => {
                writer.abort().await;
                Err(error)
            }
        }
    }

    /// Claims the folder. The folder of an earlier Backup of this name, which is gone, is cleaned
    /// up first.
    async fn open(&self, location: &Location) -> Result<BackupWriter, StoreError> {
        let leftovers = self.kind.leftovers(&self.ctx);
        let claimant = leftovers.claimant(&self.uid);
        let opened = location.open_backup(&self.name, &claimant).await;
        let Err(error @ StoreError::Exists { .. }) = opened else {
            return opened;
        };
        let Some(before) = location.claimant_of_backup(&self.name).await? else {
            return Err(error);
        };
        if before.uid == self.uid || !before.is_same_installation(&claimant) {
            return Err(error);
        }
        let gone = Leftovers::gone(&self.ctx.cluster.namespace, &self.name, &before.uid);
        match leftovers.remove(&gone, Ok(location), None).await {
            Ok(Abandonment::Abandoned) => location.open_backup(&self.name, &claimant).await,
            _ => Err(error),
        }
    }

    /// Reads the journal of an earlier attempt.
    async fn take_up(
        &self,
        location: &Location,
        progress: &Progress,
    ) -> Result<EarlierAttempt, StoreError> {
        let BackupJournal { writer, entries } = self.journal(location).await?;
        let actions = ActionJournal::take_over(Arc::clone(&writer), &entries)?;
        let snapshots = SnapshotJournal::take_over(Arc::clone(&writer), &entries)?;
        let hooks = self.hooks(writer, progress.clone());
        let pending_hooks = hooks.take_over(&entries).await?;
        Ok(EarlierAttempt {
            hooks,
            actions,
            snapshots,
            pending_hooks,
        })
    }

    async fn fill(
        &self,
        backup: &Backup,
        location: &Location,
        writer: &mut BackupWriter,
        progress: &Progress,
        earlier: &EarlierAttempt,
    ) -> Result<JobFiles, WorkError> {
        let mut report = Report::new(Some(&self.name))?;
        report.info("collecting items");
        let log = report.log();
        let EarlierAttempt {
            hooks,
            actions,
            pending_hooks,
            ..
        } = earlier;
        for error in &pending_hooks.errors {
            report.error(Scope::Velero, error.as_str());
        }
        if let Some(again) = &pending_hooks.again {
            report.warn(Scope::Velero, again.as_str());
        }
        let output = CollectOutput {
            sink: writer,
            action_journal: Some(actions),
            report: &mut report,
            progress,
        };
        let of = Subject {
            owner: FileOwner::Backup,
            name: &self.name,
            uid: &self.uid,
        };
        let collected = tokio::select! {
            collected = self.collect_items(backup, earlier, output) => collected,
            never = upload_log(&self.ctx, of, location, log) => match never {},
        };
        let (mut collected, volumes) = match collected {
            Ok(collected) => collected,
            Err(CollectError::Api(error)) => return Err(error.into()),
            Err(CollectError::Stopped(reason)) => return Err(reason.into()),
            Err(CollectError::Store(error)) => return Err(WorkError::Store(error)),
        };
        // A cancellation may have left post commands pending.
        for problem in hooks.run_pending().await {
            report.error(Scope::Velero, problem);
        }
        let (left, unknown) = actions.left();
        collected.operations.extend(
            left.into_iter()
                .filter_map(|(of, done)| StartedOperation::new(of, done)),
        );
        for problem in unknown {
            report.error(Scope::Velero, problem);
        }
        tell_missing_data(
            &mut report,
            backup,
            &volumes,
            self.kind.settings.csi,
            &collected,
        );
        // The missing items of a cancelled backup are reported already.
        if !self.cancellation.is_cancelled() {
            warn_of_empty(&mut report, backup, progress, &collected);
        }
        let operations = records::encode(&actions::begun(backup, &collected.operations))?;
        let volume_snapshots = records::encode(&collected.snapshots)?;
        remember_failure(&mut report, backup);
        report.info(&format!(
            "collected {}, {}, {}",
            counted(progress.written(), "item"),
            counted(report.warnings(), "warning"),
            counted(report.errors(), "error")
        ));
        let (results, log) = report.into_parts();
        Ok(JobFiles {
            results,
            resource_list: collected.list,
            volume_info: volumes.info(),
            item_operations: operations,
            volume_snapshots,
            ..JobFiles::new(log)
        })
    }

    /// Selects, loads the actions, and collects. Also returns the outcomes of volumes. Unreadable
    /// items are errors in the report.
    async fn collect_items(
        &self,
        backup: &Backup,
        earlier: &EarlierAttempt,
        output: CollectOutput<'_, BackupWriter>,
    ) -> Result<(CollectedItems, Arc<BackupVolumes>), CollectError> {
        let cluster = &self.ctx.cluster;
        let kind = &self.kind;
        let selection = observe::selection(
            cluster,
            &backup.spec,
            kind.only_related_cluster_resources,
            &kind.groups,
            kind.settings.global_policies.as_deref(),
        );
        let waits = self.cancellation.waits();
        let subject = "the API server to say which types and namespaces it has (/api, /apis)";
        let mut selection = waits.during(subject, Box::pin(selection)).await?;
        if kind.settings.api_group_versions {
            selection.plan.add_versions();
        }
        report_missing(output.report, &selection);
        let plan = &selection.plan;
        let volumes = Arc::new(BackupVolumes::with_policy(volume_policy(
            backup.spec.clone(),
            plan.policy.clone(),
        )));
        let actions = BackupActions::load(cluster, kind, &plan.served, &volumes).await;
        // Whatever the phase is: items are collected from the start.
        let mut shown = backup.clone();
        shown.status.phase = Some(BackupPhase::InProgress);
        let journal = earlier.snapshots.clone();
        let log = &actions.log;
        let volume_snapshots =
            VolumeSnapshots::open(kind, &shown, journal, &volumes, output.report, log).await?;
        let request = CollectRequest {
            client: &cluster.client,
            backup: &shown,
            plan,
            actions: &actions,
            hooks: Some(&earlier.hooks),
            volume_snapshots: Some(volume_snapshots),
            cancellation: &self.cancellation,
            item_block_workers: kind.item_block_workers,
        };
        Ok((collect(request, output).await?, volumes))
    }
}

/// The decision of spec and resource policy about the volume of a claim.
fn volume_policy(spec: BackupSpec, policy: Option<ResourcePolicy>) -> Box<VolumePolicy> {
    Box::new(move |claim, volume| {
        match plan(
            &spec,
            policy.as_ref(),
            &Volume::persistent(Some(volume), Some(claim)),
            false,
        ) {
            VolumePlan::Snapshot { class } => VolumeDecision::Snapshot { class },
            VolumePlan::Skip { reason } => VolumeDecision::Skip(reason),
            VolumePlan::FsBackup => skip_unsupported("a copy of its files"),
            VolumePlan::Custom { .. } => skip_unsupported("an action of its own"),
        }
    })
}

/// `unsupported_volumes` reports an error of the claim, whether snapshots are taken or not.
fn skip_unsupported(request: &str) -> VolumeDecision {
    VolumeDecision::Skip(format!(
        "the resource policy asks for {request}, which is not done"
    ))
}

fn report_missing(report: &mut Report, selection: &Selection) {
    for name in &selection.unknown {
        let message = format!(
            "no type that can be backed up is called {name:?}: nothing of it is in this backup; correct or remove the name"
        );
        report.error(Scope::Velero, message);
    }
    for pattern in &selection.unmatched {
        report.warn(
            Scope::Velero,
            format!("no type matches {pattern:?}: it selects nothing"),
        );
    }
    for name in &selection.idle_excludes {
        report.warn(
            Scope::Velero,
            format!("no type is called {name:?}: excluding it leaves nothing out"),
        );
    }
    for name in &selection.idle_namespaces {
        report.warn(
            Scope::Velero,
            format!("no namespace is called {name:?}: excluding it leaves nothing out"),
        );
    }
    for problem in &selection.policy_problems {
        report.error(
            Scope::Velero,
            format!("the resource policy is not followed: {problem}"),
        );
    }
    for remark in &selection.policy_remarks {
        report.warn(Scope::Velero, remark.clone());
    }
    for group in &selection.silent {
        let message = format!(
            "API group {group} did not answer; nothing of it can be created, so nothing is missing from this backup"
        );
        report.warn(Scope::Velero, message);
    }
    for group in &selection.unavailable {
        report.error(
            Scope::Velero,
            format!("API group {group} did not answer, so its types are missing from this backup; see its APIService"),
        );
    }
}

/// If the phase says that something is missing, the end must say so, too.
pub(super) fn remember_failure(report: &mut Report, backup: &Backup) {
    if backup.phase().has_failed_so_far() && report.errors() == 0 {
        report.error(
            Scope::Velero,
            "an earlier try of this backup met errors that were lost when it was taken up again",
        );
    }
}

/// Warns if the spec selected nothing.
fn warn_of_empty(
    report: &mut Report,
    backup: &Backup,
    progress: &Progress,
    collected: &CollectedItems,
) {
    if progress.written() == 0 {
        report.warn(
            Scope::Velero,
            "nothing is in this backup: the cluster has no item that its spec selects",
        );
    } else if backup.spec.selects_by_labels() && collected.list.holds_only("v1/Namespace") {
        report.warn(
            Scope::Velero,
            "the label selector selects no item: only the Namespaces themselves are in this backup",
        );
    }
}

/// Reports claims whose data is not in the backup: as errors if snapshots are requested. Without
/// CSI, nothing is known of claims whose volumes no plugin has seen.
fn tell_missing_data(
    report: &mut Report,
    backup: &Backup,
    volumes: &BackupVolumes,
    csi: bool,
    collected: &CollectedItems,
) {
    let asked = backup.spec.snapshot_volumes == Some(true);
    // A claim without a volume has no data.
    let claims = collected.bound_claims.saturating_sub(volumes.claims());
    if !csi && claims > 0 && backup.spec.snapshot_volumes != Some(false) {
        let message = format!(
            "the data of {} is not in this backup: snapshots of CSI volumes are taken where --features has EnableCSI, others \
             by plugins",
            counted(claims, "PersistentVolumeClaim")
        );
        tell_missing(report, asked, Scope::Velero, message);
    }
    for (namespace, message) in volumes.missing() {
        tell_missing(report, asked, Scope::Namespace(&namespace), message);
    }
}

/// Reports missing data as an error if it was asked for, otherwise as a warning.
fn tell_missing(report: &mut Report, asked: bool, scope: Scope<'_>, message: String) {
    if asked {
        report.error(scope, message);
    } else {
        report.warn(scope, message);
    }
}

/// Writes the progress of a collection and the current wait, once a second, if changed. Best
/// effort; each patch carries the resourceVersion and is only made in InProgress, so that it cannot
/// affect later phases. Ends if the Backup is gone.
async fn publish_progress(cluster: &Cluster, backup: &Backup, progress: &Progress, waits: &Waits) {
    let mut backup = backup.clone();
    let mut told = (0, None);
    let mut wait_log = WaitLog::default();
    if backup.phase() != BackupPhase::InProgress {
        return std::future::pending().await;
    }
    let api = cluster.api::<Backup>();
    loop {
        tokio::time::sleep(PROGRESS_PERIOD).await;
        let wait = waits.shown();
        if let Some(line) = wait_log.line(wait.as_ref()) {
            tracing::info!(name = backup.name_any(), "the backup: {line}");
        }
        let current = (progress.written(), wait.map(|wait| wait.sentence()));
        if current == told {
            continue;
        }
        let outcome =
            retry::status_patch_in(&api, &cluster.leadership, PROGRESS_PERIOD, &backup, |now| {
                patches::progress(now, progress, current.1.as_deref())
            })
            .await;
        match outcome {
            Ok(PatchOutcome::Written(now)) => {
                backup = now;
                told = current;
            }
            Ok(PatchOutcome::Gone | PatchOutcome::Stale) => return,
            Err(error) => tracing::debug!(%error, "progress could not be written"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_claims_whose_data_is_missing_are_those_with_a_volume() {
        let mut report = Report::new(None).unwrap();
        let collected = CollectedItems {
            bound_claims: 1,
            ..CollectedItems::default()
        };
        tell_missing_data(
            &mut report,
            &Backup::default(),
            &BackupVolumes::default(),
            false,
            &collected,
        );
        let (results, _) = report.into_parts();
        let warnings = results.warnings.velero;
        assert!(
            warnings.len() == 1
                && warnings[0].starts_with("the data of 1 PersistentVolumeClaim is not in"),
            "{warnings:?}"
        );
    }
}
