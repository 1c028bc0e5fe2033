//! The writes to a DataUpload, as JSON merge patches. Pure. Each is sent with the resourceVersion
//! of the object that it was made for.

use backup_core::{
    api::{DataUpload, transfer::MovePhase},
    data_movement::{
        ATTEMPTS_ANNOTATION, FILES_ANNOTATION, FINALIZER, FIRST_LOSS_ANNOTATION, MoverProgress,
        PACE_ANNOTATION, TransferPace,
    },
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::decide::{Ending, LOST_POD, has_finalizer};
use crate::volumes::data_mover::{objects::ACTIVE_LABEL, pod::REDUCED, repository_wait};

/// Path of a volume in its snapshot.
const ROOT: &str = "/";

/// What an upload waits for, other than its repository; `None` if it says so already.
pub(super) fn waiting(upload: &DataUpload, why: &str) -> Option<Value> {
    let mut patch = repository_wait::ended(upload.annotations());
    if upload.status.transfer.message.as_deref() != Some(why) {
        let patch = patch.get_or_insert_with(|| json!({}));
        patch["status"] = json!({ "message": why });
    }
    patch
}

/// Why an upload waits for its repository; `None` if it says so already.
pub(super) fn awaiting_repository(upload: &DataUpload, why: &str, now: Timestamp) -> Option<Value> {
    let message = upload.status.transfer.message.as_deref();
    repository_wait::awaiting(upload.annotations(), message, why, now)
}

/// The upload takes its place among the transfers.
pub(super) fn accepted(upload: &DataUpload, now: Timestamp) -> Value {
    let mut finalizers = upload.finalizers().to_vec();
    if !has_finalizer(upload) {
        finalizers.push(FINALIZER.to_owned());
    }
    json!({
        "metadata": { "finalizers": finalizers, "labels": { ACTIVE_LABEL: "true" } },
        "status": {
            "phase": MovePhase::Accepted, "acceptedTimestamp": Time(now), "message": null,
        },
    })
}

/// Volume and pod exist.
pub(super) fn prepared() -> Value {
    json!({ "status": { "phase": MovePhase::Prepared, "message": null } })
}

/// The pod runs.
pub(super) fn started(now: Timestamp, node: Option<&str>) -> Value {
    json!({ "status": {
        "phase": MovePhase::InProgress, "startTimestamp": Time(now), "node": node, "message": null,
    } })
}

/// How far the pod is; `None` if that is known.
pub(super) fn progress(upload: &DataUpload, progress: &MoverProgress) -> Option<Value> {
    let total = bytes(progress.total_bytes.max(progress.bytes));
    let done = bytes(progress.bytes);
    let known = upload.status.transfer.progress.as_ref();
    let is_known =
        known.is_some_and(|known| (known.total_bytes, known.bytes_done) == (total, done));
    let pace = TransferPace {
        since: None,
        moved: progress.moved_bytes,
        read: Some(progress.read_bytes),
    };
    let is_known = is_known && TransferPace::of(upload.annotations()) == Some(pace);
    (!is_known).then(|| {
        json!({
            "metadata": { "annotations": { PACE_ANNOTATION: pace.annotation() } },
            "status": { "progress": { "totalBytes": total, "bytesDone": done } },
        })
    })
}

/// Another pod is to be made after this one, the first, was lost. The time to prepare it begins
/// again.
pub(super) fn retried(now: Timestamp, pod: &str, attempt: u32, why: &str) -> Value {
    json!({
        "metadata": { "annotations": {
            ATTEMPTS_ANNOTATION: attempt.to_string(), LOST_POD: pod, FIRST_LOSS_ANNOTATION: why,
            PACE_ANNOTATION: null,
        } },
        "status": {
            "phase": MovePhase::Accepted, "acceptedTimestamp": Time(now), "progress": null,
            "message": format!("it is tried again {REDUCED}: {why}"),
        },
    })
}

/// The upload has ended.
pub(super) fn ended(upload: &DataUpload, ending: &Ending, now: Timestamp) -> Value {
    let transfer = &upload.status.transfer;
    // A short transfer is not seen running.
    let started = transfer.start_timestamp.as_ref();
    let start = started
        .or(transfer.accepted_timestamp.as_ref())
        .map_or(now, |time| time.0);
    let mut patch = json!({
        "metadata": { "labels": { ACTIVE_LABEL: null } },
        "status": {
            "phase": ending.phase, "message": ending.message,
            // A clock that was set back does not end it before its start.
            "completionTimestamp": Time(now.max(start)),
        },
    });
    if started.is_none() {
        patch["status"]["startTimestamp"] = json!(Time(start));
    }
    if let Some(saved) = &ending.saved {
        let size = bytes(saved.bytes);
        patch["metadata"]["annotations"] = json!({ FILES_ANNOTATION: saved.files.to_string() });
        patch["status"]["snapshotID"] = json!(saved.snapshot);
        patch["status"]["path"] = json!(ROOT);
        patch["status"]["progress"] = json!({ "totalBytes": size, "bytesDone": size });
        patch["status"]["incrementalBytes"] = json!(bytes(saved.new_bytes));
    }
    patch
}

/// All that was made is removed; `None` without the finalizer.
pub(super) fn released(upload: &DataUpload) -> Option<Value> {
    has_finalizer(upload).then(|| {
        let finalizers = upload.finalizers().iter();
        let others: Vec<_> = finalizers.filter(|name| *name != FINALIZER).collect();
        json!({ "metadata": { "finalizers": others } })
    })
}

fn bytes(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use backup_core::api::transfer::{DataUploadSpec, MoveProgress};

    use super::*;
    use crate::volumes::data_mover::upload::decide::SavedData;

    fn upload() -> DataUpload {
        let mut upload = DataUpload::new("upload-data-1", DataUploadSpec::default());
        upload.metadata.finalizers = Some(vec!["other".to_owned()]);
        upload
    }

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    #[test]
    fn the_finalizer_is_added_once_and_taken_off_alone() {
        let mut upload = upload();
        let patch = accepted(&upload, now());
        let expected = json!({
            "metadata": { "finalizers": ["other", FINALIZER], "labels": { "backup-controller/active": "true" } },
            "status": { "phase": "Accepted", "acceptedTimestamp": "2026-01-01T12:00:00Z", "message": null },
        });
        assert_eq!(patch, expected);
        assert_eq!(released(&upload), None);
        upload.metadata.finalizers = Some(vec![FINALIZER.to_owned(), "other".to_owned()]);
        assert_eq!(
            accepted(&upload, now())["metadata"]["finalizers"],
            json!([FINALIZER, "other"])
        );
        assert_eq!(
            released(&upload),
            Some(json!({ "metadata": { "finalizers": ["other"] } }))
        );
    }

    #[test]
    fn another_wait_ends_the_time_of_the_wait_for_the_repository() {
        let mut upload = upload();
        let expected = json!({ "status": { "message": "why" } });
        assert_eq!(waiting(&upload, "why"), Some(expected));
        let begun = awaiting_repository(&upload, "why", now()).unwrap();
        let annotations = begun["metadata"]["annotations"].clone();
        upload.metadata.annotations = serde_json::from_value(annotations).unwrap();
        upload.status.transfer.message = Some("why".to_owned());
        assert_eq!(awaiting_repository(&upload, "why", now()), None);
        let ended = waiting(&upload, "why").unwrap();
        let annotation = &ended["metadata"]["annotations"][repository_wait::WAIT_ANNOTATION];
        assert!(annotation.is_null() && ended["status"].is_null(), "{ended}");
        upload.metadata.annotations = None;
        assert_eq!(waiting(&upload, "why"), None);
    }

    #[test]
    fn progress_is_written_when_it_has_changed() {
        let mut upload = upload();
        let seen = MoverProgress {
            bytes: 7,
            total_bytes: 20,
            moved_bytes: 5,
            read_bytes: 3,
            ..MoverProgress::default()
        };
        let patch = progress(&upload, &seen).unwrap();
        let expected = json!({ "progress": { "totalBytes": 20, "bytesDone": 7 } });
        assert_eq!(patch["status"], expected);
        let pace = &patch["metadata"]["annotations"][PACE_ANNOTATION];
        assert_eq!(pace, r#"{"moved":5,"read":3}"#);
        upload.status.transfer.progress = Some(MoveProgress {
            total_bytes: 20,
            bytes_done: 7,
            ..MoveProgress::default()
        });
        let annotations = [(
            PACE_ANNOTATION.to_owned(),
            pace.as_str().unwrap().to_owned(),
        )];
        upload.metadata.annotations = Some(annotations.into());
        assert_eq!(progress(&upload, &seen), None);
        let moved = MoverProgress {
            moved_bytes: 6,
            ..seen
        };
        assert!(progress(&upload, &moved).is_some());
        let uncounted = MoverProgress {
            bytes: 30,
            ..MoverProgress::default()
        };
        assert_eq!(
            progress(&upload, &uncounted).unwrap()["status"]["progress"]["totalBytes"],
            30,
            "the total is never less than what is done"
        );
    }

    #[test]
    fn the_end_has_what_was_saved() {
        let mut upload = upload();
        let ending = Ending {
            phase: MovePhase::Completed,
            message: None,
            saved: Some(SavedData {
                snapshot: "abc".to_owned(),
                files: 3,
                bytes: 70,
                new_bytes: 50,
            }),
        };
        let expected = json!({
            "metadata": {
                "labels": { "backup-controller/active": null }, "annotations": { "backup-controller/files": "3" },
            },
            "status": {
                "phase": "Completed", "message": null, "completionTimestamp": "2026-01-01T12:00:00Z",
                "startTimestamp": "2026-01-01T12:00:00Z", "snapshotID": "abc", "path": "/",
                "progress": { "totalBytes": 70, "bytesDone": 70 }, "incrementalBytes": 50,
            },
        });
        assert_eq!(ended(&upload, &ending, now()), expected);
        upload.status.transfer.start_timestamp = Some(Time(now()));
        let failed = ended(&upload, &Ending::failed("why".to_owned()), now());
        let expected = json!({
            "phase": "Failed", "message": "why", "completionTimestamp": "2026-01-01T12:00:00Z",
        });
        assert_eq!(failed["status"], expected);
        assert_eq!(failed["metadata"]["annotations"], Value::Null);
    }

    #[test]
    fn a_retry_names_the_lost_pod() {
        let patch = retried(now(), "uid-1", 2, "its pod has disappeared");
        let annotations = json!({
            ATTEMPTS_ANNOTATION: "2", LOST_POD: "uid-1",
            FIRST_LOSS_ANNOTATION: "its pod has disappeared", PACE_ANNOTATION: null,
        });
        assert_eq!(patch["metadata"]["annotations"], annotations);
        assert_eq!(patch["status"]["phase"], "Accepted");
        assert_eq!(
            patch["status"]["message"],
            "it is tried again with fewer threads and smaller buffers: its pod has disappeared"
        );
    }

    #[test]
    fn a_clock_that_was_set_back_ends_no_upload_before_its_start() {
        let later: Timestamp = "2026-01-01T13:00:00Z".parse().unwrap();
        let mut accepted = upload();
        accepted.status.transfer.accepted_timestamp = Some(Time(later));
        let mut running = upload();
        running.status.transfer.start_timestamp = Some(Time(later));
        for upload in [accepted, running] {
            let patch = ended(&upload, &Ending::failed("why".to_owned()), now());
            assert_eq!(
                patch["status"]["completionTimestamp"],
                "2026-01-01T13:00:00Z"
            );
        }
    }
}
