//! Runs the work of one Restore from its stored backup, showing progress, and hands the results over.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use backup_core::{
    api::{Backup, Restore},
    labels,
    resources::ResourceType,
};
use backup_lock::Footprint;
use backup_store::{Contents, Scope};
use kube::{Client, ResourceExt as _};
use tokio_util::sync::CancellationToken;

use super::{
    calls::{Calls, Pace},
    decide, finish,
    finish::Pending,
    halt::{Gate, Halt},
    reconcile::{Desk, StepError, halted},
    report::Report,
    select::Served,
    status,
    transform::Rules,
    work::{Discover, Work, WorkError},
};
use crate::{
    context::Context,
    discovery::ServedTypes,
    runtime::{queue::Action, retry},
};

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

/// Restores, stores the results, publishes the end.
pub async fn run(
    ctx: &Context,
    desk: &Desk,
    stop: CancellationToken,
    job: Job<'_>,
) -> Result<Action, StepError> {
    let Job { restore, backup, .. } = &job;
    let gate = Gate::new(ctx.leadership.clone(), stop.clone());
    let location = backup.spec.storage_location.clone().unwrap_or_default();
    let store = match ctx.locations.open(&location).await {
        Ok((_, store)) => store,
        Err(error) if error.is_transient() => return Err(StepError::Cut(error.to_string())),
        Err(error) => return finish::fail(ctx, desk, restore, &error.to_string(), None).await,
    };
    let name = backup.name_any();
    if restore.spec.include_cluster_resources == Some(true) && !job.claimed.includes_cluster() {
        let why = "spec.includeClusterResources was set after the restore was admitted, so cluster-scoped resources \
                   are not in its claim: create a new restore";
        return finish::fail(ctx, desk, restore, why, Some(store)).await;
    }
    let contents = tokio::select! {
        () = stop.cancelled() => return halted(Halt::Stopped),
        contents = store.read_contents(&name) => contents,
    };
    let contents = match contents {
        Ok(contents) => contents,
        Err(error) if error.is_transient() => return Err(StepError::Cut(error.to_string())),
        Err(error) => {
            let why = format!("backup {name:?} can not be read, so nothing was restored: {error}");
            return finish::fail(ctx, desk, restore, &why, Some(store)).await;
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
    let done = work(ctx, &job, &contents, &report, gate).await;
    match done {
        Ok(()) => {}
        Err(WorkError::Halt(halt)) => return halted(halt),
        Err(error @ (WorkError::Discovery(_) | WorkError::Contents(_))) => {
            return Err(StepError::Cut(error.to_string()));
        }
    }
    if decide::had_failed(&restore.phase()) && report.counts().1 == 0 {
        report.error(
            Scope::Velero,
            "a first run ended with errors, and a restart lost which; all items were looked at again and none failed"
                .to_owned(),
        );
    }
    let pending = Arc::new(Pending::new(report, store));
    desk.keep(restore, Arc::clone(&pending));
    finish::finish(ctx, desk, restore, &pending).await
}

async fn work(
    ctx: &Context,
    job: &Job<'_>,
    contents: &Contents,
    report: &Report,
    gate: Gate,
) -> Result<(), WorkError> {
    let Job { restore, backup, claimed, resumed } = job;
    let patience = ctx.args.resource_timeout.as_std();
    let calls = Calls::new(ctx.client.clone(), gate, Pace::with_patience(patience));
    let created = restore
        .metadata
        .creation_timestamp
        .as_ref()
        .map(|at| at.0.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    let work = Work {
        contents,
        spec: &restore.spec,
        calls: &calls,
        report,
        discover: ByClient(ctx.client.clone()),
        own: &ctx.namespace,
        claimed,
        patience,
        created: created.as_deref(),
        resumed: *resumed,
        rules: Rules {
            backup_label: labels::valid_value(&backup.name_any()),
            restore_label: labels::valid_value(&restore.name_any()),
            namespaces: restore.spec.namespace_mapping.clone(),
            preserve_node_ports: restore.spec.preserve_node_ports == Some(true),
            kept_volumes: std::collections::BTreeSet::new(),
        },
    };
    tokio::select! {
        done = work.run() => done,
        halt = show_progress(ctx, restore, report) => Err(halt.into()),
    }
}

/// Writes the progress when it has changed, at most once a second. A write that fails is left out. Returns when there is
/// nothing to work for any more: the Restore is gone, or somebody else has ended it, and its claim is free.
pub(super) async fn show_progress(ctx: &Context, restore: &Restore, report: &Report) -> Halt {
    let mut restore = restore.clone();
    let mut shown = None;
    loop {
        tokio::time::sleep(PROGRESS).await;
        let now = report.progress();
        if shown.as_ref() == Some(&now) {
            continue;
        }
        let api = ctx.api::<Restore>();
        let ended = AtomicBool::new(false);
        let written = retry::status_patch_in(&api, &ctx.leadership, PROGRESS_BUDGET, &restore, |current| {
            ended.store(current.phase().is_terminal(), Ordering::Relaxed);
            status::progress(current, &now)
        });
        match written.await {
            Ok(retry::Outcome::Written(current)) => {
                restore = current;
                shown = Some(now);
            }
            Ok(retry::Outcome::Gone) => return Halt::Stopped,
            Ok(retry::Outcome::Stale) if ended.load(Ordering::Relaxed) => return Halt::Stopped,
            Ok(retry::Outcome::Stale) => {}
            Err(error) => tracing::debug!(%error, "progress not shown"),
        }
    }
}
