use std::{collections::BTreeMap, fs, path::Path};

use backup_core::api::BackupPhase;
use backup_testkit::{FakeApi, LastWrite, velero_path};
use serde_json::{Value, json};

use super::*;
use crate::testing;

/// An API server with a backup `b` that is stored in location `first`, and an empty location
/// `second`.
struct World {
    api: FakeApi,
    first: tempfile::TempDir,
    second: tempfile::TempDir,
}

fn controller_in(cluster: Cluster) -> Arc<CopyController> {
    Arc::new(CopyController {
        locations: testing::locations(&cluster),
        cluster,
        metrics: Arc::default(),
        installation: "cluster/velero".to_owned(),
        running: RunningCopies::default(),
        stop: CancellationToken::new(),
    })
}

fn backup_path() -> String {
    velero_path("Backup", "b")
}

impl World {
    async fn new(copies: Value) -> Self {
        let world = Self {
            api: FakeApi::new(),
            first: tempfile::tempdir().unwrap(),
            second: tempfile::tempdir().unwrap(),
        };
        for (name, folder) in [("first", &world.first), ("second", &world.second)] {
            let mut location = testing::local_location(folder.path());
            location.metadata.name = Some(name.to_owned());
            location.metadata.namespace = Some("velero".to_owned());
            let mut location = serde_json::to_value(location).unwrap();
            location["status"] = json!({ "phase": "Available" });
            world
                .api
                .put(&velero_path("BackupStorageLocation", name), location);
        }
        store_backup(world.first.path(), "u").await;
        let spec = json!({ "storageLocation": "first", "copies": copies });
        let status = json!({ "phase": "Completed", "expiration": "2199-01-01T00:00:00Z" });
        let mut backup = testing::velero("Backup", "b", spec, status);
        backup["metadata"]["uid"] = json!("u");
        world.api.put(&backup_path(), backup);
        world
    }

    fn controller(&self, budget: Duration) -> Arc<CopyController> {
        let cluster = Cluster {
            patch_budget: budget,
            ..testing::cluster(self.api.client())
        };
        controller_in(cluster)
    }

    async fn reconcile(&self) -> Result<Action, ReconcileError> {
        run(self.controller(Duration::from_secs(2))).await
    }

    /// The state of the copy in `second`.
    fn state(&self) -> Value {
        self.api.get(&backup_path()).unwrap()["status"]["copies"][0].clone()
    }

    fn edit_location(&self, edit: impl FnOnce(&mut Value)) {
        let path = velero_path("BackupStorageLocation", "second");
        self.api.edit(&path, edit);
    }

    /// Lets the time of the copy end. The backup has run here, so its own files are there.
    fn expire_copy(&self) {
        self.api.edit(&backup_path(), |backup| {
            backup["status"]["startTimestamp"] = json!("2026-01-01T00:00:01Z");
            backup["status"]["copies"][0]["expiration"] = json!("2020-01-01T00:00:00Z");
        });
    }

    fn assert_copied(&self, case: &str) {
        assert_eq!(self.state()["phase"], "Completed", "{case}");
        let copied = files(self.second.path());
        assert_eq!(copied, files(self.first.path()), "{case}");
        assert!(copied.contains_key("velero-backup.json"), "{case}");
    }
}

async fn run(controller: Arc<CopyController>) -> Result<Action, ReconcileError> {
    let key = Key {
        namespace: "velero".to_owned(),
        name: "b".to_owned(),
    };
    controller.reconcile(key, None).await
}

async fn store_backup(folder: &Path, uid: &str) {
    let store = Location::open(&testing::local_location(folder), None, None).unwrap();
    let claimant = testing::claimant(uid);
    let writer = store.open_backup("b", &claimant).await.unwrap();
    let pending = writer.finish().await.unwrap();
    let mut end = testing::backup(BackupPhase::Completed);
    end.metadata.uid = Some(uid.to_owned());
    let plan = pending.commit(&testing::no_files(), &end).await;
    plan.unwrap().publish().await.unwrap();
}

/// The files of backup `b` that are not private.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder.join("backups/b")).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            files.insert(name, fs::read(path).unwrap());
        }
    }
    files
}

fn to_second() -> Value {
    json!([{ "location": "second" }])
}

#[tokio::test]
async fn a_copy_is_made_and_its_state_says_so() {
    let world = World::new(json!([{ "location": "second", "ttl": "1000000h" }])).await;
    let action = world.reconcile().await.unwrap();
    assert_eq!(action, Action::AwaitChange);
    world.assert_copied("first time");
    let state = world.state();
    assert_eq!(state["uid"], "u");
    // There is no start, so the ttl counts from the creation of the Backup.
    assert_eq!(state["expiration"], "2140-01-30T16:00:00Z");
    assert!(state["bytes"].as_i64().unwrap() > 100, "{state}");
    assert_eq!(state["message"], Value::Null);
}

#[tokio::test]
async fn whatever_write_to_the_cluster_is_lost_the_copy_is_resumed() {
    for last in [LastWrite::Lost, LastWrite::Unanswered] {
        for writes in 0.. {
            assert!(writes < 20, "it never ends");
            let world = World::new(to_second()).await;
            world.api.crash_after(writes, last);
            let first = run(world.controller(Duration::ZERO)).await;
            if !world.api.recover() {
                first.unwrap();
                break;
            }
            // Another process, which may find its place.
            world.reconcile().await.unwrap();
            world.assert_copied(&format!("{last:?} after {writes} writes"));
        }
    }
}

#[tokio::test]
async fn a_copy_waits_for_its_location_and_says_for_what() {
    let world = World::new(to_second()).await;
    for (edit, said) in [
        (
            json!({ "status": { "phase": "Unavailable", "message": "no bucket" } }),
            "location second is not available: no bucket",
        ),
        (
            json!({ "status": { "phase": "Available" }, "spec": { "accessMode": "ReadOnly" } }),
            "location second is read-only",
        ),
    ] {
        world.edit_location(|location| json_patch::merge(location, &edit));
        for _ in 0..2 {
            let action = world.reconcile().await.unwrap();
            assert_eq!(action, Action::RequeueAfter(WAIT_INTERVAL));
        }
        let message = world.state()["message"].clone();
        assert_says!(message, said);
        assert!(files(world.second.path()).is_empty());
    }
    let writes = world.api.writes();
    world.reconcile().await.unwrap();
    assert_eq!(world.api.writes(), writes, "nothing has changed");
    world.edit_location(|location| location["spec"]["accessMode"] = json!("ReadWrite"));
    world.reconcile().await.unwrap();
    world.assert_copied("in the end");
}

#[tokio::test]
async fn another_backup_of_the_name_is_an_error_and_stays() {
    let world = World::new(to_second()).await;
    store_backup(world.second.path(), "other").await;
    let others = files(world.second.path());
    let action = world.reconcile().await.unwrap();
    assert_eq!(action, Action::RequeueAfter(decide::RETRY_INTERVAL));
    let state = world.state();
    assert_eq!(state["phase"], "Failed");
    assert_says!(state["message"], "another backup of this name");
    assert_eq!(files(world.second.path()), others);
}

#[tokio::test]
async fn a_deletion_that_begins_meanwhile_stops_the_copy() {
    // Before the first state is written, and after it.
    let world = World::new(to_second()).await;
    let path = backup_path();
    let deleting = path.clone();
    world.api.before("PATCH", &path, move |api| {
        api.edit(&deleting, |backup| {
            backup["status"]["phase"] = json!("Deleting");
        });
    });
    assert_eq!(world.reconcile().await.unwrap(), Action::AwaitChange);
    assert!(world.state().is_null() && files(world.second.path()).is_empty());

    let world = World::new(to_second()).await;
    let controller = world.controller(Duration::from_secs(2));
    let running = controller.running.clone();
    world.api.before("PATCH", &path, move |_| {
        assert!(running.stop("b"), "it runs");
    });
    let running = controller.running.clone();
    run(controller).await.unwrap();
    assert!(!running.stop("b"), "it has ended");
    assert!(!files(world.second.path()).contains_key("velero-backup.json"));
}

#[tokio::test]
async fn a_copy_whose_time_is_over_is_removed_once_no_restore_reads_it() {
    let world = World::new(json!([{ "location": "second", "ttl": "1000000h" }])).await;
    world.reconcile().await.unwrap();
    world.assert_copied("at first");
    world.expire_copy();
    let restore = velero_path("Restore", "r");
    let from = json!({ "backupName": "b" });
    let running = testing::velero("Restore", "r", from, json!({ "phase": "InProgress" }));
    world.api.put(&restore, running);
    let action = world.reconcile().await.unwrap();
    assert_eq!(action, Action::RequeueAfter(WAIT_INTERVAL));
    let state = world.state();
    assert_eq!(state["phase"], "Deleting");
    assert_says!(state["message"], "waits for restores: r (InProgress)");
    assert!(!files(world.second.path()).is_empty());
    world.api.delete(&restore);
    // The location is away for a while.
    world.edit_location(|location| location["status"]["phase"] = json!("Unavailable"));
    let action = world.reconcile().await.unwrap();
    assert_eq!(action, Action::RequeueAfter(WAIT_INTERVAL));
    world.edit_location(|location| location["status"]["phase"] = json!("Available"));
    let action = world.reconcile().await.unwrap();
    assert_eq!(action, Action::AwaitChange);
    assert_eq!(world.state()["phase"], "Expired");
    assert!(files(world.second.path()).is_empty());
    assert!(!files(world.first.path()).is_empty(), "the backup stays");
    assert_eq!(world.reconcile().await.unwrap(), Action::AwaitChange);
    assert!(files(world.second.path()).is_empty(), "not made again");
}

#[tokio::test]
async fn a_follower_copies_nothing() {
    let world = World::new(to_second()).await;
    let mut cluster = testing::cluster(world.api.client());
    cluster.leadership = backup_runtime::leader::Leadership::never();
    run(controller_in(cluster)).await.unwrap_err();
    assert!(world.state().is_null() && files(world.second.path()).is_empty());
}

#[tokio::test]
async fn an_expired_copy_stays_as_long_as_the_rules_of_its_schedule_keep_it() {
    let world = World::new(json!([{ "location": "second", "ttl": "1000000h" }])).await;
    world.reconcile().await.unwrap();
    world.assert_copied("at first");
    let nightly = json!({ "velero.io/schedule-name": "nightly" });
    world.api.edit(&backup_path(), |backup| {
        backup["metadata"]["labels"] = nightly.clone();
    });
    world.expire_copy();
    let spec = json!({ "schedule": "@daily", "template": {},
        "copies": [{ "location": "second", "keep": { "last": 1 } }] });
    let schedule = testing::velero("Schedule", "nightly", spec, json!({}));
    world.api.put(&velero_path("Schedule", "nightly"), schedule);
    let kept = Action::RequeueAfter(Duration::from_hours(1));
    for pass in ["first", "second"] {
        assert_eq!(world.reconcile().await.unwrap(), kept, "{pass}");
        assert_eq!(
            world.state()["message"],
            "the rules of its schedule keep it"
        );
        world.assert_copied(pass);
    }
    let writes = world.api.writes();
    world.reconcile().await.unwrap();
    assert_eq!(world.api.writes(), writes, "nothing has changed");
    // A newer backup has a copy there.
    let spec = json!({ "storageLocation": "first" });
    let copies = json!([{ "location": "second", "phase": "Completed", "uid": "v" }]);
    let status =
        json!({ "phase": "Completed", "startTimestamp": "2026-01-02T00:00:00Z", "copies": copies });
    let mut newer = testing::velero("Backup", "c", spec, status);
    newer["metadata"]["labels"] = nightly;
    newer["metadata"]["creationTimestamp"] = json!("2026-01-02T00:00:00Z");
    world.api.put(&velero_path("Backup", "c"), newer);
    assert_eq!(world.reconcile().await.unwrap(), Action::AwaitChange);
    assert_eq!(world.state()["phase"], "Expired");
    assert!(files(world.second.path()).is_empty());
    assert!(!files(world.first.path()).is_empty(), "the backup stays");
}

#[tokio::test]
async fn the_last_good_copy_of_a_backup_that_cannot_be_read_stays() {
    let world = World::new(json!([{ "location": "second", "ttl": "1000000h" }])).await;
    world.reconcile().await.unwrap();
    world.assert_copied("at first");
    world.expire_copy();
    let first = velero_path("BackupStorageLocation", "first");
    world.api.edit(&first, |location| {
        location["status"]["phase"] = json!("Unavailable");
    });
    let kept = Action::RequeueAfter(Duration::from_hours(1));
    assert_eq!(world.reconcile().await.unwrap(), kept);
    assert_says!(world.state()["message"], "it is the last good one");
    world.assert_copied("while its location is away");
    world.api.edit(&first, |location| {
        location["status"]["phase"] = json!("Available");
    });
    assert_eq!(world.reconcile().await.unwrap(), Action::AwaitChange);
    assert_eq!(world.state()["phase"], "Expired");
    assert!(files(world.second.path()).is_empty());
}

#[tokio::test]
async fn a_copy_into_a_location_that_does_not_exist_names_its_own_field() {
    let world = World::new(json!([{ "location": "lost" }])).await;
    world.reconcile().await.unwrap();
    let state = world.state();
    assert_eq!(state["phase"], "Failed");
    assert_says!(
        state["message"],
        "BackupStorageLocation lost not found in namespace velero",
        "name another one in spec.copies"
    );
}
