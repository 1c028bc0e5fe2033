//! Restores as a kind of `job`: its types, and the state that all its workers share.

use std::sync::Arc;

use backup_core::{
    api::{GoDuration, Restore, common::HookStatus, restore::RestoreProgress},
    labels,
    left_items::LeftItems,
    resources::RestoreOrder,
};
use backup_plugins::Host;
use backup_store::{Limits, PendingRestore};

use super::{ItemMemory, validate::Facts};
use crate::{
    hooks::exec::Executor,
    job::kind::{JobKind, Kind},
    volumes::snapshot_locations::SnapshotLocations,
};

pub(crate) struct Restores {
    /// Runs the commands of hooks.
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) plugins: Host,
    pub(crate) snapshot_locations: SnapshotLocations,
    /// Unique name of this installation, from its cluster and namespace.
    pub(crate) installation: String,
    pub(crate) default_item_operation_timeout: GoDuration,
    /// Types whose objects start work of other operators, as `plural.group`.
    pub(crate) guarded: Vec<String>,
    /// Maximum number of concurrent restores.
    pub(crate) slots: usize,
    pub(crate) order: RestoreOrder,
    /// Whether the version of items is chosen by the preferences of users and the cluster.
    pub(crate) api_group_versions: bool,
    pub(crate) limits: Limits,
    pub(crate) memory: ItemMemory,
    /// The ConfigMap with modifiers for restores that name none.
    pub(crate) default_modifier: Option<String>,
    /// Whether this controller runs our data mover.
    pub(crate) has_mover: bool,
}

/// Results of a restore that are not in its files.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Summary {
    pub progress: RestoreProgress,
    /// `None` if no pod had a hook, or if they are published already.
    pub hooks: Option<HookStatus>,
    pub left: LeftItems,
}

impl JobKind for Restores {
    type Object = Restore;
    type Facts = Facts;
    type Contents = PendingRestore;
    type Summary = Summary;

    const KIND: Kind = Kind::Restore;
    /// The second is set by a Velero server; it stays until the files of the restore are deleted.
    const FINALIZERS: &'static [&'static str] = &[
        labels::RESTORE_WORK_FINALIZER,
        "restores.velero.io/external-resources-finalizer",
    ];
}
