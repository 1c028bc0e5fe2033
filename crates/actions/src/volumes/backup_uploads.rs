//! The outcome for each claim whose data was moved, from the DataUploads of the backup. Pure.
//!
//! Velero: `internal/volume/volumes_information.go` (`generateVolumeInfoFromDataUpload`), v1.18.

use std::collections::{BTreeMap, BTreeSet};

use backup_core::{
    api::{DataUpload, transfer::MovePhase},
    operation::{BackupOperation, OperationPhase},
    time::whole_seconds,
    volume_info::{DataMovementInfo, VolumeInfo, VolumeResult},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Completes the entries of claims whose data our data mover has moved. One without a completed
/// DataUpload has failed, and names the reason; it also names what was saved, if not everything
/// could be. Returns errors that no operation reports: a namespace, and a sentence.
pub fn complete_moved(
    info: &mut [VolumeInfo],
    uploads: &[DataUpload],
    operations: &[BackupOperation],
) -> Vec<(String, String)> {
    let by_name: BTreeMap<&str, &DataUpload> = uploads
        .iter()
        .filter_map(|upload| Some((upload.metadata.name.as_deref()?, upload)))
        .collect();
    let reported: BTreeSet<&str> = operations
        .iter()
        .filter(|operation| operation.status.phase == OperationPhase::Failed)
        .map(|operation| operation.spec.operation_id.as_str())
        .collect();
    let mut errors = Vec::new();
    for entry in info {
        let movement = entry.snapshot_data_movement_info.as_ref();
        let Some(movement) = movement.filter(|movement| movement.is_ours()) else {
            continue;
        };
        let operation = movement.operation_id.clone();
        let why = match by_name.get(operation.as_str()) {
            Some(upload) => {
                take(entry, upload);
                failure(upload)
            }
            None => Some(format!("its DataUpload {operation} is gone")),
        };
        if let Some(why) = &why
            && !reported.contains(operation.as_str())
        {
            let lacks = if entry.moved_by_us().is_some() {
                "is only partly in"
            } else {
                "is not in"
            };
            let sentence = format!(
                "the data of PersistentVolumeClaim {}/{} {lacks} this backup: {why}",
                entry.namespace(),
                entry.claim()
            );
            errors.push((entry.namespace().to_owned(), sentence));
        }
        entry.result = Some(match &why {
            None => VolumeResult::Succeeded,
            Some(_) => VolumeResult::Failed,
        });
        entry.skipped_reason = why;
    }
    errors
}

/// Whether the data of a claim is moved by our data mover.
pub fn has_moved(info: &[VolumeInfo]) -> bool {
    info.iter().any(|entry| {
        let movement = entry.snapshot_data_movement_info.as_ref();
        movement.is_some_and(DataMovementInfo::is_ours)
    })
}

/// Copies what the DataUpload says.
fn take(entry: &mut VolumeInfo, upload: &DataUpload) {
    let transfer = &upload.status.transfer;
    let stored = &upload.status.stored;
    entry.start_timestamp = transfer.start_timestamp.as_ref().map(text);
    entry.completion_timestamp = transfer.completion_timestamp.as_ref().map(text);
    let Some(movement) = &mut entry.snapshot_data_movement_info else {
        return;
    };
    movement.phase = Some(transfer.phase.clone().unwrap_or(MovePhase::New));
    movement.snapshot_handle = stored.snapshot_id.clone().unwrap_or_default();
    movement.incremental_size = stored.incremental_bytes;
    if let Some(progress) = &transfer.progress {
        movement.size = progress.total_bytes.max(progress.bytes_done);
    }
}

/// Why the data of a claim is not complete in the repository; `None` if it is.
fn failure(upload: &DataUpload) -> Option<String> {
    let transfer = &upload.status.transfer;
    let phase = transfer.phase.as_ref().unwrap_or(&MovePhase::New);
    let message = transfer.message.as_deref().unwrap_or_default();
    let snapshot = upload.status.stored.snapshot_id.as_deref();
    if *phase != MovePhase::Completed {
        Some(if message.is_empty() {
            format!("its DataUpload is {phase}")
        } else {
            message.to_owned()
        })
    } else if snapshot.is_none_or(str::is_empty) {
        Some("its DataUpload names no snapshot in the repository".to_owned())
    } else {
        None
    }
}

/// As API objects store it.
fn text(time: &Time) -> String {
    whole_seconds(time.0).to_string()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    /// The entry of the claim, and the errors that no operation reports.
    fn completed(
        status: Option<Value>,
        operations: &[BackupOperation],
    ) -> (VolumeInfo, Vec<(String, String)>) {
        let upload = status.map(|status| {
            let upload = json!({ "metadata": { "name": "upload-a" }, "status": status });
            serde_json::from_value::<DataUpload>(upload).unwrap()
        });
        let snapshot = json!({ "pvcName": "b", "csiSnapshotInfo": {}, "snapshotDataMoved": false });
        let velero = json!({ "pvcName": "c", "snapshotDataMoved": true,
            "snapshotDataMovementInfo": { "dataMover": "velero", "operationID": "upload-a" } });
        let others = VolumeInfo::all(&[snapshot, velero]);
        let mut info = vec![VolumeInfo::moved("shop", "a", "pv-a", "upload-a")];
        info.extend(others.clone());
        assert!(has_moved(&info) && !has_moved(&others));
        let errors = complete_moved(&mut info, upload.as_slice(), operations);
        assert_eq!(info[1..], others, "entries of others stay");
        (info.swap_remove(0), errors)
    }

    #[test]
    fn a_completed_upload_says_where_the_data_is_and_when_it_was_moved() {
        let status = json!({
            "phase": "Completed", "snapshotID": "5d1b", "incrementalBytes": 10,
            "progress": { "totalBytes": 1024, "bytesDone": 1024 },
            "acceptedTimestamp": "2026-01-01T00:00:00Z", "startTimestamp": "2026-01-01T00:00:01Z",
            "completionTimestamp": "2026-01-01T00:00:09Z",
        });
        let (entry, errors) = completed(Some(status), &[]);
        assert_eq!(errors, []);
        assert_eq!(
            json!(entry),
            json!({
                "pvcName": "a", "pvcNamespace": "shop", "pvName": "pv-a", "backupMethod": "CSISnapshot",
                "snapshotDataMoved": true, "preserveLocalSnapshot": false, "skipped": false, "result": "succeeded",
                "startTimestamp": "2026-01-01T00:00:01Z", "completionTimestamp": "2026-01-01T00:00:09Z",
                "snapshotDataMovementInfo": {
                    "dataMover": "backup-mover", "uploaderType": "restic", "operationID": "upload-a",
                    "snapshotHandle": "5d1b", "retainedSnapshot": "", "size": 1024, "incrementalSize": 10,
                    "Phase": "Completed",
                },
            })
        );
    }

    #[rstest]
    #[case::gone(None, "its DataUpload upload-a is gone", false)]
    #[case::never_begun(Some(json!({})), "its DataUpload is New", false)]
    #[case::failed(Some(json!({ "phase": "Failed", "message": "the disk is full" })), "the disk is full", false)]
    #[case::cancelled(Some(json!({ "phase": "Canceled" })), "its DataUpload is Canceled", false)]
    #[case::incomplete(
        Some(json!({ "phase": "Failed", "message": "1 file could not be read: a", "snapshotID": "5d1b" })),
        "1 file could not be read: a",
        true
    )]
    #[case::without_a_snapshot(
        Some(json!({ "phase": "Completed" })),
        "its DataUpload names no snapshot in the repository",
        false
    )]
    fn every_other_upload_is_a_failure_with_its_reason(
        #[case] status: Option<Value>,
        #[case] reason: &str,
        #[case] is_saved_in_part: bool,
    ) {
        let (entry, errors) = completed(status.clone(), &[]);
        let lacks = if is_saved_in_part {
            "is only partly in"
        } else {
            "is not in"
        };
        let sentence =
            format!("the data of PersistentVolumeClaim shop/a {lacks} this backup: {reason}");
        assert_eq!(errors, [("shop".to_owned(), sentence)]);
        // A failed operation is an error already.
        let mut failed = BackupOperation::default();
        failed.spec.operation_id = "upload-a".to_owned();
        failed.status.phase = OperationPhase::Failed;
        assert_eq!(completed(status, &[failed]), (entry.clone(), Vec::new()));
        assert!(entry.has_failed());
        assert_eq!(entry.skipped, Some(false));
        assert_eq!(entry.skipped_reason.as_deref(), Some(reason));
        assert_eq!(entry.moved_by_us().is_some(), is_saved_in_part);
    }
}
