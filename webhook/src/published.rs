//! Publishes the profiles and the policy in force for users: `kubectl backup` reads them instead of guessing.

use std::{collections::BTreeMap, time::Duration};

use backup_core::{
    labels::{EXCLUDE_FROM_BACKUP, PART_OF},
    profile::published::{CONFIG_MAP, KEY, PublishedProfiles},
};
use backup_lock::errors::plain;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};

/// Interval between two checks. During a rollout an old replica with other flags may have written last.
const PERIOD: Duration = Duration::from_mins(1);
/// The same after a failed check.
const AGAIN: Duration = Duration::from_secs(5);

/// Keeps the published state up to date with this replica, for ever.
pub(crate) async fn keep(client: Client, namespace: String, profiles: PublishedProfiles) {
    let api = Api::namespaced(client, &namespace);
    loop {
        let pause = match put(&api, &profiles).await {
            Ok(()) => PERIOD,
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(error, "which profiles there are is not published; trying again");
                AGAIN
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Creates the ConfigMap, or replaces it with the resourceVersion that was read.
async fn put(api: &Api<ConfigMap>, profiles: &PublishedProfiles) -> anyhow::Result<()> {
    let text = serde_json::to_string(profiles)?;
    let data = Some(BTreeMap::from([(KEY.to_owned(), text)]));
    let explain = |error: kube::Error| anyhow::anyhow!("ConfigMap {CONFIG_MAP}: {}", plain(&error));
    let written = match api.get_opt(CONFIG_MAP).await.map_err(explain)? {
        Some(there) if there.data == data => return Ok(()),
        Some(there) => api.replace(CONFIG_MAP, &PostParams::default(), &ConfigMap { data, ..there }).await,
        None => {
            let labels = [(PART_OF, "backup"), (EXCLUDE_FROM_BACKUP, "true")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()));
            let metadata = ObjectMeta {
                name: Some(CONFIG_MAP.to_owned()),
                labels: Some(labels.into()),
                ..ObjectMeta::default()
            };
            api.create(&PostParams::default(), &ConfigMap { metadata, data, ..ConfigMap::default() }).await
        }
    };
    written.map(drop).map_err(explain)
}
