//! Validating a location and publishing what was found.

use std::time::Duration;

use backup_core::api::{BackupStorageLocation, LocationPhase};
use backup_store::StoreError;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::json;

use super::{LocationError, decide::Last, observe};
use crate::{
    context::Context,
    runtime::{
        errors::plain,
        retry::{self, Outcome, WriteError},
    },
};

/// A store that has not answered by then is unavailable.
const DEADLINE: Duration = Duration::from_mins(1);
/// Messages are for people; a store's answer can be a page.
const MESSAGE_CHARS: usize = 1000;

/// Why a location could not be looked after. That it can not be used is no error but its status.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("reading the BackupStorageLocation: {}", plain(.0))]
    Read(#[from] kube::Error),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("BackupStorageLocation {0} changed while it was validated; it is validated again")]
    Changed(String),
}

/// Validates the location as it was read and writes phase, message and time, provided its spec is still the same.
pub(super) async fn validate(ctx: &Context, location: &BackupStorageLocation) -> Result<Last, Error> {
    let name = location.name_any();
    let found = match tokio::time::timeout(DEADLINE, check(ctx, location)).await {
        Ok(found) => found,
        Err(_) => Err(LocationError::Store {
            name: name.clone(),
            source: StoreError::Unreachable {
                action: "list".to_owned(),
                url: location.spec.object_storage.bucket.clone(),
                detail: format!("no answer within {DEADLINE:?}; check the address and the network"),
            },
        }),
    };
    let last = Last {
        uid: location.metadata.uid.clone(),
        spec: location.spec.clone(),
        at: observe::now(),
        available: found.is_ok(),
    };
    let message = found.err().map(|error| shortened(&error.to_string()));
    publish(ctx, location, message.as_deref()).await?;
    ctx.metrics.location(&name, last.available);
    Ok(last)
}

async fn check(ctx: &Context, location: &BackupStorageLocation) -> Result<(), LocationError> {
    let store = ctx.locations.store(location).await?;
    store.check().await.map_err(|source| LocationError::Store { name: location.name_any(), source })
}

async fn publish(
    ctx: &Context,
    location: &BackupStorageLocation,
    message: Option<&str>,
) -> Result<(), Error> {
    let phase = if message.is_none() { LocationPhase::Available } else { LocationPhase::Unavailable };
    let time = Time(jiff::Timestamp::now());
    // Conditional on the resourceVersion; what was found is about this spec and no other.
    let outcome = retry::status_patch(ctx, location, |current| {
        (current.spec == location.spec)
            .then(|| json!({"status": {"phase": phase, "message": message, "lastValidationTime": time}}))
    })
    .await?;
    match outcome {
        Outcome::Gone => return Ok(()),
        Outcome::Stale => return Err(Error::Changed(location.name_any())),
        Outcome::Written(_) => {}
    }
    if location.status.phase.as_ref() != Some(&phase) {
        match message {
            Some(message) => ctx.events.warning(location, "Unavailable", message),
            None => ctx.events.normal(location, "Available", "backups can be stored here"),
        }
        tracing::info!(location = location.name_any(), %phase, reason = message, "location changed");
    }
    Ok(())
}

fn shortened(message: &str) -> String {
    match message.char_indices().nth(MESSAGE_CHARS) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    }
}
