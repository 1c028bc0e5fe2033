use backup_testkit::FakeApi;

use super::*;
use crate::csi::{
    fake::{GROUP, backup, binds, cluster, requests, snapshot_api},
    tidy,
};

const PATH: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/shop/volumesnapshots/vs";
const CONTENT: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents/content-uid-vs";

/// A snapshot of backup `b`, and the action.
fn world(status: Value) -> (FakeApi, SnapshotAction, Value) {
    let fake = cluster(binds(status));
    let snapshot = json!({
        "metadata": { "name": "vs", "namespace": "shop", "uid": "uid-vs", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": { "velero.io/backup-uid": "uid-b" } },
        "spec": { "volumeSnapshotClassName": "fast", "source": { "persistentVolumeClaimName": "data" } },
    });
    fake.put(PATH, snapshot);
    binds(json!(null))(&fake);
    let bound = fake.get(PATH).unwrap();
    let action = SnapshotAction {
        api: snapshot_api(&fake),
        volumes: Arc::default(),
    };
    (fake, action, bound)
}

fn set(fake: &FakeApi, path: &str, status: &Value) {
    assert!(fake.get(path).is_some());
    fake.edit(path, |object| {
        for (key, value) in status.as_object().unwrap() {
            object["status"][key] = value.clone();
        }
    });
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_an_operation_and_brings_what_a_restore_needs() {
    let (fake, action, item) = world(json!(null));
    set(
        &fake,
        CONTENT,
        &json!({ "snapshotHandle": "snap-1", "restoreSize": 1 << 30 }),
    );
    let output = action.execute(&item, &backup("InProgress")).await.unwrap();
    assert_eq!(
        output.operation.as_deref(),
        Some("shop/vs/2026-01-01T00:00:00Z")
    );
    let annotations = json!({
        csi::SNAPSHOT_HANDLE: "snap-1", csi::DRIVER_NAME: "disk.example.com", csi::DELETION_POLICY: "Delete",
        csi::RESTORE_SIZE: "1Gi",
    });
    let in_cluster = fake.get(PATH).unwrap();
    assert_eq!(in_cluster["metadata"]["annotations"], annotations);
    let stored = output.item.unwrap();
    assert_eq!(
        stored["metadata"]["annotations"][labels::MUST_INCLUDE_ADDITIONAL_ITEMS],
        "true"
    );
    assert_eq!(
        stored["metadata"]["annotations"][csi::SNAPSHOT_HANDLE],
        "snap-1"
    );
    let names = |items: &[ItemId]| {
        items
            .iter()
            .map(|item| item.name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&output.additional), ["fast", "content-uid-vs"]);
    assert_eq!(names(&output.after_operation), ["vs", "content-uid-vs"]);
    let content = fake.get(CONTENT).unwrap();
    assert_eq!(content["metadata"]["labels"]["velero.io/backup-name"], "b");
    // Again, as after a crash: it is the same operation.
    let again = action.execute(&item, &backup("InProgress")).await.unwrap();
    assert_eq!(
        again.operation,
        Some("shop/vs/2026-01-01T00:00:00Z".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn an_operation_ends_when_its_content_says_so() {
    let (fake, action, _) = world(json!(null));
    let backup = backup("WaitingForPluginOperations");
    let id = "shop/vs/2026-01-01T00:00:00Z";
    let progress = action.progress(id, &backup).await.unwrap();
    assert!(!progress.completed && progress.started.is_some());

    set(
        &fake,
        PATH,
        &json!({ "error": { "message": "tried again" } }),
    );
    let progress = action.progress(id, &backup).await.unwrap();
    assert!(
        !progress.completed && progress.error.is_empty() && progress.description == "tried again"
    );

    set(
        &fake,
        CONTENT,
        &json!({ "error": { "message": "no space" } }),
    );
    let progress = action.progress(id, &backup).await.unwrap();
    assert!(progress.completed && progress.error == "no space");

    set(
        &fake,
        CONTENT,
        &json!({ "error": null, "readyToUse": true }),
    );
    assert!(
        !action.progress(id, &backup).await.unwrap().completed,
        "the snapshot itself is not ready yet"
    );
    set(&fake, PATH, &json!({ "readyToUse": true }));
    let progress = action.progress(id, &backup).await.unwrap();
    assert!(progress.completed && progress.error.is_empty() && progress.updated.is_some());

    fake.delete(PATH);
    let progress = action.progress(id, &backup).await.unwrap();
    assert!(progress.completed && progress.error.ends_with("shop/vs is gone"));
    for bad in [
        "",
        "shop",
        "shop/vs",
        "shop/vs/yesterday",
        "//2026-01-01T00:00:00Z",
        "\u{0}",
    ] {
        assert!(
            matches!(
                action.progress(bad, &backup).await,
                Err(ActionError::Final { .. })
            ),
            "{bad:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_stopped_is_removed_with_its_data_and_what_is_stored_keeps_it() {
    for (stored, ready, policy) in [
        (false, true, "Delete"),
        (true, true, "Retain"),
        (true, false, "Delete"),
    ] {
        let (fake, action, _) = world(json!(null));
        set(&fake, PATH, &json!({ "readyToUse": ready }));
        if stored {
            assert_eq!(
                tidy::stored(&snapshot_api(&fake), &backup("Finalizing"))
                    .await
                    .unwrap(),
                1
            );
        } else {
            action
                .cancel("shop/vs/2026-01-01T00:00:00Z", &backup("InProgress"))
                .await
                .unwrap();
        }
        assert_eq!(fake.get(PATH), None, "{policy}");
        match fake.get(CONTENT) {
            // Its controller removes the content, and with it the snapshot in the storage system.
            Some(content) => {
                assert_eq!(
                    (content["spec"]["deletionPolicy"].as_str(), policy),
                    (Some("Delete"), "Delete")
                );
            }
            None => assert_eq!(policy, "Retain"),
        }
        assert_eq!(
            requests(&fake, &format!("PATCH {GROUP}/volumesnapshotcontents/")),
            1
        );
    }
    // A snapshot that is gone already needs no cancellation.
    let (fake, action, _) = world(json!(null));
    for path in fake.under("/").into_keys() {
        fake.delete(&path);
    }
    action
        .cancel("shop/vs/2026-01-01T00:00:00Z", &backup("InProgress"))
        .await
        .unwrap();
    assert_eq!(
        tidy::abandoned(&snapshot_api(&fake), &backup("InProgress"))
            .await
            .unwrap(),
        0
    );
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_of_somebody_else_is_left_alone() {
    let (fake, action, mut item) = world(json!(null));
    item["metadata"]["labels"] = json!({});
    for phase in ["InProgress", "Finalizing"] {
        assert_eq!(
            action.execute(&item, &backup(phase)).await.unwrap(),
            BackupActionOutput::default()
        );
    }
    assert_eq!(requests(&fake, "PATCH") + requests(&fake, "DELETE"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_does_not_lead_writes_nothing() {
    let (fake, _, item) = world(json!({ "readyToUse": true }));
    let api = SnapshotApi::new(&fake.client(), &backup_runtime::leader::Leadership::never());
    let action = SnapshotAction {
        api,
        volumes: Arc::default(),
    };
    let error = action
        .execute(&item, &backup("InProgress"))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("does not hold the Lease"),
        "{error}"
    );
    action
        .cancel("shop/vs/2026-01-01T00:00:00Z", &backup("InProgress"))
        .await
        .unwrap_err();
    assert_eq!(
        (requests(&fake, "PATCH"), requests(&fake, "DELETE")),
        (0, 0)
    );
}
