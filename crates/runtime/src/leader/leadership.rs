//! Permission of this replica to work.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use backup_client::retry::timed;

use crate::clock::Clock;

/// Name of the Lease, in the namespace of the installation.
pub(crate) const LEASE: &str = "backup-controller";
/// Time after the holder's last renewal after which others may take the lease.
pub(crate) const LEASE_DURATION: Duration = Duration::from_secs(15);
/// Time without a renewal after which the holder stops working.
pub(super) const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Interval between renewals. Each is a write to etcd.
pub(super) const RENEW_PERIOD: Duration = Duration::from_secs(3);
/// Interval after a failed request.
pub(super) const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// Tells whether this replica may work. Cheap to clone and to ask.
#[derive(Clone, Debug)]
pub struct Leadership {
    /// `None`: no election, always leader.
    held: Option<Arc<HeldLease>>,
}

#[derive(Debug)]
struct HeldLease {
    /// Time until which the lease is ours without a renewal (milliseconds of the boot clock); 0 if
    /// it is not.
    until: AtomicU64,
    clock: Clock,
}

/// This replica must not write: it does not hold the lease, or could not renew it in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this replica does not hold the Lease {LEASE}, so it must not write; the holder continues")]
pub struct NotLeader;

impl Leadership {
    /// For `--leader-elect=false` and tests.
    pub fn always() -> Self {
        Self { held: None }
    }

    /// For tests of what a follower must not do.
    pub fn never() -> Self {
        Self::elected(Clock::Boot)
    }

    /// For tests: a lease renewed now, and never again.
    pub fn renewed_once(clock: Clock) -> Self {
        let leadership = Self::elected(clock);
        leadership.renewed(clock.now());
        leadership
    }

    /// For tests: one more renewal, by a request that was sent at `sent`.
    pub fn renew(&self, sent: Duration) {
        self.renewed(sent);
    }

    pub(crate) fn elected(clock: Clock) -> Self {
        Self {
            held: Some(Arc::new(HeldLease {
                until: AtomicU64::new(0),
                clock,
            })),
        }
    }

    /// Whether this replica holds the lease and renewed it in time.
    pub fn is_leader(&self) -> bool {
        self.left().is_none_or(|left| !left.is_zero())
    }

    /// Must be called before every step that leads to a write.
    pub fn check(&self) -> Result<(), NotLeader> {
        if self.is_leader() {
            Ok(())
        } else {
            Err(NotLeader)
        }
    }

    /// Sends a write, unless another replica may lead by now, and cancels it before another one may
    /// take over. The lease is checked when this is polled, so after all work before the request.
    /// Errors: any error of the request; an error of the service if it was not sent, or not
    /// answered in time.
    pub async fn write<T>(
        &self,
        wanted: Duration,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, kube::Error> {
        self.check()
            .map_err(|error| kube::Error::Service(error.into()))?;
        timed(self.request_timeout(wanted), request).await
    }

    /// Timeout for a request that is sent now: `wanted`, but at most until another replica may take
    /// over. Call it right before the request: work in between uses up the time.
    pub fn request_timeout(&self, wanted: Duration) -> Duration {
        match self.left() {
            None => wanted,
            Some(left) => wanted.min(left + LEASE_DURATION.saturating_sub(RENEW_DEADLINE)),
        }
    }

    /// Changes with each renewal of the lease, which is a successful write to the API server.
    /// Always 0 without an election.
    pub fn renewal(&self) -> u64 {
        self.held
            .as_ref()
            .map_or(0, |held| held.until.load(Ordering::Acquire))
    }

    /// Time until this replica has to stop without a renewal; `None` if there is no election.
    fn left(&self) -> Option<Duration> {
        self.held.as_ref().map(|held| {
            Duration::from_millis(held.until.load(Ordering::Acquire))
                .saturating_sub(held.clock.now())
        })
    }

    /// Records that a request sent at `sent` has written the lease.
    pub(crate) fn renewed(&self, sent: Duration) {
        if let Some(held) = &self.held {
            let until = sent + RENEW_DEADLINE;
            held.until.store(
                u64::try_from(until.as_millis()).unwrap_or(u64::MAX),
                Ordering::Release,
            );
        }
    }

    pub(super) fn lost(&self) {
        if let Some(held) = &self.held {
            held.until.store(0, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_election_this_replica_always_leads() {
        assert_eq!(Leadership::always().check(), Ok(()));
        assert_eq!(
            Leadership::always().request_timeout(Duration::from_mins(1)),
            Duration::from_mins(1)
        );
    }

    #[test]
    fn leads_from_a_renewal_until_the_renew_deadline_and_stops_at_once_when_lost() {
        let now = Clock::Boot.now();
        let leadership = Leadership::elected(Clock::Boot);
        assert_eq!(leadership.check(), Err(NotLeader), "not yet acquired");
        leadership.renewed(now);
        assert!(leadership.is_leader());
        let renewal = leadership.renewal();
        leadership.renewed(now + Duration::from_millis(1));
        assert_ne!(leadership.renewal(), renewal);
        assert!(
            leadership.request_timeout(Duration::from_mins(1))
                <= LEASE_DURATION + Duration::from_millis(1)
        );
        leadership.lost();
        assert!(!leadership.is_leader());
        leadership.renewed(now.saturating_sub(RENEW_DEADLINE));
        assert!(!leadership.is_leader(), "the renewal is too long ago");
    }
}
