//! Namespaces with objects in them.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::{Api, api::ListParams};
use serde_json::{Value, json};

use super::World;
use crate::{
    api::{ApiExt as _, create_all},
    install::ensure_namespace,
};

impl World {
    /// Creates a namespace with `count` ConfigMaps.
    pub async fn config_maps(&self, namespace: &str, count: usize) -> anyhow::Result<()> {
        let data =
            |number: usize| json!({ "number": number.to_string(), "filling": "x".repeat(500) });
        self.items(namespace, count, data).await
    }

    /// Creates a namespace with `count` ConfigMaps of half a MiB that do not compress well.
    pub async fn noise(&self, namespace: &str, count: usize) -> anyhow::Result<()> {
        // The same text for all: it is longer than the window of the compression.
        let mut state: u64 = 1;
        let text: String = (0..512 * 1024)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                char::from(b'!' + u8::try_from((state >> 58) & 63).unwrap_or_default())
            })
            .map(|c| if c == '"' || c == '\\' { '~' } else { c })
            .collect();
        self.items(namespace, count, |_| json!({ "noise": text }))
            .await
    }

    async fn items(
        &self,
        namespace: &str,
        count: usize,
        data: impl Fn(usize) -> Value,
    ) -> anyhow::Result<()> {
        ensure_namespace(&self.client, namespace).await?;
        let objects = (0..count).map(|number| {
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": data(number),
                "metadata": { "name": format!("item-{number}"), "namespace": namespace } })
        });
        create_all(&self.client, objects).await
    }

    /// Number of ConfigMaps in a namespace.
    pub async fn count_config_maps(&self, namespace: &str) -> anyhow::Result<usize> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        Ok(api.list_metadata(&ListParams::default()).await?.items.len())
    }

    /// Waits for the service account that every namespace gets.
    pub async fn service_account(&self, namespace: &str) -> anyhow::Result<()> {
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        api.wait_until("default", "exists", Duration::from_secs(30), |_| true)
            .await
            .map(drop)
    }

    /// Deletes a namespace, and waits until it is gone.
    pub async fn delete_namespace(&self, name: &str) -> anyhow::Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces.delete_object(name).await?;
        namespaces.wait_gone(name, Duration::from_mins(2)).await
    }
}
