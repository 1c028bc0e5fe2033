//! Backups as a kind of `job`: its types, and the state that all its workers share.

use backup_core::{
    api::{Backup, backup::BackupProgress},
    labels,
};
use backup_plugins::Host;
use backup_store::BackupWriter;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

use super::{
    prepare::{Facts, Settings},
    progress::Progress,
};
use crate::{
    discovery::KnownGroups,
    job::kind::{JobKind, Kind},
    volumes::snapshot_locations::SnapshotLocations,
};

pub(crate) struct Backups {
    /// For connections that may be silent for hours: commands in pods.
    pub(crate) silent_client: Client,
    pub(crate) plugins: Host,
    pub(crate) snapshot_locations: SnapshotLocations,
    pub(crate) settings: Settings,
    pub(crate) slots: usize,
    /// Unique name of this installation, from its cluster and namespace.
    pub(crate) installation: String,
    pub(crate) only_related_cluster_resources: bool,
    pub(crate) groups: KnownGroups,
    /// Maximum number of blocks of one backup with concurrent snapshots.
    pub(crate) item_block_workers: usize,
}

#[cfg(test)]
impl Backups {
    pub(crate) fn fake(ctx: &crate::job::JobContext) -> Self {
        use clap::Parser as _;
        let mut args = crate::Args::parse_from(["backup-controller"]);
        args.resource_timeout = backup_core::api::GoDuration::from_secs(2);
        Self {
            silent_client: ctx.cluster.client.clone(),
            plugins: Host::none(),
            snapshot_locations: SnapshotLocations {
                cluster: ctx.cluster.clone(),
                plugins: Host::none(),
            },
            settings: Settings::of(&args),
            slots: 1,
            installation: "cluster/velero".to_owned(),
            only_related_cluster_resources: false,
            groups: KnownGroups::new([]),
            item_block_workers: 4,
        }
    }
}

/// Data read before a Backup starts; empty once it has begun.
#[derive(Debug, Default)]
pub(crate) struct StartFacts {
    pub facts: Facts,
    pub at: Timestamp,
}

/// Results of a collection that are not in its files.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    pub progress: BackupProgress,
    pub status: Value,
}

impl Summary {
    /// Of a collection that has ended.
    pub(crate) fn of(progress: &Progress) -> Self {
        let shown = progress.status(true);
        let mut status = json!({ "progress": shown });
        if let Some(hooks) = progress.hooks() {
            status["hookStatus"] = json!(hooks);
        }
        Self {
            progress: shown,
            status,
        }
    }
}

impl JobKind for Backups {
    type Object = Backup;
    type Facts = StartFacts;
    type Contents = BackupWriter;
    type Summary = Summary;

    const KIND: Kind = Kind::Backup;
    const FINALIZERS: &'static [&'static str] = &[labels::BACKUP_WORK_FINALIZER];
}
