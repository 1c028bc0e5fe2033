//! Opening a VolumeSnapshotLocation: the object, its Secret, its plugin.

use std::{sync::Arc, time::Duration};

use backup_core::api::VolumeSnapshotLocation;
use backup_runtime::{
    errors::{is_gone, is_transient, plain},
    list, retry,
};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt as _};

use super::choose::{self, Facts, plugin_of};
use crate::context::Context;
use backup_plugins::{
    PluginLog,
    configured::{Credentials, Settings},
    snapshotter::VolumeSnapshotter,
};

/// How long one read is tried.
const BUDGET: Duration = Duration::from_secs(30);
/// The Secret of locations without a credential of their own, if it exists, and its key (Velero `velero install`).
const DEFAULT_SECRET: (&str, &str) = ("cloud-credentials", "cloud");
/// The setting that plugins find their credentials by (Velero `internal/volume/snapshotlocation.go`, v1.18).
const CREDENTIALS_FILE: &str = "credentialsFile";

/// Why a location can not be used.
#[derive(Debug, thiserror::Error)]
pub enum LocationError {
    /// There is no such object.
    #[error("VolumeSnapshotLocation {0} does not exist: create it again, with the settings that it had")]
    NotFound(String),
    /// The API server could not be asked.
    #[error("VolumeSnapshotLocation {location} could not be read: {}", plain(.source))]
    Api {
        /// The location.
        location: String,
        /// What the API server said.
        source: kube::Error,
    },
    /// Its credentials are not there.
    #[error(
        "VolumeSnapshotLocation {location}: Secret {secret} has no key {key}, or does not exist: correct spec.credential"
    )]
    NoSecret {
        /// The location.
        location: String,
        /// The Secret.
        secret: String,
        /// Its key.
        key: String,
    },
    /// Its plugin is not there.
    #[error("{reason}")]
    NoPlugin {
        /// A sentence that names location and plugin.
        reason: String,
        /// Whether it may be among what could not be asked now.
        may_come: bool,
    },
}

impl LocationError {
    /// Whether it may pass without anyone doing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Api { source, .. } => is_transient(source),
            Self::NoPlugin { may_come, .. } => *may_come,
            Self::NotFound(_) | Self::NoSecret { .. } => false,
        }
    }
}

/// What a backup can choose from. Plugins are only asked for where there are locations.
pub async fn facts(ctx: &Context) -> Result<Facts, kube::Error> {
    // A location that can't be decoded is as if it did not exist.
    let decode = |object| serde_json::from_value(serde_json::to_value(object).ok()?).ok();
    let locations =
        match list::raw::<VolumeSnapshotLocation, VolumeSnapshotLocation>(&ctx.cluster, decode).await {
            Ok(locations) => locations,
            // Its definition is not installed.
            Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
            Err(error) => return Err(error),
        };
    if locations.is_empty() {
        return Ok(Facts::default());
    }
    let (plugins, problems) = ctx.plugins.volume_snapshotters().await;
    Ok(Facts { locations, plugins, problems })
}

/// Who takes and deletes snapshots in a location, with the credentials that are in its Secret now. What the plugin says goes
/// into `log`; without one into ours.
///
/// # Errors
/// See [`LocationError`]; the plugin has been asked nothing yet.
pub async fn open(
    ctx: &Context,
    name: &str,
    log: Option<&PluginLog>,
) -> Result<Arc<dyn VolumeSnapshotter>, LocationError> {
    let api = ctx.cluster.api::<VolumeSnapshotLocation>();
    let location = match retry::read(BUDGET, || api.get(name)).await {
        Ok(location) => location,
        Err(error) if is_gone(&error, name) => return Err(LocationError::NotFound(name.to_owned())),
        Err(source) => return Err(LocationError::Api { location: name.to_owned(), source }),
    };
    let mut config = location.spec.config.clone();
    // Which file is read is not up to who may write a location.
    config.remove(CREDENTIALS_FILE);
    let settings = Settings { config, credentials: credentials(ctx, &location).await? };
    let plugin = plugin_of(&location.spec.provider);
    let found = ctx.plugins.volume_snapshotter(&plugin, settings, log).await;
    found.map_err(|problems| LocationError::NoPlugin {
        reason: choose::missing(name, &plugin, &problems),
        may_come: !problems.is_empty(),
    })
}

/// What the plugin of a location signs in with.
async fn credentials(
    ctx: &Context,
    location: &VolumeSnapshotLocation,
) -> Result<Option<Credentials>, LocationError> {
    let own = location.spec.credential.as_ref();
    let (name, key) =
        own.map_or(DEFAULT_SECRET, |reference| (reference.name.as_str(), reference.key.as_str()));
    let api: Api<Secret> = Api::namespaced(ctx.cluster.client.clone(), &ctx.cluster.namespace);
    let found = match retry::read(BUDGET, || api.get(name)).await {
        Ok(secret) => secret.data.and_then(|mut data| data.remove(key)),
        Err(error) if is_gone(&error, name) => None,
        Err(source) => return Err(LocationError::Api { location: location.name_any(), source }),
    };
    match (found, own) {
        (Some(text), Some(_)) => Ok(Some(Credentials::Own(text.0))),
        (Some(text), None) => Ok(Some(Credentials::Default(text.0))),
        (None, Some(reference)) if reference.optional != Some(true) => Err(LocationError::NoSecret {
            location: location.name_any(),
            secret: name.to_owned(),
            key: key.to_owned(),
        }),
        (None, _) => Ok(None),
    }
}
