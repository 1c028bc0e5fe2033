//! Objects as API servers give them.

use serde_json::{Value, json};

/// A merge of two JSON objects, the second over the first.
pub fn with(mut base: Value, over: &Value) -> Value {
    merge(&mut base, over);
    base
}

fn merge(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                merge(base.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over.clone(),
    }
}

/// A backup that nobody has touched.
pub fn new_backup(name: &str) -> Value {
    json!({
        "apiVersion": "velero.io/v1", "kind": "Backup",
        "metadata": {"name": name, "namespace": "velero", "uid": format!("uid-of-{name}"), "resourceVersion": "7", "creationTimestamp": "2026-11-03T05:14:02Z"},
        "spec": {},
    })
}

/// A backup of two hours ago.
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

/// A restore of an hour ago.
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
        "status": {"phase": phase, "lastValidationTime": "2026-11-03T05:13:32Z", "message": message},
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

/// The ledger's Lease with these claims.
pub fn lease(ledger: &backup_lock::Ledger) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "backup-lock-velero", "namespace": "velero", "uid": "lease", "resourceVersion": "9", "annotations": {"backup-lock/ledger": ledger.to_json()}},
        "spec": {"holderIdentity": ledger.holder()},
    })
}
