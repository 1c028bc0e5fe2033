use serde_json::json;

use super::*;

fn policy(text: &str) -> Result<ResourcePolicy, Vec<String>> {
    read(&BTreeMap::from([(
        "policy.yaml".to_owned(),
        text.to_owned(),
    )]))
    .map_err(|findings| findings.into_iter().map(|finding| finding.field).collect())
}

fn one(conditions: &str) -> ResourcePolicy {
    let text = format!(
        "version: v1\nvolumePolicies:\n- conditions: {conditions}\n  action: {{ type: snapshot }}\n"
    );
    policy(&text).unwrap()
}

fn volume(source: &Value) -> Value {
    let mut volume =
        json!({ "spec": { "capacity": { "storage": "10Gi" }, "storageClassName": "fast" } });
    for (key, value) in source.as_object().unwrap() {
        volume["spec"][key] = value.clone();
    }
    volume
}

#[rstest::rstest]
#[case("{}", true)]
#[case("{ capacity: '1Gi,20Gi' }", true)]
#[case("{ capacity: '10Gi,' }", true)]
#[case("{ capacity: ', 10Gi' }", true)]
#[case("{ capacity: ',' }", true)]
#[case("{ capacity: '11Gi,' }", false)]
#[case("{ capacity: ',9Gi' }", false)]
#[case("{ storageClass: [slow, fast] }", true)]
#[case("{ storageClass: [slow] }", false)]
#[case("{ csi: {} }", true)]
#[case("{ csi: { driver: ebs } }", true)]
#[case("{ csi: { driver: ebs, volumeAttributes: { type: io2 } } }", true)]
#[case("{ csi: { driver: ebs, volumeAttributes: { type: gp3 } } }", false)]
#[case("{ csi: { driver: efs } }", false)]
#[case("{ nfs: {} }", false)]
#[case("{ volumeTypes: [hostPath, csi] }", true)]
#[case("{ volumeTypes: [hostPath] }", false)]
#[case("{ pvcLabels: { app: web } }", true)]
#[case("{ pvcLabels: { app: web, tier: db } }", false)]
#[case("{ pvcPhase: [Bound] }", true)]
#[case("{ pvcPhase: [Pending, Lost] }", false)]
#[case("{ pvcVolumeMode: Block }", true)]
#[case("{ pvcVolumeMode: Filesystem }", false)]
#[case("{ pvcAccessModes: [] }", true)]
#[case("{ pvcAccessModes: [ReadOnlyMany, ReadWriteOnce] }", true)]
#[case("{ pvcAccessModes: [ReadWriteOnce] }", false)]
#[case(
    "{ pvcAccessModes: [ReadWriteOnce, ReadOnlyMany, ReadWriteMany] }",
    false
)]
#[case("{ storageClass: [fast], csi: { driver: efs } }", false)]
fn conditions_hold_on_a_volume(#[case] conditions: &str, #[case] holds: bool) {
    let source =
        json!({ "csi": { "driver": "ebs", "volumeAttributes": { "type": "io2", "zone": "a" } } });
    let claim = json!({
        "metadata": { "labels": { "app": "web", "x": "y" } },
        "spec": { "volumeMode": "Block", "accessModes": ["ReadWriteOnce", "ReadOnlyMany"] },
        "status": { "phase": "Bound" },
    });
    let volume = Volume::persistent(Some(&volume(&source)), Some(&claim));
    assert_eq!(one(conditions).action_for(&volume).is_some(), holds);
}

#[rstest::rstest]
#[case("{ nfs: {} }", true)]
#[case("{ nfs: { server: s } }", true)]
#[case("{ nfs: { server: s, path: /p } }", true)]
#[case("{ nfs: { path: /p } }", true)]
#[case("{ nfs: { server: t } }", false)]
#[case("{ nfs: { server: s, path: /q } }", false)]
#[case("{ csi: {} }", false)]
fn conditions_on_nfs(#[case] conditions: &str, #[case] holds: bool) {
    let source = json!({ "nfs": { "server": "s", "path": "/p" } });
    for volume in [
        Volume::persistent(Some(&volume(&source)), None),
        Volume::of_source(&source),
    ] {
        assert_eq!(one(conditions).action_for(&volume).is_some(), holds);
    }
}

#[test]
fn images_are_volumes_of_their_own_kind() {
    let image = Volume::of_source(
        &json!({ "name": "model", "image": { "reference": "registry/model:1" } }),
    );
    assert!(one("{ volumeTypes: [image] }").action_for(&image).is_some());
    assert!(
        one("{ volumeTypes: [emptyDir] }")
            .action_for(&image)
            .is_none()
    );
}

/// Velero `GetResourcePoliciesFromBackupWithGlobal`, v1.18.3.
#[test]
fn rules_for_all_backups_come_after_those_of_a_backup() {
    let global =
        |text: &str| read_global(&BTreeMap::from([("policy".to_owned(), text.to_owned())]));
    let own = policy(
        "version: v1\nvolumePolicies: [{ conditions: { storageClass: [fast] }, action: { type: snapshot } }]",
    );
    let all = global(
        "version: v1
volumePolicies: [{ conditions: {}, action: { type: skip } }]
includeExcludePolicy: { excludedNamespacesByLabel: [scratch] }
namespacedFilterPolicies: [{ namespaces: [a], resourceFilters: [{}] }]
",
    )
    .unwrap();
    assert_eq!(
        all.ignored,
        ["includeExcludePolicy", "namespacedFilterPolicies"]
    );
    let both = own.unwrap().with_global(all);
    assert_eq!(
        both.selecting_parts(),
        [""; 0],
        "only rules for volumes are for all backups"
    );
    let kind = |class: &str| {
        let volume = Volume {
            storage_class: class.to_owned(),
            ..Volume::default()
        };
        both.action_for(&volume).unwrap().kind
    };
    assert_eq!(kind("fast"), VolumeActionKind::Snapshot);
    assert_eq!(kind("slow"), VolumeActionKind::Skip);
    let findings = global("version: v2").unwrap_err();
    assert_eq!(
        findings[0].field,
        "--global-backup-volume-policies-configmap: version"
    );
}

#[rstest::rstest]
#[case("{ pvcVolumeMode: Filesystem }")]
#[case("{ pvcAccessModes: [ReadWriteOnce] }")]
#[case("{ pvcPhase: [Bound] }")]
fn conditions_on_a_claim_do_not_hold_without_one(#[case] conditions: &str) {
    let persistent =
        Volume::persistent(Some(&volume(&json!({ "volumeMode": "Filesystem" }))), None);
    for volume in [persistent, Volume::of_source(&json!({ "emptyDir": {} }))] {
        assert_eq!(one(conditions).action_for(&volume), None);
    }
}

#[test]
fn the_first_rule_that_holds_counts() {
    let policy = policy(
        "version: v1
volumePolicies:
- conditions: { pvcPhase: [Pending] }
  action: { type: skip }
- conditions: { storageClass: [fast] }
  action: { type: custom, parameters: { vault: a } }
- conditions: {}
  action: { type: fs-backup }
",
    )
    .unwrap();
    let pending =
        json!({ "spec": { "storageClassName": "fast" }, "status": { "phase": "Pending" } });
    let kind = |volume: &Volume| policy.action_for(volume).unwrap().kind;
    assert_eq!(
        kind(&Volume::persistent(None, Some(&pending))),
        VolumeActionKind::Skip
    );
    let fast = Volume::persistent(Some(&volume(&json!({}))), None);
    assert_eq!(kind(&fast), VolumeActionKind::Custom);
    assert_eq!(policy.action_for(&fast).unwrap().parameters["vault"], "a");
    assert_eq!(
        kind(&Volume::of_source(&json!({ "emptyDir": {} }))),
        VolumeActionKind::FsBackup
    );
}

#[test]
fn everything_wrong_in_a_policy_is_found_at_once() {
    let fields = policy(
        "version: v2
volumePolicy: []
volumePolicies:
- conditions: { capacity: '10Gi', storageClass: fast, volumeTypes: [disk], pvcPhase: [bound], colour: red }
  action: { type: copy, more: 1 }
- conditions: { capacity: '10Gi,1Gi', nfs: { servers: x }, csi: { volumeAttributes: { a: b } }, pvcLabels: { a: 1 } }
- conditions: { capacity: 'ten,', pvcAccessModes: [ReadWriteOnce, RWX], pvcVolumeMode: block }
  action: { type: snapshot, parameters: { snapshotClass: '', dataMover: velero } }
- action: { type: fs-backup, parameters: { snapshotClass: fast } }
includeExcludePolicy:
  includedClusterScopedResources: ['*', a]
  excludedClusterScopedResources: [a]
  includedNamespacesByLabel: [' ', 'team in', 'team=a', 'team=a b']
  labelSelectorLogic: or
clusterScopedFilterPolicy: {}
",
    )
    .unwrap_err();
    let expected = [
        "volumePolicy",
        "clusterScopedFilterPolicy.resourceFilters",
        "version",
        "volumePolicies[0].conditions.colour",
        "volumePolicies[0].conditions.volumeTypes",
        "volumePolicies[0].conditions.pvcPhase",
        "volumePolicies[0].conditions.capacity",
        "volumePolicies[0].conditions.storageClass",
        "volumePolicies[0].action.more",
        "volumePolicies[0].action.type",
        "volumePolicies[1].conditions.capacity",
        "volumePolicies[1].conditions.nfs.servers",
        "volumePolicies[1].conditions.csi.driver",
        "volumePolicies[1].conditions.pvcLabels.a",
        "volumePolicies[1].action",
        "volumePolicies[2].action.parameters.snapshotClass",
        "volumePolicies[2].action.parameters.dataMover",
        "volumePolicies[2].conditions.pvcVolumeMode",
        "volumePolicies[3].action.parameters.snapshotClass",
        "volumePolicies[2].conditions.pvcAccessModes",
        "volumePolicies[2].conditions.capacity",
        "includeExcludePolicy.includedClusterScopedResources",
        "includeExcludePolicy.excludedClusterScopedResources",
        "includeExcludePolicy.includedNamespacesByLabel[0]",
        "includeExcludePolicy.includedNamespacesByLabel[1]",
        "includeExcludePolicy.includedNamespacesByLabel[3]",
        "includeExcludePolicy.labelSelectorLogic",
    ];
    let mut expected = expected.map(|field| format!("spec.resourcePolicy: {field}"));
    let mut fields = fields;
    expected.sort();
    fields.sort();
    assert_eq!(fields, expected);
}

#[test]
fn what_is_no_policy_at_all_is_refused() {
    for text in ["", "- a", "version: [", "just text"] {
        assert_eq!(
            policy(text).unwrap_err(),
            ["spec.resourcePolicy"],
            "{text:?}"
        );
    }
    assert!(read(&BTreeMap::new()).is_err());
    let two = ["a", "b"].map(|key| (key.to_owned(), "version: v1".to_owned()));
    assert!(read(&two.into()).unwrap_err()[0].message.contains("2 keys"));
    assert_eq!(policy("version: v1").unwrap(), ResourcePolicy::default());
}

#[rstest::rstest]
#[case(json!({}), "{}", false, VolumePlan::Snapshot { class: None })]
#[case(json!({ "snapshotVolumes": false }), "{}", false, VolumePlan::Skip { reason: "spec.snapshotVolumes is false".into() })]
#[case(json!({}), "{ storageClass: [other] }", true, VolumePlan::FsBackup)]
#[case(json!({}), "{}", true, VolumePlan::Snapshot { class: None })]
#[case(json!({}), "{ storageClass: [other] }", false, VolumePlan::Snapshot { class: None })]
fn a_rule_counts_before_the_pod_and_the_pod_before_the_backup(
    #[case] spec: Value,
    #[case] conditions: &str,
    #[case] pod_asks: bool,
    #[case] expected: VolumePlan,
) {
    let spec: BackupSpec = serde_json::from_value(spec).unwrap();
    let volume = Volume::persistent(Some(&volume(&json!({}))), None);
    assert_eq!(
        plan(&spec, Some(&one(conditions)), &volume, pod_asks),
        expected
    );
}

#[test]
fn a_rule_names_the_class_of_its_snapshots() {
    let policy = policy(
        "version: v1
volumePolicies:
- conditions: { storageClass: [fast] }
  action: { type: snapshot, parameters: { snapshotClass: array-1 } }
",
    )
    .unwrap();
    let volume = Volume::persistent(Some(&volume(&json!({}))), None);
    let planned = plan(&BackupSpec::default(), Some(&policy), &volume, false);
    assert_eq!(
        planned,
        VolumePlan::Snapshot {
            class: Some("array-1".into())
        }
    );
}

#[test]
fn lists_of_a_policy_count_where_the_backup_says_nothing() {
    let types = TypeLists {
        included_cluster_scoped: vec!["pv".into(), "nodes".into()],
        excluded_namespace_scoped: vec!["secrets".into(), "pods".into()],
        ..TypeLists::default()
    };
    let spec: BackupSpec = serde_json::from_value(json!({
        "excludedClusterScopedResources": ["nodes"], "includedNamespaceScopedResources": ["po*"],
    }))
    .unwrap();
    let spec = types.added_to(&spec, &|name| {
        (name == "pv").then(|| "persistentvolumes".to_owned())
    });
    assert_eq!(
        spec.included_cluster_scoped_resources,
        ["persistentvolumes"]
    );
    assert_eq!(spec.excluded_cluster_scoped_resources, ["nodes"]);
    assert_eq!(spec.excluded_namespace_scoped_resources, ["secrets"]);
}
