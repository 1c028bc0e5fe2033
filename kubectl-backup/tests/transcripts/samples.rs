//! Objects in the form in which API servers return them.

use std::{convert::Infallible, sync::Arc, time::Duration};

use backup_core::profile::Profile;
use backup_lock::{Ledger, LedgerStore, VELERO_SCOPE, lease::lease_name};
use backup_testkit::ledger_path;
use serde_json::{Value, json};
use tokio::time::Instant;

/// Merges two JSON objects; values of the second override values of the first.
pub fn with(mut base: Value, over: &Value) -> Value {
    json_patch::merge(&mut base, over);
    base
}

/// Indented JSON.
pub fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

/// A backup that no controller has processed.
pub fn new_backup(name: &str) -> Value {
    json!({
        "apiVersion": "velero.io/v1", "kind": "Backup",
        "metadata": {"name": name, "namespace": "velero", "uid": format!("uid-of-{name}"), "resourceVersion": "7", "creationTimestamp": "2026-11-03T05:14:02Z"},
        "spec": {},
    })
}

/// A backup with only this phase in its status.
pub fn backup_in(phase: &str, name: &str) -> Value {
    with(new_backup(name), &json!({ "status": { "phase": phase } }))
}

/// Whether it is a backup whose files are stored, by its phase.
pub fn is_stored(object: &Value) -> bool {
    object["kind"] == "Backup"
        && ["Completed", "PartiallyFailed"]
            .iter()
            .any(|phase| object["status"]["phase"] == *phase)
}

/// A backup from two hours ago.
pub fn completed_backup(name: &str) -> Value {
    with(
        new_backup(name),
        &json!({
            "metadata": {"creationTimestamp": "2026-11-03T03:00:00Z", "labels": {"velero.io/schedule-name": "nightly", "velero.io/storage-location": "default"}},
            "spec": {"excludedNamespaces": ["kube-system"], "storageLocation": "default", "ttl": "720h0m0s"},
            "status": {
                "version": 1, "formatVersion": "1.1.0", "phase": "Completed",
                "startTimestamp": "2026-11-03T03:00:00Z", "completionTimestamp": "2026-11-03T03:14:12Z", "expiration": "2026-12-03T03:00:00Z",
                "progress": {"totalItems": 4812, "itemsBackedUp": 4812},
            },
        }),
    )
}

/// A restore from an hour ago.
pub fn completed_restore(name: &str, backup: &str) -> Value {
    json!({
        "apiVersion": "velero.io/v1", "kind": "Restore",
        "metadata": {"name": name, "namespace": "velero", "uid": format!("uid-of-{name}"), "creationTimestamp": "2026-11-03T04:00:00Z"},
        "spec": {"backupName": backup, "includedNamespaces": ["*"], "excludedResources": ["nodes", "events", "events.events.k8s.io", "backups.velero.io", "restores.velero.io"]},
        "status": {
            "phase": "Completed", "startTimestamp": "2026-11-03T04:00:01Z", "completionTimestamp": "2026-11-03T04:03:21Z",
            "progress": {"totalItems": 4812, "itemsRestored": 4812},
        },
    })
}

/// The default location, in a bucket.
pub fn location(phase: &str, message: &str) -> Value {
    json!({
        "apiVersion": "velero.io/v1", "kind": "BackupStorageLocation",
        "metadata": {"name": "default", "namespace": "velero"},
        "spec": {"provider": "aws", "objectStorage": {"bucket": "acme-dr", "prefix": "prod"}, "default": true},
        "status": {"phase": phase, "lastValidationTime": "2026-11-03T05:13:32Z", "lastSyncedTime": "2026-11-03T05:13:12Z", "message": message},
    })
}

/// An event about an object.
pub fn event(
    number: u32,
    kind: &str,
    name: &str,
    level: &str,
    reason: &str,
    message: &str,
    at: &str,
) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": format!("{name}.{number}"), "namespace": "velero", "creationTimestamp": at},
        "involvedObject": {"kind": kind, "name": name, "namespace": "velero", "uid": format!("uid-of-{name}")},
        "type": level, "reason": reason, "message": message, "firstTimestamp": at, "lastTimestamp": at, "count": 1,
        "source": {"component": "backup-controller"}, "reportingComponent": "", "reportingInstance": "",
    })
}

/// The profile of Percona's operator for MySQL.
pub fn percona() -> Profile {
    Profile::builtin()
        .into_iter()
        .find(|profile| profile.name == "percona-ps")
        .unwrap()
}

/// The Lease of Velero's ledger with the claims of `ledger`.
pub async fn lease(ledger: &Ledger) -> Value {
    lease_of(Profile::velero(), VELERO_SCOPE, ledger).await
}

/// The Lease in the format of a later version: its checksum is valid.
pub fn of_a_newer_format(mut lease: Value) -> Value {
    let text = r#"{"v":99}"#;
    let annotation = |name: &str| {
        lease["metadata"]["annotations"][name]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let (uid, serial) = (
        lease["metadata"]["uid"].as_str().unwrap(),
        annotation("backup-lock/serial"),
    );
    let sum = backup_core::digest::short_sha256(format!("{uid}\n{serial}\n{text}").as_bytes(), 8);
    lease["metadata"]["annotations"]["backup-lock/ledger"] = json!(text);
    lease["metadata"]["annotations"]["backup-lock/sum"] = json!(sum);
    lease
}

/// The Lease of a scope's ledger, as our programs write it.
pub async fn lease_of(profile: Profile, scope: &str, ledger: &Ledger) -> Value {
    let api = backup_testkit::FakeApi::new();
    let store = LedgerStore::of_profile(api.client(), "velero", Arc::new(profile));
    let wanted = |stored: &mut Ledger| {
        *stored = Ledger {
            bound: stored.bound.max(ledger.bound),
            rules: stored.rules,
            ..ledger.clone()
        };
        Ok::<_, Infallible>(())
    };
    store
        .update(scope, Instant::now() + Duration::from_secs(10), wanted)
        .await
        .unwrap();
    let mut lease = api.get(&ledger_path(&lease_name(scope))).unwrap();
    lease["metadata"]["namespace"] = json!("velero");
    lease
}
