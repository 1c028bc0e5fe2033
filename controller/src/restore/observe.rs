//! Reads everything that a Restore depends on, without caches.

use std::time::Duration;

use backup_actions::restore::{ActionConfigs, ConfigMapData, modifiers};
use backup_client::{
    errors::{found, may_be_read_later, plain},
    retry,
};
use backup_core::{
    api::{Backup, BackupStorageLocation, Restore, RestorePhase, common::LocalReference},
    labels::{READ_FROM_ANNOTATION, annotation},
    names::is_object_name,
    resources::VersionPriorities,
    restorability::{Evidence, Place},
};
use backup_runtime::list;
use backup_store::FoundJob;
use k8s_openapi::{
    api::core::v1::ConfigMap,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt as _,
    core::{DeserializeGuard, DynamicObject},
};

use super::validate::{self, DefaultModifier, Facts};
use crate::{
    config_maps,
    job::{JobContext, worker::WorkerError},
    location::{LocationError, is_available},
};

const READ_BUDGET: Duration = Duration::from_secs(10);

/// The error for something that could not be read.
fn unread(what: &str, error: &kube::Error) -> WorkerError {
    let reason = format!("{what} could not be read: {}", plain(error));
    WorkerError::Blocked {
        reason,
        retryable: may_be_read_later(error),
    }
}

/// A Backup that cannot be decoded counts as missing; the backup controller reports it to users. An
/// invalid name counts as missing, too, as the API server would be asked for something else.
async fn read_backup(ctx: &JobContext, name: &str) -> Result<Option<Backup>, WorkerError> {
    if !is_object_name(name) {
        return Ok(None);
    }
    let api = ctx.cluster.api::<DeserializeGuard<Backup>>();
    let read = found(retry::read(READ_BUDGET, || api.get(name)).await, name);
    let read = read.map_err(|error| unread(&format!("Backup {name:?}"), &error))?;
    Ok(read.and_then(|backup| backup.0.ok()))
}

/// `default_modifier` is the ConfigMap with modifiers for restores that name none.
pub(crate) async fn facts(
    ctx: &JobContext,
    restore: &Restore,
    default_modifier: Option<&str>,
) -> Result<Facts, WorkerError> {
    let backup = match (
        validate::non_empty(restore.spec.backup_name.as_ref()),
        validate::non_empty(restore.spec.schedule_name.as_ref()),
    ) {
        (Some(name), _) => read_backup(ctx, name).await?,
        (None, Some(schedule)) => {
            // Keep only the fields that decide the choice: there may be many large Backups.
            let started = list::raw::<Backup, _>(&ctx.cluster, "", |object| {
                validate::started_for(schedule, &list::decode(&object).ok()?)
            })
            .await
            .map_err(|error| unread("the list of Backups", &error))?;
            match started.into_iter().max() {
                Some((_, newest)) => read_backup(ctx, &newest).await?,
                None => None,
            }
        }
        (None, None) => None,
    };
    let location = location(ctx, restore, backup.as_ref()).await?;
    let modifier = config_maps::data(&ctx.cluster, restore.spec.resource_modifier.as_ref())
        .await
        .map_err(|error| unread("the ConfigMap of spec.resourceModifier", &error))?;
    let default_modifier =
        default_modifier.filter(|_| validate::follows_default_modifier(&restore.spec));
    let default_modifier = match default_modifier {
        Some(name) => {
            let data = config_maps::data(&ctx.cluster, Some(&config_maps::reference(name))).await;
            let data = data.map_err(|error| {
                unread(&format!("the ConfigMap of {}", modifiers::DEFAULT), &error)
            })?;
            Some(DefaultModifier {
                name: name.to_owned(),
                data,
            })
        }
        None => None,
    };
    let policy = config_maps::data(&ctx.cluster, restore.spec.resource_policy.as_ref())
        .await
        .map_err(|error| unread("the ConfigMap of spec.resourcePolicy", &error))?;
    let action_configs =
        list::raw::<ConfigMap, _>(&ctx.cluster, ActionConfigs::SELECTOR, |object| {
            config_map(&object)
        })
        .await
        .map_err(|error| unread("the list of ConfigMaps that configure actions", &error))?;
    Ok(Facts {
        backup,
        location,
        modifier,
        default_modifier,
        policy,
        action_configs,
        version_priorities: None,
    })
}

/// The location that the backup is read from. A restore that has begun stays with its location;
/// another takes the backup's own, or where that cannot be read, that of the first copy that can.
async fn location(
    ctx: &JobContext,
    restore: &Restore,
    backup: Option<&Backup>,
) -> Result<Option<BackupStorageLocation>, WorkerError> {
    let is_new = restore.phase() == RestorePhase::New;
    if let Some(chosen) = annotation(restore, READ_FROM_ANNOTATION).filter(|_| !is_new) {
        return find_location(ctx, chosen).await;
    }
    let Some(backup) = backup else {
        return Ok(None);
    };
    let own = match backup.spec.storage_location.as_deref() {
        Some(name) => find_location(ctx, name).await?,
        None => None,
    };
    if !is_new || backup.complete_copies().next().is_none() {
        return Ok(own);
    }
    if let Some(place) = &own
        && Evidence::of(backup).is_read_from(&Place::of(place))
        && !has_lost_files(ctx, backup, place).await
    {
        return Ok(own);
    }
    for copy in backup.complete_copies() {
        let location = find_location(ctx, &copy.location).await?;
        let readable = location.filter(is_available);
        if readable.is_some() {
            return Ok(readable);
        }
    }
    Ok(own)
}

/// Whether the files of a backup are not in its own location, which no comparison may have found
/// yet. A store that does not answer is asked again by the restore.
async fn has_lost_files(ctx: &JobContext, backup: &Backup, own: &BackupStorageLocation) -> bool {
    let name = backup.name_any();
    let uid = backup.uid().unwrap_or_default();
    let found = async {
        let store = ctx.locations.store(own).await.ok()?;
        store.find_job::<Backup>(&name, &uid).await.ok()
    };
    let found = tokio::time::timeout(READ_BUDGET, Box::pin(found)).await;
    matches!(found, Ok(Some(FoundJob::Nothing)))
}

async fn find_location(
    ctx: &JobContext,
    name: &str,
) -> Result<Option<BackupStorageLocation>, WorkerError> {
    match ctx.locations.get(name).await {
        Ok(location) => Ok(Some(location)),
        Err(LocationError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether the definitions of Backups or of their locations were deleted. Reads the definitions,
/// because an API server that has just started may not serve kinds that are defined.
pub(super) async fn definitions_are_gone(ctx: &JobContext) -> bool {
    let api: Api<CustomResourceDefinition> = Api::all(ctx.cluster.client.clone());
    for name in ["backups.velero.io", "backupstoragelocations.velero.io"] {
        if matches!(
            found(
                retry::read(READ_BUDGET, || api.get_metadata(name)).await,
                name
            ),
            Ok(None)
        ) {
            return true;
        }
    }
    false
}

/// The versions that users prefer; empty if there is no ConfigMap.
pub(super) async fn version_priorities(ctx: &JobContext) -> Result<VersionPriorities, WorkerError> {
    let name = VersionPriorities::CONFIG_MAP.to_owned();
    let reference = LocalReference {
        name,
        ..LocalReference::default()
    };
    let data = config_maps::data(&ctx.cluster, Some(&reference))
        .await
        .map_err(|error| unread(&format!("ConfigMap {}", reference.name), &error))?;
    Ok(VersionPriorities::read(&data.unwrap_or_default()))
}

fn config_map(object: &DynamicObject) -> Option<ConfigMapData> {
    let map: ConfigMap = list::decode(object).ok()?;
    Some(ConfigMapData {
        name: map.name_any(),
        labels: map.metadata.labels.unwrap_or_default(),
        data: map.data.unwrap_or_default(),
    })
}
