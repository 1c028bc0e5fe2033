//! Decides what to do about a BackupRepository. Pure. `pods` decides about its pod, `inspection`
//! after a look into the bucket.

mod inspection;
mod pods;

use std::time::Duration;

use backup_core::{
    api::{
        BackupRepository, BackupStorageLocation, GoDuration,
        backup_repository::{BackupRepositoryPhase as Phase, MaintenanceResult},
        transfer::{MovePhase, UploaderType},
    },
    data_movement::repository_name,
    digest::short_sha256,
    repository_records::{
        CHECK_REQUEST_ANNOTATION, DataCheck, KeyChange, MAINTENANCE_REQUEST_ANNOTATION,
    },
};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::json;

use super::{check::Check, password::PasswordSecret, patches, verdict::Verdict};
use crate::location::is_read_only;

pub(super) use inspection::{BucketFacts, InspectionPlan, OtherRepositories, inspected};
pub(super) use pods::{NodeState, PodEnd, PodFacts, Work, awaited, held_up_by};

/// Time between two maintenances of a repository that names none, or none above zero.
pub(super) const DEFAULT_FREQUENCY: GoDuration = GoDuration::from_secs(24 * 3600);

/// Time between two checks of the data of a repository.
const CHECK_INTERVAL: Duration = Duration::from_hours(24);
/// Interval between checks of whether location, password or image have changed.
const RECHECK_INTERVAL: Duration = Duration::from_mins(5);
/// Time after which a repository that cannot be used for now is looked for again, and a change of
/// its keys that failed is tried again.
const RETRY_INTERVAL: Duration = Duration::from_mins(5);
/// The same for a lasting reason: what was seen may have been older than the last change.
const LASTING_RETRY_INTERVAL: Duration = Duration::from_hours(1);
/// Minimum number of attempts to prepare a repository while a transfer waits for it.
const MIN_ATTEMPTS: u32 = 3;
/// Time between a maintenance or check that failed and the next one.
const WORK_RETRY_INTERVAL: Duration = Duration::from_hours(1);
/// Time after which a requested check that has no slot is considered again.
const SLOT_INTERVAL: Duration = Duration::from_mins(1);

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
    /// The pod of the repository.
    pub(super) pod: Option<PodFacts>,
    /// The node of that pod, if the pod does not end.
    pub(super) node: NodeState,
    /// Whether a check may begin: only a few run at a time.
    pub(super) has_check_slot: bool,
    /// Timeout of a pod to start.
    pub(super) prepare_timeout: Duration,
    pub(super) now: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Plan<'a> {
    /// It is not ours, or is being deleted.
    Nothing,
    /// Check again after this time.
    Wait(Duration),
    /// A pod has ended: publish how, and remove it.
    Record(Box<PodEnd>),
    /// Publish why a pod does not end, and what to do.
    ReportStuck {
        message: String,
        holds_up_uploads: bool,
    },
    /// Look for the repository in the bucket.
    Inspect,
    Publish(Verdict),
    /// Publish this remark about a repository that can be used; `None`: remove it.
    Remark(Option<String>),
    ChangeKeys(&'a BackupStorageLocation, KeyChange),
    /// Maintain the repository in this location.
    Maintain(&'a BackupStorageLocation),
    /// Check its data.
    Check(&'a BackupStorageLocation),
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
        return pods::of_pod(pod, facts);
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
    // Also of one that cannot be used: it may lack a key of the new password.
    if let Some(change) = requested_keys(facts) {
        return Plan::ChangeKeys(location, change);
    }
    let Some(check) = check else {
        return Plan::Inspect;
    };
    match &repository.status.phase {
        Some(Phase::Ready) => ready(facts, location),
        Some(Phase::NotReady) => {
            let interval = if check.is_final {
                LASTING_RETRY_INTERVAL
            } else {
                // Transfers wait for several attempts.
                RETRY_INTERVAL.min(facts.prepare_timeout / MIN_ATTEMPTS)
            };
            match left(check.at, interval, facts.now) {
                Some(left) => Plan::Wait(left.min(RECHECK_INTERVAL)),
                None => Plan::Inspect,
            }
        }
        None | Some(Phase::New | Phase::Unknown(_)) => Plan::Inspect,
    }
}

/// Decides about a repository that can be used.
fn ready<'a>(facts: &Facts<'a>, location: &'a BackupStorageLocation) -> Plan<'a> {
    let repository = facts.repository;
    let published = repository.status.message.as_deref();
    let remark = remark(repository, location, facts.password);
    if published.filter(|message| !message.is_empty()) != remark.as_deref() {
        return Plan::Remark(remark);
    }
    let Some(until_maintenance) = until_maintenance(repository, location, facts.now) else {
        return Plan::Maintain(location);
    };
    if may_be_checked(facts) {
        return Plan::Check(location);
    }
    let is_requested = patches::request(repository, CHECK_REQUEST_ANNOTATION).is_some();
    let until_slot = if is_requested {
        SLOT_INTERVAL
    } else {
        RECHECK_INTERVAL
    };
    let until_check = until_check(repository, facts.now).unwrap_or(until_slot);
    Plan::Wait(until_maintenance.min(until_check).min(RECHECK_INTERVAL))
}

/// The message in the status of a repository that can be used: its frequency of maintenance is
/// invalid, a requested maintenance cannot begin, its data is damaged, or its keys could not be
/// changed.
fn remark(
    repository: &BackupRepository,
    location: &BackupStorageLocation,
    password: &PasswordSecret,
) -> Option<String> {
    let mut remarks = Vec::new();
    let frequency = repository.spec.maintenance_frequency;
    if frequency <= GoDuration::default() {
        remarks.push(format!(
            "spec.maintenanceFrequency is {frequency}, and has to be longer than 0s: the repository is maintained every \
             {DEFAULT_FREQUENCY}"
        ));
    }
    let is_requested = patches::request(repository, MAINTENANCE_REQUEST_ANNOTATION).is_some();
    if is_requested && is_read_only(location) {
        remarks.push(format!(
            "the requested maintenance begins when BackupStorageLocation {} is no longer read-only",
            location.name_any()
        ));
    }
    remarks.extend(DataCheck::of(repository.annotations()).known_damage());
    if let Some(change) = KeyChange::of(repository.annotations())
        && change.failed.is_some()
        && change.secret == password.version()
    {
        remarks.push(format!(
            "its keys could not be changed for the rotation of the password: {}",
            change.failure
        ));
    }
    (!remarks.is_empty()).then(|| remarks.join("; "))
}

/// The change of keys that was requested for the present Secret and has not been made.
fn requested_keys(facts: &Facts<'_>) -> Option<KeyChange> {
    let change = KeyChange::of(facts.repository.annotations())?;
    let is_wanted = !change.is_done && change.secret == facts.password.version();
    let until_retry = change
        .failed
        .and_then(|failed| left(failed, RETRY_INTERVAL, facts.now));
    (is_wanted && until_retry.is_none()).then_some(change)
}

/// Time until the next maintenance; `None` if it is due.
fn until_maintenance(
    repository: &BackupRepository,
    location: &BackupStorageLocation,
    now: Timestamp,
) -> Option<Duration> {
    if is_read_only(location) {
        return Some(RECHECK_INTERVAL);
    }
    if patches::request(repository, MAINTENANCE_REQUEST_ANNOTATION).is_some() {
        return None;
    }
    until_scheduled_maintenance(repository, now)
}

fn until_scheduled_maintenance(repository: &BackupRepository, now: Timestamp) -> Option<Duration> {
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
    let until_retry = failed.and_then(|at| left(at.0, WORK_RETRY_INTERVAL, now));
    until_due.max(until_retry)
}

/// Time until the next check of the data; `None` if it is due: it was requested, a transfer has met
/// damage, or a day has passed.
fn until_check(repository: &BackupRepository, now: Timestamp) -> Option<Duration> {
    if patches::request(repository, CHECK_REQUEST_ANNOTATION).is_some() {
        return None;
    }
    let last = DataCheck::of(repository.annotations());
    let created = repository.metadata.creation_timestamp.as_ref();
    let since = last.checked.or(created.map(|time| time.0));
    let since = since.filter(|_| last.suspicion.is_empty());
    let until_due = since.and_then(|since| left(since, CHECK_INTERVAL, now));
    let until_retry = last
        .failed
        .and_then(|failed| left(failed, WORK_RETRY_INTERVAL, now));
    until_due.max(until_retry)
}

pub(super) fn is_check_due(repository: &BackupRepository, now: Timestamp) -> bool {
    until_check(repository, now).is_none()
}

/// Whether a check of a repository that can be used may begin now.
pub(super) fn may_be_checked(facts: &Facts<'_>) -> bool {
    facts.has_check_slot && is_check_due(facts.repository, facts.now)
}

/// The part of `time` that remains after its start at `since`; `None` if it is over. A start in the
/// future, from a wrong clock, counts as now.
fn left(since: Timestamp, time: Duration, now: Timestamp) -> Option<Duration> {
    let elapsed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    time.checked_sub(elapsed).filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests;
