//! Runs the work of one Restore from its stored backup, showing progress, and hands the results over.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use backup_actions::csi::SnapshotApi;
use backup_actions::restore::{self, RestoreActionOutput, RestoreItemAction, RestoreRules, existing};
use backup_core::{
    api::{Backup, Restore},
    labels,
    resources::ResourceType,
};
use backup_lock::Footprint;
use backup_runtime::retry;
use backup_store::{Claimant, Contents, FileOwner, Location, RestoreFiles, Scope, StoreError, crash};
use kube::{Client, ResourceExt as _};

use super::{
    calls::{Calls, Pace},
    decide,
    finish::{self, Pending},
    operating,
    reconcile::{AT_ONCE, CANCELLED_BEFORE, Desk, Next, StepError, stopped},
    report::Report,
    select::Served,
    snapshots::{self, Noted, Snapshots},
    status,
    work::{Acting, Discover, Started, Work, WorkError},
};
use crate::job::cancellation::{Cancellation, StopReason};
use crate::{
    context::Context,
    discovery::ServedTypes,
    job::log_upload::{Subject, upload_log},
    job::{action_journal::ActionJournal, journal::JobJournal, operations::records},
};
use backup_plugins::PluginLog;

/// How often progress is shown at most.
const PROGRESS: Duration = Duration::from_secs(1);
/// How long one write of the progress is tried for; the next one comes soon.
const PROGRESS_BUDGET: Duration = Duration::from_secs(2);

/// Discovery through a client.
struct ByClient(Client);

impl Discover for ByClient {
    type Found = ServedTypes;

    async fn load(&self) -> Result<ServedTypes, String> {
        ServedTypes::load(&self.0).await.map_err(|error| error.to_string())
    }
}

impl Served for ServedTypes {
    fn complete(&self, name: &str) -> Option<String> {
        self.resolve(name)
    }

    fn find(&self, group_resource: &str) -> Option<ResourceType> {
        self.by_group_resource(group_resource).cloned()
    }
}

/// A Restore that may work.
pub struct Job<'a> {
    /// The Restore.
    pub restore: Restore,
    /// The backup it restores from.
    pub backup: &'a Backup,
    /// What the right to work is for.
    pub claimed: Footprint,
    /// Whether an earlier run may have created items.
    pub resumed: bool,
}

/// Restores, stores the results, publishes the end; or leaves a restore whose operations go on.
pub async fn run(
    ctx: &Context,
    desk: &Desk,
    cancellation: &Cancellation,
    job: Job<'_>,
) -> Result<Next, StepError> {
    let Job { restore, backup, .. } = &job;
    let location = backup.spec.storage_location.clone().unwrap_or_default();
    let store = match ctx.locations.open(&location).await {
        Ok((_, store)) => store,
        Err(error) if error.is_transient() => return Err(StepError::Cut(error.to_string())),
        Err(error) => {
            return finish::fail(ctx, desk, restore, &error.to_string(), None).await.map(Next::Done);
        }
    };
    let name = backup.name_any();
    if restore.spec.include_cluster_resources == Some(true) && !job.claimed.includes_cluster() {
        let why = "spec.includeClusterResources was set after the restore was admitted, so cluster-scoped resources \
                   are not in its claim: create a new restore";
        return finish::fail(ctx, desk, restore, why, Some(store)).await.map(Next::Done);
    }
    let contents = tokio::select! {
        reason = cancellation.stopped() => return stopped(reason).map(Next::Done),
        // What an earlier try has started is only found on the way.
        () = cancellation.cancelled(), if !job.resumed => {
            return finish::fail(ctx, desk, restore, CANCELLED_BEFORE, Some(store)).await.map(Next::Done);
        }
        contents = store.read_contents(&name) => contents,
    };
    let contents = match contents {
        Ok(contents) => contents,
        Err(error) if error.is_transient() => return Err(StepError::Cut(error.to_string())),
        Err(error) => {
            let why = format!("backup {name:?} can not be read, so nothing was restored: {error}");
            return finish::fail(ctx, desk, restore, &why, Some(store)).await.map(Next::Done);
        }
    };
    let report = match Report::new() {
        Ok(report) => report,
        Err(error) => return Err(StepError::Cut(format!("no temporary file for the log: {error}"))),
    };
    report.info(&format!("restoring {:?} from backup {name:?} in {}", restore.name_any(), store.url()));
    if contents.is_empty() {
        report.warn(Scope::Velero, format!("backup {name:?} holds no items"));
    }
    let uid = restore.uid().unwrap_or_default();
    // Before any item: what is found out only at the end could not be mended any more.
    if let Err(error) = store.open_restore(&restore.name_any(), &claimant(ctx, restore)).await {
        return match error {
            StoreError::Exists { .. } => {
                finish::fail(ctx, desk, restore, &error.to_string(), None).await.map(Next::Done)
            }
            error => {
                finish::block(ctx, restore, &error.to_string(), error.is_transient()).await.map(Next::Done)
            }
        };
    }
    let noted = match notes(ctx, &store, (&restore.name_any(), &uid), job.resumed).await {
        Ok(noted) => noted,
        Err(error) => {
            return finish::block(ctx, restore, &error.to_string(), error.is_transient())
                .await
                .map(Next::Done);
        }
    };
    let (executions, made) = noted;
    let log = PluginLog::default();
    let loaded = snapshots::load(ctx, (&store, &name), restore, (made, &log)).await;
    let (snapshots, failed) = match loaded {
        Ok(loaded) => loaded,
        Err(error) if error.is_transient() => return Err(StepError::Cut(error.to_string())),
        Err(error) => {
            let why = format!("backup {name:?} can not be read, so nothing was restored: {error}");
            return finish::fail(ctx, desk, restore, &why, Some(store)).await.map(Next::Done);
        }
    };
    for volume in failed {
        let message =
            format!("the backup has no snapshot of PersistentVolume {volume:?}: taking it had failed");
        report.warn(Scope::Cluster, message);
    }
    let of = Subject { owner: FileOwner::Restore, name: &restore.name_any(), uid: &uid };
    let done = tokio::select! {
        done = work(ctx, &job, (&contents, &report), cancellation.clone(), (&executions, log), snapshots) => done,
        never = upload_log(ctx, of, &store, report.log()) => match never {},
    };
    let started = match done {
        Ok(started) => started,
        Err(WorkError::Stopped(halt)) => return stopped(halt).map(Next::Done),
        Err(WorkError::Notes(error)) => {
            let why = format!("what may be started could not be noted: {error}");
            return finish::block(ctx, restore, &why, error.is_transient()).await.map(Next::Done);
        }
        Err(error @ (WorkError::Discovery(_) | WorkError::Contents(_))) => {
            return Err(StepError::Cut(error.to_string()));
        }
    };
    if decide::had_failed(&restore.phase()) && report.counts().1 == 0 {
        report.error(
            Scope::Velero,
            "a first run ended with errors, and a restart lost which; all items were looked at again and none failed"
                .to_owned(),
        );
    }
    let (left, unknown) = executions.left();
    for problem in unknown {
        report.error(Scope::Velero, problem);
    }
    let operations = operating::begun(restore, started.into_iter().chain(left));
    if operations.is_empty() {
        let pending = Arc::new(Pending::new(restore, report, store));
        desk.keep(restore, Arc::clone(&pending));
        return finish::finish(ctx, desk, restore, &pending).await.map(Next::Done);
    }
    let mut files = report.into_files();
    files.item_operations = records::encode(&operations)
        .map_err(|error| StepError::Cut(format!("operations can't be encoded: {error}")))?;
    crash::point("before-operations");
    keep(ctx, restore, &store, files, cancellation).await
}

/// Keeps what is known before the phase says that operations go on. Tried until the store takes it: nothing that is in memory
/// is lost for a moment without it.
async fn keep(
    ctx: &Context,
    restore: &Restore,
    store: &Location,
    files: RestoreFiles,
    cancellation: &Cancellation,
) -> Result<Next, StepError> {
    let (name, claimant) = (restore.name_any(), claimant(ctx, restore));
    loop {
        if let Err(halt) = cancellation.check() {
            return stopped(halt).map(Next::Done);
        }
        let stored = async { store.open_restore(&name, &claimant).await?.await_operations(&files).await };
        let error = match stored.await {
            Ok(()) => {
                crash::point("after-operations-recorded");
                return Ok(Next::Done(AT_ONCE));
            }
            Err(error @ StoreError::Exists { .. }) => return Err(StepError::Cut(error.to_string())),
            Err(error) => error,
        };
        let why = format!("what the restore has started could not be stored: {error}");
        let delay = finish::tell(ctx, restore, &why, error.is_transient()).await?;
        if let Err(halt) = cancellation.sleep(delay).await {
            return stopped(halt).map(Next::Done);
        }
    }
}

/// Who claims the folder of a Restore.
pub(super) fn claimant(ctx: &Context, restore: &Restore) -> Claimant {
    Claimant { uid: restore.uid().unwrap_or_default(), installation: ctx.installation.to_string() }
}

/// What was noted about earlier tries of this restore, and where it goes on.
async fn notes(
    ctx: &Context,
    store: &Location,
    (restore, uid): (&str, &str),
    resumed: bool,
) -> Result<(ActionJournal<RestoreActionOutput>, Noted), StoreError> {
    let (journal, notes) = if resumed {
        store.journal::<Restore>(restore, uid).await?
    } else {
        (store.new_journal::<Restore>(restore, uid)?, Vec::new())
    };
    let notebook = Arc::new(JobJournal::new(journal, ctx.cluster.leadership.clone()));
    Ok((ActionJournal::take_over(notebook.clone(), &notes)?, Noted::take_over(notebook, &notes)?))
}

/// The actions of plugins; what can't be used of them is told.
async fn plugins<'a>(
    ctx: &Context,
    report: &Report,
    executions: &'a ActionJournal<RestoreActionOutput>,
    log: PluginLog,
) -> Acting<'a> {
    let built_in =
        restore::built_in(&Arc::default()).iter().map(|action| action.name().to_owned()).collect::<Vec<_>>();
    let built_in = built_in.into_iter().chain(restore::CSI_NAMES.map(str::to_owned)).collect();
    let found = ctx.plugins.restore_item_actions(&built_in, &log).await;
    for problem in found.problems {
        report.error(Scope::Velero, problem);
    }
    let plugins = found.usable.into_iter().map(|action| action as Arc<dyn RestoreItemAction>);
    let csi = SnapshotApi::new(&ctx.cluster.client, &ctx.cluster.leadership);
    Acting { plugins: plugins.collect(), log, turn: tokio::sync::Mutex::default(), executions, csi }
}

async fn work(
    ctx: &Context,
    job: &Job<'_>,
    (contents, report): (&Contents, &Report),
    cancellation: Cancellation,
    (executions, log): (&ActionJournal<RestoreActionOutput>, PluginLog),
    snapshots: Snapshots,
) -> Result<Vec<Started>, WorkError> {
    let Job { restore, backup, claimed, resumed } = job;
    let patience = ctx.args.resource_timeout.as_std();
    let acting = tokio::select! {
        acting = plugins(ctx, report, executions, log) => acting,
        reason = cancellation.stopped() => return Err(reason.into()),
    };
    let calls = Calls::new(ctx.cluster.client.clone(), cancellation, Pace::with_patience(patience));
    let created = existing::created(restore);
    let work = Work {
        contents,
        restore,
        acting,
        calls: &calls,
        report,
        discover: ByClient(ctx.cluster.client.clone()),
        own: &ctx.cluster.namespace,
        claimed,
        patience,
        created: created.as_deref(),
        resumed: *resumed,
        rules: RestoreRules {
            backup_label: labels::valid_value(&backup.name_any()),
            restore_label: labels::valid_value(&restore.name_any()),
            namespaces: restore.spec.namespace_mapping.clone(),
            preserve_node_ports: restore.spec.preserve_node_ports == Some(true),
            kept_volumes: std::collections::BTreeSet::new(),
        },
        snapshots,
    };
    tokio::select! {
        done = work.run() => done,
        halt = show_progress(ctx, restore, report) => Err(halt.into()),
    }
}

/// Writes the progress when it has changed, at most once a second. A write that fails is left out. Returns when there is
/// nothing to work for any more: the Restore is gone, or somebody else has ended it, and its claim is free.
pub(super) async fn show_progress(ctx: &Context, restore: &Restore, report: &Report) -> StopReason {
    let mut restore = restore.clone();
    let mut shown = None;
    loop {
        tokio::time::sleep(PROGRESS).await;
        let now = report.progress();
        if shown.as_ref() == Some(&now) {
            continue;
        }
        let api = ctx.cluster.api::<Restore>();
        let ended = AtomicBool::new(false);
        let written =
            retry::status_patch_in(&api, &ctx.cluster.leadership, PROGRESS_BUDGET, &restore, |current| {
                ended.store(current.phase().is_terminal(), Ordering::Relaxed);
                status::progress(current, &now)
            });
        match written.await {
            Ok(retry::PatchOutcome::Written(current)) => {
                restore = current;
                shown = Some(now);
            }
            Ok(retry::PatchOutcome::Gone) => return StopReason::Deleted,
            Ok(retry::PatchOutcome::Stale) if ended.load(Ordering::Relaxed) => return StopReason::Deleted,
            Ok(retry::PatchOutcome::Stale) => {}
            Err(error) => tracing::debug!(%error, "progress not shown"),
        }
    }
}
