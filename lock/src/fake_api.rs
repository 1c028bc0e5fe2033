//! A small API server in memory for tests without a cluster: get, list (also by labels), create, replace, merge and delete
//! (also with preconditions) of any resource, with resource versions, uids, 404 and 409 as the real one gives them.

mod serve;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use axum::Router;
use kube::Client;
use serde_json::{Value, json};

/// Something that is done just before a request is served.
type Hook = Box<dyn FnOnce(&FakeApi) + Send>;

/// The server; clones share its objects.
#[derive(Clone, Default)]
pub struct FakeApi {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    /// By path: `/apis/velero.io/v1/namespaces/velero/backups/b1`.
    objects: Mutex<BTreeMap<String, Value>>,
    /// By verb and path.
    hooks: Mutex<Vec<(String, String, Hook)>>,
    version: AtomicU64,
    writes: AtomicU64,
    conflicts: AtomicU64,
    gone: AtomicBool,
    hung: AtomicBool,
    read_only: AtomicBool,
    unserved: AtomicBool,
    away: Mutex<Option<String>>,
    crash: Mutex<Option<Crash>>,
}

/// How the last write before a crash ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastWrite {
    /// It never arrives.
    Lost,
    /// It is done, and nobody hears of it.
    Unanswered,
}

/// A crash to come: so many writes are done before the one that is the last.
#[derive(Clone, Copy)]
struct Crash {
    writes_left: u64,
    last: LastWrite,
}

impl FakeApi {
    /// An empty server.
    pub fn new() -> Self {
        Self::default()
    }

    /// A client of this server.
    pub fn client(&self) -> Client {
        let router = Router::new().fallback(serve::serve).with_state(self.clone());
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

    /// Edits the object at this path, if there is one; it gets a new resource version.
    pub fn edit(&self, path: &str, edit: impl FnOnce(&mut Value)) {
        if let Some(mut object) = self.get(path) {
            edit(&mut object);
            self.put(path, object);
        }
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
        *lock(&self.inner.away) = Some(path.to_owned());
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

    /// After so many more writes comes the last; every request after it fails, as if the caller had crashed, until
    /// [`FakeApi::recover`].
    pub fn crash_after(&self, writes: u64, last: LastWrite) {
        *lock(&self.inner.crash) = Some(Crash { writes_left: writes, last });
    }

    /// Serves again after a crash. Whether there was one.
    pub fn recover(&self) -> bool {
        let crashed = lock(&self.inner.crash).take().is_none();
        self.set_gone(false);
        crashed
    }

    /// Does this once, just before the next request with this method for exactly this path: what someone else did while
    /// the request was on its way.
    pub fn before(&self, method: &str, path: &str, act: impl FnOnce(&Self) + Send + 'static) {
        lock(&self.inner.hooks).push((method.to_owned(), path.to_owned(), Box::new(act)));
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
        lock(&self.inner.objects)
    }

    fn next_version(&self) -> String {
        (self.inner.version.fetch_add(1, Ordering::SeqCst) + 1).to_string()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The path of a `velero.io` object in namespace `velero`.
pub fn velero_path(kind: &str, name: &str) -> String {
    format!("/apis/velero.io/v1/namespaces/velero/{}s/{name}", kind.to_lowercase())
}

/// The path of a ledger in namespace `velero`.
pub fn ledger_path(lease: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/velero/leases/{lease}")
}

/// The path of a marker in namespace `velero`.
pub fn marker_path(lease: &str) -> String {
    format!("/api/v1/namespaces/velero/configmaps/{lease}")
}

/// The path of Velero's ledger in namespace `velero`.
pub const LEDGER_PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/velero/leases/backup-lock-velero";
/// The path of its marker.
pub const MARKER_PATH: &str = "/api/v1/namespaces/velero/configmaps/backup-lock-velero";
