//! The data of volumes in the work of a restore: it is planned once, before any item, and the outcome
//! is reported once, at the end.

use std::{collections::BTreeSet, sync::Arc};

use backup_actions::{
    ItemId,
    csi::SNAPSHOTS,
    restore::{ClaimProperties, MOVED_NAME, MovedRestore, RestoreRules},
};
use backup_client::errors::plain;
use backup_core::{
    data_movement::InPlaceRestore, volume_data::DataSource, volume_info::VolumeInfo,
};
use backup_plugins::log_line::Level;
use backup_store::Scope;

use super::{
    Restoring,
    provisioned::ProvisionedClaim,
    volume_plan::{PlannedVolume, TakenSnapshots, VolumeObjects, VolumePlan},
};
use crate::{
    restore::{
        about::About,
        drill::volumes,
        volume_outcomes::{DataOutcome, ExistingData, PlannedClaim},
    },
    volumes::data_mover::claim_in_use,
};

impl Restoring<'_> {
    /// Decides for each volume of the backup. Volumes that are restored themselves are bound to
    /// their claims again.
    pub(super) fn plan_volumes(&mut self) {
        let snapshots = TakenSnapshots {
            usable: self.snapshots.volumes().collect(),
            failed: self.snapshots.failed.iter().map(String::as_str).collect(),
            csi: self.restore.spec.restore_pvs != Some(false)
                && !self.contents.items(SNAPSHOTS).is_empty(),
        };
        let objects = VolumeObjects::read(self.contents);
        let (mut plan, warnings) = VolumePlan::of(&objects, &self.saved, &snapshots);
        if !self.mover.is_running {
            plan.without_mover();
        }
        for warning in warnings {
            self.report.warn(Scope::Cluster, warning);
        }
        self.report.watch_pods(self.pods_of_repository());
        // The plan has what is needed of them.
        self.saved.records = Vec::new();
        if self.drill().is_some() {
            // A drill uses no volume that exists.
            plan.kept_volumes = Arc::default();
        }
        self.rules.kept_volumes = Arc::clone(&plan.kept_volumes);
        self.plan = plan;
    }

    /// The pods (namespace in the cluster, name) with volumes whose data is in a repository.
    fn pods_of_repository(&self) -> BTreeSet<(String, String)> {
        let volumes = self.saved.in_repository.iter();
        volumes
            .filter(|volume| volume.claim.is_none())
            .filter_map(|volume| {
                let (pod, _) = volume.mount.as_ref()?;
                let namespace = self.rules.target(&volume.namespace);
                Some((namespace.to_owned(), pod.clone()))
            })
            .collect()
    }

    /// Called for a created claim: its volume, if provisioned again, gets its properties back.
    pub(super) fn expect_provisioned(&self, source: Option<&str>, claim: About<'_>) {
        let key = (source.unwrap_or_default().to_owned(), claim.name.to_owned());
        let Some(PlannedVolume { data, record, .. }) = self.plan.by_claim.get(&key) else {
            return;
        };
        let (false, Some(namespace), Some(record)) =
            (data.restores_volume(), claim.namespace, record)
        else {
            return;
        };
        // The data mover sets the properties of a volume that it has filled. Volumes of a drill are
        // to be deleted with their claims.
        if !matches!(data, DataSource::Moved(_)) && self.drill().is_none() {
            let provisioned = ProvisionedClaim::of(namespace, claim.name, record);
            self.plan.provisioned.lock().extend(provisioned);
        }
    }

    /// The part of this restore that comes from the repository of our data mover; `None` if nothing
    /// does.
    pub(super) fn moved(&self, rules: &Arc<RestoreRules>) -> Option<MovedRestore> {
        let claims = self.plan.moved();
        (!claims.is_empty()).then(|| MovedRestore {
            claims,
            properties: self.properties_of_moved(),
            location: self.mover.location.to_owned(),
            rules: Arc::clone(rules),
            restored: self.snapshots.restored().clone(),
        })
    }

    /// The properties that the backup's volumes had, of claims whose data our data mover restores. In
    /// a drill those by which the volumes are deleted with their claims.
    fn properties_of_moved(&self) -> ClaimProperties {
        let moved = self
            .plan
            .by_claim
            .iter()
            .filter(|(_, planned)| matches!(planned.data, DataSource::Moved(_)));
        moved
            .filter_map(|(claim, planned)| {
                let properties = if self.drill().is_some() {
                    volumes::properties()
                } else {
                    planned.record.as_ref()?.pv_info.clone()?
                };
                Some((claim.clone(), properties))
            })
            .collect()
    }

    /// Whether data is restored into the volume of a claim that exists.
    pub(super) fn is_in_place(&self, claim: About<'_>) -> bool {
        let namespace = claim.namespace.unwrap_or_default();
        self.snapshots.restored().is_in_place(namespace, claim.name)
    }

    /// What becomes of the data of a claim, should the claim exist.
    fn existing_data(&self, namespace: &str, claim: &str) -> ExistingData {
        let policy = self.restore.spec.existing_volume_data_policy.as_deref();
        if self.snapshots.restored().is_in_place(namespace, claim) {
            ExistingData::Restored
        } else if InPlaceRestore::of(policy).is_some() {
            ExistingData::NotRestorable
        } else {
            ExistingData::Kept
        }
    }

    /// Called for a claim of the backup that was not created: stops the download of its data, if an
    /// action has started that.
    pub(super) async fn stop_download(&self, claim: &ItemId) {
        let started = &self.actions.started;
        let operation = started
            .lock()
            .iter()
            .find(|(of, _)| of.action == MOVED_NAME && of.item == *claim)
            .and_then(|(_, done)| done.executed.operation.clone());
        let (Some(operation), Some(downloads)) = (operation, &self.actions.downloads) else {
            return;
        };
        match downloads.cancel(&operation).await {
            Ok(()) => started
                .lock()
                .retain(|(of, _)| of.action != MOVED_NAME || of.item != *claim),
            // Its end will be reported as that of an operation.
            Err(error) => self.report.info(&format!(
                "DataDownload {operation} could not be cancelled: {}",
                plain(&error)
            )),
        }
    }

    /// Whether data is restored with a claim of the backup.
    pub(super) fn brings_data(&self, source: &str, claim: &str) -> bool {
        let planned = self
            .plan
            .by_claim
            .get(&(source.to_owned(), claim.to_owned()));
        planned.is_some_and(|planned| {
            planned.data.restores_volume()
                || matches!(planned.data, DataSource::CsiSnapshot | DataSource::Moved(_))
        })
    }

    /// Reports the outcome of the data of each volume that was reached, and the sources of volumes.
    pub(super) fn report_volumes(&self) {
        let mut entries = self.snapshots.restored().entries();
        if self.calls.is_dry_run() {
            // Only a real restore would create their snapshots.
            entries.extend(self.snapshots.restored().expected());
        }
        let wanted = self.restore.spec.restore_pvs != Some(false);
        let outcomes = self.report.volume_outcomes();
        let mut missing = Vec::new();

        for ((source, name), PlannedVolume { volume, data, .. }) in &self.plan.by_claim {
            let namespace = self.rules.target(source);
            let claim = PlannedClaim {
                source,
                namespace,
                name,
                volume,
                data,
                existing: self.existing_data(namespace, name),
            };
            let outcome = outcomes
                .of_claim(claim, wanted, &entries)
                .map(|outcome| self.outcome_in_drill(claim, outcome));
            let lost = self.report_data(Scope::Namespace(namespace), outcome);
            if lost.is_some() && matches!(data, DataSource::Moved(_)) {
                // Its data was requested before it was known that the claim does not get it.
                entries.retain(|one| one.namespace() != namespace || one.claim() != name);
            }
            missing.extend(lost);
        }
        for volume in self
            .saved
            .in_repository
            .iter()
            .filter(|volume| volume.claim.is_none())
        {
            let namespace = self.rules.target(&volume.namespace);
            let scope = if namespace.is_empty() {
                Scope::Velero
            } else {
                Scope::Namespace(namespace)
            };
            let outcome = outcomes.in_repository(namespace, volume);
            missing.extend(self.report_data(scope, outcome));
        }
        entries.extend(missing);
        self.report.volumes(entries);
    }

    /// Reports the claims into whose volumes nothing is restored, as pods use them. Only in a plan: in
    /// a restore the DataDownload of the claim says so.
    pub(super) async fn report_used_claims(&self) {
        if !self.calls.is_dry_run() {
            return;
        }
        for (namespace, claim) in self.snapshots.restored().in_place() {
            let scope = Scope::Namespace(&namespace);
            match claim_in_use(self.calls.client(), &namespace, &claim).await {
                Ok(Some(why)) => self.report.error(scope, why),
                Ok(None) => {}
                Err(error) => self.report.warn(
                    scope,
                    format!(
                        "whether pods use PersistentVolumeClaim {namespace}/{claim} is not known, as \
                         they cannot be listed ({}); no data is restored if one does",
                        plain(&error)
                    ),
                ),
            }
        }
    }

    /// Reports the outcome of the data of a volume. Returns the entry of a volume whose data is
    /// missing.
    fn report_data(&self, scope: Scope<'_>, outcome: Option<DataOutcome>) -> Option<VolumeInfo> {
        let DataOutcome { message, missing } = outcome?;
        match message {
            Some((Level::Error, text)) => self.report.error(scope, text),
            Some((Level::Warning, text)) => self.report.warn(scope, text),
            Some((Level::Info | Level::Debug, text)) => self.report.info(&text),
            None => {}
        }
        missing
    }
}
