//! Passes over a location of an API server in memory.

use backup_core::{labels::SCHEDULE_NAME, sync::Request};
use backup_testkit::{FakeApi, LastWrite, velero_path};
use jiff::SignedDuration;
use serde_json::Value;

use super::*;
use crate::testing;

fn now() -> Timestamp {
    "2026-03-20T12:00:00Z".parse().unwrap()
}

fn controller(fake: &FakeApi) -> RetentionController {
    let cluster = testing::cluster(fake.client());
    let locations = testing::locations(&cluster);
    RetentionController::new(
        cluster,
        locations,
        Arc::new(Metrics::default()),
        Duration::from_hours(1),
        brake(30),
    )
}

/// A cluster with one location.
fn cluster() -> FakeApi {
    let fake = FakeApi::new();
    put_location(&fake, &json!({}));
    fake
}

fn put_location(fake: &FakeApi, patch: &Value) {
    let mut location = json!({ "apiVersion": "velero.io/v1", "kind": "BackupStorageLocation",
        "metadata": { "name": "default", "namespace": "velero", "uid": "l" },
        "spec": { "provider": "aws", "objectStorage": { "bucket": "b" } },
        "status": { "phase": "Available" } });
    json_patch::merge(&mut location, patch);
    fake.put(&velero_path("BackupStorageLocation", "default"), location);
}

/// A good backup of a day of March that has expired.
fn put_backup(fake: &FakeApi, name: &str, day: usize, patch: &Value) {
    let began = format!("2026-03-{day:02}T03:00:00Z");
    let mut backup = json!({ "apiVersion": "velero.io/v1", "kind": "Backup",
        "metadata": { "name": name, "namespace": "velero", "uid": format!("uid-{name}"), "creationTimestamp": began },
        "spec": { "storageLocation": "default", "includedNamespaces": ["shop"] },
        "status": { "phase": "Completed", "startTimestamp": began, "expiration": "2026-03-20T11:00:00Z" } });
    json_patch::merge(&mut backup, patch);
    fake.put(&velero_path("Backup", name), backup);
}

/// The names of the backups whose deletion was requested.
fn requested(fake: &FakeApi) -> Vec<String> {
    let requests = fake.under(&velero_path("DeleteBackupRequest", ""));
    let mut names: Vec<String> = requests
        .values()
        .map(|request| request["spec"]["backupName"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

fn record(fake: &FakeApi) -> RetentionRecord {
    let location = fake.get(&velero_path("BackupStorageLocation", "default"));
    RetentionRecord::read(
        location.unwrap()["metadata"]["annotations"][RETENTION_ANNOTATION].as_str(),
    )
}

/// The writes so far, without events.
fn writes(fake: &FakeApi) -> Vec<String> {
    let mut log = fake.log();
    log.retain(|line| !line.starts_with("GET ") && !line.contains("/events"));
    log
}

async fn pass(fake: &FakeApi) -> CheckedExpiries {
    Box::pin(controller(fake).pass("default", now()))
        .await
        .unwrap()
}

#[tokio::test]
async fn what_has_expired_goes_but_the_last_good_one_and_what_its_schedule_keeps() {
    let fake = cluster();
    let nightly = json!({ "metadata": { "labels": { SCHEDULE_NAME: "nightly" } },
        "spec": { "includedNamespaces": ["db"] } });
    let schedule = json!({ "apiVersion": "velero.io/v1", "kind": "Schedule",
        "metadata": { "name": "nightly", "namespace": "velero" },
        "spec": { "schedule": "@daily", "template": {}, "keep": { "daily": 2 } } });
    fake.put(&velero_path("Schedule", "nightly"), schedule);
    put_backup(&fake, "a-old", 1, &json!({}));
    put_backup(&fake, "a-last", 2, &json!({}));
    put_backup(
        &fake,
        "a-failed",
        3,
        &json!({ "status": { "phase": "Failed" } }),
    );
    put_backup(
        &fake,
        "a-fresh-failed",
        4,
        &json!({ "status": { "phase": "Failed", "expiration": "2026-04-20T11:00:00Z" } }),
    );
    for (name, day) in [("n-1", 1), ("n-2", 2), ("n-3", 3)] {
        put_backup(&fake, name, day, &nightly);
    }
    let checked = pass(&fake).await;
    assert_eq!(requested(&fake), ["a-failed", "a-old", "n-1"]);
    assert_eq!(checked.len(), 7);
    assert_eq!((record(&fake).removed, record(&fake).refused), (3, 0));
    // Once more: their deletion is requested already.
    let before = writes(&fake);
    pass(&fake).await;
    assert_eq!(requested(&fake), ["a-failed", "a-old", "n-1"]);
    assert_eq!(writes(&fake), before, "something is written at each pass");
}

#[tokio::test]
async fn too_many_at_once_stay_until_a_user_agrees() {
    let fake = cluster();
    for number in 0..10 {
        put_backup(&fake, &format!("b-{number}"), number + 1, &json!({}));
    }
    pass(&fake).await;
    assert_eq!(requested(&fake), [""; 0]);
    let refused = record(&fake);
    assert_eq!((refused.removed, refused.refused), (0, 9));
    assert_says!(refused.reason.unwrap(), "lost 9 of 10 within an hour");
    let before = writes(&fake);
    pass(&fake).await;
    assert_eq!(writes(&fake), before, "something is written at each pass");

    for (remove, left) in [(8, 9), (9, 0)] {
        let request = Request {
            id: format!("r-{remove}"),
            remove: Some(remove),
        };
        let request = serde_json::to_string(&request).unwrap();
        fake.edit(
            &velero_path("BackupStorageLocation", "default"),
            |location| {
                location["metadata"]["annotations"][RETENTION_REQUEST_ANNOTATION] = json!(request);
            },
        );
        pass(&fake).await;
        let answer = record(&fake);
        assert_eq!(answer.request, Some(format!("r-{remove}")));
        assert_eq!(answer.refused, left);
        let location = fake
            .get(&velero_path("BackupStorageLocation", "default"))
            .unwrap();
        assert!(location["metadata"]["annotations"][RETENTION_REQUEST_ANNOTATION].is_null());
    }
    assert_eq!(requested(&fake).len(), 9);
    assert!(
        !requested(&fake).contains(&"b-9".to_owned()),
        "the last good one"
    );
}

#[tokio::test]
async fn a_location_loses_no_more_in_small_parts() {
    let fake = cluster();
    for number in 0..20 {
        let later = json!({ "status": { "expiration": "2026-04-20T11:00:00Z" } });
        put_backup(&fake, &format!("b-{number:02}"), number / 2 + 1, &later);
    }
    let expire = |from: usize, to: usize| {
        for number in from..to {
            fake.edit(
                &velero_path("Backup", &format!("b-{number:02}")),
                |backup| {
                    backup["status"]["expiration"] = json!("2026-03-20T11:00:00Z");
                },
            );
        }
    };
    expire(0, 5);
    pass(&fake).await;
    assert_eq!(requested(&fake).len(), 5);
    // They are deleted, and more expire.
    for number in 0..5 {
        fake.delete(&velero_path("Backup", &format!("b-{number:02}")));
    }
    expire(5, 7);
    pass(&fake).await;
    assert_eq!((requested(&fake).len(), record(&fake).refused), (5, 2));
    let controller = controller(&fake);
    let later = now() + SignedDuration::from_mins(61);
    Box::pin(controller.pass("default", later)).await.unwrap();
    assert_eq!((requested(&fake).len(), record(&fake).refused), (7, 0));
}

#[tokio::test]
async fn a_crash_between_the_record_and_the_requests_counts_too_many_and_not_too_few() {
    let fake = cluster();
    for number in 0..9 {
        put_backup(&fake, &format!("b-{number}"), number + 1, &json!({}));
    }
    for number in 0..9 {
        let path = velero_path("Backup", &format!("b-{number}"));
        if number > 1 {
            fake.edit(&path, |backup| backup["status"]["expiration"] = Value::Null);
        }
    }
    fake.crash_after(1, LastWrite::Lost);
    let crashed = Box::pin(controller(&fake).pass("default", now())).await;
    assert!(crashed.is_err());
    fake.recover();
    assert_eq!(requested(&fake), [""; 0]);
    let recent: u64 = record(&fake).recent.iter().map(|one| one.count).sum();
    assert_eq!(recent, 2);
    pass(&fake).await;
    assert_eq!(requested(&fake), ["b-0", "b-1"]);
}

#[tokio::test]
async fn one_that_cannot_be_deleted_is_labelled_and_one_that_is_kept_is_not() {
    let fake = cluster();
    put_location(&fake, &json!({ "spec": { "accessMode": "ReadOnly" } }));
    put_backup(&fake, "old", 1, &json!({}));
    put_backup(&fake, "last", 2, &json!({}));
    let label = |name: &str| {
        let backup = fake.get(&velero_path("Backup", name)).unwrap();
        backup["metadata"]["labels"][labels::GC_FAILURE]
            .as_str()
            .map(str::to_owned)
    };
    pass(&fake).await;
    assert_eq!(requested(&fake), [""; 0]);
    assert_eq!(label("old").as_deref(), Some("BSLReadOnly"));
    put_location(&fake, &json!({}));
    pass(&fake).await;
    assert_eq!(requested(&fake), ["old"]);
    assert_eq!((label("old"), label("last")), (None, None));

    fake.delete(&velero_path("BackupStorageLocation", "default"));
    put_backup(&fake, "other", 3, &json!({}));
    pass(&fake).await;
    assert_eq!(label("other").as_deref(), Some("BSLNotFound"));
}

#[tokio::test]
async fn a_request_is_refused_when_the_backup_has_become_the_last_good_one() {
    let fake = cluster();
    let folder = tempfile::tempdir().unwrap();
    put_location(
        &fake,
        &json!({ "spec": { "provider": "local", "objectStorage": { "bucket": folder.path() } } }),
    );
    put_backup(&fake, "old", 1, &json!({}));
    put_backup(&fake, "new", 2, &json!({}));
    let controller = controller(&fake);
    let old: Backup =
        serde_json::from_value(fake.get(&velero_path("Backup", "old")).unwrap()).unwrap();
    let RetentionController {
        cluster, locations, ..
    } = &controller;
    // The object alone replaces nothing: anybody may have created it.
    let why = kept(cluster, locations, &old).await.unwrap().unwrap();
    assert_says!(
        why,
        "backup old has expired and stays: backup new is to replace it",
        "location default does not have that one as Completed"
    );
    let stored = fake.get(&velero_path("Backup", "new")).unwrap();
    let files = folder.path().join("backups/new");
    std::fs::create_dir_all(&files).unwrap();
    std::fs::write(files.join("velero-backup.json"), stored.to_string()).unwrap();
    assert_eq!(kept(cluster, locations, &old).await.unwrap(), None);
    fake.edit(&velero_path("Backup", "new"), |backup| {
        backup["status"]["phase"] = json!("Deleting");
    });
    let why = kept(cluster, locations, &old).await.unwrap().unwrap();
    assert_says!(
        why,
        "backup old has expired and stays: it is the last good backup"
    );
}
