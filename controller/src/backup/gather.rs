//! Everything of a backup between an empty and a full sink: what is selected now, the actions, the commands in pods.

use std::sync::Arc;

use backup_actions::{
    ActionSet,
    backup::{self, BackupActionOutput, BackupVolumes, VolumeDecision, VolumePolicy},
};
use backup_core::{
    api::{Backup, BackupPhase, BackupSpec},
    resource_policy::{ResourcePolicy, Volume, VolumePlan, plan},
    snapshot::VolumeSnapshot,
};
use backup_store::{Location, Scope, StoreError};
use serde_json::Value;

use super::{
    actions::BackupActions,
    collect::{CollectError, Collected, Given, Sink, collect},
    hooks::{Hooks, InCluster},
    natives::{self, noted::Noted as NotedSnapshots},
    observe::{self, Selection},
    progress::Progress,
    report::Report,
};
use crate::job::cancellation::Cancellation;
use crate::{
    context::Context,
    job::{
        action_journal::ActionRecords,
        journal::{JobJournal, JournalWriter},
    },
};
use backup_plugins::PluginLog;

/// Member of a note: uid of the Backup that it is about.
const BACKUP: &str = "backup";

/// Why not everything could be gathered.
#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    /// The API server could not be asked what there is.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// The collection ended before its end.
    #[error(transparent)]
    Collect(#[from] CollectError),
}

/// What was noted about a backup, and what goes on noting.
pub struct Noted {
    /// The commands in pods.
    pub hooks: Hooks,
    /// Where notes are made.
    pub notebook: Arc<dyn JournalWriter>,
    /// What was noted before, in order.
    pub notes: Vec<Value>,
}

/// The journal of one backup. Its folder may belong to another backup of the same name; that one's notes are passed over.
pub async fn noted(
    ctx: &Context,
    location: &Location,
    backup: &str,
    uid: &str,
    progress: &Progress,
) -> Result<Noted, StoreError> {
    let (journal, mut notes) = location.journal::<Backup>(backup, uid).await?;
    notes.retain(|note| note[BACKUP] == *uid);
    let executor = Arc::new(InCluster::new(ctx.silent_client.clone(), ctx.cluster.leadership.clone()));
    let notebook = Arc::new(JobJournal::new(journal, ctx.cluster.leadership.clone()).stamped(BACKUP, uid));
    Ok(Noted { hooks: Hooks::new(executor, notebook.clone(), progress.clone()), notebook, notes })
}

/// Where a backup is gathered into.
pub struct Into<'a, S> {
    /// Takes the items.
    pub sink: &'a mut S,
    /// Told of what actions start.
    pub operations: &'a mut dyn ActionRecords<BackupActionOutput>,
    /// What is noted of snapshots that plugins take.
    pub snapshots: NotedSnapshots,
    /// Told of what could not be had.
    pub report: &'a mut Report,
    /// Counts.
    pub progress: &'a Progress,
}

/// What was gathered.
pub struct Gathered {
    /// Items and operations.
    pub collected: Collected,
    /// What became of volumes.
    pub volumes: Arc<BackupVolumes>,
    /// Snapshots that plugins have taken.
    pub snapshots: Vec<VolumeSnapshot>,
}

/// Gathers a backup, and says what became of its volumes. What could not be had is an error in the report.
pub async fn gather<S: Sink>(
    ctx: &Context,
    backup: &Backup,
    hooks: &Hooks,
    cancellation: &Cancellation,
    into: Into<'_, S>,
) -> Result<Gathered, GatherError> {
    let Into { sink, operations, snapshots, report, progress } = into;
    let client = &ctx.cluster.client;
    let selection = observe::selection(ctx, &backup.spec).await?;
    tell_what_is_missing(report, &selection);
    let order = &selection.order;
    let volumes =
        Arc::new(BackupVolumes::with_policy(volume_policy(backup.spec.clone(), order.policy.clone())));
    let actions = actions(ctx, &selection, &volumes).await;
    // Whatever its phase is: it is collected from the start.
    let mut shown = backup.clone();
    shown.status.phase = Some(BackupPhase::InProgress);
    let mut natives = natives::open(ctx, &shown, snapshots, &volumes, (&mut *report, &actions.log)).await?;
    let given = Given {
        client,
        backup: &shown,
        order,
        actions: &actions,
        operations,
        hooks: Some(hooks),
        natives: Some(&mut natives),
        sink,
        report: &mut *report,
        progress,
        cancellation,
    };
    let collected = collect(given).await?;
    let (snapshots, problems) = natives.end();
    for problem in problems {
        report.error(Scope::Cluster, problem);
    }
    Ok(Gathered { collected, volumes, snapshots })
}

/// The actions of a backup; those on CSI volumes record in `volumes` what they do.
pub async fn actions(ctx: &Context, selection: &Selection, volumes: &Arc<BackupVolumes>) -> BackupActions {
    let (built_in, log) = (backup::built_in(&ctx.cluster, ctx.args.csi(), volumes), PluginLog::default());
    let names = built_in.iter().map(|action| action.name().to_owned()).collect();
    let plugins = ctx.plugins.backup_item_actions(&names, &log).await;
    let resolve = |name: &str| selection.order.served.resolve(name);
    let built_in_blocks = backup::built_in_blocks(&ctx.cluster.client);
    let names = built_in_blocks.iter().map(|action| action.name().to_owned()).collect();
    let block_plugins = ctx.plugins.item_block_actions(&names, &log).await;
    // A binary that does not run is a problem of every kind that is asked for.
    let mut problems = plugins.problems;
    for problem in block_plugins.problems {
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    let blocks = built_in_blocks.into_iter().chain(block_plugins.usable);
    BackupActions {
        items: backup::ordered(built_in, plugins.usable, &resolve),
        blocks: ActionSet::new("block action", blocks, &resolve),
        problems,
        log,
    }
}

/// What spec and resource policy say about the volume of a claim.
fn volume_policy(spec: BackupSpec, policy: Option<ResourcePolicy>) -> Box<VolumePolicy> {
    Box::new(move |claim, volume| {
        // That it is not done is an error of the claim, whether snapshots are taken or not: `collect::wishes`.
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

fn tell_what_is_missing(report: &mut Report, selection: &Selection) {
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
