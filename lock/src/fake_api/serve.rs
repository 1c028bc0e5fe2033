//! Requests and answers of the API server in memory.

use std::sync::atomic::Ordering;

use axum::{
    Json,
    body::Bytes,
    extract::State,
    http::{Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use super::{FakeApi, LastWrite, lock};

/// What a path is about.
struct Target<'a> {
    path: &'a str,
    plural: &'a str,
    /// None: all of them.
    name: Option<&'a str>,
}

impl<'a> Target<'a> {
    /// `/api/<version>/…` or `/apis/<group>/<version>/…`, then `[namespaces/<namespace>/]<plural>[/<name>[/…]]`.
    fn of(path: &'a str) -> Self {
        let mut parts = path.trim_matches('/').split('/');
        let skipped = if parts.next() == Some("apis") { 2 } else { 1 };
        let rest: Vec<&str> = parts.skip(skipped).collect();
        let (plural, name) = match rest.as_slice() {
            ["namespaces", _, plural, name @ ..] | [plural, name @ ..] => (*plural, name.first().copied()),
            [] => ("", None),
        };
        Self { path, plural, name }
    }
}

pub(super) async fn serve(State(api): State<FakeApi>, method: Method, uri: Uri, body: Bytes) -> Response {
    // Lets requests of others come in between, as they would on a network.
    tokio::task::yield_now().await;
    if api.inner.hung.load(Ordering::SeqCst) {
        std::future::pending::<()>().await;
    }
    let path = uri.path();
    api.run_hook(method.as_str(), path);
    let is_write = method != Method::GET;
    let away = lock(&api.inner.away).as_deref() == Some(path);
    let refused = is_write && api.inner.read_only.load(Ordering::SeqCst);
    if away || refused || api.inner.gone.load(Ordering::SeqCst) {
        return unavailable();
    }
    let last = if is_write { api.last_write() } else { None };
    if last == Some(LastWrite::Lost) {
        return unavailable();
    }
    if api.inner.unserved.load(Ordering::SeqCst) && path.contains("velero.io") {
        return (StatusCode::NOT_FOUND, "404 page not found").into_response();
    }
    let object = serde_json::from_slice::<Value>(&body).unwrap_or_default();
    let target = Target::of(path);
    let answer = match (method, target.name) {
        (Method::GET, None) => api.list(&target, uri.query().unwrap_or_default()),
        (Method::GET, Some(name)) => match api.get(path) {
            Some(object) => Json(object).into_response(),
            None => status(StatusCode::NOT_FOUND, "NotFound", target.plural, name),
        },
        (Method::POST, _) => api.create(&target, object),
        (Method::PUT, Some(name)) => api.replace(&target, name, object),
        (Method::PATCH, Some(name)) => api.merge(&target, name, &object),
        (Method::DELETE, Some(name)) => api.delete_if(&target, name, &object),
        (_, name) => status(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            target.plural,
            name.unwrap_or_default(),
        ),
    };
    if last == Some(LastWrite::Unanswered) { unavailable() } else { answer }
}

impl FakeApi {
    fn run_hook(&self, method: &str, path: &str) {
        let hook = {
            let mut hooks = lock(&self.inner.hooks);
            let at = hooks.iter().position(|(of, at, _)| of == method && at == path);
            at.map(|at| hooks.remove(at).2)
        };
        if let Some(hook) = hook {
            hook(self);
        }
    }

    /// Counts a write; how it ends if it is the last one before a crash.
    fn last_write(&self) -> Option<LastWrite> {
        let mut planned = lock(&self.inner.crash);
        let crash = planned.as_mut()?;
        if crash.writes_left > 0 {
            crash.writes_left -= 1;
            return None;
        }
        let last = crash.last;
        *planned = None;
        self.set_gone(true);
        Some(last)
    }

    fn wrote(&self) {
        self.inner.writes.fetch_add(1, Ordering::SeqCst);
    }

    fn refuse_write(&self, reason: &str, plural: &str, name: &str) -> Response {
        self.inner.conflicts.fetch_add(1, Ordering::SeqCst);
        status(StatusCode::CONFLICT, reason, plural, name)
    }

    fn list(&self, target: &Target<'_>, query: &str) -> Response {
        // `/apis/velero.io/v1/backups` lists every namespace.
        let (group, plural) = target.path.rsplit_once('/').unwrap_or_default();
        let inside = |key: &str| {
            key.starts_with(&format!("{}/", target.path))
                || (key.starts_with(&format!("{group}/namespaces/")) && Target::of(key).plural == plural)
        };
        let wanted = labels_of(query);
        let labelled = |object: &Value| {
            let labels = &object["metadata"]["labels"];
            wanted.iter().all(|(key, value)| labels[key.as_str()] == json!(value))
        };
        let objects = self.objects();
        let items: Vec<&Value> = objects
            .iter()
            .filter(|(key, object)| inside(key) && labelled(object))
            .map(|(_, object)| object)
            .collect();
        let list =
            json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": items});
        Json(list).into_response()
    }

    fn create(&self, target: &Target<'_>, mut object: Value) -> Response {
        let version = self.next_version();
        let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut name = text("/metadata/name");
        if name.is_empty() {
            name = format!("{}{version}", text("/metadata/generateName"));
            object["metadata"]["name"] = json!(name);
        }
        let path = format!("{}/{name}", target.path);
        let mut objects = self.objects();
        if objects.contains_key(&path) {
            drop(objects);
            return self.refuse_write("AlreadyExists", target.plural, &name);
        }
        object["metadata"]["uid"] = json!(format!("uid-{version}"));
        object["metadata"]["resourceVersion"] = json!(version);
        objects.insert(path, object.clone());
        self.wrote();
        (StatusCode::CREATED, Json(object)).into_response()
    }

    fn replace(&self, target: &Target<'_>, name: &str, mut object: Value) -> Response {
        let version = self.next_version();
        let mut objects = self.objects();
        let Some(old) = objects.get(target.path) else {
            drop(objects);
            // A PUT can create a Lease, so one that names the uid of a lost one is a conflict; nothing else can be created so.
            return match target.plural {
                "leases" => self.refuse_write("Conflict", target.plural, name),
                _ => status(StatusCode::NOT_FOUND, "NotFound", target.plural, name),
            };
        };
        let same = |field: &str| old.pointer(field) == object.pointer(field);
        if !same("/metadata/resourceVersion") || !same("/metadata/uid") {
            drop(objects);
            return self.refuse_write("Conflict", target.plural, name);
        }
        object["metadata"]["resourceVersion"] = json!(version);
        objects.insert(target.path.to_owned(), object.clone());
        self.wrote();
        Json(object).into_response()
    }

    /// A JSON merge patch (RFC 7386); a `resourceVersion` in it is a condition.
    fn merge(&self, target: &Target<'_>, name: &str, patch: &Value) -> Response {
        let version = self.next_version();
        let mut objects = self.objects();
        let Some(object) = objects.get_mut(target.path) else {
            return status(StatusCode::NOT_FOUND, "NotFound", target.plural, name);
        };
        let wanted = patch.pointer("/metadata/resourceVersion");
        if wanted.is_some_and(|wanted| *wanted != object["metadata"]["resourceVersion"]) {
            drop(objects);
            return self.refuse_write("Conflict", target.plural, name);
        }
        json_patch::merge(object, patch);
        object["metadata"]["resourceVersion"] = json!(version);
        self.wrote();
        Json(object.clone()).into_response()
    }

    /// Deletes an object that is as the preconditions say; one with finalizers is only marked.
    fn delete_if(&self, target: &Target<'_>, name: &str, options: &Value) -> Response {
        let version = self.next_version();
        let mut objects = self.objects();
        let Some(old) = objects.get_mut(target.path) else {
            return status(StatusCode::NOT_FOUND, "NotFound", target.plural, name);
        };
        let met = ["uid", "resourceVersion"].into_iter().all(|field| {
            let wanted = &options["preconditions"][field];
            wanted.is_null() || *wanted == old["metadata"][field]
        });
        if !met {
            drop(objects);
            return self.refuse_write("Conflict", target.plural, name);
        }
        self.wrote();
        if old.pointer("/metadata/finalizers").and_then(Value::as_array).is_some_and(|all| !all.is_empty()) {
            old["metadata"]["deletionTimestamp"] = json!("2026-11-21T09:30:00Z");
            old["metadata"]["resourceVersion"] = json!(version);
            return Json(old.clone()).into_response();
        }
        objects.remove(target.path);
        let done = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {"name": name, "kind": target.plural},
        });
        Json(done).into_response()
    }
}

/// The labels that a query asks for: `labelSelector=a%3Db%2Cc%3Dd`. Only equality is known.
fn labels_of(query: &str) -> Vec<(String, String)> {
    let selector = query.split('&').find_map(|pair| pair.strip_prefix("labelSelector=")).unwrap_or_default();
    let decoded = selector.replace("%2F", "/").replace("%3D", "=").replace("%2C", ",");
    let pairs = decoded.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.trim_start_matches('=').to_owned())).collect()
}

fn unavailable() -> Response {
    status(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "", "")
}

fn status(code: StatusCode, reason: &str, plural: &str, name: &str) -> Response {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16(), "reason": reason,
        "message": format!("{plural} \"{name}\": {reason}"), "details": {"name": name, "kind": plural},
    });
    (code, Json(body)).into_response()
}
