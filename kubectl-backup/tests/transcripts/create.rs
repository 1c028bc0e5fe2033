use crate::prelude::*;

#[tokio::test]
async fn a_backup_is_created_from_flags() {
    let api = FakeApi::start().await;
    let person = Person::at(&api);
    transcript!(person, "create");
    assert!(
        api.stored("backups", "backup-20261103051412-000000")
            .is_some()
    );
    let line = "create shop --include-namespaces=shop,db --exclude-namespaces=db-test --include-resources=pods,deployments.apps \
                --exclude-resources=secrets --include-cluster-resources=false -l app=shop,tier!=cache --storage-location=default --ttl=168h --labels=team=shop,env=prod -o name";
    assert_snapshot!(
        person
            .types(line)
            .await
            .lines()
            .skip(1)
            .collect::<Vec<_>>()
            .join("\n")
    );
    let stored = api.stored("backups", "shop").unwrap();
    assert_snapshot!(pretty(
        &json!({"labels": stored["metadata"]["labels"], "spec": stored["spec"]})
    ));
}

#[tokio::test]
async fn a_manifest_for_git_needs_no_cluster_and_has_no_status() {
    transcript!(
        Person::without_cluster(),
        "create shop --include-namespaces=shop --ttl=168h --dry-run=client -o yaml",
        "restore --from-backup=shop --name=again --namespace-mappings=shop:copy --dry-run=client -o yaml",
        "create shop --dry-run=client"
    );
}

#[tokio::test]
async fn a_server_dry_run_stores_nothing() {
    let api = FakeApi::start().await;
    transcript!(
        Person::at(&api),
        "create shop --dry-run=server",
        "create shop --dry-run=server -o yaml"
    );
    assert!(api.stored("backups", "shop").is_none());
    assert_says!(api.seen()[0], "dryRun=All");
}

#[tokio::test]
async fn a_schedule_gives_its_template_and_flags_go_over_it() {
    let api = FakeApi::with([json!({
        "apiVersion": "velero.io/v1", "kind": "Schedule", "metadata": {"name": "nightly", "namespace": "velero", "labels": {"team": "ops"}},
        "spec": {"schedule": "0 3 * * *", "template": {"metadata": {"labels": {"tier": "gold"}}, "includedNamespaces": ["shop"], "ttl": "720h0m0s", "fieldOfANewerServer": 1}},
    })]).await;
    transcript!(Person::at(&api), "create --from-schedule=nightly --ttl=24h");
    let stored = api
        .stored("backups", "nightly-20261103051412-000000")
        .unwrap();
    assert_eq!(
        stored["metadata"]["labels"],
        json!({"tier": "gold", "velero.io/schedule-name": "nightly"})
    );
    assert_eq!(
        stored["spec"],
        json!({"metadata": {"labels": {"tier": "gold"}}, "includedNamespaces": ["shop"], "ttl": "24h0m0s", "fieldOfANewerServer": 1})
    );
}

#[tokio::test]
async fn a_spec_that_cannot_be_right_is_not_sent() {
    let api = FakeApi::start().await;
    let line = "create wrong --include-namespaces=a --exclude-namespaces=a --include-resources=pods --include-cluster-scoped-resources=nodes";
    let seen = Person::at(&api).types(line).await;
    assert_says!(
        seen,
        "error: backup \"wrong\" is not valid:\n  spec",
        "--- exit 1\n"
    );
    assert!(api.seen().is_empty());
}

#[tokio::test]
async fn a_refusal_is_shown_in_its_own_words() {
    let api = FakeApi::start().await;
    let words = "Restore velero/back-again (uid 1234) is InProgress since 2026-11-03T05:10:12Z and writes namespace shop; wait for it: kubectl backup restore describe back-again";
    let message = format!(
        "admission webhook \"claims.backup-webhook.velero.io\" denied the request: {words}"
    );
    let details = json!({"name": "shop", "group": "velero.io", "kind": "backups", "retryAfterSeconds": 30, "causes": [{"reason": "Conflict", "message": "…"}]});
    api.on_post(
        "/backups",
        Fault::refused_with(403, "Forbidden", &message, details),
    );
    transcript!(Person::at(&api), "create shop");
    assert_eq!(api.seen().len(), 1, "a refusal is not retried");
}

#[tokio::test]
async fn a_creation_whose_answer_was_lost_makes_one_object() {
    let api = FakeApi::start().await;
    let message = "Timeout: request did not complete within requested timeout";
    api.on_post(
        "/backups",
        Fault::refused(504, "Timeout", message).but_done(),
    );
    let person = Person::at(&api);
    transcript!(person, "create shop --include-namespaces=shop");
    // The same failure, but the object of that name is another one.
    api.has(completed_backup("other"))
        .on_post("/backups", Fault::refused(504, "Timeout", message));
    transcript!(person, "create other --include-namespaces=shop");
}

#[tokio::test]
async fn an_overloaded_webhook_is_asked_again() {
    let api = FakeApi::start().await;
    let message = "admission webhook \"claims.backup-webhook.velero.io\" denied the request: the ledger is busy";
    let busy = Fault::refused_with(
        503,
        "ServiceUnavailable",
        message,
        json!({"retryAfterSeconds": 1}),
    );
    api.meets(&Method::POST, "/backups", vec![busy.clone(); 2]);
    let person = Person::at(&api);
    transcript!(person, "create shop");
    api.meets(&Method::POST, "/backups", vec![busy; 5]);
    transcript!(person, "create two");
}

#[tokio::test]
async fn an_empty_name_selects_nothing_and_is_refused() {
    let api = FakeApi::start().await;
    let seen = Person::at(&api)
        .types("create b --include-namespaces=")
        .await;
    assert_says!(seen, "--include-namespaces", "--- exit 2\n");
    assert!(api.seen().is_empty(), "{:?}", api.seen());
}

#[tokio::test]
async fn warnings_of_the_api_server_are_shown() {
    let api = FakeApi::start().await;
    let stored = serde_json::to_vec(&new_backup("b")).unwrap();
    let warning =
        r#"299 - "no installation works in namespace q1, so nothing runs this \"Backup\"""#;
    api.on_post(
        "/backups",
        Fault::Bytes(201, vec![("warning", warning.to_owned())], stored),
    );
    let seen = Person::at(&api).types("create b").await;
    assert_says!(
        seen,
        "Warning: no installation works in namespace q1, so nothing runs this \"Backup\"\n"
    );
    assert!(seen.ends_with("--- exit 0\n"), "{seen}");
}
