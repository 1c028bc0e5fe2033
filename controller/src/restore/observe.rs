//! Fresh reads of what a Restore depends on.

use std::time::Duration;

use backup_core::api::{Backup, Restore};
use backup_runtime::{
    errors::{found, is_transient, plain},
    list, retry,
};
use kube::api::{Api, ApiResource, DynamicObject};

use super::validate::{self, Facts};
use crate::{
    job::{JobContext, worker::WorkerError},
    location::LocationError,
};

const BUDGET: Duration = Duration::from_secs(10);

/// Something could not be read; what it is stays unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ObserveError {
    #[error("{what} could not be read: {}", plain(.source))]
    Api { what: String, source: kube::Error },
    #[error(transparent)]
    Location(LocationError),
}

impl From<ObserveError> for WorkerError {
    fn from(error: ObserveError) -> Self {
        let retryable = match &error {
            ObserveError::Api { source, .. } => is_transient(source),
            ObserveError::Location(error) => error.is_transient(),
        };
        Self::Blocked { reason: error.to_string(), retryable }
    }
}

async fn read_raw<K>(ctx: &JobContext, name: &str) -> Result<Option<DynamicObject>, ObserveError>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    let kind = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(ctx.cluster.client.clone(), &ctx.cluster.namespace, &kind);
    let read = found(retry::read(BUDGET, || api.get(name)).await, name);
    read.map_err(|source| ObserveError::Api { what: format!("{} {name:?}", kind.kind), source })
}

fn decode(object: DynamicObject) -> Option<Backup> {
    // One that can not be decoded counts as missing; the backup controller reports it where people look.
    serde_json::to_value(object).and_then(serde_json::from_value).ok()
}

pub(crate) async fn facts(ctx: &JobContext, restore: &Restore) -> Result<Facts, ObserveError> {
    let named = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
    let backup = match (named(&restore.spec.backup_name), named(&restore.spec.schedule_name)) {
        (Some(name), _) => read_raw::<Backup>(ctx, &name).await?.and_then(decode),
        (None, Some(schedule)) => {
            // Of each only what it is chosen by: there may be many, and large ones.
            let started = |object| validate::started_for(&schedule, &decode(object)?);
            let started = list::raw::<Backup, _>(&ctx.cluster, "", started)
                .await
                .map_err(|source| ObserveError::Api { what: "the list of Backups".to_owned(), source })?;
            match started.into_iter().max() {
                Some((_, newest)) => read_raw::<Backup>(ctx, &newest).await?.and_then(decode),
                None => None,
            }
        }
        (None, None) => None,
    };
    let location = match backup.as_ref().and_then(|b| b.spec.storage_location.as_deref()) {
        None => None,
        Some(name) => match ctx.locations.get(name).await {
            Ok(location) => Some(location),
            Err(LocationError::NotFound { .. }) => None,
            Err(error) => return Err(ObserveError::Location(error)),
        },
    };
    Ok(Facts { backup, location })
}
