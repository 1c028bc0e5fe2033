//! Fresh reads of the objects that claims are about. Never from a cache: a claim is judged by the
//! API server's current answer.

mod profile;
mod seen;

use std::{sync::Arc, time::Duration};

use backup_client::{
    errors::{is_final, is_gone, plain},
    paging,
};
use backup_core::{
    api::{BackupSpec, BackupStorageLocation, RestoreSpec},
    names::is_object_name,
    profile::{Profile, ScopeRule},
};
use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
    core::DeserializeGuard,
};
use serde_json::Value;

use crate::{
    claim::{Claim, ObjectKey, ObjectKind},
    footprint::Footprint,
    registration::Installations,
    transition::ObservedState,
};

pub(crate) use profile::listed;
pub use profile::{reference, resource};
pub use seen::ObservedObject;

/// Timeout of one request to the API server.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of concurrent reads for one ledger.
pub const MAX_CONCURRENT_READS: usize = 16;
/// Objects in one page of a list.
const PAGE_SIZE: u32 = 500;

/// The API server gave no definite answer. Unknown is not absent.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The request was refused, or the server could not be reached.
    #[error("could not read {what}: {}", plain(.source))]
    Api {
        what: String,
        source: Box<kube::Error>,
    },
    #[error("could not read {what}: no answer from the API server in time")]
    Timeout { what: String },
}

impl ObserveError {
    pub fn category(&self) -> &'static str {
        match self {
            Self::Api { .. } => "api",
            Self::Timeout { .. } => "timeout",
        }
    }

    /// Whether a retry fails in the same way. A denial does not count: an API server that has just
    /// started denies what it allows moments later.
    pub fn is_final(&self) -> bool {
        let Self::Api { source, .. } = self else {
            return false;
        };
        is_final(source)
    }
}

/// Reads the objects of one profile; cheap to clone.
#[derive(Clone)]
pub struct Objects {
    client: Client,
    profile: Arc<Profile>,
    /// The namespaces whose objects count. `None`: all.
    installations: Option<Installations>,
}

impl Objects {
    pub fn new(client: Client, profile: Arc<Profile>) -> Self {
        Self {
            client,
            profile,
            installations: None,
        }
    }

    /// The same, listing only the objects of these namespaces.
    #[must_use]
    pub(crate) fn only_in(mut self, installations: Installations) -> Self {
        self.installations = Some(installations);
        self
    }

    /// Whether an installation manages this namespace, so that its objects have claims.
    pub fn count_in(&self, namespace: &str) -> bool {
        self.installations
            .as_ref()
            .is_none_or(|installations| installations.contain(namespace))
    }

    pub fn profile(&self) -> &Arc<Profile> {
        &self.profile
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// The object of this name, or `None` if the API server says that *this object* is not found.
    /// Any other "not found", such as a kind that is not served, is an error. `None` also for a
    /// hold, which has no object, and for a name that no custom resource can have: it may come from
    /// a spec, and would change the path of the request.
    pub async fn read(&self, key: &ObjectKey) -> Result<Option<ObservedObject>, ObserveError> {
        let Some(resource) = profile::resource(&self.profile, key.kind) else {
            return Ok(None);
        };
        if !is_object_name(&key.name) {
            return Ok(None);
        }
        let what = key.to_string();
        let api =
            Api::<DynamicObject>::namespaced_with(self.client.clone(), &key.namespace, &resource);
        let answer = bounded(&what, api.get(&key.name)).await;
        let object = if_found(answer, &key.name, &resource.plural)?;
        Ok(object.map(|object| ObservedObject::of(&self.profile, key.kind, &object)))
    }

    /// The observation that a claim is judged by: its object, freshly read, and whether its data
    /// has settled.
    pub async fn observe(
        &self,
        scope: &str,
        claim: &Claim,
    ) -> Result<(ObservedState, Option<ObservedObject>), ObserveError> {
        let object = self.read(&claim.key).await?;
        let ends = object.as_ref().is_none_or(|object| object.over)
            && claim.key.kind == ObjectKind::Restore;
        let settled = !ends || self.settled(scope).await?;
        Ok((ObservedState::of(object.as_ref(), settled), object))
    }

    /// The same for many claims, concurrently, in their order. Claims not read before `until` are
    /// unknown.
    pub async fn observe_all(
        &self,
        scope: &str,
        claims: &[Claim],
        until: tokio::time::Instant,
    ) -> Vec<Result<(ObservedState, Option<ObservedObject>), ObserveError>> {
        let observe = async |claim: &Claim| {
            let read = tokio::time::timeout_at(until, self.observe(scope, claim)).await;
            read.unwrap_or_else(|_| {
                Err(ObserveError::Timeout {
                    what: claim.key.to_string(),
                })
            })
        };
        stream::iter(claims)
            .map(observe)
            .buffered(MAX_CONCURRENT_READS)
            .collect()
            .await
    }

    /// Whether the database cluster of this scope is in the state that the profile requires before
    /// it is touched again. A deleted cluster counts as settled.
    async fn settled(&self, scope: &str) -> Result<bool, ObserveError> {
        let (Some(rule), Some((namespace, name))) =
            (&self.profile.release, profile::cluster_of(scope))
        else {
            return Ok(true);
        };
        let resource = profile::target(&rule.target);
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), namespace, &resource);
        let what = format!("{} {namespace}/{name}", rule.target.kind);
        let answer = bounded(&what, api.get(name)).await;
        let cluster = if_found(answer, name, &resource.plural)?;
        Ok(cluster.is_none_or(|cluster| rule.when.holds(&cluster.data)))
    }

    /// Whether a namespace is being deleted, or gone.
    pub async fn namespace_is_terminating(&self, name: &str) -> Result<bool, ObserveError> {
        let namespace = self.namespace(name).await?;
        Ok(namespace.is_none_or(|namespace| namespace.metadata.deletion_timestamp.is_some()))
    }

    /// Whether a namespace exists.
    pub async fn namespace_exists(&self, name: &str) -> Result<bool, ObserveError> {
        Ok(self.namespace(name).await?.is_some())
    }

    async fn namespace(&self, name: &str) -> Result<Option<Namespace>, ObserveError> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        bounded(&format!("namespace {name}"), api.get_opt(name)).await
    }

    /// The locations of the installation in this namespace; `None` if one of them cannot be
    /// decoded.
    pub async fn locations(
        &self,
        namespace: &str,
    ) -> Result<Option<Vec<BackupStorageLocation>>, ObserveError> {
        let api: Api<DeserializeGuard<BackupStorageLocation>> =
            Api::namespaced(self.client.clone(), namespace);
        let what = format!("the locations in namespace {namespace}");
        let list = bounded(&what, api.list(&ListParams::default())).await?;
        Ok(list.items.into_iter().map(|one| one.0.ok()).collect())
    }

    /// The restore that holds the operator's own Lease of this scope, if there is such a Lease and
    /// the restore runs. That Lease is never written.
    pub async fn external_holder(
        &self,
        scope: &str,
    ) -> Result<Option<ObservedObject>, ObserveError> {
        let (Some(foreign), Some((namespace, cluster))) =
            (&self.profile.foreign_lease, profile::cluster_of(scope))
        else {
            return Ok(None);
        };
        let name = foreign.name_for(cluster);
        let api: Api<k8s_openapi::api::coordination::v1::Lease> =
            Api::namespaced(self.client.clone(), namespace);
        let what = format!("the Lease {namespace}/{name}");
        let answer = bounded(&what, api.get(&name)).await;
        let Some(lease) = if_found(answer, &name, "leases")? else {
            return Ok(None);
        };
        let identity = lease
            .spec
            .and_then(|spec| spec.holder_identity)
            .unwrap_or_default();
        let Some((holder, uid)) = backup_core::profile::ForeignLease::holder(&identity) else {
            return Ok(None);
        };
        let restore = self.read(&ObjectKey::restore(namespace, holder)).await?;
        Ok(restore.filter(|restore| restore.uid == uid && !restore.over))
    }

    /// The footprint of an object with this spec: all of the scope if it is one database cluster.
    ///
    /// For a restore of Velero its backup is read, because that bounds what can be restored; a
    /// missing backup or a spec that cannot be decoded counts as everything.
    pub async fn footprint(
        &self,
        key: &ObjectKey,
        spec: &Value,
    ) -> Result<Footprint, ObserveError> {
        if !matches!(self.profile.scope, ScopeRule::Cluster) {
            return Ok(Footprint::everything());
        }
        match key.kind {
            ObjectKind::Backup => {
                Ok(backup_spec(spec)
                    .map_or_else(Footprint::everything, |s| Footprint::of_backup(&s)))
            }
            ObjectKind::Restore => {
                let Ok(spec) = serde_json::from_value::<RestoreSpec>(spec.clone()) else {
                    return Ok(Footprint::everything());
                };
                // A restore that has begun names both: the chosen backup, and its schedule.
                let name = spec.backup_name.as_deref().filter(|name| !name.is_empty());
                let source = match name {
                    None => None,
                    Some(name) => {
                        let backup = self.read(&ObjectKey::backup(&key.namespace, name)).await?;
                        backup.and_then(|backup| backup_spec(&backup.spec))
                    }
                };
                Ok(Footprint::of_restore(&spec, source.as_ref()).from_backup(&key.namespace, name))
            }
            ObjectKind::DeleteBackupRequest => {
                let name = spec
                    .get("backupName")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                Ok(Footprint::of_deletion(&key.namespace, name))
            }
            ObjectKind::Deletion => Ok(Footprint::of_deletion(&key.namespace, &key.name)),
            ObjectKind::Hold => Ok(Footprint::everything()),
        }
    }

    /// Every object of a scope whose work has not ended, by fresh lists.
    pub(crate) async fn running(&self, scope: &str) -> Result<Vec<ObservedObject>, ObserveError> {
        let is_cluster = matches!(self.profile.scope, ScopeRule::Cluster);
        let namespace = profile::cluster_of(scope)
            .filter(|_| !is_cluster)
            .map(|(namespace, _)| namespace);
        let mut running = Vec::new();
        for (kind, resource) in profile::listed(&self.profile) {
            let client = self.client.clone();
            let api: &Api<DynamicObject> = &match namespace {
                Some(namespace) => Api::namespaced_with(client, namespace, &resource),
                None => Api::all_with(client, &resource),
            };
            let what = &format!("the list of {}", resource.plural);
            let of_kind = paging::collect(
                ListParams::default().limit(PAGE_SIZE),
                |page| async move { bounded(what, api.list(&page)).await },
                |object: DynamicObject| {
                    let seen = ObservedObject::of(&self.profile, kind, &object);
                    let counts = !seen.over
                        && self.count_in(&seen.key.namespace)
                        && seen.scope.as_deref() == Some(scope);
                    counts.then_some(seen)
                },
            );
            running.extend(of_kind.await?);
        }
        Ok(running)
    }
}

fn backup_spec(spec: &Value) -> Option<BackupSpec> {
    if spec.is_null() {
        Some(BackupSpec::default())
    } else {
        serde_json::from_value(spec.clone()).ok()
    }
}

/// The answer to a read of this object; `None` if exactly this object is not found.
fn if_found<T>(
    answer: Result<T, ObserveError>,
    name: &str,
    plural: &str,
) -> Result<Option<T>, ObserveError> {
    match answer {
        Ok(object) => Ok(Some(object)),
        Err(ObserveError::Api { source, .. }) if names(&source, name, plural) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether this error is the "not found" of exactly this object, by its name and its kind.
fn names(error: &kube::Error, name: &str, plural: &str) -> bool {
    is_gone(error, name)
        && matches!(error, kube::Error::Api(status)
            if status.details.as_ref().is_some_and(|details| details.kind == plural))
}

async fn bounded<T>(
    what: &str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, ObserveError> {
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(source)) => Err(ObserveError::Api {
            what: what.to_owned(),
            source: Box::new(source),
        }),
        Err(_) => Err(ObserveError::Timeout {
            what: what.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use backup_testkit::FakeApi;

    use super::*;

    #[tokio::test]
    async fn a_name_that_no_object_can_have_is_that_of_none_and_is_not_asked_for() {
        let api = FakeApi::new();
        let objects = Objects::new(api.client(), Arc::new(Profile::velero()));
        for name in [" ", "a b", "../restores/r", "b?watch=1", ""] {
            let read = objects.read(&ObjectKey::backup("velero", name)).await;
            assert!(
                matches!(read, Ok(None)) && api.log().is_empty(),
                "{name:?} {:?}",
                api.log()
            );
        }
    }
}
