//! Fresh reads of the objects that claims are about. Never from a cache: a claim is judged by what the API server says.

use std::time::Duration;

use backup_core::api::{Backup, BackupPhase, BackupSpec, Restore, RestorePhase, RestoreSpec};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams},
    core::ApiResource,
};
use serde_json::Value;

use crate::{
    claim::{ObjectKey, ObjectKind, State},
    errors::plain,
    footprint::Footprint,
};

/// Longest wait for one answer of the API server.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// Objects in one page of a list.
const PAGE: u32 = 500;

/// The API server could not tell what is there. Unknown is not absent.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// It refused, or could not be reached.
    #[error("could not read {what}: {}", plain(.source))]
    Api {
        /// What was asked for.
        what: String,
        /// What came back.
        source: Box<kube::Error>,
    },
    /// It did not answer in time.
    #[error("could not read {what}: no answer from the API server in {} s", REQUEST_TIMEOUT.as_secs())]
    Timeout {
        /// What was asked for.
        what: String,
    },
}

impl ObserveError {
    /// A bounded label for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Api { .. } => "api",
            Self::Timeout { .. } => "timeout",
        }
    }
}

/// A Backup or Restore as it is stored now, as far as the lock needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Its name.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: String,
    /// Its phase, in words; unset is New.
    pub phase: String,
    /// Whether its work has ended.
    pub over: bool,
    /// Whether its work has not begun.
    pub new: bool,
    /// Whether its deletion was asked for.
    pub deleting: bool,
    /// When it was created, as RFC 3339.
    pub created: String,
    /// Its spec, undecoded.
    pub spec: Value,
}

impl Observed {
    /// What an object says of itself. Works on objects that can't be decoded into their type.
    pub fn of(kind: ObjectKind, object: &DynamicObject) -> Self {
        let phase = object.data.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
        let phase = if phase.is_empty() { "New" } else { phase };
        Self {
            key: ObjectKey::new(kind, &object.namespace().unwrap_or_default(), &object.name_any()),
            uid: object.uid().unwrap_or_default(),
            over: is_over(kind, phase),
            new: matches!(phase, "New" | "Queued" | "ReadyToStart"),
            phase: phase.to_owned(),
            deleting: object.metadata.deletion_timestamp.is_some(),
            created: object.creation_timestamp().map(|time| time.0.to_string()).unwrap_or_default(),
            spec: object.data.get("spec").cloned().unwrap_or(Value::Null),
        }
    }
}

/// Whether this phase ends the work of such an object. A phase that this version does not know is active.
pub fn is_over(kind: ObjectKind, phase: &str) -> bool {
    match kind {
        ObjectKind::Backup => BackupPhase::from(phase).is_terminal(),
        ObjectKind::Restore => RestorePhase::from(phase).is_terminal(),
    }
}

/// Reads Backups and Restores; cheap to clone.
#[derive(Clone)]
pub struct Objects {
    client: Client,
}

impl Objects {
    /// Reads through this client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The object of this name, or none if the API server says that *this object* is not found. Any other "not found",
    /// such as that the kind is not served, is an error.
    pub async fn read(&self, key: &ObjectKey) -> Result<Option<Observed>, ObserveError> {
        let what = key.to_string();
        let api =
            Api::<DynamicObject>::namespaced_with(self.client.clone(), &key.namespace, &resource(key.kind));
        match bounded(&what, api.get(&key.name)).await {
            Ok(object) => Ok(Some(Observed::of(key.kind, &object))),
            Err(ObserveError::Api { source, .. }) if names(&source, key) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What an object with this spec reads or writes. For a restore its backup is read, because that bounds what can be
    /// restored; a backup that is not there, and a spec that can't be decoded, count as everything.
    pub async fn footprint(&self, key: &ObjectKey, spec: &Value) -> Result<Footprint, ObserveError> {
        match key.kind {
            ObjectKind::Backup => {
                Ok(backup_spec(spec).map_or_else(Footprint::everything, |s| Footprint::of_backup(&s)))
            }
            ObjectKind::Restore => {
                let Ok(spec) = serde_json::from_value::<RestoreSpec>(spec.clone()) else {
                    return Ok(Footprint::everything());
                };
                // A restore that has begun names both: the backup that was chosen, and its schedule.
                let source = match spec.backup_name.as_deref() {
                    None | Some("") => None,
                    Some(name) => {
                        let backup = self.read(&ObjectKey::backup(&key.namespace, name)).await?;
                        backup.and_then(|backup| backup_spec(&backup.spec))
                    }
                };
                Ok(Footprint::of_restore(&spec, source.as_ref()))
            }
        }
    }

    /// Every Backup and Restore of the cluster whose work has not ended, from fresh lists, with its footprint and
    /// whether it has begun.
    pub async fn running(&self) -> Result<Vec<(Observed, Footprint, State)>, ObserveError> {
        let mut running = Vec::new();
        for kind in [ObjectKind::Restore, ObjectKind::Backup] {
            let api = Api::<DynamicObject>::all_with(self.client.clone(), &resource(kind));
            let mut page = ListParams::default().limit(PAGE);
            loop {
                let what = format!("the list of {}", kind.plural());
                let list = bounded(&what, api.list(&page)).await?;
                for object in &list.items {
                    let seen = Observed::of(kind, object);
                    if !seen.over {
                        let footprint = self.footprint(&seen.key, &seen.spec).await?;
                        let state = if seen.new { State::Reserved } else { State::Active };
                        running.push((seen, footprint, state));
                    }
                }
                match list.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(token) => page = page.continue_token(&token),
                    None => break,
                }
            }
        }
        Ok(running)
    }
}

fn backup_spec(spec: &Value) -> Option<BackupSpec> {
    if spec.is_null() { Some(BackupSpec::default()) } else { serde_json::from_value(spec.clone()).ok() }
}

fn resource(kind: ObjectKind) -> ApiResource {
    match kind {
        ObjectKind::Backup => ApiResource::erase::<Backup>(&()),
        ObjectKind::Restore => ApiResource::erase::<Restore>(&()),
    }
}

/// Whether this error is the "not found" of exactly this object.
fn names(error: &kube::Error, key: &ObjectKey) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let named = |d: &kube::core::response::StatusDetails| d.name == key.name && d.kind == key.kind.plural();
    status.is_not_found() && status.details.as_ref().is_some_and(named)
}

async fn bounded<T>(what: &str, request: impl Future<Output = kube::Result<T>>) -> Result<T, ObserveError> {
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(source)) => Err(ObserveError::Api { what: what.to_owned(), source: Box::new(source) }),
        Err(_) => Err(ObserveError::Timeout { what: what.to_owned() }),
    }
}
