//! Polls operations until all have ended. What is learned is first stored, then published.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    call::Subject,
    flush_requests::FlushRequest,
    poller::{Change, OperationPoller},
};
use crate::job::cancellation::{Cancellation, StopReason};

/// Minimum time between stored states after an operation has ended, if all were asked in between.
const MIN_END_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time between stored states if operations have only progressed, or one does not answer.
const MIN_PROGRESS_INTERVAL: Duration = Duration::from_mins(1);

/// Stores and publishes states of operations `O`.
pub(crate) trait StateStore<O>: Send {
    /// Why work cannot continue.
    type Error: From<StopReason> + Send;

    fn store(
        &mut self,
        operations: &[O],
    ) -> impl Future<Output = Result<StoreResult, Self::Error>> + Send;

    /// Publishes what follows from the last stored state.
    fn publish(&mut self, operations: &[O])
    -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// Result of storing a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreResult {
    Yes,
    /// The state cannot be stored now; retry after this time.
    NotYet(Duration),
}

/// Polls until all operations have ended, and their states are stored and published. A cancellation
/// stops them. A state that cannot be stored is retried later; polling continues meanwhile.
pub(crate) async fn poll_until_complete<S: Subject, T: StateStore<S::Operation>>(
    poller: &mut OperationPoller<S>,
    records: &mut T,
    cancellation: &Cancellation,
) -> Result<(), T::Error> {
    // The change since the last stored state, the time of that state, and the earliest time of the
    // next attempt.
    let mut changed = Change::None;
    let mut stored_at = Instant::now();
    let mut not_before = Instant::now();
    let mut round = poller.rounds();
    let mut readers = poller.flush_receiver();
    loop {
        cancellation.check()?;
        // At most one stored state, and one write of its object, for each round of answers.
        let ended = changed == Change::Ended && poller.rounds() > round;
        let pause = if ended {
            MIN_END_INTERVAL
        } else {
            MIN_PROGRESS_INTERVAL
        };
        let due_at = not_before.max(stored_at + pause);
        // Released at the end of this iteration, when the known state is stored, or cannot be
        // stored now.
        let mut flush: Option<FlushRequest> = None;
        tokio::select! {
            change = poller.next(), if !poller.all_ended() => changed = changed.max(change),
            () = tokio::time::sleep_until(due_at), if changed > Change::None => {}
            // A state stored within the last second is recent enough.
            new = readers.next() => flush = Some(new).filter(|_| Instant::now() >= stored_at + MIN_END_INTERVAL),
            reason = cancellation.stopped() => return Err(reason.into()),
            () = cancellation.cancelled(), if !poller.stopped() => poller.stop(),
        }
        let due = poller.all_ended() || flush.is_some() || Instant::now() >= stored_at + pause;
        if changed == Change::None || Instant::now() < not_before || !due {
            continue;
        }
        cancellation.check()?;
        let operations = poller.operations();
        if let StoreResult::NotYet(delay) = records.store(&operations).await? {
            not_before = Instant::now() + delay;
            continue;
        }
        if changed == Change::Ended {
            records.publish(&operations).await?;
        }
        if poller.all_ended() {
            return Ok(());
        }
        stored_at = Instant::now();
        changed = Change::None;
        round = poller.rounds();
    }
}

#[cfg(test)]
mod tests;
