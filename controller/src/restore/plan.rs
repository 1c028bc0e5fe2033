//! Plans what a Restore would do with each item: runs the work of a restore with dry-run requests.
//! It needs neither a claim nor leadership, so each replica can do it.
//!
//! Not included, because it cannot be tried: actions and snapshots of plugins, hooks, and the
//! effects of created objects.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use backup_actions::ItemAction as _;
use backup_core::{
    api::{Restore, RestoreSpec, restore::RestoreProgress},
    restore_plan::{PlanLine, RestorePlan},
    text::{counted, listed},
    volume_data::MissingData,
    volume_info::VolumeInfo,
};
use backup_lock::Footprint;
use backup_plugins::{PluginLog, catalog::Kind};
use backup_runtime::{Cluster, leader::Leadership};
use backup_store::{EntryPosition, StoreError};
use futures::{FutureExt as _, future::BoxFuture};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc::Sender};

use super::{
    Restores,
    calls::{Calls, Pace, dry_client},
    hooks::{HookContext, HookJournal},
    report::Report,
    runner::{read_contents, saved_volumes},
    validate::{self, Configuration},
    volume_snapshots::{Snapshots, VolumeJournal},
    work::{self, ActionContext, BackupMover, Restoring, VolumePlan},
};
use crate::job::{
    JobContext, action_journal::ActionJournal, cancellation::Cancellation, journal::JournalWriter,
    worker::WorkerError,
};

/// Maximum number of concurrent plans: each holds a copy of its backup on the disk.
const MAX_CONCURRENT_PLANS: usize = 1;
/// Timeout of a plan.
const PLAN_TIMEOUT: Duration = Duration::from_mins(30);
/// Maximum wait for an unavailable server.
const MAX_SERVER_WAIT: Duration = Duration::from_secs(20);
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of claims that a message names; the others are counted.
const MAX_NAMED_CLAIMS: usize = 8;

#[derive(Clone)]
pub(crate) struct Planner {
    ctx: JobContext,
    kind: Arc<Restores>,
    permits: Arc<Semaphore>,
}

impl Planner {
    pub(crate) fn new(ctx: &JobContext, kind: Arc<Restores>) -> Self {
        let cluster = Cluster {
            client: dry_client(&ctx.cluster.client),
            leadership: Leadership::always(),
            ..ctx.cluster.clone()
        };
        // Does not wait for objects that may appear later.
        let ctx = JobContext {
            cluster,
            resource_timeout: Duration::ZERO,
            ..ctx.clone()
        };
        Self {
            ctx,
            kind,
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_PLANS)),
        }
    }

    /// A permit for one plan, if one is free.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// Sends the progress, and finally the plan or the reason why there is none. Ends when the
    /// reader is gone.
    pub(crate) async fn plan(&self, name: &str, spec: RestoreSpec, lines: Sender<PlanLine>) {
        let planned = async {
            tokio::time::timeout(PLAN_TIMEOUT, self.planned(name, spec, &lines))
                .await
                .unwrap_or_else(|_| {
                    Err(refused(format!(
                        "there was no plan after {PLAN_TIMEOUT:?}; plan a smaller part of the backup"
                    )))
                })
        };
        tokio::select! {
            planned = planned => {
                let line = match planned {
                    Ok(plan) => PlanLine::Plan(Box::new(plan)),
                    Err(WorkerError::Blocked { reason, .. }) => PlanLine::Refused(reason),
                    Err(WorkerError::Stopped(reason)) => PlanLine::Refused(reason.to_string()),
                    Err(WorkerError::Conflict | WorkerError::Waiting) => return,
                };
                let _ = lines.send(line).await;
            }
            () = lines.closed() => {}
        }
    }

    async fn planned(
        &self,
        name: &str,
        spec: RestoreSpec,
        lines: &Sender<PlanLine>,
    ) -> Result<RestorePlan, WorkerError> {
        let Self { ctx, kind, .. } = self;
        let mut restore = Restore::new(name, spec);
        restore.metadata.namespace = Some(ctx.cluster.namespace.clone());
        let facts = kind.facts(ctx, &restore).await?;
        let findings = validate::findings(&restore.spec, &facts);
        let configuration = Configuration::read(&restore.spec, &facts);
        let (Some(backup), Ok(configuration), true) =
            (&facts.backup, configuration, findings.is_empty())
        else {
            let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
            return Err(refused(findings.join("; ")));
        };
        restore.spec = validate::prepared(&restore, backup);
        let (_, store) = ctx.locations.open(facts.location_name()).await?;
        let location = backup.spec.storage_location.clone().unwrap_or_default();
        let contents = read_contents(&store, backup, kind.limits).await?;
        let claimed = Footprint::of_restore(&restore.spec, Some(&backup.spec));
        if let Some(why) =
            validate::refusal(&restore.spec, backup, &contents.namespaces(), &claimed)
        {
            return Err(refused(why));
        }
        let report = Report::new()?;
        let nothing: Arc<dyn JournalWriter> = Arc::new(NoJournal);
        let journal = ActionJournal::take_over(Arc::clone(&nothing), &[])?;
        let volumes = VolumeJournal::take_over(Arc::clone(&nothing), &[])?;
        let hooks = HookJournal::take_over(nothing, &[])?;
        let log = PluginLog::default();
        let snapshots = Snapshots::load(
            &kind.snapshot_locations,
            &store,
            backup,
            &restore,
            volumes,
            &log,
        );
        let snapshots = snapshots.await?;
        let saved = saved_volumes(&store, backup, &restore).await?;
        let cancellation = Cancellation::new(Leadership::always(), ctx.stop.clone());
        let client = ctx.cluster.client.clone();
        let calls = Calls::dry(client, cancellation, Pace::with_patience(MAX_SERVER_WAIT));
        let ignored = configuration.actions.ignored.clone();
        let restoring = Restoring {
            restore: &restore,
            backup,
            contents: &contents,
            claimed: &claimed,
            guarded: &kind.guarded,
            order: &kind.order,
            versions: facts.versions(),
            memory: &kind.memory,
            resumed: false,
            created: None,
            own: &ctx.cluster.namespace,
            patience: ctx.resource_timeout,
            rules: work::rules(&restore, backup),
            actions: ActionContext::new(ctx, &calls, &configuration.actions, &journal, log),
            configuration,
            hooks: HookContext {
                executor: &*kind.executor,
                journal: &hooks,
            },
            snapshots,
            saved,
            mover: BackupMover {
                is_running: kind.has_mover,
                location: &location,
            },
            plan: VolumePlan::default(),
            discover: work::discover(&ctx.cluster.client),
            calls: &calls,
            report: &report,
        };
        tokio::select! {
            done = restoring.run() => done?,
            // The reader is gone.
            () = show(&report, lines) => return Err(WorkerError::Conflict),
        };
        let mut notes = calls.untried();
        notes.extend(ignored.into_iter().chain(facts.ignored_versions().cloned()));
        notes.extend(self.plugins().await);
        let left_out = report.left_out_sentences();
        let files = report.into_files();
        notes.extend(from_repository(&files.volume_info, &location));
        let resource_list =
            serde_json::to_value(&files.resource_list).and_then(serde_json::from_value);
        let resource_list = resource_list.map_err(|error| refused(error.to_string()))?;
        let missing_data = MissingData::of(&files.volume_info);
        Ok(RestorePlan {
            results: files.results,
            resource_list,
            missing_data,
            left_out,
            notes,
        })
    }

    /// A message that names the actions of plugins: their effects are only known when they run.
    async fn plugins(&self) -> Option<String> {
        let found = self
            .kind
            .plugins
            .actions(&Kind::RESTORE_ITEM, &BTreeSet::new(), None)
            .await;
        let names: Vec<_> = found
            .usable
            .iter()
            .map(|action| action.name().to_owned())
            .collect();
        (!names.is_empty()).then(|| {
            format!(
                "actions of plugins were not run, and may change or leave out items: {}",
                names.join(", ")
            )
        })
    }
}

/// A message that names the claims whose data comes from the repository in this location, which
/// only a restore reads.
fn from_repository(volumes: &[VolumeInfo], location: &str) -> Option<String> {
    let named: Vec<String> = volumes
        .iter()
        .filter(|volume| volume.snapshot_data_moved == Some(true))
        .map(|volume| format!("{}/{}", volume.namespace(), volume.claim()))
        .collect();
    let first = named.get(..MAX_NAMED_CLAIMS).unwrap_or(&named);
    (!named.is_empty()).then(|| {
        format!(
            "the data of {} comes from the repository in location {location}, which was not read: {}",
            counted(named.len(), "claim"),
            listed(first, named.len())
        )
    })
}

fn refused(reason: String) -> WorkerError {
    WorkerError::Blocked {
        reason,
        retryable: false,
    }
}

/// Sends the progress once a second, until the reader is gone.
async fn show(report: &Report, lines: &Sender<PlanLine>) {
    loop {
        tokio::time::sleep(PROGRESS_INTERVAL).await;
        let RestoreProgress {
            items_restored: done,
            total_items: total,
            ..
        } = report.progress();
        if lines
            .send(PlanLine::Progress { done, total })
            .await
            .is_err()
        {
            return;
        }
    }
}

/// A plan starts nothing, so nothing is recorded.
struct NoJournal;

#[async_trait]
impl JournalWriter for NoJournal {
    fn append(&self, _: Value) -> BoxFuture<'_, Result<(), StoreError>> {
        std::future::ready(Ok(())).boxed()
    }

    async fn entry(&self, _: EntryPosition) -> Result<Value, StoreError> {
        Ok(Value::Null)
    }
}
