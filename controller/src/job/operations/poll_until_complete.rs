//! Polls operations until all have ended. What is learned is stored first and published then.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    call::Subject,
    flush_requests::FlushRequest,
    poller::{Change, OperationPoller},
};
use crate::job::cancellation::{Cancellation, StopReason};

/// Between two states that are stored because an operation has ended, where all were asked in between.
const STORE_ENDS: Duration = Duration::from_secs(1);
/// Between two states that are stored because operations have come further, or where one does not answer.
const STORE_PROGRESS: Duration = Duration::from_mins(1);

/// Stores and publishes states of operations `O`.
pub(crate) trait StateStore<O>: Send {
    /// Why work cannot go on.
    type Error: From<StopReason> + Send;

    fn store(&mut self, operations: &[O]) -> impl Future<Output = Result<Stored, Self::Error>> + Send;

    /// Publishes what follows from the state that was stored last.
    fn publish(&mut self, operations: &[O]) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// What became of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Yes,
    /// It cannot be stored now; to be tried again after this time.
    NotYet(Duration),
}

/// Polls until all operations have ended, and that is stored and published. A cancellation tells them to stop. A state that
/// cannot be stored now is stored later; polling goes on meanwhile.
pub(crate) async fn poll_until_complete<S: Subject, T: StateStore<S::Operation>>(
    poller: &mut OperationPoller<S>,
    records: &mut T,
    cancellation: &Cancellation,
) -> Result<(), T::Error> {
    // What has changed since the last state was stored, when that was, and when the next try may be.
    let (mut changed, mut stored_at, mut not_before) = (Change::None, Instant::now(), Instant::now());
    let mut round = poller.rounds();
    let mut readers = poller.flush_receiver();
    loop {
        cancellation.check()?;
        // One state, and one write of what it is about, for each round of answers at most.
        let ended = changed == Change::Ended && poller.rounds() > round;
        let pause = if ended { STORE_ENDS } else { STORE_PROGRESS };
        let due_at = not_before.max(stored_at + pause);
        // Released at the end of this turn, when what is known is stored, or cannot be now.
        let mut flush: Option<FlushRequest> = None;
        tokio::select! {
            change = poller.next(), if !poller.all_ended() => changed = changed.max(change),
            () = tokio::time::sleep_until(due_at), if changed > Change::None => {}
            // What was stored within a second is good enough.
            new = readers.next() => flush = Some(new).filter(|_| Instant::now() >= stored_at + STORE_ENDS),
            reason = cancellation.stopped() => return Err(reason.into()),
            () = cancellation.cancelled(), if !poller.stopped() => poller.stop(),
        }
        let due = poller.all_ended() || flush.is_some() || Instant::now() >= stored_at + pause;
        if changed == Change::None || Instant::now() < not_before || !due {
            continue;
        }
        cancellation.check()?;
        let operations = poller.operations();
        if let Stored::NotYet(delay) = records.store(&operations).await? {
            not_before = Instant::now() + delay;
            continue;
        }
        if changed == Change::Ended {
            records.publish(&operations).await?;
        }
        if poller.all_ended() {
            return Ok(());
        }
        (stored_at, changed, round) = (Instant::now(), Change::None, poller.rounds());
    }
}

#[cfg(test)]
mod tests;
