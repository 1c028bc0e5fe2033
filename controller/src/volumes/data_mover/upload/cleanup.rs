//! Removes the volume that an upload has read: pod, claim, VolumeSnapshot, content, in this order,
//! as each keeps the next. The snapshot in the storage system stays, as the backup owns it.

use backup_runtime::retry;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::Uploads;
use crate::{error::ReconcileError, volumes::data_mover::objects::is_made_for_claim};

const DELETE: &str = "Delete";
const RETAIN: &str = "Retain";

impl Uploads {
    /// Returns whether all is gone. To be repeated until it is.
    pub(super) async fn remove_copy(&self, name: &str) -> Result<bool, ReconcileError> {
        let cluster = &self.mover.cluster;
        let pods: Api<Pod> = cluster.api();
        if !self.mover.remove(&pods, name).await? {
            return Ok(false);
        }
        let claims: Api<PersistentVolumeClaim> = cluster.api();
        if let Some(claim) = claims.get_opt(name).await? {
            self.set_delete_policy(&claim).await?;
            if !self.mover.remove(&claims, name).await? {
                return Ok(false);
            }
        }
        let snapshots = self.snapshots();
        if let Some(snapshot) = snapshots.snapshot(&cluster.namespace, name).await? {
            if snapshot.metadata.deletion_timestamp.is_none() {
                snapshots.release(&snapshot).await?;
            }
            return Ok(false);
        }
        let Some(content) = snapshots.content(name).await? else {
            return Ok(true);
        };
        if content.metadata.deletion_timestamp.is_none() {
            snapshots.remove_content(&content, RETAIN).await?;
        }
        Ok(false)
    }

    /// Has the volume deleted with its claim: with a class of reclaim policy `Retain` a volume
    /// would remain after each backup.
    async fn set_delete_policy(&self, claim: &PersistentVolumeClaim) -> Result<(), ReconcileError> {
        let cluster = &self.mover.cluster;
        let spec = claim.spec.as_ref();
        let Some(volume) = spec.and_then(|spec| spec.volume_name.as_deref()) else {
            return Ok(());
        };
        let volumes: Api<PersistentVolume> = Api::all(cluster.client.clone());
        let Some(volume) = volumes.get_opt(volume).await? else {
            return Ok(());
        };
        retry::status_patch_in(
            &volumes,
            &cluster.leadership,
            cluster.patch_budget,
            &volume,
            |current| {
                is_kept(current, claim)
                    .then(|| json!({ "spec": { "persistentVolumeReclaimPolicy": DELETE } }))
            },
        )
        .await?;
        Ok(())
    }
}

/// Whether a volume is bound to this claim, and would remain after its deletion.
fn is_kept(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let Some(spec) = &volume.spec else {
        return false;
    };
    let owner = spec.claim_ref.as_ref().and_then(|claim| claim.uid.as_ref());
    owner.is_some()
        && owner == claim.uid().as_ref()
        && is_made_for_claim(volume)
        && spec.persistent_volume_reclaim_policy.as_deref() != Some(DELETE)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::Value;

    use super::*;

    #[rstest]
    #[case("Retain", json!("uid-1"), true)]
    #[case("Delete", json!("uid-1"), false)]
    #[case("Retain", json!("uid-2"), false)]
    #[case("Retain", Value::Null, false)]
    fn only_a_volume_of_the_claim_is_let_go(
        #[case] policy: &str,
        #[case] owner: Value,
        #[case] expected: bool,
    ) {
        let volume = serde_json::from_value(json!({
            "metadata": { "name": "pv", "annotations": { "pv.kubernetes.io/provisioned-by": "d" } },
            "spec": { "persistentVolumeReclaimPolicy": policy, "claimRef": { "uid": owner } },
        }))
        .unwrap();
        let claim = serde_json::from_value(json!({ "metadata": { "name": "c", "uid": "uid-1" } }));
        assert_eq!(is_kept(&volume, &claim.unwrap()), expected);
    }
}
