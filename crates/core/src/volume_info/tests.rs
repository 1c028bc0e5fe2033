use rstest::rstest;
use serde_json::json;

use super::*;

/// The JSON that Velero reads, byte by byte.
#[rstest]
#[case::csi_of_a_backup(
    r#"{"backupMethod":"CSISnapshot","completionTimestamp":"2026-01-01T00:00:05Z","csiSnapshotInfo":{"ReadyToUse":true,"driver":"disk","operationID":"shop/vs/2026-01-01T00:00:00Z","size":1024,"snapshotHandle":"snap-1","vscName":"content"},"preserveLocalSnapshot":true,"pvInfo":{"labels":{"zone":"a"},"reclaimPolicy":"Delete"},"pvName":"pv-a","pvcName":"a","pvcNamespace":"shop","result":"succeeded","skipped":false,"snapshotDataMoved":false,"startTimestamp":"2026-01-01T00:00:00Z"}"#
)]
#[case::csi_that_is_not_known_yet(
    r#"{"backupMethod":"CSISnapshot","csiSnapshotInfo":{"ReadyToUse":null,"driver":"disk","operationID":"","size":0,"snapshotHandle":"","vscName":""},"preserveLocalSnapshot":true,"pvInfo":{"labels":{},"reclaimPolicy":""},"pvName":"pv-a","pvcName":"a","pvcNamespace":"shop","skipped":false,"snapshotDataMoved":false}"#
)]
#[case::plugin_of_a_backup(
    r#"{"backupMethod":"NativeSnapshot","nativeSnapshotInfo":{"Phase":"Completed","iops":"0","snapshotHandle":"snap-1","volumeAZ":"","volumeType":"gp3"},"preserveLocalSnapshot":false,"pvInfo":{"labels":{},"reclaimPolicy":"Delete"},"pvName":"pv-x","pvcName":"","pvcNamespace":"","result":"succeeded","skipped":false,"snapshotDataMoved":false}"#
)]
#[case::skipped_by_a_backup(
    r#"{"preserveLocalSnapshot":false,"pvInfo":{"labels":{},"reclaimPolicy":"Delete"},"pvName":"","pvcName":"a","pvcNamespace":"shop","skipped":true,"skippedReason":"","snapshotDataMoved":false}"#
)]
#[case::csi_of_a_restore(
    r#"{"csiSnapshotInfo":{"ReadyToUse":true,"driver":"disk","size":1,"snapshotHandle":"snap-1","vscName":"content"},"pvcName":"a","pvcNamespace":"shop","restoreMethod":"CSISnapshot","snapshotDataMoved":false}"#
)]
#[case::plugin_of_a_restore_without_a_claim(
    r#"{"nativeSnapshotInfo":{"Phase":"Completed","iops":"3000","snapshotHandle":"snap-1","volumeAZ":"z","volumeType":"gp3"},"pvName":"pv-x","pvcName":null,"pvcNamespace":null,"restoreMethod":"NativeSnapshot","snapshotDataMoved":false}"#
)]
#[case::not_restored(
    r#"{"pvName":"","pvcName":"a","pvcNamespace":"shop","skipped":true,"skippedReason":"why"}"#
)]
#[case::not_restored_of_a_pod(
    r#"{"pvrInfo":{"podName":"web","podNamespace":"shop","volumeName":"cache"},"skipped":true,"skippedReason":"why"}"#
)]
#[case::moved_by_us(
    r#"{"backupMethod":"CSISnapshot","completionTimestamp":"2026-01-01T00:00:09Z","preserveLocalSnapshot":false,"pvInfo":{"labels":{},"reclaimPolicy":"Delete"},"pvName":"pv-a","pvcName":"a","pvcNamespace":"shop","result":"succeeded","skipped":false,"snapshotDataMoved":true,"snapshotDataMovementInfo":{"Phase":"Completed","dataMover":"backup-mover","incrementalSize":10,"operationID":"upload-a-0123456789","retainedSnapshot":"","size":1024,"snapshotHandle":"5d1b","uploaderType":"restic"},"startTimestamp":"2026-01-01T00:00:00Z"}"#
)]
#[case::moved_by_velero_with_unknown_fields(
    r#"{"backupMethod":"CSISnapshot","snapshotDataMoved":true,"snapshotDataMovementInfo":{"Phase":"","dataMover":"velero","operationID":"du-1.2","retainedSnapshot":"","size":0,"snapshotHandle":"","uploaderType":"kopia","later":1}}"#
)]
#[case::with_unknown_fields(
    r#"{"csiSnapshotInfo":{"ReadyToUse":null,"driver":"","size":0,"snapshotHandle":"","vscName":"","later":{"a":[1]}},"pvcName":"a","result":"later","later":null}"#
)]
fn an_entry_is_written_as_it_was_read(#[case] json: &str) {
    let read: VolumeInfo = serde_json::from_str(json).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), json);
    let value: Value = serde_json::from_str(json).unwrap();
    assert_eq!(VolumeInfo::of(&value), Some(read));
}

#[test]
fn what_velero_leaves_out_or_writes_as_null_is_read() {
    let all = [
        json!({ "pvcName": null, "pvName": null, "skipped": null, "result": "", "pvInfo": null, "startTimestamp": null }),
        json!({ "pvInfo": { "labels": null, "reclaimPolicy": "Delete" },
            "csiSnapshotInfo": { "size": null, "driver": null }, "nativeSnapshotInfo": { "Phase": null },
            "pvbInfo": { "podName": "db-0", "size": null, "uploaderType": "kopia" },
            "snapshotDataMovementInfo": { "snapshotHandle": null, "dataMover": "velero", "size": null, "Phase": null } }),
    ];
    let read = VolumeInfo::all(&all);
    assert_eq!((read[0].claim(), read[0].volume()), ("", ""));
    assert_eq!(read[0].missing(), None);
    let of_pod = read[1].pod_volume().unwrap();
    assert_eq!((of_pod.pod_name.as_str(), of_pod.size), ("db-0", None));
    assert_eq!(of_pod.extra["uploaderType"], "kopia");
}

#[test]
fn an_entry_that_cannot_be_decoded_does_not_hide_the_others() {
    let all = [
        json!("junk"),
        json!({ "pvName": 5 }),
        json!({ "pvName": "pv" }),
    ];
    let read = VolumeInfo::all(&all);
    assert_eq!(read.len(), 1);
    assert_eq!(read[0].volume(), "pv");
}

#[test]
fn an_entry_says_what_its_class_does_not() {
    let entry = json!({ "pvcName": "data", "pvcNamespace": "shop", "pvName": "pv",
        "pvInfo": { "reclaimPolicy": "Retain", "labels": { "zone": "a" } }, "csiSnapshotInfo": { "size": 1 } });
    let properties = VolumeInfo::of(&entry).unwrap().pv_info.unwrap();
    assert_eq!(
        (properties.reclaim_policy.as_str(), properties.labels.len()),
        ("Retain", 1)
    );
    let bare =
        json!({ "pvcName": "data", "pvInfo": { "reclaimPolicy": "Delete", "labels": null } });
    let properties = VolumeInfo::of(&bare).unwrap().pv_info.unwrap();
    assert_eq!(properties.labels.len(), 0);
    assert_eq!(VolumeInfo::of(&json!("junk")), None);
}

#[test]
fn a_moved_entry_begins_without_data_and_with_every_field_that_velero_reads() {
    let entry = VolumeInfo::moved("shop", "a", "pv-a", "upload-a-0123456789");
    assert_eq!(
        json!(entry),
        json!({
            "backupMethod": "CSISnapshot", "preserveLocalSnapshot": false, "pvName": "pv-a", "pvcName": "a",
            "pvcNamespace": "shop", "skipped": false, "snapshotDataMoved": true,
            "snapshotDataMovementInfo": {
                "Phase": "New", "dataMover": "backup-mover", "operationID": "upload-a-0123456789", "retainedSnapshot": "",
                "size": 0, "snapshotHandle": "", "uploaderType": "restic",
            },
        })
    );
    assert_eq!(entry.moved_by_us(), None);
}

#[rstest]
#[case::ours("backup-mover", "k1", None, false, true)]
#[case::ours_without_data("backup-mover", "", Some("the disk is full"), false, false)]
#[case::ours_of_which_files_are_missing(
    "backup-mover",
    "k1",
    Some("1 file is missing"),
    false,
    true
)]
#[case::of_a_velero_server("velero", "k1", None, true, false)]
#[case::of_an_older_velero_server("", "k1", None, true, false)]
#[case::of_another_mover("other.example.com", "k1", None, true, false)]
fn data_that_was_moved_is_ours_or_that_of_a_velero_server(
    #[case] mover: &str,
    #[case] handle: &str,
    #[case] failure: Option<&str>,
    #[case] uses_repository: bool,
    #[case] is_saved_by_us: bool,
) {
    let mut entry = VolumeInfo::of(&json!({
        "pvcName": "a", "pvcNamespace": "shop", "backupMethod": "CSISnapshot", "snapshotDataMoved": true,
        "snapshotDataMovementInfo": { "dataMover": mover, "snapshotHandle": handle },
    }))
    .unwrap();
    if let Some(why) = failure {
        entry.result = Some(VolumeResult::Failed);
        assert_eq!(entry.missing(), Some(MOVE_FAILED));
        entry.skipped_reason = Some(why.to_owned());
    }
    assert_eq!(entry.uses_repository(), uses_repository);
    assert_eq!(entry.moved_by_us().is_some(), is_saved_by_us);
    assert_eq!(entry.missing(), failure);
}
