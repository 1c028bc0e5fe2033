//! Requests of tests to the API server: with default parameters, JSON objects, and deadlines for
//! waits.

use std::{fmt::Debug, time::Duration};

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::wait::{Probe, eventually, when};

/// The field manager of everything that the kit applies.
pub(crate) const MANAGER: &str = "backup-tests";

/// The resource of a kind, whose plural is the regular one.
pub fn resource(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// Objects of a kind in a namespace; without one, cluster-scoped objects or the objects of all
/// namespaces.
pub fn objects(
    client: &Client,
    namespace: Option<&str>,
    api_version: &str,
    kind: &str,
) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => objects_in(client, namespace, api_version, kind),
        None => all_objects(client, api_version, kind),
    }
}

pub fn objects_in(
    client: &Client,
    namespace: &str,
    api_version: &str,
    kind: &str,
) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource(api_version, kind))
}

/// Objects of a cluster-scoped kind, or of all namespaces.
pub fn all_objects(client: &Client, api_version: &str, kind: &str) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &resource(api_version, kind))
}

/// Parameters of a creation that stores nothing (dry run).
pub fn dry_run() -> PostParams {
    PostParams {
        dry_run: true,
        ..PostParams::default()
    }
}

/// Requests that tests send by an [`Api`].
#[allow(async_fn_in_trait, reason = "no caller needs a future that is Send")]
pub trait ApiExt<K: Clone + Debug + Serialize + DeserializeOwned> {
    fn api(&self) -> &Api<K>;

    async fn create_object(&self, object: &K) -> kube::Result<K> {
        self.api().create(&PostParams::default(), object).await
    }

    async fn create_json(&self, object: Value) -> kube::Result<K> {
        self.create_object(&serde_json::from_value(object).map_err(kube::Error::SerdeError)?)
            .await
    }

    async fn replace_object(&self, name: &str, object: &K) -> kube::Result<K> {
        self.api()
            .replace(name, &PostParams::default(), object)
            .await
    }

    /// Server-side apply that takes over fields of other managers.
    async fn apply_object(&self, name: &str, object: &(impl Serialize + Debug)) -> kube::Result<K> {
        self.api()
            .patch(
                name,
                &PatchParams::apply(MANAGER).force(),
                &Patch::Apply(object),
            )
            .await
    }

    async fn merge_patch(&self, name: &str, patch: Value) -> kube::Result<K> {
        self.api()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
    }

    /// A merge patch that stores nothing (dry run).
    async fn dry_patch(&self, name: &str, patch: Value) -> kube::Result<K> {
        let params = PatchParams {
            dry_run: true,
            ..PatchParams::default()
        };
        self.api().patch(name, &params, &Patch::Merge(patch)).await
    }

    async fn merge_patch_status(&self, name: &str, status: Value) -> kube::Result<K> {
        let patch = Patch::Merge(json!({ "status": status }));
        self.api()
            .patch_status(name, &PatchParams::default(), &patch)
            .await
    }

    async fn delete_object(&self, name: &str) -> kube::Result<()> {
        self.api()
            .delete(name, &DeleteParams::default())
            .await
            .map(drop)
    }

    /// Deletes an object whatever finalizers it has.
    async fn delete_at_once(&self, name: &str) -> kube::Result<()> {
        self.merge_patch(name, json!({ "metadata": { "finalizers": null } }))
            .await?;
        self.delete_object(name).await
    }

    async fn list_all(&self) -> kube::Result<Vec<K>> {
        Ok(self.api().list(&ListParams::default()).await?.items)
    }

    async fn names(&self) -> kube::Result<Vec<String>>
    where
        K: ResourceExt,
    {
        let all = self.list_all().await?;
        Ok(all.iter().map(ResourceExt::name_any).collect())
    }

    async fn exists(&self, name: &str) -> kube::Result<bool> {
        Ok(self.api().get_metadata_opt(name).await?.is_some())
    }

    async fn wait_gone(&self, name: &str, deadline: Duration) -> anyhow::Result<()> {
        eventually(&format!("{name} is gone"), deadline, async || {
            let left = self.api().get_opt(name).await?;
            Ok::<_, kube::Error>(when(
                left.is_none(),
                left.map(|left| state(&left)).unwrap_or_default(),
            ))
        })
        .await
    }

    /// Waits until an object exists and fulfils a condition. The error has its last annotations and
    /// status.
    async fn wait_until(
        &self,
        name: &str,
        what: &str,
        deadline: Duration,
        is_so: impl Fn(&K) -> bool,
    ) -> anyhow::Result<K> {
        eventually(&format!("{name} {what}"), deadline, async || {
            let object = self.api().get(name).await?;
            let seen = state(&object);
            Ok::<_, kube::Error>(if is_so(&object) {
                Probe::Ready(object)
            } else {
                Probe::NotYet(seen)
            })
        })
        .await
    }
}

impl<K: Clone + Debug + Serialize + DeserializeOwned> ApiExt<K> for Api<K> {
    fn api(&self) -> &Self {
        self
    }
}

/// The parts of an object that explain why a wait failed.
fn state(object: &impl Serialize) -> String {
    let object = serde_json::to_value(object).unwrap_or_default();
    format!(
        "status {}, annotations {}",
        object["status"], object["metadata"]["annotations"]
    )
}

/// Creates objects with several requests at a time, which share two cores with the API server.
pub async fn create_all(
    client: &Client,
    objects: impl IntoIterator<Item = Value>,
) -> anyhow::Result<()> {
    const CONNECTIONS: usize = 16;
    let creations = stream::iter(objects).map(|object| create(client, object));
    creations.buffer_unordered(CONNECTIONS).try_collect().await
}

/// Creates an object. Retries when a connection breaks; the object may then exist already.
async fn create(client: &Client, object: Value) -> anyhow::Result<()> {
    const TRIES: usize = 5;
    let object: DynamicObject = serde_json::from_value(object)?;
    let types = object.types.as_ref().context("no kind")?;
    let api = objects(
        client,
        object.metadata.namespace.as_deref(),
        &types.api_version,
        &types.kind,
    );
    let mut broken = 0;
    loop {
        match api.create_object(&object).await {
            Err(kube::Error::HyperError(_) | kube::Error::Service(_)) if broken < TRIES => {
                broken += 1;
            }
            Err(kube::Error::Api(status)) if broken > 0 && status.code == 409 => return Ok(()),
            created => return Ok(created.map(drop)?),
        }
    }
}
