//! Decides the next step of a DataUpload. Pure.
//!
//! The state of an upload is its phase, its annotations, and what exists under its name: content,
//! VolumeSnapshot, claim and pod. No step depends on anything else, and each can be repeated, so a
//! controller that is killed continues wherever it was:
//!
//! | killed after | what the next one finds | what it does |
//! | --- | --- | --- |
//! | nothing | New | the checks again; nothing exists yet |
//! | the acceptance | Accepted, nothing else | makes the objects |
//! | some of the objects | Accepted, some exist | creates those that are missing; names are derived, so none is made twice |
//! | the pod | Accepted, all exist | publishes Prepared |
//! | the pod has started | Prepared, pod running | publishes InProgress |
//! | the pod has ended | any of these, pod ended | reads the outcome from the pod, which stays until the outcome is published |
//! | the end is published | ended, with finalizer | removes the objects, then unneeded snapshots, then the finalizer; what is gone is no error |
//! | a lost pod was counted | Accepted, annotation with the uid of the pod | removes that pod, and makes the next one |
//! | the pod of a cancelled upload was deleted | not ended, no pod | publishes Canceled |
//!
//! A pod that runs is gone before the upload ends, except one that cannot be removed for
//! [`REMOVAL_TIMEOUT`]: so no maintenance of the repository begins beside it.

pub(super) mod unneeded;

use std::time::Duration;

use backup_core::{
    api::{DataUpload, GoDuration, transfer::MovePhase},
    data_movement::{
        ATTEMPTS_ANNOTATION, DATA_MOVER, FINALIZER, FIRST_LOSS_ANNOTATION, MoverOutcome,
        MoverProgress, MoverResult,
    },
    text::{listed, shortened},
};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::source::{Source, SourceSnapshot};
use crate::volumes::data_mover::{
    objects::REMOVAL_TIMEOUT, pod::REDUCED, pod_state::PodState, repository::RepositoryState,
    repository_wait,
};

/// Annotation of a DataUpload: uid of the pod whose loss was counted last.
pub(super) const LOST_POD: &str = "backup-controller/lost-pod";
/// Maximum number of pods that are made for an upload, one after the other; the second one works
/// [`REDUCED`].
const MAX_ATTEMPTS: u32 = 2;
/// Maximum length of a reason in a message about files (characters).
const MAX_REASON_CHARS: usize = 100;
/// Maximum number of files that a message names.
const MAX_NAMED_FILES: usize = 5;

/// What was read for a decision, as far as the phase of the upload needs it.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) source: Source,
    pub(super) repository: RepositoryState,
    /// Whether fewer transfers than allowed are active.
    pub(super) has_room: bool,
    /// The pod of this upload.
    pub(super) pod: Option<SeenPod>,
    /// Why the claim of this upload has no volume, as an Event says.
    pub(super) claim_problem: Option<String>,
    pub(super) progress: Option<MoverProgress>,
    pub(super) prepare_timeout: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct SeenPod {
    pub(super) uid: String,
    pub(super) state: PodState,
    pub(super) node: Option<String>,
    /// When it was to be gone, if it is being deleted.
    pub(super) deleted: Option<Timestamp>,
    /// Why it does not start, as an Event says.
    pub(super) problem: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// There is nothing to do.
    Nothing,
    /// Wait for other transfers.
    Queue(String),
    /// Wait for the snapshot, or for a pod that works on the repository.
    AwaitSource(String),
    /// Wait until the repository can be used.
    AwaitRepository(String),
    /// Reserve a place among the transfers, and add the finalizer.
    Accept,
    /// Make the volume and its pod, as far as they are missing; then the upload is Prepared.
    Prepare(SourceSnapshot),
    /// Wait for the pod to run.
    AwaitPod(String),
    /// Publish that the pod runs.
    Start { node: Option<String> },
    /// Publish how far it is.
    Follow,
    /// Count a lost pod, and accept the upload once more.
    Retry {
        /// Uid of the lost pod; empty if it has disappeared.
        pod: String,
        attempt: u32,
        why: String,
    },
    /// Delete the pod, and check again.
    RemovePod,
    /// Publish the end.
    End(Ending),
    /// Remove all that was made, then the finalizer.
    Clean,
}

/// How an upload ends.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ending {
    pub(super) phase: MovePhase,
    pub(super) message: Option<String>,
    /// What was saved, also if something is missing in it.
    pub(super) saved: Option<SavedData>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SavedData {
    /// Id of the snapshot in the repository.
    pub(super) snapshot: String,
    pub(super) files: u64,
    pub(super) bytes: u64,
    /// Bytes that were added to the repository.
    pub(super) new_bytes: u64,
}

impl Ending {
    pub(super) fn failed(message: String) -> Self {
        Self {
            phase: MovePhase::Failed,
            message: Some(message),
            saved: None,
        }
    }

    fn canceled(message: Option<String>) -> Self {
        Self {
            phase: MovePhase::Canceled,
            message,
            saved: None,
        }
    }

    /// The end after this outcome of the pod.
    fn of(outcome: &MoverOutcome, is_stopped: bool) -> Self {
        let snapshot = outcome.snapshot.clone().filter(|id| !id.is_empty());
        let saved = snapshot.map(|snapshot| SavedData {
            snapshot,
            files: outcome.files,
            bytes: outcome.bytes,
            new_bytes: outcome.new_bytes,
        });
        match (outcome.result, saved) {
            (MoverResult::Complete, Some(saved)) => Self {
                phase: MovePhase::Completed,
                message: None,
                saved: Some(saved),
            },
            (MoverResult::Incomplete, Some(saved)) => Self {
                phase: MovePhase::Failed,
                message: Some(incomplete(outcome)),
                saved: Some(saved),
            },
            _ if is_stopped => Self::canceled(None),
            (MoverResult::Complete | MoverResult::Incomplete, None) => Self::failed(
                "backup-mover ended without naming a snapshot, so nothing can be restored; make another backup"
                    .to_owned(),
            ),
            (MoverResult::Failed | MoverResult::Cancelled, _) => {
                Self::failed(format!("its data was not saved: {}", outcome.message))
            }
        }
    }
}

/// Counts what is missing in a snapshot, and names the first files.
fn incomplete(outcome: &MoverOutcome) -> String {
    let failures = &outcome.failures;
    let named: Vec<String> = failures
        .first
        .iter()
        .take(MAX_NAMED_FILES)
        .map(|failure| {
            let reason = shortened(&failure.reason, MAX_REASON_CHARS);
            format!("{} ({reason})", failure.path)
        })
        .collect();
    let total = usize::try_from(failures.count).unwrap_or(usize::MAX);
    let count = match failures.count {
        1 => "1 file or folder".to_owned(),
        count => format!("{count} files or folders"),
    };
    format!(
        "{count} could not be saved: {}; all others were, and can be restored",
        listed(&named, total)
    )
}

/// Whether an upload needs no work: it is of another data mover, or has ended and was cleaned up.
pub(super) fn is_settled(upload: &DataUpload) -> bool {
    upload.spec.mover.datamover.as_deref() != Some(DATA_MOVER)
        || (has_ended(upload) && !has_finalizer(upload))
}

/// Whether an upload may be accepted, as far as it says so itself.
pub(super) fn may_be_accepted(upload: &DataUpload) -> bool {
    let phase = &upload.status.transfer.phase;
    matches!(phase, None | Some(MovePhase::New)) && !is_stopped(upload)
}

pub(super) fn has_finalizer(upload: &DataUpload) -> bool {
    upload.finalizers().iter().any(|name| name == FINALIZER)
}

fn has_ended(upload: &DataUpload) -> bool {
    phase(upload).is_some_and(MovePhase::has_ended)
}

/// Whether it is cancelled, or deleted, which cancels it.
fn is_stopped(upload: &DataUpload) -> bool {
    upload.spec.mover.cancel
        || upload.metadata.deletion_timestamp.is_some()
        || upload.status.transfer.phase == Some(MovePhase::Canceling)
}

pub(super) fn decide(upload: &DataUpload, facts: &Facts, now: Timestamp) -> Step {
    match &upload.status.transfer.phase {
        None | Some(MovePhase::New) => new(upload, facts, now),
        Some(
            MovePhase::Accepted
            | MovePhase::Prepared
            | MovePhase::InProgress
            | MovePhase::Canceling,
        ) => active(upload, facts, now),
        Some(MovePhase::Completed | MovePhase::Failed | MovePhase::Canceled) => {
            if has_finalizer(upload) {
                Step::Clean
            } else {
                Step::Nothing
            }
        }
        // A newer version has written it, and continues it.
        Some(MovePhase::Unknown(_)) => Step::Nothing,
    }
}

fn new(upload: &DataUpload, facts: &Facts, now: Timestamp) -> Step {
    if is_stopped(upload) {
        return Step::End(Ending::canceled(None));
    }
    match &facts.source {
        Source::Unusable(why) => return Step::End(Ending::failed(why.clone())),
        Source::Waiting(why) => return Step::AwaitSource(why.clone()),
        Source::Ready(_) => {}
    }
    if !facts.has_room {
        return Step::Queue("it waits for other transfers of volume data to end".to_owned());
    }
    match &facts.repository {
        RepositoryState::Ready => Step::Accept,
        RepositoryState::Busy(why) => Step::AwaitSource(why.clone()),
        RepositoryState::Waiting(why) => {
            let failure = repository_wait::too_late(facts.prepare_timeout, why);
            await_repository(upload, facts, now, why, failure)
        }
        // Perhaps for a moment only, until a user has corrected that.
        RepositoryState::Unusable(why) => await_repository(upload, facts, now, why, why.clone()),
    }
}

/// Waits for a repository that cannot be used; `failure` is the message once that takes too long.
fn await_repository(
    upload: &DataUpload,
    facts: &Facts,
    now: Timestamp,
    why: &str,
    failure: String,
) -> Step {
    if repository_wait::is_over(upload.annotations(), facts.prepare_timeout, now) {
        Step::End(Ending::failed(failure))
    } else {
        Step::AwaitRepository(why.to_owned())
    }
}

fn active(upload: &DataUpload, facts: &Facts, now: Timestamp) -> Step {
    if is_stopped(upload) {
        return stop(facts, now);
    }
    let Some(pod) = &facts.pod else {
        return without_pod(upload, facts, now);
    };
    let annotations = upload.annotations();
    if annotations.get(LOST_POD) == Some(&pod.uid) {
        // Counted before; the next pod has its name.
        let why = "its lost pod cannot be removed, as its node does not answer: remove the node, or delete the pod with --force";
        return overdue(upload, facts, now, why).unwrap_or(Step::RemovePod);
    }
    match &pod.state {
        PodState::Waiting(why) => {
            let why = facts
                .claim_problem
                .as_ref()
                .map(|problem| format!("its volume is not made: {problem}"))
                .or_else(|| {
                    pod.problem
                        .as_ref()
                        .map(|problem| format!("{why}: {problem}"))
                })
                .unwrap_or_else(|| why.clone());
            if let Some(end) = overdue(upload, facts, now, &why) {
                return end;
            }
            if phase(upload) == Some(&MovePhase::Accepted) {
                return make(facts);
            }
            Step::AwaitPod(why)
        }
        PodState::Running => {
            if is_stuck(pod, now) {
                return lost(
                    upload,
                    pod,
                    "its pod was deleted, and its node does not answer",
                );
            }
            if phase(upload) == Some(&MovePhase::InProgress) {
                Step::Follow
            } else {
                Step::Start {
                    node: pod.node.clone(),
                }
            }
        }
        PodState::Ended(outcome) if outcome.result == MoverResult::Cancelled => lost(
            upload,
            pod,
            "its pod was ended from outside, such as by draining its node",
        ),
        PodState::Ended(outcome) => Step::End(Ending::of(outcome, false)),
        PodState::Lost(why) => lost(upload, pod, why),
    }
}

/// Stops a cancelled upload.
fn stop(facts: &Facts, now: Timestamp) -> Step {
    let Some(pod) = &facts.pod else {
        return Step::End(Ending::canceled(None));
    };
    match &pod.state {
        // It may have been complete already.
        PodState::Ended(outcome) => Step::End(Ending::of(outcome, true)),
        _ if is_stuck(pod, now) => {
            let why = "its pod cannot be removed, as its node does not answer: remove the node, or delete the pod with --force";
            Step::End(Ending::canceled(Some(why.to_owned())))
        }
        _ => Step::RemovePod,
    }
}

fn without_pod(upload: &DataUpload, facts: &Facts, now: Timestamp) -> Step {
    if phase(upload) == Some(&MovePhase::InProgress) {
        let gone = SeenPod {
            uid: String::new(),
            state: PodState::Running,
            node: None,
            deleted: None,
            problem: None,
        };
        return lost(upload, &gone, "its pod has disappeared");
    }
    let said = upload.status.transfer.message.as_deref();
    let why = facts.claim_problem.as_deref().or(said);
    overdue(upload, facts, now, why.unwrap_or("its pod was not made"))
        .unwrap_or_else(|| make(facts))
}

fn make(facts: &Facts) -> Step {
    match &facts.source {
        Source::Ready(source) => Step::Prepare(source.clone()),
        Source::Waiting(why) => Step::AwaitPod(why.clone()),
        Source::Unusable(why) => Step::End(Ending::failed(why.clone())),
    }
}

/// After the loss of a pod: another one, or the end.
fn lost(upload: &DataUpload, pod: &SeenPod, why: &str) -> Step {
    let annotations = upload.annotations();
    let attempts = annotations.get(ATTEMPTS_ANNOTATION);
    let attempt: u32 = attempts.and_then(|text| text.parse().ok()).unwrap_or(1);
    if attempt >= MAX_ATTEMPTS {
        let first = annotations.get(FIRST_LOSS_ANNOTATION);
        let first = first.map_or("its pod was lost", String::as_str);
        return Step::End(Ending::failed(format!(
            "its data was not saved in {MAX_ATTEMPTS} attempts: in the first one {first}; in the last \
             one, {REDUCED}, {why}"
        )));
    }
    Step::Retry {
        pod: pod.uid.clone(),
        attempt: attempt + 1,
        why: why.to_owned(),
    }
}

/// The end of an upload whose pod does not run in time.
fn overdue(upload: &DataUpload, facts: &Facts, now: Timestamp, why: &str) -> Option<Step> {
    let accepted = upload.status.transfer.accepted_timestamp.as_ref();
    let since = accepted
        .or(upload.metadata.creation_timestamp.as_ref())
        .map_or(now, |time| time.0);
    let timeout = facts.prepare_timeout;
    is_over(since, timeout, now).then(|| {
        Step::End(Ending::failed(format!(
            "its pod did not run within {} (--data-mover-prepare-timeout): {why}",
            GoDuration::from(timeout)
        )))
    })
}

/// Whether a pod that is being deleted stays, as its node does not answer.
fn is_stuck(pod: &SeenPod, now: Timestamp) -> bool {
    pod.deleted
        .is_some_and(|deleted| is_over(deleted, REMOVAL_TIMEOUT, now))
}

fn is_over(since: Timestamp, timeout: Duration, now: Timestamp) -> bool {
    // A time in the future, from a wrong clock, counts as now.
    let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    passed >= timeout
}

pub(super) fn phase(upload: &DataUpload) -> Option<&MovePhase> {
    upload.status.transfer.phase.as_ref()
}

#[cfg(test)]
mod tests;
