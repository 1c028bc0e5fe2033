//! Where objects are, and objects that tests begin with.

use serde_json::{Value, json};

use crate::FakeApi;

pub const LEDGER_PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/velero/leases/backup-lock-velero";
pub const MARKER_PATH: &str = "/api/v1/namespaces/velero/configmaps/backup-lock-velero";

pub fn velero_path(kind: &str, name: &str) -> String {
    format!("/apis/velero.io/v1/namespaces/velero/{}s/{name}", kind.to_lowercase())
}

pub fn ledger_path(lease: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/velero/leases/{lease}")
}

pub fn marker_path(lease: &str) -> String {
    format!("/api/v1/namespaces/velero/configmaps/{lease}")
}

impl FakeApi {
    /// Stores a `velero.io` object in namespace `velero`; `kind` is `Backup` or `Restore`.
    pub fn put_velero(&self, kind: &str, name: &str, uid: &str, phase: &str, spec: &Value) {
        self.put(
            &velero_path(kind, name),
            json!({
                "apiVersion": "velero.io/v1", "kind": kind,
                "metadata": {"name": name, "namespace": "velero", "uid": uid, "creationTimestamp": "2026-11-21T09:00:00Z"},
                "spec": spec, "status": {"phase": phase},
            }),
        );
    }

    pub fn delete_velero(&self, kind: &str, name: &str) {
        self.delete(&velero_path(kind, name));
    }
}
