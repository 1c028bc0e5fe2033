//! Backups whose deletion is requested before they have ended.

use super::*;

const GROUP: &str = "/apis/snapshot.storage.k8s.io/v1";
const SNAPSHOT: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/a/volumesnapshots/s";
const CONTENT: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents/c";

/// Adds a ready snapshot of the backup.
fn has_snapshot(cluster: &Cluster) {
    let labels = json!({ "velero.io/backup-uid": "uid-b" });
    let status = json!({ "boundVolumeSnapshotContentName": "c", "readyToUse": true });
    let metadata = json!({ "name": "s", "namespace": "a", "uid": "uid-s", "labels": labels });
    cluster.put(SNAPSHOT, json!({ "metadata": metadata, "status": status }));
    let content = json!({ "metadata": { "name": "c", "uid": "uid-c" }, "spec": { "deletionPolicy": "Delete" } });
    cluster.put(CONTENT, content);
}

/// Whether the snapshot was, or will be, removed from the storage system.
fn is_destroyed(cluster: &Cluster) -> bool {
    cluster.get(SNAPSHOT).is_null() && cluster.get(CONTENT)["spec"]["deletionPolicy"] == "Delete"
}

fn ask_for_deletion(cluster: &Cluster) {
    cluster.change_backup(&json!({"metadata": {"deletionTimestamp": "2026-01-01T01:00:00Z"}}));
}

/// A Backup that was stopped where it could not write `file`; no process has it in memory.
async fn stopped_at(file: &str) -> Cluster {
    let cluster = Cluster::with(metadata_comes_first);
    ready(&cluster);
    has_snapshot(&cluster);
    std::fs::create_dir_all(cluster.file(file)).unwrap();
    let dying = tokio::spawn(worker(&cluster.context()).0.run());
    cluster.blocked().await;
    dying.abort();
    let _ = dying.await;
    assert_eq!(cluster.phase(), "Finalizing");
    std::fs::remove_dir(cluster.file(file)).unwrap();
    cluster
}

fn private(cluster: &Cluster) -> Vec<String> {
    let names = std::fs::read_dir(cluster.file(".private")).unwrap();
    let mut names: Vec<_> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test(start_paused = true)]
async fn a_backup_that_is_deleted_while_it_runs_stops_and_lets_go() {
    let pulled = Arc::new(std::sync::OnceLock::<Cancellation>::new());
    let cancellation = Arc::clone(&pulled);
    let cluster = Cluster::with(move |cluster, _, path, _| {
        if path == ITEMS {
            cluster
                .change_backup(&json!({"metadata": {"deletionTimestamp": "2026-01-01T01:00:00Z"}}));
            pulled.get().unwrap().delete();
        }
        None
    });
    ready(&cluster);
    let ctx = cluster.context();
    let (worker, own) = worker(&ctx);
    cancellation.set(own).unwrap();
    end(&cluster, worker).await;
    assert!(
        cluster.get(BACKUP).is_null(),
        "the finalizer is off, so it is gone"
    );
    assert_eq!(claims(&ctx).await, 0);
    assert!(cluster.metadata().is_null());
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_nobody_told_the_worker_of_is_seen_before_the_next_step() {
    let cluster = Cluster::new();
    ready(&cluster);
    cluster.change_backup(&json!({
        "metadata": {"deletionTimestamp": "2026-01-01T01:00:00Z", "finalizers": Backups::FINALIZERS},
    }));
    run(&cluster).await;
    assert!(cluster.get(BACKUP).is_null());
    assert!(collections(&cluster) == 0 && cluster.metadata().is_null());
}

#[tokio::test(start_paused = true)]
async fn what_is_committed_is_finished_and_keeps_its_snapshots() {
    for file in ["b.tar.gz", "b-results.gz", "velero-backup.json"] {
        let cluster = stopped_at(file).await;
        ask_for_deletion(&cluster);
        run(&cluster).await;
        assert!(cluster.get(BACKUP).is_null(), "{file}");
        assert_eq!(cluster.metadata()["status"]["phase"], "Completed", "{file}");
        assert!(!is_destroyed(&cluster), "{file}");
        assert_eq!(
            (collections(&cluster), claims(&cluster.context()).await),
            (1, 0),
            "{file}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_stored_keeps_its_snapshots_after_a_crash_before_the_last_patch() {
    for phase in ["InProgress", "Finalizing"] {
        let cluster = Cluster::with(metadata_comes_first);
        ready(&cluster);
        run(&cluster).await;
        has_snapshot(&cluster);
        cluster.change_backup(&json!({
            "status": {"phase": phase, "completionTimestamp": null},
            "metadata": {"finalizers": Backups::FINALIZERS},
        }));
        ask_for_deletion(&cluster);
        run(&cluster).await;
        assert!(cluster.get(BACKUP).is_null());
        assert_eq!(cluster.metadata()["status"]["phase"], "Completed");
        assert!(!is_destroyed(&cluster), "{phase}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_with_everything_in_hand_is_stopped_before_the_record_and_leaves_nothing() {
    let cluster = stopped_at(".private/record-1").await;
    assert_eq!(private(&cluster), ["owner"]);
    ask_for_deletion(&cluster);
    run(&cluster).await;
    assert!(
        cluster.get(BACKUP).is_null() && is_destroyed(&cluster) && cluster.metadata().is_null()
    );
    assert_eq!(
        private(&cluster),
        ["owner", "record-1"],
        "that it was abandoned"
    );
    // A controller that does not know that it was replaced comes to the same end.
    let (_, location) = cluster.context().locations.open("default").await.unwrap();
    let error = location
        .open_backup("b", &claimant("uid-b"))
        .await
        .unwrap_err();
    assert_says!(error, "abandoned");
}

#[tokio::test(start_paused = true)]
async fn the_name_of_a_backup_that_was_deleted_half_way_is_free() {
    for abandoned in [true, false] {
        let cluster = stopped_at(".private/record-1").await;
        has_snapshot(&cluster);
        if abandoned {
            ask_for_deletion(&cluster);
            run(&cluster).await;
        }
        // The finalizer was removed, or the store was unavailable.
        cluster.put(
            BACKUP,
            velero("Backup", "b", json!({}), json!({"phase": "ReadyToStart"})),
        );
        cluster.change_backup(&json!({"metadata": {"uid": "uid-b2"}}));
        let ctx = cluster.context();
        let (mut next, _) = worker(&ctx);
        next.uid = "uid-b2".to_owned();
        end(&cluster, next).await;
        assert_eq!(cluster.phase(), "Completed", "{}", cluster.get(BACKUP));
        assert_eq!(cluster.metadata()["metadata"]["uid"], "uid-b2");
        assert!(is_destroyed(&cluster), "the snapshots of the first");
        assert_eq!(private(&cluster), ["owner", "owner-1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_does_not_wait_for_a_dead_store_and_guesses_nothing() {
    for (phase, destroys) in [("InProgress", true), ("Finalizing", false)] {
        let cluster = stopped_at(".private/record-1").await;
        cluster.change_backup(&json!({"status": {"phase": phase}}));
        let mut location = cluster.get(LOCATION);
        location["spec"]["objectStorage"]["bucket"] = json!("/dev/null/away");
        cluster.put(LOCATION, location);
        ask_for_deletion(&cluster);
        let began = Instant::now();
        run(&cluster).await;
        assert!(cluster.get(BACKUP).is_null());
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "{:?}",
            began.elapsed()
        );
        // A backup is announced only after its collection, so nothing of a collecting backup is
        // stored.
        assert_eq!(is_destroyed(&cluster), destroys, "{phase}");
        let told = cluster
            .under("/apis/events.k8s.io/v1/namespaces/velero/events")
            .join("\n");
        assert_says!(told, "SnapshotsNotRemoved", "not known");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_of_what_the_store_does_not_take_keeps_what_is_recorded() {
    let cluster = stopped_at("b-results.gz").await;
    std::fs::write(cluster.file("b-results.gz"), "foreign").unwrap();
    ask_for_deletion(&cluster);
    run(&cluster).await;
    assert!(
        cluster.get(BACKUP).is_null() && !is_destroyed(&cluster) && cluster.metadata().is_null()
    );
    assert!(
        private(&cluster).contains(&"record-1".to_owned()),
        "it can still be finished"
    );
    assert!(cluster.asked(&format!("DELETE {GROUP}")) == 0);
}
