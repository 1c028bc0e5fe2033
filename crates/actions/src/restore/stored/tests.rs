use serde_json::json;

use super::*;

fn object(value: &Value) -> Object {
    value.as_object().unwrap().clone()
}

fn lost(group_resource: &str, asked: &Value, stored: &Value) -> Vec<String> {
    let body = object(asked);
    let asked = WriteRequest {
        group_resource,
        body: &body,
        unmodified: None,
    };
    let lost = asked.lost_in_answer(stored.to_string().as_bytes()).unwrap();
    assert_eq!(
        lost,
        asked.lost(&object(stored)),
        "both ways give the same: {stored}"
    );
    lost.named
}

const CUSTOM: &str = "gateways.acme.example.com";

#[test]
fn what_a_narrower_definition_prunes_is_named() {
    let asked = json!({"metadata": {"name": "public", "labels": {"a.b/c": "d"}}, "spec": {"host": "h",
        "tls": {"secretName": "shop", "minVersion": "1.3"}, "allowedCidrs": ["10.0.0.0/8"], "verify": false, "depth": 0,
        "empty": {}, "none": null, "list": []}});
    let stored = json!({"metadata": {"name": "public", "uid": "u", "labels": {}}, "spec": {"host": "h",
        "tls": {"secretName": "shop"}, "added": {"by": "default"}}, "status": {}});
    let expected = [
        "metadata.labels[a.b/c]",
        "spec.tls.minVersion",
        "spec.allowedCidrs",
        "spec.verify",
        "spec.depth",
        "spec.empty",
        "spec.list",
    ];
    let mut found = lost(CUSTOM, &asked, &stored);
    let mut expected = expected.map(str::to_owned).to_vec();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn what_a_server_adds_fills_in_or_spells_in_another_way_is_no_loss() {
    for (group_resource, asked, stored) in [
        (
            "configmaps",
            json!({"data": {"a": "b"}}),
            json!({"data": {"a": "b", "added": "c"}, "metadata": {}}),
        ),
        (
            "deployments.apps",
            json!({"spec": {"replicas": 0, "strategy": {}, "template": {"spec": {"securityContext": {}}}}, "status": {}}),
            json!({"spec": {"replicas": 0, "template": {"spec": {}}}}),
        ),
        (
            "roles.rbac.authorization.k8s.io",
            json!({"rules": [], "metadata": {"annotations": {}}, "aggregationRule": {"selectors": []}}),
            json!({"rules": null, "aggregationRule": {"selectors": null}}),
        ),
        (
            "pods",
            json!({"spec": {"cpu": "1000m", "memory": "1024Mi"}}),
            json!({"spec": {"cpu": "1", "memory": "1Gi"}}),
        ),
        (
            CUSTOM,
            json!({"spec": {"cpu": 1}}),
            json!({"spec": {"cpu": "1"}}),
        ),
        (
            "pods",
            json!({"spec": {"cpu": "0.5", "x": "1e3"}}),
            json!({"spec": {"cpu": "500m", "x": "1k"}}),
        ),
        (
            "leases.coordination.k8s.io",
            json!({"spec": {"at": "2026-01-02T03:04:05Z"}}),
            json!({"spec": {"at": "2026-01-02T03:04:05.000000Z"}}),
        ),
        (
            CUSTOM,
            json!({"spec": {"ttl": "1h"}}),
            json!({"spec": {"ttl": "1h0m0s"}}),
        ),
        (
            CUSTOM,
            json!({"spec": {"n": 1.0, "m": 2}}),
            json!({"spec": {"n": 1, "m": 2.0}}),
        ),
        // A webhook inserts its container first, and a set is stored in another order.
        (
            "pods",
            json!({"spec": {"containers": [{"name": "app", "image": "i"}]}}),
            json!({"spec": {"containers": [{"name": "proxy", "image": "p"}, {"name": "app", "image": "i", "args": []}]}}),
        ),
        (
            "persistentvolumes",
            json!({"spec": {"accessModes": ["A", "B"]}}),
            json!({"spec": {"accessModes": ["B", "A"]}}),
        ),
        (
            "namespaces",
            json!({"metadata": {"labels": {"kubernetes.io/metadata.name": "old", "a": "b"}}}),
            json!({"metadata": {"labels": {"kubernetes.io/metadata.name": "new", "a": "b"}}}),
        ),
        (
            "daemonsets.apps",
            json!({"metadata": {"annotations": {"deprecated.daemonset.template.generation": "3"}}}),
            json!({"metadata": {"annotations": {"deprecated.daemonset.template.generation": "1"}}}),
        ),
        (
            "secrets",
            json!({"stringData": {"a": "b"}, "type": "Opaque"}),
            json!({"data": {"a": "Yg=="}, "type": "Opaque"}),
        ),
        (
            "configmaps",
            json!({"metadata": {"uid": "u", "resourceVersion": "1"}, "data": {"gone": null}}),
            json!({"metadata": {"uid": "u", "resourceVersion": "2"}}),
        ),
        (
            "deployments.apps",
            json!({"spec": {"template": {"metadata": {"creationTimestamp": null}, "spec": {"v": [{"emptyDir": {}}]}}}}),
            json!({"spec": {"template": {"metadata": {}, "spec": {"v": [{"emptyDir": {}}]}}}}),
        ),
    ] {
        assert_eq!(
            lost(group_resource, &asked, &stored),
            Vec::<String>::new(),
            "{asked} {stored}"
        );
    }
}

#[test]
fn what_is_stored_with_another_value_is_lost() {
    for (group_resource, asked, stored, expected) in [
        (
            "configmaps",
            json!({"data": {"a.cpu": "1000m"}}),
            json!({"data": {"a.cpu": "1"}}),
            "data[a.cpu]",
        ),
        (
            "certificatesigningrequests.certificates.k8s.io",
            json!({"spec": {"username": "admin"}}),
            json!({"spec": {"username": "system:serviceaccount:velero:backup-controller"}}),
            "spec.username",
        ),
        (
            "pods",
            json!({"spec": {"containers": [{"name": "app", "image": "i"}]}}),
            json!({"spec": {"containers": [{"name": "proxy"}, {"name": "app", "image": "other"}]}}),
            "spec.containers[app].image",
        ),
        (
            "pods",
            json!({"spec": {"containers": [{"name": "app"}, {"name": "side"}]}}),
            json!({"spec": {"containers": [{"name": "app"}]}}),
            "spec.containers[side]",
        ),
        (
            CUSTOM,
            json!({"spec": {"rules": [{"from": "a", "to": "b"}]}}),
            json!({"spec": {"rules": [{"from": "a"}]}}),
            "spec.rules[0].to",
        ),
        (
            CUSTOM,
            json!({"spec": {"sizes": ["a", "a"]}}),
            json!({"spec": {"sizes": ["a"]}}),
            "spec.sizes[1]",
        ),
        (
            CUSTOM,
            json!({"spec": {"cpu": "1"}}),
            json!({"spec": {"cpu": "1500m"}}),
            "spec.cpu",
        ),
        // Fields that a webhook removes, or sets where there were none.
        (
            "deployments.apps",
            json!({"spec": {"automountServiceAccountToken": false}}),
            json!({"spec": {}}),
            "spec.automountServiceAccountToken",
        ),
        (
            "configmaps",
            json!({"data": {"FLAG": ""}}),
            json!({"data": {"FLAG": "on"}}),
            "data.FLAG",
        ),
        (
            "configmaps",
            json!({"data": {"GONE": ""}}),
            json!({"data": {"x": "1"}}),
            "data.GONE",
        ),
        (
            "persistentvolumeclaims",
            json!({"spec": {"storageClassName": ""}}),
            json!({"spec": {"storageClassName": "fast"}}),
            "spec.storageClassName",
        ),
        (
            "networkpolicies.networking.k8s.io",
            json!({"spec": {"ingress": [{"from": [{"namespaceSelector": {}}]}]}}),
            json!({"spec": {"ingress": [{"from": [{}]}]}}),
            "spec.ingress[0].from[0].namespaceSelector",
        ),
        (
            "networkpolicies.networking.k8s.io",
            json!({"spec": {"egress": [{}]}}),
            json!({"spec": {"egress": []}}),
            "spec.egress[0]",
        ),
        // A definition in a group of the Kubernetes project is not a built-in type.
        (
            "gateways.gateway.networking.k8s.io",
            json!({"spec": {"verify": false}}),
            json!({"spec": {}}),
            "spec.verify",
        ),
        (
            CUSTOM,
            json!({"spec": {"on": true}}),
            json!({"spec": {"on": {"since": 1}}}),
            "spec.on",
        ),
    ] {
        assert_eq!(
            lost(group_resource, &asked, &stored),
            [expected],
            "{asked} {stored}"
        );
    }
}

#[test]
fn a_service_that_stays_headless_has_not_become_what_was_asked_for() {
    let stays = json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "None"}});
    let has = json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "10.0.0.1"}});
    let patch = json!({"metadata": {"uid": "u"}, "spec": {"clusterIP": null}});
    for (asked, stored, is_lost) in [
        (&patch, &stays, true),
        (&patch, &has, false),
        (
            &json!({"metadata": {"name": "s"}, "spec": {}}),
            &stays,
            true,
        ),
        (&stays, &stays, false),
        (
            &json!({"metadata": {"labels": {}}, "spec": {"selector": null}}),
            &stays,
            false,
        ),
    ] {
        assert_eq!(
            !lost("services", asked, stored).is_empty(),
            is_lost,
            "{asked} {stored}"
        );
    }
}

#[test]
fn many_fields_are_counted_and_the_first_named() {
    let fields: Object = (0..30).map(|n| (format!("f{n:02}"), json!(1))).collect();
    let body = object(&json!({"spec": fields}));
    let text = WriteRequest {
        group_resource: CUSTOM,
        body: &body,
        unmodified: None,
    }
    .lost(&object(&json!({"spec": {}})))
    .to_string();
    assert!(
        text.starts_with("spec.f00, ") && text.ends_with(" and 22 more"),
        "{text}"
    );
}

#[test]
fn a_long_list_costs_no_more_than_its_length() {
    let list = |from: usize| json!({"spec": {"list": (from..from + 20_000).collect::<Vec<_>>()}});
    let begin = std::time::Instant::now();
    assert!(!lost(CUSTOM, &list(0), &list(1)).is_empty());
    assert!(begin.elapsed() < std::time::Duration::from_secs(10));
}

#[test]
fn what_others_have_changed_since_is_not_absent() {
    let body = object(&json!({"spec": {"a": 1, "b": {"c": 2}, "d": 3}}));
    let stored = object(&json!({"spec": {"a": 2, "b": {}}}));
    let absent = WriteRequest {
        group_resource: CUSTOM,
        body: &body,
        unmodified: None,
    }
    .absent(&stored);
    assert_eq!(absent.named, ["spec.b.c", "spec.d"]);
}

#[test]
fn a_write_that_changes_only_our_labels_has_changed_nothing() {
    let before = object(
        &json!({"metadata": {"name": "s", "resourceVersion": "1", "labels": {"a": "b"}}, "spec": {"x": 1}}),
    );
    let mut after = object(
        &json!({"metadata": {"name": "s", "resourceVersion": "2", "generation": 2,
        "labels": {"a": "b", "velero.io/restore-name": "r", "velero.io/backup-name": "b"}}, "spec": {"x": 1}}),
    );
    assert!(!is_changed(&before, &after));
    json::set(&mut after, &["spec"], "x", json!(2));
    assert!(is_changed(&before, &after));
}

/// If a modifier sets a field to its zero value and a built-in type omits that, the request was
/// fulfilled.
#[rstest::rstest]
#[case::a_built_in_type("deployments.apps", json!({"hostNetwork": false, "nodeName": "", "priority": 0, "tolerations": []}), 0)]
#[case::in_a_list("deployments.apps", json!({"containers": [{"name": "c", "stdin": false, "image": "i"}]}), 0)]
#[case::another_value("deployments.apps", json!({"hostNetwork": true, "nodeName": "n"}), 2)]
#[case::another_value_is_stored("deployments.apps", json!({"replicas": 0}), 1)]
#[case::of_the_backup("deployments.apps", json!({"enableServiceLinks": false}), 1)]
#[case::a_custom_resource("widgets.example.com", json!({"hostNetwork": false}), 1)]
fn zeros_of_modifiers_are_no_loss(
    #[case] group_resource: &str,
    #[case] spec: Value,
    #[case] lost: usize,
) {
    let unmodified = object(
        &json!({"spec": {"enableServiceLinks": false, "containers": [{"name": "c", "image": "o"}]}}),
    );
    let stored = json!({"spec": {"replicas": 1, "containers": [{"name": "a"}, {"name": "c", "image": "i"}]}});
    let body = object(&json!({"spec": spec}));
    let asked = WriteRequest {
        group_resource,
        body: &body,
        unmodified: Some(&unmodified),
    };
    let found = asked.lost(&object(&stored));
    assert_eq!(found.total, lost, "{found}");
    assert_eq!(
        asked.lost_in_answer(stored.to_string().as_bytes()).unwrap(),
        found
    );
    let plain = WriteRequest {
        unmodified: None,
        ..asked
    }
    .lost(&object(&stored));
    assert!(plain.total >= lost.max(1), "{plain}");
}
