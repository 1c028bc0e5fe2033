//! Backups that have collected everything, and whose store does not accept it: they hold no claim.

use backup_core::labels::COLLECTS_AGAIN_ANNOTATION;

use super::*;

fn mark(cluster: &Cluster) -> Value {
    cluster.get(BACKUP)["metadata"]["annotations"][COLLECTS_AGAIN_ANNOTATION].clone()
}

#[tokio::test(start_paused = true)]
async fn one_that_has_to_collect_again_waits_for_a_restore_and_holds_nothing_meanwhile() {
    let cluster = Cluster::with(|cluster, method, path, body| {
        metadata_comes_first(cluster, method, path, body);
        if method == "GET" && path == ITEMS {
            assert_eq!(
                mark(cluster),
                "true",
                "in this phase only what is marked has a claim"
            );
        }
        None
    });
    let status = json!({"phase": "Finalizing", "startTimestamp": "2026-01-01T00:00:00Z"});
    cluster.change_backup(&json!({
        "spec": {"storageLocation": "default"}, "status": status, "metadata": {"finalizers": Backups::FINALIZERS},
    }));
    restore_holds(&cluster).await;
    let ctx = cluster.context();
    assert_eq!(claims(&ctx).await, 1, "the restore");
    let running = tokio::spawn(worker(&ctx).0.run());
    let reason = cluster.blocked().await;
    assert_says!(reason, "Restore velero/r");
    cluster.until(|cluster| mark(cluster).is_null()).await;
    assert_eq!((claims(&ctx).await, collections(&cluster)), (1, 0));
    cluster.put(
        RESTORE,
        velero(
            "Restore",
            "r",
            json!({"backupName": "x"}),
            json!({"phase": "Completed"}),
        ),
    );
    cluster
        .until(|cluster| cluster.phase() == "Completed")
        .await;
    running.await.unwrap();
    assert!(mark(&cluster).is_null());
    assert_eq!((claims(&ctx).await, collections(&cluster)), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_from_the_start_keeps_no_restore_out() {
    let cluster = Cluster::with(metadata_comes_first);
    let status = json!({"phase": "InProgress", "startTimestamp": "2026-01-01T00:00:00Z"});
    cluster.change_backup(&json!({
        "spec": {"storageLocation": "default"}, "status": status, "metadata": {"finalizers": Backups::FINALIZERS},
    }));
    let location = cluster.get(LOCATION);
    let mut away = location.clone();
    away["spec"]["objectStorage"]["bucket"] = json!("/dev/null/away");
    cluster.put(LOCATION, away);
    let ctx = cluster.context();
    backup_lock::activate(
        &ctx.ledger,
        &backup_lock::ObjectKey::backup("velero", "b"),
        "uid-b",
    )
    .await
    .unwrap();
    let running = tokio::spawn(worker(&ctx).0.run());
    cluster.blocked().await;
    assert_eq!(
        (cluster.phase().as_str(), claims(&ctx).await),
        ("Finalizing", 0)
    );
    cluster.put(LOCATION, location);
    cluster
        .until(|cluster| cluster.phase() == "Completed")
        .await;
    running.await.unwrap();
}
