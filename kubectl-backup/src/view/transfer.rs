//! Transfers of volume data between a volume and the bucket, as their DataUpload or DataDownload
//! records them.

use backup_core::{
    api::{
        DataDownload, DataUpload, NamespacedKind,
        transfer::{MovePhase, TransferStatus},
    },
    data_movement::{DATA_MOVER, FILES_ANNOTATION, repository_path},
};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;

use crate::{
    fetched::FetchResult,
    print::{Tone, plain, seconds},
};

/// An object that records a transfer.
pub(crate) trait Transfer: NamespacedKind {
    fn view(&self) -> TransferView;
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TransferView {
    /// Name of the object, which is also the id of its operation.
    pub(crate) name: String,
    /// `namespace/claim`; for a restore, the claim that is filled.
    pub(crate) claim: String,
    /// The phase, as the server wrote it.
    pub(crate) phase: String,
    #[serde(skip)]
    pub(crate) tone: Tone,
    /// Bytes that were read or written.
    pub(crate) done: i64,
    /// Bytes to read or write; 0 while that is unknown.
    pub(crate) total: i64,
    /// Bytes that a backup has added to the bucket; null if they are not recorded.
    pub(crate) new_bytes: Option<i64>,
    /// Number of files; null if it is not recorded.
    pub(crate) files: Option<u64>,
    /// Node of the pod that does the work; empty before it runs.
    pub(crate) node: String,
    /// What it waits for, or why it failed.
    pub(crate) message: String,
    /// Id of the snapshot in the repository; empty if there is none.
    pub(crate) snapshot: String,
    /// Folder of the repository, below the location's prefix; empty if another data mover has it.
    pub(crate) repository: String,
    pub(crate) started: Option<Timestamp>,
    pub(crate) completed: Option<Timestamp>,
}

impl Transfer for DataUpload {
    fn view(&self) -> TransferView {
        let Self { spec, status, .. } = self;
        let stored = &status.stored;
        let files = self.annotations().get(FILES_ANNOTATION);
        TransferView {
            claim: claim(&spec.source_namespace, &spec.source_pvc),
            new_bytes: is_over(&status.transfer).then_some(stored.incremental_bytes),
            files: files.and_then(|count| count.parse().ok()),
            node: text(status.node.node.as_deref()),
            snapshot: text(stored.snapshot_id.as_deref()),
            repository: repository(spec.mover.datamover.as_deref(), &spec.source_namespace),
            ..of_status(&self.name_any(), &status.transfer)
        }
    }
}

impl Transfer for DataDownload {
    fn view(&self) -> TransferView {
        let Self { spec, status, .. } = self;
        let target = &spec.target_volume;
        TransferView {
            claim: claim(&target.namespace, &target.pvc),
            node: text(status.node.node.as_deref()),
            snapshot: plain(&spec.snapshot_id),
            repository: repository(spec.mover.datamover.as_deref(), &spec.source_namespace),
            ..of_status(&self.name_any(), &status.transfer)
        }
    }
}

/// The fields that both kinds have in their status.
fn of_status(name: &str, status: &TransferStatus) -> TransferView {
    let phase = status.phase.as_ref().unwrap_or(&MovePhase::New);
    let progress = status.progress.clone().unwrap_or_default();
    TransferView {
        name: plain(name),
        claim: String::new(),
        phase: plain(phase.as_str()),
        tone: tone(phase),
        done: progress.bytes_done,
        total: progress.total_bytes,
        new_bytes: None,
        files: None,
        node: String::new(),
        message: text(status.message.as_deref()),
        snapshot: String::new(),
        repository: String::new(),
        started: status.start_timestamp.as_ref().map(|at| at.0),
        completed: status.completion_timestamp.as_ref().map(|at| at.0),
    }
}

fn tone(phase: &MovePhase) -> Tone {
    match phase {
        MovePhase::New
        | MovePhase::Accepted
        | MovePhase::Prepared
        | MovePhase::InProgress
        | MovePhase::Canceling => Tone::Busy,
        MovePhase::Completed => Tone::Good,
        MovePhase::Canceled | MovePhase::Failed => Tone::Bad,
        MovePhase::Unknown(_) => Tone::Unknown,
    }
}

fn is_over(status: &TransferStatus) -> bool {
    matches!(
        status.phase.as_ref().map(tone),
        Some(Tone::Good | Tone::Bad)
    )
}

fn claim(namespace: &str, name: &str) -> String {
    plain(&format!("{namespace}/{name}"))
}

fn repository(mover: Option<&str>, namespace: &str) -> String {
    if mover == Some(DATA_MOVER) {
        plain(&repository_path(namespace))
    } else {
        String::new()
    }
}

fn text(field: Option<&str>) -> String {
    plain(field.unwrap_or_default())
}

impl TransferView {
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.tone, Tone::Good | Tone::Bad)
    }

    /// Bytes a second since the start, and the seconds until the end at that rate; `None` before
    /// the first second, or if nothing was moved.
    pub(crate) fn speed(&self, now: Timestamp) -> Option<TransferRate> {
        let passed = seconds(self.started?, self.completed.unwrap_or(now));
        let rate = self.done.checked_div(passed).filter(|_| passed > 0)?;
        let left = self.total.saturating_sub(self.done).checked_div(rate)?;
        Some(TransferRate {
            bytes_per_second: u64::try_from(rate).ok()?,
            seconds_left: left.max(0),
        })
    }
}

/// How fast the bytes of a transfer are moved, on average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransferRate {
    pub(crate) bytes_per_second: u64,
    /// 0 if the number of bytes to move is unknown.
    pub(crate) seconds_left: i64,
}

/// Failed transfers, then running ones, then the others; by claim.
pub(crate) fn sorted(mut all: Vec<TransferView>) -> Vec<TransferView> {
    all.sort_by(|a, b| (rank(a.tone), &a.claim).cmp(&(rank(b.tone), &b.claim)));
    all
}

fn rank(tone: Tone) -> u8 {
    match tone {
        Tone::Bad => 0,
        Tone::Good => 2,
        _ => 1,
    }
}

/// Whether it is known that there are no transfers: documents leave them out then.
pub(crate) fn are_none(transfers: &FetchResult<Vec<TransferView>>) -> bool {
    transfers.known().is_some_and(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn upload(status: &Value) -> TransferView {
        let object = json!({
            "apiVersion": "velero.io/v2alpha1", "kind": "DataUpload",
            "metadata": { "name": "upload-data-1", "annotations": { "backup-controller/files": "42" } },
            "spec": { "snapshotType": "CSI", "sourcePVC": "data", "sourceNamespace": "shop", "datamover": "backup-mover",
                "backupStorageLocation": "default", "operationTimeout": "10m0s" },
            "status": status,
        });
        serde_json::from_value::<DataUpload>(object).unwrap().view()
    }

    #[test]
    fn an_upload_is_shown_with_what_it_has_stored() {
        let view = upload(&json!({
            "phase": "Completed", "snapshotID": "4f1c", "incrementalBytes": 7, "node": "worker-1",
            "progress": { "totalBytes": 100, "bytesDone": 100 },
        }));
        assert_eq!(
            (view.claim.as_str(), view.repository.as_str(), view.tone),
            ("shop/data", "restic/shop", Tone::Good)
        );
        assert_eq!((view.new_bytes, view.files), (Some(7), Some(42)));
        let begun = upload(&json!({ "phase": "InProgress", "incrementalBytes": 7 }));
        assert_eq!((begun.new_bytes, begun.tone), (None, Tone::Busy));
        let new = upload(&Value::Null);
        assert_eq!((new.phase.as_str(), new.has_ended()), ("New", false));
    }

    #[test]
    fn a_download_is_shown_with_the_claim_that_it_fills() {
        let object = json!({
            "apiVersion": "velero.io/v2alpha1", "kind": "DataDownload", "metadata": { "name": "download-data-1" },
            "spec": { "targetVolume": { "pvc": "data", "pv": "", "namespace": "copy" }, "backupStorageLocation": "default",
                "snapshotID": "4f1c", "sourceNamespace": "shop", "datamover": "backup-mover", "operationTimeout": "4h0m0s" },
            "status": { "phase": "Failed", "message": "the claim\nis gone" },
        });
        let view = serde_json::from_value::<DataDownload>(object)
            .unwrap()
            .view();
        assert_eq!(
            (view.claim.as_str(), view.repository.as_str()),
            ("copy/data", "restic/shop")
        );
        assert_eq!(
            (view.message.as_str(), view.tone),
            ("the claim is gone", Tone::Bad)
        );
    }

    #[test]
    fn the_speed_is_that_since_the_start() {
        for (done, total, passed, expected) in [
            (0, 100, 0, None),
            (0, 100, 10, None),
            (50, 100, 10, Some((5, 10))),
            // Less than a byte a second.
            (5, 100, 10, None),
            // The size is unknown.
            (50, 0, 10, Some((5, 0))),
            // More than was announced.
            (150, 100, 10, Some((15, 0))),
            // Clocks differ.
            (50, 100, -3, None),
        ] {
            let view = upload(&json!({
                "phase": "InProgress", "startTimestamp": "2026-11-03T05:00:00Z",
                "progress": { "totalBytes": total, "bytesDone": done },
            }));
            let now = view.started.unwrap() + jiff::SignedDuration::from_secs(passed);
            let speed = view
                .speed(now)
                .map(|speed| (speed.bytes_per_second, speed.seconds_left));
            assert_eq!(speed, expected, "{done} of {total} in {passed}");
        }
    }

    #[test]
    fn what_needs_attention_comes_first() {
        let all = ["Completed", "InProgress", "Failed", "Pondering"];
        let views = all.map(|phase| upload(&json!({ "phase": phase })));
        let phases: Vec<String> = sorted(views.to_vec())
            .into_iter()
            .map(|view| view.phase)
            .collect();
        assert_eq!(phases, ["Failed", "InProgress", "Pondering", "Completed"]);
    }
}
