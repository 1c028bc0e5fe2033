//! The test interface of the server: stored objects, logged requests, and faults.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{Router, http::StatusCode, response::IntoResponse as _};
use kube::Client;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use self::watch::Event;
use crate::{Fault, Request};

mod serve;
mod watch;

type FaultFn = dyn Fn(&FakeApi, &Request) -> Option<Fault> + Send + Sync;
type AllowFn = dyn Fn(&Value) -> bool + Send + Sync;
/// An action that runs once, just before a request is served.
type Hook = Box<dyn FnOnce(&FakeApi) + Send>;

/// A small API server in memory: get, list (in pages, by labels), watch, create, replace, merge and
/// delete of any resource by its path, with resource versions, uids, preconditions and finalizers,
/// and 404, 409 and 422 like the real one. A GET answers with the object that the test stored at
/// exactly this path, so discovery takes a few objects.
///
/// Clones share its objects.
#[derive(Clone, Default)]
pub struct FakeApi {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Default)]
pub(crate) struct Inner {
    pub(crate) state: Mutex<State>,
    requests: Mutex<Vec<Request>>,
    hooks: Mutex<Vec<(String, String, Hook)>>,
    fault: Mutex<Option<Arc<FaultFn>>>,
    allows: Mutex<Option<Arc<AllowFn>>>,
    /// Status codes of the answers to writes.
    written: Mutex<Vec<u16>>,
    crashed: Arc<AtomicBool>,
    latency: Mutex<Option<Duration>>,
    pub(crate) changed: tokio::sync::Notify,
}

#[derive(Default)]
pub(crate) struct State {
    /// By path: `/apis/velero.io/v1/namespaces/velero/backups/b1`.
    pub(crate) objects: BTreeMap<String, Value>,
    pub(crate) version: u64,
    pub(crate) events: Vec<Event>,
}

impl State {
    pub(crate) fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// Stores an object with a new version, and returns it.
    pub(crate) fn store(&mut self, path: &str, mut object: Value) -> Value {
        let version = self.next_version();
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let known = self
            .objects
            .insert(path.to_owned(), object.clone())
            .is_some();
        let change = if known { "MODIFIED" } else { "ADDED" };
        self.events.push(Event {
            version,
            change,
            path: path.to_owned(),
            object: object.clone(),
        });
        object
    }

    pub(crate) fn remove(&mut self, path: &str) -> Option<Value> {
        let object = self.objects.remove(path)?;
        let version = self.next_version();
        let event = Event {
            version,
            change: "DELETED",
            path: path.to_owned(),
            object: object.clone(),
        };
        self.events.push(event);
        Some(object)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastWrite {
    Lost,
    /// The write is done, and its answer is lost.
    Unanswered,
}

impl FakeApi {
    pub fn new() -> Self {
        Self::default()
    }

    /// A client of this server, with namespace `velero`.
    pub fn client(&self) -> Client {
        Client::new(self.router(), "velero")
    }

    /// The server as a service, for tests that serve it on a port.
    pub fn router(&self) -> Router {
        Router::new()
            .fallback(serve::serve)
            .with_state(self.clone())
    }

    /// Stores an object unchanged, at this path, with a new resource version.
    pub fn put(&self, path: &str, object: Value) {
        self.state().store(path, object);
        self.inner.changed.notify_waiters();
    }

    pub fn get(&self, path: &str) -> Option<Value> {
        self.state().objects.get(path).cloned()
    }

    /// The objects whose paths have this prefix, by path.
    pub fn under(&self, path: &str) -> BTreeMap<String, Value> {
        let state = self.state();
        let inside = state.objects.iter().filter(|(at, _)| at.starts_with(path));
        inside
            .map(|(at, object)| (at.clone(), object.clone()))
            .collect()
    }

    /// Edits the object at this path, if there is one; it gets a new resource version.
    pub fn edit(&self, path: &str, edit: impl FnOnce(&mut Value)) {
        if let Some(mut object) = self.get(path) {
            edit(&mut object);
            self.put(path, object);
        }
    }

    pub fn delete(&self, path: &str) {
        self.state().remove(path);
        self.inner.changed.notify_waiters();
    }

    /// Sets a function that returns the fault of each request; `None`: it is served normally.
    /// Replaces the previous function.
    pub fn fault(&self, fault: impl Fn(&Self, &Request) -> Option<Fault> + Send + Sync + 'static) {
        *self.inner.fault.lock() = Some(Arc::new(fault));
    }

    /// Sets what users may do, by the spec of a SubjectAccessReview; by default, nothing.
    pub fn allow(&self, allows: impl Fn(&Value) -> bool + Send + Sync + 'static) {
        *self.inner.allows.lock() = Some(Arc::new(allows));
    }

    /// The answer to a SubjectAccessReview.
    pub(crate) fn reviewed(&self, mut review: Value) -> Value {
        let allows = self.inner.allows.lock().clone();
        let allowed = allows.is_some_and(|allows| allows(&review["spec"]));
        review["status"] = json!({ "allowed": allowed });
        review
    }

    pub fn fail(&self, when: impl Fn(&Request) -> bool + Send + Sync + 'static) {
        self.fault(move |_, request| when(request).then(Fault::unavailable));
    }

    /// From now on every request is delayed by this time before it is served.
    pub fn slow(&self, latency: Duration) {
        *self.inner.latency.lock() = Some(latency);
    }

    pub(crate) fn latency(&self) -> Option<Duration> {
        *self.inner.latency.lock()
    }

    /// Paths with this part are not served, like the paths of a group whose definitions are not
    /// installed.
    pub fn unserve(&self, part: &'static str) {
        self.fault(move |_, request| {
            let page = || (StatusCode::NOT_FOUND, "404 page not found").into_response();
            request.path.contains(part).then(|| Fault::Answer(page()))
        });
    }

    /// After this number of writes comes the last one; every request after it fails, as if the
    /// caller had crashed, until [`FakeApi::recover`].
    pub fn crash_after(&self, writes: u64, last: LastWrite) {
        let crashed = Arc::clone(&self.inner.crashed);
        crashed.store(false, Ordering::SeqCst);
        let begun = AtomicU64::new(0);
        self.fault(move |_, request| {
            if crashed.load(Ordering::SeqCst) {
                return Some(Fault::unavailable());
            }
            if !request.is_write() || begun.fetch_add(1, Ordering::SeqCst) < writes {
                return None;
            }
            crashed.store(true, Ordering::SeqCst);
            Some(match last {
                LastWrite::Lost => Fault::unavailable(),
                LastWrite::Unanswered => Fault::lose_answer(),
            })
        });
    }

    pub fn recover(&self) -> bool {
        *self.inner.fault.lock() = None;
        self.inner.crashed.swap(false, Ordering::SeqCst)
    }

    /// Runs an action once, just before the next request with this method for exactly this path: a
    /// change by another client while the request was in flight.
    pub fn before(&self, method: &str, path: &str, act: impl FnOnce(&Self) + Send + 'static) {
        self.inner
            .hooks
            .lock()
            .push((method.to_owned(), path.to_owned(), Box::new(act)));
    }

    pub fn requests(&self) -> Vec<Request> {
        self.inner.requests.lock().clone()
    }

    /// Method and path of every request so far: `POST /api/v1/namespaces`.
    pub fn log(&self) -> Vec<String> {
        self.inner
            .requests
            .lock()
            .iter()
            .map(Request::line)
            .collect()
    }

    pub fn count(&self, line: &str) -> usize {
        self.inner
            .requests
            .lock()
            .iter()
            .filter(|request| request.line() == line)
            .count()
    }

    pub fn writes(&self) -> u64 {
        self.inner
            .written
            .lock()
            .iter()
            .filter(|code| (200..300).contains(*code))
            .count() as u64
    }

    /// Number of writes that were refused because of what is stored.
    pub fn conflicts(&self) -> u64 {
        self.inner
            .written
            .lock()
            .iter()
            .filter(|code| **code == 409)
            .count() as u64
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock()
    }

    /// Logs a request, and returns its fault.
    pub(crate) fn meet(&self, request: &mut Request) -> Option<Fault> {
        {
            let mut requests = self.inner.requests.lock();
            request.earlier = requests
                .iter()
                .filter(|other| other.is(request.method.as_str(), &request.path))
                .count();
            requests.push(request.clone());
        }
        let hook = {
            let mut hooks = self.inner.hooks.lock();
            let at = hooks
                .iter()
                .position(|(method, path, _)| request.is(method, path));
            at.map(|at| hooks.remove(at).2)
        };
        if let Some(hook) = hook {
            hook(self);
        }
        let fault = self.inner.fault.lock().clone();
        fault.and_then(|fault| fault(self, request))
    }

    pub(crate) fn written(&self, code: u16) {
        self.inner.written.lock().push(code);
        self.inner.changed.notify_waiters();
    }
}
