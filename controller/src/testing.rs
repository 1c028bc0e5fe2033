//! What unit tests give to the controllers in place of a cluster.

use std::{path::Path, time::Duration};

use backup_core::api::{BackupStorageLocation, BackupStorageLocationSpec};
use backup_plugins::Host;
use backup_runtime::{Cluster, events::Events, leader::Leadership};
use kube::Client;

use crate::location::Locations;

/// Leads always, and gives up a patch after two seconds.
pub(crate) fn cluster(client: Client) -> Cluster {
    Cluster {
        client: client.clone(),
        namespace: "velero".to_owned(),
        leadership: Leadership::always(),
        events: Events::new(client, "test"),
        patch_budget: Duration::from_secs(2),
        page_size: 500,
    }
}

/// Without plugins.
pub(crate) fn locations(cluster: &Cluster) -> Locations {
    Locations::new(cluster.client.clone(), &cluster.namespace, "default", Host::none(), &[])
}

/// The location `default` in a folder.
pub(crate) fn local_location(folder: &Path) -> BackupStorageLocation {
    let mut spec = BackupStorageLocationSpec { provider: "local".to_owned(), ..Default::default() };
    spec.object_storage.bucket = folder.to_str().unwrap().to_owned();
    BackupStorageLocation::new("default", spec)
}
