//! Collecting a backup's items into the store, while people can watch.

use std::{sync::Arc, time::Duration};

use backup_actions::backup::BackupVolumes;
use backup_core::api::{Backup, BackupPhase};
use backup_lock::Token;
use backup_runtime::retry::{self, PatchOutcome};
use backup_store::{BackupFiles, BackupWriter, FileOwner, Location, PendingBackup, Scope, StoreError, crash};

use super::{Next, Record, Trouble, Worker};
use crate::job::cancellation::StopReason;
use crate::{
    backup::{
        actions::{ActionJournal, StartedOperation},
        collect::{CollectError, CollectOutput, CollectedBackup, CollectedItems, collect_backup},
        decide::{self, Stored},
        finish::Unfinished,
        hooks::{Hooks, TakenOver},
        journal::BackupJournal,
        patches,
        progress::Progress,
        report::Report,
        volume_snapshots::SnapshotJournal,
    },
    context::Context,
    job::log_upload::{Subject, upload_log},
    job::operations::records,
};

/// Between two notes of how far a collection has come.
const PROGRESS_PERIOD: Duration = Duration::from_secs(1);

impl Worker {
    /// Collects everything from the start; then the Backup is Finalizing, and nothing of it is visible in the store yet.
    /// `lost` is what was decided before, and can't be written any more.
    pub(super) async fn collect(
        &mut self,
        backup: Backup,
        location: &Location,
        lost: Option<Record>,
        token: &Token,
    ) -> Result<Next, Trouble> {
        let permits = Arc::clone(&self.permits);
        let _permit = tokio::select! {
            permit = permits.acquire() => permit.map_err(|_| StopReason::ShuttingDown)?,
            reason = self.cancellation.stopped() => return Err(reason.into()),
        };
        self.cancellation.check()?;
        let opened = match lost {
            None => location.open_backup(&self.name, &self.uid).await,
            Some(Record::Committed(plan)) => plan.begin_again().await,
            Some(Record::Waiting(waiting)) => waiting.begin_again().await,
        };
        let mut writer = match opened {
            Ok(writer) => writer,
            Err(error) => return self.writing_failed(&backup, location, error).await,
        };
        let progress = Progress::default();
        let taken_up = async {
            let journal = BackupJournal::open(&self.ctx, location, &self.name, &self.uid).await?;
            let BackupJournal { writer, entries } = journal;
            let actions = ActionJournal::take_over(Arc::clone(&writer), &entries)?;
            let snapshots = SnapshotJournal::take_over(Arc::clone(&writer), &entries)?;
            let hooks = Hooks::in_cluster(&self.ctx, writer, progress.clone());
            let taken_over = hooks.take_over(&entries).await?;
            Ok((hooks, (actions, snapshots), taken_over))
        };
        let taken_up = tokio::select! {
            taken_up = taken_up => taken_up,
            reason = self.cancellation.stopped() => {
                writer.abort().await;
                return Err(reason.into());
            }
        };
        let (hooks, (actions, snapshots), taken_over) = match taken_up {
            Ok(taken_up) => taken_up,
            Err(error) => {
                writer.abort().await;
                return self.writing_failed(&backup, location, error).await;
            }
        };
        let collected = tokio::select! {
            collected = self.fill(&backup, location, (&mut writer, &actions, snapshots), &progress, &hooks, taken_over) => collected,
            () = publish_progress(&self.ctx, &backup, &progress) => Err(Trouble::Changed),
            // A list or a store that hangs does not hold up the end of the process, or a deletion.
            reason = self.cancellation.stopped() => Err(reason.into()),
        };
        // Whoever leads now pays what is owed; two would run it twice.
        if !matches!(collected, Err(Trouble::Stopped(StopReason::NotLeader(_)))) {
            for problem in hooks.run_pending().await {
                tracing::warn!(backup = self.name, problem, "what a pod was owed");
            }
        }
        let collected = match collected {
            Ok(collected) => collected,
            Err(trouble) => {
                writer.abort().await;
                return Err(trouble);
            }
        };
        let files = match collected {
            Ok(files) => files,
            Err(error) => {
                writer.abort().await;
                return self.writing_failed(&backup, location, error).await;
            }
        };
        if !files.item_operations.is_empty() {
            return self.begin_to_wait(&backup, location, writer, files, (&progress, token)).await;
        }
        match writer.finish().await {
            Ok(contents) => self.enter_finalizing(&backup, contents, files, &progress, token).await,
            Err(error) => self.writing_failed(&backup, location, error).await,
        }
    }

    /// Everything is collected, and operations go on: keeps both, then says so. The operations are in the store before the
    /// phase tells of them.
    async fn begin_to_wait(
        &mut self,
        backup: &Backup,
        location: &Location,
        writer: BackupWriter,
        files: BackupFiles,
        (progress, token): (&Progress, &Token),
    ) -> Result<Next, Trouble> {
        if let Err(trouble) = self.still_claimed(token).await {
            writer.abort().await;
            return Err(trouble);
        }
        crash::point("before-operations");
        if let Err(error) = writer.await_operations(files, patches::collection(progress)).await {
            return self.writing_failed(backup, location, error).await;
        }
        crash::point("after-operations-recorded");
        Ok(Next::Again(None))
    }

    /// Everything is collected: says so, if it was collected under our claim.
    async fn enter_finalizing(
        &mut self,
        backup: &Backup,
        contents: PendingBackup,
        files: BackupFiles,
        progress: &Progress,
        token: &Token,
    ) -> Result<Next, Trouble> {
        let next = decide::finalizing(files.results.errors());
        let published = match self.still_claimed(token).await {
            Ok(()) if !decide::announces(&backup.phase()) => Ok(backup.clone()),
            Ok(()) => self.publish(backup, |now| patches::finalizing(now, &next, Some(progress))).await,
            Err(trouble) => Err(trouble),
        };
        match published {
            Ok(finalizing) => {
                crash::point("after-finalizing-patch");
                self.unfinished = Some(Unfinished::new(contents, files, progress.status(true)));
                Ok(Next::Again(Some(Box::new(finalizing))))
            }
            Err(trouble) => {
                contents.discard().await;
                Err(trouble)
            }
        }
    }

    /// Fills the contents. The inner error is one of the store.
    async fn fill(
        &self,
        backup: &Backup,
        location: &Location,
        (writer, actions, snapshots): (&mut BackupWriter, &ActionJournal, SnapshotJournal),
        progress: &Progress,
        hooks: &Hooks,
        taken_over: TakenOver,
    ) -> Result<Result<BackupFiles, StoreError>, Trouble> {
        let mut report = Report::new(&self.name).map_err(|error| Trouble::Blocked {
            reason: format!("the log can't be kept on the local disk: {error}"),
            passing: true,
        })?;
        report.info("collecting items");
        let log = report.log();
        for error in taken_over.errors {
            report.error(Scope::Velero, error);
        }
        if let Some(again) = taken_over.again {
            report.warn(Scope::Velero, again);
        }
        let output = CollectOutput { sink: writer, action_journal: actions, report: &mut report, progress };
        let of = Subject { owner: FileOwner::Backup, name: &self.name, uid: &self.uid };
        let collected = tokio::select! {
            collected = collect_backup(&self.ctx, backup, hooks, snapshots, output, &self.cancellation) => collected,
            never = upload_log(&self.ctx, of, location, log) => match never {},
        };
        let CollectedBackup { items: mut collected, volumes } = match collected {
            Ok(collected) => collected,
            Err(CollectError::Api(error)) => return Err(error.into()),
            Err(CollectError::Stopped(reason)) => return Err(reason.into()),
            Err(CollectError::Store(error)) => return Ok(Err(error)),
        };
        // A cancellation may have come between two commands.
        for problem in hooks.run_pending().await {
            report.error(Scope::Velero, problem);
        }
        let (left, unknown) = actions.left();
        collected
            .operations
            .extend(left.into_iter().filter_map(|(of, done)| StartedOperation::new(of, done)));
        for problem in unknown {
            report.error(Scope::Velero, problem);
        }
        tell_missing_data(&mut report, backup, &volumes, self.ctx.args.csi(), &collected);
        let unencoded = |error: serde_json::Error| Trouble::Blocked {
            reason: format!("operations or snapshots can't be encoded: {error}"),
            passing: false,
        };
        let operations =
            records::encode(&records::begun(backup, &collected.operations)).map_err(unencoded)?;
        let volume_snapshots = collected
            .snapshots
            .iter()
            .map(serde_json::to_value)
            .collect::<Result<_, _>>()
            .map_err(unencoded)?;
        remember_failure(&mut report, backup);
        report.info(&format!(
            "collected {} items, {} warnings, {} errors",
            progress.written(),
            report.warnings(),
            report.errors()
        ));
        let (results, log) = report.into_parts();
        Ok(Ok(BackupFiles {
            log,
            results,
            resource_list: collected.list,
            volume_info: volumes.info(),
            item_operations: operations,
            volume_snapshots,
            pod_volume_backups: vec![],
        }))
    }

    /// The store did not take the contents. What was collected is lost; it is collected again.
    async fn writing_failed(
        &mut self,
        backup: &Backup,
        location: &Location,
        mut error: StoreError,
    ) -> Result<Next, Trouble> {
        if matches!(error, StoreError::Exists { .. }) && decide::may_fail(&backup.phase()) {
            let found = location.find_job::<Backup>(&self.name, &self.uid).await;
            match found.map(|found| Stored::of(&found, &self.uid)) {
                // Another replica has come further with this very backup: that is gone on with.
                Ok(Stored::Ours(_) | Stored::Recorded | Stored::Waiting) => return Err(Trouble::Changed),
                Ok(Stored::Nothing | Stored::Others { .. }) => {
                    return self
                        .fail(backup, &format!("backup already exists in object storage: {error}"))
                        .await;
                }
                Err(unread) => error = unread,
            }
        }
        let reason = error.to_string();
        self.leave_slot(backup).await?;
        Err(Trouble::Blocked { reason, passing: error.is_transient() })
    }
}

/// A phase that says that something is missing is only followed by an end that says so, too.
pub(super) fn remember_failure(report: &mut Report, backup: &Backup) {
    if decide::had_failed(&backup.phase()) && report.errors() == 0 {
        report.error(
            Scope::Velero,
            "an earlier try of this backup met errors that were lost when it was taken up again",
        );
    }
}

/// Claims whose data is not in the backup. Where snapshots are asked for, each is an error. Without CSI, nothing is known of those
/// whose volumes no plugin was shown.
fn tell_missing_data(
    report: &mut Report,
    backup: &Backup,
    volumes: &BackupVolumes,
    csi: bool,
    collected: &CollectedItems,
) {
    let asked = backup.spec.snapshot_volumes == Some(true);
    let claims = if asked { collected.bound_claims } else { collected.claims };
    let claims = claims.saturating_sub(volumes.claims());
    if !csi && claims > 0 && backup.spec.snapshot_volumes != Some(false) {
        let message = format!(
            "the data of {claims} PersistentVolumeClaims is not in this backup: snapshots of CSI volumes are taken where \
             --features has EnableCSI, others by plugins"
        );
        if asked {
            report.error(Scope::Velero, message);
        } else {
            report.warn(Scope::Velero, message);
        }
    }
    for (namespace, message) in volumes.missing() {
        if asked {
            report.error(Scope::Namespace(&namespace), message);
        } else {
            report.warn(Scope::Namespace(&namespace), message);
        }
    }
}

/// Writes the progress of a collection once a second, when it has changed. Best effort; each patch carries the
/// resourceVersion and is only made in InProgress, so that it can't touch what comes after. Ends if the Backup is gone.
async fn publish_progress(ctx: &Context, backup: &Backup, progress: &Progress) {
    let (mut backup, mut told) = (backup.clone(), 0);
    if backup.phase() != BackupPhase::InProgress {
        return std::future::pending().await;
    }
    let api = ctx.cluster.api::<Backup>();
    loop {
        tokio::time::sleep(PROGRESS_PERIOD).await;
        let written = progress.written();
        if written == told {
            continue;
        }
        let patch = |now: &Backup| patches::progress(now, progress);
        match retry::status_patch_in(&api, &ctx.cluster.leadership, PROGRESS_PERIOD, &backup, patch).await {
            Ok(PatchOutcome::Written(now)) => (backup, told) = (now, written),
            Ok(PatchOutcome::Gone | PatchOutcome::Stale) => return,
            Err(error) => tracing::debug!(%error, "progress could not be written"),
        }
    }
}
