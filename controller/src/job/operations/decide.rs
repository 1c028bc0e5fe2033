//! When to ask about an operation, and what an answer changes. Pure.
//!
//! Running: asked at a pace, less often after errors. A temporary error ends nothing. At the
//! deadline the operation is asked once more, as it may have ended since the last call; if it still
//! runs, it gets a stop request, some time to confirm that, and then ends regardless of the answer.
//! From the stop request on it will be recorded as failed: later answers only make its error text
//! more exact.

use std::time::Duration;

use backup_core::operation::{OperationPhase, OperationStatus};
use jiff::Timestamp;

use backup_actions::OperationProgress;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Pause between two calls about one operation.
    pub every: Duration,
    /// Maximum of this pause after errors.
    pub cap: Duration,
    /// Time for an operation to confirm a stop request.
    pub confirm: Duration,
}

impl Pace {
    /// From `--item-operation-sync-frequency`.
    pub(crate) fn of(every: Duration) -> Self {
        let every = every.max(Duration::from_millis(100));
        Self {
            every,
            cap: (every * 12).max(Duration::from_secs(1)),
            confirm: every * 2,
        }
    }
}

/// Why an operation was asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    TimedOut(Duration),
    Cancelled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// No call before this time (monotonic clock).
    Wait(Duration),
    Progress,
    Cancel,
    Nothing,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    /// Answer to `Progress`.
    Progress(OperationProgress),
    /// Answer to `Cancel`: it was delivered.
    Told,
    /// No answer, or a temporary error.
    Passing(String),
    /// A permanent error: no such action, operation or method.
    Final(String),
}

#[derive(Clone, Debug, PartialEq)]
enum Stage {
    Running,
    /// To be sent a stop request, until this time.
    Stopping(Stop, Duration),
    /// Sent; the operation may confirm until this time. The text says if sending failed.
    Confirming(Stop, Duration, Option<String>),
}

/// One operation that is polled. Times are of a monotonic clock, except those in the status.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OperationState {
    /// As stored.
    pub status: OperationStatus,
    stage: Stage,
    deadline: Duration,
    timeout: Duration,
    next: Duration,
    failures: u32,
}

impl OperationState {
    /// An operation with its stored status, at `now` (wall-clock time: `wall`). If its creation
    /// time is missing or in the future, `wall` is used.
    pub(crate) fn new(
        mut status: OperationStatus,
        timeout: Duration,
        now: Duration,
        wall: Timestamp,
    ) -> Self {
        let created = status.created.map_or(wall, |created| created.min(wall));
        status.created = Some(created);
        let age = Duration::try_from(wall.duration_since(created)).unwrap_or_default();
        let left = timeout.saturating_sub(age);
        Self {
            status,
            stage: Stage::Running,
            deadline: now.saturating_add(left),
            timeout,
            next: now,
            failures: 0,
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.status.phase.has_ended()
    }

    pub(crate) fn call(&self, now: Duration) -> Call {
        if self.has_ended() {
            return Call::Nothing;
        }
        let (at, call) = match self.stage {
            // Asked at the deadline, regardless of the pace.
            Stage::Running => (self.next.min(self.deadline), Call::Progress),
            Stage::Stopping(_, until) => (self.next.min(until), Call::Cancel),
            Stage::Confirming(_, until, _) => (self.next.min(until), Call::Progress),
        };
        if at <= now { call } else { Call::Wait(at) }
    }

    /// The user cancelled it. No effect if the operation has ended or was asked to stop before.
    pub(crate) fn stop(&mut self, now: Duration, pace: Pace) {
        if !self.has_ended() && self.stage == Stage::Running {
            self.begin_stop(Stop::Cancelled, now, pace);
        }
    }

    /// Takes the answer to a call that was made at `asked`; `jitter` (0 to 1) spreads calls that
    /// failed together.
    pub(crate) fn answered(
        &mut self,
        asked: Duration,
        answer: Answer,
        now: Duration,
        pace: Pace,
        jitter: f64,
    ) {
        if self.has_ended() {
            return;
        }
        match (self.stage.clone(), answer) {
            (Stage::Running, Answer::Progress(progress)) => {
                self.failures = 0;
                self.take(&progress);
                if progress.completed {
                    self.end(progress.error);
                } else {
                    self.status.error = progress.error;
                    self.run_on(asked, now, pace, jitter);
                }
            }
            (Stage::Running, Answer::Final(reason)) => self.end(reason),
            (Stage::Running, Answer::Passing(reason)) => {
                self.failures = self.failures.saturating_add(1);
                self.status.error = reason;
                self.run_on(asked, now, pace, jitter);
            }
            (Stage::Stopping(stop, until), Answer::Passing(reason)) if asked < until => {
                self.failures = self.failures.saturating_add(1);
                self.next = now.saturating_add(pace.every);
                self.stage = Stage::Stopping(stop, until);
                self.status.error =
                    format!("{}; it could not be told to stop yet: {reason}", why(stop));
            }
            (Stage::Stopping(stop, until), answer) => {
                let told = match answer {
                    Answer::Passing(reason) | Answer::Final(reason) => {
                        Some(format!("it could not be told to stop: {reason}"))
                    }
                    Answer::Told | Answer::Progress(_) => None,
                };
                // Asked at once: most operations have stopped by then.
                self.next = now;
                self.stage = Stage::Confirming(stop, until.max(now), told);
            }
            (Stage::Confirming(stop, until, told), answer) => {
                self.confirmed(stop, until, told, answer, asked, now, pace);
            }
            (Stage::Running, Answer::Told) => self.run_on(asked, now, pace, jitter),
        }
    }

    #[allow(clippy::too_many_arguments)] // one place calls it, with the parts of a stage
    fn confirmed(
        &mut self,
        stop: Stop,
        until: Duration,
        told: Option<String>,
        answer: Answer,
        asked: Duration,
        now: Duration,
        pace: Pace,
    ) {
        let end = match answer {
            Answer::Progress(progress) => {
                self.take(&progress);
                match (progress.completed, progress.error) {
                    (true, error) if error.is_empty() => {
                        Some("it completed all the same".to_owned())
                    }
                    (true, error) => Some(format!("it has ended: {error}")),
                    (false, _) => None,
                }
            }
            Answer::Final(reason) => Some(format!("what became of it is not known: {reason}")),
            Answer::Passing(_) | Answer::Told => None,
        };
        let end = end.or_else(|| {
            (asked >= until).then(|| "it has not confirmed that it has stopped".to_owned())
        });
        let Some(end) = end else {
            self.next = now.saturating_add(pace.every);
            return;
        };
        let mut text = why(stop);
        for part in told.into_iter().chain([end]) {
            text.push_str("; ");
            text.push_str(&part);
        }
        self.end(text);
    }

    /// Still running: schedules the next call, or begins the stop at the deadline.
    fn run_on(&mut self, asked: Duration, now: Duration, pace: Pace, jitter: f64) {
        if self.status.phase == OperationPhase::New && self.status.started.is_some() {
            self.status.phase = OperationPhase::InProgress;
        }
        if asked >= self.deadline {
            return self.begin_stop(Stop::TimedOut(self.timeout), now, pace);
        }
        let factor = 2_u32.saturating_pow(self.failures.min(16));
        let step = pace.every.saturating_mul(factor).min(pace.cap);
        let step = if self.failures == 0 {
            step
        } else {
            step.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
        };
        self.next = now.saturating_add(step).min(self.deadline.max(now));
    }

    fn begin_stop(&mut self, stop: Stop, now: Duration, pace: Pace) {
        self.next = now;
        self.failures = 0;
        self.status.error = why(stop);
        self.stage = Stage::Stopping(stop, now.saturating_add(pace.confirm));
    }

    fn take(&mut self, progress: &OperationProgress) {
        let status = &mut self.status;
        status.n_completed = progress.done;
        status.n_total = progress.total;
        status.operation_units.clone_from(&progress.units);
        status.description.clone_from(&progress.description);
        // A time that is not repeated keeps its last value.
        status.started = progress.started.or(status.started);
        status.updated = progress.updated.or(status.updated);
    }

    fn end(&mut self, error: String) {
        self.status.phase = if error.is_empty() {
            OperationPhase::Completed
        } else {
            OperationPhase::Failed
        };
        self.status.error = error;
    }
}

/// The texts begin like Velero's.
fn why(stop: Stop) -> String {
    match stop {
        Stop::TimedOut(timeout) => {
            let timeout = backup_core::api::GoDuration::from(timeout);
            format!(
                "Asynchronous action timed out: it had not ended {timeout} after it was started, and was told to stop"
            )
        }
        Stop::Cancelled => "cancelled: its backup or restore was cancelled".to_owned(),
    }
}

#[cfg(test)]
mod tests;
