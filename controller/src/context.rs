//! What every controller is given.

use std::sync::Arc;

use backup_lock::{Guard, lease::LedgerStore};
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    args::Args,
    deletion,
    location::Locations,
    metrics::Metrics,
    operations::looks::Looks,
    plugins::Host,
    runtime::{events::Events, health::Health, leader::Leadership},
};

/// Shared by all controllers; cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// For the API server. It does not retry by itself: see [`crate::runtime::retry`].
    pub client: Client,
    /// The same for connections that may be silent for hours: commands in pods.
    pub silent_client: Client,
    /// The namespace of the installation.
    pub namespace: String,
    /// Settings from the command line.
    pub args: Arc<Args>,
    /// Velero's ledger.
    pub ledger: LedgerStore,
    /// All profiles that are guarded, with their ledgers.
    pub guards: Arc<[Guard]>,
    /// Whether this replica may work.
    pub leadership: Leadership,
    /// Opens BackupStorageLocations with their credentials.
    pub locations: Locations,
    /// Velero's plugins.
    pub plugins: Host,
    /// One permit for each call about an operation that is under way.
    pub operation_permits: Arc<Semaphore>,
    /// People who look at operations that this process follows.
    pub looks: Looks,
    /// Backups that this process has begun to delete.
    pub deletions: deletion::Begun,
    /// Counters and gauges.
    pub metrics: Arc<Metrics>,
    /// Records Events on objects.
    pub events: Events,
    /// Which controllers have seen their first list.
    pub health: Health,
    /// Cancelled when the process is asked to end: stop taking work, and stop work that can be resumed.
    pub stop: CancellationToken,
}

impl Context {
    /// The objects of a kind in the namespace of the installation.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

#[cfg(test)]
impl Context {
    /// For a made-up API server: leads always, and gives a patch up after two seconds.
    pub fn fake(client: Client) -> Self {
        use clap::Parser as _;
        let mut args = Args::parse_from(["backup-controller"]);
        args.resource_timeout = backup_core::api::GoDuration::from_secs(2);
        Self {
            namespace: "velero".to_owned(),
            args: Arc::new(args),
            ledger: LedgerStore::new(client.clone(), "velero"),
            guards: Arc::new([]),
            leadership: Leadership::always(),
            locations: Locations::new(client.clone(), "velero", "default", Host::none(), &[]),
            plugins: Host::none(),
            operation_permits: Arc::new(Semaphore::new(16)),
            looks: Looks::default(),
            deletions: deletion::Begun::default(),
            metrics: Arc::new(Metrics::default()),
            events: Events::new(client.clone(), "test"),
            health: Health::default(),
            stop: CancellationToken::new(),
            silent_client: client.clone(),
            client,
        }
    }
}
