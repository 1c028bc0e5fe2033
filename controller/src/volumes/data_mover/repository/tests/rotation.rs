//! Rotation of the password over two locations.

use backup_core::repository_records::{
    KEY_CHANGE_ANNOTATION, KeyChange, KeyWork, NEXT_PASSWORD_KEY, PASSWORD_COPIED_ANNOTATION,
    PREVIOUS_PASSWORD_KEY, ROTATION_ANNOTATION, ROTATION_REQUEST_ANNOTATION,
};

use super::*;

impl World {
    /// Two locations with a repository each, and a request for another password.
    fn to_rotate() -> Self {
        let world = Self::new();
        for (location, bucket, namespace) in [("default", "b", "shop"), ("second", "c", "db")] {
            world.add_location(location, "local", bucket);
            world.add_to_bucket(bucket, namespace);
        }
        world.add_password("old");
        world.annotate_secret(ROTATION_REQUEST_ANNOTATION);
        world
    }

    fn annotate_secret(&self, name: &str) {
        self.fake.edit(SECRET, |secret| {
            secret["metadata"]["annotations"][name] = json!("yes");
        });
    }

    /// Looks at the Secret until nothing happens; as many times as the controller would.
    async fn rotate(&self) {
        for _ in 0..5 {
            self.mover.rotate_once().await.unwrap();
        }
    }

    fn names(&self) -> Vec<String> {
        let under = "/apis/velero.io/v1/namespaces/velero/backuprepositories/";
        let all = self.fake.under(under).into_keys();
        all.map(|path| path[under.len()..].to_owned()).collect()
    }

    /// Ends the changes of keys that are requested, as their pods would.
    fn end_changes(&self) -> Vec<KeyWork> {
        let mut works = Vec::new();
        for name in self.names() {
            let stored = repository(self, &name);
            let Some(change) = KeyChange::of(stored.annotations()) else {
                continue;
            };
            works.push(change.work);
            let done = KeyChange {
                is_done: true,
                ..change
            };
            self.fake.edit(&repository_path_of(&name), |repository| {
                repository["metadata"]["annotations"][KEY_CHANGE_ANNOTATION] =
                    json!(done.annotation());
            });
        }
        works
    }

    /// As if the stage had begun long ago. Changes the version of the Secret.
    fn age_rotation(&self) {
        self.fake.edit(SECRET, |secret| {
            let annotation = &mut secret["metadata"]["annotations"][ROTATION_ANNOTATION];
            let mut rotation: Value = serde_json::from_str(annotation.as_str().unwrap()).unwrap();
            rotation["since"] = json!("2026-01-01T00:00:00Z");
            *annotation = json!(rotation.to_string());
        });
    }

    fn password(&self, key: &str) -> Value {
        self.fake.get(SECRET).unwrap()["data"][key].clone()
    }
}

#[tokio::test]
async fn a_password_is_rotated_in_all_locations_and_only_a_copy_ends_it() {
    let world = World::to_rotate();
    world.rotate().await;
    let next = world.password(NEXT_PASSWORD_KEY);
    assert!(next.is_string());
    assert_eq!(world.names().len(), 2, "also of a repository without one");
    assert_eq!(
        world.password(PASSWORD_KEY),
        encoded("old"),
        "no key is confirmed"
    );
    assert_eq!(world.end_changes(), [KeyWork::Add, KeyWork::Add]);
    world.rotate().await;
    assert_eq!(world.password(PASSWORD_KEY), next);
    assert_eq!(world.password(PREVIOUS_PASSWORD_KEY), encoded("old"));
    assert!(
        world
            .event("PasswordRotated", "Secret")
            .await
            .contains("all of them get a key")
    );

    world.rotate().await;
    assert_eq!(
        world.password(PREVIOUS_PASSWORD_KEY),
        encoded("old"),
        "it was not copied"
    );
    world.annotate_secret(PASSWORD_COPIED_ANNOTATION);
    world.rotate().await;
    world.age_rotation();
    world.rotate().await;
    assert_eq!(world.end_changes(), [KeyWork::Remove, KeyWork::Remove]);
    world.rotate().await;
    assert_eq!(world.password(PREVIOUS_PASSWORD_KEY), Value::Null);
    assert_eq!(world.password(PASSWORD_KEY), next);
}

#[tokio::test]
async fn no_password_is_switched_while_a_location_cannot_be_looked_at() {
    let world = World::to_rotate();
    world.rotate().await;
    world.end_changes();
    world.add_location("third", "local", "d");
    world.fake.edit(&location_path("third"), |location| {
        location["spec"]["objectStorage"]["bucket"] = json!("/proc/1/backups");
    });
    world.rotate().await;
    assert_eq!(world.password(PASSWORD_KEY), encoded("old"));
    world.fake.delete(&location_path("third"));
    world.rotate().await;
    assert_ne!(world.password(PASSWORD_KEY), encoded("old"));
}

#[tokio::test]
async fn no_password_is_switched_while_a_read_only_location_needs_a_key() {
    let world = World::to_rotate();
    world.fake.edit(&location_path("second"), |location| {
        location["spec"]["accessMode"] = json!("ReadOnly");
    });
    world.rotate().await;
    assert_eq!(world.end_changes(), [KeyWork::Add], "of the other location");
    world.rotate().await;
    assert_eq!(world.password(PASSWORD_KEY), encoded("old"));
}

#[tokio::test]
async fn no_password_is_switched_while_a_pod_makes_a_repository() {
    let world = World::to_rotate();
    world.rotate().await;
    world.end_changes();
    let outcome = MoverOutcome::default();
    world.add_pod("repository-new", "init", None, &outcome);
    world.rotate().await;
    assert_eq!(world.password(PASSWORD_KEY), encoded("old"));
    world.fake.delete(&pod_path("repository-new"));
    world.rotate().await;
    assert_ne!(world.password(PASSWORD_KEY), encoded("old"));
}

#[tokio::test]
async fn a_next_password_that_is_replaced_has_all_keys_added_again() {
    let world = World::to_rotate();
    world.rotate().await;
    world.end_changes();
    world.fake.edit(SECRET, |secret| {
        secret["data"][NEXT_PASSWORD_KEY] = encoded("mine");
    });
    world.rotate().await;
    assert_eq!(
        world.password(PASSWORD_KEY),
        encoded("old"),
        "keys of another one"
    );
    world.end_changes();
    world.rotate().await;
    assert_eq!(world.password(PASSWORD_KEY), encoded("mine"));
}

#[tokio::test]
async fn no_key_is_removed_while_a_pod_of_before_runs() {
    let world = World::to_rotate();
    world.rotate().await;
    world.end_changes();
    world.rotate().await;
    world.annotate_secret(PASSWORD_COPIED_ANNOTATION);
    world.rotate().await;
    let outcome = MoverOutcome::default();
    world.add_pod("upload-data", "backup", None, &outcome);
    world.fake.edit(&pod_path("upload-data"), |pod| {
        pod["metadata"]["creationTimestamp"] = json!("2025-01-01T00:00:00Z");
        pod["status"]["phase"] = json!("Running");
    });
    world.age_rotation();
    world.rotate().await;
    assert_eq!(
        world.end_changes(),
        [KeyWork::Add, KeyWork::Add],
        "no removal is requested"
    );
    world.fake.delete(&pod_path("upload-data"));
    world.rotate().await;
    assert_eq!(world.end_changes(), [KeyWork::Remove, KeyWork::Remove]);
}

#[tokio::test]
async fn a_pod_changes_keys_and_its_end_is_recorded_for_the_secret_that_it_had() {
    let world = World::new();
    world.add_location("default", "aws", "b");
    world.add_password("old");
    let name = world.add_repository(json!({"phase": "NotReady", "message": "why"}));
    let version = world
        .mover
        .password_secret()
        .await
        .unwrap()
        .version()
        .to_owned();
    let change = KeyChange::requested(KeyWork::Add, &version);
    world.fake.edit(&repository_path_of(&name), |repository| {
        repository["metadata"]["annotations"] = json!({KEY_CHANGE_ANNOTATION: change.annotation()});
    });
    world.reconcile(&name).await;
    let pod = world.fake.get(&pod_path(&name)).unwrap();
    assert_eq!(pod["spec"]["containers"][0]["args"][0], "add-key");
    assert_eq!(
        pod["metadata"]["annotations"]["backup-controller/valid-for"],
        version
    );

    let failed = MoverOutcome {
        operation: "add-key".to_owned(),
        message: "the store is away".to_owned(),
        ..MoverOutcome::default()
    };
    let complete = MoverOutcome {
        result: MoverResult::Complete,
        ..failed.clone()
    };
    let recorded = || KeyChange::of(repository(&world, &name).annotations()).unwrap();
    world.add_pod(&name, "add-key", Some("uid-s/0"), &complete);
    world.reconcile(&name).await;
    assert_eq!(recorded(), change, "it had another Secret");
    world.add_pod(&name, "add-key", Some(&version), &failed);
    world.reconcile(&name).await;
    assert_eq!(recorded().failure, "the store is away");
    world.add_pod(&name, "add-key", Some(&version), &complete);
    world.reconcile(&name).await;
    assert!(recorded().is_done);
}
