//! VolumeSnapshotLocations, in which plugins take snapshots of volumes: chooses the locations of a
//! backup (`choice`), and opens one with its Secret and its plugin.

pub(crate) mod choice;
pub(crate) mod zone;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use backup_client::{
    errors::{found, may_be_read_later, plain},
    retry,
};
use backup_core::{api::VolumeSnapshotLocation, snapshot::VolumeSnapshot, text::listed};
use backup_plugins::{
    Host, PluginLog, PluginNames,
    configured::{Credentials, Settings},
    snapshotter::VolumeSnapshotter,
};
use backup_runtime::{Cluster, leader::NotLeader, list};
use backup_store::plugin_of;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt as _};

use choice::SnapshotCandidates;

const RETRY_BUDGET: Duration = Duration::from_secs(30);
/// The Secret of locations without their own credential, if it exists, and its key (Velero `velero
/// install`).
const DEFAULT_SECRET: (&str, &str) = ("cloud-credentials", "cloud");
/// The setting in which plugins get their credentials (Velero
/// `internal/volume/snapshotlocation.go`, v1.18).
const CREDENTIALS_FILE: &str = "credentialsFile";

#[derive(Debug, thiserror::Error)]
pub(crate) enum SnapshotLocationError {
    #[error(
        "VolumeSnapshotLocation {0} does not exist: create it again, with the settings that it had"
    )]
    NotFound(String),
    #[error("VolumeSnapshotLocation {location} could not be read: {}", plain(.source))]
    Api {
        location: String,
        source: kube::Error,
    },
    #[error(
        "VolumeSnapshotLocation {location}: Secret {secret} has no key {key}, or does not exist: correct spec.credential"
    )]
    NoSecret {
        location: String,
        secret: String,
        key: String,
    },
    #[error(
        "VolumeSnapshotLocation {0}: spec.config[{CREDENTIALS_FILE}] cannot be honoured, and is not silently ignored: name a Secret \
         in spec.credential"
    )]
    CredentialsFile(String),
    #[error("{reason}")]
    NoPlugin {
        /// A sentence that names location and plugin.
        reason: String,
        /// Whether a binary that cannot be asked now may provide it.
        may_come: bool,
    },
}

impl SnapshotLocationError {
    /// Whether a retry may succeed without a change.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Api { source, .. } => may_be_read_later(source),
            Self::NoPlugin { may_come, .. } => *may_come,
            Self::NotFound(_) | Self::NoSecret { .. } | Self::CredentialsFile(_) => false,
        }
    }
}

/// Opens VolumeSnapshotLocations. Cheap to clone.
#[derive(Clone)]
pub(crate) struct SnapshotLocations {
    pub(crate) cluster: Cluster,
    pub(crate) plugins: Host,
}

impl SnapshotLocations {
    /// The locations and plugins for a backup's choice. Plugins are only asked if there are
    /// locations.
    pub(crate) async fn candidates(&self) -> Result<SnapshotCandidates, kube::Error> {
        // A location that cannot be decoded counts as missing.
        let locations = list::raw::<VolumeSnapshotLocation, VolumeSnapshotLocation>(
            &self.cluster,
            "",
            |object| list::decode(&object).ok(),
        )
        .await;
        let locations = match locations {
            Ok(locations) => locations,
            // The definition is not installed.
            Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
            Err(error) => return Err(error),
        };
        if locations.is_empty() {
            return Ok(SnapshotCandidates::default());
        }
        let PluginNames {
            names: plugins,
            problems,
        } = self.plugins.volume_snapshotters().await;
        Ok(SnapshotCandidates {
            locations,
            plugins,
            problems,
        })
    }

    /// Opens a location: returns the object that takes and deletes its snapshots, with the current
    /// credentials from its Secret. Does not call the plugin, which logs to `log`, or to the log of
    /// this process without one.
    pub(crate) async fn open(
        &self,
        name: &str,
        log: Option<&PluginLog>,
    ) -> Result<Arc<dyn VolumeSnapshotter>, SnapshotLocationError> {
        let api = self.cluster.api::<VolumeSnapshotLocation>();
        let location = match found(retry::read(RETRY_BUDGET, || api.get(name)).await, name) {
            Ok(Some(location)) => location,
            Ok(None) => return Err(SnapshotLocationError::NotFound(name.to_owned())),
            Err(source) => {
                return Err(SnapshotLocationError::Api {
                    location: name.to_owned(),
                    source,
                });
            }
        };
        let config = settings(&location)?;
        let settings = Settings {
            config,
            credentials: self.credentials(&location).await?,
        };
        let plugin = plugin_of(&location.spec.provider);
        let snapshotter = self
            .plugins
            .volume_snapshotter(&plugin, settings, log)
            .await;
        snapshotter.map_err(|problems| SnapshotLocationError::NoPlugin {
            reason: choice::missing_plugin(name, &plugin, &problems),
            may_come: !problems.is_empty(),
        })
    }

    async fn credentials(
        &self,
        location: &VolumeSnapshotLocation,
    ) -> Result<Option<Credentials>, SnapshotLocationError> {
        let own = location.spec.credential.as_ref();
        let (name, key) = own.map_or(DEFAULT_SECRET, |reference| {
            (reference.name.as_str(), reference.key.as_str())
        });
        let api: Api<Secret> = self.cluster.api();
        let secret =
            found(retry::read(RETRY_BUDGET, || api.get(name)).await, name).map_err(|source| {
                SnapshotLocationError::Api {
                    location: location.name_any(),
                    source,
                }
            })?;
        let text = secret.and_then(|secret| secret.data?.remove(key));
        match (text, own) {
            (Some(text), Some(_)) => Ok(Some(Credentials::Own(text.0))),
            (Some(text), None) => Ok(Some(Credentials::Default(text.0))),
            (None, Some(reference)) if reference.optional != Some(true) => {
                Err(SnapshotLocationError::NoSecret {
                    location: location.name_any(),
                    secret: name.to_owned(),
                    key: key.to_owned(),
                })
            }
            (None, _) => Ok(None),
        }
    }

    /// Deletes snapshots in the storage system; one attempt for each. May be repeated. Returns
    /// messages about those that remain.
    pub(crate) async fn delete(
        &self,
        snapshots: &[VolumeSnapshot],
    ) -> Result<Vec<String>, NotLeader> {
        let mut by_location: BTreeMap<&str, Vec<&VolumeSnapshot>> = BTreeMap::new();
        for snapshot in snapshots
            .iter()
            .filter(|one| !one.status.provider_snapshot_id.is_empty())
        {
            by_location
                .entry(&snapshot.spec.location)
                .or_default()
                .push(snapshot);
        }
        let mut problems = Vec::new();
        for (location, snapshots) in by_location {
            let snapshotter = match self.open(location, None).await {
                Ok(snapshotter) => snapshotter,
                Err(error) => {
                    problems.push(not_deleted(&snapshots, &error));
                    continue;
                }
            };
            for snapshot in snapshots {
                self.cluster.leadership.check()?;
                let id = &snapshot.status.provider_snapshot_id;
                if let Err(error) = snapshotter.delete(id).await {
                    problems.push(format!(
                        "snapshot {id} of PersistentVolume {} stays in VolumeSnapshotLocation {location}: {error}",
                        snapshot.spec.persistent_volume_name
                    ));
                }
            }
        }
        Ok(problems)
    }
}

/// The settings for the plugin of a location. A location must not choose a file of this pod: the
/// plugin gets the file with the Secret's credentials as `credentialsFile`.
pub(crate) fn settings(
    location: &VolumeSnapshotLocation,
) -> Result<BTreeMap<String, String>, SnapshotLocationError> {
    let mut config = location.spec.config.clone();
    let file = config.remove(CREDENTIALS_FILE).unwrap_or_default();
    if file.is_empty() {
        Ok(config)
    } else {
        Err(SnapshotLocationError::CredentialsFile(location.name_any()))
    }
}

fn not_deleted(snapshots: &[&VolumeSnapshot], error: &SnapshotLocationError) -> String {
    const MAX_SHOWN: usize = 5;
    let ids = snapshots
        .iter()
        .take(MAX_SHOWN)
        .map(|one| one.status.provider_snapshot_id.as_str());
    let shown = listed(&ids.collect::<Vec<_>>(), snapshots.len());
    format!("snapshots {shown} stay in the storage system: {error}")
}

#[cfg(test)]
mod tests {
    use backup_core::api::volume_snapshot_location::VolumeSnapshotLocationSpec;

    use super::*;

    #[test]
    fn each_setting_is_told_to_the_plugin_or_refused() {
        let location = |key: Option<&str>| {
            let config = key
                .map(|key| (key.to_owned(), "other".to_owned()))
                .into_iter()
                .collect();
            VolumeSnapshotLocation::new(
                "l",
                VolumeSnapshotLocationSpec {
                    config,
                    ..Default::default()
                },
            )
        };
        let keys = ["region", "profile", "resourceGroup", CREDENTIALS_FILE];
        backup_testkit::assert_each_key_counts(keys, &[], |key| {
            settings(&location(key)).map(|config| format!("{config:?}"))
        });
        let refused = settings(&location(Some(CREDENTIALS_FILE)))
            .unwrap_err()
            .to_string();
        assert_says!(refused, "name a Secret in spec.credential");
        let mut empty = location(None);
        empty
            .spec
            .config
            .insert(CREDENTIALS_FILE.to_owned(), String::new());
        assert_eq!(settings(&empty).unwrap(), BTreeMap::new());
    }
}
