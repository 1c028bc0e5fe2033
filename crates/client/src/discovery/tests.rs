use serde_json::{Value, json};

use super::*;
use crate::page::api_resource;

const ALL: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

fn resource(plural: &str, kind: &str, short: &[&str], verbs: &[&str], scope: &str) -> Value {
    json!({
        "resource": plural, "responseKind": {"group": "", "version": "", "kind": kind}, "scope": scope,
        "singularResource": kind.to_lowercase(), "verbs": verbs, "shortNames": short,
        "subresources": [{"subresource": "status", "verbs": ["get"]}],
    })
}

fn group(name: &str, versions: &[Value]) -> APIGroupDiscovery {
    serde_json::from_value(json!({"metadata": {"name": name}, "versions": versions})).unwrap()
}

fn version(name: &str, resources: &[Value]) -> Value {
    json!({"version": name, "freshness": "Current", "resources": resources})
}

fn served() -> ServedTypes {
    let events = resource("events", "Event", &["ev"], &ALL, "Namespaced");
    let core = [
        resource("pods", "Pod", &["po"], &ALL, "Namespaced"),
        resource("namespaces", "Namespace", &["ns"], &ALL, "Cluster"),
        resource("bindings", "Binding", &[], &["create"], "Namespaced"),
        events.clone(),
    ];
    let deployments = resource("deployments", "Deployment", &["deploy"], &ALL, "Namespaced");
    let hpas = [
        resource("hpas", "HPA", &[], &ALL, "Namespaced"),
        resource("olds", "Old", &[], &ALL, "Namespaced"),
    ];
    ServedTypes::of([
        group("", &[version("v1", &core)]),
        group("apps", &[version("v1", &[deployments])]),
        group("events.k8s.io", &[version("v1", &[events])]),
        group(
            "autoscaling",
            &[version("v2", &hpas[..1]), version("v1", &hpas)],
        ),
        group(
            "metrics.k8s.io",
            &[json!({"version": "v1beta1", "freshness": "Stale", "resources": []})],
        ),
    ])
}

#[test]
fn names_are_resolved_as_people_write_them() {
    for (name, expected) in [
        ("po", Some("pods")),
        ("pods", Some("pods")),
        ("Pod", Some("pods")),
        ("pods.v1", Some("pods")),
        ("deploy", Some("deployments.apps")),
        ("deployments", Some("deployments.apps")),
        ("Deployments.Apps", Some("deployments.apps")),
        ("deployment.apps", Some("deployments.apps")),
        ("deployments.v1.apps", Some("deployments.apps")),
        ("deployments.v2.apps", None),
        ("deployments.extensions", None),
        ("events", Some("events")),
        ("events.events.k8s.io", Some("events.events.k8s.io")),
        ("hpas.v1.autoscaling", Some("hpas.autoscaling")),
        ("bindings", Some("bindings")),
        ("pod*", None),
        ("", None),
    ] {
        assert_eq!(served().resolve(name).as_deref(), expected, "{name:?}");
    }
}

#[test]
fn each_type_is_there_once_in_the_first_version_that_has_it() {
    let served = served();
    let name = |served: &ResourceType| format!("{}/{}", served.group_resource(), served.version);
    let names: Vec<String> = served.types().map(name).collect();
    assert_eq!(
        names,
        [
            "pods/v1",
            "namespaces/v1",
            "events/v1",
            "deployments.apps/v1",
            "events.events.k8s.io/v1",
            "hpas.autoscaling/v2",
            "olds.autoscaling/v1"
        ]
    );
    assert!(!served.by_group_resource("namespaces").unwrap().namespaced);
    assert!(
        served.by_group_resource("bindings").is_none(),
        "it can not be listed"
    );
}

#[test]
fn the_other_versions_of_a_type_follow_the_preferred_one() {
    let served = served();
    for (name, versions) in [
        ("hpas.autoscaling", &["v2", "v1"][..]),
        ("olds.autoscaling", &["v1"]),
        ("pods", &["v1"]),
        ("gone.example.com", &[]),
    ] {
        assert_eq!(served.versions(name), versions, "{name}");
    }
}

#[test]
fn a_group_whose_server_is_down_is_named_and_does_not_hide_the_others() {
    assert_eq!(served().failed, ["metrics.k8s.io/v1beta1"]);
}

#[test]
fn a_type_of_the_core_group_has_no_group_in_its_api_version() {
    let served = served();
    assert_eq!(
        api_resource(served.by_group_resource("pods").unwrap()).api_version,
        "v1"
    );
    assert_eq!(
        api_resource(served.by_group_resource("deployments.apps").unwrap()).api_version,
        "apps/v1"
    );
}
