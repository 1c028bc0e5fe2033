use crate::prelude::*;

/// A tarball with ConfigMaps of these names.
fn tarball(names: &[&str]) -> Vec<u8> {
    let mut items = Vec::new();
    for name in names {
        let item = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": "shop" } });
        for folder in ["", "/v1-preferredversion"] {
            items.push((
                format!("resources/configmaps{folder}/namespaces/shop/{name}.json"),
                item.clone(),
            ));
        }
    }
    tar_of(&items)
}

/// A tarball of these objects at these paths.
pub(crate) fn tar_of(items: &[(String, Value)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut add = |path: &str, content: &str| {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, path, content.as_bytes())
            .unwrap();
    };
    add("metadata/version", "1.1.0\n");
    for (path, item) in items {
        add(path, &item.to_string());
    }
    packed(&tar.into_inner().unwrap())
}

/// A backup of two items with all its files; `status` overrides parts of its status.
async fn stored(status: Value) -> FakeApi {
    let api = FakeApi::start().await;
    let counted = json!({ "status": { "progress": { "totalItems": 2, "itemsBackedUp": 2 }, "warnings": 1,
        "backupItemOperationsAttempted": 1, "backupItemOperationsCompleted": 1, "csiVolumeSnapshotsAttempted": 1, "csiVolumeSnapshotsCompleted": 1 } });
    let backup = with(completed_backup("nightly"), &counted);
    api.has(with(backup, &json!({ "status": status })))
        .has_bytes("BackupLog", "nightly", packed(b"level=info msg=\"a\"\n"))
        .has_bytes("BackupContents", "nightly", tarball(&["a", "b"]));
    for (kind, content) in [
        (
            "BackupResourceList",
            json!({ "v1/ConfigMap": ["shop/a", "shop/b"] }),
        ),
        (
            "BackupResults",
            json!({ "errors": {}, "warnings": { "velero": ["a warning"] } }),
        ),
        (
            "BackupItemOperations",
            json!([{ "spec": {}, "status": { "phase": "Completed" } }]),
        ),
        (
            "BackupVolumeInfos",
            json!([{ "pvName": "pv-1", "backupMethod": "CSISnapshot", "result": "succeeded" }]),
        ),
    ] {
        api.has_file(kind, "nightly", &content);
    }
    api
}

async fn verify(api: &FakeApi) -> String {
    Person::at(api).types("verify nightly").await
}

#[tokio::test]
async fn the_files_of_a_good_backup_are_told_with_what_is_in_each() {
    let api = stored(json!({})).await;
    assert_snapshot!(verify(&api).await);
    transcript!("verify json" => Person::at(&api), "verify nightly -o json");
}

#[tokio::test]
async fn a_backup_says_when_it_was_verified_last_and_what_came_of_it() {
    let api = stored(json!({})).await;
    let person = Person::at(&api);
    let restorable = async || {
        let seen = person.types("describe nightly").await;
        seen.lines()
            .find(|line| line.contains("Restorable"))
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let mut all = vec![restorable().await];
    verify(&api).await;
    all.push(restorable().await);
    let document = person.reads("describe nightly -o json").await;
    assert_eq!(
        document["restorable"]["verified"],
        json!({ "at": "2026-11-03T05:14:12Z", "findings": 0 })
    );
    api.has_file(
        "BackupResourceList",
        "nightly",
        &json!({ "v1/ConfigMap": ["shop/a"] }),
    );
    verify(&api).await;
    all.push(restorable().await);
    let document = person.reads("describe nightly -o json").await;
    assert_eq!(
        (&document["tone"], &document["restorable"]["answer"]),
        (&json!("warn"), &json!("unknown"))
    );
    assert_eq!(
        all,
        [
            "Restorable  yes, never verified",
            "Restorable  yes, last verified just now: whole",
            "Restorable  unknown, 2 faults in its files, last verified just now: not whole (BackupResourceList: the status of the backup says 2 items, the file has 1)",
        ]
    );
}

#[tokio::test]
async fn what_digests_have_shown_is_not_hidden_by_files_that_agree() {
    let api = stored(json!({})).await;
    let record = |findings: usize| {
        let first =
            "nightly-logs.gz: it can be read, but its bytes are not those that were written";
        json!({ "at": "2026-11-03T04:14:12Z", "findings": findings, "first": first, "compared": true })
    };
    let kept = async |record: &Value| {
        let verified = json!({ "backup-controller/verified": record.to_string() });
        let counted = json!({ "status": { "progress": { "totalItems": 2, "itemsBackedUp": 2 }, "warnings": 1,
            "backupItemOperationsAttempted": 1, "backupItemOperationsCompleted": 1 },
            "metadata": { "annotations": verified } });
        api.has(with(completed_backup("nightly"), &counted));
        let seen = verify(&api).await;
        let document = Person::at(&api).reads("describe nightly -o json").await;
        (seen, document["restorable"]["verified"].clone())
    };
    let (seen, verified) = kept(&record(1)).await;
    assert_says!(seen, "which this command cannot", "nightly-logs.gz");
    assert_eq!(verified, record(1));
    let (seen, verified) = kept(&record(0)).await;
    assert!(!seen.contains("which this command cannot"), "{seen}");
    assert_eq!(
        verified,
        json!({ "at": "2026-11-03T05:14:12Z", "findings": 0 })
    );
}

#[tokio::test]
async fn who_may_not_change_backups_verifies_them_all_the_same() {
    let api = stored(json!({})).await;
    let good = verify(&api).await;
    let forbidden =
        "backups.velero.io \"nightly\" is forbidden: User \"jane\" cannot patch resource";
    api.next(Method::PATCH, "/nightly", Fault::forbidden(forbidden));
    assert_eq!(verify(&api).await, good);
    api.next(
        Method::PATCH,
        "/nightly",
        Fault::refused(500, "InternalError", "etcdserver: no space"),
    );
    let seen = verify(&api).await;
    assert_says!(seen, "could not be written to backup nightly");
    assert!(seen.ends_with("--- exit 0\n"), "{seen}");
}

#[tokio::test]
async fn files_that_do_not_agree_are_told_with_exit_code_3() {
    let api = stored(json!({ "phase": "PartiallyFailed", "errors": 3, "backupItemOperationsCompleted": 2, "csiVolumeSnapshotsCompleted": 2 })).await;
    api.has_file(
        "BackupResourceList",
        "nightly",
        &json!({ "v1/ConfigMap": ["shop/a", "shop/c\u{1b}[2J", "shop/d"] }),
    );
    assert_snapshot!(verify(&api).await);
}

#[tokio::test]
async fn files_that_are_missing_or_damaged_are_told_and_hide_no_other() {
    let whole = tarball(&["a", "b"]);
    let api = stored(json!({ "volumeSnapshotsAttempted": 1 })).await;
    api.has_bytes(
        "BackupContents",
        "nightly",
        whole[..whole.len() / 2].to_vec(),
    )
    .has_bytes("BackupResults", "nightly", b"not gzip".to_vec())
    .has_bytes(
        "BackupLog",
        "nightly",
        packed(b"a long line")[..20].to_vec(),
    );
    assert_snapshot!(verify(&api).await);
}

#[tokio::test]
async fn what_keeps_files_from_being_given_is_no_fault_of_theirs() {
    let api = stored(json!({})).await;
    let refused = "the store refused to list s3://backups: 403 AccessDenied";
    let details = json!({ "kind": "storedfiles" });
    let refused = Fault::refused_with(424, "FailedDependency", refused, details);
    api.on_get("proxy/files/read-1", refused);
    let mut all = verify(&api).await;
    // If the bucket does not exist, a read by URL shows only that the file is missing.
    let api = FakeApi::start().await;
    let backup = with(
        completed_backup("nightly"),
        &json!({ "spec": { "storageLocation": "default" } }),
    );
    api.has(backup)
        .has(location("Unavailable", "the bucket does not exist"));
    all += &verify(&api).await;
    assert_snapshot!(all);
}

#[tokio::test]
async fn a_backup_that_has_not_ended_well_is_not_verified() {
    let api = FakeApi::start().await;
    let mut all = String::new();
    for phase in ["InProgress", "Failed", "Deleting"] {
        api.has(backup_in(phase, "nightly"));
        all += &verify(&api).await;
    }
    all += &Person::at(&api).types("verify gone").await;
    assert_snapshot!(all);
}
