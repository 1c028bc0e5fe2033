//! An API server that holds objects, answers in the words of a real one, and can be told to misbehave.

use std::{
    collections::BTreeMap,
    io::Write as _,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::samples::with;
use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    http::{Method, StatusCode},
    response::{IntoResponse, Response},
};
use flate2::{Compression, write::GzEncoder};
use futures::StreamExt as _;
use serde_json::{Value, json};

/// Where the controller's files are; behind it comes the name of a request.
const FILES: &str = "/api/v1/namespaces/velero/services/https:backup-controller:files/proxy/files/";

/// How a request is answered, beside what is stored.
#[derive(Clone, Debug)]
pub enum Fault {
    /// With this status and body.
    Answer(u16, Value),
    /// With these headers and bytes.
    Bytes(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// With these headers and bytes of so many, and then the connection is cut.
    Broken(Vec<(&'static str, String)>, Vec<u8>, usize),
    /// As ever: keeps the place of a request that meets no fault.
    None,
    /// Not at all, for a long time.
    Hang,
    /// The request is carried out, but the answer is this.
    DoneBut(u16, Value),
    /// Before the request is answered, this object takes the place of the stored one.
    Becomes(Value),
    /// Before the request is answered, the object is gone.
    Vanishes,
}

#[derive(Default)]
struct Inner {
    objects: BTreeMap<(String, String), Value>,
    /// By kind, and name of the backup or restore.
    files: BTreeMap<(String, String), Vec<u8>>,
    faults: Vec<(Method, String, Fault)>,
    seen: Vec<String>,
    headers: Vec<String>,
    served: u32,
}

/// Handle to the server; it ends with the test's runtime.
#[derive(Clone)]
pub struct FakeApi {
    inner: Arc<Mutex<Inner>>,
    /// `http://127.0.0.1:port`
    pub url: String,
}

impl FakeApi {
    pub async fn start() -> Self {
        let inner = Arc::<Mutex<Inner>>::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(inner.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { inner, url }
    }

    /// Stores an object, as it is.
    pub fn has(&self, plural: &str, object: Value) -> &Self {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.inner.lock().unwrap().objects.insert((plural.to_owned(), name), object);
        self
    }

    /// Serves kinds: what discovery tells of a group and version.
    pub fn serves(&self, version: &str, resources: &Value) -> &Self {
        self.has("discovery", json!({"metadata": {"name": version}, "kind": "APIResourceList", "groupVersion": version, "resources": resources}))
    }

    /// A file of a backup or restore is stored, which the controller gives to whoever asks.
    pub fn has_file(&self, kind: &str, name: &str, content: &Value) -> &Self {
        let mut file = GzEncoder::new(Vec::new(), Compression::fast());
        file.write_all(content.to_string().as_bytes()).unwrap();
        self.has_bytes(kind, name, file.finish().unwrap())
    }

    /// The same, of a file that is no document.
    pub fn has_bytes(&self, kind: &str, name: &str, content: Vec<u8>) -> &Self {
        let key = (kind.to_owned(), name.to_owned());
        self.inner.lock().unwrap().files.insert(key, content);
        self
    }

    /// The next request of this method whose path ends so meets this fault. Faults are met in the order given.
    pub fn next(&self, method: Method, path_end: &str, fault: Fault) -> &Self {
        self.inner.lock().unwrap().faults.push((method, path_end.to_owned(), fault));
        self
    }

    /// Says no when it is asked whether somebody may do something with this resource.
    pub fn forbids(&self, resource: &str) -> &Self {
        self.has("forbidden", json!({"metadata": {"name": resource}}))
    }

    /// What is stored under this name.
    pub fn stored(&self, plural: &str, name: &str) -> Option<Value> {
        self.inner.lock().unwrap().objects.get(&(plural.to_owned(), name.to_owned())).cloned()
    }

    /// Everything of a kind that is stored.
    pub fn all(&self, plural: &str) -> Vec<Value> {
        let inner = self.inner.lock().unwrap();
        inner.objects.iter().filter(|((of, _), _)| of == plural).map(|(_, object)| object.clone()).collect()
    }

    /// Names and values of all headers so far.
    pub fn headers(&self) -> String {
        self.inner.lock().unwrap().headers.concat()
    }

    /// Method, path and query of every request so far.
    pub fn seen(&self) -> Vec<String> {
        self.inner.lock().unwrap().seen.clone()
    }
}

async fn answer(State(inner): State<Arc<Mutex<Inner>>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    let (method, path) = (parts.method, parts.uri.path().to_owned());
    let query: BTreeMap<String, String> = parts.uri.query().map(parse_query).unwrap_or_default();
    let is_watch = query.contains_key("watch");
    let place_of_fault = if is_watch { format!("{path}?watch") } else { path.clone() };
    let fault = {
        let mut inner = inner.lock().unwrap();
        inner.seen.push(format!("{method} {}", parts.uri));
        inner.headers.push(format!("{:?}", parts.headers));
        let at = inner
            .faults
            .iter()
            .position(|(of, end, _)| *of == method && place_of_fault.ends_with(end.as_str()));
        at.map(|at| inner.faults.remove(at).2)
    };
    match fault {
        Some(Fault::Answer(code, body)) => return reply(code, &body),
        Some(Fault::Bytes(code, headers, bytes)) => {
            let mut response = (StatusCode::from_u16(code).unwrap(), bytes).into_response();
            for (name, value) in headers {
                response.headers_mut().insert(name, value.parse().unwrap());
            }
            return response;
        }
        Some(Fault::Broken(headers, bytes, length)) => {
            let pieces = futures::stream::iter([
                Ok(Bytes::from(bytes)),
                Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset)),
            ])
            .then(|piece| async {
                // Else the first piece goes down with the connection.
                tokio::time::sleep(Duration::from_millis(50)).await;
                piece
            });
            let mut response = Body::from_stream(pieces).into_response();
            response.headers_mut().insert("content-length", length.into());
            for (name, value) in headers {
                response.headers_mut().insert(name, value.parse().unwrap());
            }
            return response;
        }
        Some(Fault::Hang) => {
            tokio::time::sleep(Duration::from_hours(1)).await;
            return StatusCode::GATEWAY_TIMEOUT.into_response();
        }
        Some(Fault::DoneBut(code, body_then)) => {
            store(&inner, &method, &path, &query, &body);
            return reply(code, &body_then);
        }
        Some(Fault::Becomes(object)) => {
            let (plural, name) = place(&path);
            inner.lock().unwrap().objects.insert((plural, name), object);
        }
        Some(Fault::Vanishes) => {
            inner.lock().unwrap().objects.remove(&place(&path));
        }
        // Nothing happens.
        None | Some(Fault::None) if is_watch => std::future::pending().await,
        None | Some(Fault::None) => {}
    }
    if let Some(request) = path.strip_prefix(FILES) {
        return file(&inner.lock().unwrap(), request);
    }
    let (code, body) = store(&inner, &method, &path, &query, &body);
    reply(code, &body)
}

/// What the controller gives for a request.
fn file(inner: &Inner, request: &str) -> Response {
    let target = &inner.objects[&("downloadrequests".to_owned(), request.to_owned())]["spec"]["target"];
    let (kind, of) = key(target);
    let missing = || {
        let message = format!("there is no {kind} of {of} in the store");
        reply(404, &failure(404, "NotFound", &message, &json!({ "kind": "storedfiles" })))
    };
    inner.files.get(&key(target)).map_or_else(missing, |file| file.clone().into_response())
}

fn key(target: &Value) -> (String, String) {
    (target["kind"].as_str().unwrap().to_owned(), target["name"].as_str().unwrap().to_owned())
}

fn reply(code: u16, body: &Value) -> Response {
    let headers = [("content-type", "application/json")];
    (StatusCode::from_u16(code).unwrap(), headers, body.to_string()).into_response()
}

fn parse_query(query: &str) -> BTreeMap<String, String> {
    let decode = |text: &str| text.replace("%2F", "/").replace("%3D", "=").replace("%2C", ",");
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.to_owned(), decode(value)))
        .collect()
}

/// Plural and name of `/apis/GROUP/VERSION/namespaces/NS/PLURAL[/NAME]` or `/apis/GROUP/VERSION/PLURAL`.
fn place(path: &str) -> (String, String) {
    let Some(tail) = path.split("/namespaces/").nth(1) else {
        return (path.rsplit('/').next().unwrap_or_default().to_owned(), String::new());
    };
    let mut parts = tail.split('/').skip(1);
    (parts.next().unwrap_or_default().to_owned(), parts.next().unwrap_or_default().to_owned())
}

/// Whether an object is in the namespace that a list is of; one that says none is in all.
fn is_in(path: &str, object: &Value) -> bool {
    let wanted = path.split_once("/namespaces/").and_then(|(_, tail)| tail.split('/').next());
    let namespace = object["metadata"]["namespace"].as_str();
    wanted.zip(namespace).is_none_or(|(wanted, namespace)| wanted == namespace)
}

fn store(
    inner: &Mutex<Inner>,
    method: &Method,
    path: &str,
    query: &BTreeMap<String, String>,
    body: &Bytes,
) -> (u16, Value) {
    let mut inner = inner.lock().unwrap();
    if let Some(version) = path.strip_prefix("/apis/").filter(|rest| rest.matches('/').count() == 1) {
        let found = inner.objects.get(&("discovery".to_owned(), version.to_owned()));
        let missing = || {
            (404, failure(404, "NotFound", "the server could not find the requested resource", &json!({})))
        };
        return found.map_or_else(missing, |list| (200, list.clone()));
    }
    let (plural, name) = place(path);
    let key = (plural.clone(), name.clone());
    let group = match plural.as_str() {
        "events" | "configmaps" => "",
        "deployments" => ".apps",
        "leases" => ".coordination.k8s.io",
        _ => ".velero.io",
    };
    let full = format!("{plural}{group}");
    let not_found = || {
        let message = format!("{full} \"{name}\" not found");
        (
            404,
            failure(404, "NotFound", &message, &json!({"name": name, "group": "velero.io", "kind": plural})),
        )
    };
    match *method {
        Method::GET if name.is_empty() => {
            let matches = |object: &Value| {
                query.get("labelSelector").is_none_or(|selector| {
                    selector
                        .split(',')
                        .filter_map(|one| one.split_once('='))
                        .all(|(key, value)| object["metadata"]["labels"][key] == value)
                })
            };
            let all: Vec<Value> = inner
                .objects
                .iter()
                .filter(|((of, _), object)| *of == plural && matches(object) && is_in(path, object))
                .map(|(_, object)| object.clone())
                .collect();
            let limit: usize = query.get("limit").map_or(usize::MAX, |limit| limit.parse().unwrap());
            let from: usize = query.get("continue").map_or(0, |token| token.parse().unwrap());
            let to = from.saturating_add(limit).min(all.len());
            let next = if to < all.len() { to.to_string() } else { String::new() };
            (
                200,
                json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1", "continue": next}, "items": all[from..to]}),
            )
        }
        Method::GET => inner.objects.get(&key).map_or_else(not_found, |object| (200, object.clone())),
        Method::POST => {
            let mut object: Value = serde_json::from_slice(body).unwrap();
            if plural == "selfsubjectreviews" {
                object["status"] = json!({"userInfo": {"username": "jane"}});
                return (201, object);
            }
            if plural == "selfsubjectaccessreviews" {
                let asked = object["spec"]["resourceAttributes"]["resource"].as_str().unwrap().to_owned();
                let allowed = !inner.objects.contains_key(&("forbidden".to_owned(), asked));
                object["status"] = json!({"allowed": allowed});
                return (201, object);
            }
            let name = match object["metadata"]["name"].as_str() {
                Some(name) => name.to_owned(),
                None => format!("{}{}", object["metadata"]["generateName"].as_str().unwrap(), inner.served),
            };
            if inner.objects.contains_key(&(plural.clone(), name.clone())) {
                let message = format!("{full} \"{name}\" already exists");
                return (
                    409,
                    failure(
                        409,
                        "AlreadyExists",
                        &message,
                        &json!({"name": name, "group": "velero.io", "kind": plural}),
                    ),
                );
            }
            inner.served += 1;
            object["metadata"]["name"] = json!(name);
            object["metadata"]["uid"] = json!(format!("{:08}-aaaa-bbbb-cccc-dddddddddddd", inner.served));
            object["metadata"]["resourceVersion"] = json!("100");
            object["metadata"]["creationTimestamp"] = json!("2026-11-03T05:14:12Z");
            object["metadata"]["managedFields"] =
                json!([{"manager": "kubectl-backup", "operation": "Update"}]);
            if plural == "downloadrequests" {
                object["status"] = json!({"phase": "Processed", "downloadURL": format!("{FILES}{name}")});
            }
            if !query.contains_key("dryRun") {
                inner.objects.insert((plural, name), object.clone());
            }
            (201, object)
        }
        Method::PUT => {
            let mut object: Value = serde_json::from_slice(body).unwrap();
            let Some(old) = inner.objects.get(&key) else { return not_found() };
            let same = |field: &str| old["metadata"][field] == object["metadata"][field];
            if !same("resourceVersion") || !same("uid") {
                let message = format!("{full} \"{name}\": the object has been modified");
                return (409, failure(409, "Conflict", &message, &json!({"name": name, "kind": plural})));
            }
            let version = old["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            object["metadata"]["resourceVersion"] = json!(format!("{version}1"));
            inner.objects.insert(key, object.clone());
            (200, object)
        }
        Method::PATCH => {
            let Some(old) = inner.objects.get(&key) else { return not_found() };
            let patched = with(old.clone(), &serde_json::from_slice(body).unwrap());
            if old["metadata"]["uid"] != patched["metadata"]["uid"] {
                let message = format!("{full} \"{name}\": Precondition failed: UID in precondition");
                return (409, failure(409, "Conflict", &message, &json!({"name": name, "kind": plural})));
            }
            inner.objects.insert(key, patched.clone());
            (200, patched)
        }
        Method::DELETE => match inner.objects.get(&key).map(|object| &object["metadata"]["uid"]) {
            Some(uid) if !is_meant(body, uid) => {
                let message = format!("{full} \"{name}\": Precondition failed: UID in precondition");
                (409, failure(409, "Conflict", &message, &json!({"name": name, "kind": plural})))
            }
            Some(_) => {
                inner.objects.remove(&key);
                (200, json!({"apiVersion": "v1", "kind": "Status", "status": "Success"}))
            }
            None => not_found(),
        },
        _ => (
            405,
            failure(
                405,
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
                &json!({}),
            ),
        ),
    }
}

/// Whether a deletion is of the object with this uid, or of any.
fn is_meant(body: &Bytes, uid: &Value) -> bool {
    let options: Value = serde_json::from_slice(body).unwrap_or_default();
    let wanted = &options["preconditions"]["uid"];
    wanted.is_null() || wanted == uid
}

/// A Status, as a real server gives it.
pub fn failure(code: u16, reason: &str, message: &str, details: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "message": message, "reason": reason, "details": details, "code": code})
}
