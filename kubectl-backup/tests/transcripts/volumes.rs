use crate::prelude::*;

/// A transfer of the claim `db/NAME`: a DataUpload of the backup, or a DataDownload of the restore.
fn transfer(kind: &str, of: &str, name: &str, over: &Value) -> Value {
    let (label, prefix) = if kind == "DataUpload" {
        ("velero.io/backup-uid", "upload")
    } else {
        ("velero.io/restore-uid", "download")
    };
    let object = json!({
        "apiVersion": "velero.io/v2alpha1", "kind": kind,
        "metadata": {"name": format!("{prefix}-{name}-1"), "namespace": "velero", "labels": {label: format!("uid-of-{of}")}},
        "spec": {"snapshotType": "CSI", "sourcePVC": name, "sourceNamespace": "db", "datamover": "backup-mover",
            "backupStorageLocation": "default", "operationTimeout": "10m0s",
            "targetVolume": {"pvc": name, "pv": "", "namespace": "copy"}, "snapshotID": "4f1c0a7d"},
    });
    with(object, over)
}

fn running_transfers(api: &FakeApi, kind: &str, of: &str) {
    let has = |name: &str, status: Value| {
        api.has(transfer(kind, of, name, &json!({"status": status})));
    };
    has(
        "waits",
        json!({"phase": "Accepted", "acceptedTimestamp": "2026-11-03T05:13:00Z", "message": "waits until VolumeSnapshot db/snapshot-1 is ready"}),
    );
    has(
        "large",
        json!({"phase": "InProgress", "startTimestamp": "2026-11-03T05:13:12Z", "node": "worker-2",
            "progress": {"totalBytes": 5_368_709_120_i64, "bytesDone": 1_288_490_188_i64}}),
    );
    has(
        "done",
        json!({"phase": "Completed", "snapshotID": "9b2e", "startTimestamp": "2026-11-03T05:13:12Z", "completionTimestamp": "2026-11-03T05:13:42Z",
            "node": "worker-1", "incrementalBytes": 1_048_576, "progress": {"totalBytes": 10_485_760, "bytesDone": 10_485_760}}),
    );
    has(
        "lost",
        json!({"phase": "Failed", "message": "the pod was not running after 30m: no image can be pulled", "completionTimestamp": "2026-11-03T05:14:00Z"}),
    );
}

fn moving(name: &str, status: &Value) -> Value {
    with(
        new_backup(name),
        &json!({"spec": {"snapshotMoveData": true}, "status": status}),
    )
}

/// A stored backup whose volumes were saved in every way.
fn has_stored(api: &FakeApi) {
    let name = "nightly";
    let moved = |claim: &str, result: &str, handle: &str| {
        json!({
            "pvcNamespace": "db", "pvcName": claim, "pvName": format!("pv-{claim}"), "backupMethod": "CSISnapshot", "snapshotDataMoved": true,
            "preserveLocalSnapshot": false, "result": result,
            "snapshotDataMovementInfo": {"dataMover": "backup-mover", "uploaderType": "restic", "operationID": format!("upload-{claim}-1"),
                "snapshotHandle": handle, "retainedSnapshot": "", "size": 5_368_709_120_i64, "incrementalSize": 125_829_120},
        })
    };
    api.has_file("BackupVolumeInfos", name, &json!([
        moved("data", "succeeded", "4f1c0a7d"),
        moved("partly", "failed", "8d00aa31"),
        moved("lost", "failed", ""),
        {"pvcNamespace": "shop", "pvcName": "cache", "backupMethod": "CSISnapshot", "result": "succeeded",
            "csiSnapshotInfo": {"driver": "disk.csi.example", "snapshotHandle": "snap-1", "size": 1_073_741_824}},
        {"pvName": "pv-9", "backupMethod": "NativeSnapshot", "result": "succeeded", "nativeSnapshotInfo": {"snapshotHandle": "native-1"}},
        {"pvcNamespace": "old", "pvcName": "files", "backupMethod": "CSISnapshot", "snapshotDataMoved": true, "result": "succeeded",
            "snapshotDataMovementInfo": {"dataMover": "velero", "uploaderType": "kopia", "snapshotHandle": "k1", "size": 2048}},
        {"pvName": "pv-8", "skipped": true, "skippedReason": "no driver for it"},
    ]));
    api.has_file("BackupResourceList", name, &json!({}));
    let error = |claim: &str, why: &str| {
        format!(
            "persistentvolumeclaims db/{claim}: operation upload-{claim}-1 of velero.io/csi-pvc-backupper failed: {why}"
        )
    };
    let errors = [
        error("partly", "2 files were not saved"),
        error("lost", "the pod was not running after 30m"),
    ];
    api.has_file(
        "BackupResults",
        name,
        &json!({"errors": {"namespaces": {"db": errors}}, "warnings": {}}),
    );
    api.has_file("BackupItemOperations", name, &json!([]));
    let files = json!({"metadata": {"annotations": {"backup-controller/files": "48211"}}, "status": {"phase": "Completed", "snapshotID": "4f1c0a7d",
        "incrementalBytes": 125_829_120, "progress": {"totalBytes": 5_368_709_120_i64, "bytesDone": 5_368_709_120_i64}}});
    let partly = json!({"status": {"phase": "Failed", "snapshotID": "8d00aa31", "message": "2 files were not saved: cache/a (Input/output error), cache/b (Input/output error)"}});
    let status = json!({"spec": {"snapshotMoveData": true}, "status": {"phase": "PartiallyFailed", "errors": 2, "backupItemOperationsAttempted": 3,
        "backupItemOperationsCompleted": 1, "backupItemOperationsFailed": 2}});
    api.has(with(completed_backup(name), &status))
        .has(location("Available", ""))
        .has(transfer("DataUpload", name, "data", &files))
        .has(transfer("DataUpload", name, "partly", &partly));
}

#[tokio::test]
async fn volumes_are_listed_with_where_their_data_is_and_what_is_missing() {
    let api = FakeApi::start().await;
    has_stored(&api);
    let person = Person::at(&api);
    transcript!(
        person,
        "volumes nightly",
        "volumes nightly -o wide --no-headers",
        "volumes nightly -o name"
    );
    transcript!("volumes json" => person, "volumes nightly -o json");
    transcript!("volumes yaml" => person, "volumes nightly -o yaml");
}

#[tokio::test]
async fn volumes_of_a_running_backup_are_those_that_are_moved() {
    let api = FakeApi::start().await;
    running_transfers(&api, "DataUpload", "shop");
    let status =
        json!({"phase": "WaitingForPluginOperations", "startTimestamp": "2026-11-03T05:13:00Z"});
    api.has(moving("shop", &status))
        .has(moving("begins", &json!({"phase": "InProgress"})))
        .has(with(
            completed_backup("full"),
            &json!({"status": {"phase": "Failed", "failureReason": "the bucket is full"}}),
        ));
    transcript!(
        Person::at(&api),
        "volumes shop",
        "volumes begins",
        "volumes begins -o json",
        "volumes full",
        "volumes gone"
    );
}

/// Without its DataUploads, only the number of files is missing.
#[tokio::test]
async fn volumes_are_listed_without_the_right_to_read_their_transfers() {
    let api = FakeApi::start().await;
    has_stored(&api);
    api.on_get(
        "/datauploads",
        Fault::forbidden(
            "datauploads.velero.io is forbidden: User \"jane\" cannot list resource \"datauploads\" in API group \"velero.io\" in the namespace \"velero\"",
        ),
    );
    let seen = Person::at(&api).types("volumes nightly").await;
    assert_says!(
        seen,
        "restic/db",
        "not all of its data was moved into the bucket"
    );
    assert!(!seen.contains("48211"), "{seen}");
}

#[tokio::test]
async fn a_backup_that_moves_data_is_described_with_its_transfers() {
    let api = FakeApi::start().await;
    running_transfers(&api, "DataUpload", "shop");
    let operation = |claim: &str| {
        json!({
            "spec": {"backupItemAction": "velero.io/csi-pvc-backupper", "operationID": format!("upload-{claim}-1"),
                "resourceIdentifier": {"Group": "", "Resource": "persistentvolumeclaims", "Namespace": "db", "Name": claim}},
            "status": {"phase": "InProgress", "operationUnits": "Byte", "nCompleted": 1, "nTotal": 2, "created": "2026-11-03T05:13:00Z"},
        })
    };
    api.has_file(
        "BackupItemOperations",
        "shop",
        &json!([operation("large"), operation("other")]),
    );
    let status = json!({"phase": "WaitingForPluginOperations", "startTimestamp": "2026-11-03T05:13:00Z",
        "progress": {"totalItems": 9, "itemsBackedUp": 9}, "backupItemOperationsAttempted": 5, "backupItemOperationsCompleted": 1, "backupItemOperationsFailed": 1});
    api.has(moving("shop", &status));
    let person = Person::at(&api);
    transcript!(person, "describe shop", "describe shop --details");
    let document = person.reads("describe shop -o json").await;
    assert_eq!(document["transfers"][0]["claim"], "db/lost");
    assert_eq!(document["transfers"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn a_stored_backup_is_described_with_the_data_that_was_moved() {
    let api = FakeApi::start().await;
    has_stored(&api);
    transcript!(
        Person::at(&api),
        "describe nightly",
        "describe nightly --details"
    );
}

#[tokio::test]
async fn a_reason_is_on_the_describe_screen_once() {
    let api = FakeApi::start().await;
    has_stored(&api);
    let why = "2 files were not saved: cache/a (Input/output error), cache/b (Input/output error)";
    let error =
        format!("persistentvolumeclaims db/partly: operation upload-partly-1 failed: {why}");
    api.has_file(
        "BackupResults",
        "nightly",
        &json!({"errors": {"namespaces": {"db": [error]}}, "warnings": {}}),
    );
    let missing = json!({"missing": 1, "of": 7, "partly": 1, "volumes": {"db/partly": why}});
    let annotations = json!({"backup-controller/missing-data": missing.to_string()});
    let status = json!({"metadata": {"annotations": annotations}, "spec": {"snapshotMoveData": true},
        "status": {"phase": "PartiallyFailed", "errors": 1}});
    api.has(with(completed_backup("nightly"), &status));
    let seen = Person::at(&api).types("describe nightly").await;
    assert_says!(
        seen,
        "the data of 1 of 7 volumes is not in it, or only in part: db/partly.",
        "db/partly  Failed, 0 B new: see ERRORS"
    );
    assert_eq!(
        seen.matches("cache/b (Input/output error)").count(),
        1,
        "{seen}"
    );
}

#[tokio::test]
async fn damage_of_the_repository_is_named_where_its_backups_are_described() {
    let api = FakeApi::start().await;
    has_stored(&api);
    let has = |name: &str, namespace: &str, location: &str, check: &Value| {
        let path = format!("/apis/velero.io/v1/namespaces/velero/backuprepositories/{name}");
        api.has_at(
            &path,
            json!({
                "apiVersion": "velero.io/v1", "kind": "BackupRepository",
                "metadata": {"name": name, "namespace": "velero",
                    "annotations": {"backup-controller/data-check": check.to_string()}},
                "spec": {"volumeNamespace": namespace, "backupStorageLocation": location,
                    "repositoryType": "restic", "maintenanceFrequency": "24h0m0s"},
                "status": {"phase": "Ready"},
            }),
        );
    };
    has(
        "r1",
        "db",
        "default",
        &json!({"suspicion": "a check is under way"}),
    );
    has(
        "r2",
        "db",
        "second",
        &json!({"damage": "in another location"}),
    );
    has(
        "r3",
        "web",
        "default",
        &json!({"damage": "of another namespace"}),
    );
    let person = Person::at(&api);
    let seen = person.types("describe nightly").await;
    assert_says!(
        seen,
        "Damage      a check is under way",
        "the data of its volumes may rely on data that is damaged"
    );
    assert!(!seen.contains("another"), "{seen}");
    let seen = person.types("volumes nightly").await;
    let row = |claim: &str| seen.lines().find(|line| line.starts_with(claim)).unwrap();
    assert_says!(row("db/data"), "it may rely on data that is damaged");
    for other in ["shop/cache", "old/files"] {
        assert!(!row(other).contains("damaged"), "{seen}");
    }
    // A backup that is good else is not called good.
    let moved = json!([{"pvcNamespace": "db", "pvcName": "data", "backupMethod": "CSISnapshot",
        "snapshotDataMoved": true, "result": "succeeded",
        "snapshotDataMovementInfo": {"dataMover": "backup-mover", "uploaderType": "restic",
            "operationID": "upload-data-1", "snapshotHandle": "4f1c0a7d"}}]);
    let none = json!({"errors": {}, "warnings": {}});
    api.has_file("BackupVolumeInfos", "nightly", &moved);
    api.has_file("BackupResults", "nightly", &none);
    api.has(completed_backup("nightly"));
    let seen = person.types("describe nightly").await;
    assert_says!(
        seen,
        "! nightly",
        "Restorable  partly, the data of its volumes may rely on data that is damaged",
        "The data of its volumes may rely on data that is damaged; the line Damage says more."
    );
    has("r1", "db", "default", &json!({}));
    let seen = person.types("describe nightly").await;
    assert!(
        !seen.contains("Damage") && !seen.contains("damaged"),
        "{seen}"
    );
    assert_says!(seen, "Restorable  yes");
}

#[tokio::test]
async fn a_restore_of_moved_data_is_described_with_its_transfers() {
    let api = FakeApi::start().await;
    running_transfers(&api, "DataDownload", "back-again");
    api.has_file("RestoreItemOperations", "back-again", &json!([]));
    let status = json!({"status": {"phase": "WaitingForPluginOperations", "completionTimestamp": null, "restoreItemOperationsAttempted": 4,
        "restoreItemOperationsCompleted": 1, "restoreItemOperationsFailed": 1}});
    api.has(completed_backup("nightly"))
        .has(with(completed_restore("back-again", "nightly"), &status));
    transcript!(Person::at(&api), "restore describe back-again");
}

#[tokio::test]
async fn transfers_that_cannot_be_read_are_told_in_their_place() {
    let api = FakeApi::start().await;
    api.on_get(
        "/datauploads",
        Fault::forbidden(
            "datauploads.velero.io is forbidden: User \"jane\" cannot list resource \"datauploads\" in API group \"velero.io\" in the namespace \"velero\"",
        ),
    );
    api.has(moving("shop", &json!({"phase": "InProgress"})));
    let seen = Person::at(&api).types("describe shop").await;
    assert_says!(seen, "Transfers   unavailable: ", "backup-viewer");
}
