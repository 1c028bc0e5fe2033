//! Operations are asked until all have ended; what is learned is kept in the store first and published then.

use std::{pin::pin, time::Duration};

use tokio::time::Instant;

use super::{
    call::Subject,
    following::{Change, Following},
    looks::Look,
};

/// Between two states that are kept because an operation has ended, where all were asked in between.
const KEEP_ENDS: Duration = Duration::from_secs(1);
/// Between two states that are kept because operations have come further, or where one does not answer.
const KEEP_PROGRESS: Duration = Duration::from_mins(1);

/// Keeps and publishes states of operations `O`.
pub trait Keeper<O>: Send {
    /// Why work must not go on.
    type Trouble: Send;

    /// Whether work may go on.
    fn check(&self) -> Result<(), Self::Trouble>;

    /// Makes a state durable.
    fn keep(&mut self, operations: &[O]) -> impl Future<Output = Result<Kept, Self::Trouble>> + Send;

    /// Publishes what follows from the state that was kept last.
    fn show(&mut self, operations: &[O]) -> impl Future<Output = Result<(), Self::Trouble>> + Send;
}

/// What became of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is durable.
    Done,
    /// It can't be kept now; not to be tried before this time has passed.
    NotYet(Duration),
}

/// Why operations are not followed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// All have ended, which is kept and published.
    AllEnded,
    /// Work is asked to leave off.
    Pulled,
}

/// Asks until all have ended, or work must not go on: `pulled` resolves when it has to leave off, `cancelled` when a person
/// wants the operations to stop. What can't be kept now is kept later; asking goes on meanwhile.
pub async fn see_to_the_end<S: Subject, K: Keeper<S::Operation>>(
    following: &mut Following<S>,
    keeper: &mut K,
    pulled: impl Future<Output = ()> + Send,
    cancelled: impl Future<Output = ()> + Send,
) -> Result<Seen, K::Trouble> {
    let (mut pulled, mut cancelled) = (pin!(pulled), pin!(cancelled));
    // What has changed since the last state was kept, when that was, and not before when it may be tried again.
    let (mut changed, mut kept_at, mut not_before) = (Change::None, Instant::now(), Instant::now());
    let mut round = following.rounds();
    let mut seat = following.seat();
    loop {
        keeper.check()?;
        // One state, and one write of what it is about, for each round of answers at most.
        let ended = changed == Change::Ended && following.rounds() > round;
        let pause = if ended { KEEP_ENDS } else { KEEP_PROGRESS };
        let keep_at = not_before.max(kept_at + pause);
        // Somebody who looks is let go at the end of this turn, when what is known is kept, or can't be now.
        let mut looks: Option<Look> = None;
        tokio::select! {
            change = following.next(), if !following.all_ended() => changed = changed.max(change),
            () = tokio::time::sleep_until(keep_at), if changed > Change::None => {}
            // What was kept within a second is good enough.
            look = seat.next() => looks = Some(look).filter(|_| Instant::now() >= kept_at + KEEP_ENDS),
            () = &mut pulled => return Ok(Seen::Pulled),
            () = &mut cancelled, if !following.stopped() => following.stop(),
        }
        let due = following.all_ended() || looks.is_some() || Instant::now() >= kept_at + pause;
        if changed == Change::None || Instant::now() < not_before || !due {
            continue;
        }
        keeper.check()?;
        let operations = following.operations();
        if let Kept::NotYet(delay) = keeper.keep(&operations).await? {
            not_before = Instant::now() + delay;
            continue;
        }
        if changed == Change::Ended {
            keeper.show(&operations).await?;
        }
        if following.all_ended() {
            return Ok(Seen::AllEnded);
        }
        (kept_at, changed, round) = (Instant::now(), Change::None, following.rounds());
    }
}

#[cfg(test)]
mod tests;
