mod protection;
mod restores;

use serde_json::{Value, json};

use super::*;

fn fields(findings: &[Finding]) -> Vec<&str> {
    findings
        .iter()
        .map(|finding| finding.field.as_str())
        .collect()
}

#[rstest::rstest]
#[case::nothing_given(json!({}), &[])]
#[case::a_usual_backup(json!({ "includedNamespaces": ["a", "team-*"], "ttl": "720h", "storageLocation": "default" }), &[])]
#[case::mixed_filters(json!({ "includedResources": ["pods"], "excludedClusterScopedResources": ["nodes"] }), &["spec"])]
#[case::switch_and_scoped_filters(
    json!({ "includeClusterResources": true, "includedNamespaceScopedResources": ["pods"] }),
    &["spec"],
)]
#[case::star_and_more(json!({ "includedResources": ["*", "pods"] }), &["spec.includedResources"])]
#[case::star_excluded(json!({ "excludedResources": ["*"] }), &["spec.excludedResources"])]
#[case::in_both(json!({ "includedResources": ["a", "b"], "excludedResources": ["b"] }), &["spec.excludedResources"])]
#[case::scoped_star_excluded(json!({ "excludedClusterScopedResources": ["*"] }), &[])]
#[case::scoped_star_excluded_and_more(
    json!({ "excludedClusterScopedResources": ["*", "a"] }),
    &["spec.excludedClusterScopedResources"],
)]
#[case::scoped_included_while_all_excluded(
    json!({ "includedNamespaceScopedResources": ["a"], "excludedNamespaceScopedResources": ["*"] }),
    &["spec.includedNamespaceScopedResources"],
)]
#[case::scoped_in_both(
    json!({ "includedNamespaceScopedResources": ["a"], "excludedNamespaceScopedResources": ["a"] }),
    &["spec.excludedNamespaceScopedResources"],
)]
#[case::namespace_names(
    json!({ "includedNamespaces": ["Bad", "good"], "excludedNamespaces": ["a**", "*"] }),
    &["spec.excludedNamespaces", "spec.includedNamespaces", "spec.excludedNamespaces"],
)]
#[case::both_selectors(
    json!({ "labelSelector": {}, "orLabelSelectors": [{ "matchLabels": { "a": "b c" } }] }),
    &["spec.orLabelSelectors", "spec.orLabelSelectors[0].matchLabels"],
)]
#[case::negative_spans(
    json!({ "ttl": "-1h", "csiSnapshotTimeout": "-1s", "itemOperationTimeout": "0s" }),
    &["spec.ttl", "spec.csiSnapshotTimeout"],
)]
#[case::policy_from_a_secret(json!({ "resourcePolicy": { "kind": "Secret", "name": "p" } }), &["spec.resourcePolicy.kind"])]
#[case::policy_from_a_config_map(json!({ "resourcePolicy": { "kind": "configmap", "name": "p" } }), &[])]
#[case::full(json!({ "backupType": "Full" }), &[])]
#[case::incremental(json!({ "backupType": "Incremental" }), &["spec.backupType"])]
#[case::unknown_type(json!({ "backupType": "Mirror" }), &["spec.backupType"])]
#[case::uploader(json!({ "uploaderConfig": { "parallelFilesUpload": -1 } }), &["spec.uploaderConfig.parallelFilesUpload"])]
#[case::hooks(
    json!({ "hooks": { "resources": [{
        "name": "freeze",
        "labelSelector": { "matchExpressions": [{ "key": "a", "operator": "Like" }] },
        "pre": [{ "exec": { "command": [] } }],
        "post": [{ "exec": { "command": ["true"], "timeout": "-1s", "onError": "FailBlock" } }],
    }] } }),
    &[
        "spec.hooks.resources[0].labelSelector.matchExpressions[0]",
        "spec.hooks.resources[0].pre[0].exec.command",
        "spec.hooks.resources[0].post[0].exec.onError",
        "spec.hooks.resources[0].post[0].exec.timeout",
    ],
)]
fn a_backup_is_refused_for(#[case] spec: Value, #[case] expected: &[&str]) {
    assert_eq!(
        fields(&backup(&serde_json::from_value(spec).unwrap())),
        expected
    );
}

#[rstest::rstest]
#[case::from_a_backup(json!({ "backupName": "b" }), &[])]
#[case::from_a_schedule(json!({ "scheduleName": "s" }), &[])]
#[case::from_nothing(json!({}), &["spec.backupName"])]
#[case::from_empty_names(json!({ "backupName": "", "scheduleName": "" }), &["spec.backupName"])]
#[case::from_both(json!({ "backupName": "b", "scheduleName": "s" }), &["spec.scheduleName"])]
#[case::non_restorable(
    json!({ "backupName": "b", "includedResources": ["pods", "nodes", "backups.velero.io"] }),
    &["spec.includedResources", "spec.includedResources"],
)]
#[case::lists(
    json!({ "backupName": "b", "excludedResources": ["*"], "includedNamespaces": ["*", "a"] }),
    &["spec.excludedResources", "spec.includedNamespaces"],
)]
#[case::mapping(json!({ "backupName": "b", "namespaceMapping": { "a": "B", "c": "d" } }), &["spec.namespaceMapping.a"])]
#[case::status(json!({ "backupName": "b", "restoreStatus": { "includedResources": ["*", "pods"] } }),
    &["spec.restoreStatus.includedResources"])]
#[case::two_into_one(json!({ "backupName": "b", "namespaceMapping": { "a": "d", "b": "e", "c": "d" } }),
    &["spec.namespaceMapping.c"])]
#[case::both_selectors(
    json!({ "backupName": "b", "labelSelector": {}, "orLabelSelectors": [] }),
    &["spec.orLabelSelectors"],
)]
#[case::policy(json!({ "backupName": "b", "existingResourcePolicy": "replace" }), &["spec.existingResourcePolicy"])]
#[case::volumes_are_left_alone(
    json!({ "backupName": "b", "existingVolumeDataPolicy": "none", "uploaderConfig": { "deleteExtraFiles": false } }),
    &[],
)]
#[case::extra_files_of_volumes_that_are_left_alone(
    json!({ "backupName": "b", "uploaderConfig": { "deleteExtraFiles": true } }),
    &["spec.uploaderConfig.deleteExtraFiles"],
)]
#[case::volumes_in_place(
    json!({ "backupName": "b", "existingVolumeDataPolicy": "full", "uploaderConfig": { "deleteExtraFiles": true },
        "includedResources": ["persistentvolumeclaims", "PersistentVolumes"] }),
    &[],
)]
#[case::volumes_in_part(
    json!({ "backupName": "b", "existingVolumeDataPolicy": "incremental", "includedResources": ["pvc"] }),
    &[],
)]
#[case::volumes_of_single_claims(
    json!({ "backupName": "b", "existingVolumeDataPolicy": "full", "includedObjects": ["shop/pvc/data"] }),
    &[],
)]
#[case::volumes_with_their_pods(
    json!({ "backupName": "b", "existingVolumeDataPolicy": "full", "includedResources": ["pvc", "pods"] }),
    &["spec.existingVolumeDataPolicy"],
)]
#[case::volumes_with_everything(
    json!({ "backupName": "b", "existingVolumeDataPolicy": "incremental" }),
    &["spec.existingVolumeDataPolicy"],
)]
#[case::volumes_with_other_objects(
    json!({ "backupName": "b", "existingVolumeDataPolicy": "full", "includedObjects": ["shop/pvc/data", "shop/pods/web"] }),
    &["spec.existingVolumeDataPolicy"],
)]
#[case::volumes_without_data(
    json!({ "backupName": "b", "existingVolumeDataPolicy": "full", "includedResources": ["pvc"], "restorePVs": false }),
    &["spec.existingVolumeDataPolicy"],
)]
#[case::volumes_otherwise(json!({ "backupName": "b", "existingVolumeDataPolicy": "replace" }), &["spec.existingVolumeDataPolicy"])]
#[case::known_policy(json!({ "backupName": "b", "existingResourcePolicy": "update" }), &[])]
#[case::modifier(json!({ "backupName": "b", "resourceModifier": { "kind": "x", "name": "m" } }), &["spec.resourceModifier.kind"])]
#[case::hooks(
    json!({ "backupName": "b", "hooks": { "resources": [{ "name": "h", "postHooks": [
        { "exec": { "command": ["true"], "execTimeout": "-1s", "waitTimeout": "-1s" } },
        { "init": { "initContainers": [{ "name": "i", "image": "busybox" }], "timeout": "-1s" } },
        { "init": { "initContainers": [{ "name": "i", "image": "busybox", "command": ["true"] }] } },
    ] }] } }),
    &[
        "spec.hooks.resources[0].postHooks[0].exec.execTimeout",
        "spec.hooks.resources[0].postHooks[0].exec.waitTimeout",
        "spec.hooks.resources[0].postHooks[1].init.timeout",
        "spec.hooks.resources[0].postHooks[1].init.initContainers[0]",
    ],
)]
fn a_restore_is_refused_for(#[case] spec: Value, #[case] expected: &[&str]) {
    assert_eq!(
        fields(&restore(&serde_json::from_value(spec).unwrap())),
        expected
    );
}

#[test]
fn every_undecodable_field_of_a_backup_is_named_at_once() {
    let findings = raw_backup(&json!({ "spec": {
        "ttl": "tomorrow",
        "csiSnapshotTimeout": 5,
        "includedNamespaces": "default",
        "excludedNamespaces": null,
        "snapshotVolumes": "yes",
        "labelSelector": [],
        "orderedResources": { "pods": ["a"] },
        "storageLocation": "default",
        "later": { "than": "us" },
        "hooks": { "resources": [
            { "pre": [{ "exec": { "command": ["true"], "timeout": "soon" } }, {}], "includedResources": 1 },
            "what",
        ] },
    } }));
    assert_eq!(
        fields(&findings),
        [
            "spec.csiSnapshotTimeout",
            "spec.includedNamespaces",
            "spec.labelSelector",
            "spec.orderedResources",
            "spec.snapshotVolumes",
            "spec.ttl",
            "spec.hooks.resources[0].name",
            "spec.hooks.resources[0].includedResources",
            "spec.hooks.resources[0].pre[0].exec.timeout",
            "spec.hooks.resources[0].pre[1].exec",
            "spec.hooks.resources[1]",
        ]
    );
    let ttl = findings
        .iter()
        .find(|finding| finding.field == "spec.ttl")
        .unwrap();
    assert_eq!(
        ttl.to_string(),
        "spec.ttl: \"tomorrow\" is not a duration: expected numbers with units such as \"720h\", \"1h30m\" or \"45s\""
    );
}

#[test]
fn every_undecodable_field_of_a_restore_is_named_at_once() {
    let findings = raw_restore(&json!({ "spec": {
        "backupName": 1,
        "itemOperationTimeout": "x",
        "restorePVs": "no",
        "namespaceMapping": ["a"],
        "hooks": { "resources": [{ "name": "h", "postHooks": [
            { "exec": { "command": ["true"], "execTimeout": "x", "waitForReady": "x" } },
            { "init": { "initContainers": [], "timeout": 1 } },
            { "exec": {} },
        ] }] },
    } }));
    assert_eq!(
        fields(&findings),
        [
            "spec.backupName",
            "spec.itemOperationTimeout",
            "spec.namespaceMapping",
            "spec.restorePVs",
            "spec.hooks.resources[0].postHooks[0].exec.execTimeout",
            "spec.hooks.resources[0].postHooks[0].exec.waitForReady",
            "spec.hooks.resources[0].postHooks[1].init.timeout",
            "spec.hooks.resources[0].postHooks[2].exec.command",
        ]
    );
}

#[test]
fn an_object_without_a_spec_has_nothing_undecodable() {
    for object in [
        json!({}),
        json!({ "spec": null }),
        json!({ "spec": {} }),
        json!({ "spec": { "hooks": {} } }),
    ] {
        assert_eq!(undecodable_backup(&object), []);
        assert_eq!(undecodable_restore(&object), []);
    }
    assert_eq!(fields(&raw_backup(&json!({ "spec": [] }))), ["spec"]);
    assert_eq!(fields(&raw_backup(&json!([]))), [""]);
}

/// JSON that may or may not fit the fields of a spec.
fn any_json() -> impl proptest::strategy::Strategy<Value = Value> {
    use proptest::prelude::*;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        prop_oneof![Just("1h"), Just("x"), Just("Fail")].prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 24, 3, |inner| {
        let keys = prop_oneof![
            Just("ttl"),
            Just("hooks"),
            Just("resources"),
            Just("pre"),
            Just("postHooks"),
            Just("exec"),
            Just("init"),
            Just("initContainers"),
            Just("command"),
            Just("timeout"),
            Just("name"),
            Just("includedNamespaces"),
            Just("labelSelector"),
            Just("metadata"),
            Just("uploaderConfig"),
        ];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map(keys.prop_map(str::to_owned), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

#[test]
fn a_thing_of_another_shape_is_named_where_it_stands() {
    for (spec, field) in [
        (json!({ "hooks": [] }), "spec.hooks"),
        (json!({ "hooks": 1 }), "spec.hooks"),
        (
            json!({ "hooks": { "resources": {} } }),
            "spec.hooks.resources",
        ),
        (
            json!({ "hooks": { "resources": [{ "name": "h", "pre": {} }] } }),
            "spec.hooks.resources[0].pre",
        ),
        (
            json!({ "hooks": { "resources": [{ "name": "h", "pre": [{ "exec": [] }] }] } }),
            "spec.hooks.resources[0].pre[0].exec",
        ),
    ] {
        assert_eq!(fields(&raw_backup(&json!({ "spec": spec }))), [field]);
    }
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(2000))]

    #[test]
    fn a_spec_decodes_exactly_when_nothing_is_found(spec in any_json()) {
        let object = json!({ "spec": spec });
        if spec.is_null() {
            return Ok(());
        }
        let decodes = serde_json::from_value::<crate::api::BackupSpec>(spec.clone()).is_ok();
        proptest::prop_assert_eq!(undecodable_backup(&object).is_empty(), decodes, "{:?}", undecodable_backup(&object));
        let decodes = serde_json::from_value::<crate::api::RestoreSpec>(spec).is_ok();
        proptest::prop_assert_eq!(undecodable_restore(&object).is_empty(), decodes, "{:?}", undecodable_restore(&object));
    }
}
