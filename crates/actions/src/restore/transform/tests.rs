#![allow(clippy::needless_pass_by_value)] // tables read better with values

use std::sync::Arc;

use backup_core::api::{Restore, RestoreSpec};
use futures::FutureExt as _;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::restore::{action::RestoreActionInput, built_in::built_in};

fn rules() -> RestoreRules {
    RestoreRules {
        backup_label: "b".to_owned(),
        restore_label: "r".to_owned(),
        namespaces: Arc::new([("old".to_owned(), "new".to_owned())].into()),
        preserve_node_ports: false,
        kept_volumes: Arc::new(["kept".to_owned()].into()),
    }
}

/// The rewritten item without its metadata.
fn body(group_resource: &str, item: Value) -> Value {
    let mut item = rewritten(
        item.as_object().unwrap(),
        group_resource,
        Some("new"),
        &rules(),
    );
    item.remove("metadata");
    Value::Object(item)
}

fn metadata(group_resource: &str, item: Value, namespace: Option<&str>) -> Value {
    let mut item = rewritten(
        item.as_object().unwrap(),
        group_resource,
        namespace,
        &rules(),
    );
    item.remove("metadata").unwrap()
}

#[test]
fn what_belongs_to_the_old_life_goes_and_what_the_object_is_stays() {
    let item = json!({
        "metadata": {
            "name": "x", "namespace": "old", "uid": "u", "resourceVersion": "5", "generation": 2, "selfLink": "/x",
            "generateName": "x-", "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{}],
            "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 3, "annotations": {"a": "1"},
            "ownerReferences": [{"uid": "o"}], "finalizers": ["f/x"], "labels": {"l": "1"},
        },
        "data": {"k": "v"}, "status": {"s": 1},
    });
    let object = rewritten(
        item.as_object().unwrap(),
        "configmaps",
        Some("new"),
        &rules(),
    );
    let expected = json!({
        "metadata": {
            "name": "x", "namespace": "new", "finalizers": ["f/x"], "annotations": {"a": "1"},
            "labels": {"l": "1", "velero.io/backup-name": "b", "velero.io/restore-name": "r"},
        },
        "data": {"k": "v"},
    });
    assert_eq!(Value::Object(object), expected);
}

#[test]
fn an_item_without_labels_or_with_null_ones_gets_the_labels_of_the_restore() {
    for labels in [Value::Null, json!({})] {
        let done = metadata(
            "secrets",
            json!({"metadata": {"name": "x", "labels": labels}}),
            None,
        );
        assert_eq!(
            done,
            json!({"name": "x", "labels": {"velero.io/backup-name": "b", "velero.io/restore-name": "r"}})
        );
    }
}

#[test]
fn a_namespace_follows_the_mapping_in_its_name_and_label() {
    let item =
        json!({"metadata": {"name": "old", "labels": {"kubernetes.io/metadata.name": "old"}}});
    let done = metadata("namespaces", item, None);
    assert_eq!(
        (
            &done["name"],
            &done["labels"]["kubernetes.io/metadata.name"]
        ),
        (&json!("new"), &json!("new"))
    );
}

#[rstest]
#[case::node_and_priority(
    json!({"nodeName": "n", "priority": 0, "priorityClassName": "p", "ephemeralContainers": [{}], "containers": [{}]}),
    json!({"priorityClassName": "p", "containers": [{}]})
)]
#[case::projected_token(
    json!({
        "volumes": [{"name": "kube-api-access-x", "projected": {}}, {"name": "d", "emptyDir": {}}],
        "containers": [{"volumeMounts": [{"name": "kube-api-access-x"}, {"name": "d"}]}],
        "initContainers": [{"volumeMounts": [{"name": "kube-api-access-x"}]}],
    }),
    json!({
        "volumes": [{"name": "d", "emptyDir": {}}],
        "containers": [{"volumeMounts": [{"name": "d"}]}],
        "initContainers": [{}],
    })
)]
#[case::token_secret_of_its_account(
    json!({"serviceAccountName": "sa", "volumes": [
        {"name": "sa-token-abcde", "secret": {}}, {"name": "other-token-abcde", "secret": {}},
    ]}),
    json!({"serviceAccountName": "sa", "volumes": [{"name": "other-token-abcde", "secret": {}}]})
)]
#[case::token_secret_of_its_account_where_admission_mounted_it(
    json!({"serviceAccountName": "sa", "volumes": [{"name": "sa-token-abcde", "secret": {"secretName": "sa-token-abcde"}}],
        "containers": [{"volumeMounts": [{"name": "sa-token-abcde", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]}]}),
    json!({"serviceAccountName": "sa", "containers": [{}]})
)]
#[case::a_secret_of_such_a_name_that_a_user_mounted(
    json!({"serviceAccountName": "sa", "volumes": [{"name": "sa-token-ci", "secret": {"secretName": "sa-token-ci"}}],
        "containers": [{"volumeMounts": [{"name": "sa-token-ci", "mountPath": "/creds"}]}]}),
    json!({"serviceAccountName": "sa", "volumes": [{"name": "sa-token-ci", "secret": {"secretName": "sa-token-ci"}}],
        "containers": [{"volumeMounts": [{"name": "sa-token-ci", "mountPath": "/creds"}]}]})
)]
#[case::a_persons_own_volume_of_such_a_name(
    json!({"volumes": [{"name": "kube-api-access-x", "emptyDir": {}}]}),
    json!({"volumes": [{"name": "kube-api-access-x", "emptyDir": {}}]})
)]
fn a_pod_loses_what_scheduler_and_admission_gave_it(#[case] spec: Value, #[case] expected: Value) {
    assert_eq!(
        body("pods", json!({"metadata": {"name": "x"}, "spec": spec})),
        json!({"spec": expected})
    );
}

#[test]
fn a_webhook_configuration_gets_side_effects_that_its_version_takes() {
    for group_resource in [
        "validatingwebhookconfigurations",
        "mutatingwebhookconfigurations",
    ] {
        let of = |api_version: &str, effects: [Value; 5]| {
            let webhooks = effects.map(|effects| json!({"name": "w", "sideEffects": effects}));
            json!({"apiVersion": api_version, "metadata": {"name": "x"}, "webhooks": webhooks})
        };
        let made = |item: Value| {
            body(
                &format!("{group_resource}.admissionregistration.k8s.io"),
                item,
            )
        };
        let old = ["None", "NoneOnDryRun", "Some", "Unknown", ""].map(Value::from);
        let new = ["None", "NoneOnDryRun", "None", "None", "None"].map(Value::from);
        let effects = |item: &Value| item["webhooks"].clone();
        let (v1, beta) = (
            "admissionregistration.k8s.io/v1",
            "admissionregistration.k8s.io/v1beta1",
        );
        assert_eq!(effects(&made(of(v1, old.clone()))), effects(&of(v1, new)));
        assert_eq!(
            effects(&made(of(beta, old.clone()))),
            effects(&of(beta, old))
        );
    }
}

#[test]
fn a_job_loses_its_generated_selector_but_not_a_chosen_one() {
    let generated = json!({"controller-uid": "u", "batch.kubernetes.io/controller-uid": "u"});
    let with_name = json!({"controller-uid": "u", "job-name": "x"});
    let job = |selector: &Value, labels: &Value, manual: bool| {
        json!({"metadata": {"name": "x"}, "spec": {
            "manualSelector": manual, "selector": {"matchLabels": selector},
            "template": {"metadata": {"labels": labels}, "spec": {}},
        }})
    };
    assert_eq!(
        body("jobs.batch", job(&generated, &with_name, false)),
        json!({"spec": {"manualSelector": false, "template": {"metadata": {"labels": {"job-name": "x"}}, "spec": {}}}})
    );
    let manual = job(&generated, &with_name, true);
    assert_eq!(body("jobs.batch", manual.clone())["spec"], manual["spec"]);
}

#[rstest]
#[case::addresses(
    json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "type": "ClusterIP"}), json!({}), json!({"type": "ClusterIP"})
)]
#[case::headless(
    json!({"clusterIP": "None", "clusterIPs": ["None"]}), json!({}), json!({"clusterIP": "None", "clusterIPs": ["None"]})
)]
#[case::chosen_by_the_cluster(
    json!({"ports": [{"port": 80, "nodePort": 30001}], "healthCheckNodePort": 31000}), json!({}),
    json!({"ports": [{"port": 80}]})
)]
#[case::chosen_in_the_manifest(
    json!({"ports": [{"name": "a", "port": 80, "nodePort": 30001}, {"name": "b", "port": 81, "nodePort": 30002}]}),
    json!({"annotations": {"kubectl.kubernetes.io/last-applied-configuration":
        "{\"spec\":{\"ports\":[{\"name\":\"a\",\"port\":80,\"nodePort\":30001},{\"name\":\"b\",\"port\":81}]}}"}}),
    json!({"ports": [{"name": "a", "port": 80, "nodePort": 30001}, {"name": "b", "port": 81}]})
)]
#[case::chosen_by_a_manager(
    json!({"ports": [{"port": 80, "nodePort": 30001}, {"port": 81, "nodePort": 30002}]}),
    json!({"managedFields": [{"fieldsV1": {"f:spec": {"f:ports": {
        "k:{\"port\":80,\"protocol\":\"TCP\"}": {"f:nodePort": {}}, "k:{\"port\":81,\"protocol\":\"TCP\"}": {},
    }}}}]}),
    json!({"ports": [{"port": 80, "nodePort": 30001}, {"port": 81}]})
)]
#[case::an_unreadable_manifest(
    json!({"ports": [{"port": 80, "nodePort": 30001}]}),
    json!({"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{"}}),
    json!({"ports": [{"port": 80}]})
)]
fn a_service_keeps_only_what_a_person_chose(
    #[case] spec: Value,
    #[case] metadata: Value,
    #[case] expected: Value,
) {
    assert_eq!(
        body("services", json!({"metadata": metadata, "spec": spec})),
        json!({"spec": expected})
    );
}

#[test]
fn node_ports_are_preserved_on_request() {
    let item =
        json!({"spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80, "nodePort": 30001}]}});
    let rules = RestoreRules {
        preserve_node_ports: true,
        ..rules()
    };
    let item = rewritten(item.as_object().unwrap(), "services", None, &rules);
    assert_eq!(
        item["spec"],
        json!({"ports": [{"port": 80, "nodePort": 30001}]})
    );
}

#[test]
fn a_service_account_keeps_its_secrets_whatever_their_names() {
    let item = json!({"metadata": {"name": "sa"}, "secrets": [{"name": "sa-token-abcde"}, {"name": "sa-token-github"}]});
    assert_eq!(
        body("serviceaccounts", item.clone())["secrets"],
        item["secrets"]
    );
}

#[test]
fn a_token_secret_comes_back_empty() {
    let item = json!({
        "metadata": {"name": "t", "annotations": {"kubernetes.io/service-account.uid": "u"}},
        "type": "kubernetes.io/service-account-token", "data": {"token": "x", "ca.crt": "y", "namespace": "z", "own": "o"},
    });
    assert_eq!(
        body("secrets", item),
        json!({"type": "kubernetes.io/service-account-token", "data": {"own": "o"}})
    );
}

#[test]
fn a_kept_volume_is_freed_from_the_old_claim_and_follows_the_mapping() {
    let item = json!({
        "metadata": {"name": "kept", "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
        "spec": {"claimRef": {"namespace": "old", "name": "c", "uid": "u", "resourceVersion": "1"}},
    });
    assert_eq!(
        body("persistentvolumes", item),
        json!({"spec": {"claimRef": {"namespace": "new", "name": "c"}}})
    );
}

#[rstest]
#[case::kept("kept", json!({"volumeName": "kept", "storageClassName": "s"}))]
#[case::provisioned_anew("gone", json!({"storageClassName": "s"}))]
fn a_claim_is_unbound_unless_its_volume_is_kept(#[case] volume: &str, #[case] expected: Value) {
    let item = json!({
        "metadata": {"name": "c", "annotations": {
            "pv.kubernetes.io/bind-completed": "yes", "volume.kubernetes.io/selected-node": "n",
            "volume.kubernetes.io/storage-provisioner": "p",
        }},
        "spec": {"volumeName": volume, "storageClassName": "s"},
    });
    assert_eq!(
        body("persistentvolumeclaims", item.clone()),
        json!({"spec": expected})
    );
    assert_eq!(
        metadata("persistentvolumeclaims", item, None).get("annotations"),
        None
    );
}

#[test]
fn subjects_of_bindings_follow_the_mapping() {
    let item = json!({"metadata": {"name": "x"}, "subjects": [
        {"kind": "ServiceAccount", "name": "a", "namespace": "old"},
        {"kind": "ServiceAccount", "name": "a", "namespace": "other"},
        {"kind": "User", "name": "system:serviceaccount:old:a"},
        {"kind": "Group", "name": "system:serviceaccounts:old"},
        {"kind": "User", "name": "old"},
    ]});
    for resource in [
        "rolebindings.rbac.authorization.k8s.io",
        "clusterrolebindings.rbac.authorization.k8s.io",
    ] {
        assert_eq!(
            body(resource, item.clone())["subjects"],
            json!([
                {"kind": "ServiceAccount", "name": "a", "namespace": "new"},
                {"kind": "ServiceAccount", "name": "a", "namespace": "other"},
                {"kind": "User", "name": "system:serviceaccount:new:a"},
                {"kind": "Group", "name": "system:serviceaccounts:new"},
                {"kind": "User", "name": "old"},
            ])
        );
    }
}

#[rstest]
#[case::webhook("validatingwebhookconfigurations.admissionregistration.k8s.io", "/webhooks/0/clientConfig/service/namespace",
    json!({"webhooks": [{"clientConfig": {"service": {"namespace": "old", "name": "s"}}}]}))]
#[case::api_service("apiservices.apiregistration.k8s.io", "/spec/service/namespace",
    json!({"spec": {"service": {"namespace": "old", "name": "s"}}}))]
#[case::conversion("customresourcedefinitions.apiextensions.k8s.io", "/spec/conversion/webhook/clientConfig/service/namespace",
    json!({"spec": {"conversion": {"webhook": {"clientConfig": {"service": {"namespace": "old", "name": "s"}}}}}}))]
fn services_of_webhooks_and_api_services_follow_the_mapping(
    #[case] group_resource: &str,
    #[case] pointer: &str,
    #[case] item: Value,
) {
    assert_eq!(
        body(group_resource, item.clone()).pointer(pointer),
        Some(&json!("new"))
    );
    let mut elsewhere = item;
    *elsewhere.pointer_mut(pointer).unwrap() = json!("other");
    assert_eq!(body(group_resource, elsewhere.clone()), elsewhere);
}

#[rstest]
#[case("endpoints", "/subsets/0/addresses/0/targetRef", |address| json!({"subsets": [{"addresses": [address]}]}))]
#[case("endpoints", "/subsets/0/notReadyAddresses/0/targetRef", |address| json!({"subsets": [{"notReadyAddresses": [address]}]}))]
#[case("endpointslices.discovery.k8s.io", "/endpoints/0/targetRef", |address| json!({"endpoints": [address]}))]
fn the_pods_of_endpoints_follow_the_mapping_and_lose_their_uid(
    #[case] group_resource: &str,
    #[case] pointer: &str,
    #[case] of: fn(Value) -> Value,
) {
    let address = json!({"ip": "10.0.0.1", "targetRef":
        {"kind": "Pod", "namespace": "old", "name": "p", "uid": "u", "resourceVersion": "1"}});
    let made = body(group_resource, of(address));
    assert_eq!(
        made.pointer(pointer),
        Some(&json!({"kind": "Pod", "namespace": "new", "name": "p"})),
        "{made}"
    );
}

#[test]
fn unknown_fields_of_old_definitions_are_preserved_by_their_schemas() {
    let item = json!({"metadata": {"name": "x"}, "spec": {"preserveUnknownFields": true, "versions": [{"name": "v1"}]}});
    assert_eq!(
        body("customresourcedefinitions.apiextensions.k8s.io", item),
        json!({"spec": {"preserveUnknownFields": false, "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        }}}]}})
    );
}

#[rstest]
#[case::mirror("pods", json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}), true)]
#[case::ended("pods", json!({"status": {"phase": "Succeeded"}}), true)]
#[case::failed("pods", json!({"status": {"phase": "Failed"}}), true)]
#[case::running("pods", json!({"status": {"phase": "Running"}}), false)]
#[case::done("jobs.batch", json!({"status": {"completionTime": "2026-01-01T00:00:00Z"}}), true)]
#[case::complete("jobs.batch", json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}), true)]
#[case::failed_job("jobs.batch", json!({"status": {"conditions": [{"type": "Failed", "status": "True"}]}}), true)]
#[case::completing("jobs.batch", json!({"status": {"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]}}), true)]
#[case::failing("jobs.batch", json!({"status": {"conditions": [{"type": "FailureTarget", "status": "True"}]}}), true)]
#[case::not_failed("jobs.batch", json!({"status": {"conditions": [{"type": "Failed", "status": "False"}]}}), false)]
#[case::suspended("jobs.batch", json!({"status": {"conditions": [{"type": "Suspended", "status": "True"}]}}), false)]
#[case::working("jobs.batch", json!({"status": {}}), false)]
#[case::managed("apiservices.apiregistration.k8s.io",
    json!({"metadata": {"labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"}}}), true)]
#[case::own("apiservices.apiregistration.k8s.io", json!({"metadata": {"labels": {}}}), false)]
#[case::endpoints_of_a_service("endpoints", json!({"metadata": {"labels":
    {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}}}), true)]
#[case::endpoints_of_a_user("endpoints", json!({"metadata": {"labels": {}}}), false)]
#[case::slice_of_a_service("endpointslices.discovery.k8s.io", json!({"metadata": {"labels":
    {"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}}}), true)]
#[case::slice_of_endpoints("endpointslices.discovery.k8s.io", json!({"metadata": {"labels":
    {"endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io"}}}), true)]
#[case::slice_of_a_user("endpointslices.discovery.k8s.io", json!({"metadata": {"labels":
    {"endpointslice.kubernetes.io/managed-by": "a-user"}}}), false)]
#[case::ca("configmaps", json!({"metadata": {"name": "kube-root-ca.crt"}}), true)]
#[case::kept("persistentvolumes", json!({"metadata": {"name": "kept"}}), false)]
#[case::not_kept("persistentvolumes", json!({"metadata": {"name": "gone"}}), true)]
#[case::token_that_an_old_cluster_generated("secrets", json!({"type": "kubernetes.io/service-account-token", "metadata": {
    "name": "sa-token-b2xzk", "annotations": {"kubernetes.io/service-account.name": "sa"}}}), false)]
#[case::asked_token("secrets", json!({"type": "kubernetes.io/service-account-token", "metadata": {
    "name": "mine", "annotations": {"kubernetes.io/service-account.name": "sa"}}}), false)]
fn items_that_the_cluster_makes_itself_or_that_had_ended_are_left_out(
    #[case] group_resource: &str,
    #[case] item: Value,
    #[case] left_out: bool,
) {
    let item = item.as_object().unwrap();
    let restore = Restore::new("r", RestoreSpec::default());
    let input = RestoreActionInput {
        item,
        from_backup: item,
        restore: &restore,
        left_to_controller: None,
    };
    let all = built_in(&Arc::new(rules()));
    let of_type = all
        .iter()
        .filter(|action| action.applies_to().included_resources == [group_resource]);
    let skipped = of_type.filter_map(|action| action.execute(input).now_or_never()?.unwrap().skip);
    assert_eq!(skipped.count() > 0, left_out);
}

const KINDS: [&str; 16] = [
    "endpoints",
    "endpointslices.discovery.k8s.io",
    "apiservices.apiregistration.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
    "pods",
    "jobs.batch",
    "secrets",
    "services",
    "serviceaccounts",
    "persistentvolumes",
    "persistentvolumeclaims",
    "rolebindings.rbac.authorization.k8s.io",
    "namespaces",
    "customresourcedefinitions.apiextensions.k8s.io",
    "configmaps",
    "widgets.example.com",
];

/// Any JSON, made mostly of words that the rules use.
fn any_json() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "metadata",
        "spec",
        "status",
        "labels",
        "annotations",
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "old",
        "kept",
        "ownerReferences",
        "managedFields",
        "ports",
        "nodePort",
        "clusterIP",
        "volumes",
        "containers",
        "volumeMounts",
        "template",
        "selector",
        "matchLabels",
        "controller-uid",
        "claimRef",
        "volumeName",
        "subjects",
        "secrets",
        "data",
        "type",
        "kubernetes.io/service-account-token",
        "token",
        "versions",
        "schema",
        "preserveUnknownFields",
        "None",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u16>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(word.clone(), inner, 0..6).prop_map(|map| Value::Object(
                map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
            )),
        ]
    })
}

proptest! {
    #[test]
    fn rewriting_twice_in_place_is_rewriting_once(
        metadata in any_json(), spec in any_json(), rest in any_json(), kind in prop::sample::select(KINDS.to_vec()),
    ) {
        let rules = rules().in_place();
        let mut item = match rest { Value::Object(map) => map, _ => Object::new() };
        item.insert("metadata".to_owned(), metadata);
        item.insert("spec".to_owned(), spec);
        let once = rewritten(&item, kind, Some("new"), &rules);
        prop_assert_eq!(rewritten(&once, kind, Some("new"), &rules), once);
    }

    #[test]
    fn nothing_of_the_old_life_is_ever_left(
        metadata in any_json(), rest in any_json(), kind in prop::sample::select(KINDS.to_vec()),
    ) {
        let mut item = match rest { Value::Object(map) => map, _ => Object::new() };
        item.insert("metadata".to_owned(), metadata);
        let item = rewritten(&item, kind, None, &rules());
        prop_assert!(!item.contains_key("status"));
        let metadata = item["metadata"].as_object().unwrap();
        for field in STRIPPED {
            prop_assert!(!metadata.contains_key(field), "{field}");
        }
        prop_assert_eq!(&metadata["labels"]["velero.io/restore-name"], "r");
    }
}
