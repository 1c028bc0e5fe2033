//! Damaged reviews: each gets a decision, or is refused with an error that names the problem.

use backup_core::profile::Profile;
use backup_lock::ObjectKind;
use backup_testkit::Fuzz;
use serde_json::{Value, json};

use super::{claiming::requester, *};

fn object(kind: &str, phase: &str) -> Value {
    json!({
        "apiVersion": "velero.io/v1", "kind": kind,
        "metadata": { "name": "b", "namespace": "velero", "uid": "u", "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": { "velero.io/schedule-name": "s" },
            "annotations": { "backup-lock/on-conflict": "queue", "backup-lock/break-glass": "I must" } },
        "spec": { "backupName": "x", "includedNamespaces": ["a", "b*"], "excludedNamespaces": ["c"], "ttl": "720h0m0s",
            "namespaceMapping": { "a": "d" }, "labelSelector": { "matchLabels": { "a": "b" } },
            "orLabelSelectors": [{ "matchExpressions": [{ "key": "k", "operator": "In", "values": ["v"] }] }],
            "includedResources": ["pods"], "orderedResources": { "pods": "a/b" }, "clusterName": "c",
            "hooks": { "resources": [{ "name": "h", "pre": [{ "exec": { "command": ["true"], "timeout": "3m" } }] }] } },
        "status": { "phase": phase, "state": phase },
    })
}

fn review(kind: &str, operation: &str, phases: [&str; 2]) -> Vec<u8> {
    let mut request = json!({
        "uid": "1", "operation": operation, "name": "b", "namespace": "velero", "dryRun": false,
        "kind": { "group": "velero.io", "version": "v1", "kind": kind },
        "resource": { "group": "velero.io", "version": "v1", "resource": "backups" },
        "userInfo": { "username": "system:serviceaccount:velero:backup-controller", "groups": ["g"] },
    });
    if operation != "DELETE" {
        request["object"] = object(kind, phases[1]);
    }
    if operation != "CREATE" {
        request["oldObject"] = object(kind, phases[0]);
    }
    let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request });
    review.to_string().into_bytes()
}

/// The decisions that depend on the request alone, by each profile and for each kind.
fn decided(request: &AdmissionRequest<DynamicObject>) -> String {
    let mut words = Vec::new();
    for profile in Profile::builtin() {
        for kind in [
            ObjectKind::Backup,
            ObjectKind::Restore,
            ObjectKind::DeleteBackupRequest,
        ] {
            words.push(match admit::decide(&profile, kind, request) {
                Decision::Pass => "pass".to_owned(),
                Decision::Refuse(status) => {
                    assert!(
                        status.code >= 400 && !status.message.is_empty(),
                        "{status:?}"
                    );
                    status.code.to_string()
                }
                Decision::Claim(claiming) => {
                    assert!(
                        !claiming.uid.is_empty() && !claiming.key.name.is_empty(),
                        "{claiming:?}"
                    );
                    requester(
                        &request.user_info,
                        &profile,
                        &claiming.key,
                        claiming.schedule.as_deref(),
                    );
                    "claim".to_owned()
                }
                Decision::Change(_) => "change".to_owned(),
            });
        }
    }
    words.join(" ")
}

#[test]
fn any_body_is_a_review_or_is_refused() {
    let seeds = vec![
        review("Backup", "CREATE", ["", ""]),
        review("Restore", "CREATE", ["", "Completed"]),
        review("Restore", "UPDATE", ["Failed", "New"]),
        review("Backup", "UPDATE", ["InProgress", "Completed"]),
        review("Backup", "DELETE", ["Completed", ""]),
        review("DeleteBackupRequest", "CREATE", ["", ""]),
    ];
    Fuzz::new(env!("CARGO_MANIFEST_DIR"), "review", seeds).run(|body| match request_of(body) {
        Err(error) => {
            assert_says!(error, "AdmissionReview");
            error
        }
        Ok(request) => {
            let response = AdmissionResponse::from(&request).into_review();
            assert_says!(serde_json::to_string(&response).unwrap(), "allowed");
            decided(&request)
        }
    });
}
