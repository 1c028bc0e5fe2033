//! Conditional writes with retries: a total budget, small capped steps, jitter.

use std::{fmt::Debug, time::Duration};

use backup_client::{
    errors::{is_conflict, is_final, is_gone, plain},
    retry::{BACKOFF, timed},
};
use backup_core::api::NamespacedKind;
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    Cluster,
    leader::{Leadership, NotLeader},
};

/// Timeout for one attempt of a write. Further limited by the remaining time of the lease.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(15);

/// Outcome of a conditional write without an error.
#[derive(Clone, Debug, PartialEq)]
pub enum PatchOutcome<K> {
    /// The object includes the patch. This is its current state.
    Written(K),
    /// The object no longer exists, or another one has its name.
    Gone,
    /// The object has changed so that the patch no longer applies. Read it and decide again.
    Stale,
}

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
    /// The API server refuses it permanently.
    #[error("writing {kind} {name} was refused: {}", plain(.source))]
    Refused {
        kind: String,
        name: String,
        source: Box<kube::Error>,
    },
    #[error(
        "writing {kind} {name} failed {tries} times within {waited:?}; it is tried again later: {}", plain(.source)
    )]
    Exhausted {
        kind: String,
        name: String,
        tries: u32,
        waited: Duration,
        source: Box<kube::Error>,
    },
}

impl WriteError {
    pub fn category(&self) -> &'static str {
        match self {
            Self::NotLeader(_) => "not_leader",
            Self::Refused { .. } => "refused",
            Self::Exhausted { .. } => "exhausted",
        }
    }
}

/// Writes the status (or labels, annotations, finalizers) of an object of the installation by a
/// JSON merge patch, with retries within the cluster's budget. Velero's kinds have no status
/// subresource, so the main object is patched.
///
/// `patch` is called with the last known state of the object, first with `object`, and returns the
/// patch; `None`: it no longer applies. Every attempt carries the `metadata.resourceVersion` of the
/// object passed to `patch` (added here): if that is outdated, the object is read again and `patch`
/// called again. A write whose answer was lost counts as written if it turns out to be stored.
/// Errors: see [`WriteError`]. If the last answer was lost, the object may have been written
/// despite the error.
pub async fn status_patch<K: NamespacedKind>(
    cluster: &Cluster,
    object: &K,
    patch: impl Fn(&K) -> Option<Value> + Send + Sync,
) -> Result<PatchOutcome<K>, WriteError> {
    status_patch_in(
        &cluster.api(),
        &cluster.leadership,
        cluster.patch_budget,
        object,
        patch,
    )
    .await
}

/// Like [`status_patch`], for any kind, with any budget (zero is one attempt).
pub async fn status_patch_in<K>(
    api: &Api<K>,
    leadership: &Leadership,
    budget: Duration,
    object: &K,
    patch: impl Fn(&K) -> Option<Value> + Send + Sync,
) -> Result<PatchOutcome<K>, WriteError>
where
    K: Resource + Serialize + DeserializeOwned + Clone + Debug + Send + Sync,
{
    patch_until(api, leadership, budget, object, &patch).await
}

/// Compiled once for each kind, and not for each patch.
async fn patch_until<K>(
    api: &Api<K>,
    leadership: &Leadership,
    budget: Duration,
    object: &K,
    patch: &(dyn Fn(&K) -> Option<Value> + Send + Sync),
) -> Result<PatchOutcome<K>, WriteError>
where
    K: Resource + Serialize + DeserializeOwned + Clone + Debug + Send + Sync,
{
    let started = Instant::now();
    let kind = kind_of::<K>();
    let name = object.name_any();
    let uid = object.uid();
    let mut current = object.clone();
    let mut read_again = false;
    let mut perhaps_stored: Option<Value> = None;
    let mut tries = 0;
    loop {
        leadership.check()?;
        let result = if read_again {
            timed(WRITE_TIMEOUT, api.get(&name)).await.map(|read| {
                current = read;
                read_again = false;
            })
        } else {
            Ok(())
        };
        let error = match result {
            Err(error) if is_gone(&error, &name) => return Ok(PatchOutcome::Gone),
            Err(error) => error,
            Ok(()) => {
                if current.uid() != uid {
                    return Ok(PatchOutcome::Gone);
                }
                if perhaps_stored
                    .take_if(|sent| carries(&current, sent))
                    .is_some()
                {
                    return Ok(PatchOutcome::Written(current));
                }
                let Some(mut body) = patch(&current) else {
                    return Ok(PatchOutcome::Stale);
                };
                require_version(&mut body, current.resource_version());
                let params = PatchParams::default();
                let merge = Patch::Merge(&body);
                match leadership
                    .write(WRITE_TIMEOUT, api.patch(&name, &params, &merge))
                    .await
                {
                    Ok(written) => return Ok(PatchOutcome::Written(written)),
                    Err(error) if is_gone(&error, &name) => return Ok(PatchOutcome::Gone),
                    Err(error) => {
                        if is_final(&error) {
                            return Err(WriteError::Refused {
                                kind,
                                name,
                                source: Box::new(error),
                            });
                        }
                        if !is_conflict(&error) {
                            perhaps_stored = Some(body);
                        }
                        read_again = true;
                        error
                    }
                }
            }
        };
        tries += 1;
        let waited = started.elapsed();
        if waited >= budget {
            return Err(WriteError::Exhausted {
                kind,
                name,
                tries,
                waited,
                source: Box::new(error),
            });
        }
        tracing::debug!(name, tries, error = plain(&error), "write is tried again");
        if tries == 1 && is_conflict(&error) {
            // The object was outdated, and the server is not overloaded: retry without a delay.
            continue;
        }
        // The last attempt is made when the budget ends, not before.
        tokio::time::sleep(BACKOFF.delay(tries).min(budget.saturating_sub(waited))).await;
    }
}

fn require_version(patch: &mut Value, version: Option<String>) {
    if let (Some(patch), Some(version)) = (patch.as_object_mut(), version) {
        let metadata = patch.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("resourceVersion".to_owned(), Value::String(version));
        }
    }
}

/// The kind, from the name of the Rust type: the API server's messages name the kinds of dynamic
/// types.
fn kind_of<K>() -> String {
    std::any::type_name::<K>()
        .rsplit("::")
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// Whether an object equals the result of a merge patch, apart from the precondition.
fn carries<K: Serialize>(object: &K, patch: &Value) -> bool {
    let mut wanted = patch.clone();
    if let Some(metadata) = wanted.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
    serde_json::to_value(object).is_ok_and(|object| contains(&object, &wanted))
}

fn contains(object: &Value, patch: &Value) -> bool {
    match patch {
        Value::Object(fields) => fields.iter().all(|(name, wanted)| match object.get(name) {
            Some(found) => contains(found, wanted),
            None => is_empty(wanted),
        }),
        other => object == other || (is_empty(object) && is_empty(other)),
    }
}

/// Values that Go's `omitempty` omits, and `null`, which deletes.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_f64() == Some(0.0),
        Value::String(value) => value.is_empty(),
        Value::Array(value) => value.is_empty(),
        Value::Object(value) => value.values().all(is_empty),
    }
}

#[cfg(test)]
mod tests;
