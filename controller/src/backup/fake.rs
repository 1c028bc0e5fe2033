//! An API server and a store for tests of whole backups.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Json, Router,
    body::Bytes,
    http::{Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use crate::job::JobContext;

pub const BACKUP: &str = "/apis/velero.io/v1/namespaces/velero/backups/b";
pub const RESTORE: &str = "/apis/velero.io/v1/namespaces/velero/restores/r";
pub const LEDGER: &str = "/apis/coordination.k8s.io/v1/namespaces/velero/leases/backup-lock-velero";
pub const LOCATION: &str = "/apis/velero.io/v1/namespaces/velero/backupstoragelocations/default";
/// Paths that end so are lists.
/// The marker beside it.
pub const MARKER: &str = "/api/v1/namespaces/velero/configmaps/backup-lock-velero";
const LISTS: [&str; 6] = [
    "/backups",
    "/restores",
    "/deletebackuprequests",
    "/backupstoragelocations",
    "/configmaps",
    "/namespaces",
];

/// Looks at a request (method, path, body) before it is served, and may refuse it with a code.
type Hook = dyn Fn(&Cluster, &str, &str, &Value) -> Option<u16> + Send + Sync;

/// A cluster with a Backup `b`, its location in a folder, and two ConfigMaps in namespace `a`.
#[derive(Clone)]
pub struct Cluster {
    objects: Arc<Mutex<BTreeMap<String, Value>>>,
    log: Arc<Mutex<Vec<String>>>,
    hook: Arc<Hook>,
    folder: Arc<tempfile::TempDir>,
}

impl Cluster {
    pub fn new() -> Self {
        Self::with(|_, _, _, _| None)
    }

    pub fn with(hook: impl Fn(&Self, &str, &str, &Value) -> Option<u16> + Send + Sync + 'static) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let cluster = Self {
            objects: Arc::default(),
            log: Arc::default(),
            hook: Arc::new(hook),
            folder: Arc::clone(&folder),
        };
        let bucket = folder.path().to_str().unwrap();
        let location = json!({"provider": "local", "default": true, "objectStorage": {"bucket": bucket}});
        cluster.put(LOCATION, velero("BackupStorageLocation", "default", &location, &json!({})));
        cluster.put(BACKUP, velero("Backup", "b", &json!({}), &json!({})));
        cluster
            .put("/api/v1/namespaces/a", json!({"metadata": {"name": "a"}, "status": {"phase": "Active"}}));
        for name in ["one", "two"] {
            let item = json!({"metadata": {"name": name, "namespace": "a"}, "data": {"k": name}});
            cluster.put(&format!("/api/v1/namespaces/a/configmaps/{name}"), item);
        }
        cluster
    }

    pub fn put(&self, path: &str, object: Value) {
        self.objects.lock().unwrap().insert(path.to_owned(), object);
    }

    pub fn remove(&self, path: &str) {
        self.objects.lock().unwrap().remove(path);
    }

    /// The object at a path; null if there is none.
    pub fn get(&self, path: &str) -> Value {
        self.objects.lock().unwrap().get(path).cloned().unwrap_or_default()
    }

    pub fn change_backup(&self, patch: &Value) {
        json_patch::merge(self.objects.lock().unwrap().get_mut(BACKUP).unwrap(), patch);
    }

    pub fn phase(&self) -> String {
        self.get(BACKUP)["status"]["phase"].as_str().unwrap_or("New").to_owned()
    }

    pub fn asked(&self, line: &str) -> usize {
        self.log.lock().unwrap().iter().filter(|other| *other == line).count()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("backups/b").join(name)
    }

    pub fn metadata(&self) -> Value {
        let bytes = std::fs::read(self.file("velero-backup.json"));
        bytes.map_or(Value::Null, |bytes| serde_json::from_slice(&bytes).unwrap())
    }

    /// Waits (two minutes at most, of a clock that a test may have paused).
    pub async fn until(&self, what: impl Fn(&Self) -> bool) {
        let waiting = async {
            while !what(self) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let came = tokio::time::timeout(Duration::from_mins(2), waiting).await.is_ok();
        assert!(came, "still waiting at {}", self.get(BACKUP));
    }

    /// What a controller of this cluster is given.
    pub fn context(&self) -> JobContext {
        let cluster = self.clone();
        let router = Router::new().fallback(move |method: Method, uri: Uri, body: Bytes| {
            let cluster = cluster.clone();
            async move { cluster.answer(&method, &uri, &body) }
        });
        JobContext::fake(kube::Client::new(router, "velero"))
    }

    fn answer(&self, method: &Method, uri: &Uri, body: &[u8]) -> Response {
        let path = uri.path();
        let selects = uri.query().is_some_and(|query| query.contains("labelSelector"));
        let sent: Value = serde_json::from_slice(body).unwrap_or_default();
        self.log.lock().unwrap().push(format!("{method} {path}"));
        if let Some(code) = (self.hook)(self, method.as_str(), path, &sent) {
            return refusal(code, path);
        }
        let mut objects = self.objects.lock().unwrap();
        match method.as_str() {
            "GET" if path == "/version" => {
                let version = [
                    "major",
                    "minor",
                    "gitVersion",
                    "gitCommit",
                    "gitTreeState",
                    "buildDate",
                    "goVersion",
                    "compiler",
                    "platform",
                ];
                Json(version.map(|field| (field.to_owned(), json!("1"))).into_iter().collect::<Value>())
                    .into_response()
            }
            "GET" if path == "/api" => Json(discovery()).into_response(),
            "GET" if path == "/apis" => {
                Json(json!({"kind": "APIGroupDiscoveryList", "metadata": {}, "items": []})).into_response()
            }
            "GET" if LISTS.iter().any(|list| path.ends_with(list)) => {
                let (group, plural) = path.rsplit_once('/').unwrap();
                // Nothing here has labels.
                let inside = |at: &str| {
                    !selects
                        && at.starts_with(group)
                        && at.rsplit_once('/').unwrap().0.ends_with(&format!("/{plural}"))
                };
                let items: Vec<&Value> =
                    objects.iter().filter(|(at, _)| inside(at)).map(|(_, item)| item).collect();
                Json(json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}))
                    .into_response()
            }
            "GET" => {
                objects.get(path).map_or_else(|| refusal(404, path), |object| Json(object).into_response())
            }
            "POST" => {
                let mut object = sent;
                let at = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap_or_default());
                if objects.contains_key(&at) {
                    return refusal(409, &at);
                }
                json_patch::merge(
                    &mut object,
                    &json!({"metadata": {"uid": format!("uid-{}", objects.len()), "resourceVersion": "1"}}),
                );
                objects.insert(at, object.clone());
                Json(object).into_response()
            }
            _ => {
                let Some(object) = objects.get_mut(path) else { return refusal(404, path) };
                let now = object["metadata"]["resourceVersion"].clone();
                let asked = &sent["metadata"]["resourceVersion"];
                assert!(asked.is_string(), "{method} {path} without a precondition");
                if *asked != now {
                    return refusal(409, path);
                }
                if method == Method::PUT {
                    *object = sent;
                } else {
                    json_patch::merge(object, &sent);
                }
                let next = now.as_str().unwrap().parse::<u64>().unwrap() + 1;
                object["metadata"]["resourceVersion"] = json!(next.to_string());
                let after = object.clone();
                let held = after["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
                if !after["metadata"]["deletionTimestamp"].is_null() && !held {
                    objects.remove(path);
                }
                Json(after).into_response()
            }
        }
    }
}

pub fn velero(kind: &str, name: &str, spec: &Value, status: &Value) -> Value {
    json!({
        "apiVersion": "velero.io/v1", "kind": kind, "spec": spec, "status": status,
        "metadata": {"name": name, "namespace": "velero", "uid": format!("uid-{name}"), "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z"},
    })
}

fn refusal(code: u16, path: &str) -> Response {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        _ => "Refused",
    };
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": format!("{reason} by the test"), "details": {"name": path.rsplit('/').next(), "kind": path.rsplit('/').nth(1)},
    });
    (StatusCode::from_u16(code).unwrap(), Json(body)).into_response()
}

fn discovery() -> Value {
    let resource = |plural: &str, kind: &str, scope: &str| {
        json!({
            "resource": plural, "responseKind": {"group": "", "version": "", "kind": kind}, "scope": scope,
            "singularResource": kind.to_lowercase(), "verbs": ["list", "create", "get", "delete"],
        })
    };
    json!({
        "kind": "APIGroupDiscoveryList", "metadata": {},
        "items": [{"metadata": {"name": ""}, "versions": [{"version": "v1", "freshness": "Current", "resources": [
            resource("configmaps", "ConfigMap", "Namespaced"), resource("namespaces", "Namespace", "Cluster"),
        ]}]}],
    })
}
