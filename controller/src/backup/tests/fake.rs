//! An API server and a store for tests of whole backups.

use std::{path::PathBuf, sync::Arc, time::Duration};

use backup_core::labels::BLOCKED_ANNOTATION;
use backup_testkit::{FakeApi, Fault};
pub(crate) use backup_testkit::{LEDGER_PATH as LEDGER, MARKER_PATH as MARKER};
use serde_json::{Value, json};

use crate::{
    job::JobContext,
    testing::{discovery, velero},
};

pub(crate) const BACKUP: &str = "/apis/velero.io/v1/namespaces/velero/backups/b";
pub(crate) const RESTORE: &str = "/apis/velero.io/v1/namespaces/velero/restores/r";
pub(crate) const LOCATION: &str =
    "/apis/velero.io/v1/namespaces/velero/backupstoragelocations/default";

/// A cluster with a Backup `b`, its location in a folder, and two ConfigMaps in namespace `a`.
#[derive(Clone)]
pub(crate) struct Cluster {
    api: FakeApi,
    folder: Arc<tempfile::TempDir>,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        Self::with(|_, _, _, _| None)
    }

    /// `hook` sees each request (method, path, body) before it is served, and may refuse it with a
    /// code.
    pub(crate) fn with(
        hook: impl Fn(&Self, &str, &str, &Value) -> Option<u16> + Send + Sync + 'static,
    ) -> Self {
        let cluster = Self {
            api: FakeApi::new(),
            folder: Arc::new(tempfile::tempdir().unwrap()),
        };
        let folder = Arc::clone(&cluster.folder);
        cluster.api.fault(move |api, request| {
            let (method, path) = (request.method.as_str(), request.path.as_str());
            // The policy of a snapshot is set to a fixed value, whatever it was.
            let idempotent = path.contains("/volumesnapshotcontents/");
            if matches!(method, "PUT" | "PATCH") && !idempotent && api.get(path).is_some() {
                let asked = &request.body["metadata"]["resourceVersion"];
                assert!(asked.is_string(), "{method} {path} without a precondition");
            }
            let cluster = Self {
                api: api.clone(),
                folder: Arc::clone(&folder),
            };
            let code = hook(&cluster, method, path, &request.body)?;
            Some(Fault::refuse(code, "Refused", "Refused by the test"))
        });
        let types = [
            ("configmaps", "ConfigMap", "Namespaced"),
            ("namespaces", "Namespace", "Cluster"),
        ];
        cluster.put("/api", discovery("", &types));
        cluster.put(
            "/apis",
            json!({"kind": "APIGroupDiscoveryList", "metadata": {}, "items": []}),
        );
        cluster.put("/version", version());
        let bucket = cluster.folder.path().to_str().unwrap();
        let location =
            json!({"provider": "local", "default": true, "objectStorage": {"bucket": bucket}});
        cluster.put(
            LOCATION,
            velero("BackupStorageLocation", "default", location, json!({})),
        );
        cluster.put(BACKUP, velero("Backup", "b", json!({}), json!({})));
        cluster.put(
            "/api/v1/namespaces/a",
            json!({"metadata": {"name": "a"}, "status": {"phase": "Active"}}),
        );
        for name in ["one", "two"] {
            let item = json!({"metadata": {"name": name, "namespace": "a"}, "data": {"k": name}});
            cluster.put(&format!("/api/v1/namespaces/a/configmaps/{name}"), item);
        }
        cluster
    }

    pub(crate) fn put(&self, path: &str, object: Value) {
        self.api.put(path, object);
    }

    pub(crate) fn remove(&self, path: &str) {
        self.api.delete(path);
    }

    /// The object at a path; null if there is none.
    pub(crate) fn get(&self, path: &str) -> Value {
        self.api.get(path).unwrap_or_default()
    }

    /// The objects whose paths begin with `path`, each as a line.
    pub(crate) fn under(&self, path: &str) -> Vec<String> {
        self.api
            .under(path)
            .values()
            .map(Value::to_string)
            .collect()
    }

    /// Changes the Backup by a merge patch.
    pub(crate) fn change_backup(&self, patch: &Value) {
        self.api
            .edit(BACKUP, |backup| json_patch::merge(backup, patch));
    }

    pub(crate) fn phase(&self) -> String {
        self.get(BACKUP)["status"]["phase"]
            .as_str()
            .unwrap_or("New")
            .to_owned()
    }

    /// Number of requests like `line`, such as `GET /api`.
    pub(crate) fn asked(&self, line: &str) -> usize {
        self.api.count(line)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("backups/b").join(name)
    }

    pub(crate) fn metadata(&self) -> Value {
        let bytes = std::fs::read(self.file("velero-backup.json"));
        bytes.map_or(Value::Null, |bytes| serde_json::from_slice(&bytes).unwrap())
    }

    /// Waits (two minutes at most, of a clock that a test may have paused).
    pub(crate) async fn until(&self, what: impl Fn(&Self) -> bool) {
        let waiting = async {
            while !what(self) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let came = tokio::time::timeout(Duration::from_mins(2), waiting)
            .await
            .is_ok();
        assert!(came, "still waiting at {}", self.get(BACKUP));
    }

    /// Waits until the Backup is blocked, and returns the reason.
    pub(crate) async fn blocked(&self) -> String {
        let reason = |cluster: &Self| {
            cluster.get(BACKUP)["metadata"]["annotations"][BLOCKED_ANNOTATION].clone()
        };
        self.until(|cluster| reason(cluster).is_string()).await;
        reason(self).to_string()
    }

    /// The context of a controller of this cluster.
    pub(crate) fn context(&self) -> JobContext {
        JobContext::fake(self.api.client())
    }
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "1", "gitVersion": "1", "gitCommit": "1", "gitTreeState": "1", "buildDate": "1",
        "goVersion": "1", "compiler": "1", "platform": "1",
    })
}
