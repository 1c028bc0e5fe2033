use backup_testkit::{Fault, Request};
use serde_json::json;

use super::*;

mod actions;
mod ahead;
mod blocks;
mod filters;
mod harness;
mod hooks;
mod snapshots;
mod versions;

use harness::{
    MemorySink, Setup, bound_claim, cancellation, cluster, collect, item, namespace, policy,
};

#[tokio::test(start_paused = true)]
async fn everything_is_collected_with_its_type_and_its_namespaces() {
    let outcome = collect(json!({}), cluster()).await;
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
    assert_eq!(
        (&first["apiVersion"], &first["kind"]),
        (&json!("v1"), &json!("ConfigMap"))
    );
    assert_eq!(first["metadata"]["uid"], "a-one");
    assert!(outcome.errors.is_empty() && outcome.warnings.is_empty());
    assert_eq!(outcome.progress.status(true).total_items, 6);
}

#[tokio::test(start_paused = true)]
async fn what_is_excluded_by_label_or_on_its_way_out_is_left_out() {
    let mut excluded = item("a", "excluded");
    excluded["metadata"]["labels"] = json!({ "velero.io/exclude-from-backup": "true" });
    let mut going = item("a", "going");
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let api = cluster().with_list(
        "/api/v1/configmaps",
        vec![excluded, going, item("a", "kept")],
    );
    let outcome = collect(json!({ "includedResources": ["configmaps"] }), api).await;
    assert_eq!(outcome.names(), ["configmaps/a/kept"]);
    assert!(outcome.errors.is_empty());
}

#[tokio::test(start_paused = true)]
async fn chosen_namespaces_are_listed_one_by_one() {
    let api = cluster()
        .with_list("/api/v1/namespaces/a/configmaps", vec![item("a", "one")])
        .with_list("/api/v1/namespaces/a/pods", vec![])
        .with_list("/apis/example.com/v1/namespaces/a/widgets", vec![]);
    let outcome = collect(json!({ "includedNamespaces": ["a", "gone"] }), api).await;
    assert_eq!(outcome.names(), ["configmaps/a/one", "namespaces/a"]);
    assert!(
        !outcome
            .paths
            .iter()
            .any(|path| path == "/api/v1/configmaps")
    );
    assert_says!(outcome.errors[0], "namespace gone does not exist");
}

#[tokio::test(start_paused = true)]
async fn excluded_namespaces_are_left_out_of_the_common_list() {
    let spec = json!({ "excludedNamespaces": ["b"] });
    let outcome = collect(spec, cluster()).await;
    assert_eq!(
        outcome.names(),
        [
            "configmaps/a/one",
            "configmaps/a/two",
            "namespaces/a",
            "namespaces/empty"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_is_an_error_that_names_its_type() {
    let fault = |request: &Request| {
        (request.path == "/api/v1/pods")
            .then(|| Fault::refuse(403, "Forbidden", "pods is forbidden"))
    };
    let outcome = collect(json!({}), cluster().with_fault(fault)).await;
    assert_eq!(outcome.errors.len(), 1);
    assert_says!(outcome.errors[0], "listing pods failed", "forbidden");
    assert_eq!(outcome.names().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_type_that_is_gone_is_a_warning() {
    let fault = |request: &Request| {
        request
            .path
            .ends_with("/widgets")
            .then(|| Fault::refuse(404, "NotFound", "gone"))
    };
    let outcome = collect(json!({}), cluster().with_fault(fault)).await;
    assert!(outcome.errors.is_empty());
    assert_says!(outcome.warnings[0], "widgets.example.com");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_begins_again_writes_nothing_twice() {
    let expired = std::sync::atomic::AtomicBool::new(false);
    let fault = move |request: &Request| {
        let first = request.path == "/api/v1/configmaps"
            && request.query.contains_key("continue")
            && !expired.swap(true, std::sync::atomic::Ordering::Relaxed);
        first.then(|| Fault::refuse(410, "Expired", "the provided continue parameter is too old"))
    };
    let outcome = collect(
        json!({ "includedResources": ["configmaps"] }),
        cluster().with_fault(fault),
    )
    .await;
    assert_eq!(
        outcome.names(),
        ["configmaps/a/one", "configmaps/a/two", "configmaps/b/one"]
    );
    assert!(outcome.errors.is_empty());
}

#[rstest::rstest]
#[case(json!({}), 5000)]
#[case(json!({ "includedNamespaces": ["n*"] }), 5000)]
#[case(json!({ "includedNamespaces": ["n*"], "excludedNamespaces": ["n-4999"] }), 4999)]
#[case(json!({ "includedNamespaces": ["n-1*"], "excludedNamespaces": ["n-11*"] }), 1000)]
#[tokio::test(start_paused = true)]
async fn requests_do_not_grow_with_the_number_of_namespaces(
    #[case] spec: serde_json::Value,
    #[case] expected: usize,
) {
    let live: Vec<String> = (0..5000).map(|number| format!("n-{number}")).collect();
    let api = cluster()
        .with_list(
            "/api/v1/configmaps",
            live.iter().map(|name| item(name, "one")).collect(),
        )
        .with_list(
            "/api/v1/namespaces",
            live.iter().map(|name| namespace(name)).collect(),
        );
    let outcome = Setup {
        api,
        spec,
        live,
        page_size: Some(500),
        ..Default::default()
    }
    .collect()
    .await;
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
    assert_eq!(
        outcome.names().len(),
        2 * expected,
        "a ConfigMap and the namespace itself, each"
    );
    assert!(outcome.paths.len() < 40, "{} requests", outcome.paths.len());
}

/// Twenty of 68 namespaces: types with many items in the others are listed in each of the twenty,
/// all other types at once.
#[rstest::rstest]
#[case(json!({ "includedNamespaces": ["mine-*"] }))]
#[case(json!({ "includedNamespaces": ["mine-*"], "labelSelector": { "matchLabels": { "app": "web" } } }))]
#[tokio::test(start_paused = true)]
async fn what_other_namespaces_hold_is_not_read(#[case] spec: serde_json::Value) {
    let mine = (0..20).map(|number| format!("mine-{number:02}"));
    let live: Vec<String> = mine
        .chain((0..48).map(|number| format!("other-{number:02}")))
        .collect();
    let labelled = |namespace: &str, number: usize| {
        let mut item = item(namespace, &format!("c{number:03}"));
        item["metadata"]["labels"] = json!({ "app": "web" });
        item
    };
    let of = |name: &String| if name.starts_with("mine") { 5 } else { 100 };
    let maps = live
        .iter()
        .flat_map(|name| (0..of(name)).map(|number| labelled(name, number)))
        .collect();
    let api = cluster().with_list("/api/v1/configmaps", maps).with_list(
        "/api/v1/namespaces",
        live.iter().map(|name| namespace(name)).collect(),
    );
    let outcome = Setup {
        api,
        spec,
        live,
        page_size: Some(500),
        ..Default::default()
    }
    .collect()
    .await;
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
    assert_eq!(
        outcome.names().len(),
        20 * 5 + 20,
        "each once, and the namespaces"
    );
    let count = |end: &str| {
        outcome
            .paths
            .iter()
            .filter(|path| path.ends_with(end))
            .count()
    };
    let whole = outcome
        .paths
        .iter()
        .filter(|path| *path == "/api/v1/configmaps")
        .count();
    // If items are not counted, the list over all namespaces is read for at most the cost of twenty
    // lists.
    assert!((1..=3).contains(&whole), "{whole}");
    assert_eq!(count("/configmaps") - whole, 20);
    assert_eq!((count("/pods"), count("/widgets")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn selectors_that_overlap_write_an_item_once() {
    let mut both = item("a", "both");
    both["metadata"]["labels"] = json!({ "app": "web", "tier": "front" });
    let mut one = item("b", "one");
    one["metadata"]["labels"] = json!({ "tier": "front" });
    let api = cluster().with_list("/api/v1/configmaps", vec![both, one, item("empty", "none")]);
    let spec = json!({ "orLabelSelectors": [
        { "matchLabels": { "app": "web" } }, { "matchLabels": { "tier": "front" } }
    ] });
    let outcome = collect(spec, api).await;
    // Only namespaces with items are included.
    assert_eq!(
        outcome.names(),
        [
            "configmaps/a/both",
            "configmaps/b/one",
            "namespaces/a",
            "namespaces/b"
        ]
    );
}

#[tokio::test(start_paused = true)]
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
        (
            json!({ "excludedResources": ["customresourcedefinitions"] }),
            0,
        ),
    ] {
        let api = cluster()
            .with_list("/apis/example.com/v1/widgets", vec![item("a", "w")])
            .with_object(&path, definition.clone());
        let outcome = collect(spec.clone(), api).await;
        let found = outcome
            .names()
            .iter()
            .filter(|item| item.ends_with(name))
            .count();
        assert_eq!(found, comes, "{spec} {:?}", outcome.names());
        assert!(outcome.names().contains(&"widgets.example.com/a/w"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_bad_object_is_reported_and_never_stops_the_others() {
    let items = [
        json!("no object"),
        json!({ "metadata": {} }),
        item("a", "x"),
    ];
    let api = cluster().with_fault(move |request| {
        (request.path == "/api/v1/configmaps").then(|| Fault::list(&items))
    });
    let collect = |api| {
        let sink = MemorySink {
            refuse: Some("two"),
            ..MemorySink::default()
        };
        Setup {
            spec: json!({ "includedResources": ["configmaps"] }),
            api,
            sink,
            ..Setup::default()
        }
        .collect()
    };
    let outcome = collect(api).await;
    assert_eq!(outcome.names(), ["configmaps/a/x"]);
    assert_eq!(outcome.errors.len(), 2);
    let outcome = collect(cluster()).await;
    assert_eq!(outcome.names(), ["configmaps/a/one", "configmaps/b/one"]);
    assert_eq!(outcome.errors.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn ordered_items_come_first_and_missing_ones_are_a_warning() {
    let mut labelled = item("b", "one");
    labelled["metadata"]["labels"] = json!({ "app": "web" });
    let api = cluster().with_object("/api/v1/namespaces/b/configmaps/one", labelled);
    let order = "b/one,a/gone,a/two,two";
    let spec = json!({ "includedResources": ["configmaps"], "orderedResources": { "configmaps": order, "nodes": "n" } });
    let outcome = collect(spec, api).await;
    assert_eq!(
        outcome.names(),
        ["configmaps/b/one", "configmaps/a/two", "configmaps/a/one"]
    );
    let told = outcome.warnings.join("\n");
    assert_eq!(outcome.warnings.len(), 3, "{told}");
    assert_says!(told, "nodes", "a/gone", "namespace/name");
    assert!(outcome.errors.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_order_for_a_type_without_items_is_told_to_be_in_vain() {
    let spec = json!({ "orderedResources": { "pods": "a/gone" } });
    let outcome = collect(spec, cluster()).await;
    assert_says!(outcome.warnings[0], "pods a/gone, which does not exist");
}

#[tokio::test(start_paused = true)]
async fn what_the_labels_do_not_select_is_not_selected_by_an_order() {
    let spec = json!({
        "includedResources": ["configmaps"], "labelSelector": { "matchLabels": { "app": "web" } },
        "orderedResources": { "configmaps": "a/two" },
    });
    let outcome = collect(spec, cluster()).await;
    assert!(outcome.names().is_empty());
    assert_says!(outcome.warnings[0], "is not selected");
}

#[tokio::test(start_paused = true)]
async fn what_a_pod_asks_for_and_is_not_done_is_an_error() {
    let mut pod = item("a", "db");
    pod["metadata"]["annotations"] = json!({ "backup.velero.io/backup-volumes": "data" });
    let outcome = collect(json!({}), cluster().with_list("/api/v1/pods", vec![pod])).await;
    assert_says!(outcome.errors[0], "a/db");
    assert!(outcome.names().contains(&"pods/a/db"));
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_wants_files_copied_is_an_error_of_each_volume() {
    let mut pod = item("a", "db");
    pod["spec"]["volumes"] = json!([
        { "name": "scratch", "emptyDir": {} }, { "name": "conf", "configMap": {} },
        { "name": "data", "persistentVolumeClaim": { "claimName": "data" } },
    ]);
    let policy = Some(policy(
        "- conditions: { volumeTypes: [configMap] }\n  action: { type: skip }\n\
         - conditions: {}\n  action: { type: fs-backup }\n",
    ));
    let setup = Setup {
        api: cluster().with_list("/api/v1/pods", vec![pod]),
        policy,
        spec: json!({}),
        ..Default::default()
    };
    let outcome = setup.collect().await;
    assert_eq!(outcome.errors.len(), 1, "{:?}", outcome.errors);
    assert_says!(outcome.errors[0], "volume scratch of pod a/db");
    assert!(outcome.names().contains(&"pods/a/db"));
}

/// The result does not depend on snapshots of volumes, or on actions on claims.
#[rstest::rstest]
#[case(json!({}))]
#[case(json!({ "snapshotVolumes": false }))]
#[tokio::test(start_paused = true)]
async fn a_policy_that_wants_files_copied_is_an_error_of_each_claim(
    #[case] spec: serde_json::Value,
) {
    let claim = |name: &str| bound_claim(name, &format!("pv-{name}"));
    let mut waiting = claim("waiting");
    waiting["status"]["phase"] = json!("Pending");
    let volume = |class: &str| json!({ "metadata": { "name": "pv" }, "spec": { "storageClassName": class, "hostPath": {} } });
    let claims = ["fast", "slow", "gone"]
        .map(claim)
        .into_iter()
        .chain([waiting])
        .collect();
    let setup = Setup {
        api: cluster()
            .with_list("/api/v1/persistentvolumeclaims", claims)
            .with_object("/api/v1/persistentvolumes/pv-fast", volume("fast"))
            .with_object("/api/v1/persistentvolumes/pv-slow", volume("slow")),
        policy: Some(policy(
            "- conditions: { storageClass: [fast] }\n  action: { type: fs-backup }\n",
        )),
        spec,
        ..Default::default()
    };
    let outcome = setup.collect().await;
    assert_eq!(outcome.errors.len(), 2, "{:?}", outcome.errors);
    assert_says!(outcome.errors[0], "a/fast", "fs-backup");
    assert_says!(outcome.errors[1], "a/gone", "pv-gone");
    assert!(
        outcome.names().contains(&"persistentvolumeclaims/a/fast"),
        "the claim itself is there"
    );
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_stored_if_named_or_selected_or_not_empty() {
    let mut selected = namespace("selected");
    selected["metadata"]["labels"] = json!({ "app": "web" });
    let mut labelled = item("b", "one");
    labelled["metadata"]["labels"] = json!({ "app": "web" });
    let web = json!({ "matchLabels": { "app": "web" } });
    for (spec, expected) in [
        (
            json!({ "labelSelector": web }),
            vec!["namespaces/b", "namespaces/selected"],
        ),
        (
            json!({ "labelSelector": web, "includedNamespaces": ["a", "empty"] }),
            vec!["namespaces/a", "namespaces/empty"],
        ),
        (
            json!({ "includedNamespaces": ["empty"] }),
            vec!["namespaces/empty"],
        ),
    ] {
        let live = ["a", "b", "empty", "selected"];
        let mut api = cluster()
            .with_list(
                "/api/v1/configmaps",
                vec![item("a", "one"), labelled.clone()],
            )
            .with_list(
                "/api/v1/namespaces",
                vec![
                    namespace("a"),
                    namespace("b"),
                    namespace("empty"),
                    selected.clone(),
                ],
            );
        for namespace in live {
            api = api.with_object(
                &format!("/api/v1/namespaces/{namespace}"),
                match namespace {
                    "selected" => selected.clone(),
                    name => harness::namespace(name),
                },
            );
        }
        let live = live.map(str::to_owned).into();
        let outcome = Setup {
            api,
            spec: spec.clone(),
            live,
            ..Setup::default()
        }
        .collect()
        .await;
        let names = outcome
            .names()
            .into_iter()
            .filter(|name| name.starts_with("namespaces/"));
        assert_eq!(names.collect::<Vec<_>>(), expected, "{spec}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_on_its_way_out_is_not_stored() {
    let going = json!({ "metadata": { "name": "b" }, "status": { "phase": "Terminating" } });
    let api = cluster().with_list("/api/v1/namespaces", vec![namespace("a"), going]);
    let outcome = collect(json!({}), api).await;
    assert!(
        outcome.names().contains(&"namespaces/a") && !outcome.names().contains(&"namespaces/b")
    );
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_being_deleted_is_a_warning() {
    let going = json!({ "metadata": { "name": "b" }, "status": { "phase": "Terminating" } });
    let api = cluster().with_list("/api/v1/namespaces", vec![namespace("a"), going]);
    let outcome = collect(json!({ "includedNamespaces": ["a", "b"] }), api).await;
    let expected = "namespace b is being deleted, so it and its items";
    assert!(
        outcome
            .warnings
            .iter()
            .any(|warning| warning.contains(expected)),
        "{:?}",
        outcome.warnings
    );
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_full_ends_the_collection() {
    let sink = MemorySink {
        full_after: Some(1),
        ..MemorySink::default()
    };
    let outcome = Setup {
        spec: json!({}),
        api: cluster(),
        sink,
        ..Setup::default()
    }
    .collect()
    .await;
    assert!(matches!(outcome.result, Err(CollectError::Store(_))));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_backup_ends_early_and_says_what_it_lacks() {
    let cancellation = cancellation();
    cancellation.cancel();
    let setup = Setup {
        spec: json!({}),
        api: cluster(),
        ..Setup::default()
    };
    let outcome = setup.collect_until(&cancellation).await;
    assert!(
        outcome.result.is_ok() && outcome.sink.items.is_empty(),
        "{:?}",
        outcome.result
    );
    let [error] = outcome.errors.as_slice() else {
        panic!("{:?}", outcome.errors)
    };
    assert_says!(error, "cancelled", " 0 items");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_backup_is_left_at_the_next_check() {
    let cancellation = cancellation();
    cancellation.delete();
    let setup = Setup {
        spec: json!({}),
        api: cluster(),
        ..Setup::default()
    };
    let outcome = setup.collect_until(&cancellation).await;
    assert!(matches!(
        outcome.result,
        Err(CollectError::Stopped(StopReason::Deleted))
    ));
    assert!(outcome.sink.items.is_empty());
}
