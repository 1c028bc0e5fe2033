//! Resource modifiers on items of a restore.

use backup_actions::restore::modifiers;

use super::*;

/// Restores items with these rules; a second run finds the objects of the first.
async fn modified(fake: &FakeApi, items: Items<'_>, spec: &Value, rules: &Value) -> Report {
    let text = json!({"version": "v1", "resourceModifierRules": rules}).to_string();
    let rules = modifiers::read(modifiers::FIELD, &[("k".to_owned(), text)].into()).unwrap();
    let (claimed, calls) = (Footprint::everything(), fake::calls(fake));
    let world = World {
        modifiers: Some(rules),
        ..World::new(fake, &calls, &claimed)
    };
    let (report, done) = world.run(items, spec.clone()).await;
    done.unwrap();
    report
}

fn rule(group_resource: &str, patch: &Value) -> Value {
    json!({"conditions": {"groupResource": group_resource}, "mergePatches": [{"patchData": patch.to_string()}]})
}

#[tokio::test]
async fn an_item_is_created_as_its_modifiers_say_and_is_no_difference_later() {
    let mut pod = item("v1", "Pod", "p");
    pod["spec"] = json!({"nodeName": "old"});
    let items = [
        ("pods", Some("a"), pod),
        stored_item("configmaps", "v1 ConfigMap", "a/c"),
    ];
    let rules = json!([rule(
        "pods",
        &json!({"spec": {"nodeName": "new"}, "metadata": {"namespace": "b"}})
    )]);
    let fake = fake::server();
    let spec = json!({"namespaceMapping": {"a": "z"}});
    let report = modified(&fake, &items, &spec, &rules).await;
    assert_eq!(report.counts(), (0, 0));
    let made = fake.get("/api/v1/namespaces/z/pods/p").unwrap();
    assert_eq!(
        (&made["spec"]["nodeName"], &made["metadata"]["namespace"]),
        (&json!("new"), &json!("z"))
    );
    assert!(fake.under("/api/v1/namespaces/b").is_empty());
    let report = modified(&fake, &items, &spec, &rules).await;
    assert_eq!(report.counts(), (0, 0), "it is what it should be");
    fake.edit("/api/v1/namespaces/z/pods/p", |pod| {
        pod["spec"]["nodeName"] = json!("other");
    });
    let report = modified(&fake, &items, &spec, &rules).await;
    assert_eq!(report.counts(), (1, 0), "it differs");
}

#[tokio::test]
async fn a_rule_that_applies_to_nothing_is_a_warning() {
    let items = [stored_item("configmaps", "v1 ConfigMap", "a/c")];
    let rules = json!([
        rule("configmap", &json!({"data": {"k": "v"}})),
        rule("configmaps", &json!({"data": {"k": "v"}}))
    ]);
    let report = modified(&fake::server(), &items, &json!({}), &rules).await;
    let warnings = report.into_files().results.warnings.velero;
    assert!(
        warnings.len() == 1 && warnings[0].contains("resourceModifierRules[0]"),
        "{warnings:?}"
    );
}

#[tokio::test]
async fn a_rule_that_cannot_be_followed_is_an_error_and_the_item_is_restored() {
    let items = [stored_item("configmaps", "v1 ConfigMap", "a/c")];
    let rules = json!([
        {"conditions": {"groupResource": "configmaps"}, "patches": [{"operation": "remove", "path": "/data/x"}]},
        rule("configmaps", &json!({"data": {"k": "v"}})),
    ]);
    let fake = fake::server();
    let report = modified(&fake, &items, &json!({}), &rules).await;
    assert_eq!(
        fake.get("/api/v1/namespaces/a/configmaps/c").unwrap()["data"],
        json!({"k": "v"})
    );
    let results = report.into_files().results;
    let error = &results.errors.namespaces["a"][0];
    assert_says!(error, "ConfigMap \"c\"", "resourceModifierRules[0]");
}

#[tokio::test]
async fn a_modifier_gets_around_no_check() {
    let items = [stored_item("configmaps", "v1 ConfigMap", "velero/c")];
    for (patch, why) in [
        (
            json!({"metadata": {"name": "backup-lock-velero"}}),
            "a restore never writes",
        ),
        (
            json!({"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": "backup-lock-velero"}}),
            "a restore never writes",
        ),
        (
            json!({"kind": "Backup", "apiVersion": "velero.io/v1"}),
            "does not serve",
        ),
        (json!({"kind": "Namespace"}), "its type has none"),
        (
            json!({"metadata": {"name": "../x"}}),
            "not one that the API server takes",
        ),
        (
            json!({"metadata": null}),
            "not one that the API server takes",
        ),
    ] {
        let fake = fake::server();
        let report = modified(&fake, &items, &json!({}), &json!([rule("*", &patch)])).await;
        assert_eq!(posts(&fake), ["/api/v1/namespaces"], "{patch}");
        let results = report.into_files().results;
        assert!(
            results.errors.namespaces["velero"][0].contains(why),
            "{patch} {results:?}"
        );
    }
}
