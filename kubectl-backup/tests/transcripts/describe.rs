use axum::http::Method;
use backup_lock::{Footprint, Ledger, ObjectKey, ledger::Ask};
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::{
    fake_api::{FakeApi, Fault, failure},
    person::Person,
    samples::{completed_backup, completed_restore, event, lease, location, new_backup, with},
};

async fn describe(backup: Value) -> String {
    let api = FakeApi::start().await;
    let line = format!("kubectl backup describe {}", backup["metadata"]["name"].as_str().unwrap());
    api.has("backups", backup).has("backupstoragelocations", location("Available", ""));
    Person::at(&api).types(&line).await
}

#[tokio::test]
async fn a_completed_backup() {
    assert_snapshot!(describe(completed_backup("nightly-20261103030000")).await);
}

#[tokio::test]
async fn a_partially_failed_backup_with_events() {
    let api = FakeApi::start().await;
    let name = "nightly-20261103030000";
    let status = json!({"status": {"phase": "PartiallyFailed", "errors": 2, "warnings": 17, "hookStatus": {"hooksAttempted": 4, "hooksFailed": 1}, "backupItemOperationsAttempted": 31, "backupItemOperationsCompleted": 29, "backupItemOperationsFailed": 2}});
    api.has("backups", with(completed_backup(name), &status))
        .has("backupstoragelocations", location("Available", ""))
        .has(
            "events",
            event(
                1,
                "Backup",
                name,
                "Warning",
                "ItemFailed",
                "pods/db-0: volume pgdata was not saved",
                "2026-11-03T03:09:00Z",
            ),
        )
        .has(
            "events",
            event(
                2,
                "Backup",
                name,
                "Warning",
                "ItemFailed",
                "pods/db-0: volume pgdata was not saved",
                "2026-11-03T03:10:00Z",
            ),
        )
        .has(
            "events",
            event(3, "Backup", name, "Normal", "Finished", "PartiallyFailed", "2026-11-03T03:14:12Z"),
        );
    let person = Person::at(&api);
    assert_snapshot!(
        "describe partially failed",
        person.types(&format!("kubectl backup describe {name}")).await
    );
    assert_snapshot!("describe json", person.types(&format!("kubectl backup describe {name} -o json")).await);
}

#[tokio::test]
async fn a_backup_that_failed_validation() {
    let status = json!({"spec": {"storageLocation": "gone"}, "status": {"phase": "FailedValidation", "validationErrors": ["an existing backup storage location was not specified: \"gone\"", "encountered labelSelector as well as orLabelSelectors"]}});
    assert_snapshot!(describe(with(new_backup("wrong"), &status)).await);
}

#[tokio::test]
async fn a_backup_that_failed() {
    let status = json!({"status": {"phase": "Failed", "failureReason": "the bucket is full"}});
    assert_snapshot!(describe(with(completed_backup("full"), &status)).await);
}

#[tokio::test]
async fn a_backup_whose_end_is_blocked() {
    let over = json!({"metadata": {"annotations": {"backup-controller/blocked": "s3://acme-dr answers 503: retrying"}}, "status": {"phase": "Finalizing", "startTimestamp": "2026-11-03T05:00:00Z", "progress": {"totalItems": 10, "itemsBackedUp": 10}}});
    assert_snapshot!(describe(with(new_backup("stuck"), &over)).await);
}

#[tokio::test]
async fn a_backup_that_nobody_picks_up() {
    let over = json!({"metadata": {"creationTimestamp": "2026-11-03T05:04:12Z"}, "spec": {"includedNamespaces": ["shop", "db"], "orLabelSelectors": [{"matchLabels": {"app": "a"}}, {"matchLabels": {"app": "b"}}]}});
    assert_snapshot!(describe(with(new_backup("lonely"), &over)).await);
}

#[tokio::test]
async fn a_phase_of_a_newer_server_is_shown_and_not_judged() {
    assert_snapshot!(
        describe(with(completed_backup("newer"), &json!({"status": {"phase": "Compacting"}}))).await
    );
}

#[tokio::test]
async fn a_completed_backup_in_a_location_that_is_unavailable() {
    let api = FakeApi::start().await;
    api.has("backups", completed_backup("nightly")).has(
        "backupstoragelocations",
        location("Unavailable", "AccessDenied: the key has no right to list\nthe bucket"),
    );
    assert_snapshot!(Person::at(&api).types("kubectl backup describe nightly").await);
}

#[tokio::test]
async fn a_backup_that_waits_for_a_restore_names_the_holder() {
    let api = FakeApi::start().await;
    let mut ledger = Ledger::default();
    let restore = ObjectKey::restore("velero", "back-again");
    ledger.admit(&restore, "r", &Footprint::everything(), "2026-11-03T05:10:12Z", &Ask::default()).unwrap();
    ledger.activate(&restore, "r").unwrap();
    api.has("backups", with(new_backup("shop"), &json!({"spec": {"includedNamespaces": ["shop"]}, "status": {"phase": "Queued", "queuePosition": 1}}))).has("leases", lease(&ledger).await);
    assert_snapshot!(Person::at(&api).types("kubectl backup describe shop").await);
}

#[tokio::test]
async fn a_restore_that_waits_for_its_turn_names_those_before_it() {
    let api = FakeApi::start().await;
    let mut ledger = Ledger::default();
    let everything = Footprint::everything();
    let holder = ObjectKey::backup("velero", "nightly");
    ledger.admit(&holder, "b", &everything, "2026-11-03T05:10:12Z", &Ask::default()).unwrap();
    ledger.activate(&holder, "b").unwrap();
    for (name, since) in [("late", "2026-11-03T05:11:12Z"), ("later", "2026-11-03T05:12:12Z")] {
        let queue = Ask { queue: true, forced: None };
        let key = ObjectKey::restore("velero", name);
        ledger.admit(&key, &format!("uid-of-{name}"), &everything, since, &queue).unwrap();
    }
    let waits = json!({"metadata": {"creationTimestamp": "2026-11-03T05:11:12Z"}, "status": null});
    api.has("restores", with(completed_restore("late", "nightly"), &waits))
        .has("backups", completed_backup("nightly"))
        .has("leases", lease(&ledger).await);
    assert_snapshot!(Person::at(&api).types("kubectl backup restore describe late").await);
}

#[tokio::test]
async fn a_running_backup_shows_its_own_claim() {
    let api = FakeApi::start().await;
    let mut ledger = Ledger::default();
    let key = ObjectKey::backup("velero", "shop");
    ledger
        .admit(&key, "uid-of-shop", &Footprint::namespaces(["shop"]), "2026-11-03T05:12:12Z", &Ask::default())
        .unwrap();
    ledger.activate(&key, "uid-of-shop").unwrap();
    let over = json!({"spec": {"includedNamespaces": ["shop"]}, "status": {"phase": "InProgress", "errors": 1, "startTimestamp": "2026-11-03T05:13:00Z", "progress": {"totalItems": 300, "itemsBackedUp": 120}}});
    api.has("backups", with(new_backup("shop"), &over)).has("leases", lease(&ledger).await);
    assert_snapshot!(Person::at(&api).types("kubectl backup describe shop").await);
}

#[tokio::test]
async fn a_part_that_can_not_be_fetched_says_so_in_its_place_and_fails_nothing() {
    let api = FakeApi::start().await;
    let forbidden = |what: &str| {
        Fault::Answer(
            403,
            failure(
                403,
                "Forbidden",
                &format!("{what} is forbidden: User \"jane\" cannot get it"),
                &json!({}),
            ),
        )
    };
    api.has("backups", completed_backup("nightly"))
        .next(Method::GET, "/default", forbidden("backupstoragelocations.velero.io \"default\""))
        .next(
            Method::GET,
            "/backup-lock-velero",
            forbidden("leases.coordination.k8s.io \"backup-lock-velero\""),
        )
        .next(
            Method::GET,
            "/deletebackuprequests",
            Fault::Answer(500, failure(500, "InternalError", "etcdserver: request timed out", &json!({}))),
        )
        .next(Method::GET, "/events", Fault::Hang);
    assert_snapshot!(Person::at(&api).types("kubectl backup describe nightly").await);
}

#[tokio::test]
async fn a_backup_whose_deletion_failed_shows_why() {
    let api = FakeApi::start().await;
    let request = json!({
        "apiVersion": "velero.io/v1", "kind": "DeleteBackupRequest",
        "metadata": {"name": "nightly-uid-of-n", "namespace": "velero", "creationTimestamp": "2026-11-03T05:00:12Z", "labels": {"velero.io/backup-name": "nightly"}},
        "spec": {"backupName": "nightly"}, "status": {"phase": "Processed", "errors": ["the bucket refuses: object lock until 3 Dec"]},
    });
    api.has("backups", with(completed_backup("nightly"), &json!({"status": {"phase": "Deleting"}})))
        .has("deletebackuprequests", request)
        .has("backupstoragelocations", location("Available", ""));
    assert_snapshot!(Person::at(&api).types("kubectl backup describe nightly").await);
}

#[tokio::test]
async fn restores_are_described_with_their_source() {
    let api = FakeApi::start().await;
    api.has("backups", completed_backup("nightly"))
        .has("backupstoragelocations", location("Available", ""))
        .has("restores", completed_restore("whole", "nightly"))
        .has("restores", with(completed_restore("half", "gone"), &json!({"spec": {"namespaceMapping": {"shop": "shop-copy"}, "existingResourcePolicy": "update", "includedNamespaces": ["shop"]}, "status": {"phase": "PartiallyFailed", "errors": 1, "warnings": 1}})))
        .has("restores", json!({"apiVersion": "velero.io/v1", "kind": "Restore", "metadata": {"name": "early", "namespace": "velero", "uid": "u", "creationTimestamp": "2026-11-03T05:14:02Z"}, "spec": {"backupName": "gone"}}));
    let person = Person::at(&api);
    let mut all = String::new();
    for name in ["whole", "half", "early"] {
        all += &person.types(&format!("kubectl backup restore describe {name}")).await;
    }
    assert_snapshot!(all);
    assert_snapshot!(
        "restore describe yaml",
        person.types("kubectl backup restore describe whole -o yaml").await
    );
}

#[tokio::test]
async fn texts_from_the_cluster_can_not_write_to_the_terminal() {
    let seen = describe(with(
        completed_backup("evil"),
        &json!({"status": {"phase": "Failed", "failureReason": "\u{1b}]0;owned\u{7}\u{1b}[2Jbye"}}),
    ))
    .await;
    assert!(!seen.contains('␛') && !seen.contains('\u{7}'), "{seen}");
}
