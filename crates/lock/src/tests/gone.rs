//! An object that a watch saw deleted was stored before: its claim is freed at once.

use std::sync::Arc;

use tokio::time::{sleep, timeout};

use super::*;
use crate::{
    Installations, RunningObjects, collect::CollectionOutcome, observe::ObservedObject,
    reconciler::collect_gone,
};

/// A watch of Velero's objects in one namespace.
fn watched() -> (FakeApi, ProtectedProfile, Arc<RunningObjects>) {
    let api = FakeApi::new();
    let installations = Installations::default();
    installations.update(["velero".to_owned()].into());
    let protected = ProtectedProfile::new(api.client(), "velero", Profile::velero(), GRACE);
    let protected = protected.only_in(&installations);
    let running = Arc::new(RunningObjects::default());
    let (followed, store) = (Arc::clone(&running), protected.store.clone());
    tokio::spawn(async move { followed.follow(&store).await });
    (api, protected, running)
}

async fn gone(
    protected: &ProtectedProfile,
    running: &RunningObjects,
) -> Option<Vec<ObservedObject>> {
    let gone = timeout(
        Duration::from_secs(1),
        running.gone(protected.store.objects()),
    )
    .await
    .ok()?;
    let scopes: Vec<&String> = gone.keys().collect();
    assert_eq!(scopes, [VELERO_SCOPE]);
    gone.into_values().next()
}

#[tokio::test(start_paused = true)]
async fn a_backup_that_is_deleted_while_it_waits_is_free_at_once_and_nothing_else_is() {
    let (api, protected, running) = watched();
    let store = &protected.store;
    for (name, uid) in [
        ("queued", "1"),
        ("queued", "2"),
        ("in-flight", "3"),
        ("runs", "4"),
    ] {
        admit(store, &backup(name), uid).await.unwrap();
    }
    api.put_velero("Backup", "queued", "1", "Queued", &all());
    api.put_velero("Backup", "runs", "4", "New", &all());
    sleep(Duration::from_secs(1)).await;
    api.delete_velero("Backup", "queued");
    let objects = gone(&protected, &running).await.unwrap();
    let reads = |name: &str| api.count(&format!("GET {}", velero_path("Backup", name)));
    let before = reads("runs");
    let collected = collect_gone(&protected, VELERO_SCOPE, &objects)
        .await
        .unwrap();
    assert_eq!(
        collected.freed,
        [(backup("queued"), "1".to_owned(), Reason::Gone)]
    );
    // A second creation of the name, and another creation, may still be stored.
    let left = ledger(store).await;
    assert!(
        left.entry(&backup("queued"), "2").is_some()
            && left.entry(&backup("in-flight"), "3").is_some()
    );
    assert_eq!(
        (left.len(), reads("runs")),
        (3, before),
        "only what is gone is looked at"
    );
    assert!(
        gone(&protected, &running).await.is_none(),
        "each is told of once"
    );
}

#[tokio::test(start_paused = true)]
async fn one_that_is_created_and_deleted_at_once_is_free_too_and_one_elsewhere_is_none_of_ours() {
    let (api, protected, running) = watched();
    sleep(Duration::from_secs(1)).await;
    let elsewhere = "/apis/velero.io/v1/namespaces/elsewhere/backups/b";
    api.put(elsewhere, json!({
        "apiVersion": "velero.io/v1", "kind": "Backup", "metadata": {"name": "b", "namespace": "elsewhere", "uid": "4"}}));
    api.delete(elsewhere);
    assert!(gone(&protected, &running).await.is_none());
    admit(&protected.store, &restore("r"), "1").await.unwrap();
    api.put_velero("Restore", "r", "1", "", &all());
    api.delete_velero("Restore", "r");
    let objects = gone(&protected, &running).await.unwrap();
    let collected = collect_gone(&protected, VELERO_SCOPE, &objects)
        .await
        .unwrap();
    assert_eq!(
        collected.freed,
        [(restore("r"), "1".to_owned(), Reason::Gone)]
    );
}

/// The watch reports it gone, and a fresh read decides.
#[tokio::test(start_paused = true)]
async fn what_is_stored_all_the_same_keeps_its_claim() {
    let (api, protected, _) = watched();
    assert_eq!(
        collect_gone(&protected, VELERO_SCOPE, &[]).await.unwrap(),
        CollectionOutcome::default()
    );
    admit(&protected.store, &backup("b"), "1").await.unwrap();
    api.put_velero("Backup", "b", "1", "New", &all());
    let object = protected
        .store
        .objects()
        .read(&backup("b"))
        .await
        .unwrap()
        .unwrap();
    let other = ObservedObject {
        uid: "9".to_owned(),
        ..object.clone()
    };
    let collected = collect_gone(&protected, VELERO_SCOPE, &[object, other])
        .await
        .unwrap();
    assert_eq!(collected, CollectionOutcome::default());
    assert_eq!(ledger(&protected.store).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn only_the_newest_are_remembered() {
    let (api, protected, running) = watched();
    api.put_velero("Backup", "b", "1", "New", &all());
    let object = protected
        .store
        .objects()
        .read(&backup("b"))
        .await
        .unwrap()
        .unwrap();
    let of = |uid: usize| ObservedObject {
        uid: uid.to_string(),
        ..object.clone()
    };
    running.note_gone(Vec::new());
    assert!(gone(&protected, &running).await.is_none());
    running.note_gone((0..600).map(of).collect());
    running.note_gone((600..1001).map(of).collect());
    let objects = gone(&protected, &running).await.unwrap();
    assert_eq!((objects.len(), objects[0].uid.as_str()), (1000, "1"));
}
