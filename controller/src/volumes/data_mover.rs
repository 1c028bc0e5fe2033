//! Moves the data of volumes between CSI snapshots and repositories in the object store.
//!
//! A DataUpload saves a snapshot (`upload`), a DataDownload fills a restored claim (`download`),
//! and a BackupRepository is the repository of a namespace in a location (`repository`). The data
//! itself passes through pods that run `backup-mover` (`pod`, `user`, `pod_state`), never through
//! this process. `objects` has the requests to the cluster that they share, `repository_wait` the
//! time that a transfer waits for its repository.

mod download;
mod objects;
mod pod;
mod pod_state;
mod repository;
mod repository_wait;
mod settings;
mod upload;
mod user;

use std::sync::Arc;

use backup_runtime::{Cluster, health::Health};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::location::Locations;

pub(crate) use download::claim_in_use;
pub(crate) use objects::{is_made_for_claim, is_provisioned};
pub(crate) use settings::MoverSettings;

pub(crate) struct DataMover {
    pub(crate) cluster: Cluster,
    pub(crate) locations: Locations,
    pub(crate) settings: MoverSettings,
    /// Held while a transfer is accepted, and while the maintenance of a repository is begun: each
    /// looks for the other first. Of this process only, as only the leader does either.
    exclusion: Mutex<()>,
}

impl DataMover {
    pub(crate) fn new(cluster: Cluster, locations: Locations, settings: MoverSettings) -> Self {
        Self {
            cluster,
            locations,
            settings,
            exclusion: Mutex::default(),
        }
    }

    /// Runs until the process is asked to end.
    pub(crate) async fn run(self, health: Health, stop: CancellationToken) {
        let mover = Arc::new(self);
        tokio::join!(
            upload::run(Arc::clone(&mover), health.clone(), stop.clone()),
            download::run(Arc::clone(&mover), health.clone(), stop.clone()),
            repository::run(mover, health, stop),
        );
    }
}
