//! DataUploads: how far behind the data in the bucket is, for each schedule and namespace.
//!
//! Only volumes of the last backup of a schedule count, so that those of a deleted claim or
//! namespace are forgotten with the next backup.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use backup_core::{
    api::DataUpload,
    data_movement::DATA_MOVER,
    labels::{BACKUP_UID, SCHEDULE_NAME},
};
use backup_runtime::watch::{Decoded, WatchEvent};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{
    Stored,
    transfers::{Stages, TransferOutcome, TransferStage, bytes, moved_bytes, observe_duration},
};
use crate::metrics::Metrics;

/// Value of the label `kind`.
const UPLOADS: &str = "DataUpload";

#[derive(Debug, Default)]
pub(super) struct StoredUploads {
    stages: Stages,
    known: HashMap<String, KnownUpload>,
    /// Namespaces that have series, by schedule.
    served: HashMap<String, BTreeSet<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownUpload {
    /// Empty without a schedule.
    schedule: String,
    /// Uid of the Backup.
    backup: String,
    namespace: String,
    claim: String,
    created: Timestamp,
    /// End of the upload, if its data is in the bucket.
    success: Option<Timestamp>,
    has_failed: bool,
}

impl KnownUpload {
    fn of(upload: &DataUpload) -> Option<Self> {
        let labels = upload.labels();
        let transfer = &upload.status.transfer;
        let stage = TransferStage::of(transfer);
        let is_success = stage == TransferStage::Ended(TransferOutcome::Success);
        let ended = transfer.completion_timestamp.as_ref();
        Some(Self {
            schedule: labels.get(SCHEDULE_NAME).cloned().unwrap_or_default(),
            backup: labels.get(BACKUP_UID).cloned().unwrap_or_default(),
            namespace: upload.spec.source_namespace.clone(),
            claim: upload.spec.source_pvc.clone(),
            created: upload.creation_timestamp()?.0,
            success: ended.map(|time| time.0).filter(|_| is_success),
            has_failed: stage == TransferStage::Ended(TransferOutcome::Failure),
        })
    }
}

/// The volumes of a namespace in the last backup of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NamespaceSummary {
    /// Last success of the volume that is furthest behind, or its first upload.
    last_success: Timestamp,
    /// Number of volumes whose upload has failed.
    failed: i64,
}

/// The uploads of a claim for a schedule.
struct ClaimHistory {
    /// Creation of the first upload that is known.
    first: Timestamp,
    success: Option<Timestamp>,
    /// Whether the upload for the last backup has failed; `None` if there is no such upload.
    has_failed: Option<bool>,
}

/// Summarises the uploads of one schedule by namespace.
fn summarise(uploads: &[&KnownUpload]) -> BTreeMap<String, NamespaceSummary> {
    let last = uploads.iter().max_by_key(|upload| upload.created);
    let mut claims = BTreeMap::<(&str, &str), ClaimHistory>::new();
    for upload in uploads {
        let claim = (upload.namespace.as_str(), upload.claim.as_str());
        let history = claims.entry(claim).or_insert(ClaimHistory {
            first: upload.created,
            success: None,
            has_failed: None,
        });
        history.first = history.first.min(upload.created);
        history.success = history.success.max(upload.success);
        if last.is_some_and(|last| last.backup == upload.backup) {
            history.has_failed = Some(upload.has_failed);
        }
    }
    let mut namespaces = BTreeMap::<String, NamespaceSummary>::new();
    for ((namespace, _), history) in claims {
        let Some(has_failed) = history.has_failed else {
            continue;
        };
        let last_success = history.success.unwrap_or(history.first);
        let summary = namespaces
            .entry(namespace.to_owned())
            .or_insert(NamespaceSummary {
                last_success,
                failed: 0,
            });
        summary.last_success = summary.last_success.min(last_success);
        summary.failed += i64::from(has_failed);
    }
    namespaces
}

impl Stored<DataUpload> for StoredUploads {
    fn touched(&mut self, event: &WatchEvent<Decoded<DataUpload>>, metrics: &Metrics) {
        match event {
            WatchEvent::Applied(Ok(upload)) => self.applied(upload, metrics),
            WatchEvent::Applied(Err(bad)) => self.gone(&bad.name, metrics),
            WatchEvent::Deleted(key) => self.gone(&key.name, metrics),
            WatchEvent::Listed(names) => self.listed(names, metrics),
        }
        self.stages.publish(UPLOADS, metrics);
    }
}

impl StoredUploads {
    fn applied(&mut self, upload: &DataUpload, metrics: &Metrics) {
        if upload.spec.mover.datamover.as_deref() != Some(DATA_MOVER) {
            return;
        }
        let name = upload.name_any();
        let transfer = &upload.status.transfer;
        if let Some(outcome) = self.stages.applied(name.clone(), transfer) {
            count_end(upload, outcome, metrics);
        }
        let Some(now) = KnownUpload::of(upload) else {
            return;
        };
        let schedule = now.schedule.clone();
        let before = self.known.insert(name, now.clone());
        // Most changes are progress.
        if before.as_ref() != Some(&now) {
            self.update(&schedule, metrics);
        }
    }

    fn gone(&mut self, name: &str, metrics: &Metrics) {
        self.stages.gone(name);
        if let Some(known) = self.known.remove(name) {
            self.update(&known.schedule, metrics);
        }
    }

    fn listed(&mut self, names: &BTreeSet<String>, metrics: &Metrics) {
        self.stages.listed(names);
        self.known.retain(|name, _| names.contains(name));
        let known = self.known.values().map(|known| &known.schedule);
        let schedules: BTreeSet<String> = known.chain(self.served.keys()).cloned().collect();
        for schedule in schedules {
            self.update(&schedule, metrics);
        }
    }

    /// Sets the gauges of a schedule, once all uploads are known.
    fn update(&mut self, schedule: &str, metrics: &Metrics) {
        if !self.stages.is_listed() {
            return;
        }
        let known = self.known.values();
        let uploads: Vec<&KnownUpload> =
            known.filter(|upload| upload.schedule == schedule).collect();
        let namespaces = summarise(&uploads);
        let series = &metrics.series;
        for (namespace, summary) in &namespaces {
            let labels = [schedule, namespace.as_str()];
            series
                .data_upload_last_success_timestamp_seconds
                .of(labels)
                .set(summary.last_success.as_second());
            series
                .data_upload_failed_volumes
                .of(labels)
                .set(summary.failed);
        }
        let now: BTreeSet<String> = namespaces.into_keys().collect();
        let before = self.served.remove(schedule).unwrap_or_default();
        for namespace in before.difference(&now) {
            let labels = [schedule, namespace.as_str()];
            series
                .data_upload_last_success_timestamp_seconds
                .remove(labels);
            series.data_upload_failed_volumes.remove(labels);
        }
        if !now.is_empty() {
            self.served.insert(schedule.to_owned(), now);
        }
    }
}

fn count_end(upload: &DataUpload, outcome: TransferOutcome, metrics: &Metrics) {
    let series = &metrics.series;
    let status = &upload.status;
    let node = status.node.node.as_deref().unwrap_or_default();
    let counter = match outcome {
        TransferOutcome::Success => &series.data_upload_success,
        TransferOutcome::Failure => &series.data_upload_failure,
        TransferOutcome::Cancel => &series.data_upload_cancel,
    };
    counter.of([node]).inc();
    // An upload that misses some files has saved the others.
    if status.stored.snapshot_id.is_some() {
        let namespace = upload.spec.source_namespace.as_str();
        series
            .data_upload_read_bytes
            .of([namespace])
            .inc_by(moved_bytes(&status.transfer));
        series
            .data_upload_stored_bytes
            .of([namespace])
            .inc_by(bytes(status.stored.incremental_bytes));
        observe_duration(UPLOADS, &status.transfer, metrics);
    }
}

#[cfg(test)]
mod tests;
