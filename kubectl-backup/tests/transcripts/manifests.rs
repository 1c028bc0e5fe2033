//! `-f`, `--from-schedule --allow-partially-failed`, and every flag of restores.

use crate::prelude::*;

#[tokio::test]
async fn a_manifest_is_begun_with_and_flags_go_over_it() {
    let api = FakeApi::start().await;
    let person = Person::at(&api);
    person.writes(
        "shop.yaml",
        "apiVersion: velero.io/v1\nkind: Backup\nmetadata: {name: shop, namespace: elsewhere, uid: x, resourceVersion: \"7\", labels: {team: shop}}\n\
         spec: {includedNamespaces: [shop], ttl: 24h, hooks: {resources: [{name: sync, pre: [{exec: {command: [sync]}}]}]}, fieldOfANewerServer: 1}\n\
         status: {phase: Completed}\n",
    );
    let seen = person
        .types("create -f ~/shop.yaml --ttl=48h --labels=env=prod")
        .await;
    assert!(seen.ends_with("--- exit 0\n"), "{seen}");
    let stored = api.stored("backups", "shop").unwrap();
    assert_snapshot!(pretty(
        &json!({"labels": stored["metadata"]["labels"], "namespace": stored["metadata"]["namespace"], "spec": stored["spec"], "status": stored["status"]})
    ));
    person.writes(
        "pod.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: shop}\n",
    );
    person.writes("text", "a: [\n");
    transcript!(
        person,
        "create -f ~/pod.yaml",
        "create -f ~/text",
        "create -f ~/missing.yaml",
        "restore -f ~/shop.yaml",
        "create -f ~/shop.yaml --from-schedule=nightly"
    );
}

#[tokio::test]
async fn hooks_come_from_a_manifest_as_the_documentation_shows_it() {
    let page = include_str!("../../../docs/use/cli.md");
    let manifest = page
        .split("```yaml\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let api = FakeApi::start().await;
    let person = Person::at(&api);
    person.writes("hooks.yaml", manifest);
    let seen = person
        .types("create db-now -f ~/hooks.yaml --include-namespaces=db")
        .await;
    assert!(seen.ends_with("--- exit 0\n"), "{seen}");
    assert_snapshot!(pretty(&api.stored("backups", "db-now").unwrap()["spec"]));
}

#[tokio::test]
async fn every_field_of_a_restore_has_its_flag() {
    let api = FakeApi::with([
        with(completed_backup("nightly-1"), &json!({"status": {"startTimestamp": "2026-11-01T03:00:00Z"}})),
        with(
            completed_backup("nightly-2"),
            &json!({"status": {"phase": "PartiallyFailed", "startTimestamp": "2026-11-02T03:00:00Z"}}),
        ),
    ])
    .await;
    let line = "restore create again --from-schedule=nightly --allow-partially-failed --include-namespaces=shop --namespace-mappings=shop:copy \
                --restore-volumes=false --preserve-nodeports --existing-resource-policy=update --status-include-resources=deployments \
                --item-operation-timeout=1h --resource-modifier-configmap=changes --resource-policies-configmap=policies \
                --skip-default-resource-modifier --write-sparse-files --parallel-files-download=8 \
                --existing-volume-data-policy=none --delete-extra-files=false --prune=false --labels=a=b --annotations=c=d";
    let seen = Person::at(&api).types(line).await;
    assert!(seen.ends_with("--- exit 0\n"), "{seen}");
    let stored = api.stored("restores", "again").unwrap();
    assert_snapshot!(pretty(&stored["spec"]));
}

#[tokio::test]
async fn hooks_are_given_as_they_stand_in_a_manifest() {
    let person = Person::without_cluster();
    let hook = "--hook={name: flush, includedNamespaces: [db], pre: [{exec: {command: [/bin/sync], onError: Continue}}]}";
    let after =
        "--hook={name: warm, postHooks: [{exec: {command: [/warm.sh], waitForReady: true}}]}";
    let wrong = "--hook={name: flush, before: [{exec: {command: [/bin/sync]}}]}";
    let dry = ["--dry-run=client", "-o", "yaml"];
    let mut all = String::new();
    for words in [
        ["create", "now", hook],
        ["create", "now", wrong],
        ["restore", "--from-backup=now", after],
        ["restore", "--from-backup=now", hook],
    ] {
        all += &person.types_words(&[&words[..], &dry].concat()).await;
    }
    assert_snapshot!(all);
}
