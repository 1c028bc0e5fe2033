use serde_json::{Value, json};

use super::*;

fn types() -> Vec<ResourceType> {
    [
        ("", "pods", true),
        ("", "secrets", true),
        ("", "namespaces", false),
        ("", "nodes", false),
        ("", "persistentvolumes", false),
        ("apps", "deployments", true),
        ("rbac.authorization.k8s.io", "clusterroles", false),
        ("snapshot.storage.k8s.io", "volumesnapshots", true),
        ("snapshot.storage.k8s.io", "volumesnapshotcontents", false),
        ("velero.io", "datauploads", true),
    ]
    .map(|(group, plural, namespaced)| ResourceType {
        group: group.into(),
        plural: plural.into(),
        namespaced,
        ..ResourceType::default()
    })
    .into()
}

fn resolve(name: &str) -> Option<String> {
    let full = match name {
        "po" | "pods" => "pods",
        "deploy" | "deployments" => "deployments.apps",
        "pv" => "persistentvolumes",
        "clusterroles" => "clusterroles.rbac.authorization.k8s.io",
        "volumesnapshots" => "volumesnapshots.snapshot.storage.k8s.io",
        _ => return None,
    };
    Some(full.to_owned())
}

fn selected(filter: &ResourceFilter) -> Vec<String> {
    types()
        .iter()
        .filter(|t| filter.includes(t))
        .map(|t| t.plural.clone())
        .collect()
}

#[rstest::rstest]
#[case::no_filter_is_everything(
    json!({}),
    &["pods", "secrets", "namespaces", "nodes", "persistentvolumes", "deployments", "clusterroles", "datauploads"],
)]
#[case::a_prepared_spec_is_still_everything(
    json!({
        "includedNamespaces": ["*"],
        "excludedNamespaceScopedResources": ["volumesnapshots.snapshot.storage.k8s.io"],
        "excludedClusterScopedResources": ["volumesnapshotcontents.snapshot.storage.k8s.io"],
    }),
    &["pods", "secrets", "namespaces", "nodes", "persistentvolumes", "deployments", "clusterroles", "datauploads"],
)]
#[case::one_namespace_has_no_cluster_scoped_types(
    json!({ "includedNamespaces": ["a"] }),
    &["pods", "secrets", "namespaces", "deployments", "datauploads"],
)]
#[case::an_excluded_namespace_cuts_the_cluster_scoped_types(
    json!({ "excludedNamespaces": ["a"] }),
    &["pods", "secrets", "namespaces", "deployments", "datauploads"],
)]
#[case::short_names_are_completed(json!({ "includedNamespaceScopedResources": ["po", "deploy"] }), &["pods", "namespaces", "deployments"])]
#[case::globs_stay_globs(json!({ "includedNamespaceScopedResources": ["*.apps"] }), &["namespaces", "deployments"])]
#[case::all_namespaced_types_excluded(
    json!({ "excludedNamespaceScopedResources": ["*"], "includedClusterScopedResources": ["pv"] }),
    &["namespaces", "persistentvolumes"],
)]
#[case::all_cluster_scoped_types_excluded(
    json!({ "excludedClusterScopedResources": ["*"] }),
    &["pods", "secrets", "deployments", "datauploads"],
)]
#[case::all_cluster_scoped_types_included(
    json!({ "includedNamespaces": ["a"], "includedClusterScopedResources": ["*"] }),
    &["pods", "secrets", "namespaces", "nodes", "persistentvolumes", "deployments", "clusterroles", "datauploads"],
)]
#[case::an_excluded_cluster_scoped_type_leaves_namespaces(
    json!({ "excludedClusterScopedResources": ["clusterroles"] }),
    &["pods", "secrets", "namespaces", "deployments", "datauploads"],
)]
#[case::combined_includes(json!({ "includedResources": ["po", "pv"] }), &["pods", "persistentvolumes"])]
#[case::combined_excludes(
    json!({ "excludedResources": ["secrets", "nodes"] }),
    &["pods", "namespaces", "persistentvolumes", "deployments", "clusterroles", "datauploads"],
)]
#[case::combined_in_one_namespace(
    json!({ "includedNamespaces": ["a"], "includedResources": ["*"] }),
    &["pods", "secrets", "namespaces", "deployments", "datauploads"],
)]
#[case::combined_with_cluster_scoped_types(
    json!({ "includedNamespaces": ["a"], "includeClusterResources": true }),
    &["pods", "secrets", "namespaces", "nodes", "persistentvolumes", "deployments", "clusterroles", "datauploads"],
)]
#[case::combined_without_cluster_scoped_types(
    json!({ "includeClusterResources": false }),
    &["pods", "secrets", "deployments", "datauploads"],
)]
#[case::snapshots_are_never_selected_by_name(json!({ "includedResources": ["volumesnapshots"] }), &[])]
fn a_backup_selects(#[case] spec: Value, #[case] expected: &[&str]) {
    let spec: BackupSpec = serde_json::from_value(spec).unwrap();
    assert_eq!(
        selected(&ResourceFilter::for_backup(&spec, &resolve)),
        expected
    );
}

#[rstest::rstest]
#[case::no_filter_is_all_that_can_be_restored(
    json!({}),
    &["pods", "secrets", "namespaces", "persistentvolumes", "deployments", "clusterroles", "volumesnapshots", "volumesnapshotcontents", "datauploads"],
)]
#[case::one_namespace(
    json!({ "includedNamespaces": ["a"] }),
    &["pods", "secrets", "namespaces", "deployments", "volumesnapshots", "datauploads"],
)]
#[case::one_type(json!({ "includedResources": ["deploy"] }), &["deployments", "datauploads"])]
#[case::non_restorable_types_stay_out(json!({ "includedResources": ["nodes", "po"] }), &["pods", "datauploads"])]
#[case::excluded(
    json!({ "excludedResources": ["secrets"], "includeClusterResources": false }),
    &["pods", "deployments", "volumesnapshots", "datauploads"],
)]
fn a_restore_selects(#[case] spec: Value, #[case] expected: &[&str]) {
    let spec: RestoreSpec = serde_json::from_value(spec).unwrap();
    assert_eq!(
        selected(&ResourceFilter::for_restore(&spec, &resolve)),
        expected
    );
}

#[rstest::rstest]
#[case::no_filter_is_all_namespaced_types(json!({}), &["pods", "secrets", "namespaces", "deployments", "datauploads"])]
#[case::what_is_asked_for_is_selected(
    json!({ "includedClusterScopedResources": ["pv"] }),
    &["pods", "secrets", "namespaces", "persistentvolumes", "deployments", "datauploads"],
)]
#[case::the_older_fields_are_not_touched(
    json!({ "includeClusterResources": true }),
    &["pods", "secrets", "namespaces", "nodes", "persistentvolumes", "deployments", "clusterroles", "datauploads"],
)]
fn with_only_related_cluster_resources_a_backup_selects(
    #[case] spec: Value,
    #[case] expected: &[&str],
) {
    let spec: BackupSpec = serde_json::from_value(spec).unwrap();
    assert_eq!(
        selected(&ResourceFilter::for_backup(&spec, &resolve).only_related()),
        expected
    );
}

#[rstest::rstest]
#[case::cluster_scoped_types_need_not_be_selected(
    json!({ "includedNamespaces": ["a"], "includedResources": ["pods"] }),
    &["pods", "namespaces", "nodes", "persistentvolumes", "clusterroles"],
)]
#[case::unless_they_are_excluded(
    json!({ "excludedClusterScopedResources": ["pv"], "includedNamespaceScopedResources": ["pods"] }),
    &["pods", "namespaces", "nodes", "clusterroles"],
)]
#[case::or_none_is_wanted(json!({ "includeClusterResources": false }), &["pods", "secrets", "namespaces", "deployments", "datauploads"])]
fn with_others_come_along(#[case] spec: Value, #[case] expected: &[&str]) {
    let spec: BackupSpec = serde_json::from_value(spec).unwrap();
    let filter = ResourceFilter::for_backup(&spec, &resolve);
    let along: Vec<String> = types()
        .iter()
        .filter(|t| filter.allows_related(t))
        .map(|t| t.plural.clone())
        .collect();
    assert_eq!(along, expected);
}

#[test]
fn what_a_spec_excludes_does_not_come_along_either() {
    let spec: BackupSpec = serde_json::from_value(
        json!({ "excludedClusterScopedResources": ["pv"], "includedNamespaces": ["a"] }),
    )
    .unwrap();
    let filter = ResourceFilter::for_backup(&spec, &resolve);
    let excluded: Vec<String> = types()
        .iter()
        .filter(|t| filter.excludes(t))
        .map(ResourceType::group_resource)
        .collect();
    assert_eq!(excluded, ["persistentvolumes"]);
}
