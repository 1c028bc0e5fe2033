//! Volumes that come back, as they are or from a snapshot, with the claims that were bound to them.

use std::collections::BTreeSet;

use backup_actions::csi::SNAPSHOTS;
use backup_actions::restore::{self, json, volume};
use backup_core::repository_data::RepositoryVolume;
use backup_store::{Scope, StoreError};

use super::Work;
use crate::restore::select::{self, Selection};

pub(crate) const VOLUMES: &str = "persistentvolumes";
pub(super) const CLAIMS: &str = "persistentvolumeclaims";
pub(super) const PODS: &str = "pods";

impl Work<'_> {
    /// Finds the volumes that are restored, as they are or from a snapshot. Each comes along with its claim.
    pub(super) fn find_volumes(&mut self) {
        let snapshotted = self.with_csi_snapshots();
        for item in self.contents.items(VOLUMES) {
            if let Ok(volume) = select::read(self.contents, item)
                && let Some(name) = json::text(&volume, &["metadata"], "name")
                && (self.snapshots.has(name) || volume::is_kept(&volume) && !snapshotted.contains(name))
            {
                self.rules.kept_volumes.insert(name.to_owned());
            }
        }
    }

    /// Volumes whose data come from a CSI snapshot, on another volume (Velero `restore.go`, `hasCSIVolumeSnapshot`).
    fn with_csi_snapshots(&self) -> BTreeSet<String> {
        if self.restore.spec.restore_pvs == Some(false) || self.contents.items(SNAPSHOTS).is_empty() {
            return BTreeSet::new();
        }
        let claims = self.contents.items(CLAIMS).iter();
        let claims = claims.filter_map(|item| select::read(self.contents, item).ok());
        let volumes = claims.filter(|claim| restore::snapshot_of_claim(claim).is_some());
        volumes.filter_map(|claim| volume::volume_of_claim(&claim).map(str::to_owned)).collect()
    }

    /// Says of each volume that is restored, and whose data is in a repository of files, that it comes back empty.
    pub(super) fn report_repository_data(&self, selection: &Selection) -> Result<(), StoreError> {
        if self.repository.is_empty() {
            return Ok(());
        }
        let [claims, pods] = [CLAIMS, PODS].map(|types| self.names(selection, types));
        let (claims, pods) = (claims?, pods?);
        for volume in &self.repository {
            let RepositoryVolume { namespace, claim, mount } = volume;
            let named = |name: &String| (namespace.clone(), name.clone());
            let selected = match (claim, mount) {
                (Some(claim), _) => claims.contains(&named(claim)),
                (None, Some((pod, _))) => pods.contains(&named(pod)),
                (None, None) => true,
            };
            if selected {
                let scope = if namespace.is_empty() {
                    Scope::Velero
                } else {
                    Scope::Namespace(self.rules.target(namespace))
                };
                self.report.error(
                    scope,
                    format!(
                        "the data of {volume} is not restored: Velero has saved it in a repository of files, which only its \
                         node agents read, so the volume is empty; restore it with a Velero server that uses this bucket"
                    ),
                );
            }
        }
        Ok(())
    }

    /// Namespace and name of the selected items of a type.
    fn names(
        &self,
        selection: &Selection,
        group_resource: &str,
    ) -> Result<BTreeSet<(String, String)>, StoreError> {
        let items = selection.items(self.contents, group_resource)?;
        let objects = items.iter().filter_map(|item| select::read(self.contents, item).ok());
        let text = |object: &json::Object, key| {
            json::text(object, &["metadata"], key).unwrap_or_default().to_owned()
        };
        Ok(objects.map(|object| (text(&object, "namespace"), text(&object, "name"))).collect())
    }
}
