use backup_core::{
    bucket::{Facts, ObjectLock, Versions},
    labels::{BUCKET_ANNOTATION, SYNC_ANNOTATION, SYNC_REQUEST_ANNOTATION},
    sync::Summary,
};

use crate::{forms::events, person::NOW, prelude::*};
use backup_core::sync::NoteKind;

fn named(name: &str, pass: Option<&Summary>) -> Value {
    let named = json!({ "metadata": { "name": name, "uid": format!("uid-of-{name}") } });
    let mut object = with(location("Available", ""), &named);
    if let Some(pass) = pass {
        object["metadata"]["annotations"] = json!({ SYNC_ANNOTATION: pass.annotation() });
        object["status"]["lastSyncedTime"] = json!(pass.started.to_string());
    }
    object
}

/// A synchronisation with every kind of result.
fn mixed() -> Summary {
    let mut pass = Summary {
        started: "2026-11-03T05:13:30Z".parse().unwrap(),
        millis: 1_234,
        found: 120,
        created: 3,
        ..Summary::default()
    };
    pass.skip(
        "twice",
        NoteKind::Conflict,
        "the cluster has a Backup of this name that is stored in location other",
    );
    pass.skip(
        "half",
        NoteKind::Unfinished,
        "there is no velero-backup.json:\n\u{1b}[2Jit is not finished",
    );
    pass
}

fn refused() -> Summary {
    let mut pass = Summary {
        refused: 40,
        found: 1,
        ..mixed()
    };
    let gone = "40 of 41 stored backups that have not expired are gone from the bucket at once";
    pass.note("", NoteKind::RemovalRefused, gone);
    pass
}

async fn cluster() -> FakeApi {
    let api = FakeApi::start().await;
    let failed = Summary {
        error: Some("the store refused to list s3://b: 403 AccessDenied".to_owned()),
        ..mixed()
    };
    let lock = ObjectLock {
        enabled: true,
        mode: Some("COMPLIANCE".to_owned()),
        days: Some(30),
        ..ObjectLock::default()
    };
    let locked = Facts {
        versions: Some(Versions::Enabled),
        lock: Some(lock),
        ..Facts::default()
    };
    let closed = Facts {
        versions: Some(Versions::Off),
        unconditional: true,
        unknown: Some(
            "403 AccessDenied: s3:GetBucketObjectLockConfiguration is not granted".to_owned(),
        ),
        not_removable: Some(
            "the store refused to delete s3://b/backups/.writable:\n403".to_owned(),
        ),
        ..Facts::default()
    };
    let of = |location: Value, facts: &Facts| {
        with(
            location,
            &json!({ "metadata": { "annotations": { BUCKET_ANNOTATION: facts.annotation() } } }),
        )
    };
    api.has(of(named("default", Some(&mixed())), &locked))
        .has(named("fresh", None))
        .has(of(named("other", Some(&refused())), &closed))
        .has(named("second", Some(&failed)));
    api
}

#[tokio::test]
async fn what_came_of_the_last_comparisons_is_shown() {
    let api = cluster().await;
    let person = Person::at(&api);
    transcript!(
        person,
        "locations sync",
        "locations sync default",
        "locations sync fresh",
        "locations sync other",
        "locations sync second",
        "locations sync -o name",
        "locations sync default -o yaml",
        "locations sync gone"
    );
    let list = person.reads("locations sync -o json").await;
    assert_eq!(list["apiVersion"], "kubectl-backup/v1");
    assert_eq!(list["locations"][2]["lastPass"]["refused"], 40);
    assert!(
        api.seen().iter().all(|request| request.starts_with("GET")),
        "{:?}",
        api.seen()
    );
}

#[tokio::test]
async fn a_location_that_cannot_be_read_hides_no_other() {
    let api = cluster().await;
    let broken = with(
        named("broken", None),
        &json!({ "spec": { "backupSyncPeriod": "soon" } }),
    );
    api.has(broken);
    transcript!(Person::at(&api), "locations sync");
}

#[tokio::test]
async fn every_location_is_read_however_many_there_are() {
    let api = FakeApi::start().await;
    for n in 0..501 {
        api.has(named(&format!("l-{n:03}"), None));
    }
    let seen = Person::at(&api).types("locations sync --no-headers").await;
    assert_eq!(
        seen.lines().filter(|line| line.starts_with("l-")).count(),
        501
    );
    assert_eq!(api.seen().len(), 2, "{:?}", api.seen());
}

#[tokio::test]
async fn a_comparison_is_asked_for_and_waited_for() {
    let api = cluster().await;
    let person = Person::at(&api);
    let answered = |pass: Summary| {
        named(
            "default",
            Some(&Summary {
                request: Some(NOW.to_owned()),
                ..pass
            }),
        )
    };
    let mut all = String::new();
    for pass in [mixed(), refused()] {
        // The command reads it once before the question.
        let get = "backupstoragelocations/default";
        api.has(named("default", Some(&mixed())));
        api.on_get(get, Fault::Becomes(named("default", Some(&mixed()))));
        api.on_get(get, Fault::unavailable("starting"));
        api.on_get(get, Fault::Becomes(answered(pass)));
        all += &person.types("locations sync default --now").await;
        all += "\n";
    }
    all += &person
        .types("locations sync fresh --now --timeout=100ms")
        .await;
    assert_snapshot!(all);
    let asked = api.stored("backupstoragelocations", "fresh").unwrap();
    let request = asked["metadata"]["annotations"][SYNC_REQUEST_ANNOTATION]
        .as_str()
        .unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(request).unwrap(),
        json!({ "id": NOW })
    );
}

#[tokio::test]
async fn so_many_removals_are_agreed_to_and_no_more() {
    let api = cluster().await;
    let person = Person::at(&api);
    let mut all = person
        .types("locations sync default --accept-removals=3")
        .await;
    all += &person
        .types("locations sync other --accept-removals=39")
        .await;
    assert!(
        api.seen().iter().all(|request| request.starts_with("GET")),
        "{:?}",
        api.seen()
    );
    all += &person
        .types("locations sync other --accept-removals=40 --timeout=100ms")
        .await;
    assert_snapshot!(all);
    let asked = api.stored("backupstoragelocations", "other").unwrap();
    let request = asked["metadata"]["annotations"][SYNC_REQUEST_ANNOTATION]
        .as_str()
        .unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(request).unwrap(),
        json!({ "id": NOW, "remove": 40 })
    );
}

#[tokio::test]
async fn comparisons_are_listed_in_the_ways_of_every_list() {
    let api = cluster().await;
    let elsewhere = json!({ "metadata": { "namespace": "backups" } });
    api.has(with(named("elsewhere", Some(&mixed())), &elsewhere));
    transcript!(
        Person::at(&api),
        "locations sync -A",
        "locations sync --no-headers",
        "locations sync -A default",
        "locations sync default --now -w"
    );
}

#[tokio::test]
async fn following_comparisons_appends_a_row_for_each_change() {
    let at = |pass: &Summary| {
        with(
            named("default", Some(pass)),
            &json!({ "metadata": { "resourceVersion": "7" } }),
        )
    };
    // A separate cluster for each watch: one that was stopped may still send requests.
    let watched = async |line: &str, until: &str| {
        let api = FakeApi::with([named("default", None)]).await;
        let changes = events(&[("MODIFIED", at(&mixed())), ("MODIFIED", at(&refused()))]);
        api.on_get("?watch", changes);
        Person::at(&api).watches(line, until).await
    };
    let seen = watched("locations sync -w", "40").await;
    assert_snapshot!(seen);
    let seen = watched("locations sync -w -o json", "\"refused\": 40").await;
    assert!(
        seen.contains("\"refused\": 0") && !seen.contains("\"spec\""),
        "{seen}"
    );
}
