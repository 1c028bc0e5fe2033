//! DataUploads and DataDownloads by their stage, and counts of those that end while this process
//! watches. An end before that was counted by the process that led then.

use std::collections::{BTreeSet, HashMap};

use backup_core::{
    api::{
        DataDownload,
        transfer::{MovePhase, TransferStatus},
    },
    data_movement::DATA_MOVER,
};
use backup_runtime::watch::{Decoded, WatchEvent};
use kube::ResourceExt as _;

use super::Stored;
use crate::metrics::{Metrics, gauge};

/// Value of the label `kind`.
const DOWNLOADS: &str = "DataDownload";

/// The stage of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferStage {
    /// It was not accepted yet.
    Waiting,
    Running,
    Ended(TransferOutcome),
}

/// How a transfer has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferOutcome {
    Success,
    Failure,
    Cancel,
}

impl TransferStage {
    pub(super) fn of(transfer: &TransferStatus) -> Self {
        match &transfer.phase {
            None | Some(MovePhase::New) => Self::Waiting,
            Some(
                MovePhase::Accepted
                | MovePhase::Prepared
                | MovePhase::InProgress
                | MovePhase::Canceling
                | MovePhase::Unknown(_),
            ) => Self::Running,
            Some(MovePhase::Completed) => Self::Ended(TransferOutcome::Success),
            Some(MovePhase::Failed) => Self::Ended(TransferOutcome::Failure),
            Some(MovePhase::Canceled) => Self::Ended(TransferOutcome::Cancel),
        }
    }
}

/// The stages of all transfers of a kind, by name.
#[derive(Debug, Default)]
pub(super) struct Stages {
    known: HashMap<String, TransferStage>,
    is_listed: bool,
}

impl Stages {
    /// Whether all transfers that exist are known.
    pub(super) fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Returns how the transfer has ended, if it was not known to have ended. Transfers that were
    /// there before the first list was complete count as known.
    pub(super) fn applied(
        &mut self,
        name: String,
        transfer: &TransferStatus,
    ) -> Option<TransferOutcome> {
        let stage = TransferStage::of(transfer);
        let before = self.known.insert(name, stage);
        let was_ended = match before {
            Some(before) => matches!(before, TransferStage::Ended(_)),
            None => !self.is_listed,
        };
        match stage {
            TransferStage::Ended(outcome) => (!was_ended).then_some(outcome),
            TransferStage::Waiting | TransferStage::Running => None,
        }
    }

    pub(super) fn gone(&mut self, name: &str) {
        self.known.remove(name);
    }

    pub(super) fn listed(&mut self, names: &BTreeSet<String>) {
        self.is_listed = true;
        self.known.retain(|name, _| names.contains(name));
    }

    /// Sets the gauges, once all transfers are known.
    pub(super) fn publish(&self, kind: &str, metrics: &Metrics) {
        if !self.is_listed {
            return;
        }
        let series = &metrics.series;
        series
            .data_transfers_running
            .of([kind])
            .set(self.count(TransferStage::Running));
        series
            .data_transfers_waiting
            .of([kind])
            .set(self.count(TransferStage::Waiting));
    }

    fn count(&self, stage: TransferStage) -> i64 {
        let all = self.known.values().filter(|known| **known == stage);
        gauge(all.count() as u64)
    }
}

/// Observes the duration of a transfer that has moved data.
pub(super) fn observe_duration(kind: &str, transfer: &TransferStatus, metrics: &Metrics) {
    if let (Some(start), Some(end)) = (&transfer.start_timestamp, &transfer.completion_timestamp) {
        let seconds = end.0.duration_since(start.0).as_secs_f64();
        metrics
            .series
            .data_transfer_duration_seconds
            .of([kind])
            .observe(seconds.max(0.0));
    }
}

/// A number of bytes, which the API has with a sign.
pub(super) fn bytes(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

/// Bytes that a transfer has moved.
pub(super) fn moved_bytes(transfer: &TransferStatus) -> u64 {
    let progress = transfer.progress.as_ref();
    progress.map_or(0, |progress| bytes(progress.bytes_done))
}

#[derive(Debug, Default)]
pub(super) struct StoredDownloads {
    stages: Stages,
}

impl Stored<DataDownload> for StoredDownloads {
    fn touched(&mut self, event: &WatchEvent<Decoded<DataDownload>>, metrics: &Metrics) {
        match event {
            WatchEvent::Applied(Ok(download)) => self.applied(download, metrics),
            WatchEvent::Applied(Err(bad)) => self.stages.gone(&bad.name),
            WatchEvent::Deleted(key) => self.stages.gone(&key.name),
            WatchEvent::Listed(names) => self.stages.listed(names),
        }
        self.stages.publish(DOWNLOADS, metrics);
    }
}

impl StoredDownloads {
    fn applied(&mut self, download: &DataDownload, metrics: &Metrics) {
        if download.spec.mover.datamover.as_deref() != Some(DATA_MOVER) {
            return;
        }
        let transfer = &download.status.transfer;
        if let Some(outcome) = self.stages.applied(download.name_any(), transfer) {
            count_end(download, outcome, metrics);
        }
    }
}

fn count_end(download: &DataDownload, outcome: TransferOutcome, metrics: &Metrics) {
    let series = &metrics.series;
    let node = download.status.node.node.as_deref().unwrap_or_default();
    let counter = match outcome {
        TransferOutcome::Success => &series.data_download_success,
        TransferOutcome::Failure => &series.data_download_failure,
        TransferOutcome::Cancel => &series.data_download_cancel,
    };
    counter.of([node]).inc();
    if outcome == TransferOutcome::Success {
        let transfer = &download.status.transfer;
        series
            .data_download_restored_bytes
            .of([&download.spec.source_namespace])
            .inc_by(moved_bytes(transfer));
        observe_duration(DOWNLOADS, transfer, metrics);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing;

    fn download(name: &str, phase: &str) -> DataDownload {
        let object = json!({
            "apiVersion": "velero.io/v2alpha1", "kind": "DataDownload", "metadata": { "name": name },
            "spec": {
                "targetVolume": { "pvc": "data", "pv": "", "namespace": "copy" },
                "backupStorageLocation": "default", "snapshotID": "k1", "sourceNamespace": "shop",
                "datamover": "backup-mover", "operationTimeout": "1m0s",
            },
            "status": {
                "phase": phase, "node": "n1", "startTimestamp": "2026-01-01T00:00:00Z",
                "completionTimestamp": "2026-01-01T00:02:00Z",
                "progress": { "bytesDone": 70, "totalBytes": 70 },
            },
        });
        serde_json::from_value(object).unwrap()
    }

    fn applied(stored: &mut StoredDownloads, metrics: &Metrics, all: &[(&str, &str)]) {
        for (name, phase) in all {
            let event = WatchEvent::Applied(Ok(download(name, phase)));
            stored.touched(&event, metrics);
        }
    }

    fn listed(stored: &mut StoredDownloads, metrics: &Metrics, names: &[&str]) {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        stored.touched(&WatchEvent::Listed(names), metrics);
    }

    #[test]
    fn downloads_count_by_stage_and_each_end_counts_once() {
        let (metrics, mut stored) = (Metrics::default(), StoredDownloads::default());
        let first = [
            ("ended-before", "Completed"),
            ("runs", "InProgress"),
            ("waits", "New"),
        ];
        applied(&mut stored, &metrics, &first);
        assert!(
            !metrics.encode().contains("transfers_running{"),
            "not all are known yet"
        );
        listed(&mut stored, &metrics, &first.map(|(name, _)| name));
        let gauges = [
            "velero_data_transfers_running{kind=\"DataDownload\"} 1",
            "velero_data_transfers_waiting{kind=\"DataDownload\"} 1",
        ];
        testing::assert_exported(&metrics, &gauges);
        assert!(!metrics.encode().contains("data_download_success_total{"));
        let ends = [
            ("runs", "Completed"),
            ("runs", "Completed"),
            ("waits", "Canceled"),
            ("ended-before", "Completed"),
            ("new-and-short", "Failed"),
            // The watch begins again.
            ("ended-in-the-gap", "Completed"),
            ("runs", "Completed"),
        ];
        applied(&mut stored, &metrics, &ends);
        listed(&mut stored, &metrics, &["ended-in-the-gap", "runs"]);
        let counted = [
            "podVolume_data_download_success_total{node=\"n1\"} 2",
            "podVolume_data_download_failure_total{node=\"n1\"} 1",
            "podVolume_data_download_cancel_total{node=\"n1\"} 1",
            "velero_data_download_restored_bytes_total{volume_namespace=\"shop\"} 140",
            "velero_data_transfer_duration_seconds_sum{kind=\"DataDownload\"} 240.0",
            "velero_data_transfers_running{kind=\"DataDownload\"} 0",
            "velero_data_transfers_waiting{kind=\"DataDownload\"} 0",
        ];
        testing::assert_exported(&metrics, &counted);
    }

    #[test]
    fn transfers_of_another_data_mover_do_not_count() {
        let (metrics, mut stored) = (Metrics::default(), StoredDownloads::default());
        listed(&mut stored, &metrics, &[]);
        let mut other = download("d", "Completed");
        other.spec.mover.datamover = Some("theirs".to_owned());
        stored.touched(&WatchEvent::Applied(Ok(other)), &metrics);
        assert!(!metrics.encode().contains("data_download_success_total{"));
    }
}
