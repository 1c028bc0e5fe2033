//! BackupRepositories against an API server in memory, with folders as buckets. Pods end as the
//! tests say.

mod pods;
mod rotation;

use backup_core::data_movement::{MoverResult, PASSWORD_KEY, PASSWORD_SECRET};
use backup_testkit::FakeApi;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::{testing, volumes::data_mover::repository::check::CHECK_ANNOTATION};

const SECRET: &str = "/api/v1/namespaces/velero/secrets/velero-repo-credentials";

/// An installation with locations in folders.
struct World {
    fake: FakeApi,
    mover: Arc<DataMover>,
    folder: TempDir,
}

fn location_path(name: &str) -> String {
    format!("/apis/velero.io/v1/namespaces/velero/backupstoragelocations/{name}")
}

fn repository_path_of(name: &str) -> String {
    format!("/apis/velero.io/v1/namespaces/velero/backuprepositories/{name}")
}

fn pod_path(name: &str) -> String {
    format!("/api/v1/namespaces/velero/pods/{name}")
}

impl World {
    fn new() -> Self {
        let fake = FakeApi::new();
        let cluster = testing::cluster(fake.client());
        Self {
            mover: Arc::new(testing::data_mover(cluster)),
            fake,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// Adds a location in a folder, or in another place.
    fn add_location(&self, name: &str, provider: &str, bucket: &str) {
        let bucket = match provider {
            "local" => self.folder.path().join(bucket).display().to_string(),
            _ => bucket.to_owned(),
        };
        let spec = json!({"provider": provider, "objectStorage": {"bucket": bucket}});
        let location = testing::velero("BackupStorageLocation", name, spec, json!({}));
        self.fake.put(&location_path(name), location);
    }

    /// Adds the repository of a namespace to a bucket.
    fn add_to_bucket(&self, bucket: &str, namespace: &str) {
        let folder = self
            .folder
            .path()
            .join(bucket)
            .join("restic")
            .join(namespace);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("config"), "c").unwrap();
    }

    /// Adds the BackupRepository of namespace `shop` in location `default`. Returns its name.
    fn add_repository(&self, status: Value) -> String {
        let name = repository_name("shop", "default");
        let spec = json!({
            "volumeNamespace": "shop", "backupStorageLocation": "default",
            "repositoryType": "restic", "maintenanceFrequency": "24h0m0s",
        });
        let repository = testing::velero("BackupRepository", &name, spec, status);
        self.fake.put(&repository_path_of(&name), repository);
        name
    }

    fn add_password(&self, password: &str) {
        let data = json!({PASSWORD_KEY: encoded(password)});
        let metadata = json!({"name": PASSWORD_SECRET, "namespace": "velero", "uid": "uid-s"});
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data});
        self.fake.put(SECRET, secret);
    }

    async fn reconcile(&self, name: &str) -> Action {
        let key = Key {
            namespace: "velero".to_owned(),
            name: name.to_owned(),
        };
        let mover = Arc::clone(&self.mover);
        mover.reconcile_repository(key).await.unwrap()
    }

    fn status(&self, name: &str) -> (String, String) {
        let repository = self.fake.get(&repository_path_of(name)).unwrap();
        let text = |field: &str| {
            let value = repository["status"][field].as_str();
            value.unwrap_or_default().to_owned()
        };
        (text("phase"), text("message"))
    }

    /// Number of writes to a BackupRepository.
    fn patches(&self, name: &str) -> usize {
        self.fake
            .count(&format!("PATCH {}", repository_path_of(name)))
    }

    /// The inputs of location `default`.
    async fn inputs(&self) -> String {
        let location = self.mover.location("default").await.unwrap();
        let password = self.mover.password_secret().await.unwrap();
        decide::inputs(location.as_ref(), &password, "i")
    }

    /// Waits for an Event with this reason. Returns its note.
    async fn event(&self, reason: &str, kind: &str) -> String {
        for _ in 0..200 {
            let requests = self.fake.requests();
            let found = requests.iter().find(|request| {
                request.body["reason"] == reason && request.body["regarding"]["kind"] == kind
            });
            if let Some(request) = found {
                return request.body["note"].as_str().unwrap().to_owned();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("there is no event {reason} of a {kind}");
    }
}

fn encoded(password: &str) -> Value {
    json!(k8s_openapi::ByteString(password.as_bytes().to_vec()))
}

#[tokio::test]
async fn a_password_is_made_only_if_no_location_has_a_repository() {
    let world = World::new();
    world.add_location("default", "local", "empty");
    world.add_location("second", "local", "full");
    world.add_location("by-plugin", "example.com/tape", "b");
    world.add_to_bucket("full", "db");
    let name = world.add_repository(json!({}));
    world.reconcile(&name).await;
    let (phase, message) = world.status(&name);
    assert_eq!(phase, "NotReady");
    assert!(
        message.contains("BackupStorageLocation second") && message.contains("bring it back"),
        "{message}"
    );
    assert_eq!(world.fake.get(SECRET), None);

    std::fs::remove_dir_all(world.folder.path().join("full/restic")).unwrap();
    world
        .mover
        .forget_check(&repository(&world, &name))
        .await
        .unwrap();
    world.reconcile(&name).await;
    assert!(
        world.fake.get(SECRET).is_some(),
        "no data needs another one"
    );
}

fn repository(world: &World, name: &str) -> BackupRepository {
    let stored = world.fake.get(&repository_path_of(name)).unwrap();
    serde_json::from_value(stored).unwrap()
}

#[tokio::test]
async fn no_password_is_made_while_a_location_cannot_be_looked_at() {
    for (field, value) in [
        ("/spec/objectStorage/bucket", json!("/proc/1/backups")),
        ("/spec/provider", json!(7)),
    ] {
        let world = World::new();
        world.add_location("default", "local", "empty");
        world.add_location("second", "local", "other");
        world.fake.edit(&location_path("second"), |location| {
            *location.pointer_mut(field).unwrap() = value;
        });
        let name = world.add_repository(json!({}));
        world.reconcile(&name).await;
        let (phase, message) = world.status(&name);
        assert_eq!(phase, "NotReady");
        for part in ["no password is made", "BackupStorageLocation second"] {
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(world.fake.get(SECRET), None);
    }
}

#[tokio::test]
async fn a_wrong_password_of_a_transfer_is_noted_until_a_pod_opens_the_repository() {
    let world = World::new();
    world.add_location("default", "local", "b");
    world.add_to_bucket("b", "shop");
    world.add_password("wrong");
    let name = world.add_repository(json!({"phase": "Ready"}));
    let outcome = MoverOutcome {
        operation: "restore".to_owned(),
        reason: Some(failure_reason::WRONG_PASSWORD.to_owned()),
        message: "the password does not open the repository".to_owned(),
        ..MoverOutcome::default()
    };
    let state = PodState::Ended(outcome.clone());
    world
        .mover
        .note_pod("shop", "default", &state)
        .await
        .unwrap();
    let (phase, message) = world.status(&name);
    assert_eq!(phase, "NotReady");
    assert!(
        message.contains("does not open the repository"),
        "{message}"
    );
    world.event("Unavailable", "BackupRepository").await;

    // The pod that was to open it comes to the same result.
    world.add_pod(&name, "open", Some(&world.inputs().await), &outcome);
    world.reconcile(&name).await;
    assert_eq!(world.status(&name), (phase, message));
    assert_eq!(world.fake.get(&pod_path(&name)), None);

    // With another password a pod opens it. What was found with the first one says nothing.
    let before = world.inputs().await;
    world.add_password("right");
    let opened = MoverOutcome {
        operation: "open".to_owned(),
        result: MoverResult::Complete,
        ..MoverOutcome::default()
    };
    for (inputs, expected) in [(before, "NotReady"), (world.inputs().await, "Ready")] {
        world.add_pod(&name, "open", Some(&inputs), &opened);
        world.reconcile(&name).await;
        assert_eq!(world.status(&name).0, expected);
    }
    assert_eq!(world.status(&name).1, "");
}

#[tokio::test]
async fn a_changed_secret_has_repositories_that_cannot_be_used_looked_at_at_once() {
    for (phase, is_forgotten) in [("NotReady", true), ("Ready", false)] {
        let world = World::new();
        world.add_location("default", "local", "b");
        world.add_password("wrong");
        let name = world.add_repository(json!({"phase": phase}));
        world.fake.edit(&repository_path_of(&name), |repository| {
            repository["metadata"]["annotations"] = json!({CHECK_ANNOTATION: "{}"});
        });
        let is_known = || {
            let repository = repository(&world, &name);
            repository.annotations().contains_key(CHECK_ANNOTATION)
        };
        let mut password = None;
        for _ in 0..2 {
            world.mover.follow_password(&mut password).await.unwrap();
            assert!(is_known(), "nothing has changed");
        }
        world.add_password("right");
        world.mover.follow_password(&mut password).await.unwrap();
        assert_eq!(is_known(), !is_forgotten, "{phase}");
    }
}

#[tokio::test]
async fn a_pod_that_waits_for_the_password_has_the_repository_looked_at() {
    let world = World::new();
    world.add_location("default", "local", "b");
    world.add_to_bucket("b", "shop");
    let name = world.add_repository(json!({"phase": "Ready"}));
    world.fake.edit(&repository_path_of(&name), |repository| {
        repository["metadata"]["annotations"] = json!({CHECK_ANNOTATION: "{}"});
    });
    let waiting = PodState::Waiting(
        "its pod does not start (CreateContainerConfigError): secret \"velero-repo-credentials\" not found"
            .to_owned(),
    );
    world
        .mover
        .note_pod("shop", "default", &waiting)
        .await
        .unwrap();
    world.reconcile(&name).await;
    let (phase, message) = world.status(&name);
    assert_eq!(phase, "NotReady");
    assert!(message.contains("bring the Secret back"), "{message}");
    let before = world.patches(&name);
    world
        .mover
        .note_pod("shop", "default", &waiting)
        .await
        .unwrap();
    assert_eq!(world.patches(&name), before, "it is known");
}
