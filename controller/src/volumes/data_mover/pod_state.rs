//! What a pod with `backup-mover` does, from its status.

use backup_core::{
    data_movement::{MoverOutcome, MoverResult},
    text::shortened,
};
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateTerminated, ContainerStateWaiting, Pod, PodStatus,
};

use super::pod::CONTAINER;

/// Exit code of a process that was killed by SIGKILL.
const KILLED: i32 = 137;
/// How much of an unreadable message is shown (characters).
const MAX_EXCERPT_CHARS: usize = 300;
/// Reasons of a waiting container that say no more than that it is about to start.
const STARTING: [&str; 2] = ["ContainerCreating", "PodInitializing"];

#[derive(Clone, Debug, PartialEq)]
pub(super) enum PodState {
    /// It does not run yet; why.
    Waiting(String),
    Running,
    /// It has ended, and says how.
    Ended(MoverOutcome),
    /// It was killed from outside, so another one may succeed; why.
    Lost(String),
}

impl PodState {
    pub(super) fn of(pod: &Pod) -> Self {
        let Some(status) = &pod.status else {
            return Self::Waiting("its pod was just created".to_owned());
        };
        let state = state(status);
        if let Some(ended) = state.and_then(|state| state.terminated.as_ref()) {
            return Self::ended(ended, status);
        }
        match status.phase.as_deref() {
            Some("Failed" | "Succeeded") => return Self::Lost(killed(status)),
            Some("Unknown") => {
                return Self::Lost("the node of its pod does not answer".to_owned());
            }
            _ => {}
        }
        if state.is_some_and(|state| state.running.is_some()) {
            return Self::Running;
        }
        let waiting = state.and_then(|state| state.waiting.as_ref());
        Self::Waiting(waits(waiting, status))
    }

    fn ended(ended: &ContainerStateTerminated, status: &PodStatus) -> Self {
        let message = ended.message.as_deref().unwrap_or_default();
        if let Some(outcome) = outcome(message) {
            // It was asked to end with its pod, and had the time to say so.
            let is_evicted = outcome.result == MoverResult::Cancelled && status.reason.is_some();
            return if is_evicted {
                Self::Lost(killed(status))
            } else {
                Self::Ended(outcome)
            };
        }
        let reason = ended.reason.as_deref().unwrap_or_default();
        if reason == "OOMKilled" {
            return Self::Lost(
                "it needed more memory than its limit (OOMKilled): raise --mover-memory-limit of the controller"
                    .to_owned(),
            );
        }
        if status.reason.is_some() || reason == "ContainerStatusUnknown" {
            return Self::Lost(killed(status));
        }
        if ended.exit_code == KILLED {
            return Self::Lost(format!("it was killed (exit code {KILLED})"));
        }
        let said = match message.trim() {
            "" => "it left no message".to_owned(),
            message => format!("it said {:?}", shortened(message, MAX_EXCERPT_CHARS)),
        };
        Self::Ended(MoverOutcome {
            result: MoverResult::Failed,
            message: format!(
                "backup-mover ended with exit code {} and without an outcome; {said}",
                ended.exit_code
            ),
            ..MoverOutcome::default()
        })
    }
}

/// The state of the container; `None` before the kubelet has seen the pod.
fn state(status: &PodStatus) -> Option<&ContainerState> {
    let mut containers = status.container_statuses.iter().flatten();
    containers
        .find(|container| container.name == CONTAINER)
        .and_then(|container| container.state.as_ref())
}

/// The outcome in a termination message, or in the last line of the log in place of one.
fn outcome(message: &str) -> Option<MoverOutcome> {
    let last = message.lines().rev().find(|line| !line.trim().is_empty())?;
    let outcome: MoverOutcome = serde_json::from_str(last).ok()?;
    // Any JSON object could be decoded: each field has a default.
    (!outcome.operation.is_empty()).then_some(outcome)
}

/// Why a pod was killed from outside.
fn killed(status: &PodStatus) -> String {
    match (status.reason.as_deref(), status.message.as_deref()) {
        (Some(reason), Some(message)) => format!("its pod was killed ({reason}): {message}"),
        (Some(reason), None) => format!("its pod was killed ({reason})"),
        (None, Some(message)) => format!("its pod was killed: {message}"),
        (None, None) => "its pod was killed".to_owned(),
    }
}

fn waits(waiting: Option<&ContainerStateWaiting>, status: &PodStatus) -> String {
    if let Some(waiting) = waiting {
        let reason = waiting.reason.as_deref().unwrap_or_default();
        let message = waiting.message.as_deref().unwrap_or_default();
        if !reason.is_empty() && !STARTING.contains(&reason) {
            return match message {
                "" => format!("its pod does not start ({reason})"),
                message => format!("its pod does not start ({reason}): {message}"),
            };
        }
    }
    let mut conditions = status.conditions.iter().flatten();
    let unscheduled = conditions
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    match unscheduled {
        Some(condition) => {
            let message = condition.message.as_deref().unwrap_or("no reason is given");
            format!("its pod cannot be scheduled: {message}")
        }
        None => "its pod is being started".to_owned(),
    }
}

#[cfg(test)]
mod tests;
