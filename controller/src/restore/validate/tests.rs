use backup_core::api::{BackupSpec, BackupStorageLocationSpec, common::LocalReference};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn backup(name: &str, phase: BackupPhase, schedule: Option<&str>, started: i64) -> Backup {
    let spec = BackupSpec {
        storage_location: Some("default".to_owned()),
        ..BackupSpec::default()
    };
    let mut backup = Backup::new(name, spec);
    backup.status.phase = Some(phase);
    backup.status.start_timestamp = Some(Time(Timestamp::from_second(started).unwrap()));
    backup.metadata.labels =
        schedule.map(|s| [(labels::SCHEDULE_NAME.to_owned(), s.to_owned())].into());
    backup
}

fn location(phase: Option<LocationPhase>) -> BackupStorageLocation {
    let mut location = BackupStorageLocation::new("default", BackupStorageLocationSpec::default());
    location.status.phase = phase;
    location
}

fn from(name: &str) -> RestoreSpec {
    RestoreSpec {
        backup_name: Some(name.to_owned()),
        ..RestoreSpec::default()
    }
}

fn facts(phase: BackupPhase, at: Option<LocationPhase>) -> Facts {
    Facts {
        backup: Some(backup("b", phase, None, 0)),
        location: Some(location(at)),
        ..Facts::default()
    }
}

#[rstest]
#[case::completed(BackupPhase::Completed, Some(LocationPhase::Available), true)]
#[case::partially(BackupPhase::PartiallyFailed, Some(LocationPhase::Available), true)]
#[case::location_not_validated_yet(BackupPhase::Completed, None, true)]
#[case::running(BackupPhase::InProgress, Some(LocationPhase::Available), false)]
#[case::failed(BackupPhase::Failed, Some(LocationPhase::Available), false)]
#[case::deleting(BackupPhase::Deleting, Some(LocationPhase::Available), false)]
#[case::unavailable(BackupPhase::Completed, Some(LocationPhase::Unavailable), false)]
fn only_a_finished_backup_in_a_usable_location_is_restored(
    #[case] phase: BackupPhase,
    #[case] at: Option<LocationPhase>,
    #[case] good: bool,
) {
    let found = findings(&from("b"), &facts(phase, at));
    assert_eq!(found.is_empty(), good, "{found:?}");
    assert!(
        found.iter().all(|f| f.field == "spec.backupName"),
        "{found:?}"
    );
}

#[test]
fn a_missing_backup_and_a_missing_location_are_told_by_name() {
    let found = findings(&from("b"), &Facts::default());
    assert_eq!(found.len(), 1);
    assert!(
        found[0]
            .to_string()
            .starts_with("spec.backupName: backup \"b\" was not found"),
        "{}",
        found[0]
    );
    let found = findings(
        &from("b"),
        &Facts {
            location: None,
            ..facts(BackupPhase::Completed, None)
        },
    );
    assert_says!(found[0].message, "\"default\", which does not exist");
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let spec = RestoreSpec {
        resource_policy: Some(LocalReference {
            kind: "ConfigMap".to_owned(),
            ..LocalReference::default()
        }),
        existing_resource_policy: Some("overwrite".to_owned()),
        uploader_config: serde_json::from_value(json!({ "parallelFilesDownload": 2 })).unwrap(),
        ..from("b")
    };
    let found = findings(&spec, &facts(BackupPhase::InProgress, None));
    let fields: Vec<&str> = found.iter().map(|f| f.field.as_str()).collect();
    for field in [
        "spec.resourcePolicy.name",
        "spec.existingResourcePolicy",
        "spec.uploaderConfig",
        "spec.backupName",
    ] {
        assert!(fields.contains(&field), "{field} not in {fields:?}");
    }
}

#[test]
fn a_schedule_means_its_newest_completed_backup() {
    let backups = [
        backup("old", BackupPhase::Completed, Some("nightly"), 1),
        backup("new", BackupPhase::Completed, Some("nightly"), 3),
        backup(
            "newer but partial",
            BackupPhase::PartiallyFailed,
            Some("nightly"),
            4,
        ),
        backup("other", BackupPhase::Completed, Some("hourly"), 9),
        backup("none", BackupPhase::Completed, None, 9),
    ];
    let newest = |schedule: &str| {
        backups
            .iter()
            .filter_map(|backup| started_for(schedule, backup))
            .max()
    };
    assert_eq!(newest("nightly").unwrap().1, "new");
    assert_eq!(newest("weekly"), None);
}

#[test]
fn the_published_spec_excludes_what_cannot_be_restored() {
    let restore = Restore::new("r", from("b"));
    let spec = prepared(
        &restore,
        &backup("b", BackupPhase::Completed, Some("nightly"), 0),
    );
    assert_eq!(
        (spec.backup_name.as_deref(), spec.schedule_name.as_deref()),
        (Some("b"), Some("nightly"))
    );
    assert!(spec.excluded_resources.contains(&"nodes".to_owned()));
    let again = prepared(
        &Restore::new("r", spec.clone()),
        &backup("b", BackupPhase::Completed, Some("nightly"), 0),
    );
    assert_eq!(again, spec, "preparing again changes nothing");
}

fn refused(spec: &Value, backup: &Value, claimed: &Footprint) -> Option<String> {
    let spec: RestoreSpec = serde_json::from_value(spec.clone()).unwrap();
    let backup = Backup::new("b", serde_json::from_value(backup.clone()).unwrap());
    let namespaces = ["a", "b", "c"].map(str::to_owned).into();
    refusal(&spec, &backup, &namespaces, claimed)
}

#[rstest]
#[case::none(json!({}), None)]
#[case::away(json!({"namespaceMapping": {"a": "x", "b": "y"}}), None)]
#[case::exchanged(json!({"namespaceMapping": {"a": "b", "b": "a"}}), None)]
#[case::not_in_the_backup(json!({"namespaceMapping": {"x": "a"}}), None)]
#[case::onto_another(json!({"namespaceMapping": {"a": "b"}}), Some("\"a\" and \"b\" into one namespace, \"b\""))]
#[case::onto_one_that_is_left_out(json!({"namespaceMapping": {"a": "b"}, "excludedNamespaces": ["b"]}), None)]
#[case::onto_one_that_is_not_selected(json!({"namespaceMapping": {"a": "b"}, "includedNamespaces": ["a"]}), None)]
#[case::onto_one_of_a_glob(json!({"namespaceMapping": {"a": "c"}, "includedNamespaces": ["*"]}), Some("\"c\""))]
fn namespaces_that_would_become_one_are_refused(
    #[case] spec: Value,
    #[case] sentence: Option<&str>,
) {
    let reason = refused(&spec, &json!({}), &Footprint::everything());
    assert_eq!(reason.is_some(), sentence.is_some(), "{reason:?}");
    assert_says!(reason.unwrap_or_default(), sentence.unwrap_or_default());
}

#[rstest]
#[case::as_claimed(json!({"includedNamespaces": ["a"]}), json!({}), false)]
#[case::asked_for(json!({"includedNamespaces": ["a"], "includeClusterResources": true}), json!({}), true)]
#[case::no_filter_any_more(json!({}), json!({}), true)]
#[case::not_in_the_backup(json!({}), json!({"includedNamespaces": ["a"]}), false)]
#[case::asked_for_by_the_backup(json!({}), json!({"includedNamespaces": ["a"], "includeClusterResources": true}), true)]
#[case::left_out(json!({"includeClusterResources": false}), json!({}), false)]
fn what_was_not_claimed_of_the_cluster_is_refused(
    #[case] spec: Value,
    #[case] backup: Value,
    #[case] expected: bool,
) {
    let reason = refused(&spec, &backup, &Footprint::namespaces(["a", "b", "c"]));
    assert_eq!(reason.is_some(), expected, "{reason:?}");
    assert_eq!(refused(&spec, &backup, &Footprint::everything()), None);
}

#[test]
fn modifiers_and_configurations_of_actions_are_checked_before_the_start() {
    let reference = |kind: &str| {
        let reference = json!({"kind": kind, "name": "changes"});
        RestoreSpec {
            resource_modifier: serde_json::from_value(reference).unwrap(),
            ..from("b")
        }
    };
    let good = || facts(BackupPhase::Completed, Some(LocationPhase::Available));
    let fields = |spec: &RestoreSpec, facts: &Facts| {
        findings(spec, facts)
            .into_iter()
            .map(|found| found.field)
            .collect::<Vec<_>>()
    };
    let rules = |text: &str| Some([("k".to_owned(), text.to_owned())].into());
    let spec = reference("configmap");
    assert_eq!(fields(&spec, &good()), ["spec.resourceModifier.name"]);
    assert_eq!(
        fields(&reference("Secret"), &good()),
        ["spec.resourceModifier.kind"]
    );
    let text = "{version: v1, resourceModifierRules: [{conditions: {groupResource: pods}, mergePatches: [{patchData: 'a: 1'}]}]}";
    assert_eq!(
        fields(
            &spec,
            &Facts {
                modifier: rules(text),
                ..good()
            }
        ),
        [""; 0]
    );
    let blank = RestoreSpec {
        resource_modifier: serde_json::from_value(json!({"kind": "", "name": ""})).unwrap(),
        ..from("b")
    };
    assert_eq!(
        fields(&blank, &good()),
        ["spec.resourceModifier.kind", "spec.resourceModifier.name"]
    );
    assert!(
        modifiers(&blank, &good()).is_err(),
        "nor does a restore that is taken up again go on without them"
    );
    let wrong = rules(&text.replace("v1", "v3"));
    assert_eq!(
        fields(
            &spec,
            &Facts {
                modifier: wrong,
                ..good()
            }
        ),
        ["spec.resourceModifier: version"]
    );
    let policy = serde_json::from_value(json!({ "kind": "configmap", "name": "filters" })).unwrap();
    let spec = RestoreSpec {
        resource_policy: policy,
        ..from("b")
    };
    assert_eq!(fields(&spec, &good()), ["spec.resourcePolicy.name"]);
    let text = "{version: v1, namespacedFilterPolicies: [{namespaces: [a], resourceFilters: [{kinds: [pods]}]}]}";
    assert_eq!(
        fields(
            &spec,
            &Facts {
                policy: rules(text),
                ..good()
            }
        ),
        [""; 0]
    );
    let wrong = rules("{version: v1, volumePolicies: []}");
    assert_eq!(
        fields(
            &spec,
            &Facts {
                policy: wrong,
                ..good()
            }
        ),
        ["spec.resourcePolicy: volumePolicies"]
    );
    let labels = ["velero.io/plugin-config", "velero.io/change-storage-class"];
    let config = |name: &str| ConfigMapData {
        name: name.to_owned(),
        labels: labels
            .iter()
            .map(|label| ((*label).to_owned(), "RestoreItemAction".to_owned()))
            .collect(),
        ..ConfigMapData::default()
    };
    let one = Facts {
        action_configs: vec![config("a")],
        ..good()
    };
    assert_eq!(fields(&from("b"), &one), [""; 0]);
    let two = Facts {
        action_configs: vec![config("a"), config("b")],
        ..good()
    };
    assert_eq!(fields(&from("b"), &two), ["ConfigMap a"]);
}

#[rstest]
#[case::completed(json!({}), BackupPhase::Completed, &[], json!({}), None)]
#[case::with_errors(json!({}), BackupPhase::PartiallyFailed, &[], json!({}), Some("is PartiallyFailed"))]
#[case::mapped(json!({"namespaceMapping": {"shop": "copy"}}), BackupPhase::Completed, &[], json!({}), None)]
#[case::with_a_policy(json!({}), BackupPhase::Completed, &[], json!({"kind": "ConfigMap", "name": "p"}), None)]
#[case::mapped_with_a_policy(json!({"namespaceMapping": {"shop": "copy"}}), BackupPhase::Completed, &[],
    json!({"kind": "ConfigMap", "name": "p"}), Some("resource policy"))]
#[case::imported_with_a_policy(json!({}), BackupPhase::Completed, &[labels::IMPORTED_ANNOTATION],
    json!({"kind": "ConfigMap", "name": "p"}), Some("resource policy"))]
#[case::not_asked_for(json!({"prune": false}), BackupPhase::PartiallyFailed, &[], json!({}), None)]
fn objects_are_removed_only_by_a_backup_that_says_which_it_lacks(
    #[case] fields: Value,
    #[case] phase: BackupPhase,
    #[case] annotations: &[&str],
    #[case] policy: Value,
    #[case] words: Option<&str>,
) {
    let mut spec = json!({"backupName": "b", "includedNamespaces": ["shop"], "prune": true});
    json_patch::merge(&mut spec, &fields);
    let mut facts = facts(phase, Some(LocationPhase::Available));
    if let Some(backup) = &mut facts.backup {
        backup.spec.resource_policy = serde_json::from_value(policy).ok();
        let annotations = annotations.iter();
        backup.metadata.annotations = Some(
            annotations
                .map(|name| ((*name).to_owned(), "2026-01-01T00:00:00Z".to_owned()))
                .collect(),
        );
    }
    let found = findings(&serde_json::from_value(spec).unwrap(), &facts);
    let messages: Vec<String> = found.iter().map(ToString::to_string).collect();
    let expected = usize::from(words.is_some());
    assert!(
        messages.len() == expected
            && messages.iter().all(|message| {
                message.starts_with("spec.prune: ")
                    && words.is_some_and(|words| message.contains(words))
            }),
        "{messages:?}"
    );
}
