//! Deletions of backups claim like everything else.

use super::*;

/// A review of the deletion of a Backup; for a collection, the request has no name.
fn deletion(name: &str, uid: &str, phase: &str, of_collection: bool) -> Value {
    json!({
        "uid": "request", "operation": "DELETE", "namespace": "velero", "dryRun": false,
        "name": if of_collection { "" } else { name },
        "kind": {"group": "velero.io", "version": "v1", "kind": "Backup"},
        "resource": {"group": "velero.io", "version": "v1", "resource": "backups"},
        "userInfo": {"username": "alice"},
        "oldObject": {
            "apiVersion": "velero.io/v1", "kind": "Backup", "spec": {}, "status": {"phase": phase},
            "metadata": {"name": name, "namespace": "velero", "uid": uid},
        },
    })
}

#[tokio::test]
async fn a_backup_that_is_being_restored_from_can_not_be_deleted_in_any_way() {
    let (api, replica) = one_replica();
    api.put(
        "/api/v1/namespaces/velero",
        json!({"metadata": {"name": "velero"}}),
    );
    api.put_velero("Backup", "old", "0", "Completed", &backup_spec());
    replica
        .run(&api, "Restore", "r1", "1", restore_spec())
        .await;
    for of_collection in [false, true] {
        let refused = replica
            .review(deletion("old", "0", "Completed", of_collection))
            .await;
        assert_says!(message(&refused), "Nothing was deleted");
        assert_says!(message(&refused), "Restore velero/r1 is running");
    }
    let request = replica
        .create(
            "DeleteBackupRequest",
            "d1",
            "2",
            json!({"backupName": "old"}),
        )
        .await;
    assert_says!(message(&request), "Restore velero/r1 is running");
    assert!(
        allowed(
            &replica
                .review(deletion("other", "9", "Completed", false))
                .await
        ),
        "another backup"
    );
    assert!(
        allowed(&replica.review(deletion("old", "0", "Failed", false)).await),
        "nobody restores from it"
    );

    api.put_velero("Restore", "r1", "1", "Completed", &restore_spec());
    assert!(allowed(
        &replica
            .create(
                "DeleteBackupRequest",
                "d1",
                "3",
                json!({"backupName": "old"})
            )
            .await
    ));
    // The request is not even stored yet, but already keeps out restores from this backup.
    let refused = replica.create("Restore", "r2", "4", restore_spec()).await;
    assert_says!(message(&refused), "DeleteBackupRequest velero/d1");
    assert_eq!(
        refused["status"]["details"]["causes"][0]["reason"],
        "DeletionInProgress"
    );
    let elsewhere = json!({"backupName": "newer", "includedNamespaces": ["elsewhere"]});
    assert!(
        allowed(&replica.create("Restore", "r3", "5", elsewhere).await),
        "from another backup"
    );
}

#[tokio::test]
async fn a_backup_goes_with_its_namespace_whoever_restores_from_it() {
    let (api, replica) = one_replica();
    let deleted =
        json!({"metadata": {"name": "velero", "deletionTimestamp": "2026-11-21T09:00:00Z"}});
    api.put("/api/v1/namespaces/velero", deleted);
    replica
        .run(&api, "Restore", "r1", "1", restore_spec())
        .await;
    let answer = replica
        .review(deletion("old", "0", "Completed", true))
        .await;
    assert!(
        allowed(&answer)
            && answer["warnings"][0]
                .as_str()
                .unwrap()
                .contains("namespace"),
        "{answer}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_repeated_deletion_begins_its_grace_anew() {
    let (api, replica) = one_replica();
    api.put(
        "/api/v1/namespaces/velero",
        json!({"metadata": {"name": "velero"}}),
    );
    api.put_velero("Backup", "old", "0", "Completed", &backup_spec());
    let delete = || replica.review(deletion("old", "0", "Completed", false));
    let restore = |uid: &'static str| replica.create("Restore", "r", uid, restore_spec());
    assert!(allowed(&delete().await));
    assert!(!allowed(&restore("1").await));
    tokio::time::sleep(GRACE).await;
    assert!(
        !allowed(&restore("2").await),
        "the suspicion is written down"
    );
    // Another webhook may have refused the first deletion. This one may take effect at any moment.
    assert!(allowed(&delete().await));
    for uid in ["3", "4"] {
        assert!(
            !allowed(&restore(uid).await),
            "neither suspicion nor age of the first are its own"
        );
    }
    tokio::time::sleep(GRACE).await;
    assert!(!allowed(&restore("5").await));
    assert!(allowed(&restore("6").await));
}
