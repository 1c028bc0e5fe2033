//! Decides what to do about a BackupRepository. Pure.

use std::time::Duration;

use backup_core::{
    api::{
        BackupRepository, BackupStorageLocation, GoDuration,
        backup_repository::{BackupRepositoryPhase as Phase, MaintenanceResult},
        transfer::{MovePhase, UploaderType},
    },
    data_movement::{
        MoverOutcome, MoverResult, PASSWORD_KEY, PASSWORD_SECRET, failure_reason, repository_name,
    },
    digest::short_sha256,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::json;

use super::{check::Check, password::PasswordSecret};
use crate::{
    data_mover::{
        pod::{PodWork, WORK_LABEL},
        pod_state::PodState,
    },
    location::is_read_only,
};

/// Time between two maintenances of a repository that names none, or none above zero.
pub(super) const DEFAULT_FREQUENCY: GoDuration = GoDuration::from_secs(24 * 3600);

/// Interval between checks of whether location, password or image have changed.
const RECHECK_INTERVAL: Duration = Duration::from_mins(5);
/// Time after which a repository that cannot be used for now is looked for again.
const RETRY_INTERVAL: Duration = Duration::from_mins(5);
/// The same for a lasting reason: what was seen may have been older than the last change.
const LASTING_RETRY_INTERVAL: Duration = Duration::from_hours(1);
/// Time between a maintenance that failed and the next one.
const MAINTENANCE_RETRY_INTERVAL: Duration = Duration::from_hours(1);
/// Interval between looks at a pod.
const POD_INTERVAL: Duration = Duration::from_secs(3);
/// Maximum time that a pod makes a repository.
const MAX_INIT: Duration = Duration::from_mins(15);
/// Maximum time of a maintenance: uploads wait for it, and operations of a backup have four hours.
const MAX_MAINTENANCE: Duration = Duration::from_hours(3);

/// Length of the digest [`inputs`] (bytes; two hex digits each).
const DIGEST_BYTES: usize = 12;

/// What is known when a BackupRepository is reconciled.
pub(super) struct Facts<'a> {
    pub(super) repository: &'a BackupRepository,
    /// `None` if the location is gone.
    pub(super) location: Option<&'a BackupStorageLocation>,
    pub(super) password: &'a PasswordSecret,
    /// See [`inputs`].
    pub(super) inputs: String,
    /// The pod that makes or maintains the repository.
    pub(super) pod: Option<PodFacts>,
    /// Timeout of a pod to start.
    pub(super) prepare_timeout: Duration,
    pub(super) now: Timestamp,
}

/// The pod of a repository.
pub(super) struct PodFacts {
    pub(super) work: Work,
    pub(super) state: PodState,
    pub(super) created: Option<Timestamp>,
    pub(super) is_deleting: bool,
}

impl PodFacts {
    pub(super) fn of(pod: &Pod) -> Self {
        let work = pod.labels().get(WORK_LABEL).map(String::as_str);
        let created = pod.metadata.creation_timestamp.as_ref();
        Self {
            work: if work == Some(PodWork::Maintain.name()) {
                Work::Maintenance
            } else {
                Work::Init
            },
            state: PodState::of(pod),
            created: created.map(|time| time.0),
            is_deleting: pod.metadata.deletion_timestamp.is_some(),
        }
    }
}

/// What a pod does with a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Init,
    Maintenance,
}

/// What is known of the bucket.
#[derive(Clone, Debug, Default)]
pub(super) struct BucketFacts {
    /// Of the repository, for messages.
    pub(super) url: String,
    pub(super) is_read_only: bool,
    /// Whether the repository exists.
    pub(super) exists: bool,
    /// Whether there are other repositories, which have the same password.
    pub(super) has_others: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Plan<'a> {
    /// It is not ours, or is being deleted.
    Nothing,
    /// Check again after this time.
    Wait(Duration),
    /// A pod has ended: publish how, and remove it.
    Record(Box<PodEnd>),
    /// Look for the repository in the bucket.
    Inspect,
    Publish(Verdict),
    /// Maintain the repository in this location.
    Maintain(&'a BackupStorageLocation),
}

/// How a pod of a repository ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PodEnd {
    pub(super) work: Work,
    /// Why it failed, as a sentence.
    pub(super) failure: Option<String>,
    pub(super) started: Option<Timestamp>,
    pub(super) outcome: Option<MoverOutcome>,
}

/// What to do after a look into the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum InspectionPlan {
    Publish(Verdict),
    /// Create the Secret with a password: no repository needs another one.
    MakePassword,
    /// Have the repository made.
    Init,
}

/// Whether a repository can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Why it cannot be used, and what to do.
    pub(super) message: Option<String>,
    /// Whether it stays so until something is changed.
    pub(super) is_final: bool,
}

impl Verdict {
    pub(super) fn ready() -> Self {
        Self {
            message: None,
            is_final: true,
        }
    }

    /// It cannot be used until something is changed.
    pub(super) fn lasting(message: String) -> Self {
        Self {
            message: Some(message),
            is_final: true,
        }
    }

    /// It cannot be used now, and is looked for again.
    pub(super) fn retried(message: String) -> Self {
        Self {
            message: Some(message),
            is_final: false,
        }
    }

    /// What the end of a pod says about its repository; `None` if that is nothing new.
    pub(super) fn of_outcome(outcome: &MoverOutcome) -> Option<Self> {
        let message = &outcome.message;
        match outcome.reason.as_deref()? {
            failure_reason::WRONG_PASSWORD => Some(Self::lasting(format!(
                "{message}: put it into Secret {PASSWORD_SECRET}, key {PASSWORD_KEY}, and keep a copy of the present one, \
                 which other repositories may need"
            ))),
            failure_reason::UNSUPPORTED => Some(Self::lasting(format!(
                "{message}: --mover-image of the controller names the version"
            ))),
            _ => None,
        }
    }

    pub(super) fn phase(&self) -> Phase {
        match self.message {
            None => Phase::Ready,
            Some(_) => Phase::NotReady,
        }
    }
}

/// What the status says about the use of the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KnownState {
    Ready,
    Waiting(String),
    Unusable(String),
    /// Something has changed since, or nothing was published yet.
    Stale,
}

pub(super) fn known(repository: &BackupRepository, inputs: &str) -> KnownState {
    let check = Check::of(repository).filter(|check| check.inputs == inputs);
    let Some(check) = check else {
        return KnownState::Stale;
    };
    let status = &repository.status;
    let message = status.message.clone().unwrap_or_default();
    match &status.phase {
        Some(Phase::Ready) => KnownState::Ready,
        Some(Phase::NotReady) if check.is_final => KnownState::Unusable(message),
        Some(Phase::NotReady) => KnownState::Waiting(message),
        None | Some(Phase::New | Phase::Unknown(_)) => KnownState::Stale,
    }
}

/// Whether the BackupRepository is one of our data mover. Those that a Velero server has made have
/// other names.
pub(super) fn is_ours(repository: &BackupRepository) -> bool {
    let spec = &repository.spec;
    let name = repository_name(&spec.volume_namespace, &spec.backup_storage_location);
    repository.metadata.name.as_ref() == Some(&name)
        && spec.repository_type != UploaderType::Kopia
        && repository.metadata.deletion_timestamp.is_none()
}

/// A digest of all on which it depends whether a repository can be used, apart from the bucket.
pub(super) fn inputs(
    location: Option<&BackupStorageLocation>,
    password: &PasswordSecret,
    image: &str,
) -> String {
    let all = json!({
        "location": location.map(|location| &location.spec),
        "password": password.version(),
        "image": image,
    });
    short_sha256(all.to_string().as_bytes(), DIGEST_BYTES)
}

/// Whether an upload in this phase may use its repository. `has_objects`: it has our finalizer, so
/// its pod may run although it has ended.
pub(super) fn is_in_use(phase: &MovePhase, has_objects: bool) -> bool {
    let is_working = match phase {
        MovePhase::Accepted
        | MovePhase::Prepared
        | MovePhase::InProgress
        | MovePhase::Canceling => true,
        MovePhase::Unknown(phase) => !phase.is_empty(),
        MovePhase::New | MovePhase::Canceled | MovePhase::Completed | MovePhase::Failed => false,
    };
    is_working || has_objects
}

pub(super) fn location_is_gone(location: &str) -> String {
    format!(
        "BackupStorageLocation {location} does not exist: create it again to use the repository in it; the data in the \
         bucket is not touched"
    )
}

pub(super) fn is_prepared(namespace: &str) -> String {
    format!("the repository of namespace {namespace} is being prepared")
}

pub(super) fn decide<'a>(facts: &Facts<'a>) -> Plan<'a> {
    let repository = facts.repository;
    if !is_ours(repository) {
        return Plan::Nothing;
    }
    if let Some(pod) = &facts.pod {
        return of_pod(pod, facts);
    }
    let check = Check::of(repository).filter(|check| check.inputs == facts.inputs);
    let Some(location) = facts.location else {
        return if check.is_some() {
            Plan::Wait(RECHECK_INTERVAL)
        } else {
            let name = &repository.spec.backup_storage_location;
            Plan::Publish(Verdict::lasting(location_is_gone(name)))
        };
    };
    let Some(check) = check else {
        return Plan::Inspect;
    };
    match &repository.status.phase {
        Some(Phase::Ready) => maintenance(repository, location, facts.now),
        Some(Phase::NotReady) => {
            let interval = if check.is_final {
                LASTING_RETRY_INTERVAL
            } else {
                RETRY_INTERVAL
            };
            match left(check.at, interval, facts.now) {
                Some(left) => Plan::Wait(left.min(RECHECK_INTERVAL)),
                None => Plan::Inspect,
            }
        }
        None | Some(Phase::New | Phase::Unknown(_)) => Plan::Inspect,
    }
}

fn of_pod(pod: &PodFacts, facts: &Facts<'_>) -> Plan<'static> {
    if pod.is_deleting {
        return Plan::Wait(POD_INTERVAL);
    }
    let end = |failure: Option<String>, outcome: Option<&MoverOutcome>| {
        Plan::Record(Box::new(PodEnd {
            work: pod.work,
            failure,
            started: pod.created,
            outcome: outcome.cloned(),
        }))
    };
    let limit = match (&pod.state, pod.work) {
        (PodState::Waiting(_), _) => facts.prepare_timeout,
        (_, Work::Init) => facts.prepare_timeout + MAX_INIT,
        (_, Work::Maintenance) => facts.prepare_timeout + MAX_MAINTENANCE,
    };
    let created = pod.created.unwrap_or(facts.now);
    let is_late = left(created, limit, facts.now).is_none();
    match &pod.state {
        PodState::Ended(outcome) => end(failure(outcome, pod.work), Some(outcome)),
        PodState::Lost(why) => end(Some(why.clone()), None),
        PodState::Waiting(why) if is_late => end(
            Some(format!("its pod has not started within {limit:?}: {why}")),
            None,
        ),
        PodState::Running if is_late => end(
            Some(format!(
                "it has not ended within {limit:?}, and was stopped"
            )),
            None,
        ),
        PodState::Waiting(_) | PodState::Running => Plan::Wait(POD_INTERVAL),
    }
}

/// Why a pod failed; `None` if it has done its work.
fn failure(outcome: &MoverOutcome, work: Work) -> Option<String> {
    // An earlier pod has made it, and was removed before that was seen.
    let exists =
        work == Work::Init && outcome.reason.as_deref() == Some(failure_reason::REPOSITORY_EXISTS);
    match outcome.result {
        MoverResult::Complete => None,
        _ if exists => None,
        MoverResult::Failed | MoverResult::Incomplete | MoverResult::Cancelled => {
            Some(outcome.message.clone())
        }
    }
}

fn maintenance<'a>(
    repository: &BackupRepository,
    location: &'a BackupStorageLocation,
    now: Timestamp,
) -> Plan<'a> {
    if is_read_only(location) {
        return Plan::Wait(RECHECK_INTERVAL);
    }
    let status = &repository.status;
    let frequency = Some(repository.spec.maintenance_frequency)
        .filter(|frequency| *frequency > GoDuration::default())
        .unwrap_or(DEFAULT_FREQUENCY);
    let created = repository.metadata.creation_timestamp.as_ref();
    let last = status.last_maintenance_time.as_ref().or(created);
    let until_due = last.and_then(|last| left(last.0, frequency.as_std(), now));
    let attempts = status.recent_maintenance.iter();
    let failed = attempts
        .filter(|attempt| attempt.result == Some(MaintenanceResult::Failed))
        .filter_map(|attempt| attempt.complete_timestamp.as_ref())
        .max();
    let until_retry = failed.and_then(|at| left(at.0, MAINTENANCE_RETRY_INTERVAL, now));
    match until_due.max(until_retry) {
        Some(left) => Plan::Wait(left.min(RECHECK_INTERVAL)),
        None => Plan::Maintain(location),
    }
}

/// The part of `time` that remains after its start at `since`; `None` if it is over. A start in the
/// future, from a wrong clock, counts as now.
fn left(since: Timestamp, time: Duration, now: Timestamp) -> Option<Duration> {
    let elapsed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    time.checked_sub(elapsed).filter(|left| !left.is_zero())
}

/// Decides after a look into the bucket.
pub(super) fn inspected(facts: &Facts<'_>, bucket: &BucketFacts) -> InspectionPlan {
    let repository = facts.repository;
    let url = &bucket.url;
    let secret = format!("Secret {PASSWORD_SECRET}");
    let lasting = |message: String| InspectionPlan::Publish(Verdict::lasting(message));
    if bucket.is_read_only && !bucket.exists {
        return lasting(format!(
            "there is no repository at {url}, and BackupStorageLocation {} is read-only: set spec.accessMode to ReadWrite \
             to have one made",
            repository.spec.backup_storage_location
        ));
    }
    match facts.password {
        PasswordSecret::NoKey { .. } => lasting(format!(
            "{secret} has no key {PASSWORD_KEY}: add it, with the password that the repositories were made with"
        )),
        PasswordSecret::Present { .. } if bucket.exists => {
            InspectionPlan::Publish(Verdict::ready())
        }
        PasswordSecret::Present { .. } => InspectionPlan::Init,
        PasswordSecret::Absent if bucket.exists => lasting(format!(
            "there is a repository at {url}, and no {secret}: bring the Secret back, with the password that the repository \
             was made with (key {PASSWORD_KEY})"
        )),
        PasswordSecret::Absent if bucket.has_others => lasting(format!(
            "there are repositories of other namespaces, and no {secret}, which had the password of all: bring it back (key \
             {PASSWORD_KEY}); or, if the data in them is given up, create it with a new password"
        )),
        PasswordSecret::Absent => InspectionPlan::MakePassword,
    }
}

#[cfg(test)]
mod tests;
