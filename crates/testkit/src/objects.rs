//! Paths of objects, and initial objects for tests.

use serde_json::{Value, json};

use crate::{FakeApi, Fault, Request, target::Target};

pub const LEDGER_PATH: &str =
    "/apis/coordination.k8s.io/v1/namespaces/velero/leases/backup-lock-velero";
pub const MARKER_PATH: &str = "/api/v1/namespaces/velero/configmaps/backup-lock-velero";

pub fn velero_path(kind: &str, name: &str) -> String {
    format!(
        "/apis/velero.io/v1/namespaces/velero/{}s/{name}",
        kind.to_lowercase()
    )
}

pub fn ledger_path(lease: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/velero/leases/{lease}")
}

pub fn marker_path(lease: &str) -> String {
    format!("/api/v1/namespaces/velero/configmaps/{lease}")
}

impl FakeApi {
    pub fn with_object(self, path: &str, object: Value) -> Self {
        self.put(path, object);
        self
    }

    /// Sets the items of a list, and no others: `/api/v1/pods`, `/api/v1/namespaces/a/pods`.
    pub fn with_list(self, path: &str, items: Vec<Value>) -> Self {
        let target = Target::of(path);
        self.state().objects.retain(|at, _| !target.lists(at));
        let (group, plural) = path.rsplit_once('/').unwrap();
        for item in items {
            let name = item["metadata"]["name"].as_str().unwrap();
            let at = match item["metadata"]["namespace"]
                .as_str()
                .filter(|_| !path.contains("/namespaces/"))
            {
                Some(namespace) => format!("{group}/namespaces/{namespace}/{plural}/{name}"),
                None => format!("{path}/{name}"),
            };
            self.put(&at, item);
        }
        self
    }

    pub fn with_fault(
        self,
        fault: impl Fn(&Request) -> Option<Fault> + Send + Sync + 'static,
    ) -> Self {
        self.fault(move |_, request| fault(request));
        self
    }

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
