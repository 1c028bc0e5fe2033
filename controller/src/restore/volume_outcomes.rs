//! Whose data did not come back, by how its volume was planned, and by what became of its claim and its volume. Pure.

use std::collections::BTreeMap;

use backup_core::volume_data::{self, DataSource};
use serde_json::Value;

use super::{
    apply::{Applied, Outcome},
    report::About,
};

/// Why data that Velero has put into a repository does not come back.
pub(crate) const IN_REPOSITORY: &str = "it is in a repository of files, which only Velero's node agents read";

/// What became of volumes and their claims.
#[derive(Clone, Debug, Default)]
pub(crate) struct VolumeOutcomes {
    /// Claims, by namespace and name in the cluster.
    claims: BTreeMap<(String, String), Outcome>,
    /// Why a PersistentVolume was not restored, by its name in the backup.
    failed: BTreeMap<String, String>,
}

/// A claim of the backup whose data was to come back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedClaim<'a> {
    /// Where the claim goes.
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// The volume of the backup.
    pub(crate) volume: &'a str,
    pub(crate) data: &'a DataSource,
}

impl VolumeOutcomes {
    /// Takes note of an item, if it is a volume or a claim.
    pub(crate) fn add(&mut self, about: About<'_>, applied: &Applied) {
        match (about.api_version, about.kind, about.namespace) {
            ("v1", "PersistentVolumeClaim", Some(namespace)) => {
                self.claims.insert((namespace.to_owned(), about.name.to_owned()), applied.outcome);
            }
            ("v1", "PersistentVolume", None) if applied.outcome == Outcome::Failed => {
                self.failed.insert(about.name.to_owned(), applied.error.clone().unwrap_or_default());
            }
            _ => {}
        }
    }

    /// The entry in `-volumeinfo.json.gz` of a claim whose data did not come back. `told` has the volumes that were made of
    /// snapshots.
    pub(crate) fn missing(&self, claim: PlannedClaim<'_>, told: &[Value]) -> Option<Value> {
        let PlannedClaim { namespace, name, volume, .. } = claim;
        self.why(claim, told).map(|why| volume_data::not_restored(namespace, name, volume, &why))
    }

    fn why(&self, claim: PlannedClaim<'_>, told: &[Value]) -> Option<String> {
        let PlannedClaim { namespace, name, volume, data } = claim;
        // One that was not selected, or not reached, is no part of the restore.
        let outcome = self.claims.get(&(namespace.to_owned(), name.to_owned()))?;
        let failed = self.failed.get(volume).filter(|_| data.restores_volume());
        if let Some(why) = failed {
            return Some(why.clone());
        }
        match (outcome, data) {
            // The volume is there with all that it had, whatever became of its claim; or it was made of its snapshot; or the backup
            // had nothing to bring to the claim that was there.
            (_, DataSource::Kept)
            | (Outcome::Created, DataSource::NativeSnapshot)
            | (Outcome::Updated | Outcome::Skipped, DataSource::Lost(_) | DataSource::Unsaved(_)) => None,
            (Outcome::Failed, _) => Some("its claim was not restored".to_owned()),
            (Outcome::Created, DataSource::CsiSnapshot) => {
                let is_told = |one: &Value| one["pvcNamespace"] == namespace && one["pvcName"] == name;
                (!told.iter().any(is_told)).then(|| "its snapshot was not restored".to_owned())
            }
            (Outcome::Created, DataSource::Repository) => Some(IN_REPOSITORY.to_owned()),
            (Outcome::Created, DataSource::Lost(why)) => Some((*why).to_owned()),
            (Outcome::Created, DataSource::Unsaved(why)) => Some(why.clone()),
            (Outcome::Updated | Outcome::Skipped, _) => {
                Some("its claim was there already, and keeps the data that it has".to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const CREATED: Outcome = Outcome::Created;
    const THERE: Outcome = Outcome::Skipped;
    const FAILED: Outcome = Outcome::Failed;

    #[rstest]
    #[case(CREATED, DataSource::Kept, None)]
    #[case(FAILED, DataSource::Kept, None)]
    #[case(THERE, DataSource::Kept, None)]
    #[case(CREATED, DataSource::NativeSnapshot, None)]
    #[case(CREATED, DataSource::CsiSnapshot, Some("its snapshot was not restored"))]
    #[case(CREATED, DataSource::Repository, Some("repository of files"))]
    #[case(CREATED, DataSource::Lost("its snapshot is gone"), Some("its snapshot is gone"))]
    #[case(CREATED, DataSource::Unsaved("nothing of it".to_owned()), Some("nothing of it"))]
    #[case(FAILED, DataSource::CsiSnapshot, Some("its claim was not restored"))]
    #[case(FAILED, DataSource::NativeSnapshot, Some("its claim was not restored"))]
    #[case(THERE, DataSource::CsiSnapshot, Some("was there already"))]
    #[case(Outcome::Updated, DataSource::NativeSnapshot, Some("was there already"))]
    #[case(THERE, DataSource::Repository, Some("was there already"))]
    #[case(THERE, DataSource::Lost("its snapshot is gone"), None)]
    #[case(THERE, DataSource::Unsaved("nothing of it".to_owned()), None)]
    fn why_the_data_of_a_claim_did_not_come_back(
        #[case] outcome: Outcome,
        #[case] data: DataSource,
        #[case] expected: Option<&str>,
    ) {
        let (mut outcomes, claim) = (VolumeOutcomes::default(), claim(&data));
        assert_eq!(outcomes.why(claim, &[]), None, "it was not selected");
        outcomes.add(about("PersistentVolumeClaim", Some("copy"), "data"), &Applied::quiet(outcome));
        let why = outcomes.why(claim, &[]);
        assert_eq!(why.is_some(), expected.is_some(), "{why:?}");
        assert!(why.unwrap_or_default().contains(expected.unwrap_or_default()));
        let entry = outcomes.missing(claim, &[]);
        assert_eq!(entry.is_some(), expected.is_some(), "{entry:?}");
        // Made of its snapshot, which the action has told.
        let told = [json!({"pvcNamespace": "copy", "pvcName": "data", "restoreMethod": "CSISnapshot"})];
        if (outcome, &data) == (CREATED, &DataSource::CsiSnapshot) {
            assert_eq!(outcomes.why(claim, &told), None);
        }
    }

    #[test]
    fn a_volume_that_was_not_restored_takes_the_data_of_its_claim_along() {
        for (data, is_missing) in
            [(DataSource::Kept, true), (DataSource::NativeSnapshot, true), (DataSource::CsiSnapshot, false)]
        {
            let mut outcomes = VolumeOutcomes::default();
            let failed = Applied::failed("the snapshot is gone".to_owned());
            outcomes.add(about("PersistentVolume", None, "pv"), &failed);
            outcomes.add(about("PersistentVolumeClaim", Some("copy"), "data"), &Applied::quiet(CREATED));
            let told = [json!({"pvcNamespace": "copy", "pvcName": "data"})];
            let why = outcomes.why(claim(&data), &told);
            assert_eq!(why.as_deref(), is_missing.then_some("the snapshot is gone"), "{data:?}");
        }
    }

    fn claim(data: &DataSource) -> PlannedClaim<'_> {
        PlannedClaim { namespace: "copy", name: "data", volume: "pv", data }
    }

    fn about<'a>(kind: &'a str, namespace: Option<&'a str>, name: &'a str) -> About<'a> {
        About { api_version: "v1", kind, namespace, name }
    }
}
