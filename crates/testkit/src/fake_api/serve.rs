//! How the API server in memory handles a request.

use axum::{
    body::Bytes,
    extract,
    http::{HeaderMap, Method, Uri, header},
    response::Response,
};
use serde_json::{Value, json};

use super::{FakeApi, State, watch::watch};
use crate::{
    Fault, Request,
    request::{failure, status},
    target::{Selection, Target},
};

const NOW: &str = "2026-01-02T00:00:00Z";

struct Answer(u16, Value);

impl Target {
    /// A refusal with the message of the real server.
    fn refuse(&self, code: u16, reason: &str, name: &str) -> Answer {
        let dot = if self.group.is_empty() { "" } else { "." };
        let (kind, group) = (&self.plural, &self.group);
        let of = format!("{kind}{dot}{group} \"{name}\"");
        let message = match reason {
            "NotFound" => format!("{of} not found"),
            "AlreadyExists" => format!("{of} already exists"),
            "Conflict" => format!(
                "Operation cannot be fulfilled on {of}: the object has been modified; please apply your changes to the \
                 latest version and try again"
            ),
            "Precondition" => format!(
                "Operation cannot be fulfilled on {of}: Precondition failed: it is not the object that was meant"
            ),
            _ => format!("{of}: {reason}"),
        };
        let reason = if reason == "Precondition" {
            "Conflict"
        } else {
            reason
        };
        Answer(
            code,
            failure(
                code,
                reason,
                &message,
                json!({"name": name, "group": group, "kind": kind}),
            ),
        )
    }
}

pub(crate) async fn serve(
    extract::State(api): extract::State<FakeApi>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    // Lets other requests run in between, as they would on a network.
    tokio::task::yield_now().await;
    let mut request = Request::new(method, &uri, headers, &body);
    if let Some(latency) = api.latency() {
        tokio::time::sleep(latency).await;
    }
    match api.meet(&mut request) {
        Some(Fault::Answer(response)) => response,
        Some(Fault::DoneBut(response)) => {
            api.answer(&request);
            response
        }
        Some(Fault::Late(time)) => {
            tokio::time::sleep(time).await;
            api.answer(&request)
        }
        Some(Fault::Hang) => std::future::pending().await,
        None => api.answer(&request),
    }
}

/// Whether a patch is a server-side apply.
fn is_apply(request: &Request) -> bool {
    let kind = request
        .headers
        .get("content-type")
        .and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.contains("apply-patch"))
}

impl FakeApi {
    fn answer(&self, request: &Request) -> Response {
        let target = Target::of(&request.path);
        let selection = Selection::of(request);
        if matches!(request.parameter("watch"), "true" | "1") {
            let since = request.parameter("resourceVersion").parse().unwrap_or(0);
            return watch(self.clone(), target, selection, since);
        }
        if request.is_access_review() {
            return status(201, self.reviewed(request.body.clone()));
        }
        let Answer(code, body) = {
            let mut state = self.state();
            match (request.method.as_str(), &target.name) {
                ("GET", _) if state.objects.contains_key(&request.path) => {
                    Answer(200, state.objects[&request.path].clone())
                }
                ("GET", None) => state.list(&target, request),
                ("GET", Some(name)) => match state.objects.get(&target.path) {
                    Some(object) => Answer(200, object.clone()),
                    None => target.refuse(404, "NotFound", name),
                },
                ("POST", None) => {
                    state.create(&target, &request.body, request.parameter("dryRun") == "All")
                }
                (_, Some(name)) if request.is_write() && request.parameter("dryRun") == "All" => {
                    match state.objects.get(&target.path) {
                        Some(object) => Answer(200, object.clone()),
                        None => target.refuse(404, "NotFound", name),
                    }
                }
                ("PUT", Some(name)) => state.replace(&target, name, &request.body),
                // Server-side apply creates a missing object.
                ("PATCH", Some(_))
                    if is_apply(request) && !state.objects.contains_key(&target.path) =>
                {
                    Answer(201, state.store(&target.path, request.body.clone()))
                }
                ("PATCH", Some(name)) => state.patch(&target, name, &request.body),
                ("DELETE", Some(name)) => state.delete(&target, name, &request.body),
                (_, name) => {
                    target.refuse(405, "MethodNotAllowed", name.as_deref().unwrap_or_default())
                }
            }
        };
        if request.is_write() {
            self.written(code);
        }
        status(code, body)
    }
}

/// Whether only the metadata of objects is requested.
fn wants_metadata(request: &Request) -> bool {
    let accepted = request.headers.get(header::ACCEPT);
    accepted.is_some_and(|accepted| {
        let accepted = accepted.to_str().unwrap_or_default();
        accepted.contains("PartialObjectMetadataList")
    })
}

impl State {
    /// A page of a list; its continue token is an offset.
    fn list(&self, target: &Target, request: &Request) -> Answer {
        let selection = Selection::of(request);
        let matches =
            |(path, object): &(&String, &Value)| target.lists(path) && selection.selects(object);
        let all: Vec<&Value> = self
            .objects
            .iter()
            .filter(matches)
            .map(|(_, object)| object)
            .collect();
        let from: usize = request.parameter("continue").parse().unwrap_or(0);
        let limit = request
            .parameter("limit")
            .parse()
            .ok()
            .filter(|limit: &usize| *limit > 0);
        let to = limit.map_or(all.len(), |limit| from.saturating_add(limit).min(all.len()));
        let mut metadata = json!({"resourceVersion": self.version.to_string()});
        if to < all.len() {
            metadata["continue"] = json!(to.to_string());
            // Not with a selector: a server does not count what follows the page then.
            if request.parameter("labelSelector").is_empty() {
                metadata["remainingItemCount"] = json!(all.len() - to);
            }
        }
        let items = all.get(from..to).unwrap_or_default();
        // A server writes an empty list of metadata as null.
        let items = if items.is_empty() && wants_metadata(request) {
            Value::Null
        } else {
            json!(items)
        };
        Answer(
            200,
            json!({"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": items}),
        )
    }

    fn create(&mut self, target: &Target, object: &Value, dry_run: bool) -> Answer {
        let mut object = object.clone();
        let text = |at: &str| {
            object
                .pointer(at)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let next = self.version + 1;
        let mut name = text("/metadata/name");
        if name.is_empty() {
            name = format!("{}{next}", text("/metadata/generateName"));
        }
        let path = format!("{}/{name}", target.path);
        if self.objects.contains_key(&path) {
            return target.refuse(409, "AlreadyExists", &name);
        }
        let metadata = &mut object["metadata"];
        metadata["name"] = json!(name);
        if let Some(namespace) = &target.namespace {
            metadata["namespace"] = json!(namespace);
        }
        metadata["uid"] = json!(format!("uid-{next}"));
        metadata["creationTimestamp"] = json!(NOW);
        if target.plural == "customresourcedefinitions" {
            object["status"] = json!({"conditions": [{"type": "Established", "status": "True"}]});
        }
        Answer(
            201,
            if dry_run {
                object
            } else {
                self.store(&path, object)
            },
        )
    }

    fn replace(&mut self, target: &Target, name: &str, object: &Value) -> Answer {
        let Some(old) = self.objects.get(&target.path) else {
            // A PUT can create a Lease, so one with the uid of a deleted Lease is a conflict; no
            // other kind can be created this way.
            return match target.plural.as_str() {
                "leases" => target.refuse(409, "Conflict", name),
                _ => target.refuse(404, "NotFound", name),
            };
        };
        let same = |field: &str| old["metadata"][field] == object["metadata"][field];
        if !same("resourceVersion") || !same("uid") {
            return target.refuse(409, "Conflict", name);
        }
        let new = if target.subresource.is_some() {
            let mut new = old.clone();
            new["status"] = object["status"].clone();
            new
        } else {
            object.clone()
        };
        Answer(200, self.write(target, new))
    }

    /// A JSON merge patch (RFC 7386), or a list of JSON patches (RFC 6902); in the first,
    /// `resourceVersion` and `uid` are conditions.
    fn patch(&mut self, target: &Target, name: &str, patch: &Value) -> Answer {
        let Some(old) = self.objects.get(&target.path) else {
            return target.refuse(404, "NotFound", name);
        };
        if !meets(old, &patch["metadata"]) {
            return target.refuse(409, "Conflict", name);
        }
        let mut new = old.clone();
        if patch.is_array() {
            let operations: Result<json_patch::Patch, _> = serde_json::from_value(patch.clone());
            if !operations.is_ok_and(|operations| json_patch::patch(&mut new, &operations).is_ok())
            {
                return target.refuse(422, "Invalid", name);
            }
        } else {
            json_patch::merge(&mut new, patch);
        }
        if target.subresource.is_some() {
            let status = new["status"].take();
            new = old.clone();
            new["status"] = status;
        }
        Answer(200, self.write(target, new))
    }

    /// Stores a written object; one that is being deleted is removed with its last finalizer.
    fn write(&mut self, target: &Target, object: Value) -> Value {
        let ends = !object["metadata"]["deletionTimestamp"].is_null() && !has_finalizers(&object);
        let object = self.store(&target.path, object);
        if ends {
            self.remove(&target.path);
        }
        object
    }

    /// Deletes an object that meets the preconditions; one with finalizers is only marked.
    fn delete(&mut self, target: &Target, name: &str, options: &Value) -> Answer {
        let Some(old) = self.objects.get(&target.path) else {
            return target.refuse(404, "NotFound", name);
        };
        if !meets(old, &options["preconditions"]) {
            return target.refuse(409, "Precondition", name);
        }
        if has_finalizers(old) {
            let mut marked = old.clone();
            if marked["metadata"]["deletionTimestamp"].is_null() {
                marked["metadata"]["deletionTimestamp"] = json!(NOW);
            }
            return Answer(200, self.store(&target.path, marked));
        }
        self.remove(&target.path);
        let done = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {"name": name, "kind": target.plural},
        });
        Answer(200, done)
    }
}

/// Whether an object has the requested uid and version, if any are requested.
fn meets(object: &Value, wanted: &Value) -> bool {
    let fields = ["uid", "resourceVersion"];
    fields
        .iter()
        .all(|field| wanted[field].is_null() || wanted[field] == object["metadata"][field])
}

fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|all| !all.is_empty())
}
