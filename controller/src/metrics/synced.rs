//! What is counted of comparisons of locations with the cluster.

use backup_core::sync::Summary;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::{LocationName, Metrics};

/// Comparisons of locations with the cluster.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    passes: Family<LocationName, Counter>,
    failures: Family<LocationName, Counter>,
    created: Family<LocationName, Counter>,
    removed: Family<LocationName, Counter>,
    pruned: Family<LocationName, Counter>,
    refused: Family<LocationName, Gauge>,
    skipped: Family<LocationName, Gauge>,
    strays: Family<LocationName, Gauge>,
    last: Family<LocationName, Gauge>,
}

impl Syncs {
    pub(super) fn register(&self, r: &mut Registry) {
        for (name, help, family) in [
            ("backup_sync", "Comparisons of a location with the cluster", &self.passes),
            ("backup_sync_failure", "Comparisons that did not come to their end", &self.failures),
            ("backup_sync_created", "Backups that were brought into the cluster", &self.created),
            (
                "backup_sync_removed",
                "Backups that were removed as they are gone from the bucket",
                &self.removed,
            ),
            (
                "backup_sync_pruned",
                "Folders without a backup that were removed from the bucket",
                &self.pruned,
            ),
        ] {
            r.register(name, help, family.clone());
        }
        for (name, help, family) in [
            (
                "backup_sync_refused",
                "Backups that were not removed as too many are gone at once",
                &self.refused,
            ),
            ("backup_sync_skipped", "Folders that were not brought into the cluster", &self.skipped),
            ("backup_sync_stray", "Folders that hold no backup and nobody writes to", &self.strays),
            (
                "backup_sync_last_timestamp",
                "Begin of the last comparison that came to its end, Unix time",
                &self.last,
            ),
        ] {
            r.register(name, help, family.clone());
        }
    }
}

impl Metrics {
    /// Counts a comparison of a location with the cluster.
    pub fn synced(&self, name: &str, summary: &Summary) {
        let labels = LocationName { backup_location_name: name.to_owned() };
        let (syncs, gauge) = (&self.syncs, |count: u64| i64::try_from(count).unwrap_or(i64::MAX));
        syncs.passes.get_or_create(&labels).inc();
        syncs.created.get_or_create(&labels).inc_by(summary.created);
        syncs.removed.get_or_create(&labels).inc_by(summary.removed);
        syncs.pruned.get_or_create(&labels).inc_by(summary.pruned);
        if summary.error.is_some() {
            syncs.failures.get_or_create(&labels).inc();
            return;
        }
        syncs.refused.get_or_create(&labels).set(gauge(summary.refused));
        syncs.skipped.get_or_create(&labels).set(gauge(summary.skips()));
        syncs.strays.get_or_create(&labels).set(gauge(summary.skipped_as("stray")));
        syncs.last.get_or_create(&labels).set(summary.started.as_second());
    }

    /// Forgets the gauges of a location that is gone.
    pub fn forget_sync(&self, name: &str) {
        let labels = LocationName { backup_location_name: name.to_owned() };
        for family in [&self.syncs.refused, &self.syncs.skipped, &self.syncs.strays, &self.syncs.last] {
            family.remove(&labels);
        }
    }
}
