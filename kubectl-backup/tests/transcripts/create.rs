use axum::http::Method;
use insta::assert_snapshot;
use serde_json::json;

use crate::{
    fake_api::{FakeApi, Fault, failure},
    person::Person,
    samples::completed_backup,
};

#[tokio::test]
async fn a_backup_is_created_from_flags() {
    let api = FakeApi::start().await;
    let person = Person::at(&api);
    assert_snapshot!(person.types("kubectl backup create").await);
    assert!(api.stored("backups", "backup-20261103051412").is_some());
    let line = "kubectl backup create shop --include-namespaces=shop,db --exclude-namespaces=db-test --include-resources=pods,deployments.apps \
                --exclude-resources=secrets --include-cluster-resources=false -l app=shop,tier!=cache --storage-location=default --ttl=168h --labels=team=shop,env=prod -o name";
    assert_snapshot!(person.types(line).await.lines().skip(1).collect::<Vec<_>>().join("\n"));
    let stored = api.stored("backups", "shop").unwrap();
    assert_snapshot!(
        serde_json::to_string_pretty(
            &json!({"labels": stored["metadata"]["labels"], "spec": stored["spec"]})
        )
        .unwrap()
    );
}

#[tokio::test]
async fn a_manifest_for_git_needs_no_cluster_and_has_no_status() {
    let person = Person::without_cluster();
    assert_snapshot!(
        person
            .types("kubectl backup create shop --include-namespaces=shop --ttl=168h --dry-run=client -o yaml")
            .await
    );
    assert_snapshot!(person.types("kubectl backup restore --from-backup=shop --name=again --namespace-mappings=shop:copy --dry-run=client -o yaml").await);
    assert_snapshot!(person.types("kubectl backup create shop --dry-run=client").await);
}

#[tokio::test]
async fn a_server_dry_run_stores_nothing() {
    let api = FakeApi::start().await;
    assert_snapshot!(Person::at(&api).types("kubectl backup create shop --dry-run=server").await);
    assert_snapshot!(Person::at(&api).types("kubectl backup create shop --dry-run=server -o yaml").await);
    assert!(api.stored("backups", "shop").is_none());
    assert!(api.seen()[0].contains("dryRun=All"), "{:?}", api.seen());
}

#[tokio::test]
async fn a_schedule_gives_its_template_and_flags_go_over_it() {
    let api = FakeApi::start().await;
    api.has("schedules", json!({
        "apiVersion": "velero.io/v1", "kind": "Schedule", "metadata": {"name": "nightly", "namespace": "velero", "labels": {"team": "ops"}},
        "spec": {"schedule": "0 3 * * *", "template": {"metadata": {"labels": {"tier": "gold"}}, "includedNamespaces": ["shop"], "ttl": "720h0m0s", "fieldOfANewerServer": 1}},
    }));
    let person = Person::at(&api);
    assert_snapshot!(person.types("kubectl backup create --from-schedule=nightly --ttl=24h").await);
    let stored = api.stored("backups", "nightly-20261103051412").unwrap();
    assert_eq!(stored["metadata"]["labels"], json!({"tier": "gold", "velero.io/schedule-name": "nightly"}));
    assert_eq!(
        stored["spec"],
        json!({"includedNamespaces": ["shop"], "ttl": "24h0m0s", "fieldOfANewerServer": 1})
    );
}

#[tokio::test]
async fn a_spec_that_can_not_be_right_is_not_sent() {
    let api = FakeApi::start().await;
    let line = "kubectl backup create wrong --include-namespaces=a --exclude-namespaces=a --include-resources=pods --include-cluster-scoped-resources=nodes";
    let seen = Person::at(&api).types(line).await;
    assert!(
        seen.contains("error: backup \"wrong\" is not valid:\n  spec") && seen.ends_with("--- exit 1\n"),
        "{seen}"
    );
    assert!(api.seen().is_empty());
}

#[tokio::test]
async fn a_refusal_is_shown_in_its_own_words() {
    let api = FakeApi::start().await;
    let words = "Restore velero/back-again (uid 1234) is InProgress since 2026-11-03T05:10:12Z and writes namespace shop; wait for it: kubectl backup restore describe back-again";
    let message =
        format!("admission webhook \"claims.backup-webhook.velero.io\" denied the request: {words}");
    let details = json!({"name": "shop", "group": "velero.io", "kind": "backups", "retryAfterSeconds": 30, "causes": [{"reason": "Conflict", "message": "…"}]});
    api.next(Method::POST, "/backups", Fault::Answer(403, failure(403, "Forbidden", &message, &details)));
    assert_snapshot!(Person::at(&api).types("kubectl backup create shop").await);
    assert_eq!(api.seen().len(), 1, "a refusal is not retried");
}

#[tokio::test]
async fn a_creation_whose_answer_was_lost_makes_one_object() {
    let api = FakeApi::start().await;
    let timeout =
        failure(504, "Timeout", "Timeout: request did not complete within requested timeout", &json!({}));
    api.next(Method::POST, "/backups", Fault::DoneBut(504, timeout.clone()));
    let person = Person::at(&api);
    assert_snapshot!(person.types("kubectl backup create shop --include-namespaces=shop").await);
    // The same accident, but the object of that name is another one.
    api.has("backups", completed_backup("other")).next(Method::POST, "/backups", Fault::Answer(504, timeout));
    assert_snapshot!(person.types("kubectl backup create other --include-namespaces=shop").await);
}

#[tokio::test]
async fn an_overloaded_webhook_is_asked_again() {
    let api = FakeApi::start().await;
    let message =
        "admission webhook \"claims.backup-webhook.velero.io\" denied the request: the ledger is busy";
    for _ in 0..2 {
        api.next(
            Method::POST,
            "/backups",
            Fault::Answer(503, failure(503, "ServiceUnavailable", message, &json!({"retryAfterSeconds": 1}))),
        );
    }
    let person = Person::at(&api);
    assert_snapshot!(person.types("kubectl backup create shop").await);
    for _ in 0..5 {
        api.next(
            Method::POST,
            "/backups",
            Fault::Answer(503, failure(503, "ServiceUnavailable", message, &json!({"retryAfterSeconds": 1}))),
        );
    }
    assert_snapshot!(person.types("kubectl backup create two").await);
}
