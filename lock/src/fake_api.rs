//! A small API server in memory for tests without a cluster: get, list, create, replace and delete of any resource, with
//! resource versions, uids, 404 and 409 as the real one gives them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    http::{Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use kube::Client;
use serde_json::{Value, json};

/// The server; clones share its objects.
#[derive(Clone, Default)]
pub struct FakeApi {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    /// By path: `/apis/velero.io/v1/namespaces/velero/backups/b1`.
    objects: Mutex<BTreeMap<String, Value>>,
    version: AtomicU64,
    writes: AtomicU64,
    conflicts: AtomicU64,
    gone: AtomicBool,
    hung: AtomicBool,
    read_only: AtomicBool,
    unserved: AtomicBool,
    away: Mutex<Option<String>>,
}

impl FakeApi {
    /// An empty server.
    pub fn new() -> Self {
        Self::default()
    }

    /// A client of this server.
    pub fn client(&self) -> Client {
        let router = Router::new().fallback(serve).with_state(self.clone());
        Client::new(router, "velero")
    }

    /// Stores an object as it is given, at this path, with a new resource version.
    pub fn put(&self, path: &str, mut object: Value) {
        object["metadata"]["resourceVersion"] = json!(self.next_version());
        self.objects().insert(path.to_owned(), object);
    }

    /// The object at this path.
    pub fn get(&self, path: &str) -> Option<Value> {
        self.objects().get(path).cloned()
    }

    /// Removes the object at this path.
    pub fn delete(&self, path: &str) {
        self.objects().remove(path);
    }

    /// Stores a `velero.io` object in namespace `velero`; `kind` is `Backup` or `Restore`.
    pub fn put_velero(&self, kind: &str, name: &str, uid: &str, phase: &str, spec: &Value) {
        let path = velero_path(kind, name);
        self.put(
            &path,
            json!({
                "apiVersion": "velero.io/v1", "kind": kind,
                "metadata": {"name": name, "namespace": "velero", "uid": uid, "creationTimestamp": "2026-11-21T09:00:00Z"},
                "spec": spec, "status": {"phase": phase},
            }),
        );
    }

    /// Removes a `velero.io` object from namespace `velero`.
    pub fn delete_velero(&self, kind: &str, name: &str) {
        self.delete(&velero_path(kind, name));
    }

    /// From now on every request fails with 503, or works again.
    pub fn set_gone(&self, gone: bool) {
        self.inner.gone.store(gone, Ordering::SeqCst);
    }

    /// From now on every request for this path fails with 503.
    pub fn set_gone_for(&self, path: &str) {
        *self.inner.away.lock().unwrap_or_else(PoisonError::into_inner) = Some(path.to_owned());
    }

    /// From now on every write fails with 503, or works again.
    pub fn set_read_only(&self, read_only: bool) {
        self.inner.read_only.store(read_only, Ordering::SeqCst);
    }

    /// From now on no request is ever answered, or works again.
    pub fn set_hung(&self, hung: bool) {
        self.inner.hung.store(hung, Ordering::SeqCst);
    }

    /// From now on the kinds of `velero.io` are not served, or are again.
    pub fn set_unserved(&self, unserved: bool) {
        self.inner.unserved.store(unserved, Ordering::SeqCst);
    }

    /// Writes that succeeded.
    pub fn writes(&self) -> u64 {
        self.inner.writes.load(Ordering::SeqCst)
    }

    /// Writes that were refused because someone else had written.
    pub fn conflicts(&self) -> u64 {
        self.inner.conflicts.load(Ordering::SeqCst)
    }

    fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Value>> {
        self.inner.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_version(&self) -> String {
        (self.inner.version.fetch_add(1, Ordering::SeqCst) + 1).to_string()
    }

    fn refuse_write(&self, name: &str, reason: &str) -> Response {
        self.inner.conflicts.fetch_add(1, Ordering::SeqCst);
        status(StatusCode::CONFLICT, reason, "", name)
    }

    fn list(&self, path: &str) -> Response {
        // `/apis/velero.io/v1/backups` lists every namespace.
        let (group, plural) = path.rsplit_once('/').unwrap_or_default();
        let inside = |key: &str| {
            key.starts_with(&format!("{path}/"))
                || (key.starts_with(&format!("{group}/namespaces/"))
                    && key.split('/').rev().nth(1) == Some(plural))
        };
        let items: Vec<Value> =
            self.objects().iter().filter(|(key, _)| inside(key)).map(|(_, object)| object.clone()).collect();
        Json(
            json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}),
        )
        .into_response()
    }

    fn create(&self, path: &str, mut object: Value) -> Response {
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let path = format!("{path}/{name}");
        let version = self.next_version();
        let mut objects = self.objects();
        if objects.contains_key(&path) {
            drop(objects);
            return self.refuse_write(&name, "AlreadyExists");
        }
        object["metadata"]["uid"] = json!(format!("uid-{version}"));
        object["metadata"]["resourceVersion"] = json!(version);
        objects.insert(path, object.clone());
        self.inner.writes.fetch_add(1, Ordering::SeqCst);
        (StatusCode::CREATED, Json(object)).into_response()
    }

    fn replace(&self, path: &str, mut object: Value) -> Response {
        let (_, name) = path.rsplit_once('/').unwrap_or_default();
        let version = self.next_version();
        let mut objects = self.objects();
        let Some(old) = objects.get(path) else {
            drop(objects);
            return self.refuse_write(name, "Conflict");
        };
        let same = |field: &str| old.pointer(field) == object.pointer(field);
        if !same("/metadata/resourceVersion") || !same("/metadata/uid") {
            drop(objects);
            return self.refuse_write(name, "Conflict");
        }
        object["metadata"]["resourceVersion"] = json!(version);
        objects.insert(path.to_owned(), object.clone());
        self.inner.writes.fetch_add(1, Ordering::SeqCst);
        Json(object).into_response()
    }
}

/// The path of a `velero.io` object in namespace `velero`.
pub fn velero_path(kind: &str, name: &str) -> String {
    format!("/apis/velero.io/v1/namespaces/velero/{}s/{name}", kind.to_lowercase())
}

/// The path of the ledger in namespace `velero`.
pub const LEDGER_PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/velero/leases/backup-lock-velero";

async fn serve(State(api): State<FakeApi>, method: Method, uri: Uri, body: Bytes) -> Response {
    // Lets requests of others come in between, as they would on a network.
    tokio::task::yield_now().await;
    if api.inner.hung.load(Ordering::SeqCst) {
        std::future::pending::<()>().await;
    }
    let away = api.inner.away.lock().unwrap_or_else(PoisonError::into_inner).as_deref() == Some(uri.path());
    let refused = method != Method::GET && api.inner.read_only.load(Ordering::SeqCst);
    if away || refused || api.inner.gone.load(Ordering::SeqCst) {
        return status(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "", "");
    }
    let path = uri.path();
    if api.inner.unserved.load(Ordering::SeqCst) && path.contains("velero.io") {
        return (StatusCode::NOT_FOUND, "404 page not found").into_response();
    }
    let object = serde_json::from_slice::<Value>(&body).unwrap_or_default();
    let (parent, name) = path.rsplit_once('/').unwrap_or_default();
    let (_, plural) = parent.rsplit_once('/').unwrap_or_default();
    let of_item = api.get(path).is_some() || plural.ends_with('s') && plural != "namespaces";
    match method {
        Method::POST => api.create(path, object),
        Method::PUT => api.replace(path, object),
        Method::GET if !of_item => api.list(path),
        Method::GET => match api.get(path) {
            Some(object) => Json(object).into_response(),
            None => status(StatusCode::NOT_FOUND, "NotFound", plural, name),
        },
        _ => status(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", plural, name),
    }
}

fn status(code: StatusCode, reason: &str, plural: &str, name: &str) -> Response {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16(), "reason": reason,
        "message": format!("{plural} \"{name}\": {reason}"), "details": {"name": name, "kind": plural},
    });
    (code, Json(body)).into_response()
}
