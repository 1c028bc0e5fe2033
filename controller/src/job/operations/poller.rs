//! Polls the operations of one backup or restore.
//!
//! Every operation is asked separately, so an action that hangs blocks no other. The number of
//! concurrent calls is limited for all of them together.

use std::{sync::Arc, time::Duration};

use backup_core::operation::{Operation as _, OperationStatus};
use backup_runtime::clock::Clock;
use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use jiff::Timestamp;
use tokio::sync::Semaphore;

use super::{
    call::{self, Registry, Subject},
    decide::{Answer, Call, OperationState, Pace},
    flush_requests::{FlushReceiver, FlushRequests},
};

/// The longest sleep: then due calls are looked for again, in case the clocks disagree.
const MAX_SLEEP: Duration = Duration::from_secs(30);

/// Settings shared by all pollers.
#[derive(Clone)]
pub(crate) struct PollConfig {
    pub registry: Arc<Registry>,
    pub permits: Arc<Semaphore>,
    /// Requests to store the state now.
    pub flush_requests: FlushRequests,
    pub pace: Pace,
    pub clock: Clock,
}

impl PollConfig {
    /// `concurrency` is the maximum number of concurrent calls, `period` the pause between calls
    /// about one operation.
    pub(crate) fn new(registry: Registry, concurrency: usize, period: Duration) -> Self {
        Self {
            registry: Arc::new(registry),
            permits: Arc::new(Semaphore::new(concurrency)),
            flush_requests: FlushRequests::default(),
            pace: Pace::of(period),
            clock: Clock::default(),
        }
    }
}

/// What an answer changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    #[default]
    None,
    Progress,
    Ended,
}

pub(crate) struct OperationPoller<S: Subject> {
    config: PollConfig,
    subject: Arc<S>,
    all: Vec<PolledOperation<S::Operation>>,
    calls: FuturesUnordered<BoxFuture<'static, OperationAnswer>>,
    stopped: bool,
    /// Number of completed rounds: in each of them every running operation has answered at least
    /// once.
    rounds: u64,
}

struct PolledOperation<O> {
    operation: O,
    state: OperationState,
    asked: bool,
    /// Whether it has answered in this round.
    answered: bool,
}

struct OperationAnswer {
    index: usize,
    at: Duration,
    answer: Answer,
}

impl<S: Subject> OperationPoller<S> {
    /// Operations as stored; `timeout` is the limit of each, counted from its creation.
    pub(crate) fn new(
        config: PollConfig,
        subject: &S,
        operations: Vec<S::Operation>,
        timeout: Duration,
    ) -> Self {
        let now = config.clock.now();
        let wall = Timestamp::now();
        let all = operations.into_iter().map(|operation| PolledOperation {
            state: OperationState::new(operation.status().clone(), timeout, now, wall),
            operation,
            asked: false,
            answered: false,
        });
        Self {
            all: all.collect(),
            subject: Arc::new(subject.clone()),
            calls: FuturesUnordered::new(),
            stopped: false,
            rounds: 0,
            config,
        }
    }

    pub(crate) fn operations(&self) -> Vec<S::Operation> {
        let all = self.all.iter().map(|one| {
            let mut operation = one.operation.clone();
            operation.status_mut().clone_from(&one.state.status);
            operation
        });
        all.collect()
    }

    /// Requests to store the operations now.
    pub(crate) fn flush_receiver(&self) -> FlushReceiver {
        self.config
            .flush_requests
            .receiver(self.subject.meta().uid.as_deref().unwrap_or_default())
    }

    #[cfg(test)]
    pub(super) fn counts(&self) -> backup_core::operation::Counts {
        backup_core::operation::Counts::of(self.all.iter().map(|one| &one.state.status.phase))
    }

    pub(crate) fn all_ended(&self) -> bool {
        self.all.iter().all(|one| one.state.has_ended())
    }

    /// Minimum number of answers of each running operation.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds
    }

    pub(crate) fn stop(&mut self) {
        self.stopped = true;
        let now = self.config.clock.now();
        for one in &mut self.all {
            one.state.stop(now, self.config.pace);
        }
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stopped
    }

    /// Makes the calls that are due, and waits for one answer, or until another call is due. May be
    /// dropped half way: nothing is lost.
    pub(crate) async fn next(&mut self) -> Change {
        let due = self.call();
        tokio::select! {
            Some(answered) = self.calls.next() => self.take(answered),
            () = tokio::time::sleep(due.min(MAX_SLEEP)) => Change::None,
        }
    }

    /// Makes the calls that are due; returns the time until the next one.
    fn call(&mut self) -> Duration {
        let now = self.config.clock.now();
        let mut next = MAX_SLEEP;
        for (index, one) in self
            .all
            .iter_mut()
            .enumerate()
            .filter(|(_, one)| !one.asked)
        {
            match one.state.call(now) {
                Call::Nothing => {}
                Call::Wait(until) => next = next.min(until.saturating_sub(now)),
                call @ (Call::Progress | Call::Cancel) => {
                    one.asked = true;
                    let action = one.operation.action().to_owned();
                    let operation = one.operation.id().to_owned();
                    let config = self.config.clone();
                    let subject = Arc::clone(&self.subject);
                    self.calls.push(Box::pin(async move {
                        let _permit = config.permits.acquire().await;
                        // Waiting for a permit is not part of the call.
                        let at = config.clock.now();
                        // Boxed after the permit: thousands may wait for one, and a call is large.
                        let made = Box::pin(call::make(
                            &config.registry,
                            &action,
                            &operation,
                            call,
                            &*subject,
                        ));
                        let answer = made.await;
                        OperationAnswer { index, at, answer }
                    }));
                }
            }
        }
        next
    }

    fn take(&mut self, answered: OperationAnswer) -> Change {
        let OperationAnswer { index, at, answer } = answered;
        let Some(one) = self.all.get_mut(index) else {
            return Change::None;
        };
        one.asked = false;
        let before = one.state.status.clone();
        one.state.answered(
            at,
            answer,
            self.config.clock.now(),
            self.config.pace,
            fastrand::f64(),
        );
        one.answered = true;
        let change = change(&before, &one.state.status);
        if self
            .all
            .iter()
            .all(|one| one.answered || one.state.has_ended())
        {
            self.rounds += 1;
            self.all.iter_mut().for_each(|one| one.answered = false);
        }
        change
    }
}

fn change(before: &OperationStatus, after: &OperationStatus) -> Change {
    if before == after {
        Change::None
    } else if after.phase.has_ended() {
        Change::Ended
    } else {
        Change::Progress
    }
}

#[cfg(test)]
pub(super) mod tests;
