use std::time::Duration;

use backup_actions::restore::transform;
use serde_json::{Value, json};

use super::*;
use crate::restore::tests::fake::{self, FakeApi, Fault};

const COLLECTION: &str = "/api/v1/namespaces/a/configmaps";
const OBJECT: &str = "/api/v1/namespaces/a/configmaps/x";
const CREATED: &str = "2026-01-01T00:00:00Z";

fn rules() -> RestoreRules {
    RestoreRules {
        backup_label: "b".to_owned(),
        restore_label: "r".to_owned(),
        ..RestoreRules::default()
    }
}

fn wanted() -> Object {
    let item = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"k": "backup"}});
    transform::rewritten(item.as_object().unwrap(), "configmaps", Some("a"), &rules())
}

fn in_cluster(value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"k": value},
        "metadata": {"name": "x", "namespace": "a", "uid": "u", "resourceVersion": "1", "creationTimestamp": CREATED},
    })
}

const TARGET: Target<'_> = Target {
    group_resource: "configmaps",
    kind: "ConfigMap",
    collection: COLLECTION,
    namespace: Some("a"),
    name: "x",
    unmodified: None,
    controller: None,
};

fn policy(rules: &RestoreRules, update: bool, resumed: bool) -> Policy<'_> {
    Policy {
        rules,
        update,
        own: "velero",
        restore_created: Some(CREATED),
        resumed,
    }
}

async fn applied(fake: &FakeApi, update: bool) -> ItemResult {
    item(
        &fake::calls(fake),
        TARGET,
        &wanted(),
        policy(&rules(), update, false),
        None,
    )
    .await
    .unwrap()
}

#[test]
fn only_a_claim_that_names_no_volume_is_unbound() {
    let claim = Target {
        group_resource: "persistentvolumeclaims",
        kind: "PersistentVolumeClaim",
        ..TARGET
    };
    for (target, spec, expected) in [
        (claim, json!({"spec": {"storageClassName": "fast"}}), true),
        (claim, json!({}), true),
        (claim, json!({"spec": {"volumeName": ""}}), true),
        (claim, json!({"spec": {"volumeName": "pv-1"}}), false),
        (TARGET, json!({}), false),
    ] {
        let found = spec.as_object().unwrap();
        assert_eq!(is_unbound_claim(target, found), expected, "{spec}");
    }
}

#[tokio::test]
async fn what_is_not_there_is_created_with_one_request() {
    let fake = fake::server();
    assert_eq!(
        applied(&fake, false).await,
        ItemResult::quiet(Outcome::Created)
    );
    assert_eq!(fake.log(), [format!("POST {COLLECTION}")]);
    assert_eq!(fake.get(OBJECT).unwrap()["data"]["k"], "backup");
}

#[tokio::test]
async fn what_is_there_and_equal_is_skipped_silently() {
    let fake = fake::server();
    fake.put(OBJECT, in_cluster("backup"));
    for update in [false, true] {
        assert_eq!(
            applied(&fake, update).await,
            ItemResult::quiet(Outcome::Skipped)
        );
    }
    assert!(!fake.log().iter().any(|line| line.starts_with("PATCH")));
}

#[tokio::test]
async fn what_is_there_and_differs_is_left_with_a_warning() {
    let fake = fake::server();
    fake.put(OBJECT, in_cluster("cluster"));
    let before = fake.get(OBJECT);
    let done = applied(&fake, false).await;
    assert_eq!((done.outcome, done.error), (Outcome::Skipped, None));
    assert_says!(done.warning.unwrap(), "ConfigMap \"x\" exists and differs");
    assert_eq!(fake.get(OBJECT), before, "untouched");
}

#[tokio::test]
async fn what_is_there_and_cannot_be_read_is_a_warning() {
    let fake = fake::faulty(|request| match request.method.as_str() {
        "GET" => Some(Fault::refuse(403, "Forbidden", "not for you")),
        _ => None,
    });
    fake.put(OBJECT, in_cluster("cluster"));
    let done = applied(&fake, true).await;
    assert_eq!((done.outcome, done.error), (Outcome::Skipped, None));
    let warning = done.warning.unwrap();
    assert_says!(warning, "could not be compared", "not for you");
}

#[tokio::test]
async fn the_policy_update_makes_it_what_the_backup_holds() {
    let fake = fake::server();
    fake.put(OBJECT, in_cluster("cluster"));
    assert_eq!(
        applied(&fake, true).await,
        ItemResult::quiet(Outcome::Updated)
    );
    assert_eq!(fake.get(OBJECT).unwrap()["data"]["k"], "backup");
}

#[tokio::test]
async fn what_says_that_it_belongs_to_the_installation_is_never_changed() {
    for (own, expected) in [("a", "cluster"), ("velero", "backup")] {
        let fake = fake::server();
        let mut object = in_cluster("cluster");
        object["metadata"]["labels"] = json!({ "app.kubernetes.io/part-of": "backup" });
        fake.put(OBJECT, object);
        let rules = rules();
        let policy = Policy {
            own,
            ..policy(&rules, true, false)
        };
        let done = item(&fake::calls(&fake), TARGET, &wanted(), policy, None)
            .await
            .unwrap();
        assert_eq!(fake.get(OBJECT).unwrap()["data"]["k"], expected, "{own}");
        let says = done
            .warning
            .is_some_and(|warning| warning.contains("what this installation works with"));
        assert_eq!(says, own == "a", "{own}");
    }
}

#[tokio::test]
async fn an_update_that_someone_overtakes_compares_again() {
    let fake = fake::faulty(|request| match (request.method.as_str(), request.earlier) {
        ("PATCH", 0) => Some(Fault::refuse(
            409,
            "Conflict",
            "the object has been modified",
        )),
        _ => None,
    });
    fake.put(OBJECT, in_cluster("cluster"));
    assert_eq!(
        applied(&fake, true).await,
        ItemResult::quiet(Outcome::Updated)
    );
    assert_eq!(
        fake.log()
            .iter()
            .filter(|line| line.starts_with("GET"))
            .count(),
        2
    );
}

#[tokio::test]
async fn an_update_that_is_refused_is_a_warning() {
    let fake = fake::faulty(|request| match request.method.as_str() {
        "PATCH" => Some(Fault::refuse(422, "Invalid", "field is immutable")),
        _ => None,
    });
    fake.put(OBJECT, in_cluster("cluster"));
    let done = applied(&fake, true).await;
    assert_eq!(done.outcome, Outcome::Skipped);
    assert!(done.warning.unwrap().ends_with("field is immutable"));
}

#[tokio::test]
async fn an_item_is_created_after_the_server_failed_once() {
    let fake = fake::faulty(|request| {
        if request.earlier == 0 {
            Some(Fault::refuse(500, "InternalError", "x"))
        } else {
            None
        }
    });
    assert_eq!(
        applied(&fake, false).await,
        ItemResult::quiet(Outcome::Created)
    );
}

#[tokio::test]
async fn a_creation_whose_answer_was_lost_counts_as_created() {
    let fake = fake::faulty(|request| match (request.method.as_str(), request.earlier) {
        ("POST", 0) => Some(Fault::lose_answer()),
        _ => None,
    });
    assert_eq!(
        applied(&fake, false).await,
        ItemResult::quiet(Outcome::Created)
    );
}

#[tokio::test]
async fn an_object_of_an_earlier_run_counts_as_created() {
    let fake = fake::server();
    applied(&fake, false).await;
    let mut changed = fake.get(OBJECT).unwrap();
    changed["data"]["k"] = json!("changed");
    fake.put(OBJECT, changed);
    let (rules, calls) = (rules(), fake::calls(&fake));
    let again = item(&calls, TARGET, &wanted(), policy(&rules, false, true), None)
        .await
        .unwrap();
    assert_eq!(again, ItemResult::quiet(Outcome::Created));
    let first_run = item(
        &calls,
        TARGET,
        &wanted(),
        policy(&rules, false, false),
        None,
    )
    .await
    .unwrap();
    assert!(
        first_run.warning.is_some(),
        "without a restart it is a difference"
    );
}

#[tokio::test]
async fn what_is_being_deleted_is_waited_for_and_created_again() {
    let fake = fake::server();
    let mut going = in_cluster("cluster");
    going["metadata"]["deletionTimestamp"] = json!(CREATED);
    fake.put(OBJECT, going.clone());
    let gone = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        fake.delete(OBJECT);
    };
    let (done, ()) = futures::join!(applied(&fake, false), gone);
    assert_eq!(done, ItemResult::quiet(Outcome::Created));
    assert_eq!(fake.get(OBJECT).unwrap()["data"]["k"], "backup");
}

#[tokio::test(start_paused = true)]
async fn what_is_being_deleted_for_ever_is_an_error() {
    let fake = fake::server();
    let mut going = in_cluster("backup");
    going["metadata"]["deletionTimestamp"] = json!(CREATED);
    fake.put(OBJECT, going);
    for update in [false, true] {
        let done = applied(&fake, update).await;
        assert_eq!(done.outcome, Outcome::Failed);
        assert_says!(done.error.unwrap(), "still being deleted");
    }
}

#[tokio::test]
async fn a_volume_whose_claim_is_gone_is_freed_if_it_is_the_one_of_the_backup() {
    let collection = "/api/v1/persistentvolumes";
    let volume = |path: &str| {
        json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "x" },
            "spec": { "persistentVolumeReclaimPolicy": "Retain", "hostPath": { "path": path },
                "claimRef": { "namespace": "a", "name": "c", "uid": "old", "resourceVersion": "3" } } })
    };
    let rules = rules();
    let wanted = transform::rewritten(
        volume("/data").as_object().unwrap(),
        "persistentvolumes",
        None,
        &rules,
    );
    let target = Target {
        group_resource: "persistentvolumes",
        kind: "PersistentVolume",
        collection,
        namespace: None,
        ..TARGET
    };
    for (phase, path, update, outcome, uid) in [
        ("Released", "/data", false, Outcome::Updated, None),
        ("Bound", "/data", false, Outcome::Skipped, Some("old")),
        ("Released", "/other", false, Outcome::Failed, Some("old")),
        ("Released", "/other", true, Outcome::Updated, None),
        ("Bound", "/other", false, Outcome::Skipped, Some("old")),
    ] {
        let fake = fake::server();
        let mut found = volume(path);
        found["status"] = json!({ "phase": phase });
        fake.put(&format!("{collection}/x"), found);
        let done = item(
            &fake::calls(&fake),
            target,
            &wanted,
            policy(&rules, update, false),
            None,
        )
        .await
        .unwrap();
        assert_eq!(done.outcome, outcome, "{phase} {path} {update}: {done:?}");
        let after = fake.get(&format!("{collection}/x")).unwrap();
        assert_eq!(
            after["spec"]["claimRef"]["uid"].as_str(),
            uid,
            "{phase} {path} {update}"
        );
    }
}

#[tokio::test]
async fn a_refused_creation_is_an_error_with_the_servers_words() {
    let fake = fake::faulty(|_| Some(Fault::refuse(403, "Forbidden", "exceeded quota")));
    let done = applied(&fake, false).await;
    assert_eq!(done.outcome, Outcome::Failed);
    assert_eq!(
        done.error.as_deref(),
        Some("ConfigMap \"x\" could not be created: exceeded quota")
    );
}

/// If a webhook has refused the creation of an object, the message says whether it exists only if
/// that is known.
#[tokio::test(start_paused = true)]
async fn what_a_dead_webhook_hides_is_not_said_to_be_absent() {
    const CONVERSION: &str =
        "conversion webhook for example.com/v1, Kind=ConfigMap failed: Post \"https://x\": EOF";
    const ADMISSION: &str =
        "failed calling webhook \"hook.example.com\": failed to call webhook: EOF";
    for (create, read, found, outcome, text) in [
        (
            CONVERSION,
            None,
            None,
            Outcome::Failed,
            "\"x\" could not be created: conversion webhook",
        ),
        (
            ADMISSION,
            None,
            None,
            Outcome::Failed,
            "\"x\" could not be created: failed calling webhook",
        ),
        (
            CONVERSION,
            Some(CONVERSION),
            None,
            Outcome::Failed,
            "there is one in the cluster, which could not be compared: conv",
        ),
        (
            ADMISSION,
            Some("boom"),
            None,
            Outcome::Failed,
            "whether it was there already could not be read: boom",
        ),
        (ADMISSION, None, Some("backup"), Outcome::Skipped, ""),
        (
            ADMISSION,
            None,
            Some("cluster"),
            Outcome::Skipped,
            "exists and differs from the backup",
        ),
    ] {
        let fake = fake::faulty(move |request| match request.method.as_str() {
            "POST" => Some(Fault::refuse(500, "InternalError", create)),
            _ => read.map(|message| Fault::refuse(500, "InternalError", message)),
        });
        if let Some(value) = found {
            fake.put(OBJECT, in_cluster(value));
        }
        let done = applied(&fake, false).await;
        let said = done.error.or(done.warning).unwrap_or_default();
        assert_eq!(
            (done.outcome, said.contains(text)),
            (outcome, true),
            "{said}"
        );
        assert_eq!(said.is_empty(), text.is_empty(), "{said}");
    }
}

#[tokio::test]
async fn a_type_that_is_no_longer_served_is_an_error_of_the_item() {
    let fake = fake::faulty(|_| {
        Some(Fault::refuse(
            404,
            "NotFound",
            "the server could not find the requested resource",
        ))
    });
    let done = applied(&fake, false).await;
    assert_eq!(done.outcome, Outcome::Failed);
    assert_eq!(
        fake.log().len(),
        3,
        "a server that has just established a definition gets a few tries"
    );
}

#[tokio::test]
async fn a_service_that_holds_the_port_itself_is_compared() {
    let fake = fake::faulty(|request| match request.method.as_str() {
        "POST" => Some(Fault::refuse(
            422,
            "Invalid",
            "provided port is already allocated",
        )),
        _ => None,
    });
    let collection = "/api/v1/namespaces/a/services";
    fake.put(
        &format!("{collection}/x"),
        json!({"metadata": {"name": "x"}, "spec": {"clusterIP": "10.0.0.1"}}),
    );
    let (rules, service) = (rules(), json!({"metadata": {"name": "x"}, "spec": {}}));
    let item_ = transform::rewritten(service.as_object().unwrap(), "services", Some("a"), &rules);
    let target = Target {
        group_resource: "services",
        kind: "Service",
        collection,
        ..TARGET
    };
    let policy = Policy {
        restore_created: None,
        ..policy(&rules, false, false)
    };
    let done = item(&fake::calls(&fake), target, &item_, policy, None)
        .await
        .unwrap();
    assert_eq!(done, ItemResult::quiet(Outcome::Skipped));
    fake.delete(&format!("{collection}/x"));
    let done = item(&fake::calls(&fake), target, &item_, policy, None)
        .await
        .unwrap();
    assert!(
        done.error.unwrap().contains("already allocated"),
        "another service holds it"
    );
}
