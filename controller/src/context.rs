//! What every controller is given.

use std::sync::Arc;

use backup_lock::{ProtectedProfile, lease::LedgerStore};
use backup_runtime::{Cluster, health::Health};
use kube::Client;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    args::Args, deletion, job::operations::flush_requests::FlushRequests, location::Locations,
    metrics::Metrics,
};
use backup_plugins::Host;

/// Shared by all controllers; cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// The API server, the namespace of the installation, and whether this replica may work.
    pub cluster: Cluster,
    /// A client for connections that may be silent for hours: commands in pods.
    pub silent_client: Client,
    /// Settings from the command line.
    pub args: Arc<Args>,
    /// The cluster and the namespace of this installation, in a form that names no other one.
    pub installation: Arc<str>,
    /// Velero's ledger.
    pub ledger: LedgerStore,
    /// All profiles that are guarded, with their ledgers.
    pub guards: Arc<[ProtectedProfile]>,
    /// Opens BackupStorageLocations with their credentials.
    pub locations: Locations,
    /// Velero's plugins.
    pub plugins: Host,
    /// One permit for each call about an operation that is under way.
    pub operation_permits: Arc<Semaphore>,
    /// People who look at operations that this process follows.
    pub flush_requests: FlushRequests,
    /// Backups that this process has begun to delete.
    pub deletions: deletion::Begun,
    /// Counters and gauges.
    pub metrics: Arc<Metrics>,
    /// Which controllers have seen their first list.
    pub health: Health,
    /// Cancelled when the process is asked to end: stop taking work, and stop work that can be resumed.
    pub stop: CancellationToken,
}

#[cfg(test)]
impl Context {
    /// For a made-up API server: leads always, and gives a patch up after two seconds.
    pub fn fake(client: Client) -> Self {
        use clap::Parser as _;
        let mut args = Args::parse_from(["backup-controller"]);
        args.resource_timeout = backup_core::api::GoDuration::from_secs(2);
        Self {
            cluster: Cluster {
                client: client.clone(),
                namespace: "velero".to_owned(),
                leadership: backup_runtime::leader::Leadership::always(),
                events: backup_runtime::events::Events::new(client.clone(), "test"),
                patch_budget: args.resource_timeout.as_std(),
                page_size: args.client_page_size,
            },
            args: Arc::new(args),
            installation: "cluster/velero".into(),
            ledger: LedgerStore::new(client.clone(), "velero"),
            guards: Arc::new([]),
            locations: Locations::new(client.clone(), "velero", "default", Host::none(), &[]),
            plugins: Host::none(),
            operation_permits: Arc::new(Semaphore::new(16)),
            flush_requests: FlushRequests::default(),
            deletions: deletion::Begun::default(),
            metrics: Arc::new(Metrics::default()),
            health: Health::default(),
            stop: CancellationToken::new(),
            silent_client: client,
        }
    }
}
