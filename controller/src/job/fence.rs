//! Whether the claim of running work is still held, as far as this process has seen.
//!
//! An operator may release a claim by force. Objects admitted after that must not meet the worker's
//! writes, so:
//!
//! 1. During the work, [`Fence::around`] reads the ledger twice a second.
//! 2. Before each write of the work, [`Fence::confirmed`] requires a read that found the claim and
//!    began less than [`READ_VALIDITY`] ago. That costs no request; without such a read, the write
//!    waits for the next one. While the API server is down nothing is written.
//! 3. A read that does not find the claim stops the work: nothing is written from then on.
//!
//! So the last write is sent at most two seconds after the release. A request in flight is then
//! dropped; the API server may still execute it. After a crash the successor asks for the claim
//! again before it works, and is refused.

use std::{convert::Infallible, sync::Arc, time::Duration};

use backup_lock::{
    ObjectKey, Token,
    activate::{TokenState, token_state},
    lease::LedgerStore,
};
use backup_runtime::clock::Clock;
use tokio::sync::watch;

/// How long a read allows writes, counted from when it was sent.
const READ_VALIDITY: Duration = Duration::from_secs(2);
/// Pause between two reads.
const READ_INTERVAL: Duration = Duration::from_millis(500);
/// Timeout of a read.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// Cheap to clone; all clones belong to the same work.
#[derive(Clone, Debug)]
pub(crate) struct Fence {
    clock: Clock,
    state: Arc<watch::Sender<State>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// No work that needs a claim is running.
    Open,
    /// Writes may be sent until this time of the clock.
    Until(Duration),
    /// An operator released the claim by force: who and why, if that is known.
    Released(String),
    /// The claim is gone; the worker has to ask for it again.
    Lost,
}

/// The work no longer holds its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClaimLost;

impl Fence {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            state: Arc::new(watch::Sender::new(State::Open)),
        }
    }

    /// Runs work that needs the claim: meanwhile writes are allowed only while the claim is held.
    /// Writes after it need no claim.
    pub(crate) async fn around<T>(
        &self,
        ledger: LedgerStore,
        key: ObjectKey,
        uid: String,
        token: Token,
        work: impl Future<Output = T>,
    ) -> T {
        self.state.send_replace(State::Until(Duration::ZERO));
        let done = tokio::select! {
            done = work => done,
            never = self.watch(ledger, key, uid, token) => match never {},
        };
        self.open();
        done
    }

    async fn watch(
        &self,
        ledger: LedgerStore,
        key: ObjectKey,
        uid: String,
        token: Token,
    ) -> Infallible {
        loop {
            let sent = self.clock.now();
            match tokio::time::timeout(READ_TIMEOUT, token_state(&ledger, &key, &uid, &token)).await
            {
                Ok(Ok(TokenState::Holds)) => {
                    // A claim that was lost meanwhile stays lost.
                    self.state.send_if_modified(|state| {
                        let stands = matches!(state, State::Until(_));
                        if stands {
                            *state = State::Until(sent + READ_VALIDITY);
                        }
                        stands
                    });
                }
                Ok(Ok(TokenState::Released { note })) => {
                    tracing::warn!(%key, uid, note, "the claim was released by force: the work stops");
                    self.state.send_replace(State::Released(note));
                    break;
                }
                Ok(Ok(TokenState::Lost)) => {
                    tracing::warn!(%key, uid, "the claim is gone: the work stops");
                    self.state.send_replace(State::Lost);
                    break;
                }
                Ok(Err(error)) => {
                    tracing::debug!(%key, %error, "whether the claim still exists is not known");
                }
                Err(_) => {
                    tracing::debug!(%key, "whether the claim still exists is not known: no answer");
                }
            }
            tokio::time::sleep(READ_INTERVAL).await;
        }
        std::future::pending().await
    }

    #[cfg(test)]
    pub(crate) fn lose(&self) {
        self.state.send_replace(State::Lost);
    }

    /// Stops running work that needs the claim, after its object was ended from outside. Other work
    /// continues.
    pub(crate) fn object_ended(&self) {
        self.state.send_if_modified(|state| {
            let works = matches!(state, State::Until(_));
            if works {
                *state = State::Lost;
            }
            works
        });
    }

    fn open(&self) {
        self.state.send_replace(State::Open);
    }

    pub(crate) fn check(&self) -> Result<(), ClaimLost> {
        match &*self.state.borrow() {
            State::Released(_) | State::Lost => Err(ClaimLost),
            State::Open | State::Until(_) => Ok(()),
        }
    }

    /// Returns who released the claim by force and why; `None` if it was not released.
    pub(crate) fn released(&self) -> Option<String> {
        match &*self.state.borrow() {
            State::Released(note) => Some(note.clone()),
            State::Open | State::Until(_) | State::Lost => None,
        }
    }

    /// Resolves when a write may be sent. Waits for a fresh read if necessary.
    pub(crate) async fn confirmed(&self) -> Result<(), ClaimLost> {
        let mut state = self.state.subscribe();
        loop {
            match &*state.borrow_and_update() {
                State::Open => return Ok(()),
                State::Until(end) => {
                    if self.clock.now() < *end {
                        return Ok(());
                    }
                }
                State::Released(_) | State::Lost => return Err(ClaimLost),
            }
            // Never closed: this fence owns the sender.
            if state.changed().await.is_err() {
                return Err(ClaimLost);
            }
        }
    }

    /// Resolves when the claim is found to be gone.
    pub(crate) async fn lost(&self) {
        let mut state = self.state.subscribe();
        // Never closed: this fence owns the sender.
        let _ = state
            .wait_for(|state| matches!(state, State::Released(_) | State::Lost))
            .await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn fence() -> Fence {
        Fence::new(Clock::Tokio(Instant::now()))
    }

    async fn waits(fence: &Fence) -> bool {
        tokio::time::timeout(Duration::from_mins(1), fence.confirmed())
            .await
            .is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_needs_a_read_of_the_last_two_seconds() {
        let fence = fence();
        assert_eq!(fence.confirmed().await, Ok(()), "no work needs a claim yet");
        fence
            .state
            .send_replace(State::Until(fence.clock.now() + READ_VALIDITY));
        tokio::time::advance(Duration::from_millis(1999)).await;
        assert_eq!(fence.confirmed().await, Ok(()));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(waits(&fence).await, "the read is too old");
        assert_eq!(
            fence.check(),
            Ok(()),
            "an old read is no sign that it is gone"
        );
        fence
            .state
            .send_replace(State::Until(fence.clock.now() + READ_VALIDITY));
        assert_eq!(fence.confirmed().await, Ok(()), "a fresh one lets it go on");
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_that_is_gone_stops_what_waits_and_what_comes() {
        let fence = fence();
        fence.state.send_replace(State::Until(Duration::ZERO));
        let (waiting, ()) = tokio::join!(fence.confirmed(), async {
            tokio::time::sleep(READ_VALIDITY).await;
            fence
                .state
                .send_replace(State::Released("ann: stuck".to_owned()));
        });
        assert_eq!(
            (waiting, fence.check(), fence.confirmed().await),
            (Err(ClaimLost), Err(ClaimLost), Err(ClaimLost))
        );
        assert_eq!(fence.released().as_deref(), Some("ann: stuck"));
        fence.lost().await;
        fence.open();
        fence.object_ended();
        assert_eq!(fence.check(), Ok(()), "what needs no claim goes on");
        fence.state.send_replace(State::Until(Duration::ZERO));
        fence.object_ended();
        assert_eq!(
            fence.check(),
            Err(ClaimLost),
            "its object was ended by hand"
        );
        fence.open();
        assert_eq!(
            (fence.check(), fence.confirmed().await, fence.released()),
            (Ok(()), Ok(()), None)
        );
    }
}
