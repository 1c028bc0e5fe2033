//! Metrics of volume data that is moved, from watches of their own: the controllers of the data
//! mover do not depend on them.

mod repositories;
mod transfers;
mod uploads;

use std::sync::Arc;

use backup_core::api::{BackupRepository, DataDownload, DataUpload, NamespacedKind};
use backup_runtime::{Cluster, watch};
use futures::StreamExt as _;
use tokio_util::sync::CancellationToken;

use super::Stored;
use crate::metrics::Metrics;
use repositories::StoredRepositories;
use transfers::StoredDownloads;
use uploads::StoredUploads;

/// Keeps the metrics up to date until the process is asked to end.
pub(crate) async fn run(cluster: Cluster, metrics: Arc<Metrics>, stop: CancellationToken) {
    tokio::join!(
        follow::<DataUpload>(&cluster, StoredUploads::default(), &metrics, &stop),
        follow::<DataDownload>(&cluster, StoredDownloads::default(), &metrics, &stop),
        follow::<BackupRepository>(&cluster, StoredRepositories::default(), &metrics, &stop),
    );
}

async fn follow<K: NamespacedKind>(
    cluster: &Cluster,
    mut stored: impl Stored<K>,
    metrics: &Metrics,
    stop: &CancellationToken,
) {
    let events = watch::objects::<K>(cluster).take_until(stop.cancelled());
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        stored.touched(&event, metrics);
    }
}
