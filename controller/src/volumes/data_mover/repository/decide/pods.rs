//! Decides about the pod of a repository. Pure.
//!
//! A pod has the name of its BackupRepository, so there is one at a time. As long as it exists, it
//! may run: a maintenance beside an upload destroys data. A pod on a node that does not answer is
//! therefore removed from the API server only when its end is known, or Kubernetes knows that the
//! node is off: its Node is gone, or has the taint `out-of-service`, by which a user says so.

use std::time::Duration;

use backup_core::{
    api::{BackupRepository, GoDuration},
    data_movement::{MoverOutcome, MoverResult, failure_reason},
    repository_records::{CheckRequest, KeyWork},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;

use super::{Facts, Plan, is_prepared, left};
use crate::volumes::data_mover::{
    objects::EVENT_DELAY,
    pod::{VALID_FOR_ANNOTATION, WORK_LABEL},
    pod_state::PodState,
    repository::RepositoryState,
};

/// Taint of a node that is off, as a user says (Kubernetes `pkg/controller/podgc`).
pub(crate) const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Interval between looks at a pod.
const POD_INTERVAL: Duration = Duration::from_secs(3);
/// Interval between looks at a pod that does not end.
const STUCK_INTERVAL: Duration = Duration::from_secs(30);
/// Time after which a pod that was to be gone counts as stuck.
const STUCK_AFTER: Duration = Duration::from_mins(2);
/// Maximum time that a pod makes or opens a repository, or changes its keys.
const MAX_SMALL_WORK: Duration = Duration::from_mins(15);
/// Maximum time of a maintenance: uploads wait for it, and operations of a backup have four hours.
const MAX_MAINTENANCE: Duration = Duration::from_hours(3);
/// Maximum time of a check: a maintenance waits for it.
const MAX_CHECK: Duration = Duration::from_hours(3);
/// Maximum time of a check that reads all data, which a user has requested.
const MAX_FULL_CHECK: Duration = Duration::from_hours(24);

/// The pod of a repository.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodFacts {
    pub(crate) work: Work,
    pub(crate) state: PodState,
    pub(crate) created: Option<Timestamp>,
    /// When it was to be gone, if it is being deleted.
    pub(crate) deleted: Option<Timestamp>,
    pub(crate) node: Option<String>,
    /// See [`VALID_FOR_ANNOTATION`].
    pub(crate) valid_for: Option<String>,
}

/// What a pod does with a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Init,
    Open,
    Check,
    ChangeKeys(KeyWork),
    Maintenance,
}

/// How a pod of a repository ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodEnd {
    pub(crate) work: Work,
    /// Why it failed, as a sentence.
    pub(crate) failure: Option<String>,
    pub(crate) started: Option<Timestamp>,
    pub(crate) outcome: Option<MoverOutcome>,
    pub(crate) valid_for: Option<String>,
    /// Whether the pod is removed without waiting for its node.
    pub(crate) is_forced: bool,
}

/// The node of a pod that does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum NodeState {
    /// The node was not looked at, or cannot be.
    Unknown,
    /// The node may be cut off, and its pods may run.
    Present,
    /// The node is off, and its pods do not run.
    Gone,
}

impl Work {
    /// The work of a pod with this label.
    pub(crate) fn of_label(label: &str) -> Self {
        match label {
            "maintain" => Self::Maintenance,
            "open" => Self::Open,
            "check" => Self::Check,
            "add-key" => Self::ChangeKeys(KeyWork::Add),
            "remove-key" => Self::ChangeKeys(KeyWork::Remove),
            _ => Self::Init,
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Self::Init => "makes",
            Self::Open => "opens",
            Self::Check => "checks",
            Self::ChangeKeys(_) => "changes the keys of",
            Self::Maintenance => "maintains",
        }
    }

    /// Whether it makes or opens the repository: nothing can use that before.
    fn is_preparation(self) -> bool {
        matches!(self, Self::Init | Self::Open)
    }

    fn limit(self) -> Duration {
        match self {
            Self::Init | Self::Open | Self::ChangeKeys(_) => MAX_SMALL_WORK,
            Self::Check => MAX_CHECK,
            Self::Maintenance => MAX_MAINTENANCE,
        }
    }
}

impl PodFacts {
    pub(crate) fn of(pod: &Pod) -> Self {
        let label = pod.labels().get(WORK_LABEL).map(String::as_str);
        let created = pod.metadata.creation_timestamp.as_ref();
        let deleted = pod.metadata.deletion_timestamp.as_ref();
        Self {
            work: Work::of_label(label.unwrap_or_default()),
            state: PodState::of(pod),
            created: created.map(|time| time.0),
            deleted: deleted.map(|time| time.0),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            valid_for: pod.annotations().get(VALID_FOR_ANNOTATION).cloned(),
        }
    }

    /// Maximum time that it runs.
    fn limit(&self) -> Duration {
        let request = self.valid_for.as_deref().map(CheckRequest::of);
        if self.work == Work::Check && request.is_some_and(|request| request.reads_all_data) {
            return MAX_FULL_CHECK;
        }
        self.work.limit()
    }

    /// Whether it has not started for a while.
    pub(crate) fn is_slow(&self, now: Timestamp) -> bool {
        let created = self.created.unwrap_or(now);
        matches!(self.state, PodState::Waiting(_)) && left(created, EVENT_DELAY, now).is_none()
    }

    /// Adds why it does not start, as an Event says.
    pub(crate) fn add_problem(&mut self, problem: &str) {
        if let PodState::Waiting(why) = &mut self.state {
            why.push_str(": ");
            why.push_str(problem);
        }
    }

    /// Whether it should be gone, and is not.
    pub(crate) fn is_stuck(&self, now: Timestamp) -> bool {
        self.deleted
            .is_some_and(|deleted| left(deleted, STUCK_AFTER, now).is_none())
    }

    /// The message of a transfer that waits for the end of this pod. The text changes only with the
    /// state of the pod, so that it is written once.
    fn awaited(&self, name: &str, now: Timestamp) -> String {
        let verb = self.work.verb();
        let node = match &self.node {
            Some(node) => format!(" on node {node}"),
            None => String::new(),
        };
        let since = match self.created {
            Some(created) => format!(" since {created}"),
            None => String::new(),
        };
        let detail = match &self.state {
            _ if self.is_stuck(now) => {
                "; the pod does not end, and the BackupRepository of the same name says what to do"
                    .to_owned()
            }
            PodState::Waiting(why) => format!("; {why}"),
            _ => String::new(),
        };
        format!("it waits for pod {name}{node}{since}, which {verb} the repository{detail}")
    }

    fn end(&self, failure: Option<String>, outcome: Option<&MoverOutcome>) -> PodEnd {
        PodEnd {
            work: self.work,
            failure,
            started: self.created,
            outcome: outcome.cloned(),
            valid_for: self.valid_for.clone(),
            is_forced: false,
        }
    }
}

impl NodeState {
    /// `None`: there is no Node of this name.
    pub(crate) fn of(node: Option<&Node>) -> Self {
        let Some(node) = node else {
            return Self::Gone;
        };
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
        let is_off = taints.is_some_and(|all| all.iter().any(|taint| taint.key == OUT_OF_SERVICE));
        if is_off { Self::Gone } else { Self::Present }
    }

    /// Whether pods on this node surely do not run.
    pub(crate) fn is_off(self) -> bool {
        self == Self::Gone
    }
}

/// The state of a repository for a transfer that waits for the end of this pod.
pub(in crate::volumes::data_mover) fn held_up_by(
    pod: &PodFacts,
    name: &str,
    now: Timestamp,
) -> RepositoryState {
    let message = pod.awaited(name, now);
    if pod.is_stuck(now) {
        RepositoryState::Waiting(message)
    } else {
        RepositoryState::Busy(message)
    }
}

/// The state of a repository of which it is not known that it can be used. `said`: why it cannot be
/// used for now, as its status says.
pub(in crate::volumes::data_mover) fn awaited(
    repository: &BackupRepository,
    said: Option<String>,
    pod: Option<&PodFacts>,
    now: Timestamp,
) -> RepositoryState {
    if let Some(pod) = pod.filter(|pod| !pod.work.is_preparation()) {
        return held_up_by(pod, &repository.name_any(), now);
    }
    let prepared = is_prepared(&repository.spec.volume_namespace);
    let state = pod.map(|pod| &pod.state);
    RepositoryState::Waiting(match (said, state) {
        (Some(said), _) => said,
        (None, Some(PodState::Waiting(why))) => format!("{prepared}: {why}"),
        (None, _) => prepared,
    })
}

pub(super) fn of_pod(pod: &PodFacts, facts: &Facts<'_>) -> Plan<'static> {
    if pod.deleted.is_some() {
        return of_deleted(pod, facts);
    }
    let limit = match &pod.state {
        PodState::Waiting(_) => facts.prepare_timeout,
        _ => facts.prepare_timeout + pod.limit(),
    };
    let created = pod.created.unwrap_or(facts.now);
    let is_late = left(created, limit, facts.now).is_none();
    let limit = GoDuration::from(limit);
    let (failure, outcome) = match &pod.state {
        PodState::Ended(outcome) => (failure(outcome, pod.work), Some(outcome)),
        PodState::Lost(why) => (Some(why.clone()), None),
        PodState::Waiting(why) if is_late => (
            Some(format!("its pod has not started within {limit}: {why}")),
            None,
        ),
        PodState::Running if is_late => (
            Some(format!("it has not ended within {limit}, and was stopped")),
            None,
        ),
        PodState::Waiting(_) | PodState::Running => return Plan::Wait(POD_INTERVAL),
    };
    Plan::Record(Box::new(pod.end(failure, outcome)))
}

fn of_deleted(pod: &PodFacts, facts: &Facts<'_>) -> Plan<'static> {
    if !pod.is_stuck(facts.now) {
        return Plan::Wait(POD_INTERVAL);
    }
    let node = pod.node.as_deref().unwrap_or_default();
    let end = match &pod.state {
        // The node has said before that its process has ended.
        PodState::Ended(outcome) => Some(pod.end(failure(outcome, pod.work), Some(outcome))),
        _ if facts.node.is_off() => {
            let failure = format!("its pod was on node {node}, which is off");
            Some(pod.end(Some(failure), None))
        }
        _ => None,
    };
    if let Some(end) = end {
        return Plan::Record(Box::new(PodEnd {
            is_forced: true,
            ..end
        }));
    }
    let message = stuck(pod, facts);
    if facts.repository.status.message.as_ref() == Some(&message) {
        return Plan::Wait(STUCK_INTERVAL);
    }
    Plan::ReportStuck {
        message,
        holds_up_uploads: pod.work == Work::Maintenance,
    }
}

/// Why a pod does not end, and what to do.
fn stuck(pod: &PodFacts, facts: &Facts<'_>) -> String {
    let name = facts.repository.name_any();
    let verb = pod.work.verb();
    let since = match pod.deleted {
        Some(deleted) => format!(" since {deleted}"),
        None => String::new(),
    };
    let Some(node) = &pod.node else {
        return format!(
            "pod {name}, which {verb} the repository, is being deleted{since}, and does not end: `kubectl describe pod` may \
             say why"
        );
    };
    let consequence = if pod.work == Work::Maintenance {
        "Uploads into the repository wait, as a maintenance that runs beside an upload destroys data."
    } else {
        "Until then the repository is not maintained."
    };
    format!(
        "pod {name}, which {verb} the repository, is being deleted{since}, and node {node} does not confirm its end. \
         {consequence} If the machine is off for good, delete Node {node}, or mark it: kubectl taint nodes {node} \
         {OUT_OF_SERVICE}=nodeshutdown:NoExecute. Do not delete the pod with --force while it may still run"
    )
}

/// Why a pod failed; `None` if it has done its work.
fn failure(outcome: &MoverOutcome, work: Work) -> Option<String> {
    // An earlier pod has made it, and was removed before that was seen.
    let exists =
        work == Work::Init && outcome.reason.as_deref() == Some(failure_reason::REPOSITORY_EXISTS);
    match outcome.result {
        MoverResult::Complete => None,
        // Damage was found, so the check itself was completed.
        MoverResult::Incomplete if work == Work::Check => None,
        _ if exists => None,
        MoverResult::Failed | MoverResult::Incomplete | MoverResult::Cancelled => {
            Some(outcome.message.clone())
        }
    }
}

#[cfg(test)]
mod tests;
