use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    fake::{Params, status},
    *,
};
use crate::runtime::leader::Leadership;

mod actions;
mod harness;

use harness::{Kept, cluster, collect, collect_with, item, namespace};

#[tokio::test]
async fn everything_is_collected_with_its_type_and_its_namespaces() {
    let outcome = collect(json!({}), cluster(), Kept::default()).await;
    outcome.result.as_ref().unwrap();
    assert_eq!(
        outcome.names(),
        [
            "configmaps/a/one",
            "configmaps/a/two",
            "configmaps/b/one",
            "namespaces/a",
            "namespaces/b",
            "namespaces/empty"
        ]
    );
    let (_, first) = &outcome.sink.items[0];
    assert_eq!((&first["apiVersion"], &first["kind"]), (&json!("v1"), &json!("ConfigMap")));
    assert_eq!(first["metadata"]["uid"], "a-one");
    assert!(outcome.errors.is_empty() && outcome.warnings.is_empty());
    assert_eq!(outcome.progress.status(true).total_items, 6);
}

#[tokio::test]
async fn what_is_excluded_by_label_or_on_its_way_out_is_left_out() {
    let mut excluded = item("a", "excluded");
    excluded["metadata"]["labels"] = json!({ "velero.io/exclude-from-backup": "true" });
    let mut going = item("a", "going");
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let api = cluster().list("/api/v1/configmaps", vec![excluded, going, item("a", "kept")]);
    let outcome = collect(json!({ "includedResources": ["configmaps"] }), api, Kept::default()).await;
    assert_eq!(outcome.names(), ["configmaps/a/kept"]);
    assert!(outcome.errors.is_empty());
}

#[tokio::test]
async fn chosen_namespaces_are_listed_one_by_one() {
    let api = cluster()
        .list("/api/v1/namespaces/a/configmaps", vec![item("a", "one")])
        .list("/api/v1/namespaces/a/pods", vec![])
        .list("/apis/example.com/v1/namespaces/a/widgets", vec![]);
    let outcome = collect(json!({ "includedNamespaces": ["a", "gone"] }), api, Kept::default()).await;
    assert_eq!(outcome.names(), ["configmaps/a/one", "namespaces/a"]);
    assert!(!outcome.paths.iter().any(|path| path == "/api/v1/configmaps"));
    assert!(outcome.errors[0].contains("namespace gone does not exist"), "{:?}", outcome.errors);
}

#[tokio::test]
async fn excluded_namespaces_are_left_out_of_the_common_list() {
    let spec = json!({ "excludedNamespaces": ["b"] });
    let outcome = collect(spec, cluster(), Kept::default()).await;
    assert_eq!(outcome.names(), ["configmaps/a/one", "configmaps/a/two", "namespaces/a", "namespaces/empty"]);
}

#[tokio::test]
async fn a_type_whose_list_fails_is_an_error_that_names_it_and_the_rest_is_intact() {
    let fault = |path: &str, _: &Params| (path == "/api/v1/pods").then(|| status(403, "pods is forbidden"));
    let outcome = collect(json!({}), cluster().fault(fault), Kept::default()).await;
    assert_eq!(outcome.errors.len(), 1);
    assert!(outcome.errors[0].contains("listing pods failed") && outcome.errors[0].contains("forbidden"));
    assert_eq!(outcome.names().len(), 6);
}

#[tokio::test]
async fn a_type_that_is_gone_is_a_warning() {
    let fault = |path: &str, _: &Params| path.ends_with("/widgets").then(|| status(404, "gone"));
    let outcome = collect(json!({}), cluster().fault(fault), Kept::default()).await;
    assert!(outcome.errors.is_empty());
    assert!(outcome.warnings[0].contains("widgets.example.com"), "{:?}", outcome.warnings);
}

#[tokio::test]
async fn a_list_that_begins_again_writes_nothing_twice() {
    let expired = std::sync::atomic::AtomicBool::new(false);
    let fault = move |path: &str, params: &Params| {
        let first = path == "/api/v1/configmaps"
            && params.contains_key("continue")
            && !expired.swap(true, std::sync::atomic::Ordering::Relaxed);
        first.then(|| status(410, "the provided continue parameter is too old"))
    };
    let outcome =
        collect(json!({ "includedResources": ["configmaps"] }), cluster().fault(fault), Kept::default())
            .await;
    assert_eq!(outcome.names(), ["configmaps/a/one", "configmaps/a/two", "configmaps/b/one"]);
    assert!(outcome.errors.is_empty());
}

#[tokio::test]
async fn selectors_that_overlap_write_an_item_once() {
    let mut both = item("a", "both");
    both["metadata"]["labels"] = json!({ "app": "web", "tier": "front" });
    let mut one = item("b", "one");
    one["metadata"]["labels"] = json!({ "tier": "front" });
    let api = cluster().list("/api/v1/configmaps", vec![both, one, item("empty", "none")]);
    let spec = json!({ "orLabelSelectors": [
        { "matchLabels": { "app": "web" } }, { "matchLabels": { "tier": "front" } }
    ] });
    let outcome = collect(spec, api, Kept::default()).await;
    // Namespaces come along with their items, and only those.
    assert_eq!(outcome.names(), ["configmaps/a/both", "configmaps/b/one", "namespaces/a", "namespaces/b"]);
}

#[tokio::test]
async fn the_definition_of_a_custom_resource_comes_along_with_it() {
    let name = "widgets.example.com";
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": { "name": name }
    });
    for (spec, comes) in [
        (json!({ "includedResources": ["widgets"] }), 1),
        (json!({}), 1),
        (json!({ "includeClusterResources": false }), 0),
        (json!({ "excludedResources": ["customresourcedefinitions"] }), 0),
    ] {
        let api = cluster()
            .list("/apis/example.com/v1/widgets", vec![item("a", "w")])
            .list("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", vec![definition.clone()])
            .object(&path, definition.clone());
        let outcome = collect(spec.clone(), api, Kept::default()).await;
        let found = outcome.names().iter().filter(|item| item.ends_with(name)).count();
        assert_eq!(found, comes, "{spec} {:?}", outcome.names());
        assert!(outcome.names().contains(&"widgets.example.com/a/w"));
    }
}

#[tokio::test]
async fn a_bad_object_is_reported_and_never_stops_the_others() {
    let api = cluster()
        .list("/api/v1/configmaps", vec![json!("no object"), json!({ "metadata": {} }), item("a", "x")]);
    let sink = Kept { refuse: Some("two"), ..Kept::default() };
    let outcome = collect(json!({ "includedResources": ["configmaps"] }), api, sink).await;
    assert_eq!(outcome.names(), ["configmaps/a/x"]);
    assert_eq!(outcome.errors.len(), 2);
    let sink = Kept { refuse: Some("two"), ..Kept::default() };
    let outcome = collect(json!({ "includedResources": ["configmaps"] }), cluster(), sink).await;
    assert_eq!(outcome.names(), ["configmaps/a/one", "configmaps/b/one"]);
    assert_eq!(outcome.errors.len(), 1);
}

#[tokio::test]
async fn what_a_pod_asks_for_and_is_not_done_is_an_error() {
    let mut pod = item("a", "db");
    pod["metadata"]["annotations"] = json!({ "pre.hook.backup.velero.io/command": "freeze" });
    let outcome = collect(json!({}), cluster().list("/api/v1/pods", vec![pod]), Kept::default()).await;
    assert!(outcome.errors[0].contains("a/db"), "{:?}", outcome.errors);
    assert!(outcome.names().contains(&"pods/a/db"));
}

#[tokio::test]
async fn a_namespace_on_its_way_out_is_not_stored() {
    let going = json!({ "metadata": { "name": "b" }, "status": { "phase": "Terminating" } });
    let outcome = collect(
        json!({}),
        cluster().list("/api/v1/namespaces", vec![namespace("a"), going]),
        Kept::default(),
    )
    .await;
    assert!(outcome.names().contains(&"namespaces/a") && !outcome.names().contains(&"namespaces/b"));
}

#[tokio::test]
async fn a_store_that_is_full_ends_the_collection() {
    let outcome = collect(json!({}), cluster(), Kept { full_after: Some(1), ..Kept::default() }).await;
    assert!(matches!(outcome.result, Err(CollectError::Store(_))));
}

#[tokio::test]
async fn a_deleted_backup_is_left_at_the_next_check() {
    let reins = Reins::of(Leadership::always(), CancellationToken::new());
    reins.delete();
    let outcome = collect_with(json!({}), cluster(), Kept::default(), &reins).await;
    assert!(matches!(outcome.result, Err(CollectError::Halt(Halt::Deleted))));
    assert!(outcome.sink.items.is_empty());
}
