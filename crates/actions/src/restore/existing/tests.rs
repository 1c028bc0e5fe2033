#![allow(clippy::needless_pass_by_value)] // tables read better with values

use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn rules() -> RestoreRules {
    RestoreRules { backup_label: "b".to_owned(), restore_label: "r".to_owned(), ..RestoreRules::default() }
}

/// The item of the backup as it is created, against the object of the cluster.
fn compared(group_resource: &str, backup: Value, cluster: Value, update: bool) -> Existing {
    let mut wanted = backup.as_object().unwrap().clone();
    transform::rewrite(&mut wanted, group_resource, Some("ns"), &rules());
    compare(&wanted, cluster.as_object().unwrap(), group_resource, Some("ns"), &rules(), update)
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
    assert_eq!(compared(group_resource, backup, cluster, true), Existing::Equal);
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
    assert_eq!(compared("configmaps", backup.clone(), cluster.clone(), false), Existing::Differs);
    let Existing::Patch(patch) = compared("configmaps", backup.clone(), cluster.clone(), true) else {
        panic!("no patch");
    };
    json_patch::merge(&mut cluster, &patch);
    assert_eq!(compared("configmaps", backup, cluster, true), Existing::Equal, "{patch}");
}

#[test]
fn a_patch_holds_only_for_the_version_that_was_compared() {
    let cluster = json!({"metadata": {"name": "x", "uid": "u", "resourceVersion": "7"}, "data": {"a": "2"}});
    let Existing::Patch(patch) =
        compared("configmaps", json!({"metadata": {"name": "x"}, "data": {"a": "1"}}), cluster, true)
    else {
        panic!("no patch");
    };
    assert_eq!(
        (&patch["metadata"]["uid"], &patch["metadata"]["resourceVersion"]),
        (&json!("u"), &json!("7"))
    );
    assert_eq!(patch["metadata"]["labels"]["velero.io/restore-name"], "r");
}

#[test]
fn service_accounts_are_merged_whatever_the_policy() {
    let backup = json!({
        "metadata": {"name": "default", "labels": {"a": "backup", "b": "backup"}},
        "secrets": [{"name": "mine"}], "imagePullSecrets": [{"name": "pull"}],
    });
    let mut cluster = json!({
        "metadata": {"name": "default", "labels": {"a": "cluster"}}, "secrets": [{"name": "theirs"}],
    });
    let Existing::Patch(patch) = compared("serviceaccounts", backup.clone(), cluster.clone(), false) else {
        panic!("no patch");
    };
    json_patch::merge(&mut cluster, &patch);
    assert_eq!(cluster["metadata"]["labels"]["a"], "cluster");
    assert_eq!(cluster["metadata"]["labels"]["b"], "backup");
    assert_eq!(cluster["secrets"], json!([{"name": "theirs"}, {"name": "mine"}]));
    assert_eq!(cluster["imagePullSecrets"], json!([{"name": "pull"}]));
    assert_eq!(
        compared("serviceaccounts", backup, cluster, false),
        Existing::Equal,
        "merging again changes nothing"
    );
}

#[test]
fn a_default_account_that_the_cluster_just_made_is_no_difference() {
    let plain = json!({"metadata": {"name": "default"}});
    assert_eq!(compared("serviceaccounts", plain.clone(), plain, false), Existing::Equal);
}

#[rstest]
#[case::ours("r", "2026-01-02T00:00:00Z", true)]
#[case::same_second("r", "2026-01-01T00:00:00Z", true)]
#[case::of_an_older_restore_of_this_name("r", "2025-12-31T23:59:59Z", false)]
#[case::of_another("other", "2026-01-02T00:00:00Z", false)]
fn only_what_this_very_restore_made_is_ours(#[case] label: &str, #[case] made: &str, #[case] ours: bool) {
    let object =
        json!({"metadata": {"labels": {"velero.io/restore-name": label}, "creationTimestamp": made}});
    assert_eq!(is_ours(object.as_object().unwrap(), &rules(), Some("2026-01-01T00:00:00Z")), ours);
    assert!(!is_ours(object.as_object().unwrap(), &rules(), None));
}
