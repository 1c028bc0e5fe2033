//! Reads what decides on the removal of backups. Nothing is cached.

use backup_core::{
    api::{Backup, DeleteBackupRequest, Schedule},
    labels,
    restorability::Places,
    retention::{Retention, RetentionFacts, ScheduleRules},
};
use backup_runtime::{Cluster, list};
use kube::ResourceExt as _;

use super::decide::is_open;
use crate::location::Locations;

/// All backups of the installation, and what else decides on them.
pub(super) struct RetentionData {
    /// Without those that cannot be decoded: they never expire.
    pub(super) backups: Vec<RetentionFacts>,
    pub(super) rules: ScheduleRules,
    places: Places,
    requests: Vec<DeleteBackupRequest>,
}

impl RetentionData {
    pub(super) async fn read(
        cluster: &Cluster,
        locations: &Locations,
    ) -> Result<Self, kube::Error> {
        let backups = list::raw::<Backup, _>(cluster, "", |object| {
            let backup: Backup = list::decode(&object).ok()?;
            Some(RetentionFacts::of(&backup))
        })
        .await?;
        let requests =
            list::raw::<DeleteBackupRequest, _>(cluster, "", |object| list::decode(&object).ok())
                .await?;
        let schedules = list::raw::<Schedule, _>(cluster, "", |object| {
            let schedule = list::decode::<Schedule>(&object);
            let schedule =
                schedule.map_err(|error| format!("the Schedule cannot be read: {error}"));
            Some((object.name_any(), schedule))
        })
        .await?;
        let mut rules = ScheduleRules::default();
        for (name, schedule) in &schedules {
            rules.add(name, schedule.as_ref().map_err(Clone::clone));
        }
        Ok(Self {
            backups,
            rules,
            places: Places::of(&locations.all().await?),
            requests,
        })
    }

    pub(super) fn judge(&self) -> Retention<'_> {
        Retention::new(&self.backups, &self.places, |facts| self.leaves(facts))
    }

    /// Whether the deletion of a backup was requested.
    pub(super) fn leaves(&self, backup: &RetentionFacts) -> bool {
        self.requests_for(backup).any(is_open)
    }

    /// Requests to delete this very backup.
    pub(super) fn requests_for(
        &self,
        backup: &RetentionFacts,
    ) -> impl Iterator<Item = &DeleteBackupRequest> {
        self.requests.iter().filter(move |request| {
            let uid = request.labels().get(labels::BACKUP_UID);
            request.spec.backup_name == backup.name && uid.is_none_or(|uid| *uid == backup.uid)
        })
    }
}
