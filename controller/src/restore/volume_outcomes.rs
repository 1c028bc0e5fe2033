//! The outcome of the data of each volume, from its plan and the outcomes of its claim, pod and
//! volume. Only this module decides and words it, for log, results and `-volumeinfo.json.gz`. Pure.

use std::collections::{BTreeMap, BTreeSet};

use backup_core::{
    repository_data::RepositoryVolume,
    volume_data::{DataSource, MovedData},
    volume_info::VolumeInfo,
};
use backup_plugins::log_line::Level;

use super::{
    about::About,
    apply::{ItemResult, Outcome},
};

/// Why data that Velero has put into a repository is not restored.
const IN_REPOSITORY: &str = "it is in a repository of files, which only Velero's node agents read";
/// The same, to be followed by a remedy.
const SAVED_IN_REPOSITORY: &str =
    "Velero has saved it in a repository of files, which only its node agents read";
/// Why data of a snapshot is not restored into a claim that exists, and what to do.
const ONLY_MOVED: &str = "its data is in a snapshot, and only data that was moved into the bucket is restored into claims \
     that exist: delete the claim and restore it again, or restore it into another namespace (namespaceMapping)";
const USE_VELERO: &str = "restore it with a Velero server that uses this bucket";

/// Outcome of an object that has a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObjectOutcome {
    Created,
    /// It existed already.
    Existing,
    /// It is a claim that existed already, and has no volume.
    Unbound,
    Failed,
    /// It was left out on purpose.
    LeftOut,
}

impl From<Outcome> for ObjectOutcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Created => Self::Created,
            Outcome::Updated | Outcome::Skipped => Self::Existing,
            Outcome::Failed => Self::Failed,
        }
    }
}

/// State in the cluster of the volume that a claim names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NamedVolume {
    /// The claim has it, or can bind to it.
    Available,
    /// It is not in the cluster.
    Absent,
    /// Another claim (`namespace/name`) has it.
    Held(String),
    /// The claim exists, and has this other volume.
    Another(String),
    /// The claim names none, and none is provisioned; the reason.
    Unprovisioned(String),
}

/// Outcomes of volumes and of their claims and pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct VolumeOutcomes {
    /// Claims, by namespace and name in the cluster.
    claims: BTreeMap<(String, String), ObjectOutcome>,
    /// Pods with volumes whose data is in a repository; `None`: not reached.
    pods: BTreeMap<(String, String), Option<ObjectOutcome>>,
    /// Volumes that claims name and that are not available to them.
    named: BTreeMap<(String, String), NamedVolume>,
    /// Why a PersistentVolume was not restored, by its name in the backup.
    failed: BTreeMap<String, String>,
}

/// What becomes of the data of a claim that exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ExistingData {
    /// The claim keeps the data that it has.
    #[default]
    Kept,
    /// The Restore wants the data of the backup in the claim's volume, and nothing brings it there.
    NotRestorable,
    /// A DataDownload restores the data of the backup into the claim's volume.
    Restored,
}

/// A claim of the backup whose data should be restored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedClaim<'a> {
    /// Namespace of the claim in the backup.
    pub(crate) source: &'a str,
    /// Namespace of the claim in the cluster.
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// The volume of the backup.
    pub(crate) volume: &'a str,
    pub(crate) data: &'a DataSource,
    pub(crate) existing: ExistingData,
}

/// Outcome of the data of one volume.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DataOutcome {
    /// Message for log and results. `None` if an error of the claim or the volume covers it.
    pub(crate) message: Option<(Level, String)>,
    /// The entry in `-volumeinfo.json.gz` of a volume whose data was not restored.
    pub(crate) missing: Option<VolumeInfo>,
}

/// A message, and why the data is missing.
type DataMessage = (Option<(Level, String)>, Option<String>);

fn info(text: String) -> DataMessage {
    (Some((Level::Info, text)), None)
}

fn missing(level: Level, text: String, why: impl Into<String>) -> DataMessage {
    (Some((level, text)), Some(why.into()))
}

impl VolumeOutcomes {
    /// Records the outcome of an item, if it is or has a volume.
    pub(crate) fn add(&mut self, about: About<'_>, applied: &ItemResult) {
        let became = match ObjectOutcome::from(applied.outcome) {
            ObjectOutcome::Existing if applied.unbound => ObjectOutcome::Unbound,
            became => became,
        };
        self.became(about, became);
        if let ("v1", "PersistentVolume", None, Outcome::Failed) = (
            about.api_version,
            about.kind,
            about.namespace,
            applied.outcome,
        ) {
            self.failed.insert(
                about.name.to_owned(),
                applied.error.clone().unwrap_or_default(),
            );
        }
    }

    pub(crate) fn left_out(&mut self, about: About<'_>) {
        self.became(about, ObjectOutcome::LeftOut);
    }

    fn became(&mut self, about: About<'_>, became: ObjectOutcome) {
        let ("v1", Some(namespace)) = (about.api_version, about.namespace) else {
            return;
        };
        let key = (namespace.to_owned(), about.name.to_owned());
        if about.kind == "PersistentVolumeClaim" {
            self.claims.insert(key, became);
        } else if about.kind == "Pod"
            && let Some(pod) = self.pods.get_mut(&key)
        {
            *pod = Some(became);
        }
    }

    /// Sets the pods (namespace in the cluster, name) whose outcomes matter.
    pub(crate) fn watch_pods(&mut self, pods: BTreeSet<(String, String)>) {
        self.pods = pods.into_iter().map(|pod| (pod, None)).collect();
    }

    /// Records the volume that a claim names.
    pub(crate) fn names(&mut self, namespace: &str, claim: &str, volume: NamedVolume) {
        if volume != NamedVolume::Available {
            self.named
                .insert((namespace.to_owned(), claim.to_owned()), volume);
        }
    }

    /// Outcome of the data of a claim; `None` if the claim is not part of the restore, or was not
    /// reached. `wanted` says whether data of volumes is restored, `told` has the volumes that were
    /// created from snapshots, or are filled from a repository.
    pub(crate) fn of_claim(
        &self,
        claim: PlannedClaim<'_>,
        wanted: bool,
        told: &[VolumeInfo],
    ) -> Option<DataOutcome> {
        let PlannedClaim {
            namespace,
            name,
            volume,
            data,
            ..
        } = claim;
        let key = (namespace.to_owned(), name.to_owned());
        let became = *self.claims.get(&key)?;
        let failed = self.failed.get(volume).filter(|_| data.restores_volume());
        let (message, why) = if !wanted && *data != DataSource::Kept {
            unwanted(claim, became)
        } else if let Some(why) = failed {
            (None, Some(why.clone()))
        } else {
            match became {
                ObjectOutcome::Created => self.created(claim, told),
                ObjectOutcome::Existing => self.existing(claim),
                ObjectOutcome::Unbound => unbound(claim),
                ObjectOutcome::Failed => (None, self.not_created(claim)),
                ObjectOutcome::LeftOut => left_to_pod(claim),
            }
        };
        let named = self
            .named
            .get(&key)
            .filter(|_| became == ObjectOutcome::Created);
        let (message, why) = match named {
            Some(NamedVolume::Unprovisioned(class)) => {
                // Whether moved data arrives is the outcome of its operation.
                let is_missing = wanted && !matches!(data, DataSource::Moved(_));
                unprovisioned(name, class, (message, why), is_missing)
            }
            _ => (message, why),
        };
        let missing = why.map(|why| VolumeInfo::not_restored(namespace, name, volume, &why));
        Some(DataOutcome { message, missing })
    }

    fn created(&self, claim: PlannedClaim<'_>, told: &[VolumeInfo]) -> DataMessage {
        let PlannedClaim {
            source,
            namespace,
            name,
            volume,
            data,
            ..
        } = claim;
        let named = self.named.get(&(namespace.to_owned(), name.to_owned()));
        if data.restores_volume() && named == Some(&NamedVolume::Absent) {
            return missing(
                Level::Warning,
                format!(
                    "claim {name:?} waits for volume {volume:?}, which is not in the cluster and not part of the restore: restore the \
                     volume, too (persistentvolumes)"
                ),
                format!("its volume {volume} is not in the cluster"),
            );
        }
        match data {
            DataSource::Kept => info(format!(
                "claim {name:?} comes back with its volume, which keeps its data"
            )),
            DataSource::NativeSnapshot => info(format!(
                "claim {name:?} comes back with a volume of the snapshot"
            )),
            DataSource::Moved(moved) => moving(claim, moved, is_told(told, claim)),
            DataSource::CsiSnapshot => {
                if is_told(told, claim) {
                    info(format!(
                        "claim {name:?} is provisioned from its CSI snapshot"
                    ))
                } else {
                    let why = "its snapshot was not restored";
                    (None, Some(why.to_owned()))
                }
            }
            DataSource::Repository => missing(
                Level::Error,
                format!(
                    "the data of claim {source}/{name} is not restored: {SAVED_IN_REPOSITORY}, so the volume is empty; {USE_VELERO}"
                ),
                IN_REPOSITORY,
            ),
            DataSource::Lost(why) => missing(
                Level::Error,
                format!(
                    "the data of claim {name:?} cannot be brought back: {why}; its volume is empty"
                ),
                *why,
            ),
            DataSource::Unsaved(why) => missing(
                Level::Warning,
                format!("claim {name:?} comes back empty: {why}"),
                why.clone(),
            ),
        }
    }

    fn existing(&self, claim: PlannedClaim<'_>) -> DataMessage {
        let PlannedClaim {
            namespace,
            name,
            volume,
            data,
            existing,
            ..
        } = claim;
        if let (ExistingData::Restored, DataSource::Moved(moved)) = (existing, data) {
            return moving_in_place(name, moved);
        }
        if existing == ExistingData::NotRestorable
            && let Some(why) = not_restorable(data)
        {
            let text = format!("{}: {why}", keeps_its_data(name));
            return missing(Level::Error, text, why);
        }
        let named = self.named.get(&(namespace.to_owned(), name.to_owned()));
        match (data, named) {
            (DataSource::Kept, Some(NamedVolume::Another(other))) => missing(
                Level::Warning,
                format!(
                    "claim {name:?} was there already with volume {other:?} and keeps the data that it has; the data of the backup is on \
                     volume {volume:?}"
                ),
                format!("its claim was there already, with volume {other}"),
            ),
            // The backup has no data for it.
            (DataSource::Kept | DataSource::Lost(_) | DataSource::Unsaved(_), _) => {
                info(keeps_its_data(name))
            }
            _ => missing(
                Level::Info,
                keeps_its_data(name),
                "its claim was there already, and keeps the data that it has",
            ),
        }
    }

    fn not_created(&self, claim: PlannedClaim<'_>) -> Option<String> {
        let named = self
            .named
            .get(&(claim.namespace.to_owned(), claim.name.to_owned()));
        match (claim.data, named) {
            (_, Some(NamedVolume::Held(holder))) => {
                Some(format!("its volume belongs to claim {holder}"))
            }
            // The volume exists with all its data.
            (DataSource::Kept, _) => None,
            _ => Some("its claim was not restored".to_owned()),
        }
    }

    /// Outcome of the data of a volume without a claim that Velero has put into a repository;
    /// `namespace` is the target of its pod. `None` if the pod is not part of the restore, or was
    /// not reached.
    pub(crate) fn in_repository(
        &self,
        namespace: &str,
        volume: &RepositoryVolume,
    ) -> Option<DataOutcome> {
        let Some((pod, _)) = &volume.mount else {
            let text = format!(
                "the data of {volume} is not restored: {SAVED_IN_REPOSITORY}; {USE_VELERO}"
            );
            return Some(DataOutcome {
                message: Some((Level::Error, text)),
                missing: None,
            });
        };
        let became = (*self.pods.get(&(namespace.to_owned(), pod.clone()))?)?;
        let (message, why) = match became {
            ObjectOutcome::Created => missing(
                Level::Error,
                format!(
                    "the data of {volume} is not restored: {SAVED_IN_REPOSITORY}, so the volume is empty; {USE_VELERO}"
                ),
                IN_REPOSITORY,
            ),
            // Only claims are unbound.
            ObjectOutcome::Existing | ObjectOutcome::Unbound => {
                let why = "its pod was there already, and keeps the data that it has";
                missing(
                    Level::Info,
                    format!("the data of {volume} is not restored: {why}"),
                    why,
                )
            }
            ObjectOutcome::Failed => (None, Some("its pod was not restored".to_owned())),
            ObjectOutcome::LeftOut => {
                let why = "its pod was left out";
                missing(
                    Level::Info,
                    format!("the data of {volume} is not restored: {why}"),
                    why,
                )
            }
        };
        let missing = why.and_then(|why| volume.not_restored(namespace, &why));
        Some(DataOutcome { message, missing })
    }
}

/// The data of a claim that was there already, and has no volume.
fn unbound(claim: PlannedClaim<'_>) -> DataMessage {
    let PlannedClaim {
        name,
        data,
        existing,
        ..
    } = claim;
    if let (ExistingData::Restored, DataSource::Moved(moved)) = (existing, data) {
        return moving_in_place(name, moved);
    }
    if existing == ExistingData::NotRestorable
        && let Some(why) = not_restorable(data)
    {
        let text = format!("{}: {why}", has_no_volume(name));
        return missing(Level::Error, text, why);
    }
    match data {
        // The backup has no data for it.
        DataSource::Lost(_) | DataSource::Unsaved(_) => info(has_no_volume(name)),
        DataSource::Kept => info(format!(
            "claim {name:?} was there already, without a volume so far; its volume is restored by itself"
        )),
        _ => missing(
            Level::Info,
            format!(
                "{}: unless another restore brings its data, delete the claim, and restore again",
                has_no_volume(name)
            ),
            "its claim was there already, without a volume",
        ),
    }
}

fn unwanted(claim: PlannedClaim<'_>, became: ObjectOutcome) -> DataMessage {
    let name = claim.name;
    match became {
        ObjectOutcome::Created => info(format!(
            "claim {name:?} comes back empty: spec.restorePVs is false"
        )),
        ObjectOutcome::Existing => info(keeps_its_data(name)),
        ObjectOutcome::Unbound => info(has_no_volume(name)),
        ObjectOutcome::Failed | ObjectOutcome::LeftOut => (None, None),
    }
}

/// Whether the data of a claim comes from a snapshot or a repository.
fn is_told(told: &[VolumeInfo], claim: PlannedClaim<'_>) -> bool {
    told.iter()
        .any(|one| one.namespace() == claim.namespace && one.claim() == claim.name)
}

/// The message about a created claim whose data is in our repository. If the data is requested, the
/// entry of the claim says what is missing.
fn moving(claim: PlannedClaim<'_>, moved: &MovedData, is_requested: bool) -> DataMessage {
    let PlannedClaim { source, name, .. } = claim;
    if !is_requested {
        return missing(
            Level::Error,
            format!(
                "the data of claim {source}/{name} is not restored: another claim of that name was deleted meanwhile, so the volume is \
                 empty; delete the claim and restore it again"
            ),
            "it was not requested from the repository",
        );
    }
    match &moved.incomplete {
        None => info(format!(
            "claim {name:?} is filled from the repository; pods wait for it until then"
        )),
        Some(why) => {
            let text = format!("claim {name:?} comes back with a part of its data: {why}");
            (Some((Level::Warning, text)), None)
        }
    }
}

/// Why saved data cannot be restored into a claim that exists.
fn not_restorable(data: &DataSource) -> Option<&'static str> {
    match data {
        DataSource::NativeSnapshot | DataSource::CsiSnapshot => Some(ONLY_MOVED),
        DataSource::Repository => Some(IN_REPOSITORY),
        DataSource::Lost(why) => Some(*why),
        DataSource::Kept | DataSource::Moved(_) | DataSource::Unsaved(_) => None,
    }
}

/// The message about a claim that exists and gets its data from our repository. How that ends is the
/// outcome of the operation.
fn moving_in_place(claim: &str, moved: &MovedData) -> DataMessage {
    match &moved.incomplete {
        None => info(format!(
            "claim {claim:?} was there already; the data of the backup is restored into its volume"
        )),
        Some(why) => {
            let text = format!(
                "claim {claim:?} was there already; a part of its data is restored into its volume: {why}"
            );
            (Some((Level::Warning, text)), None)
        }
    }
}

/// The message about a created claim that gets no volume. `said` is the message without that,
/// `is_missing` whether its data is missing for that reason.
fn unprovisioned(claim: &str, class: &str, said: DataMessage, is_missing: bool) -> DataMessage {
    let (message, why) = said;
    let (level, before) = match message {
        Some((level @ (Level::Warning | Level::Error), text)) => (level, text),
        Some((_, text)) => (Level::Warning, text),
        None => (Level::Warning, format!("claim {claim:?} is created")),
    };
    let text =
        format!("{before}; it has no volume and stays Pending until there is one for it: {class}");
    (
        Some((level, text)),
        why.or_else(|| is_missing.then(|| format!("it has no volume: {class}"))),
    )
}

/// The message about a claim that is left to the pod with its ephemeral volume.
fn left_to_pod(claim: PlannedClaim<'_>) -> DataMessage {
    let PlannedClaim { source, name, .. } = claim;
    match claim.data {
        DataSource::Repository => missing(
            Level::Error,
            format!(
                "the data of claim {source}/{name} is not restored: {SAVED_IN_REPOSITORY}; {USE_VELERO}"
            ),
            IN_REPOSITORY,
        ),
        DataSource::Lost(why) => missing(
            Level::Error,
            format!("the data of claim {name:?} cannot be brought back: {why}"),
            *why,
        ),
        DataSource::Moved(_) => missing(
            Level::Info,
            format!("the data of claim {source}/{name} is not restored: its claim was left out"),
            "its claim was left out",
        ),
        _ => (None, None),
    }
}

fn has_no_volume(claim: &str) -> String {
    format!("claim {claim:?} was there already, without a volume, and nothing is restored into it")
}

fn keeps_its_data(claim: &str) -> String {
    format!("claim {claim:?} was there already and keeps the data that it has")
}

#[cfg(test)]
mod tests;
