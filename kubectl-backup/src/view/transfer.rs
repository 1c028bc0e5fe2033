//! Transfers of volume data between a volume and the bucket, as their DataUpload or DataDownload
//! records them.

use backup_core::{
    api::{
        DataDownload, DataUpload, NamespacedKind,
        transfer::{MovePhase, TransferStatus},
    },
    data_movement::{
        ATTEMPTS_ANNOTATION, DATA_MOVER, FILES_ANNOTATION, TransferPace, repository_path,
    },
};
use jiff::Timestamp;
use kube::ResourceExt;
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
    /// Bytes that were sent to the bucket, or came from it, in this attempt; null if they are not
    /// recorded.
    pub(crate) moved_bytes: Option<u64>,
    /// Bytes that were read from the volume, without holes and unchanged files.
    #[serde(skip)]
    pub(crate) read_bytes: Option<u64>,
    /// Begin of this attempt, if it is not the first.
    #[serde(skip)]
    pub(crate) since: Option<Timestamp>,
    /// Number of this attempt, from 1 on.
    pub(crate) attempt: u32,
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
            ..of_status(self, &status.transfer)
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
            ..of_status(self, &status.transfer)
        }
    }
}

/// The fields that both kinds have in their status.
fn of_status(object: &impl ResourceExt, status: &TransferStatus) -> TransferView {
    let annotations = object.annotations();
    let pace = TransferPace::of(annotations);
    let attempt = annotations.get(ATTEMPTS_ANNOTATION);
    let phase = status.phase.as_ref().unwrap_or(&MovePhase::New);
    let progress = status.progress.clone().unwrap_or_default();
    TransferView {
        name: plain(&object.name_any()),
        claim: String::new(),
        phase: plain(phase.as_str()),
        tone: tone(phase),
        done: progress.bytes_done,
        total: progress.total_bytes,
        moved_bytes: pace.map(|pace| pace.moved),
        read_bytes: pace.and_then(|pace| pace.read),
        since: pace.and_then(|pace| pace.since),
        attempt: attempt.and_then(|count| count.parse().ok()).unwrap_or(1),
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

    /// Bytes that were moved a second, and the seconds until the end at the pace of reading so far;
    /// `None` before the first second, or if neither is known. Without a record of what was moved,
    /// what is done counts.
    pub(crate) fn speed(&self, now: Timestamp) -> Option<TransferRate> {
        let passed = seconds(self.since.or(self.started)?, self.completed.unwrap_or(now));
        let passed = u64::try_from(passed).ok().filter(|passed| *passed > 0)?;
        let done = u64::try_from(self.done).unwrap_or_default();
        let remaining = u64::try_from(self.total.saturating_sub(self.done)).unwrap_or_default();
        let read = u128::from(self.read_bytes.unwrap_or(done));
        let left = (u128::from(remaining) * u128::from(passed)).checked_div(read);
        let left = left.filter(|_| remaining > 0);
        let bytes_per_second = self.moved_bytes.unwrap_or(done) / passed;
        (bytes_per_second > 0 || left.is_some()).then(|| TransferRate {
            bytes_per_second,
            seconds_left: left.map(|left| i64::try_from(left).unwrap_or(i64::MAX).max(1)),
        })
    }
}

/// How fast a transfer is, on average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransferRate {
    pub(crate) bytes_per_second: u64,
    /// At least 1; `None` if that is unknown, or nothing is left to read.
    pub(crate) seconds_left: Option<i64>,
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
            (50, 100, 10, Some((5, Some(10)))),
            // Less than a byte a second.
            (5, 100, 10, Some((0, Some(190)))),
            // Less than a second.
            (999, 1000, 10, Some((99, Some(1)))),
            // The size is unknown.
            (50, 0, 10, Some((5, None))),
            // More than was announced.
            (150, 100, 10, Some((15, None))),
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
    fn holes_and_unchanged_files_make_a_transfer_no_faster() {
        let view = |pace: &str, attempts: &str| {
            let object = json!({
                "apiVersion": "velero.io/v2alpha1", "kind": "DataUpload",
                "metadata": { "name": "u", "annotations": {
                    "backup-controller/pace": pace, "backup-controller/attempts": attempts } },
                "spec": { "snapshotType": "CSI", "sourcePVC": "data", "sourceNamespace": "shop",
                    "backupStorageLocation": "default", "operationTimeout": "10m0s" },
                "status": { "phase": "InProgress", "startTimestamp": "2026-11-03T05:00:00Z",
                    "progress": { "totalBytes": 1000, "bytesDone": 900 } },
            });
            serde_json::from_value::<DataUpload>(object).unwrap().view()
        };
        let now = "2026-11-03T05:00:10Z".parse().unwrap();
        let speed = |view: TransferView| {
            let speed = view.speed(now)?;
            Some((speed.bytes_per_second, speed.seconds_left))
        };
        // Of 900 bytes 100 were read, and 50 moved after compression.
        let upload = view(r#"{"moved":50,"read":100}"#, "");
        assert_eq!(upload.attempt, 1);
        assert_eq!(speed(upload), Some((5, Some(10))));
        // Nothing has changed so far: no pace is known.
        assert_eq!(speed(view(r#"{"moved":0,"read":0}"#, "")), None);
        // A second attempt has its own begin.
        let again = view(r#"{"since":"2026-11-03T05:00:05Z","moved":50}"#, "2");
        assert_eq!(again.attempt, 2);
        assert_eq!(speed(again), Some((10, Some(1))));
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
