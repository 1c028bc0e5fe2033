//! An API server with snapshots, and a driver that does what a test says.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use axum::{
    Json, Router,
    body::Bytes,
    http::{Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use backup_core::api::Backup;
use kube::Client;
use serde_json::{Value, json};

use super::SnapshotApi;
use crate::runtime::leader::Leadership;

pub const GROUP: &str = "/apis/snapshot.storage.k8s.io/v1";

/// Changes what is stored before each request is served.
type Driver = dyn Fn(&mut BTreeMap<String, Value>) + Send + Sync;

/// The API server.
#[derive(Clone)]
pub struct Fake {
    pub objects: Arc<Mutex<BTreeMap<String, Value>>>,
    pub log: Arc<Mutex<Vec<String>>>,
    driver: Arc<Driver>,
}

impl Fake {
    /// With a CSI volume `pv-csi`, another one `pv-other`, and a class.
    pub fn new(driver: impl Fn(&mut BTreeMap<String, Value>) + Send + Sync + 'static) -> Self {
        let volume = |name: &str, source: Value| {
            let mut volume = json!({ "metadata": { "name": name }, "spec": source });
            volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
            (format!("/api/v1/persistentvolumes/{name}"), volume)
        };
        let class = json!({ "metadata": { "name": "fast" }, "driver": "disk.example.com" });
        let objects = [
            volume("pv-csi", json!({ "csi": { "driver": "disk.example.com" } })),
            volume("pv-other", json!({ "hostPath": { "path": "/" } })),
            (format!("{GROUP}/volumesnapshotclasses/fast"), class),
        ];
        Self { objects: Arc::new(Mutex::new(objects.into())), log: Arc::default(), driver: Arc::new(driver) }
    }

    pub fn client(&self) -> Client {
        let fake = self.clone();
        Client::new(
            Router::new().fallback(move |method: Method, uri: Uri, body: Bytes| {
                let fake = fake.clone();
                async move { fake.answer(&method, &uri, &body) }
            }),
            "velero",
        )
    }

    pub fn api(&self) -> SnapshotApi {
        SnapshotApi::new(&self.client(), &Leadership::always())
    }

    /// How many requests there were that begin so.
    pub fn asked(&self, line: &str) -> usize {
        self.log.lock().unwrap().iter().filter(|other| other.starts_with(line)).count()
    }

    /// The only object below a path.
    pub fn only(&self, path: &str) -> Option<Value> {
        let objects = self.objects.lock().unwrap();
        let mut found = objects.iter().filter(|(at, _)| at.starts_with(path)).map(|(_, object)| object);
        let first = found.next().cloned();
        assert!(found.next().is_none(), "more than one at {path}");
        first
    }

    fn answer(&self, method: &Method, uri: &Uri, body: &[u8]) -> Response {
        let path = uri.path().to_owned();
        self.log.lock().unwrap().push(format!("{method} {path}"));
        let sent: Value = serde_json::from_slice(body).unwrap_or_default();
        let mut objects = self.objects.lock().unwrap();
        (self.driver)(&mut objects);
        let not_found = || refusal(404, &path);
        match method.as_str() {
            "GET" if path.ends_with("volumesnapshotclasses") || path.ends_with("volumesnapshots") => {
                let plural = path.rsplit('/').next().unwrap();
                let items: Vec<&Value> = objects
                    .iter()
                    .filter(|(at, _)| at.contains(&format!("/{plural}/")))
                    .map(|(_, object)| object)
                    .collect();
                Json(json!({ "metadata": {}, "items": items })).into_response()
            }
            "GET" => objects.get(&path).map_or_else(not_found, |object| Json(object).into_response()),
            "POST" => {
                let at = format!("{path}/{}", sent["metadata"]["name"].as_str().unwrap());
                if objects.contains_key(&at) {
                    return refusal(409, &at);
                }
                let mut object = sent;
                object["metadata"]["uid"] = json!(format!("uid-{}", objects.len()));
                object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
                objects.insert(at, object.clone());
                Json(object).into_response()
            }
            "PATCH" => {
                let Some(object) = objects.get_mut(&path) else { return not_found() };
                json_patch::merge(object, &sent);
                Json(object.clone()).into_response()
            }
            "DELETE" => objects.remove(&path).map_or_else(not_found, |object| Json(object).into_response()),
            _ => refusal(405, &path),
        }
    }
}

/// A driver that binds every snapshot to a content of its own, with this status.
pub fn binds(status: Value) -> impl Fn(&mut BTreeMap<String, Value>) + Send + Sync {
    move |objects| {
        let new: Vec<(String, Value)> = objects
            .iter()
            .filter(|(at, object)| at.contains("/volumesnapshots/") && object["status"].is_null())
            .map(|(at, object)| (at.clone(), object.clone()))
            .collect();
        for (at, mut snapshot) in new {
            let name = format!("content-{}", snapshot["metadata"]["uid"].as_str().unwrap());
            let content = json!({
                "metadata": { "name": name, "uid": format!("uid-of-{name}") },
                "spec": { "deletionPolicy": "Delete", "driver": "disk.example.com" }, "status": status,
            });
            snapshot["status"] = json!({
                "boundVolumeSnapshotContentName": name, "readyToUse": status["readyToUse"],
                "creationTime": "2026-01-01T00:00:01Z",
            });
            objects.insert(format!("{GROUP}/volumesnapshotcontents/{name}"), content);
            objects.insert(at, snapshot);
        }
    }
}

/// A bound claim.
pub fn claim(volume: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "data", "namespace": "shop", "uid": "uid-claim", "labels": { "app": "db" } },
        "spec": { "volumeName": volume, "resources": { "requests": { "storage": "1Gi" } } },
        "status": { "phase": "Bound" },
    })
}

/// A running backup `b`.
pub fn backup(phase: &str) -> Backup {
    serde_json::from_value(json!({
        "metadata": { "name": "b", "namespace": "velero", "uid": "uid-b" },
        "spec": { "csiSnapshotTimeout": "30s" }, "status": { "phase": phase },
    }))
    .unwrap()
}

fn refusal(code: u16, path: &str) -> Response {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "reason": if code == 404 { "NotFound" } else { "AlreadyExists" }, "message": "by the test",
        "details": { "name": path.rsplit('/').next() },
    });
    (StatusCode::from_u16(code).unwrap(), Json(body)).into_response()
}
