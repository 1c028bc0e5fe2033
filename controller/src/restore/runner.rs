//! Runs the work of one Restore from its stored backup, shows the progress, and returns the
//! results.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use backup_actions::csi::{SnapshotApi, WriteGate};
use backup_actions::restore::{
    self, RestoreActionOutput, RestoreItemAction, RestoreRules, existing,
};
use backup_core::{
    api::{Backup, Restore},
    labels,
    resources::{RestoreOrder, VersionPriorities},
    validate::Finding,
};
use backup_lock::Footprint;
use backup_runtime::{Cluster, retry};
use backup_store::{Contents, FileOwner, Limits, Location, SavedVolumes, Scope, StoreError};
use futures::FutureExt as _;
use kube::ResourceExt as _;

use super::{
    ItemMemory, Restores,
    calls::{Calls, Pace},
    hooks::{HookContext, HookJournal},
    identity, operations,
    report::Report,
    snapshots::{Snapshots, VolumeJournal},
    status,
    validate::{self, Configuration},
    work::{self, ActionContext, PluginTurns, StartedOperation, VolumePlan, Work},
};
use crate::{
    discovery::ServedTypes,
    job::{
        JobContext,
        action_journal::{self, ActionJournal},
        cancellation::StopReason,
        journal::JobJournal,
        lifecycle::{self, InterruptedWork, Lifecycle as _, WorkError, WorkResult},
        log_upload::{Subject, upload_log},
        operations::records,
        waits::{WaitLog, Waits},
        worker::{Worker, WorkerError},
    },
};
use backup_plugins::{Host, PluginLog, catalog::Kind};

const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of one write of the progress, with retries; the next one follows soon.
const PROGRESS_BUDGET: Duration = Duration::from_secs(2);

impl Worker<Restores> {
    pub(super) async fn restore(
        &mut self,
        job: lifecycle::Work<'_, Restores>,
    ) -> Result<WorkResult<Restores>, WorkError> {
        let ctx = self.ctx.clone();
        let kind = Arc::clone(&self.kind);
        let restore = job.object;
        let store = job.location;
        let resumed = job.resumed;
        let Some(backup) = &job.facts.backup else {
            return Err(WorkerError::Conflict.into());
        };
        let name = backup.name_any();
        let uid = self.uid.clone();
        let claimed = &job.token.footprint;
        let cancelled = self.cancellation.is_cancelled();
        let configuration = if cancelled {
            Configuration::default()
        } else {
            // The ConfigMaps may have changed since the start: after a restart they are read again.
            Configuration::read(&restore.spec, job.facts)
                .map_err(|found| unusable_configuration(&found))?
        };
        let earlier = identity::earlier_tarball(store, backup)
            .await
            .map_err(WorkError::Store)?;
        let contents = tokio::select! {
            reason = self.cancellation.stopped() => return Err(reason.into()),
            // Operations of an earlier attempt are in its journal, read below.
            () = self.cancellation.cancelled(), if resumed => Contents::none()?,
            () = self.cancellation.cancelled(), if !resumed => {
                return Err(WorkError::Fatal(Restores::KIND.cancelled.to_owned()));
            }
            contents = read_contents(store, backup, kind.limits) => {
                contents.map_err(|error| unreadable(error, &name, resumed))?
            }
        };
        if let Some(reason) =
            validate::refusal(&restore.spec, backup, &contents.namespaces(), claimed)
        {
            return Err(refused(&reason, resumed));
        }
        let report = Report::new()?;
        report.info(&format!(
            "restoring {:?} from backup {name:?} in {}",
            self.name,
            store.url()
        ));
        for ignored in configuration
            .actions
            .ignored
            .iter()
            .chain(job.facts.ignored_versions())
        {
            report.warn(Scope::Velero, ignored.clone());
        }
        if let Some(earlier) = earlier {
            report.warn(Scope::Velero, earlier);
        }
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
        let of = Subject {
            owner: FileOwner::Restore,
            name: &self.name,
            uid: &uid,
        };
        let cancellation = self.cancellation.clone();
        let calls = Calls::new(
            ctx.cluster.client.clone(),
            cancellation,
            Pace::with_patience(ctx.resource_timeout),
        );
        let run = Run {
            restore,
            backup,
            claimed,
            guarded: &kind.guarded,
            order: &kind.order,
            versions: job.facts.versions(),
            resumed,
            contents: &contents,
            journal: &journal,
            memory: &kind.memory,
            report: &report,
            calls: &calls,
        };
        let volumes = Volumes { snapshots, saved };
        let hooks = HookContext {
            executor: &*kind.executor,
            journal: &hooks,
        };
        let done = tokio::select! {
            done = run.work(&ctx, &kind.plugins, log, volumes, configuration, hooks) => done,
            never = upload_log(&ctx, of, store, report.log()) => match never {},
        };
        if matches!(done, Err(work::WorkError::Stopped(StopReason::ClaimLost)))
            && let Some(by) = self.cancellation.fence().released()
        {
            let reason = report.released(&by, resumed);
            let summary = report.summary();
            self.interrupted = Some(InterruptedWork {
                files: report.into_files(),
                summary,
            });
            return Err(WorkError::Fatal(reason));
        }
        if let Err(work::WorkError::Refused(reason)) = &done {
            return Err(refused(reason, resumed));
        }
        let started = done.map_err(WorkerError::from)?;
        if restore.phase().has_failed_so_far() && report.counts().1 == 0 {
            report.error(
                Scope::Velero,
                "a first run ended with errors, and a restart lost which; all items were looked at again and none failed"
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

impl From<work::WorkError> for WorkerError {
    fn from(error: work::WorkError) -> Self {
        let retryable = match &error {
            work::WorkError::Stopped(reason) => return Self::Stopped(*reason),
            work::WorkError::Journal(cause) => cause.is_transient(),
            work::WorkError::Refused(_) => false,
            work::WorkError::Discovery(_) | work::WorkError::Contents(_) => true,
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

/// How the data of volumes was saved.
pub(super) struct Volumes {
    pub(super) snapshots: Snapshots,
    pub(super) saved: SavedVolumes,
}

#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub(super) restore: &'a Restore,
    pub(super) backup: &'a Backup,
    /// The footprint of the claim.
    pub(super) claimed: &'a Footprint,
    pub(super) guarded: &'a [String],
    pub(super) order: &'a RestoreOrder,
    pub(super) versions: Option<&'a VersionPriorities>,
    pub(super) resumed: bool,
    pub(super) contents: &'a Contents,
    pub(super) journal: &'a ActionJournal<RestoreActionOutput>,
    pub(super) memory: &'a ItemMemory,
    pub(super) report: &'a Report,
    pub(super) calls: &'a Calls,
}

impl Run<'_> {
    async fn work(
        &self,
        ctx: &JobContext,
        host: &Host,
        log: PluginLog,
        volumes: Volumes,
        configuration: Configuration,
        hooks: HookContext<'_>,
    ) -> Result<Vec<StartedOperation>, work::WorkError> {
        let Self {
            restore,
            report,
            calls,
            ..
        } = *self;
        let plugins = tokio::select! {
            plugins = self.plugins(host, &log) => plugins,
            reason = calls.cancellation().stopped() => return Err(reason.into()),
        };
        tokio::select! {
            done = self.prepare(ctx, plugins, log, volumes, configuration, hooks).run() => done,
            halt = show_progress(&ctx.cluster, restore, report, calls.cancellation().waits()) => Err(halt.into()),
        }
    }

    /// Prepares the work. All its writes go through `ctx` and `self.calls`.
    pub(super) fn prepare<'s>(
        &'s self,
        ctx: &JobContext,
        plugins: Vec<Arc<dyn RestoreItemAction>>,
        log: PluginLog,
        Volumes { snapshots, saved }: Volumes,
        Configuration {
            modifiers,
            filters,
            actions,
        }: Configuration,
        hooks: HookContext<'s>,
    ) -> Work<'s> {
        let Self {
            restore,
            backup,
            claimed,
            guarded,
            order,
            versions,
            resumed,
            contents,
            memory,
            journal,
            report,
            calls,
        } = *self;
        let cancellation = calls.cancellation().clone();
        let patience = ctx.resource_timeout;
        let gate: WriteGate = Arc::new(move || {
            let cancellation = cancellation.clone();
            async move {
                cancellation
                    .may_write(patience)
                    .await
                    .map_err(|error| error.to_string())
            }
            .boxed()
        });
        let Cluster {
            client,
            namespace,
            leadership,
            ..
        } = &ctx.cluster;
        let csi = SnapshotApi::new(client, leadership).gated(gate);
        let configured = actions.actions(client);
        let client = client.clone();
        Work {
            contents,
            memory,
            restore,
            actions: ActionContext {
                plugins,
                configured,
                log,
                turns: PluginTurns::default(),
                journal,
                csi,
            },
            calls,
            report,
            discover: Box::new(move || {
                let client = client.clone();
                async move { ServedTypes::load(&client).await }.boxed()
            }),
            own: namespace.clone(),
            guarded,
            order,
            versions,
            claimed,
            patience,
            created: existing::created(restore),
            resumed,
            rules: RestoreRules {
                backup_label: labels::valid_value(&backup.name_any()),
                restore_label: labels::valid_value(&restore.name_any()),
                namespaces: Arc::new(restore.spec.namespace_mapping.clone()),
                preserve_node_ports: restore.spec.preserve_node_ports == Some(true),
                kept_volumes: Arc::default(),
            },
            modifiers,
            filters,
            snapshots,
            saved,
            plan: VolumePlan::default(),
            hooks,
        }
    }

    /// The usable actions of plugins. Unusable ones are errors of the restore.
    async fn plugins(&self, host: &Host, log: &PluginLog) -> Vec<Arc<dyn RestoreItemAction>> {
        let built_in = restore::built_in(&Arc::default());
        let built_in = built_in.iter().map(|action| action.name().to_owned());
        let of_velero = restore::names()
            .chain(restore::CSI_NAMES)
            .map(str::to_owned);
        let built_in = built_in.chain(of_velero).collect();
        let found = host
            .actions(&Kind::RESTORE_ITEM, &built_in, Some(log))
            .await;
        for problem in found.problems {
            self.report.error(Scope::Velero, problem);
        }
        found.usable.into_iter().map(|action| action as _).collect()
    }
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
                status::progress(current, &now.0, now.1.as_deref())
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
