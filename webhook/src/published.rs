//! Publishes the profiles and the policy in force for users: `kubectl backup` reads them instead of
//! guessing.

use std::{collections::BTreeMap, time::Duration};

use backup_client::errors::plain;
use backup_core::{
    labels::{EXCLUDE_FROM_BACKUP, PART_OF},
    profile::published::{CONFIG_MAP, KEY, PublishedProfiles},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};

/// Interval between two checks. During a rollout an old replica with other flags may have written
/// last.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);
/// The same after a failed check.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Keeps the published state up to date with this replica, for ever.
pub(crate) async fn keep(client: Client, namespace: String, profiles: PublishedProfiles) {
    let api = Api::namespaced(client, &namespace);
    loop {
        let pause = match put(&api, &profiles).await {
            Ok(()) => CHECK_INTERVAL,
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(
                    error,
                    "which profiles there are is not published; trying again"
                );
                RETRY_INTERVAL
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Creates the ConfigMap, or replaces it with the resourceVersion that was read.
async fn put(api: &Api<ConfigMap>, profiles: &PublishedProfiles) -> anyhow::Result<()> {
    let text = serde_json::to_string(profiles)?;
    let data = Some(BTreeMap::from([(KEY.to_owned(), text)]));
    let stored = api
        .get_opt(CONFIG_MAP)
        .await
        .map_err(|error| failure(&error))?;
    let written = if let Some(stored) = stored {
        if stored.data == data {
            return Ok(());
        }
        api.replace(
            CONFIG_MAP,
            &PostParams::default(),
            &ConfigMap { data, ..stored },
        )
        .await
    } else {
        let labels = [(PART_OF, "backup"), (EXCLUDE_FROM_BACKUP, "true")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let metadata = ObjectMeta {
            name: Some(CONFIG_MAP.to_owned()),
            labels: Some(labels.into()),
            ..ObjectMeta::default()
        };
        api.create(
            &PostParams::default(),
            &ConfigMap {
                metadata,
                data,
                ..ConfigMap::default()
            },
        )
        .await
    };
    written.map(drop).map_err(|error| failure(&error))
}

fn failure(error: &kube::Error) -> anyhow::Error {
    anyhow::anyhow!("ConfigMap {CONFIG_MAP}: {}", plain(error))
}
