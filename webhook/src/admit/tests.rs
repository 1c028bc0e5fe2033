use rstest::rstest;
use serde_json::json;

use super::*;

fn request(
    kind: &str,
    operation: &str,
    object: Value,
    old: Value,
) -> AdmissionRequest<DynamicObject> {
    let group = if kind == "Pod" { "" } else { "velero.io" };
    let mut request = json!({
        "uid": "1", "operation": operation, "name": "b", "namespace": "velero",
        "kind": {"group": group, "version": "v1", "kind": kind},
        "resource": {"group": group, "version": "v1", "resource": "x"},
        "userInfo": {},
    });
    if !object.is_null() {
        request["object"] = object;
    }
    if !old.is_null() {
        request["oldObject"] = old;
    }
    serde_json::from_value(request).unwrap()
}

fn object(phase: &str) -> Value {
    let mut object = json!({"metadata": {"name": "b", "namespace": "velero", "uid": "u"}, "spec": {"backupName": "x"}});
    if !phase.is_empty() {
        object["status"] = json!({"phase": phase});
    }
    object
}

fn decision(profile: &Profile, request: &AdmissionRequest<DynamicObject>) -> Decision {
    let kind = match request.kind.kind.as_str() {
        "Restore" => ObjectKind::Restore,
        "DeleteBackupRequest" => ObjectKind::DeleteBackupRequest,
        _ => ObjectKind::Backup,
    };
    decide(profile, kind, request)
}

fn outcome(request: &AdmissionRequest<DynamicObject>) -> String {
    match decision(&Profile::velero(), request) {
        Decision::Change(change) => format!("change {}", change.key),
        Decision::Pass => "pass".to_owned(),
        Decision::Claim(claiming) => format!("claim {}", claiming.key),
        Decision::Refuse(status) => status.code.to_string(),
    }
}

#[rstest]
#[case::new_backup("Backup", "", "claim Backup velero/b")]
#[case::new_restore("Restore", "", "claim Restore velero/b")]
#[case::backup_said_to_run("Backup", "InProgress", "claim Backup velero/b")]
#[case::phase_of_tomorrow("Restore", "Dreaming", "claim Restore velero/b")]
#[case::synced_backup("Backup", "Completed", "pass")]
#[case::synced_partial_backup("Backup", "PartiallyFailed", "pass")]
#[case::failed_restore("Restore", "Failed", "pass")]
fn a_creation_needs_a_claim_unless_it_arrives_ended(
    #[case] kind: &str,
    #[case] phase: &str,
    #[case] expected: &str,
) {
    assert_eq!(
        outcome(&request(kind, "CREATE", object(phase), Value::Null)),
        expected
    );
}

#[rstest]
#[case::progress("New", "InProgress", "pass")]
#[case::end("InProgress", "Completed", "pass")]
#[case::metadata("Completed", "Completed", "pass")]
#[case::deletion("Completed", "Deleting", "pass")]
#[case::revival("Completed", "New", "403")]
#[case::revival_by_removing_the_status("Failed", "", "403")]
#[case::revival_into_the_unknown("PartiallyFailed", "Dreaming", "403")]
fn an_update_passes_unless_it_revives(
    #[case] old: &str,
    #[case] new: &str,
    #[case] expected: &str,
) {
    assert_eq!(
        outcome(&request("Backup", "UPDATE", object(new), object(old))),
        expected
    );
}

#[test]
fn a_deletion_passes() {
    assert_eq!(
        outcome(&request(
            "Backup",
            "DELETE",
            Value::Null,
            object("InProgress")
        )),
        "pass"
    );
}

#[rstest]
#[case::creation_without_object("CREATE", Value::Null, Value::Null)]
#[case::creation_without_uid("CREATE", json!({"metadata": {"name": "b"}}), Value::Null)]
#[case::update_without_old_object("UPDATE", object(""), Value::Null)]
fn a_review_that_lacks_what_is_needed_is_refused(
    #[case] operation: &str,
    #[case] object: Value,
    #[case] old: Value,
) {
    assert_eq!(outcome(&request("Backup", operation, object, old)), "400");
}

#[test]
fn a_generated_name_is_taken_from_the_request() {
    let mut nameless = object("");
    nameless["metadata"] = json!({"generateName": "b-", "uid": "u"});
    assert_eq!(
        outcome(&request("Backup", "CREATE", nameless, Value::Null)),
        "claim Backup velero/b"
    );
}

#[test]
fn the_longest_names_fit() {
    let mut request = request("Restore", "CREATE", object(""), Value::Null);
    request.name = "n".repeat(253);
    request.namespace = Some("s".repeat(63));
    assert_eq!(
        outcome(&request),
        format!("claim Restore {}/{}", "s".repeat(63), "n".repeat(253))
    );
}

fn with(mut object: Value, changes: &Value) -> Value {
    json_patch::merge(&mut object, changes);
    object
}

#[rstest]
#[case::at_work("Restore", "InProgress", "InProgress", "change Restore velero/b")]
#[case::before_it_begins("Restore", "New", "New", "change Restore velero/b")]
#[case::ended("Restore", "Failed", "Failed", "pass")]
#[case::with_its_end("Restore", "InProgress", "Completed", "pass")]
#[case::a_deletion("DeleteBackupRequest", "New", "New", "403")]
fn what_an_object_wants_may_be_changed_within_its_claim(
    #[case] kind: &str,
    #[case] old: &str,
    #[case] new: &str,
    #[case] expected: &str,
) {
    let changed = with(
        object(new),
        &json!({ "spec": { "includedNamespaces": ["a"] } }),
    );
    assert_eq!(
        outcome(&request(kind, "UPDATE", changed, object(old))),
        expected
    );
    assert_eq!(
        outcome(&request(kind, "UPDATE", object(new), object(old))),
        "pass",
        "nothing is changed"
    );
}

/// An invalid object that was stored (the webhook was down, or another version) can still be
/// updated.
#[test]
fn a_change_is_refused_only_if_it_is_what_makes_an_object_invalid() {
    let (valid, invalid) = (
        json!({ "spec": { "ttl": "1h" } }),
        json!({ "spec": { "ttl": "tomorrow" } }),
    );
    let worse = json!({ "spec": { "ttl": "never" } });
    for (old, new, expected) in [
        (&valid, &invalid, "403"),
        (&invalid, &worse, "change Backup velero/b"),
        (&invalid, &valid, "change Backup velero/b"),
    ] {
        let object = |changes| with(object("New"), changes);
        assert_eq!(
            outcome(&request("Backup", "UPDATE", object(new), object(old))),
            expected,
            "{old} {new}"
        );
    }
}

#[rstest]
#[case::what_can_be_restored_from("Backup", "Completed", json!({}), "claim deletion of Backup velero/b")]
#[case::also_in_part("Backup", "PartiallyFailed", json!({}), "claim deletion of Backup velero/b")]
#[case::what_failed("Backup", "Failed", json!({}), "pass")]
#[case::what_is_being_deleted("Backup", "Completed", json!({ "metadata": { "deletionTimestamp": "2026-11-21T09:02:00Z" } }), "pass")]
#[case::without_a_uid("Backup", "Completed", json!({ "metadata": { "uid": null } }), "pass")]
#[case::a_restore("Restore", "Completed", json!({}), "pass")]
#[case::a_request("DeleteBackupRequest", "Processed", json!({}), "pass")]
fn a_deletion_claims_what_could_be_restored_from(
    #[case] kind: &str,
    #[case] phase: &str,
    #[case] changes: Value,
    #[case] expected: &str,
) {
    assert_eq!(
        outcome(&request(
            kind,
            "DELETE",
            Value::Null,
            with(object(phase), &changes)
        )),
        expected
    );
}

/// A Velero server accepts each of these.
#[test]
fn where_another_operator_does_the_work_no_more_is_refused_than_what_it_cannot_read() {
    let guard = Profile {
        engine: false,
        ..Profile::velero()
    };
    let refused = |profile: &Profile, spec: Value| {
        let created = request(
            "Backup",
            "CREATE",
            with(object(""), &json!({ "spec": spec })),
            Value::Null,
        );
        matches!(decision(profile, &created), Decision::Refuse(_))
    };
    for spec in [json!({ "ttl": "-1h" }), json!({ "datamover": "other" })] {
        assert_eq!(
            [&Profile::velero(), &guard].map(|one| refused(one, spec.clone())),
            [true, false],
            "{spec}"
        );
    }
    assert!(refused(&guard, json!({ "ttl": "tomorrow" })));
}

/// Whether the installation has a data mover is known to the controller only.
#[test]
fn a_backup_that_moves_snapshot_data_is_refused_only_for_another_data_mover() {
    let refused = |mover: Option<&str>| {
        let spec = json!({ "snapshotMoveData": true, "datamover": mover });
        let created = request(
            "Backup",
            "CREATE",
            with(object(""), &json!({ "spec": spec })),
            Value::Null,
        );
        matches!(decision(&Profile::velero(), &created), Decision::Refuse(_))
    };
    for mover in [None, Some(""), Some("velero"), Some("backup-mover")] {
        assert!(!refused(mover), "{mover:?}");
    }
    assert!(refused(Some("other")));
}

/// The controller adds the name of the backup to that of the schedule when it starts.
#[test]
fn what_the_controller_writes_into_a_spec_is_not_refused() {
    let asked = with(
        object("New"),
        &json!({ "spec": { "backupName": "", "scheduleName": "s" } }),
    );
    let started = with(
        object("InProgress"),
        &json!({ "spec": { "scheduleName": "s" } }),
    );
    let update = request("Restore", "UPDATE", started, asked);
    assert_eq!(outcome(&update), "change Restore velero/b");
}

/// The specs of another operator's objects are unknown, and so are the rules for its deletions.
#[test]
fn objects_of_another_operator_are_not_judged_by_our_rules() {
    let theirs = Profile {
        name: "theirs".to_owned(),
        ..Profile::velero()
    };
    let strange = with(
        object(""),
        &json!({ "spec": { "ttl": "tomorrow", "backupName": 7 } }),
    );
    for name in ["Backup", "Restore"] {
        let create = request(name, "CREATE", strange.clone(), Value::Null);
        assert!(
            matches!(decision(&theirs, &create), Decision::Claim(_)),
            "{name}"
        );
        assert!(
            matches!(decision(&Profile::velero(), &create), Decision::Refuse(_)),
            "{name}"
        );
        let delete = request(name, "DELETE", Value::Null, object("Completed"));
        assert!(
            matches!(decision(&theirs, &delete), Decision::Pass),
            "{name}"
        );
    }
}

/// Only changed annotations are wishes of a request; unchanged ones come from an earlier request.
#[test]
fn a_wish_that_stood_before_is_none_of_this_request() {
    let wishing = |wish: &str, glass: &str| {
        let annotations = json!({ ON_CONFLICT_ANNOTATION: wish, BREAK_GLASS_ANNOTATION: glass });
        let object = with(
            object(""),
            &json!({ "metadata": { "annotations": annotations } }),
        );
        serde_json::from_value::<DynamicObject>(object).unwrap()
    };
    let (before, now) = (wishing("queue", "fire"), wishing("wait", "fire"));
    let at_first = wishes(&before, None);
    assert_eq!(
        (at_first.on_conflict, at_first.break_glass),
        (Some("queue"), Some("fire"))
    );
    let later = wishes(&now, Some(&before));
    assert_eq!((later.on_conflict, later.break_glass), (Some("wait"), None));
}

#[rstest]
#[case::usual("Restore", true, None, OnConflict::Queue)]
#[case::said_to_be_usual("Restore", true, Some(""), OnConflict::Queue)]
#[case::denied("Restore", true, Some("deny"), OnConflict::Deny)]
#[case::sent_back("Restore", true, Some("wait"), OnConflict::Wait)]
#[case::queued("Restore", true, Some("queue"), OnConflict::Queue)]
#[case::an_operator_that_starts_on_sight("Restore", false, None, OnConflict::Deny)]
#[case::backups_do_not_wait("Backup", true, None, OnConflict::Deny)]
fn what_becomes_of_a_conflict_is_the_profiles_word_unless_the_request_says_more(
    #[case] kind: &str,
    #[case] engine: bool,
    #[case] wish: Option<&str>,
    #[case] expected: OnConflict,
) {
    let mut profile = Profile {
        engine,
        ..Profile::velero()
    };
    (
        profile.policy.on_conflict_backup,
        profile.policy.on_conflict_restore,
    ) = (OnConflict::Queue, OnConflict::Queue);
    let annotations = wish.map(|wish| json!({ ON_CONFLICT_ANNOTATION: wish }));
    let created = with(
        object(""),
        &json!({ "metadata": { "annotations": annotations } }),
    );
    let create = request(kind, "CREATE", created, Value::Null);
    let Decision::Claim(claiming) = decision(&profile, &create) else {
        panic!("no claim")
    };
    assert_eq!(claiming.on_conflict, expected);
}

#[test]
fn a_policy_for_backups_is_none_for_restores() {
    let mut profile = Profile::velero();
    (
        profile.policy.on_conflict_backup,
        profile.policy.on_conflict_restore,
    ) = (OnConflict::Wait, OnConflict::Deny);
    for (name, expected) in [("Backup", OnConflict::Wait), ("Restore", OnConflict::Deny)] {
        let create = request(name, "CREATE", object(""), Value::Null);
        let Decision::Claim(claiming) = decision(&profile, &create) else {
            panic!("no claim")
        };
        assert_eq!(claiming.on_conflict, expected);
    }
}
