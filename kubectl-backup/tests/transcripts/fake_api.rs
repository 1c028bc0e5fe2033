//! The test kit's API server on a port, for the command: with a controller that serves files, and
//! with queued faults for requests.

use std::{
    collections::{BTreeMap, VecDeque},
    io::Write as _,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::samples::{is_stored, location};
use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, Method, StatusCode},
    response::{IntoResponse as _, Response},
};
use backup_core::digest::short_sha256;
use backup_testkit::{Request, failure, status};
use flate2::{Compression, write::GzEncoder};
use futures::StreamExt as _;
use serde_json::{Value, json};

/// Path of the controller's files; the name of a request follows.
const FILES: &str = "/api/v1/namespaces/velero/services/https:backup-controller:files/proxy/files/";

/// How a request is answered, apart from the stored objects.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Answers with this status and body.
    Answer(u16, Value),
    /// Answers with this status, headers and bytes.
    Bytes(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// Answers with these headers and the first bytes of a body of this length, then breaks the
    /// connection.
    Broken(Vec<(&'static str, String)>, Vec<u8>, usize),
    /// The normal answer: reserves a place in the queue for a request without a fault.
    None,
    /// No answer for a long time.
    Hang,
    /// Executes the request, but answers this.
    DoneBut(u16, Value),
    /// Replaces the stored object by this one before answering.
    Becomes(Value),
    /// Deletes the object before answering.
    Vanishes,
}

impl Fault {
    /// A refusal with a Status.
    pub fn refused(code: u16, reason: &str, message: &str) -> Self {
        Self::Answer(code, failure(code, reason, message, json!({})))
    }

    /// A refusal with a Status and its details.
    pub fn refused_with(code: u16, reason: &str, message: &str, details: Value) -> Self {
        Self::Answer(code, failure(code, reason, message, details))
    }

    /// The same answer, but the request is executed.
    pub fn but_done(self) -> Self {
        match self {
            Self::Answer(code, body) => Self::DoneBut(code, body),
            other => other,
        }
    }

    pub fn forbidden(message: &str) -> Self {
        Self::refused(403, "Forbidden", message)
    }

    pub fn unavailable(message: &str) -> Self {
        Self::refused(503, "ServiceUnavailable", message)
    }
}

/// Completes a backup that is stored, by its phase: it began after its creation, and its location
/// exists.
fn as_stored(api: &backup_testkit::FakeApi, mut object: Value) -> Value {
    if !is_stored(&object) {
        return object;
    }
    let created = object["metadata"]["creationTimestamp"].clone();
    let status = object["status"].as_object_mut().unwrap();
    let began = status
        .entry("startTimestamp")
        .or_insert_with(|| created.clone())
        .clone();
    if began.as_str() < created.as_str() {
        object["metadata"]["creationTimestamp"] = began;
    }
    if object["spec"]["storageLocation"].is_null() {
        object["spec"]["storageLocation"] = json!("default");
    }
    let home = path("backupstoragelocations", "velero", "default");
    if object["spec"]["storageLocation"] == "default" && api.get(&home).is_none() {
        api.put(&home, location("Available", ""));
    }
    object
}

#[derive(Default)]
struct Inner {
    /// Keyed by kind, and by the name of the backup or restore.
    files: BTreeMap<(String, String), Vec<u8>>,
    /// Resources for which permission is denied.
    forbidden: Vec<String>,
    faults: VecDeque<(Method, String, Fault)>,
    /// The controller's result for each new location; null while no controller runs.
    validation: Value,
    created: u32,
}

/// A handle to the server, which ends with the test's runtime.
#[derive(Clone)]
pub struct FakeApi {
    api: backup_testkit::FakeApi,
    inner: Arc<Mutex<Inner>>,
    /// `http://127.0.0.1:port`
    pub url: String,
}

impl FakeApi {
    pub async fn start() -> Self {
        let (api, inner) = (
            backup_testkit::FakeApi::new(),
            Arc::<Mutex<Inner>>::default(),
        );
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = inner.clone();
        api.fault(move |api, request| shared.lock().unwrap().meet(api, request));
        let router = api.router();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { api, inner, url }
    }

    /// A server with these objects.
    pub async fn with(objects: impl IntoIterator<Item = Value>) -> Self {
        let api = Self::start().await;
        for object in objects {
            api.has(object);
        }
        api
    }

    /// Stores an object.
    pub fn has(&self, object: Value) -> &Self {
        let text = |at: &str| object.pointer(at).and_then(Value::as_str);
        let plural = text("/kind").unwrap().to_lowercase() + "s";
        let (namespace, name) = (
            text("/metadata/namespace").unwrap_or("velero"),
            text("/metadata/name"),
        );
        let path = path(&plural, namespace, name.unwrap());
        let object = as_stored(&self.api, object);
        self.api.put(&path, object);
        self
    }

    /// Stores an object of another program's kind at its path.
    pub fn has_at(&self, path: &str, object: Value) -> &Self {
        self.api.put(path, object);
        self
    }

    /// Serves kinds: `resources` is discovery's answer for a group and version.
    pub fn serves(&self, version: &str, resources: &Value) -> &Self {
        let list =
            json!({"kind": "APIResourceList", "groupVersion": version, "resources": resources});
        self.api.put(&format!("/apis/{version}"), list);
        self
    }

    /// Stores a file of a backup or restore, to be served by the controller.
    pub fn has_file(&self, kind: &str, name: &str, content: &Value) -> &Self {
        self.has_bytes(kind, name, packed(content.to_string().as_bytes()))
    }

    /// Like `has_file`, for a file that is not JSON.
    pub fn has_bytes(&self, kind: &str, name: &str, content: Vec<u8>) -> &Self {
        self.inner
            .lock()
            .unwrap()
            .files
            .insert((kind.to_owned(), name.to_owned()), content);
        self
    }

    /// The next request with this method and end of path gets this fault. Faults are used in the
    /// order in which they were added.
    pub fn next(&self, method: Method, path_end: &str, fault: Fault) -> &Self {
        self.inner
            .lock()
            .unwrap()
            .faults
            .push_back((method, path_end.to_owned(), fault));
        self
    }

    pub fn on_get(&self, path_end: &str, fault: Fault) -> &Self {
        self.next(Method::GET, path_end, fault)
    }

    pub fn on_post(&self, path_end: &str, fault: Fault) -> &Self {
        self.next(Method::POST, path_end, fault)
    }

    /// The next requests with this method and end of path get these faults.
    pub fn meets(&self, method: &Method, path_end: &str, faults: impl IntoIterator<Item = Fault>) {
        for fault in faults {
            self.next(method.clone(), path_end, fault);
        }
    }

    /// The next GET requests with this end of path find these objects, one after the other.
    pub fn becomes(&self, path_end: &str, objects: impl IntoIterator<Item = Value>) {
        self.meets(
            &Method::GET,
            path_end,
            objects.into_iter().map(Fault::Becomes),
        );
    }

    /// Denies the permission in access reviews for this resource.
    pub fn forbids(&self, resource: &str) -> &Self {
        self.inner
            .lock()
            .unwrap()
            .forbidden
            .push(resource.to_owned());
        self
    }

    /// Every new location gets this status as the result of its validation.
    pub fn validates(&self, status: Value) -> &Self {
        self.inner.lock().unwrap().validation = status;
        self
    }

    /// The stored object with this name.
    pub fn stored(&self, plural: &str, name: &str) -> Option<Value> {
        self.api.get(&path(plural, "velero", name))
    }

    /// All stored objects of a kind.
    pub fn all(&self, plural: &str) -> Vec<Value> {
        let is_of = |path: &str| path.rsplit('/').nth(1) == Some(plural);
        self.api
            .under("/")
            .into_iter()
            .filter(|(path, _)| is_of(path))
            .map(|(_, object)| object)
            .collect()
    }

    /// Names and values of the headers of all requests so far.
    pub fn headers(&self) -> String {
        self.api
            .requests()
            .iter()
            .map(|request| format!("{:?}", request.headers))
            .collect()
    }

    /// Method, path and query of every request so far.
    pub fn seen(&self) -> Vec<String> {
        let line = |request: &Request| {
            let query: Vec<String> = request
                .query
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            let mark = if query.is_empty() { "" } else { "?" };
            format!("{}{mark}{}", request.line(), query.join("&"))
        };
        self.api.requests().iter().map(line).collect()
    }
}

/// The path of an object.
fn path(plural: &str, namespace: &str, name: &str) -> String {
    let version = match plural {
        "deployments" => "/apis/apps/v1",
        "dumps" => "/apis/acme.example/v1",
        "configmaps" | "events" => "/api/v1",
        "leases" => "/apis/coordination.k8s.io/v1",
        plural if plural.starts_with("perconaservermysql") => "/apis/ps.percona.com/v1",
        _ => "/apis/velero.io/v1",
    };
    format!("{version}/namespaces/{namespace}/{plural}/{name}")
}

/// The stored form of a file.
pub fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut file = GzEncoder::new(Vec::new(), Compression::fast());
    file.write_all(bytes).unwrap();
    file.finish().unwrap()
}

impl Inner {
    /// Applies the next fault for the request.
    fn meet(
        &mut self,
        api: &backup_testkit::FakeApi,
        request: &Request,
    ) -> Option<backup_testkit::Fault> {
        if request.path.contains("/customresourcedefinitions/") {
            // A definition is served as soon as it exists.
            let established = json!([{ "type": "Established", "status": "True" }]);
            api.edit(&request.path, |object| {
                object["status"] = json!({ "conditions": established });
            });
        }
        let is_watch = request.query.contains_key("watch");
        let place = if is_watch {
            format!("{}?watch", request.path)
        } else {
            request.path.clone()
        };
        let meets = |(method, end, _): &(Method, String, Fault)| {
            *method == request.method && place.ends_with(end.as_str())
        };
        let at = self.faults.iter().position(meets);
        match at
            .and_then(|at| self.faults.remove(at))
            .map_or(Fault::None, |(.., fault)| fault)
        {
            Fault::Answer(code, body) => return Some(answer(status(code, body))),
            Fault::Bytes(code, headers, bytes) => {
                let code = StatusCode::from_u16(code).unwrap();
                return Some(answer(with_headers((code, bytes).into_response(), headers)));
            }
            Fault::Broken(mut headers, bytes, length) => {
                headers.push(("content-length", length.to_string()));
                return Some(answer(with_headers(broken(bytes), headers)));
            }
            Fault::Hang => return Some(backup_testkit::Fault::Hang),
            Fault::DoneBut(code, body) => {
                return Some(backup_testkit::Fault::DoneBut(status(code, body)));
            }
            Fault::Becomes(object) => {
                let object = as_stored(api, object);
                api.put(&request.path, object);
            }
            Fault::Vanishes => api.delete(&request.path),
            // A watch has no events.
            Fault::None if is_watch => return Some(backup_testkit::Fault::Hang),
            Fault::None => {}
        }
        if let Some(name) = request.path.strip_prefix(FILES) {
            return Some(answer(self.file(api, name, request.headers.get("range"))));
        }
        let is_version =
            request.path.starts_with("/apis/") && request.path.matches('/').count() == 3;
        if is_version && api.get(&request.path).is_none() {
            let message = "the server could not find the requested resource";
            return Some(answer(status(
                404,
                failure(404, "NotFound", message, json!({})),
            )));
        }
        (request.method == Method::POST)
            .then(|| self.create(api, request))
            .flatten()
    }

    /// The controller's answer to a request for a file: the whole file, or the part named by its
    /// first and last byte.
    fn file(
        &self,
        api: &backup_testkit::FakeApi,
        request: &str,
        range: Option<&HeaderValue>,
    ) -> Response {
        let request = api
            .get(&path("downloadrequests", "velero", request))
            .unwrap();
        let text = |field: &str| {
            request["spec"]["target"][field]
                .as_str()
                .unwrap()
                .to_owned()
        };
        let (kind, of) = (text("kind"), text("name"));
        let message = format!("there is no {kind} of {of} in the store");
        let missing = || {
            status(
                404,
                failure(404, "NotFound", &message, json!({ "kind": "storedfiles" })),
            )
        };
        let Some(file) = self.files.get(&(kind, of)) else {
            return missing();
        };
        let e_tag = ("etag", format!("\"{}\"", short_sha256(file, 12)));
        let Some(range) = range else {
            return with_headers(file.clone().into_response(), vec![e_tag]);
        };
        let range = range.to_str().unwrap().strip_prefix("bytes=").unwrap();
        let (first, last) = range.split_once('-').unwrap();
        let Some(part) = file.get(first.parse().unwrap()..=last.parse().unwrap()) else {
            return with_headers(file.clone().into_response(), vec![e_tag]);
        };
        let of = ("content-range", format!("bytes {range}/{}", file.len()));
        with_headers(
            (StatusCode::PARTIAL_CONTENT, part.to_vec()).into_response(),
            vec![e_tag, of],
        )
    }

    /// Access reviews are answered and not stored. Objects get names and times that are the same in
    /// every run.
    fn create(
        &mut self,
        api: &backup_testkit::FakeApi,
        request: &Request,
    ) -> Option<backup_testkit::Fault> {
        let mut object = request.body.clone();
        let plural = request.path.rsplit('/').next().unwrap();
        if plural == "selfsubjectreviews" {
            object["status"] = json!({"userInfo": {"username": "jane"}});
            return Some(answer(status(201, object)));
        }
        if plural == "selfsubjectaccessreviews" {
            let asked = object["spec"]["resourceAttributes"]["resource"]
                .as_str()
                .unwrap();
            let allowed = !self.forbidden.iter().any(|resource| resource == asked);
            object["status"] = json!({ "allowed": allowed });
            return Some(answer(status(201, object)));
        }
        let name = match object["metadata"]["name"].as_str() {
            Some(name) => name.to_owned(),
            None => format!(
                "{}{}",
                object["metadata"]["generateName"].as_str().unwrap(),
                self.created
            ),
        };
        let path = format!("{}/{name}", request.path);
        if api.get(&path).is_some() {
            return None;
        }
        self.created += 1;
        let metadata = json!({
            "name": name, "uid": format!("{:08}-aaaa-bbbb-cccc-dddddddddddd", self.created),
            "resourceVersion": "100", "creationTimestamp": "2026-11-03T05:14:12Z",
            "managedFields": [{"manager": "kubectl-backup", "operation": "Update"}],
        });
        json_patch::merge(&mut object["metadata"], &metadata);
        if plural == "downloadrequests" {
            object["status"] =
                json!({"phase": "Processed", "downloadURL": format!("{FILES}{name}")});
        }
        if plural == "backupstoragelocations" && !self.validation.is_null() {
            object["status"] = self.validation.clone();
        }
        if !request.query.contains_key("dryRun") {
            api.put(&path, object.clone());
        }
        Some(answer(status(201, object)))
    }
}

fn answer(response: Response) -> backup_testkit::Fault {
    backup_testkit::Fault::Answer(response)
}

fn with_headers(mut response: Response, headers: Vec<(&'static str, String)>) -> Response {
    for (name, value) in headers {
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    response
}

/// Sends these bytes, and then breaks the connection.
fn broken(bytes: Vec<u8>) -> Response {
    let cut = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    let pieces = futures::stream::iter([Ok(Bytes::from(bytes)), Err(cut)]).then(|piece| async {
        // Without the pause the first piece could be lost with the connection.
        tokio::time::sleep(Duration::from_millis(50)).await;
        piece
    });
    Body::from_stream(pieces).into_response()
}
