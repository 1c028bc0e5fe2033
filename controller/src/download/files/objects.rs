//! Backups, Restores and Schedules themselves, for users who may not read all of them. Whether the
//! author of a request may see what it names was decided when the request was created.

use std::collections::BTreeMap;

use axum::{body::Body, response::Response};
use backup_client::errors::plain;
use backup_core::{
    api::{Backup, DownloadRequest, NamespacedKind, Restore, RestoreSpec, Schedule},
    reading::{ObjectQuery, QueriedKind, QueriedObjects},
    stored_scope,
};
use backup_lock::Footprint;
use backup_runtime::{Cluster, list};
use http::{
    StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};
use jiff::Timestamp;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, ObjectMeta},
};
use serde_json::json;

use super::{HttpError, MAX_LISTS, Server, not_allowed, too_many, use_up};

/// Kinds that are about namespaces.
trait OfNamespaces: NamespacedKind {
    /// Whether the object reads or writes nothing outside of these namespaces.
    fn is_within(&self, namespaces: &Footprint) -> bool;
}

impl OfNamespaces for Backup {
    fn is_within(&self, namespaces: &Footprint) -> bool {
        namespaces.covers(&Footprint::of_backup(&stored_scope::scope(self)))
    }
}

impl OfNamespaces for Schedule {
    fn is_within(&self, namespaces: &Footprint) -> bool {
        namespaces.covers(&Footprint::of_backup(&self.spec.template))
    }
}

impl OfNamespaces for Restore {
    fn is_within(&self, namespaces: &Footprint) -> bool {
        let written = stored_scope::scope(self).into_owned();
        let read = RestoreSpec {
            namespace_mapping: BTreeMap::new(),
            ..written.clone()
        };
        [written, read]
            .iter()
            .all(|spec| namespaces.covers(&Footprint::of_restore(spec, None)))
    }
}

/// Uses the request up, and answers it with a list.
pub(super) async fn answer(
    server: &Server,
    request: DownloadRequest,
    query: ObjectQuery,
) -> Result<Response, HttpError> {
    let _permit = server
        .lists
        .try_acquire()
        .map_err(|_| too_many(MAX_LISTS, "lists are being made"))?;
    let cluster = &server.controller.ctx.cluster;
    let asked_at = created(&request.metadata);
    let items = match query.kind {
        QueriedKind::Backup => found::<Backup>(cluster, &query.of, asked_at).await,
        QueriedKind::Restore => found::<Restore>(cluster, &query.of, asked_at).await,
        QueriedKind::Schedule => found::<Schedule>(cluster, &query.of, asked_at).await,
    };
    let items = items.map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, plain(&error)))?;
    match use_up(&server.controller, &request).await {
        Ok(true) => {}
        Ok(false) => return Err(not_allowed()),
        Err(error) => return Err((StatusCode::SERVICE_UNAVAILABLE, plain(&error))),
    }
    tracing::info!(
        request = request.metadata.name,
        kind = %query.kind,
        objects = items.len(),
        "objects are read"
    );
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    let response = Response::builder()
        .header(CACHE_CONTROL, "no-store")
        .header(CONTENT_TYPE, "application/json")
        .body(Body::from(list.to_string()));
    response.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

fn created(metadata: &ObjectMeta) -> Option<Timestamp> {
    metadata.creation_timestamp.as_ref().map(|time| time.0)
}

/// The objects that are asked for, without managed fields. An object that cannot be decoded is in no
/// list, as it is not known what it is about.
async fn found<K: OfNamespaces>(
    cluster: &Cluster,
    of: &QueriedObjects,
    asked_at: Option<Timestamp>,
) -> Result<Vec<DynamicObject>, kube::Error> {
    let api: Api<DynamicObject> = Api::namespaced_with(
        cluster.client.clone(),
        &cluster.namespace,
        &ApiResource::erase::<K>(&()),
    );
    let names = match of {
        QueriedObjects::Namespaces(names) => names,
        QueriedObjects::Name(name) => {
            // The one that was judged was there before the request; another may have its name now.
            let object = api.get_opt(name).await?.filter(|object| {
                created(&object.metadata)
                    .zip(asked_at)
                    .is_some_and(|(created, asked_at)| created <= asked_at)
            });
            return Ok(object.map(without_managed_fields).into_iter().collect());
        }
    };
    let namespaces = Footprint::namespaces(names.iter().cloned());
    // Too many names would count as everything.
    if namespaces.names().is_none() {
        return Ok(Vec::new());
    }
    list::raw::<K, _>(cluster, "", |object| {
        let object = without_managed_fields(object);
        let typed = list::decode::<K>(&object).ok()?;
        typed.is_within(&namespaces).then_some(object)
    })
    .await
}

fn without_managed_fields(mut object: DynamicObject) -> DynamicObject {
    object.metadata.managed_fields = None;
    object
}

#[cfg(test)]
mod tests {
    use backup_core::labels::STORED_SCOPE_ANNOTATION;
    use backup_testkit::{FakeApi, velero_path};
    use kube::ResourceExt as _;
    use serde_json::Value;

    use super::*;
    use crate::testing;

    fn put(api: &FakeApi, kind: &str, name: &str, spec: &Value) {
        api.put_velero(kind, name, name, "Completed", spec);
    }

    async fn names<K: OfNamespaces>(api: &FakeApi, namespaces: &[&str]) -> Vec<String> {
        let of =
            QueriedObjects::Namespaces(namespaces.iter().map(|&name| name.to_owned()).collect());
        let found = found::<K>(&testing::cluster(api.client()), &of, None)
            .await
            .unwrap();
        found.iter().map(DynamicObject::name_any).collect()
    }

    #[tokio::test]
    async fn a_list_holds_what_is_about_these_namespaces_and_nothing_else() {
        let api = FakeApi::new();
        let of = |names: Value| json!({ "includedNamespaces": names });
        for (name, spec) in [
            ("a-mine", of(json!(["shop"]))),
            ("b-both", of(json!(["shop", "web"]))),
            ("c-more", of(json!(["shop", "prod"]))),
            ("d-glob", of(json!(["shop*"]))),
            ("e-all", json!({})),
            ("f-but", json!({ "excludedNamespaces": ["prod"] })),
            (
                "g-cluster",
                json!({ "includedNamespaces": ["shop"], "includeClusterResources": true }),
            ),
            ("h-unreadable", of(json!("shop"))),
        ] {
            put(&api, "Backup", name, &spec);
            let schedule = json!({ "schedule": "@daily", "template": spec });
            put(&api, "Schedule", name, &schedule);
        }
        assert_eq!(names::<Backup>(&api, &["shop"]).await, ["a-mine"]);
        assert_eq!(names::<Schedule>(&api, &["shop"]).await, ["a-mine"]);
        let both = names::<Backup>(&api, &["shop", "web"]).await;
        assert_eq!(both, ["a-mine", "b-both"]);
        let many: Vec<String> = (0..101).map(|number| format!("n{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(names::<Backup>(&api, &many).await.is_empty());
    }

    #[tokio::test]
    async fn a_restore_is_about_what_it_reads_and_what_it_writes() {
        let api = FakeApi::new();
        let mapped = |from: &str, to: &str| json!({ "backupName": "b", "includedNamespaces": [from], "namespaceMapping": { from: to } });
        for (name, spec) in [
            (
                "a-mine",
                json!({ "backupName": "b", "includedNamespaces": ["shop"] }),
            ),
            ("b-into", mapped("prod", "shop")),
            ("c-from", mapped("shop", "prod")),
            ("d-inside", mapped("shop", "web")),
            ("e-all", json!({ "backupName": "b" })),
        ] {
            put(&api, "Restore", name, &spec);
        }
        assert_eq!(names::<Restore>(&api, &["shop"]).await, ["a-mine"]);
        let both = names::<Restore>(&api, &["shop", "web"]).await;
        assert_eq!(both, ["a-mine", "d-inside"]);
    }

    #[tokio::test]
    async fn an_edited_spec_does_not_change_what_a_backup_is_about() {
        let api = FakeApi::new();
        put(
            &api,
            "Backup",
            "edited",
            &json!({ "includedNamespaces": ["shop"] }),
        );
        api.edit(&velero_path("Backup", "edited"), |backup| {
            let scope = json!({ "includedNamespaces": ["prod"] }).to_string();
            backup["metadata"]["annotations"] = json!({ STORED_SCOPE_ANNOTATION: scope });
        });
        assert!(names::<Backup>(&api, &["shop"]).await.is_empty());
        assert_eq!(names::<Backup>(&api, &["prod"]).await, ["edited"]);
    }

    #[tokio::test]
    async fn an_object_that_came_after_the_request_is_not_given() {
        let api = FakeApi::new();
        // Created at 09:00 on that day.
        put(&api, "Backup", "b", &json!({}));
        let cluster = testing::cluster(api.client());
        for (name, asked_at, count) in [
            ("b", Some("2026-11-21T09:00:00Z"), 1),
            ("b", Some("2026-11-21T08:59:59Z"), 0),
            ("b", None, 0),
            ("gone", Some("2026-11-21T09:00:00Z"), 0),
        ] {
            let of = QueriedObjects::Name(name.to_owned());
            let asked_at = asked_at.map(|time| time.parse().unwrap());
            let found = found::<Backup>(&cluster, &of, asked_at).await.unwrap();
            assert_eq!(found.len(), count, "{name} {asked_at:?}");
        }
    }
}
