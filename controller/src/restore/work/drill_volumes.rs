//! Volumes in the work of a restore that is a drill: claims are restored only with their data, and
//! only into new volumes.

use std::collections::BTreeSet;

use backup_actions::{csi::SNAPSHOTS, restore::json::Object};
use backup_client::path;
use backup_core::{
    resources::{CLAIMS, VOLUMES},
    volume_info::VolumeInfo,
};
use backup_store::Scope;

use super::{
    Isolation, Restoring,
    item::{ItemRestorer, ResourceKind},
};
use crate::{
    job::cancellation::StopReason,
    restore::{
        about::About,
        apply::Target,
        calls::CallError,
        drill::volumes::{self, FreeVolumes},
        volume_outcomes::{DataOutcome, PlannedClaim},
    },
};

/// Why a claim is left out; a warning says why it has no data.
const NO_DATA: &str = "a drill has no data for it, so its pods get an empty volume";
/// Why a VolumeSnapshot is left out.
const NOT_NEEDED: &str = "a drill restores only the snapshots that its claims need";
/// Number of volumes in a page of their list.
const PAGE_SIZE: u32 = 500;

impl Restoring<'_> {
    /// The rules for items if the restore is a drill that restores volumes.
    fn drill_of_volumes(&self) -> Option<Isolation<'_>> {
        self.drill().filter(|drill| drill.settings().volumes)
    }

    /// The claims of a namespace of the backup that a drill restores with their data.
    pub(super) fn claims_of_drill(&self, source: Option<&str>) -> BTreeSet<&str> {
        let Some(source) = source.filter(|_| self.drill_of_volumes().is_some()) else {
            return BTreeSet::new();
        };
        let planned = self.plan.by_claim.iter();
        let restored = planned.filter(|((namespace, _), planned)| {
            namespace == source && volumes::reason_to_leave_out(Some(&planned.data)).is_none()
        });
        restored.map(|((_, claim), _)| claim.as_str()).collect()
    }

    /// Number of claims that a drill restores into a scratch namespace.
    pub(super) fn claims_of_drill_in(&self, scratch: &str) -> usize {
        let mapping = self.restore.spec.namespace_mapping.iter();
        mapping
            .filter(|(_, target)| *target == scratch)
            .map(|(source, _)| self.claims_of_drill(Some(source.as_str())).len())
            .sum()
    }

    /// Why a drill of volumes leaves an item out; `None` if it does not. `source` is its namespace
    /// in the backup. The second one is the reason for which a claim has no data.
    fn left_out_of_drill(
        &self,
        group_resource: &str,
        source: Option<&str>,
        name: &str,
    ) -> Option<(&'static str, Option<String>)> {
        let source = source.filter(|_| self.drill_of_volumes().is_some())?;
        let by_claim = &self.plan.by_claim;
        match group_resource {
            CLAIMS => {
                let planned = by_claim.get(&(source.to_owned(), name.to_owned()));
                let why = volumes::reason_to_leave_out(planned.map(|planned| &planned.data))?;
                Some((NO_DATA, Some(why)))
            }
            SNAPSHOTS => {
                let mut needed = by_claim.iter().filter(|((namespace, _), planned)| {
                    namespace == source
                        && volumes::reason_to_leave_out(Some(&planned.data)).is_none()
                });
                let is_needed =
                    needed.any(|(_, planned)| planned.snapshot.as_deref() == Some(name));
                (!is_needed).then_some((NOT_NEEDED, None))
            }
            _ => None,
        }
    }

    /// The outcome of the data of a claim. If a drill leaves the claim out, a message was reported
    /// before, and only the entry is made here.
    pub(super) fn outcome_in_drill(
        &self,
        claim: PlannedClaim<'_>,
        outcome: DataOutcome,
    ) -> DataOutcome {
        let drill = self.drill_of_volumes();
        let why = drill.and_then(|_| volumes::reason_to_leave_out(Some(claim.data)));
        let Some(why) = why else { return outcome };
        let PlannedClaim {
            namespace,
            name,
            volume,
            ..
        } = claim;
        DataOutcome {
            message: None,
            missing: Some(VolumeInfo::not_restored(namespace, name, volume, &why)),
        }
    }

    /// The volumes in the cluster that no claim has; read once.
    async fn free_volumes(&self) -> Result<&FreeVolumes, CallError> {
        let known = &self.plan.free_volumes;
        known.get_or_try_init(|| self.read_free_volumes()).await
    }

    async fn read_free_volumes(&self) -> Result<FreeVolumes, CallError> {
        let collection = path::collection("v1", VOLUMES, None);
        let mut free = FreeVolumes::default();
        let mut from: Option<String> = None;
        loop {
            let page = self.calls.list(&collection, PAGE_SIZE, from.as_deref());
            let page = page.await?;
            for volume in &page.items {
                if let Ok(volume) = serde_json::from_str::<Object>(volume.get()) {
                    free.add(&volume);
                }
            }
            let Some(next) = page.next() else {
                return Ok(free);
            };
            from = Some(next.to_owned());
        }
    }
}

impl ItemRestorer<'_> {
    /// Whether a drill leaves out a claim that has no data, or a snapshot that no claim needs; the
    /// report says why. `source` is the namespace in the backup.
    pub(super) fn is_left_out_of_volumes(
        &self,
        kind: ResourceKind<'_>,
        about: About<'_>,
        source: Option<&str>,
    ) -> bool {
        let Restoring { report, .. } = self.restoring;
        let left_out = self
            .restoring
            .left_out_of_drill(kind.group_resource, source, about.name);
        let Some((reason, no_data)) = left_out else {
            return false;
        };
        report.left_out(about, reason);
        if let Some(why) = no_data {
            let scope = about.namespace.map_or(Scope::Cluster, Scope::Namespace);
            let message = format!(
                "claim {:?} is left out, and its pods get an empty volume: {why}",
                about.name
            );
            report.warn(scope, message);
        }
        true
    }

    /// Why an object is not created in a drill: it would use what exists, or a claim could be bound
    /// to a volume that exists.
    pub(super) async fn refused_by_drill(
        &self,
        target: Target<'_>,
        object: &Object,
    ) -> Result<Option<String>, StopReason> {
        let Some(drill) = self.restoring.drill_of_volumes() else {
            return Ok(None);
        };
        if let Some(why) = drill.refuses(target.group_resource, object) {
            return Ok(Some(why.to_owned()));
        }
        if target.group_resource != CLAIMS {
            return Ok(None);
        }
        let free = match self.restoring.free_volumes().await {
            Ok(free) => free.of_class_of(object),
            Err(error) => {
                let error = error.unless_stopped()?;
                return Ok(Some(format!(
                    "whether it could be bound to a volume that exists is not known: {error}"
                )));
            }
        };
        Ok(free.map(|volume| {
            format!(
                "it could be bound to PersistentVolume {volume:?}, which exists and is free: reserve that one for its own claim \
                 (spec.claimRef), and drill the backup again"
            )
        }))
    }
}
