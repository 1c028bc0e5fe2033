//! An API server for tests: keeps objects by path, and fails when told to.

pub mod backup;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{Method, StatusCode, Uri},
    response::Response,
};
use backup_actions::csi::SnapshotApi;
use backup_runtime::leader::Leadership;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::calls::{Calls, Pace};
use crate::job::cancellation::Cancellation;

/// Answers a request instead of the server: method, path, and how often this pair was asked before.
type Script = Box<dyn Fn(&str, &str, usize) -> Fault + Send + Sync>;

/// What happens to a request.
pub enum Fault {
    /// What should.
    None,
    /// It is refused.
    Refuse(u16, &'static str, &'static str),
    /// It is done, but the answer is lost.
    LoseAnswer,
}

/// The server.
#[derive(Clone)]
pub struct Fake {
    state: Arc<State>,
}

struct State {
    objects: Mutex<BTreeMap<String, Value>>,
    log: Mutex<Vec<String>>,
    script: Script,
}

impl Fake {
    /// A server without faults.
    pub fn new() -> Self {
        Self::with(|_, _, _| Fault::None)
    }

    /// A server with faults.
    pub fn with(script: impl Fn(&str, &str, usize) -> Fault + Send + Sync + 'static) -> Self {
        let state = State { objects: Mutex::default(), log: Mutex::default(), script: Box::new(script) };
        Self { state: Arc::new(state) }
    }

    /// Puts an object there.
    pub fn put(&self, path: &str, object: Value) {
        self.state.objects.lock().unwrap().insert(path.to_owned(), object);
    }

    /// Takes an object away.
    pub fn remove(&self, path: &str) {
        self.state.objects.lock().unwrap().remove(path);
    }

    /// The object at a path.
    pub fn get(&self, path: &str) -> Option<Value> {
        self.state.objects.lock().unwrap().get(path).cloned()
    }

    /// Every request so far, as `POST /api/v1/...`.
    pub fn log(&self) -> Vec<String> {
        self.state.log.lock().unwrap().clone()
    }

    /// Requests to this server, quick to try again.
    pub fn calls(&self) -> Calls {
        self.calls_until(CancellationToken::new())
    }

    /// Requests to this server until `stop`.
    pub fn calls_until(&self, stop: CancellationToken) -> Calls {
        let pace = Pace {
            request: Duration::from_secs(5),
            patience: Duration::from_secs(5),
            pause: (Duration::from_millis(1), Duration::from_millis(2)),
            tries: 3,
        };
        Calls::new(self.client(), Cancellation::new(Leadership::always(), stop), pace)
    }

    /// Requests about CSI snapshots to this server.
    pub fn csi(&self) -> SnapshotApi {
        SnapshotApi::new(&self.client(), &Leadership::always())
    }

    /// A client of this server.
    pub fn client(&self) -> kube::Client {
        let fake = self.clone();
        let router = Router::new().fallback(move |method: Method, uri: Uri, body: Bytes| {
            let fake = fake.clone();
            async move { fake.answer(&method, uri.path(), &body) }
        });
        kube::Client::new(router, "default")
    }

    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> Response {
        let line = format!("{method} {path}");
        let before = {
            let mut log = self.state.log.lock().unwrap();
            let before = log.iter().filter(|other| **other == line).count();
            log.push(line);
            before
        };
        match (self.state.script)(method.as_str(), path, before) {
            Fault::None => self.serve(method, path, body),
            Fault::Refuse(code, reason, message) => refusal(code, reason, message, path),
            Fault::LoseAnswer => {
                self.serve(method, path, body);
                refusal(504, "Timeout", "the answer was lost", path)
            }
        }
    }

    fn serve(&self, method: &Method, path: &str, body: &[u8]) -> Response {
        let mut objects = self.state.objects.lock().unwrap();
        match method.as_str() {
            "POST" => {
                let mut object: Value = serde_json::from_slice(body).unwrap();
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                let at = format!("{path}/{name}");
                if objects.contains_key(&at) {
                    return refusal(409, "AlreadyExists", "already exists", path);
                }
                object["metadata"]["uid"] = json!(format!("uid-{}", objects.len()));
                object["metadata"]["resourceVersion"] = json!("1");
                object["metadata"]["creationTimestamp"] = json!("2026-01-02T00:00:00Z");
                if path.ends_with("/customresourcedefinitions") {
                    object["status"] = json!({"conditions": [{"type": "Established", "status": "True"}]});
                }
                objects.insert(at, object.clone());
                answer(201, &object)
            }
            "GET" if path == "/api" || path == "/apis" => answer(200, &discovery(path)),
            "GET"
                if ["/backups", "/restores", "/deletebackuprequests"]
                    .iter()
                    .any(|list| path.ends_with(list)) =>
            {
                let plural = format!("/{}/", path.rsplit('/').next().unwrap());
                let items: Vec<&Value> =
                    objects.iter().filter(|(at, _)| at.contains(&plural)).map(|(_, object)| object).collect();
                answer(200, &json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}))
            }
            "GET" => objects
                .get(path)
                .map_or_else(|| refusal(404, "NotFound", "not found", path), |object| answer(200, object)),
            "PATCH" | "PUT" => {
                let sent: Value = serde_json::from_slice(body).unwrap();
                let Some(object) = objects.get_mut(path) else {
                    return refusal(404, "NotFound", "not found", path);
                };
                let (version, now) =
                    (&sent["metadata"]["resourceVersion"], object["metadata"]["resourceVersion"].clone());
                if !version.is_null() && *version != now {
                    let message = "the object has been modified; please apply your changes to it";
                    return refusal(409, "Conflict", message, path);
                }
                if method == Method::PUT {
                    *object = sent;
                } else {
                    json_patch::merge(object, &sent);
                }
                let next = now.as_str().and_then(|v| v.parse::<u64>().ok()).unwrap_or(0) + 1;
                object["metadata"]["resourceVersion"] = json!(next.to_string());
                let (after, deleting) = (object.clone(), !object["metadata"]["deletionTimestamp"].is_null());
                if deleting && object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty) {
                    objects.remove(path);
                }
                answer(200, &after)
            }
            other => panic!("unexpected {other}"),
        }
    }
}

fn answer(code: u16, body: &Value) -> Response {
    Response::builder()
        .status(StatusCode::from_u16(code).unwrap())
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .unwrap()
}

fn refusal(code: u16, reason: &str, message: &str, path: &str) -> Response {
    let mut segments = path.rsplit('/');
    let (name, kind) = (segments.next(), segments.next());
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message,
        "details": {"name": name, "kind": kind},
    });
    answer(code, &status)
}

/// Aggregated discovery: ConfigMaps, and one more group.
fn discovery(path: &str) -> Value {
    let resource = |plural: &str, kind: &str| {
        json!({
            "resource": plural, "responseKind": {"group": "", "version": "", "kind": kind}, "scope": "Namespaced",
            "singularResource": kind.to_lowercase(), "verbs": ["list", "create", "get", "delete"],
        })
    };
    let (group, resource) = match path {
        "/api" => ("", resource("configmaps", "ConfigMap")),
        _ => ("apps", resource("deployments", "Deployment")),
    };
    json!({
        "apiVersion": "apidiscovery.k8s.io/v2", "kind": "APIGroupDiscoveryList", "metadata": {},
        "items": [{
            "metadata": {"name": group},
            "versions": [{"version": "v1", "freshness": "Current", "resources": [resource]}],
        }],
    })
}
