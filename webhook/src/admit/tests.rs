use rstest::rstest;
use serde_json::json;

use super::*;

fn request(kind: &str, operation: &str, object: Value, old: Value) -> AdmissionRequest<DynamicObject> {
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
    let mut object =
        json!({"metadata": {"name": "b", "namespace": "velero", "uid": "u"}, "spec": {"backupName": "x"}});
    if !phase.is_empty() {
        object["status"] = json!({"phase": phase});
    }
    object
}

fn outcome(request: &AdmissionRequest<DynamicObject>) -> String {
    let kind = match request.kind.kind.as_str() {
        "Restore" => ObjectKind::Restore,
        "DeleteBackupRequest" => ObjectKind::DeleteBackupRequest,
        _ => ObjectKind::Backup,
    };
    match decide(&Profile::velero(), kind, request) {
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
    assert_eq!(outcome(&request(kind, "CREATE", object(phase), Value::Null)), expected);
}

#[rstest]
#[case::progress("New", "InProgress", "pass")]
#[case::end("InProgress", "Completed", "pass")]
#[case::metadata("Completed", "Completed", "pass")]
#[case::deletion("Completed", "Deleting", "pass")]
#[case::revival("Completed", "New", "403")]
#[case::revival_by_removing_the_status("Failed", "", "403")]
#[case::revival_into_the_unknown("PartiallyFailed", "Dreaming", "403")]
fn an_update_passes_unless_it_revives(#[case] old: &str, #[case] new: &str, #[case] expected: &str) {
    assert_eq!(outcome(&request("Backup", "UPDATE", object(new), object(old))), expected);
}

#[test]
fn a_deletion_passes() {
    assert_eq!(outcome(&request("Backup", "DELETE", Value::Null, object("InProgress"))), "pass");
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
    assert_eq!(outcome(&request("Backup", "CREATE", nameless, Value::Null)), "claim Backup velero/b");
}

#[test]
fn the_longest_names_fit() {
    let mut request = request("Restore", "CREATE", object(""), Value::Null);
    request.name = "n".repeat(253);
    request.namespace = Some("s".repeat(63));
    assert_eq!(outcome(&request), format!("claim Restore {}/{}", "s".repeat(63), "n".repeat(253)));
}
