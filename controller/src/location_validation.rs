//! Validates BackupStorageLocations: the phase says whether backups can be stored there now, an
//! annotation holds facts about the bucket. Marks one location as the default.

mod decide;
mod default_location;
mod secret_versions;

use std::{collections::HashMap, sync::Arc, time::Duration};

use backup_core::{
    api::{BackupStorageLocation, GoDuration, LocationPhase},
    bucket::Facts,
    event_reason::EventReason,
    labels::{BUCKET_ANNOTATION, annotation},
    text::shortened,
};
use backup_runtime::{
    Cluster,
    clock::Clock,
    health::Health,
    queue::{Action, Key, run_queue},
    retry::{self, PatchOutcome},
    watch,
};
use backup_store::StoreError;
use futures::{StreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    error::ReconcileError,
    location::{LocationError, Locations, UsedSecret, is_read_only},
    metrics::Metrics,
};
use decide::{Plan, Validation};
pub(crate) use secret_versions::SecretVersions;

/// Maximum number of locations that are validated concurrently; one that hangs does not block the
/// others.
const CONCURRENCY: usize = 4;
/// Timeout after which a store is unavailable.
const DEADLINE: Duration = Duration::from_mins(1);
/// Maximum length of a message (characters); a store's answer can be a page.
const MESSAGE_CHARS: usize = 1000;

pub(crate) struct LocationController {
    pub(crate) cluster: Cluster,
    pub(crate) locations: Locations,
    pub(crate) metrics: Arc<Metrics>,
    /// For locations without their own frequency.
    pub(crate) frequency: GoDuration,
    pub(crate) secrets: SecretVersions,
    /// By name. Lost with the process; the next one validates all locations once.
    pub(crate) validations: Mutex<HashMap<String, Validation>>,
}

impl LocationController {
    /// Runs until the process is asked to end.
    pub(crate) async fn run(self, health: Health, stop: CancellationToken) {
        let keys = watch::keys::<BackupStorageLocation>(
            &self.cluster,
            &health,
            "backup storage locations",
        );
        let keys = stream::select(keys.boxed(), self.secrets.watch(&self.cluster).boxed());
        let controller = Arc::new(self);
        run_queue("location", keys, CONCURRENCY, stop, move |key| {
            Arc::clone(&controller).reconcile(key)
        })
        .await;
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Action, ReconcileError> {
        let found = self.locations.find(&key.name).await;
        if let Err(kube::Error::SerdeError(_)) = &found {
            // Nothing can be stored in it, whatever its state was before.
            self.metrics.location(&key.name, false, false);
        }
        let Some(location) = found? else {
            self.validations.lock().remove(&key.name);
            self.secrets.forget(&key);
            self.metrics.forget_location(&key.name);
            return Ok(Action::AwaitChange);
        };
        let last = self.validations.lock().get(&key.name).cloned();
        let probe = match self.plan(&location, last.as_ref()) {
            Plan::Wait(action) => return Ok(action),
            Plan::Validate { probe } => probe,
        };
        // Setting the mark changes the spec, so the location is validated and comes here.
        if default_location::keep_one(&self.cluster, &self.locations, &location).await? {
            return Ok(Action::AwaitChange); // it has changed
        }
        let validation = Box::pin(self.validate(&key, &location, last.as_ref(), probe)).await?;
        let next = self.plan(&location, Some(&validation));
        self.validations.lock().insert(key.name, validation);
        Ok(match next {
            Plan::Wait(action) => action,
            Plan::Validate { .. } => Action::RequeueAfter(decide::MIN_INTERVAL),
        })
    }

    fn plan(&self, location: &BackupStorageLocation, last: Option<&Validation>) -> Plan {
        let secrets_changed = last.is_some_and(|last| self.secrets.have_changed(&last.secrets));
        let now = Clock::Boot.now();
        decide::decide(location, last, secrets_changed, self.frequency, now)
    }

    /// Validates the location as it was read and publishes the outcome.
    async fn validate(
        &self,
        key: &Key,
        location: &BackupStorageLocation,
        last: Option<&Validation>,
        probe: bool,
    ) -> Result<Validation, ReconcileError> {
        let mut secrets = Vec::new();
        let began = Clock::Boot.now();
        let checked = self.check(key, location, probe, &mut secrets);
        let checked = tokio::time::timeout(DEADLINE, checked)
            .await
            .unwrap_or_else(|_| {
                let source = StoreError::Unreachable {
                    action: "list".to_owned(),
                    url: location.spec.object_storage.bucket.clone(),
                    detail: format!(
                        "no answer within {DEADLINE:?}; check the address and the network"
                    ),
                };
                Err(LocationError::of_store(&key.name, source))
            });
        let validation = Validation {
            uid: location.metadata.uid.clone(),
            spec: location.spec.clone(),
            at: Clock::Boot.now(),
            available: checked.is_ok(),
            probed: last.filter(|_| !probe).map_or(began, |last| last.probed),
            secrets,
        };
        let (facts, message) = match checked {
            Ok(facts) => (facts, decide::remark(&location.spec)),
            Err(error) => (None, Some(shortened(&error.to_string(), MESSAGE_CHARS))),
        };
        let phase = if validation.available {
            LocationPhase::Available
        } else {
            LocationPhase::Unavailable
        };
        // Facts about another bucket do not apply to this one.
        let outdated = last.is_some_and(|last| last.spec != location.spec);
        let annotation = match &facts {
            Some(facts) => Some(json!(facts.annotation())),
            None => outdated.then_some(Value::Null),
        };
        self.publish(location, &phase, message.as_deref(), annotation)
            .await?;
        if let Some(facts) = &facts {
            self.emit_facts(location, facts);
        }
        self.metrics
            .location(&key.name, validation.available, is_read_only(location));
        Ok(validation)
    }

    /// Queries the store. After a probe, returns facts about the bucket.
    async fn check(
        &self,
        key: &Key,
        location: &BackupStorageLocation,
        probe: bool,
        secrets: &mut Vec<UsedSecret>,
    ) -> Result<Option<Facts>, LocationError> {
        let store = self.locations.store_and_secrets(location, secrets).await;
        self.secrets.set_used(key, secrets);
        let store = store?;
        store
            .check()
            .await
            .map_err(|source| LocationError::of_store(&key.name, source))?;
        if !probe {
            return Ok(None);
        }
        store
            .probe(!is_read_only(location))
            .await
            .map(Some)
            .map_err(|source| LocationError::of_store(&key.name, source))
    }

    /// Writes phase, message and time, and `annotation` if the facts about the bucket may have
    /// changed; only if the spec is still the validated one.
    async fn publish(
        &self,
        location: &BackupStorageLocation,
        phase: &LocationPhase,
        message: Option<&str>,
        annotation: Option<Value>,
    ) -> Result<(), ReconcileError> {
        let time = Time(jiff::Timestamp::now());
        let outcome = retry::status_patch(&self.cluster, location, |current| {
            (current.spec == location.spec).then(|| {
                let status =
                    json!({"phase": phase, "message": message, "lastValidationTime": time});
                let mut patch = json!({"status": status});
                if let Some(annotation) = &annotation {
                    patch["metadata"]["annotations"][BUCKET_ANNOTATION] = annotation.clone();
                }
                patch
            })
        })
        .await?;
        let name = location.name_any();
        match outcome {
            PatchOutcome::Gone => return Ok(()),
            PatchOutcome::Stale => {
                let what = "changed while it was validated; it is validated again";
                return Err(ReconcileError::Changed(format!(
                    "BackupStorageLocation {name} {what}"
                )));
            }
            PatchOutcome::Written(_) => {}
        }
        if location.status.phase.as_ref() != Some(phase) {
            match (phase, message) {
                (LocationPhase::Available, _) => {
                    self.cluster.events.normal(
                        location,
                        EventReason::Available,
                        "backups can be stored here",
                    );
                }
                (_, message) => {
                    self.cluster.events.warning(
                        location,
                        EventReason::Unavailable,
                        message.unwrap_or_default(),
                    );
                }
            }
            tracing::info!(location = name, %phase, reason = message, "location changed");
        }
        Ok(())
    }

    /// Emits an event for each property of the bucket that a user may not expect, once.
    fn emit_facts(&self, location: &BackupStorageLocation, now: &Facts) {
        let before = Facts::read(annotation(location, BUCKET_ANNOTATION));
        let before = before.unwrap_or_default();
        let new_reason = now
            .not_removable
            .as_ref()
            .filter(|why| before.not_removable.as_ref() != Some(why));
        if let Some(why) = new_reason {
            let note = format!(
                "backups can be stored here, but not deleted: {why}. What has expired stays until that is granted"
            );
            self.cluster
                .events
                .warning(location, EventReason::DeletesDenied, &note);
        }
        if now.unconditional && !before.unconditional {
            let note = "the store writes a key that is there although it is asked not to (If-None-Match), so each key is looked \
                        at before it is written; two clusters that share this bucket need a prefix each";
            self.cluster
                .events
                .warning(location, EventReason::NoConditionalWrites, note);
        }
        let new_lock = now
            .lock
            .as_ref()
            .filter(|lock| lock.enabled && before.lock.as_ref() != Some(lock));
        if let Some(lock) = new_lock {
            let note = format!(
                "object lock of the bucket is {lock}: what is locked stays until then, also if it is deleted"
            );
            self.cluster
                .events
                .normal(location, EventReason::ObjectLock, &note);
        }
    }
}
