use backup_core::{api::restore::RestoreSpec, labels::csi as marks};
use backup_testkit::FakeApi;
use serde_json::{Value, json};

use super::*;
use crate::{
    ActionError, ItemId,
    csi::fake::snapshot_api,
    restore::{RestoreActionInput, RestoreActionOutput, json::Object, transform},
};

fn object(value: Value) -> Object {
    let Value::Object(object) = value else {
        panic!("no object: {value}")
    };
    object
}

fn restore(restore_pvs: Option<bool>) -> Restore {
    let mut restore = Restore::new(
        "r",
        RestoreSpec {
            restore_pvs,
            ..RestoreSpec::default()
        },
    );
    restore.metadata.uid = Some("restore-uid".into());
    restore.metadata.creation_timestamp =
        Some(serde_json::from_value(json!("2026-01-02T00:00:00Z")).unwrap());
    restore
}

fn snapshot() -> Object {
    object(json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": { "name": "velero-data-1", "namespace": "shop", "finalizers": ["bound"],
            "labels": { labels::BACKUP_UID: "backup-uid", "app": "shop" },
            "annotations": { labels::MUST_INCLUDE_ADDITIONAL_ITEMS: "true" } },
        "spec": { "source": { "persistentVolumeClaimName": "data" }, "volumeSnapshotClassName": "old" },
        "status": { "boundVolumeSnapshotContentName": "snapcontent-1", "readyToUse": true },
    }))
}

fn content() -> Object {
    object(json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": { "name": "snapcontent-1", "labels": { labels::BACKUP_UID: "backup-uid" },
            "annotations": { marks::DELETE_SECRET[0]: "key", marks::DELETE_SECRET[1]: "storage" } },
        "spec": { "deletionPolicy": "Delete", "driver": "disk", "source": { "volumeHandle": "vol" },
            "sourceVolumeMode": "Filesystem", "volumeSnapshotClassName": "old",
            "volumeSnapshotRef": { "kind": "VolumeSnapshot", "name": "velero-data-1", "namespace": "shop",
                "uid": "u", "resourceVersion": "7" } },
        "status": { "snapshotHandle": "snap-1", "readyToUse": true },
    }))
}

fn claim() -> Object {
    object(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "data", "namespace": "shop",
            "labels": { marks::VOLUME_SNAPSHOT_NAME: "velero-data-1", "app": "shop" },
            "annotations": { marks::VOLUME_SNAPSHOT_NAME: "velero-data-1" } },
        "spec": { "volumeName": "pv-old", "dataSource": { "kind": "VolumeSnapshot", "name": "older" } },
    }))
}

/// The output of the action with this name for an item.
async fn executed(
    fake: &FakeApi,
    name: &str,
    from_backup: &Object,
    restore: &Restore,
) -> Result<RestoreActionOutput, ActionError> {
    let rules = RestoreRules {
        namespaces: Arc::new([("shop".to_owned(), "copy".to_owned())].into()),
        restore_label: "r".into(),
        ..RestoreRules::default()
    };
    let actions = actions(
        &snapshot_api(fake),
        &Arc::new(rules),
        &RestoredVolumes::default(),
    );
    let item = transform::stripped(from_backup);
    let input = RestoreActionInput {
        item: &item,
        from_backup,
        restore,
        left_to_controller: None,
    };
    actions
        .iter()
        .find(|action| action.name() == name)
        .unwrap()
        .execute(input)
        .await
}

const CLASSES: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses";
const CLAIM: &str = "/api/v1/namespaces/copy/persistentvolumeclaims/data";

fn cluster() -> FakeApi {
    let fake = FakeApi::new();
    for (name, driver) in [("other", "tape"), ("here", "disk")] {
        fake.put(
            &format!("{CLASSES}/{name}"),
            json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
                "metadata": { "name": name }, "driver": driver }),
        );
    }
    fake
}

#[tokio::test]
async fn snapshot_content_and_claim_meet_under_one_name_and_keep_the_snapshot() {
    let (fake, restore) = (cluster(), restore(None));
    let of_snapshot = executed(&fake, SnapshotAction::NAME, &snapshot(), &restore)
        .await
        .unwrap();
    let made = of_snapshot.item.unwrap();
    let name = made["metadata"]["name"].as_str().unwrap().to_owned();
    assert_ne!(name, "velero-data-1", "two restores of a backup would meet");
    assert_eq!(
        Value::Object(made),
        json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": { "name": name, "namespace": "shop", "labels": { "app": "shop" },
                "annotations": { marks::DELETION_POLICY: "Retain" } },
            "spec": { "source": { "volumeSnapshotContentName": name } },
        })
    );
    let contents = "volumesnapshotcontents.snapshot.storage.k8s.io";
    assert_eq!(
        of_snapshot.additional,
        [ItemId::new(contents, None, "snapcontent-1")]
    );

    let of_content = executed(&fake, ContentAction::NAME, &content(), &restore)
        .await
        .unwrap();
    let made = of_content.item.unwrap();
    assert_eq!(made["metadata"]["name"], json!(name));
    assert_eq!(
        made["metadata"].get("labels"),
        None,
        "a backup would take it away"
    );
    assert_eq!(
        made["spec"],
        json!({
            "deletionPolicy": "Retain", "driver": "disk", "source": { "snapshotHandle": "snap-1" },
            "sourceVolumeMode": "Filesystem", "volumeSnapshotClassName": "here",
            "volumeSnapshotRef": { "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
                "name": name, "namespace": "copy" },
        })
    );
    assert_eq!(
        of_content.additional,
        [ItemId::new("secrets", Some("storage"), "key")]
    );

    let of_claim = executed(&fake, ClaimAction::NAME, &claim(), &restore)
        .await
        .unwrap();
    let made = of_claim.item.unwrap();
    let source =
        json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": name });
    assert_eq!(
        made["spec"],
        json!({ "dataSource": source, "dataSourceRef": source })
    );
    assert_eq!(
        made["metadata"],
        json!({ "name": "data", "namespace": "shop", "labels": { "app": "shop" } })
    );
    assert!(of_claim.wait.is_some());
    let snapshots = "volumesnapshots.snapshot.storage.k8s.io";
    assert_eq!(
        of_claim.additional,
        [ItemId::new(snapshots, Some("shop"), "velero-data-1")]
    );
}

#[tokio::test]
async fn a_claim_that_is_there_keeps_its_data_unless_this_restore_has_made_it() {
    let there = |created: &str| {
        let mut there = claim();
        let metadata = json!({ "name": "data", "namespace": "copy", "creationTimestamp": created,
            "labels": { labels::RESTORE_NAME: "r" } });
        there.insert("metadata".into(), metadata);
        Value::Object(there)
    };
    for (created, ours) in [
        ("2026-01-01T00:00:00Z", false),
        ("2026-01-02T00:00:01Z", true),
    ] {
        let fake = cluster();
        fake.put(CLAIM, there(created));
        let executed = executed(&fake, ClaimAction::NAME, &claim(), &restore(None))
            .await
            .unwrap();
        assert_eq!(executed.additional.is_empty(), !ours, "{created}");
        assert_eq!(
            executed.item.unwrap()["spec"]["dataSource"]["name"] == "older",
            !ours,
            "{created}"
        );
    }
}

#[tokio::test]
async fn without_volumes_nothing_comes_from_snapshots() {
    let (fake, restore) = (cluster(), restore(Some(false)));
    for (name, item) in [
        (SnapshotAction::NAME, snapshot()),
        (ContentAction::NAME, content()),
    ] {
        let executed = executed(&fake, name, &item, &restore).await.unwrap();
        assert_eq!(executed.skip.as_deref(), Some(NO_DATA_WANTED), "{name}");
    }
    let executed = executed(&fake, ClaimAction::NAME, &claim(), &restore)
        .await
        .unwrap();
    assert_eq!(executed.item.unwrap()["spec"].get("dataSource"), None);
    assert!(executed.additional.is_empty() && executed.wait.is_none());
}

#[tokio::test]
async fn a_snapshot_of_which_nobody_knows_the_handle_is_an_error() {
    let (fake, restore) = (cluster(), restore(None));
    let mut unbound = snapshot();
    unbound.remove("status");
    let error = executed(&fake, SnapshotAction::NAME, &unbound, &restore)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("no content"), "{error}");
    let mut nameless = content();
    nameless.remove("status");
    let error = executed(&fake, ContentAction::NAME, &nameless, &restore)
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("no name for the snapshot"),
        "{error}"
    );
}
