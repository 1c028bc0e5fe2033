//! What every controller is given.

use std::sync::Arc;

use backup_lock::{ProtectedProfile, lease::LedgerStore};
use backup_plugins::Host;
use backup_runtime::{Cluster, health::Health};
use kube::Client;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    args::Args, job::operations::flush_requests::FlushRequests, location::Locations, metrics::Metrics,
    recent_deletions::RecentDeletions, snapshot_locations::SnapshotLocations,
};

/// Shared by all controllers; cheap to clone.
#[derive(Clone)]
pub(crate) struct Context {
    /// The API server, the namespace of the installation, and whether this replica may work.
    pub(crate) cluster: Cluster,
    /// A client for connections that may be silent for hours: commands in pods.
    pub(crate) silent_client: Client,
    /// Settings from the command line.
    pub(crate) args: Arc<Args>,
    /// The cluster and the namespace of this installation, in a form that names no other one.
    pub(crate) installation: Arc<str>,
    /// Velero's ledger.
    pub(crate) ledger: LedgerStore,
    /// All profiles that are guarded, with their ledgers.
    pub(crate) guards: Arc<[ProtectedProfile]>,
    /// Opens BackupStorageLocations with their credentials.
    pub(crate) locations: Locations,
    /// Opens VolumeSnapshotLocations.
    pub(crate) snapshot_locations: SnapshotLocations,
    /// Velero's plugins.
    pub(crate) plugins: Host,
    /// One permit for each call about an operation that is under way.
    pub(crate) operation_permits: Arc<Semaphore>,
    /// People who look at operations that this process follows.
    pub(crate) flush_requests: FlushRequests,
    /// Backups that this process has begun to delete.
    pub(crate) deletions: RecentDeletions,
    /// Counters and gauges.
    pub(crate) metrics: Arc<Metrics>,
    /// Which controllers have seen their first list.
    pub(crate) health: Health,
    /// Cancelled when the process is asked to end: stop taking work, and stop work that can be resumed.
    pub(crate) stop: CancellationToken,
}

#[cfg(test)]
impl Context {
    /// For a made-up API server: leads always, and gives a patch up after two seconds.
    pub(crate) fn fake(client: Client) -> Self {
        use crate::testing;
        use clap::Parser as _;
        let mut args = Args::parse_from(["backup-controller"]);
        args.resource_timeout = backup_core::api::GoDuration::from_secs(2);
        let cluster = testing::cluster(client.clone());
        Self {
            cluster: cluster.clone(),
            args: Arc::new(args),
            installation: "cluster/velero".into(),
            ledger: LedgerStore::new(client.clone(), "velero"),
            guards: Arc::new([]),
            locations: testing::locations(&cluster),
            snapshot_locations: SnapshotLocations { cluster: cluster.clone(), plugins: Host::none() },
            plugins: Host::none(),
            operation_permits: Arc::new(Semaphore::new(16)),
            flush_requests: FlushRequests::default(),
            deletions: RecentDeletions::default(),
            metrics: Arc::new(Metrics::default()),
            health: Health::default(),
            stop: CancellationToken::new(),
            silent_client: client,
        }
    }
}
