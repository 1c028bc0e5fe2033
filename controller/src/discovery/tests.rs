use backup_client::page::api_resource;
use rstest::rstest;
use serde_json::{Value, json};

use backup_testkit::{FakeApi, Fault};

use super::*;
use crate::{job::worker::WorkerError, testing::discovery};

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

#[rstest]
#[case("po", Some("pods"))]
#[case("pods", Some("pods"))]
#[case("Pod", Some("pods"))]
#[case("pods.v1", Some("pods"))]
#[case("deploy", Some("deployments.apps"))]
#[case("deployments", Some("deployments.apps"))]
#[case("Deployments.Apps", Some("deployments.apps"))]
#[case("deployment.apps", Some("deployments.apps"))]
#[case("deployments.v1.apps", Some("deployments.apps"))]
#[case("deployments.v2.apps", None)]
#[case("deployments.extensions", None)]
#[case("events", Some("events"))]
#[case("events.events.k8s.io", Some("events.events.k8s.io"))]
#[case("hpas.v1.autoscaling", Some("hpas.autoscaling"))]
#[case("bindings", Some("bindings"))]
#[case("pod*", None)]
#[case("", None)]
fn names_are_resolved_as_people_write_them(#[case] name: &str, #[case] expected: Option<&str>) {
    assert_eq!(served().resolve(name).as_deref(), expected);
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

#[test]
fn a_group_of_which_nothing_can_be_created_is_missed_by_nobody() {
    let of = |group: &str, verbs: &[&str]| ResourceType {
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..crate::testing::resource(group, "things", "Thing", true)
    };
    let groups = KnownGroups::new(["metrics.k8s.io".to_owned()]);
    let silent = |group: &str| groups.has_nothing_to_back_up(group);
    assert!(
        silent("metrics.k8s.io/v1beta1") && !silent("other.io/v1"),
        "as it is configured"
    );
    groups.note(&ServedTypes::just(&[
        of("read.io", &["get", "list"]),
        of("full.io", &["create"]),
    ]));
    assert!(silent("read.io/v1") && !silent("full.io/v1"));
    groups.note(&ServedTypes::just(&[
        of("read.io", &["create"]),
        of("metrics.k8s.io", &["create"]),
    ]));
    assert!(
        !silent("read.io/v1") && !silent("metrics.k8s.io/v1"),
        "as it was seen last"
    );
}

#[tokio::test]
async fn what_could_not_be_read_is_named_by_what_waits_for_it() {
    for (fails, what) in [("/api", "which core types"), ("/apis", "which API groups")] {
        let api = FakeApi::new().with_fault(move |request| {
            (request.path == fails).then(|| Fault::refuse(403, "Forbidden", "no"))
        });
        for path in ["/api", "/apis"] {
            api.put(path, discovery("", &[("pods", "Pod", "Namespaced")]));
        }
        let error = ServedTypes::load(&api.client()).await.unwrap_err();
        let WorkerError::Blocked { reason, retryable } = error.into() else {
            panic!("{fails}")
        };
        let expected = format!("{what} the API server serves ({fails}) cannot be read: no");
        assert_eq!((reason, retryable), (expected, false));
    }
}
