//! The actions that a restore adds to the built-in ones, and what all actions share.

use std::sync::Arc;

use backup_actions::{
    csi::{SnapshotApi, WriteGate},
    restore::{ActionConfigs, DownloadApi, RestoreActionOutput, RestoreItemAction},
};
use backup_plugins::PluginLog;
use backup_runtime::Cluster;
use futures::FutureExt as _;
use parking_lot::Mutex;

use super::{
    StartedOperation, item_coordinator::ItemCoordinator, plugin_turns::PluginTurns,
    prune::RenamedItems,
};
use crate::{
    job::{JobContext, action_journal::ActionJournal},
    restore::calls::Calls,
};

/// The actions of plugins, and the shared state of actions.
pub(in crate::restore) struct ActionContext<'a> {
    pub(in crate::restore) plugins: Vec<Arc<dyn RestoreItemAction>>,
    /// Built-in ones that a ConfigMap configures.
    pub(super) configured: Vec<Arc<dyn RestoreItemAction>>,
    pub(in crate::restore) log: PluginLog,
    pub(super) turns: PluginTurns,
    pub(super) journal: &'a ActionJournal<RestoreActionOutput>,
    pub(super) csi: SnapshotApi,
    /// `None` in a plan.
    pub(super) downloads: Option<DownloadApi>,
    /// Used if items may ask for one another.
    pub(super) coordinator: ItemCoordinator,
    /// The operations that actions have started.
    pub(super) started: Mutex<Vec<StartedOperation>>,
    /// Objects with another name or type than their items, if objects are removed.
    pub(super) renamed: RenamedItems,
}

impl<'a> ActionContext<'a> {
    /// Without plugins.
    pub(in crate::restore) fn new(
        ctx: &JobContext,
        calls: &Calls,
        configs: &ActionConfigs,
        journal: &'a ActionJournal<RestoreActionOutput>,
        log: PluginLog,
    ) -> Self {
        Self {
            plugins: Vec::new(),
            configured: configs.actions(&ctx.cluster.client),
            log,
            turns: PluginTurns::default(),
            journal,
            csi: SnapshotApi::new(&ctx.cluster.client, &ctx.cluster.leadership)
                .gated(gate(ctx, calls)),
            downloads: (!calls.is_dry_run()).then(|| downloads(ctx, calls)),
            coordinator: ItemCoordinator::default(),
            started: Mutex::default(),
            renamed: RenamedItems::default(),
        }
    }
}

/// Requests for DataDownloads, with writes only while the restore may write.
fn downloads(ctx: &JobContext, calls: &Calls) -> DownloadApi {
    let Cluster {
        client,
        namespace,
        leadership,
        ..
    } = &ctx.cluster;
    DownloadApi::new(client, namespace, leadership).gated(gate(ctx, calls))
}

/// Allows writes only while the restore may write.
fn gate(ctx: &JobContext, calls: &Calls) -> WriteGate {
    let cancellation = calls.cancellation().clone();
    let patience = ctx.resource_timeout;
    Arc::new(move || {
        let cancellation = cancellation.clone();
        async move {
            cancellation
                .may_write(patience)
                .await
                .map_err(|error| error.to_string())
        }
        .boxed()
    })
}
