#![allow(clippy::needless_pass_by_value)] // tables read better with values

use std::sync::Arc;

use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn rules() -> RestoreRules {
    RestoreRules {
        backup_label: "b".to_owned(),
        restore_label: "r".to_owned(),
        ..RestoreRules::default()
    }
}

/// Compares the restored form of a backup's item with the object of the cluster.
fn compared(group_resource: &str, backup: Value, cluster: Value, update: bool) -> Existing {
    let wanted = transform::rewritten(
        backup.as_object().unwrap(),
        group_resource,
        Some("ns"),
        &rules(),
    );
    let made = RestoredForm {
        wanted: &wanted,
        unmodified: None,
    };
    compare(
        made,
        cluster.as_object().unwrap(),
        group_resource,
        Some("ns"),
        &rules(),
        update,
    )
}

#[rstest]
#[case::same("configmaps", json!({"metadata": {"name": "x"}, "data": {"a": "1"}}),
    json!({"metadata": {"name": "x", "namespace": "ns", "uid": "u", "resourceVersion": "9"}, "data": {"a": "1"}}))]
#[case::labels_of_another_restore("configmaps", json!({"metadata": {"name": "x"}}),
    json!({"metadata": {"name": "x", "labels": {"velero.io/restore-name": "other", "velero.io/backup-name": "o"}}}))]
#[case::status_only("deployments.apps", json!({"metadata": {"name": "x"}, "spec": {"replicas": 1}}),
    json!({"metadata": {"name": "x"}, "spec": {"replicas": 1}, "status": {"replicas": 1}}))]
#[case::given_by_the_cluster("services", json!({"metadata": {"name": "x"}, "spec": {"clusterIP": "10.0.0.1"}}),
    json!({"metadata": {"name": "x"}, "spec": {"clusterIP": "10.0.0.2", "clusterIPs": ["10.0.0.2"]}}))]
#[case::empty_is_absent("configmaps", json!({"metadata": {"name": "x"}, "data": {}, "binaryData": null}),
    json!({"metadata": {"name": "x", "annotations": {}}}))]
fn equal_objects_are_equal_whatever_the_cluster_filled_in(
    #[case] group_resource: &str,
    #[case] backup: Value,
    #[case] cluster: Value,
) {
    assert_eq!(
        compared(group_resource, backup, cluster, true),
        Existing::Equal
    );
}

#[rstest]
#[case::value(json!({"data": {"a": "2"}}))]
#[case::more(json!({"data": {"a": "1", "b": "1"}}))]
#[case::less(json!({}))]
#[case::label(json!({"data": {"a": "1"}, "metadata": {"name": "x", "labels": {"own": "1"}}}))]
fn different_objects_are_left_unless_they_may_be_updated(#[case] mut cluster: Value) {
    if cluster["metadata"].is_null() {
        cluster["metadata"] = json!({"name": "x"});
    }
    let backup = json!({"metadata": {"name": "x"}, "data": {"a": "1"}});
    assert_eq!(
        compared("configmaps", backup.clone(), cluster.clone(), false),
        Existing::Differs
    );
    let Existing::Patch(patch) = compared("configmaps", backup.clone(), cluster.clone(), true)
    else {
        panic!("no patch");
    };
    json_patch::merge(&mut cluster, &Value::Object(patch));
    assert_eq!(
        compared("configmaps", backup, cluster, true),
        Existing::Equal
    );
}

/// An empty selector selects everything, and in many custom resources the mere presence of a field
/// enables a feature.
#[rstest]
#[case::selector(json!({"spec": {"ingress": [{"from": [{"podSelector": {"a": "b"}}]}]}}),
    json!({"spec": {"ingress": [{"from": [{"podSelector": {"a": "b"}, "namespaceSelector": {}}]}]}}))]
#[case::of_an_object(json!({"spec": {"minAvailable": 1}}), json!({"spec": {"minAvailable": 1, "selector": {}}}))]
#[case::a_list(json!({"spec": {"allow": []}}), json!({"spec": {}}))]
#[case::of_nothing(json!({"spec": {"a": {"b": null}, "c": 1}}), json!({"spec": {"c": 1}}))]
fn what_is_empty_is_not_absent(#[case] one: Value, #[case] other: Value) {
    for (backup, cluster) in [(&one, &other), (&other, &one)] {
        let of_kind = "policies.example.com";
        assert_eq!(
            compared(of_kind, backup.clone(), cluster.clone(), false),
            Existing::Differs,
            "{backup}"
        );
        let mut changed = cluster.clone();
        let Existing::Patch(patch) = compared(of_kind, backup.clone(), cluster.clone(), true)
        else {
            panic!("no patch");
        };
        json_patch::merge(&mut changed, &Value::Object(patch));
        assert_eq!(
            compared(of_kind, backup.clone(), changed, true),
            Existing::Equal,
            "{backup}"
        );
    }
}

#[test]
fn a_patch_holds_only_for_the_version_that_was_compared() {
    let cluster =
        json!({"metadata": {"name": "x", "uid": "u", "resourceVersion": "7"}, "data": {"a": "2"}});
    let Existing::Patch(patch) = compared(
        "configmaps",
        json!({"metadata": {"name": "x"}, "data": {"a": "1"}}),
        cluster,
        true,
    ) else {
        panic!("no patch");
    };
    assert_eq!(
        (
            &patch["metadata"]["uid"],
            &patch["metadata"]["resourceVersion"]
        ),
        (&json!("u"), &json!("7"))
    );
    assert_eq!(patch["metadata"]["labels"]["velero.io/restore-name"], "r");
}

#[rstest]
#[case::left(false)]
#[case::updated(true)]
fn service_accounts_are_merged_whatever_the_policy(#[case] update: bool) {
    let backup = json!({
        "metadata": {"name": "default", "labels": {"a": "backup", "b": "backup"}},
        "secrets": [{"name": "mine"}], "imagePullSecrets": [{"name": "pull"}], "automountServiceAccountToken": false,
    });
    let mut cluster = json!({
        "metadata": {"name": "default", "labels": {"a": "cluster"}}, "secrets": [{"name": "theirs"}],
    });
    let patch = match (
        compared("serviceaccounts", backup.clone(), cluster.clone(), update),
        update,
    ) {
        (Existing::Complete(patch), false) | (Existing::Patch(patch), true) => patch,
        (other, _) => panic!("{other:?}"),
    };
    json_patch::merge(&mut cluster, &Value::Object(patch));
    assert_eq!(
        cluster["metadata"]["labels"]["a"],
        if update { "backup" } else { "cluster" }
    );
    assert_eq!(cluster["metadata"]["labels"]["b"], "backup");
    assert_eq!(
        cluster["secrets"],
        json!([{"name": "theirs"}, {"name": "mine"}])
    );
    assert_eq!(cluster["imagePullSecrets"], json!([{"name": "pull"}]));
    assert_eq!(cluster["automountServiceAccountToken"], false);
    assert_eq!(
        compared("serviceaccounts", backup, cluster, update),
        if update {
            Existing::Equal
        } else {
            Existing::Differs
        },
        "merging again changes nothing"
    );
}

#[rstest]
#[case::automount(json!({"automountServiceAccountToken": false}), json!({"automountServiceAccountToken": true}))]
#[case::annotation(json!({"metadata": {"annotations": {"role": "right"}}}), json!({"metadata": {"annotations": {"role": "wrong"}}}))]
fn what_differs_in_an_account_is_a_difference(#[case] backup: Value, #[case] cluster: Value) {
    let compared = |update| compared("serviceaccounts", backup.clone(), cluster.clone(), update);
    assert_eq!(compared(false), Existing::Differs);
    assert!(matches!(compared(true), Existing::Patch(_)));
}

#[rstest]
#[case::lacks_a_label(json!({"labels": {"enforce": "restricted"}}), json!({}), true)]
#[case::has_another_annotation(json!({"annotations": {"a": "b"}}), json!({"annotations": {"a": "c"}}), true)]
#[case::has_more(json!({"labels": {"a": "b"}}), json!({"labels": {"a": "b", "more": "c"}, "annotations": {"d": "e"}}), false)]
#[case::labels_of_restores(json!({"labels": {"velero.io/restore-name": "r"}}), json!({"labels": {}}), false)]
#[case::of_the_cluster(json!({"labels": {"kubernetes.io/metadata.name": "a"}}), json!({"labels": {"kubernetes.io/metadata.name": "b"}}), false)]
fn what_a_namespace_lacks_is_a_difference(
    #[case] backup: Value,
    #[case] cluster: Value,
    #[case] differs: bool,
) {
    let of = |metadata: &Value| json!({"metadata": metadata}).as_object().unwrap().clone();
    let (backup, mut cluster) = (of(&backup), Value::Object(of(&cluster)));
    let compared =
        |cluster: &Value, update| compare_namespace(&backup, cluster.as_object().unwrap(), update);
    assert_eq!(
        compared(&cluster, false),
        if differs {
            Existing::Differs
        } else {
            Existing::Equal
        }
    );
    let before = cluster.clone();
    if let Existing::Patch(patch) = compared(&cluster, true) {
        json_patch::merge(&mut cluster, &Value::Object(patch));
    }
    assert_eq!(
        (compared(&cluster, true), cluster != before),
        (Existing::Equal, differs)
    );
}

#[test]
fn a_default_account_that_the_cluster_just_made_is_no_difference() {
    let plain = json!({"metadata": {"name": "default"}});
    assert_eq!(
        compared("serviceaccounts", plain.clone(), plain, false),
        Existing::Equal
    );
}

#[rstest]
#[case::ours("r", "2026-01-02T00:00:00Z", true)]
#[case::same_second("r", "2026-01-01T00:00:00Z", true)]
#[case::of_an_older_restore_of_this_name("r", "2025-12-31T23:59:59Z", false)]
#[case::of_another("other", "2026-01-02T00:00:00Z", false)]
fn only_what_this_very_restore_made_is_ours(
    #[case] label: &str,
    #[case] made: &str,
    #[case] ours: bool,
) {
    let object = json!({"metadata": {"labels": {"velero.io/restore-name": label}, "creationTimestamp": made}});
    assert_eq!(
        is_ours(
            object.as_object().unwrap(),
            &rules(),
            Some("2026-01-01T00:00:00Z")
        ),
        ours
    );
    assert!(!is_ours(object.as_object().unwrap(), &rules(), None));
}

/// Compares a pod of the backup that a modifier has changed with a pod of the cluster, all given as
/// `spec`s.
fn compared_modified(backup: &Value, modified: &Value, cluster: &Value) -> Existing {
    let placed = |spec: &Value| {
        let pod = json!({"metadata": {"name": "x"}, "spec": spec});
        let mut pod = pod.as_object().unwrap().clone();
        transform::place(&mut pod, Some("ns"), &rules());
        pod
    };
    let (unmodified, wanted) = (placed(backup), placed(modified));
    let cluster = json!({"metadata": {"name": "x", "uid": "u"}, "spec": cluster});
    let made = RestoredForm {
        wanted: &wanted,
        unmodified: Some(&unmodified),
    };
    compare(
        made,
        cluster.as_object().unwrap(),
        "pods",
        Some("ns"),
        &rules(),
        false,
    )
}

#[rstest]
#[case::what_rewriting_takes_off(json!({"x": 1}), json!({"x": 1, "nodeName": "n"}), json!({"x": 1, "nodeName": "n"}))]
#[case::another_value(json!({"x": 1}), json!({"x": 2}), json!({"x": 2, "nodeName": "n"}))]
#[case::defaults_of_what_is_added(
    json!({"containers": [{"name": "a", "d": 1}]}),
    json!({"containers": [{"name": "a", "d": 1}, {"name": "b", "ports": [{"p": 1}]}], "new": {"set": {"y": 1}}}),
    json!({"containers": [{"name": "a", "d": 1}, {"name": "b", "d": 1, "ports": [{"p": 1, "protocol": "TCP"}]}], "new": {"set": {"y": 1, "z": 2}}})
)]
#[case::mounts_that_admission_adds(
    json!({"containers": [{"name": "a", "image": "1"}]}),
    json!({"containers": [{"name": "a", "image": "2"}]}),
    json!({
        "containers": [{"name": "a", "image": "2", "volumeMounts": [{"name": "kube-api-access-1"}]}],
        "volumes": [{"name": "kube-api-access-1", "projected": {}}],
    })
)]
#[case::what_is_removed(json!({"x": 1, "y": {"z": 1, "w": 1}}), json!({"y": {"w": 1}}), json!({"y": {"w": 1}}))]
fn what_a_modifier_has_set_is_no_difference(
    #[case] backup: Value,
    #[case] modified: Value,
    #[case] cluster: Value,
) {
    assert_eq!(
        compared_modified(&backup, &modified, &cluster),
        Existing::Equal
    );
}

#[rstest]
#[case::the_value_of_the_backup(json!({"x": 1}), json!({"x": 2}), json!({"x": 1}))]
#[case::another_value(json!({"x": 1}), json!({"x": 1, "nodeName": "n"}), json!({"x": 1, "nodeName": "m"}))]
#[case::a_difference_elsewhere(json!({"x": 1, "y": 1}), json!({"x": 2, "y": 1}), json!({"x": 2, "y": 2}))]
#[case::more_elsewhere(json!({"x": 1}), json!({"x": 2}), json!({"x": 2, "more": 1}))]
#[case::what_was_to_be_removed(json!({"y": [{"z": 1, "w": 1}]}), json!({"y": [{"z": 1}]}), json!({"y": [{"z": 1, "w": 1}]}))]
#[case::more_items(json!({"y": [1]}), json!({"y": [2]}), json!({"y": [2, 3]}))]
fn a_difference_to_what_a_modifier_wants_is_one(
    #[case] backup: Value,
    #[case] modified: Value,
    #[case] cluster: Value,
) {
    assert_eq!(
        compared_modified(&backup, &modified, &cluster),
        Existing::Differs
    );
}

fn as_copy() -> RestoreRules {
    RestoreRules {
        namespaces: Arc::new([("old".to_owned(), "new".to_owned())].into()),
        ..rules()
    }
}

/// The same for a restore that maps namespace `old` to `new`.
fn compared_as_copy(
    group_resource: &str,
    backup: &Value,
    cluster: &Value,
    update: bool,
) -> Existing {
    let mapped = as_copy();
    let wanted = transform::rewritten(backup.as_object().unwrap(), group_resource, None, &mapped);
    let made = RestoredForm {
        wanted: &wanted,
        unmodified: None,
    };
    compare(
        made,
        cluster.as_object().unwrap(),
        group_resource,
        None,
        &mapped,
        update,
    )
}

fn volume_of(claim: &str, phase: &str) -> Value {
    let (namespace, name) = claim.split_once('/').unwrap();
    json!({"metadata": {"name": "v"}, "status": {"phase": phase},
        "spec": {"nfs": {"path": "/"}, "claimRef": {"namespace": namespace, "name": name, "uid": "u"}}})
}

#[rstest]
#[case::in_use_by_the_original("old/data", "Bound", Existing::Held("old/data".to_owned()))]
#[case::in_use_elsewhere("third/other", "Bound", Existing::Held("third/other".to_owned()))]
#[case::reserved("third/other", "Available", Existing::Held("third/other".to_owned()))]
#[case::of_the_copy("new/data", "Bound", Existing::Equal)]
fn a_volume_that_another_claim_holds_is_never_changed(
    #[case] holder: &str,
    #[case] phase: &str,
    #[case] expected: Existing,
) {
    let (backup, cluster) = (volume_of("old/data", "Bound"), volume_of(holder, phase));
    for update in [false, true] {
        assert_eq!(
            compared_as_copy("persistentvolumes", &backup, &cluster, update),
            expected
        );
    }
}

#[test]
fn a_volume_whose_claim_is_gone_is_free_for_a_copy_that_may_change_it() {
    let (backup, cluster) = (
        volume_of("old/data", "Bound"),
        volume_of("old/data", "Released"),
    );
    assert_eq!(
        compared_as_copy("persistentvolumes", &backup, &cluster, false),
        Existing::Released
    );
    let Existing::Patch(patch) = compared_as_copy("persistentvolumes", &backup, &cluster, true)
    else {
        panic!("no patch");
    };
    assert_eq!(
        (
            &patch["spec"]["claimRef"]["namespace"],
            &patch["spec"]["claimRef"]["uid"]
        ),
        (&json!("new"), &Value::Null)
    );
}

#[rstest]
#[case::binding("clusterrolebindings.rbac.authorization.k8s.io", |namespace: &str| json!({"metadata": {"name": "x"},
    "subjects": [{"kind": "ServiceAccount", "name": "a", "namespace": namespace}]}))]
#[case::webhook("mutatingwebhookconfigurations.admissionregistration.k8s.io", |namespace: &str| json!({"metadata": {"name": "x"},
    "webhooks": [{"clientConfig": {"service": {"name": "s", "namespace": namespace}}}]}))]
#[case::api_service("apiservices.apiregistration.k8s.io", |namespace: &str| json!({"metadata": {"name": "x"},
    "spec": {"service": {"name": "s", "namespace": namespace}}}))]
fn what_serves_the_original_of_a_copy_is_known(
    #[case] group_resource: &str,
    #[case] of: fn(&str) -> Value,
) {
    for update in [false, true] {
        let compared =
            |cluster: &str| compared_as_copy(group_resource, &of("old"), &of(cluster), update);
        let serves = |cluster: &str| {
            links::mapped_namespaces(of(cluster).as_object().unwrap(), group_resource, &as_copy())
        };
        assert_eq!(serves("old"), ["old"]);
        assert_eq!(compared("new"), Existing::Equal);
        for other in ["old", "third"] {
            assert_eq!(
                matches!(compared(other), Existing::Patch(_)),
                update,
                "{other}"
            );
        }
        assert_eq!(serves("third"), [""; 0], "it leads to neither");
    }
}

#[rstest]
#[case::of_the_backup(json!({"volumeName": "v"}))]
#[case::of_another(json!({"volumeName": "other"}))]
fn the_volume_of_an_existing_claim_is_no_difference(#[case] cluster: Value) {
    let rules = RestoreRules {
        kept_volumes: Arc::new(["v".to_owned(), "other".to_owned()].into()),
        ..rules()
    };
    for backup in [json!({"volumeName": "v"}), json!({})] {
        let [wanted, cluster] =
            [&backup, &cluster].map(|spec| json!({"metadata": {"name": "c"}, "spec": spec}));
        let claims = "persistentvolumeclaims";
        let wanted = transform::rewritten(wanted.as_object().unwrap(), claims, Some("ns"), &rules);
        let made = RestoredForm {
            wanted: &wanted,
            unmodified: None,
        };
        let compared = compare(
            made,
            cluster.as_object().unwrap(),
            claims,
            Some("ns"),
            &rules,
            true,
        );
        assert_eq!(compared, Existing::Equal);
    }
}
