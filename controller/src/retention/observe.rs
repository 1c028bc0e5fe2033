//! What is known about a backup whose time is over. All freshly read.

use backup_core::{
    api::{Backup, DeleteBackupRequest},
    labels, names,
};
use backup_runtime::errors::found;
use kube::{Api, ResourceExt as _, api::ListParams, core::DeserializeGuard};

use super::decide::{Facts, Failure};
use crate::{
    context::Context,
    location::{LocationError, is_available, is_read_only},
};

pub(super) async fn backup(ctx: &Context, name: &str) -> Result<Option<Backup>, kube::Error> {
    let api: Api<Backup> = ctx.cluster.api();
    found(api.get(name).await, name)
}

pub(super) async fn facts(ctx: &Context, backup: &Backup) -> Result<Facts, kube::Error> {
    let (name, uid) = (backup.name_any(), backup.uid().unwrap_or_default());
    let selector =
        format!("{}={},{}={uid}", labels::BACKUP_NAME, labels::valid_value(&name), labels::BACKUP_UID);
    let api: Api<DeserializeGuard<DeleteBackupRequest>> = ctx.cluster.api();
    let list = api.list(&ListParams::default().labels(&selector)).await?;
    let requests = list.items.into_iter().filter_map(|guard| guard.0.ok()).collect();
    Ok(Facts { failure: failure(ctx, backup).await, requests, ours: ours(backup) })
}

/// The name of the request that is made here: the same each time, so that two replicas make one.
pub(super) fn ours(backup: &Backup) -> String {
    names::derived("expired", &backup.name_any(), &[&backup.uid().unwrap_or_default()])
}

async fn failure(ctx: &Context, backup: &Backup) -> Option<Failure> {
    if !backup.status.validation_errors.is_empty() {
        return None; // it was refused, and never wrote anything
    }
    let location = match backup.spec.storage_location.as_ref().filter(|name| !name.is_empty()) {
        Some(name) => ctx.locations.get(name).await,
        None => match ctx.locations.default_location().await {
            Ok(name) => ctx.locations.get(&name).await,
            Err(error) => Err(error),
        },
    };
    match location {
        Err(LocationError::NotFound { .. } | LocationError::NoDefault { .. }) => Some(Failure::NotFound),
        Err(error) => {
            tracing::info!(backup = backup.name_any(), %error, "an expired backup stays");
            Some(Failure::CannotGet)
        }
        Ok(location) if is_read_only(&location) => Some(Failure::ReadOnly),
        Ok(location) if !is_available(&location) => Some(Failure::Unavailable),
        Ok(_) => None,
    }
}
