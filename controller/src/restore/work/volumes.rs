//! Volumes that come back, as they are or from a snapshot, with the claims that were bound to them.

use std::collections::BTreeSet;

use backup_actions::csi::SNAPSHOTS;
use backup_actions::restore::{self, json};
use backup_core::resources::restore_rank;
use backup_store::StoreError;

use super::{Discover, Work, WorkError};
use crate::restore::{
    select::{self, Batch, Selection, Served},
    snapshots,
};

pub(super) const VOLUMES: &str = "persistentvolumes";
pub(super) const CLAIMS: &str = "persistentvolumeclaims";

impl<D: Discover> Work<'_, D> {
    /// Finds the volumes that are restored, and those that selected claims were bound to.
    pub(super) fn learn_volumes(&mut self, selection: &Selection) -> Result<BTreeSet<String>, StoreError> {
        let snapshotted = self.with_csi_snapshots();
        for item in self.contents.items(VOLUMES) {
            if let Ok(volume) = select::read(self.contents, item)
                && let Some(name) = json::text(&volume, &["metadata"], "name")
                && (self.snapshots.has(name)
                    || restore::volume_is_kept(&volume) && !snapshotted.contains(name))
            {
                self.rules.kept_volumes.insert(name.to_owned());
            }
        }
        let mut claimed = BTreeSet::new();
        if !self.rules.kept_volumes.is_empty() && selection.lets_volumes_come_along() {
            for item in selection.items(self.contents, CLAIMS)? {
                if let Ok(claim) = select::read(self.contents, &item)
                    && let Some(name) = restore::volume_of_claim(&claim)
                    && self.rules.kept_volumes.contains(name)
                {
                    claimed.insert(name.to_owned());
                }
            }
        }
        Ok(claimed)
    }

    /// Volumes whose data come from a CSI snapshot, on another volume (Velero `restore.go`, `hasCSIVolumeSnapshot`).
    fn with_csi_snapshots(&self) -> BTreeSet<String> {
        if self.restore.spec.restore_pvs == Some(false) || self.contents.items(SNAPSHOTS).is_empty() {
            return BTreeSet::new();
        }
        let claims = self.contents.items(CLAIMS).iter();
        let claims = claims.filter_map(|item| select::read(self.contents, item).ok());
        let volumes = claims.filter(|claim| restore::snapshot_of_claim(claim).is_some());
        volumes.filter_map(|claim| restore::volume_of_claim(&claim).map(str::to_owned)).collect()
    }

    /// A volume as it is to be created: on a new one made of its snapshot, if there is one. The inner error is a sentence.
    pub(super) async fn volume(
        &self,
        collection: &str,
        volume: json::Object,
    ) -> Result<Result<json::Object, String>, WorkError> {
        let how = snapshots::How { rules: &self.rules, created: self.created, patience: self.patience };
        self.snapshots.restore(self.calls, collection, volume, how).await
    }

    /// Adds kept volumes of selected claims where volumes are not selected themselves.
    pub(super) fn volumes_of_claims(
        &self,
        selection: &Selection,
        claimed: &BTreeSet<String>,
        batches: &mut Vec<Batch>,
        served: &D::Found,
    ) -> Result<(), StoreError> {
        let selected = selection.items(self.contents, VOLUMES)?;
        let mut along = Vec::new();
        for item in self.contents.items(VOLUMES).iter().filter(|item| !selected.contains(item)) {
            if let Ok(volume) = select::read(self.contents, item)
                && json::text(&volume, &["metadata"], "name").is_some_and(|name| claimed.contains(name))
            {
                along.push(*item);
            }
        }
        if along.is_empty() {
            return Ok(());
        }
        if let Some(batch) = batches.iter_mut().find(|batch| batch.group_resource == VOLUMES) {
            batch.items.extend(along);
            return Ok(());
        }
        let group_resource = VOLUMES.to_owned();
        let resource = served.find(&group_resource);
        let rank = restore_rank(&group_resource);
        let at = batches
            .iter()
            .position(|batch| restore_rank(&batch.group_resource) > rank)
            .unwrap_or(batches.len());
        batches.insert(at, Batch { group_resource, resource, items: along });
        Ok(())
    }
}
