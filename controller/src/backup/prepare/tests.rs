use backup_core::api::{AccessMode, BackupStorageLocationSpec, LocationPhase};
use clap::Parser as _;
use serde_json::json;

use super::*;

fn now() -> Timestamp {
    "2026-03-01T12:00:00.75Z".parse().unwrap()
}

fn settings() -> Settings {
    Settings::of(&Args::parse_from(["backup-controller"]))
}

fn location(name: &str, change: impl FnOnce(&mut BackupStorageLocation)) -> BackupStorageLocation {
    let mut location = BackupStorageLocation::new(name, BackupStorageLocationSpec::default());
    location.status.phase = Some(LocationPhase::Available);
    change(&mut location);
    location
}

fn facts() -> Facts {
    Facts {
        locations: vec![location("default", |_| {})],
        excluded_namespaces: vec![],
        version: Info {
            git_version: "v1.34.4".to_owned(),
            ..Info::default()
        },
        policy: PolicyData::default(),
        namespaces: BTreeMap::new(),
        snapshots: SnapshotCandidates::default(),
    }
}

fn spec(value: serde_json::Value) -> Backup {
    Backup::new("b", serde_json::from_value(value).unwrap())
}

fn fields(prepared: &PreparedBackup) -> Vec<&str> {
    prepared
        .findings
        .iter()
        .map(|finding| finding.field.as_str())
        .collect()
}

#[test]
fn every_default_is_written_out() {
    let prepared = prepare(&spec(json!({})), &facts(), &settings(), now());
    assert_eq!(prepared.findings, []);
    let backup = prepared.begun(now());
    let spec = serde_json::to_value(&backup.spec).unwrap();
    assert_eq!(
        spec,
        json!({
            "ttl": "720h0m0s",
            "storageLocation": "default",
            "csiSnapshotTimeout": "10m0s",
            "itemOperationTimeout": "4h0m0s",
            "includedNamespaces": ["*"],
            "volumeGroupSnapshotLabelKey": "velero.io/volume-group",
            "defaultVolumesToFsBackup": false,
            "snapshotMoveData": false,
        })
    );
    assert_eq!(
        serde_json::to_value(&backup.status).unwrap(),
        json!({
            "version": 1,
            "formatVersion": "1.1.0",
            "expiration": "2026-03-31T12:00:00Z",
            "startTimestamp": "2026-03-01T12:00:00Z",
            "phase": "InProgress",
        })
    );
    assert_eq!(
        backup.metadata.labels.unwrap()["velero.io/storage-location"],
        "default"
    );
    let annotations = backup.metadata.annotations.unwrap();
    assert_eq!(
        annotations["velero.io/source-cluster-k8s-gitversion"],
        "v1.34.4"
    );
    assert_eq!(annotations["velero.io/resource-timeout"], "10m0s");
}

#[test]
fn what_the_backup_says_itself_is_kept() {
    let asked = json!({
        "ttl": "1h0m0s",
        "storageLocation": "other",
        "csiSnapshotTimeout": "1m0s",
        "itemOperationTimeout": "2m0s",
        "includedNamespaces": ["shop"],
        "excludedNamespaces": ["scratch"],
        "volumeGroupSnapshotLabelKey": "group",
        "defaultVolumesToFsBackup": false,
        "snapshotMoveData": false,
    });
    let facts = Facts {
        locations: vec![location("other", |_| {})],
        ..facts()
    };
    let prepared = prepare(&spec(asked.clone()), &facts, &settings(), now());
    assert_eq!(prepared.findings, []);
    assert_eq!(serde_json::to_value(&prepared.backup.spec).unwrap(), asked);
}

#[test]
fn preparing_again_changes_nothing() {
    let facts = Facts {
        excluded_namespaces: vec!["scratch".into()],
        ..facts()
    };
    let once = prepare(&spec(json!({ "ttl": "0s" })), &facts, &settings(), now()).begun(now());
    let later = now() + jiff::SignedDuration::from_hours(1);
    assert_eq!(
        prepare(&once, &facts, &settings(), later).begun(later),
        once
    );
    assert_eq!(once.spec.excluded_namespaces, ["scratch"]);
}

#[test]
fn an_unusable_location_is_named_with_the_reason() {
    for (locations, asked, expected) in [
        (vec![], None, "no location was named"),
        (
            vec![location("default", |_| {})],
            Some("gone"),
            "does not exist; existing ones: default",
        ),
        (
            vec![location("default", |it| {
                it.spec.access_mode = Some(AccessMode::ReadOnly);
            })],
            None,
            "is read-only",
        ),
        (
            vec![location("default", |it| {
                it.status.phase = Some(LocationPhase::Unavailable);
                it.status.message = Some("bucket b does not exist".into());
            })],
            None,
            "is Unavailable: bucket b does not exist",
        ),
    ] {
        let mut backup = spec(json!({}));
        backup.spec.storage_location = asked.map(str::to_owned);
        let prepared = prepare(
            &backup,
            &Facts {
                locations,
                ..facts()
            },
            &settings(),
            now(),
        );
        assert_eq!(fields(&prepared), ["spec.storageLocation"]);
        assert_says!(prepared.findings[0].message, expected);
    }
}

#[test]
fn a_location_that_was_not_validated_yet_is_tried() {
    let facts = Facts {
        locations: vec![location("default", |it| it.status.phase = None)],
        ..facts()
    };
    assert_eq!(
        prepare(&spec(json!({})), &facts, &settings(), now()).findings,
        []
    );
}

#[test]
fn the_location_marked_as_default_is_used_where_none_is_named() {
    let locations = vec![
        location("default", |_| {}),
        location("main", |it| it.spec.default = Some(true)),
    ];
    let prepared = prepare(
        &spec(json!({})),
        &Facts {
            locations,
            ..facts()
        },
        &settings(),
        now(),
    );
    assert_eq!(
        prepared.backup.spec.storage_location.as_deref(),
        Some("main")
    );
}

#[test]
fn what_is_not_done_yet_is_refused_and_never_left_out_silently() {
    for (asked, field) in [
        (json!({ "snapshotMoveData": true }), "spec.snapshotMoveData"),
        (
            json!({ "datamover": "other.example.com" }),
            "spec.datamover",
        ),
        (
            json!({ "defaultVolumesToFsBackup": true }),
            "spec.defaultVolumesToFsBackup",
        ),
        (
            json!({ "defaultVolumesToRestic": true }),
            "spec.defaultVolumesToRestic",
        ),
        (json!({ "snapshotVolumes": true }), "spec.snapshotVolumes"),
        (
            json!({ "uploaderConfig": { "parallelFilesUpload": 4 } }),
            "spec.uploaderConfig",
        ),
        (
            json!({ "volumeSnapshotLocations": ["x"] }),
            "spec.volumeSnapshotLocations",
        ),
    ] {
        let prepared = prepare(&spec(asked), &facts(), &settings(), now());
        assert_eq!(fields(&prepared), [field]);
    }
    for accepted in [
        json!({ "hooks": { "resources": [{ "name": "h" }] } }),
        json!({ "snapshotVolumes": false }),
        json!({ "orderedResources": { "pods": "ns/a" } }),
    ] {
        assert_eq!(
            prepare(&spec(accepted), &facts(), &settings(), now()).findings,
            []
        );
    }
}

#[rstest::rstest]
#[case::everything_is_there(json!({ "snapshotMoveData": true }), true, true, false, None)]
#[case::with_our_mover(json!({ "snapshotMoveData": true, "datamover": "backup-mover" }), true, true, false, None)]
#[case::with_the_built_in_mover(json!({ "snapshotMoveData": true, "datamover": "velero" }), true, true, false, None)]
#[case::without_a_mover(json!({ "snapshotMoveData": true }), false, true, false, Some("--mover-image"))]
#[case::without_snapshots(json!({ "snapshotMoveData": true }), true, false, false, Some("EnableCSI"))]
#[case::by_default(json!({}), true, true, true, None)]
#[case::by_default_without_a_mover(json!({}), false, true, true, Some("--mover-image"))]
#[case::not_wanted(json!({ "snapshotMoveData": false }), false, false, true, None)]
fn snapshot_data_is_moved_where_the_installation_can_do_it(
    #[case] asked: serde_json::Value,
    #[case] moves_data: bool,
    #[case] csi: bool,
    #[case] moves_data_by_default: bool,
    #[case] refused: Option<&str>,
) {
    let settings = Settings {
        csi,
        moves_data,
        moves_data_by_default,
        ..settings()
    };
    let wanted = asked["snapshotMoveData"].as_bool();
    let prepared = prepare(&spec(asked), &facts(), &settings, now());
    match refused {
        None => assert_eq!(prepared.findings, []),
        Some(reason) => {
            assert_eq!(fields(&prepared), ["spec.snapshotMoveData"]);
            let message = &prepared.findings[0].message;
            assert_says!(message, reason);
        }
    }
    assert_eq!(
        prepared.backup.spec.snapshot_move_data,
        Some(wanted.unwrap_or(moves_data_by_default))
    );
}

#[rstest::rstest]
#[case::missing(json!({}), None, &["spec.resourcePolicy.name"])]
#[case::sound(json!({}), Some("version: v1"), &[])]
#[case::wrong(
    json!({}),
    Some("version: v2\nvolumePolicies:\n- {}\n"),
    &["spec.resourcePolicy: version", "spec.resourcePolicy: volumePolicies[0].action"],
)]
#[case::filters_beside_older_ones(
    json!({ "includedResources": ["pods"] }),
    Some("version: v1\nincludeExcludePolicy: { excludedNamespaceScopedResources: [secrets] }"),
    &["spec.resourcePolicy: includeExcludePolicy"],
)]
#[case::filter_policies_beside_older_filters(
    json!({ "includeClusterResources": true }),
    Some("version: v1\nnamespacedFilterPolicies: [{ namespaces: [a], resourceFilters: [{}] }]"),
    &["spec.resourcePolicy: namespacedFilterPolicies"],
)]
#[case::volumes_beside_older_filters(json!({ "includedResources": ["pods"] }), Some("version: v1"), &[])]
fn a_resource_policy_is_checked_before_the_start(
    #[case] mut asked: serde_json::Value,
    #[case] policy: Option<&str>,
    #[case] expected: &[&str],
) {
    asked["resourcePolicy"] = json!({ "kind": "ConfigMap", "name": "p" });
    let policy = PolicyData {
        own: policy.map(config_map),
        global: None,
    };
    let prepared = prepare(
        &spec(asked),
        &Facts { policy, ..facts() },
        &settings(),
        now(),
    );
    assert_eq!(fields(&prepared), expected);
}

fn config_map(text: &str) -> BTreeMap<String, String> {
    [("policy".to_owned(), text.to_owned())].into()
}

#[rstest::rstest]
#[case::missing(None, &["--global-backup-volume-policies-configmap"])]
#[case::wrong(Some("version: v2"), &["--global-backup-volume-policies-configmap: version"])]
#[case::sound(Some("version: v1\nvolumePolicies: [{ conditions: {}, action: { type: skip } }]"), &[])]
fn policies_for_all_backups_are_checked_before_the_start_and_named(
    #[case] global: Option<&str>,
    #[case] expected: &[&str],
) {
    let settings = Settings {
        global_policies: Some("volumes".to_owned()),
        ..settings()
    };
    let policy = PolicyData {
        own: None,
        global: global.map(config_map),
    };
    let prepared = prepare(
        &spec(json!({})),
        &Facts { policy, ..facts() },
        &settings,
        now(),
    );
    assert_eq!(fields(&prepared), expected);
    let annotations = prepared.backup.metadata.annotations.unwrap();
    assert_eq!(
        annotations["velero.io/global-backup-volume-policy-configmap"],
        "volumes"
    );
}

#[test]
fn namespaces_by_label_are_written_out() {
    let mut asked = json!({ "resourcePolicy": { "kind": "ConfigMap", "name": "p" } });
    let text = "version: v1\nincludeExcludePolicy: { includedNamespacesByLabel: ['team=shop'] }";
    let policy = PolicyData {
        own: Some(config_map(text)),
        global: None,
    };
    let namespaces = [(
        "web".to_owned(),
        [("team".to_owned(), "shop".to_owned())].into(),
    )]
    .into();
    let facts = Facts {
        policy,
        namespaces,
        ..facts()
    };
    let prepared = prepare(&spec(asked.clone()), &facts, &settings(), now());
    assert_eq!(fields(&prepared), [""; 0]);
    assert_eq!(prepared.backup.spec.included_namespaces, ["web"]);
    asked["includedResources"] = json!(["pods"]);
    let prepared = prepare(&spec(asked), &facts, &settings(), now());
    assert_eq!(
        fields(&prepared),
        ["spec.resourcePolicy: includeExcludePolicy"]
    );
}

#[test]
fn a_backup_with_an_invalid_ttl_has_no_expiration() {
    let prepared = prepare(&spec(json!({ "ttl": "-1h" })), &facts(), &settings(), now());
    assert_eq!(fields(&prepared), ["spec.ttl"]);
    assert_eq!(prepared.backup.status.expiration, None);
}

#[test]
fn everything_that_is_wrong_is_found_at_once() {
    let asked = json!({
        "storageLocation": "gone",
        "snapshotMoveData": true,
        "labelSelector": { "matchLabels": { "a": "b" } },
        "orLabelSelectors": [{ "matchLabels": { "c": "d" } }],
    });
    let prepared = prepare(&spec(asked), &facts(), &settings(), now());
    assert!(prepared.findings.len() >= 3, "{:?}", prepared.findings);
}
