//! A claim, its volume, the pods that mount it, and the claims of its group.

use std::collections::BTreeMap;

use async_trait::async_trait;
use backup_client::page::Listing;
use backup_core::{
    api::Backup,
    resources::{CLAIMS, PODS, VOLUMES},
};
use kube::{Client, core::PartialObjectMeta};
use serde_json::Value;
use tokio::sync::Mutex;

use super::{action::ItemBlockAction, list::for_each, pod::related_items};
use crate::{ActionError, ItemId, action::BuiltInAction, json::text};

/// Running pods of one namespace by the claims that they mount.
type Mounts = BTreeMap<String, Vec<String>>;

/// `velero.io/pvc`, on bound PersistentVolumeClaims (Velero `pkg/itemblock/actions/pvc_action.go`,
/// v1.18).
pub(crate) struct ClaimBlock {
    client: Client,
    /// Claims are processed namespace by namespace, so only the last namespace is cached.
    mounts: Mutex<Option<(String, Result<Mounts, String>)>>,
}

impl ClaimBlock {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            mounts: Mutex::default(),
        }
    }

    async fn of(&self, claim: &Value, backup: &Backup) -> Result<Vec<ItemId>, String> {
        let namespace = text(claim, "/metadata/namespace");
        let name = text(claim, "/metadata/name");
        let (Some(namespace), Some(name)) = (namespace, name) else {
            return Ok(Vec::new());
        };
        let volume = text(claim, "/spec/volumeName");
        let phase = text(claim, "/status/phase");
        let (Some(volume), Some("Bound")) = (volume, phase) else {
            return Ok(Vec::new());
        };
        let mut related = vec![ItemId::new(VOLUMES, None, volume)];
        related.extend(
            self.pods(namespace, name)
                .await?
                .into_iter()
                .map(|pod| ItemId::new(PODS, Some(namespace), &pod)),
        );
        let key = backup
            .spec
            .volume_group_snapshot_label_key
            .as_deref()
            .filter(|key| !key.is_empty());
        let group =
            key.and_then(|key| Some((key, claim["metadata"]["labels"].get(key)?.as_str()?)));
        if let Some((key, value)) = group.filter(|(_, value)| !value.is_empty()) {
            let all = Listing::v1("", "PersistentVolumeClaim", CLAIMS, Some(namespace));
            let listing = Listing {
                selector: format!("{key}={value}"),
                ..all
            };
            let mut others = Vec::new();
            for_each(&self.client, listing, |other| {
                let other: PartialObjectMeta = serde_json::from_str(other)?;
                others.extend(other.metadata.name);
                Ok(())
            })
            .await
            .map_err(|reason| format!("the claims of its group could not be listed: {reason}"))?;
            related.extend(
                others
                    .into_iter()
                    .filter(|other| other != name)
                    .map(|other| ItemId::new(CLAIMS, Some(namespace), &other)),
            );
        }
        Ok(related)
    }

    /// Running pods that mount a claim. A failed list is not retried for each claim: it was retried
    /// already.
    async fn pods(&self, namespace: &str, claim: &str) -> Result<Vec<String>, String> {
        let mut known = self.mounts.lock().await;
        if known.as_ref().is_none_or(|(of, _)| of != namespace) {
            *known = Some((namespace.to_owned(), self.mounts(namespace).await));
        }
        match known.as_ref().map(|(_, mounts)| mounts) {
            Some(Ok(mounts)) => Ok(mounts.get(claim).cloned().unwrap_or_default()),
            Some(Err(reason)) => Err(format!(
                "the pods that mount it could not be listed: {reason}"
            )),
            None => Ok(Vec::new()),
        }
    }

    async fn mounts(&self, namespace: &str) -> Result<Mounts, String> {
        let mut mounts = Mounts::new();
        for_each(
            &self.client,
            Listing::v1("", "Pod", "pods", Some(namespace)),
            |pod| {
                let mut pod: Value = serde_json::from_str(pod)?;
                if text(&pod, "/status/phase") != Some("Running") {
                    return Ok(());
                }
                // A list may omit it from its items.
                pod["metadata"]["namespace"] = Value::from(namespace);
                let name = text(&pod, "/metadata/name").unwrap_or_default();
                for claim in related_items(&pod)
                    .into_iter()
                    .filter(|id| id.group_resource == CLAIMS)
                {
                    let pods = mounts.entry(claim.name).or_default();
                    if pods.last().is_none_or(|last| last != name) {
                        pods.push(name.to_owned());
                    }
                }
                Ok(())
            },
        )
        .await?;
        Ok(mounts)
    }
}

impl BuiltInAction for ClaimBlock {
    const NAME: &'static str = "velero.io/pvc";
    const RESOURCE: &'static str = CLAIMS;
}

#[async_trait]
impl ItemBlockAction for ClaimBlock {
    async fn related(&self, item: &Value, backup: &Backup) -> Result<Vec<ItemId>, ActionError> {
        let related = self.of(item, backup).await;
        related.map_err(|reason| ActionError::Retryable {
            action: Self::NAME.to_owned(),
            reason,
        })
    }
}

#[cfg(test)]
mod tests {
    use backup_testkit::{FakeApi, Fault};
    use serde_json::json;

    use super::*;

    const PODS: &str = "/api/v1/namespaces/a/pods";

    fn claim(name: &str, labels: &Value) -> Value {
        json!({ "metadata": { "name": name, "namespace": "a", "labels": labels },
            "spec": { "volumeName": format!("pv-{name}") }, "status": { "phase": "Bound" } })
    }

    fn pod(name: &str, phase: &str, claims: &[&str]) -> Value {
        let volumes: Vec<_> = claims
            .iter()
            .map(|claim| json!({ "name": claim, "persistentVolumeClaim": { "claimName": claim } }))
            .collect();
        json!({ "metadata": { "name": name }, "spec": { "volumes": volumes }, "status": { "phase": phase } })
    }

    async fn names(
        block: &ClaimBlock,
        claim: &Value,
        group: Option<&str>,
    ) -> Result<Vec<String>, String> {
        let mut backup = Backup::default();
        backup.spec.volume_group_snapshot_label_key = group.map(str::to_owned);
        let related = block.of(claim, &backup).await?;
        Ok(related
            .into_iter()
            .map(|id| format!("{}/{}", id.group_resource, id.name))
            .collect())
    }

    #[tokio::test]
    async fn a_claim_belongs_with_its_volume_and_the_running_pods_that_mount_it_listed_once() {
        let api = FakeApi::new();
        for (name, phase, claims) in [
            ("one", "Running", ["data", "data"]),
            ("two", "Running", ["other", "data"]),
            ("ended", "Succeeded", ["data", "data"]),
        ] {
            api.put(&format!("{PODS}/{name}"), pod(name, phase, &claims));
        }
        let block = ClaimBlock::new(api.client());
        let data = names(&block, &claim("data", &json!({})), None)
            .await
            .unwrap();
        assert_eq!(data, ["persistentvolumes/pv-data", "pods/one", "pods/two"]);
        let other = names(&block, &claim("other", &json!({})), Some("group"))
            .await
            .unwrap();
        assert_eq!(other, ["persistentvolumes/pv-other", "pods/two"]);
        assert_eq!(api.log(), [format!("GET {PODS}")]);
        let mut pending = claim("data", &json!({}));
        pending["status"]["phase"] = json!("Pending");
        assert!(names(&block, &pending, None).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn claims_of_a_group_belong_together() {
        let label = json!({ "group": "db" });
        let api = FakeApi::new();
        for (name, label) in [
            ("data", &label),
            ("log", &label),
            ("other", &json!({ "group": "x" })),
        ] {
            let path = format!("/api/v1/namespaces/a/persistentvolumeclaims/{name}");
            api.put(&path, claim(name, label));
        }
        let block = ClaimBlock::new(api.client());
        let related = names(&block, &claim("data", &label), Some("group"))
            .await
            .unwrap();
        assert_eq!(
            related,
            ["persistentvolumes/pv-data", "persistentvolumeclaims/log"]
        );
    }

    #[tokio::test]
    async fn a_list_that_is_refused_is_an_error_of_each_claim_and_is_not_repeated() {
        let api = FakeApi::new();
        api.fault(|_, _| Some(Fault::refuse(403, "Forbidden", "forbidden")));
        let block = ClaimBlock::new(api.client());
        for name in ["data", "other"] {
            let error = names(&block, &claim(name, &json!({})), None)
                .await
                .unwrap_err();
            assert_says!(error, "forbidden");
        }
        assert_eq!(api.log().len(), 1);
    }
}
