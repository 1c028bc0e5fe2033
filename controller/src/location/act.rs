//! Validating a location and publishing what was found.

use std::time::Duration;

use backup_core::{
    api::{BackupStorageLocation, LocationPhase},
    bucket::Facts,
    labels::BUCKET_ANNOTATION,
};
use backup_runtime::{
    errors::plain,
    retry::{self, PatchOutcome, WriteError},
};
use backup_store::StoreError;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{LocationError, decide::Last, is_read_only, observe, secrets::Used};
use crate::context::Context;

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

/// Validates the location as it was read and writes phase, message and time, provided its spec is still the same. `note` is
/// told which Secrets were read, before anything is asked of the store.
pub(super) async fn validate(
    ctx: &Context,
    location: &BackupStorageLocation,
    before: Option<&Last>,
    closely: bool,
    note: &(dyn Fn(&Used) + Send + Sync),
) -> Result<Last, Error> {
    let name = location.name_any();
    let mut used = Used::new();
    let began = observe::now();
    let found = match tokio::time::timeout(DEADLINE, check(ctx, location, closely, &mut used, note)).await {
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
        closely: before.filter(|_| !closely).map_or(began, |before| before.closely),
        secrets: used,
    };
    let (facts, message) = match found {
        Ok(facts) => (facts, None),
        Err(error) => (None, Some(shortened(&error.to_string()))),
    };
    // What was known of another bucket is not true of this one.
    let outdated = before.is_some_and(|before| before.spec != location.spec);
    let annotation = match &facts {
        Some(facts) => Some(json!(facts.annotation())),
        None => outdated.then_some(Value::Null),
    };
    publish(ctx, location, message.as_deref(), annotation).await?;
    if let Some(facts) = &facts {
        tell(ctx, location, facts);
    }
    ctx.metrics.location(&name, last.available);
    Ok(last)
}

/// What is known of the bucket, if it is looked at closely.
async fn check(
    ctx: &Context,
    location: &BackupStorageLocation,
    closely: bool,
    used: &mut Used,
    note: &(dyn Fn(&Used) + Send + Sync),
) -> Result<Option<Facts>, LocationError> {
    let store = ctx.locations.store_noting(location, used).await;
    note(used);
    let (store, name) = (store?, location.name_any());
    let failed = |source| LocationError::Store { name: name.clone(), source };
    store.check().await.map_err(failed)?;
    if !closely {
        return Ok(None);
    }
    store.probe(!is_read_only(location)).await.map(Some).map_err(failed)
}

/// `annotation` is what is known of the bucket from now on, if that may have changed.
async fn publish(
    ctx: &Context,
    location: &BackupStorageLocation,
    message: Option<&str>,
    annotation: Option<Value>,
) -> Result<(), Error> {
    let phase = if message.is_none() { LocationPhase::Available } else { LocationPhase::Unavailable };
    let time = Time(jiff::Timestamp::now());
    // Conditional on the resourceVersion; what was found is about this spec and no other.
    let outcome = retry::status_patch(&ctx.cluster, location, |current| {
        (current.spec == location.spec).then(|| {
            let status = json!({"phase": phase, "message": message, "lastValidationTime": time});
            let mut patch = json!({"status": status});
            if let Some(annotation) = &annotation {
                patch["metadata"]["annotations"][BUCKET_ANNOTATION] = annotation.clone();
            }
            patch
        })
    })
    .await?;
    match outcome {
        PatchOutcome::Gone => return Ok(()),
        PatchOutcome::Stale => return Err(Error::Changed(location.name_any())),
        PatchOutcome::Written(_) => {}
    }
    if location.status.phase.as_ref() != Some(&phase) {
        match message {
            Some(message) => ctx.cluster.events.warning(location, "Unavailable", message),
            None => ctx.cluster.events.normal(location, "Available", "backups can be stored here"),
        }
        tracing::info!(location = location.name_any(), %phase, reason = message, "location changed");
    }
    Ok(())
}

/// What a person may not expect of the bucket, when it is found first.
fn tell(ctx: &Context, location: &BackupStorageLocation, now: &Facts) {
    let before = Facts::read(location.annotations().get(BUCKET_ANNOTATION).map(String::as_str));
    let before = before.unwrap_or_default();
    if let Some(why) = now.not_removable.as_ref().filter(|why| before.not_removable.as_ref() != Some(why)) {
        let note = format!(
            "backups can be stored here, but not deleted: {why}. What has expired stays until that is granted"
        );
        ctx.cluster.events.warning(location, "NotRemovable", &note);
    }
    if let Some(lock) = now.lock.as_ref().filter(|lock| lock.enabled && before.lock.as_ref() != Some(lock)) {
        let note = format!(
            "object lock of the bucket is {lock}: what is locked stays until then, also if it is deleted"
        );
        ctx.cluster.events.normal(location, "ObjectLock", &note);
    }
}

fn shortened(message: &str) -> String {
    match message.char_indices().nth(MESSAGE_CHARS) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    }
}
