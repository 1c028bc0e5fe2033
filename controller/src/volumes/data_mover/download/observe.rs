//! Reads what a DataDownload has in the cluster.

use backup_client::errors::found;
use backup_core::{
    api::{BackupStorageLocation, DataDownload},
    data_movement,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{Api, Resource, ResourceExt};

use super::{
    claim::is_block,
    decide::{Facts, Found, OwnClaim, OwnPod, Target, is_over},
    handover::{Claims, HandedVolume},
    patches::{self, Fill},
    placement::is_probe,
    users::users_of,
};
use crate::{
    error::ReconcileError,
    volumes::data_mover::{DataMover, objects::last_warning, pod_state::PodState},
};

/// The facts, and the objects that they are about.
pub(super) struct Observation {
    pub(super) facts: Facts,
    pub(super) claims: Claims,
    pub(super) target: Option<PersistentVolumeClaim>,
    pub(super) pod: Option<Pod>,
    pub(super) volume: Option<PersistentVolume>,
    pub(super) location: Option<BackupStorageLocation>,
}

/// Reads what the phase of the DataDownload needs. The repository is made here if it is missing.
pub(super) async fn observe(
    mover: &DataMover,
    download: &DataDownload,
) -> Result<Observation, ReconcileError> {
    let mut seen = Observation {
        facts: Facts {
            target: None,
            claim: Found::Missing,
            pod: Found::Missing,
            volume: None,
            is_block: false,
            users: Vec::new(),
            has_location: true,
            repository: None,
            warning: None,
            prepare_timeout: mover.settings.prepare_timeout,
        },
        claims: Claims::of(download, None),
        target: None,
        pod: None,
        volume: None,
        location: None,
    };
    let is_in_place = patches::in_place(download).is_some();
    if !patches::has_ended(download) || is_in_place {
        seen.target = target(mover, download).await?;
        let target = seen.target.as_ref();
        seen.facts.target = target.map(|target| target_facts(target, &download.name_any()));
        seen.facts.is_block = target.is_some_and(is_block);
    }
    if !patches::is_new(download) {
        seen.own_objects(mover, download).await?;
    } else if let Some(target) = &seen.facts.target {
        seen.claims.target_uid.clone_from(&target.uid);
    }
    if is_in_place {
        seen.volume_in_place(mover, download).await?;
    }
    seen.source(mover, download).await?;
    Ok(seen)
}

impl Observation {
    /// Claim and pod in our namespace, and the volume.
    async fn own_objects(
        &mut self,
        mover: &DataMover,
        download: &DataDownload,
    ) -> Result<(), ReconcileError> {
        let name = download.name_any();
        let claims = mover.cluster.api::<PersistentVolumeClaim>();
        let claim = found(claims.get(&name).await, &name)?;
        self.claims = Claims::of(download, claim.as_ref().and_then(ResourceExt::uid));
        self.facts.claim = owned(claim.as_ref(), download, |claim| OwnClaim {
            volume: volume_name(claim),
            is_bound: is_bound(claim),
        });
        self.pod = mover.pod(&name).await?;
        self.facts.pod = owned(self.pod.as_ref(), download, |pod| OwnPod {
            uid: pod.uid().unwrap_or_default(),
            is_probe: is_probe(pod),
            created: pod.creation_timestamp(),
            deleted: pod.metadata.deletion_timestamp.clone(),
            state: PodState::of(pod),
        });
        let volume = match (Fill::of(download), &self.facts.claim) {
            (Some(fill), _) => Some(fill.volume),
            (None, Found::Ours(claim)) => claim.volume.clone(),
            (None, Found::Missing | Found::Foreign) => None,
        };
        if let Some(volume) = volume.filter(|_| !self.claims.is_in_place) {
            self.read_volume(mover, &volume).await?;
        }
        let accepted = download.status.transfer.accepted_timestamp.as_ref();
        let timeout = mover.settings.prepare_timeout;
        if matches!(&self.facts.claim, Found::Ours(claim) if !claim.is_bound)
            && is_over(accepted, timeout, Timestamp::now())
        {
            self.facts.warning = last_warning(mover, "PersistentVolumeClaim", &name).await;
        }
        Ok(())
    }

    /// The volume that the data is restored into, which has its own name at all times, and the pods
    /// that use the target claim.
    async fn volume_in_place(
        &mut self,
        mover: &DataMover,
        download: &DataDownload,
    ) -> Result<(), ReconcileError> {
        let wanted = &download.spec.target_volume;
        if !wanted.pv.is_empty() {
            self.read_volume(mover, &wanted.pv).await?;
        }
        let is_open = !patches::has_ended(download) && Fill::of(download).is_none();
        if is_open && self.target.is_some() {
            let cluster = &mover.cluster;
            let users = users_of(
                &cluster.client,
                cluster.page_size,
                &wanted.namespace,
                &wanted.pvc,
            );
            self.facts.users = users.await?;
        }
        Ok(())
    }

    async fn read_volume(&mut self, mover: &DataMover, name: &str) -> Result<(), ReconcileError> {
        let volumes: Api<PersistentVolume> = Api::all(mover.cluster.client.clone());
        self.volume = found(volumes.get(name).await, name)?;
        let volume = self.volume.as_ref();
        self.facts.volume = volume.map(|volume| HandedVolume::of(volume, &self.claims));
        Ok(())
    }

    /// Location and repository of the data, where the next step may need them.
    async fn source(
        &mut self,
        mover: &DataMover,
        download: &DataDownload,
    ) -> Result<(), ReconcileError> {
        let is_arriving = patches::is_new(download) && self.target.is_some();
        let is_filling = patches::is_working(download) && Fill::of(download).is_none();
        let needs_pod = is_filling && matches!(self.facts.pod, Found::Missing);
        if !is_arriving && !needs_pod {
            return Ok(());
        }
        let name = &download.spec.backup_storage_location;
        self.location = mover.location(name).await?;
        self.facts.has_location = self.location.is_some();
        let is_deleting = download.metadata.deletion_timestamp.is_some();
        let is_wanted = !download.spec.mover.cancel && !is_deleting;
        if is_arriving && is_wanted && self.facts.has_location {
            let namespace = &download.spec.source_namespace;
            self.facts.repository = Some(mover.repository(namespace, name).await?);
        }
        Ok(())
    }
}

async fn target(
    mover: &DataMover,
    download: &DataDownload,
) -> Result<Option<PersistentVolumeClaim>, ReconcileError> {
    let target = &download.spec.target_volume;
    if target.namespace.is_empty() || target.pvc.is_empty() {
        return Ok(None);
    }
    let client = mover.cluster.client.clone();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client, &target.namespace);
    Ok(found(claims.get(&target.pvc).await, &target.pvc)?)
}

fn target_facts(claim: &PersistentVolumeClaim, download: &str) -> Target {
    let spec = serde_json::to_value(&claim.spec).unwrap_or_default();
    Target {
        uid: claim.uid().unwrap_or_default(),
        is_deleting: claim.metadata.deletion_timestamp.is_some(),
        waits_for_us: data_movement::download_of_claim(&spec) == Some(download),
        volume: volume_name(claim),
        is_bound: is_bound(claim),
    }
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    let status = claim.status.as_ref();
    status.is_some_and(|status| status.phase.as_deref() == Some("Bound"))
}

fn volume_name(claim: &PersistentVolumeClaim) -> Option<String> {
    let name = claim.spec.as_ref()?.volume_name.clone()?;
    (!name.is_empty()).then_some(name)
}

/// An object with the name of the DataDownload: ours if the DataDownload is its owner.
fn owned<K: Resource, T>(
    object: Option<&K>,
    download: &DataDownload,
    facts: impl FnOnce(&K) -> T,
) -> Found<T> {
    let Some(object) = object else {
        return Found::Missing;
    };
    let owners = object.owner_references();
    if owners
        .iter()
        .any(|owner| Some(&owner.uid) == download.metadata.uid.as_ref())
    {
        Found::Ours(facts(object))
    } else {
        Found::Foreign
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(spec: &Value, status: &Value) -> PersistentVolumeClaim {
        let metadata = json!({"name": "data", "namespace": "shop", "uid": "uid-t"});
        let claim = json!({"metadata": metadata, "spec": spec, "status": status});
        serde_json::from_value(claim).unwrap()
    }

    #[test]
    fn a_claim_waits_for_the_download_that_is_its_data_source() {
        let source = data_movement::data_source("d");
        let waiting = claim(
            &json!({"dataSourceRef": source}),
            &json!({"phase": "Pending"}),
        );
        let expected = Target {
            uid: "uid-t".to_owned(),
            is_deleting: false,
            waits_for_us: true,
            volume: None,
            is_bound: false,
        };
        assert_eq!(target_facts(&waiting, "d"), expected);
        assert!(!target_facts(&waiting, "e").waits_for_us);
        let bound = claim(&json!({"volumeName": "pv"}), &json!({"phase": "Bound"}));
        let facts = target_facts(&bound, "d");
        assert!(facts.is_bound && !facts.waits_for_us);
        assert_eq!(facts.volume.as_deref(), Some("pv"));
        let empty = claim(&json!({"volumeName": ""}), &Value::Null);
        assert_eq!(target_facts(&empty, "d").volume, None);
    }

    #[test]
    fn an_object_is_ours_if_the_download_owns_it() {
        let mut download = DataDownload::default();
        download.metadata.uid = Some("uid-d".to_owned());
        let owner = |uid: &str| -> PersistentVolumeClaim {
            let owner = json!({
                "apiVersion": "velero.io/v2alpha1", "kind": "DataDownload", "name": "d", "uid": uid,
            });
            serde_json::from_value(json!({"metadata": {"ownerReferences": [owner]}})).unwrap()
        };
        let found = |claim: Option<&PersistentVolumeClaim>| owned(claim, &download, |_| ());
        assert_eq!(found(None), Found::Missing);
        assert_eq!(found(Some(&owner("uid-d"))), Found::Ours(()));
        assert_eq!(found(Some(&owner("uid-e"))), Found::Foreign);
        assert_eq!(
            found(Some(&PersistentVolumeClaim::default())),
            Found::Foreign
        );
    }
}
