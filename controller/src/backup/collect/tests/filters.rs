//! Filter policies of a backup.

use serde_json::json;

use super::{
    actions::action,
    harness::{Setup, cluster, id, item, namespace, pod},
};
use backup_actions::backup::BackupActionOutput;
use backup_core::resource_policy::{self, ResourcePolicy};
use backup_testkit::FakeApi;

fn policy(text: &str) -> ResourcePolicy {
    let data = [("p".to_owned(), format!("version: v1\n{text}"))].into();
    resource_policy::read(&data).unwrap()
}

fn labelled(space: &str, name: &str) -> serde_json::Value {
    let mut map = item(space, name);
    map["metadata"]["labels"] = json!({ "app": "web" });
    map
}

fn maps() -> FakeApi {
    let of_a = vec![
        item("a", "plain"),
        labelled("a", "app-1"),
        labelled("a", "other"),
    ];
    let of_b = vec![item("b", "plain")];
    cluster()
        .with_list("/api/v1/namespaces/a/configmaps", of_a.clone())
        .with_list("/api/v1/namespaces/b/configmaps", of_b.clone())
        .with_list("/api/v1/configmaps", [of_a, of_b].concat())
        .with_list("/api/v1/namespaces/a/pods", vec![pod("p", &json!({}))])
        .with_list("/api/v1/pods", vec![pod("p", &json!({}))])
        .with_list("/apis/example.com/v1/namespaces/a/widgets", vec![])
        .with_list("/apis/example.com/v1/namespaces/b/widgets", vec![])
}

const OF_A: &str = "namespacedFilterPolicies: [{namespaces: [a], resourceFilters: [\
                    {kinds: [ConfigMap], names: ['app-*'], labelSelector: {matchLabels: {app: web}}}]}]";

/// For all namespaces, and for some that are listed together.
#[tokio::test(start_paused = true)]
async fn a_policy_says_what_of_its_namespaces_is_in_the_backup() {
    for spec in [
        json!({ "includedNamespaceScopedResources": ["configmaps", "pods"] }),
        json!({ "includedNamespaces": ["a", "b"], "includedNamespaceScopedResources": ["configmaps", "pods"] }),
    ] {
        let outcome = Setup {
            spec,
            api: maps(),
            policy: Some(policy(OF_A)),
            ..Setup::default()
        }
        .collect()
        .await;
        let names: Vec<&str> = outcome
            .names()
            .into_iter()
            .filter(|name| !name.starts_with("namespaces/"))
            .collect();
        assert_eq!(names, ["configmaps/a/app-1", "configmaps/b/plain"]);
        assert!(
            outcome.errors.is_empty() && outcome.warnings.is_empty(),
            "{:?}",
            outcome.errors
        );
        assert!(
            !outcome
                .paths
                .iter()
                .any(|path| path.ends_with("/a/configmaps")),
            "one page has them all"
        );
        assert!(
            !outcome.paths.iter().any(|path| path.ends_with("/a/pods")),
            "nothing of it is selected"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn names_leave_out_what_another_item_asks_for() {
    let asks = |name: &'static str| {
        action("x/asks", "pods", move |_| {
            let additional = vec![id("configmaps", "a", name)];
            Ok(BackupActionOutput {
                additional,
                ..BackupActionOutput::default()
            })
        })
    };
    let text = "namespacedFilterPolicies: [{namespaces: [a], resourceFilters: [{kinds: [pods]}, {kinds: [configmaps], names: [app-1]}]}]";
    for (name, expected) in [("app-1", true), ("plain", false)] {
        let api = maps();
        api.put(
            &format!("/api/v1/namespaces/a/configmaps/{name}"),
            item("a", name),
        );
        let spec = json!({ "includedNamespaces": ["a"] });
        let setup = Setup {
            spec,
            api,
            policy: Some(policy(text)),
            actions: vec![asks(name)],
            ..Setup::default()
        };
        let outcome = setup.collect().await;
        assert_eq!(
            outcome
                .names()
                .contains(&format!("configmaps/a/{name}").as_str()),
            expected,
            "{name}"
        );
        assert!(outcome.names().contains(&"pods/a/p"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_of_the_cluster_selects_namespaces_beside_those_that_have_items() {
    let text = "clusterScopedFilterPolicy: {resourceFilters: [{kinds: [Namespace], names: [b]}, {kinds: [Gone]}]}";
    let api = cluster()
        .with_list("/api/v1/configmaps", vec![item("a", "one")])
        .with_list(
            "/api/v1/namespaces",
            vec![namespace("a"), namespace("b"), namespace("empty")],
        );
    let outcome = Setup {
        spec: json!({}),
        api,
        policy: Some(policy(text)),
        ..Setup::default()
    }
    .collect()
    .await;
    assert_eq!(
        outcome.names(),
        ["configmaps/a/one", "namespaces/a", "namespaces/b"]
    );
    assert_eq!(outcome.warnings.len(), 1, "{:?}", outcome.warnings);
}
