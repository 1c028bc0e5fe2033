//! Runs the work of one Restore from its stored backup, shows the progress, and returns the
//! results.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use backup_actions::restore::{self, RestoreActionOutput, RestoreItemAction, existing};
use backup_core::{
    api::{Backup, Restore},
    operation::RestoreOperation,
    validate::Finding,
};
use backup_runtime::{Cluster, retry};
use backup_store::{
    AwaitingRestore, Contents, FileOwner, Limits, Location, PendingRestore, SavedVolumes, Scope,
    StoreError,
};
use kube::ResourceExt as _;

use super::{
    Restores,
    calls::{Calls, Pace},
    hooks::{HookContext, HookJournal},
    identity, operations, patches,
    report::Report,
    validate::{self, Configuration, Facts},
    volume_snapshots::{Snapshots, VolumeJournal},
    work::{
        self, ActionContext, BackupMover, RestoreError, Restoring, StartedOperation, VolumePlan,
    },
};
use crate::job::{
    action_journal::{self, ActionJournal},
    cancellation::StopReason,
    journal::JobJournal,
    kind::JobKind as _,
    lifecycle::{self, JobWork, WorkError, WorkResult},
    log_upload::{Subject, upload_log},
    operations::records,
    pending_end::CompletedWork,
    waits::{WaitLog, Waits},
    worker::{InterruptedWork, Worker, WorkerError},
};
use backup_plugins::{Host, PluginLog, catalog::Kind};

const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of one write of the progress, with retries; the next one follows soon.
const PROGRESS_BUDGET: Duration = Duration::from_secs(2);

impl JobWork for Restores {
    async fn work(
        worker: &mut Worker<Self>,
        work: lifecycle::Work<'_, Self>,
    ) -> Result<WorkResult<Self>, WorkError> {
        Box::pin(worker.restore(work)).await
    }

    /// Retried until the store accepts it: the results are in memory only, and a second run would
    /// find all objects existing.
    async fn await_operations(
        worker: &mut Worker<Self>,
        _: &Restore,
        restored: WorkResult<Self>,
    ) -> Result<(), WorkError> {
        loop {
            worker.cancellation.check()?;
            let recorded = patches::recorded(&restored.summary);
            let error = match restored
                .contents
                .await_operations(&restored.files, recorded)
                .await
            {
                Ok(()) => return Ok(()),
                Err(StoreError::Exists { .. }) => return Err(WorkerError::Conflict.into()),
                Err(error) => error,
            };
            let reason = format!("what the restore has started could not be stored: {error}");
            let delay = worker.report_blocked(&reason, error.is_transient()).await;
            worker.cancellation.sleep(delay).await?;
        }
    }

    async fn upload(contents: PendingRestore) -> Result<PendingRestore, StoreError> {
        Ok(contents)
    }

    async fn discard(_: PendingRestore) {}

    async fn discard_upload(_: PendingRestore) {}

    async fn complete(
        worker: &mut Worker<Self>,
        restore: &Restore,
        location: &Location,
        awaiting: AwaitingRestore,
        operations: &[RestoreOperation],
    ) -> Result<CompletedWork<Self>, WorkError> {
        let opened = location
            .open_restore(&worker.name, &worker.kind.claimant(restore))
            .await;
        let upload = opened.map_err(WorkError::Store)?;
        let (files, summary) =
            operations::completed(restore, awaiting, operations).map_err(WorkError::Store)?;
        Ok(CompletedWork {
            upload,
            files,
            summary,
        })
    }
}

impl Worker<Restores> {
    async fn restore(
        &mut self,
        job: lifecycle::Work<'_, Restores>,
    ) -> Result<WorkResult<Restores>, WorkError> {
        let ctx = self.ctx.clone();
        let kind = Arc::clone(&self.kind);
        let lifecycle::Work {
            object: restore,
            facts,
            location: store,
            token,
            resumed,
            ..
        } = job;
        let Some(backup) = &facts.backup else {
            return Err(WorkerError::Conflict.into());
        };
        let name = backup.name_any();
        let claimed = &token.footprint;
        let configuration = self
            .configuration(restore, facts)
            .map_err(|found| unusable_configuration(&found))?;
        let earlier = identity::earlier_tarball(store, backup)
            .await
            .map_err(WorkError::Store)?;
        let contents = self.contents(store, backup, resumed).await?;
        if let Some(reason) =
            validate::refusal(&restore.spec, backup, &contents.namespaces(), claimed)
        {
            return Err(refused(&reason, resumed));
        }
        let report = self.report(store, facts, &name, &configuration, earlier)?;
        if !contents.is_empty() {
            let checked = identity::check_list(store, &name, &contents, kind.limits, &report).await;
            checked.map_err(WorkError::Store)?;
        }
        // Before any item: an error found only at the end could no longer be corrected.
        let opened = store
            .open_restore(&self.name, &kind.claimant(restore))
            .await;
        let upload = opened.map_err(WorkError::Store)?;
        let Journals {
            actions: journal,
            volumes,
            hooks,
        } = self.journals(store, resumed).await?;
        let log = PluginLog::default();
        let loaded = Snapshots::load(
            &kind.snapshot_locations,
            store,
            backup,
            restore,
            volumes,
            &log,
        )
        .await;
        let snapshots = loaded.map_err(|error| unreadable(error, &name, resumed))?;
        let saved = saved_volumes(store, backup, restore)
            .await
            .map_err(|error| unreadable(error.into(), &name, resumed))?;
        let calls = Calls::new(
            ctx.cluster.client.clone(),
            self.cancellation.clone(),
            Pace::with_patience(ctx.resource_timeout),
        );
        let restoring = Restoring {
            restore,
            backup,
            contents: &contents,
            claimed,
            guarded: &kind.guarded,
            order: &kind.order,
            versions: facts.versions(),
            memory: &kind.memory,
            resumed,
            created: existing::created(restore),
            own: &ctx.cluster.namespace,
            patience: ctx.resource_timeout,
            rules: work::rules(restore, backup),
            actions: ActionContext::new(&ctx, &calls, &configuration.actions, &journal, log),
            configuration,
            hooks: HookContext {
                executor: &*kind.executor,
                journal: &hooks,
            },
            snapshots,
            saved,
            mover: BackupMover {
                is_running: kind.has_mover,
                location: backup.spec.storage_location.as_deref().unwrap_or_default(),
            },
            plan: VolumePlan::default(),
            discover: work::discover(&ctx.cluster.client),
            calls: &calls,
            report: &report,
        };
        let of = Subject {
            owner: FileOwner::Restore,
            name: &self.name,
            uid: &self.uid,
        };
        let done = tokio::select! {
            done = run(restoring, &kind.plugins, &ctx.cluster) => done,
            never = upload_log(&ctx, of, store, report.log()) => match never {},
        };
        match done {
            Ok(started) => Ok(result(restore, report, &journal, started, upload)?),
            Err(error) => Err(self.failure(error, report, resumed)),
        }
    }

    /// The settings of the restore in ConfigMaps; none if it is cancelled.
    fn configuration(
        &self,
        restore: &Restore,
        facts: &Facts,
    ) -> Result<Configuration, Vec<Finding>> {
        if self.cancellation.is_cancelled() {
            return Ok(Configuration::default());
        }
        // The ConfigMaps may have changed since the start: after a restart they are read again.
        Configuration::read(&restore.spec, facts)
    }

    /// Reads the items of the backup. A resumed restore that is cancelled ends without any.
    async fn contents(
        &self,
        store: &Location,
        backup: &Backup,
        resumed: bool,
    ) -> Result<Contents, WorkError> {
        tokio::select! {
            reason = self.cancellation.stopped() => Err(reason.into()),
            // Operations of an earlier attempt are in its journal, read later.
            () = self.cancellation.cancelled(), if resumed => Ok(Contents::none()?),
            () = self.cancellation.cancelled(), if !resumed => {
                Err(WorkError::Fatal(Restores::KIND.cancelled().to_owned()))
            }
            contents = read_contents(store, backup, self.kind.limits) => {
                contents.map_err(|error| unreadable(error, &backup.name_any(), resumed))
            }
        }
    }

    /// The report, with what is known before any item. `earlier` is the warning about an old
    /// tarball.
    fn report(
        &self,
        store: &Location,
        facts: &Facts,
        backup: &str,
        configuration: &Configuration,
        earlier: Option<String>,
    ) -> Result<Report, WorkerError> {
        let report = Report::new()?;
        report.info(&format!(
            "restoring {:?} from backup {backup:?} in {}",
            self.name,
            store.url()
        ));
        if let Some(copy) = facts.copy_location() {
            report.info(&format!(
                "this is its copy in location {copy}, as its own location cannot be read; data outside of its files is not there"
            ));
        }
        let ignored = configuration.actions.ignored.iter();
        for ignored in ignored.chain(facts.ignored_versions()) {
            report.warn(Scope::Velero, ignored.clone());
        }
        if let Some(earlier) = earlier {
            report.warn(Scope::Velero, earlier);
        }
        Ok(report)
    }

    /// The error for work that did not complete. If its claim was released by force, it is not
    /// resumed: the results so far are kept for the end.
    fn failure(&mut self, error: RestoreError, report: Report, resumed: bool) -> WorkError {
        if matches!(error, RestoreError::Stopped(StopReason::ClaimLost))
            && let Some(by) = self.cancellation.fence().released()
        {
            let reason = report.released(&by, resumed);
            let summary = report.summary();
            self.interrupted = Some(InterruptedWork {
                files: report.into_files(),
                summary,
            });
            return WorkError::Fatal(reason);
        }
        if let RestoreError::Refused(reason) = &error {
            return refused(reason, resumed);
        }
        WorkerError::from(error).into()
    }

    /// The journals of a restore, with the entries of earlier attempts.
    async fn journals(&self, store: &Location, resumed: bool) -> Result<Journals, StoreError> {
        let (journal, entries) = if resumed {
            store
                .journal::<Restore>(&self.name, &self.uid, action_journal::slim)
                .await?
        } else {
            (
                store.new_journal::<Restore>(&self.name, &self.uid)?,
                Vec::new(),
            )
        };
        let writer = Arc::new(JobJournal::new(
            journal,
            self.ctx.cluster.leadership.clone(),
        ));
        Ok(Journals {
            actions: ActionJournal::take_over(writer.clone(), &entries)?,
            volumes: VolumeJournal::take_over(writer.clone(), &entries)?,
            hooks: HookJournal::take_over(writer, &entries)?,
        })
    }
}

/// The result of completed work: the report, and the operations that actions have started.
fn result(
    restore: &Restore,
    report: Report,
    journal: &ActionJournal<RestoreActionOutput>,
    started: Vec<StartedOperation>,
    upload: PendingRestore,
) -> Result<WorkResult<Restores>, StoreError> {
    if restore.phase().has_failed_so_far() && report.counts().1 == 0 {
        report.error(
            Scope::Velero,
            "a first run ended with errors, and a restart lost which; all items were checked again and none failed"
                .to_owned(),
        );
    }
    let (left, unknown) = journal.left();
    for problem in unknown {
        report.error(Scope::Velero, problem);
    }
    let operations = operations::begun(restore, started.into_iter().chain(left));
    let summary = report.summary();
    let mut files = report.into_files();
    files.item_operations = records::encode(&operations)?;
    Ok(WorkResult {
        contents: upload,
        files,
        summary,
    })
}

impl From<RestoreError> for WorkerError {
    fn from(error: RestoreError) -> Self {
        let retryable = match &error {
            RestoreError::Stopped(reason) => return Self::Stopped(*reason),
            RestoreError::Journal(cause) => cause.is_transient(),
            RestoreError::Refused(_) => false,
            RestoreError::Discovery(_) | RestoreError::Contents(_) => true,
        };
        Self::Blocked {
            reason: error.to_string(),
            retryable,
        }
    }
}

/// The error for settings in ConfigMaps that cannot be used.
fn unusable_configuration(found: &[Finding]) -> WorkError {
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    WorkError::Fatal(format!(
        "what the restore is configured with cannot be followed: {}",
        found.join("; ")
    ))
}

/// The error for a backup with this name that cannot be read.
fn unreadable(error: WorkerError, name: &str, resumed: bool) -> WorkError {
    let WorkerError::Blocked {
        reason,
        retryable: false,
    } = error
    else {
        return error.into();
    };
    // `describe` recognises from this prefix that nothing was restored.
    WorkError::Fatal(if resumed {
        let stays = "what was restored before this restore was taken up again stays";
        format!("backup {name:?} can no longer be read; {stays}: {reason}")
    } else {
        format!("nothing was restored: backup {name:?} cannot be read: {reason}")
    })
}

fn refused(reason: &str, resumed: bool) -> WorkError {
    let more = if resumed { " more" } else { "" };
    WorkError::Fatal(format!("nothing{more} was restored: {reason}"))
}

/// Reads a backup's contents after checking that the stored metadata belongs to it.
pub(super) async fn read_contents(
    store: &Location,
    backup: &Backup,
    limits: Limits,
) -> Result<Contents, WorkerError> {
    identity::check_metadata(store, backup).await?;
    Ok(store.read_contents(&backup.name_any(), limits).await?)
}

/// How the data of volumes was saved, if volumes are restored.
pub(super) async fn saved_volumes(
    store: &Location,
    backup: &Backup,
    restore: &Restore,
) -> Result<SavedVolumes, StoreError> {
    if restore.spec.restore_pvs == Some(false) {
        return Ok(SavedVolumes::default());
    }
    store.saved_volumes(backup).await
}

/// The journals of a restore, by the subject of their entries.
struct Journals {
    actions: ActionJournal<RestoreActionOutput>,
    volumes: VolumeJournal,
    hooks: HookJournal,
}

/// Restores with the actions of plugins, and shows the progress meanwhile.
async fn run(
    mut restoring: Restoring<'_>,
    plugins: &Host,
    cluster: &Cluster,
) -> Result<Vec<StartedOperation>, RestoreError> {
    let Restoring {
        restore,
        report,
        calls,
        ..
    } = restoring;
    let cancellation = calls.cancellation();
    restoring.actions.plugins = tokio::select! {
        usable = usable_actions(plugins, &restoring.actions.log, report) => usable,
        reason = cancellation.stopped() => return Err(reason.into()),
    };
    tokio::select! {
        done = restoring.run() => done,
        halt = show_progress(cluster, restore, report, cancellation.waits()) => Err(halt.into()),
    }
}

/// The usable actions of plugins. Unusable ones are errors of the restore.
async fn usable_actions(
    plugins: &Host,
    log: &PluginLog,
    report: &Report,
) -> Vec<Arc<dyn RestoreItemAction>> {
    let built_in = restore::built_in(&Arc::default());
    let built_in = built_in.iter().map(|action| action.name().to_owned());
    let of_velero = restore::names()
        .chain(restore::CSI_NAMES)
        .chain([restore::MOVED_NAME])
        .map(str::to_owned);
    let built_in = built_in.chain(of_velero).collect();
    let found = plugins
        .actions(&Kind::RESTORE_ITEM, &built_in, Some(log))
        .await;
    for problem in found.problems {
        report.error(Scope::Velero, problem);
    }
    found.usable.into_iter().map(|action| action as _).collect()
}

/// Writes the progress and the current wait when they have changed, at most once a second. A failed
/// write is skipped. Returns when the work has no purpose left: the Restore is gone, or another
/// process has ended it and its claim is free.
pub(super) async fn show_progress(
    cluster: &Cluster,
    restore: &Restore,
    report: &Report,
    waits: &Waits,
) -> StopReason {
    let mut restore = restore.clone();
    let mut shown = None;
    let mut wait_log = WaitLog::default();
    loop {
        tokio::time::sleep(PROGRESS_INTERVAL).await;
        let wait = waits.shown();
        if let Some(line) = wait_log.line(wait.as_ref()) {
            tracing::info!(name = restore.name_any(), "the restore: {line}");
            report.info(&line);
        }
        let now = (report.progress(), wait.map(|wait| wait.sentence()));
        if shown.as_ref() == Some(&now) {
            continue;
        }
        let api = cluster.api::<Restore>();
        let ended = AtomicBool::new(false);
        let written = retry::status_patch_in(
            &api,
            &cluster.leadership,
            PROGRESS_BUDGET,
            &restore,
            |current| {
                ended.store(current.phase().is_terminal(), Ordering::Relaxed);
                patches::progress(current, &now.0, now.1.as_deref())
            },
        );
        match written.await {
            Ok(retry::PatchOutcome::Written(current)) => {
                restore = current;
                shown = Some(now);
            }
            Ok(retry::PatchOutcome::Gone) => return StopReason::Deleted,
            Ok(retry::PatchOutcome::Stale) => {
                if ended.load(Ordering::Relaxed) {
                    return StopReason::Deleted;
                }
            }
            Err(error) => tracing::debug!(%error, "progress not shown"),
        }
    }
}
