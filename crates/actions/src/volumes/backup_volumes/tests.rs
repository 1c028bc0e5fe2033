use backup_core::snapshot::VolumeSnapshotSpec;
use serde_json::json;

use super::*;

fn claim(name: &str) -> (Value, Value) {
    (
        json!({ "metadata": { "name": name, "namespace": "shop" } }),
        json!({ "metadata": { "name": format!("pv-{name}"), "labels": { "zone": "a" } },
            "spec": { "persistentVolumeReclaimPolicy": "Delete" } }),
    )
}

fn volume(name: &str) -> ClaimVolume {
    let (claim, volume) = claim(name);
    ClaimVolume::of(&claim, &volume)
}

#[test]
fn an_entry_has_every_field_that_velero_reads_without_looking() {
    let volumes = BackupVolumes::default();
    volumes.snapshot(volume("a"), "disk", "vs");
    let (operation, created) = ("shop/vs/2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z");
    let known = json!({
        "snapshotHandle": "snap-1", "size": 1024, "driver": "disk", "vscName": "content",
        "operationID": operation, "ReadyToUse": false,
    });
    let known = serde_json::from_value(known).unwrap();
    volumes.describe("shop", "vs", known, Some(created.to_owned()));
    volumes.describe("other", "vs", CsiSnapshotInfo::default(), None);
    volumes.left(volume("b"), "there is no way");
    let mut info = volumes.info();
    assert_eq!(
        json!(info[0]),
        json!({
            "pvcName": "a", "pvcNamespace": "shop", "pvName": "pv-a", "backupMethod": "CSISnapshot",
            "snapshotDataMoved": false, "preserveLocalSnapshot": true, "skipped": false,
            "startTimestamp": "2026-01-01T00:00:00Z",
            "csiSnapshotInfo": {
                "snapshotHandle": "snap-1", "size": 1024, "driver": "disk", "vscName": "content",
                "operationID": "shop/vs/2026-01-01T00:00:00Z", "ReadyToUse": false,
            },
            "pvInfo": { "reclaimPolicy": "Delete", "labels": { "zone": "a" } },
        })
    );
    assert_eq!(
        (info[1].skipped, info[1].skipped_reason.as_deref()),
        (Some(true), Some("there is no way"))
    );
    let mut ended = BackupOperation::default();
    ended.spec.operation_id = operation.to_owned();
    complete_info(&mut info, std::slice::from_ref(&ended));
    assert!(info[0].result.is_none(), "it still runs");
    ended.status.phase = OperationPhase::Completed;
    ended.status.updated = Some("2026-01-01T00:00:05.5Z".parse().unwrap());
    complete_info(&mut info, &[ended]);
    let info = json!(info);
    assert_eq!(info[0]["result"], "succeeded");
    assert_eq!(info[0]["completionTimestamp"], "2026-01-01T00:00:05Z");
    assert_eq!(info[0]["csiSnapshotInfo"]["ReadyToUse"], true);
}

#[test]
fn a_snapshot_of_a_plugin_is_told_as_velero_does_and_nothing_said_later_hides_it() {
    let spec = VolumeSnapshotSpec {
        volume_type: "gp3".into(),
        ..VolumeSnapshotSpec::default()
    };
    let (volumes, taken) = (BackupVolumes::default(), VolumeSnapshot::new(spec));
    volumes.left(volume("a"), "not yet");
    volumes.native(volume("a"), taken.clone().completed("snap-1".into()));
    volumes.left(volume("a"), "its volume is not one of CSI");
    let released = json!({ "metadata": { "name": "pv-x" }, "spec": {} });
    volumes.native(ClaimVolume::of_volume(&released), taken.failed());
    let info = json!(volumes.info());
    assert_eq!(
        info[1],
        json!({
            "pvcName": "a", "pvcNamespace": "shop", "pvName": "pv-a", "backupMethod": "NativeSnapshot",
            "snapshotDataMoved": false, "preserveLocalSnapshot": false, "skipped": false, "result": "succeeded",
            "nativeSnapshotInfo": { "snapshotHandle": "snap-1", "volumeType": "gp3", "volumeAZ": "", "iops": "0",
                "Phase": "Completed" },
            "pvInfo": { "reclaimPolicy": "Delete", "labels": { "zone": "a" } },
        })
    );
    assert_eq!(
        (&info[0]["pvName"], &info[0]["result"]),
        (&json!("pv-x"), &json!("failed"))
    );
    assert!(volumes.missing().is_empty());
    assert_eq!(volumes.claims(), 1);
}

#[test]
fn a_claim_that_nothing_looks_at_is_told_and_what_looks_at_it_knows_better() {
    let volumes = BackupVolumes::default();
    let of = |name: &str| {
        let mut claim = claim(name).0;
        claim["spec"] = json!({ "volumeName": format!("pv-{name}") });
        claim
    };
    for name in ["a", "b", "c"] {
        volumes.unsupported(&of(name), "snapshots are off");
    }
    volumes.left(volume("b"), "no plugin knows it");
    volumes.skipped(volume("d"), "a policy says so");
    volumes.unsupported(&of("d"), "snapshots are off");
    let taken = VolumeSnapshot::new(VolumeSnapshotSpec::default()).completed("snap-1".into());
    volumes.native(volume("c"), taken);
    let info = volumes.info();
    let reasons: Vec<&str> = info
        .iter()
        .map(|one| one.skipped_reason.as_deref().unwrap_or("saved"))
        .collect();
    assert_eq!(
        reasons,
        [
            "snapshots are off",
            "no plugin knows it",
            "saved",
            "a policy says so"
        ]
    );
    assert_eq!((info[0].claim(), info[0].volume()), ("a", "pv-a"));
    assert_eq!((volumes.claims(), volumes.missing().len()), (3, 1));
}

#[test]
fn what_is_missing_is_named_and_what_was_not_wanted_is_not() {
    let volumes = BackupVolumes::default();
    volumes.left(volume("a"), "there is no way");
    volumes.skipped(volume("b"), "a policy says so");
    volumes.snapshot(volume("c"), "disk", "vs");
    let missing = volumes.missing();
    assert_eq!(missing.len(), 1);
    assert_eq!(missing[0].0, "shop");
    assert!(missing[0].1.contains("shop/a") && missing[0].1.ends_with("there is no way"));
}

#[test]
fn a_policy_decides_and_without_one_the_backup() {
    let volumes =
        BackupVolumes::with_policy(Box::new(|_, _| VolumeDecision::Skip("the policy".into())));
    let (claim, volume) = claim("a");
    let mut backup = Backup::default();
    assert_eq!(
        volumes.decide(&claim, &volume, &backup),
        VolumeDecision::Skip("the policy".into())
    );
    let undecided = BackupVolumes::default().decide(&claim, &volume, &backup);
    assert_eq!(undecided, VolumeDecision::Snapshot { class: None });
    backup.spec.snapshot_volumes = Some(false);
    assert!(matches!(
        BackupVolumes::default().decide(&claim, &volume, &backup),
        VolumeDecision::Skip(_)
    ));
}

#[test]
fn a_moved_claim_is_in_the_list_with_its_upload_and_counts() {
    let volumes = BackupVolumes::default();
    volumes.moved(volume("a"), "upload-a");
    let mut info = volumes.info();
    assert_eq!(
        json!(info[0]),
        json!({
            "pvcName": "a", "pvcNamespace": "shop", "pvName": "pv-a", "backupMethod": "CSISnapshot",
            "snapshotDataMoved": true, "preserveLocalSnapshot": false, "skipped": false,
            "snapshotDataMovementInfo": {
                "dataMover": "backup-mover", "uploaderType": "restic", "operationID": "upload-a", "snapshotHandle": "",
                "retainedSnapshot": "", "size": 0, "Phase": "New",
            },
            "pvInfo": { "reclaimPolicy": "Delete", "labels": { "zone": "a" } },
        })
    );
    assert_eq!((volumes.claims(), volumes.missing().len()), (1, 0));
    // Only the DataUpload tells whether the data was saved.
    let before = info.clone();
    let mut ended = BackupOperation::default();
    ended.spec.operation_id = "upload-a".to_owned();
    ended.status.phase = OperationPhase::Completed;
    complete_info(&mut info, &[ended]);
    assert_eq!(info, before);
}
