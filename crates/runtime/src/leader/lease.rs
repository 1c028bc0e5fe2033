//! Acquiring, renewing and releasing the Lease.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use backup_client::{
    errors::{found, is_conflict, is_gone, plain},
    retry::timed,
};
use futures::StreamExt as _;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{PostParams, WatchParams},
    core::{ObjectMeta, WatchEvent},
};

use super::{
    decide::{LeaseObservation, RELEASED_SECONDS, Step, decide},
    leadership::{LEASE, LEASE_DURATION, Leadership, RENEW_DEADLINE, RENEW_PERIOD, RETRY_PERIOD},
};
use crate::clock::Clock;

/// Timeout of a request; it is retried while there is still time.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);

/// Followers that see a lease expire try to take it at a random moment within this time.
const MAX_JITTER: Duration = Duration::from_millis(400);

pub struct Elector {
    leases: Api<Lease>,
    namespace: String,
    identity: String,
    leadership: Leadership,
    clock: Clock,
    /// The lease as last read or written by us.
    lease: Option<Lease>,
    observed: Option<LeaseObservation>,
}

/// The lease is no longer ours. The process has to exit, and restarts as a follower.
#[derive(Debug, thiserror::Error)]
pub enum LostLease {
    #[error(
        "the Lease {LEASE} was taken by {0:?}; this replica ends and starts again as a follower"
    )]
    Taken(String),
    #[error(
        "somebody has deleted the Lease {LEASE}; this replica ends and starts again as a follower, and the next leader begins in \
         {LEASE_DURATION:?}"
    )]
    Deleted,
    #[error(
        "the Lease {LEASE} could not be renewed for {RENEW_DEADLINE:?}: {0}; this replica ends and starts again"
    )]
    NotRenewed(String),
}

enum Standing {
    Leading,
    /// The holder of the lease; `None`: there is no Lease.
    Following(Option<String>),
}

/// Waits after a failed request, with jitter, so that replicas do not retry at one moment.
async fn pause() {
    tokio::time::sleep(RETRY_PERIOD.mul_f64(1.0 + fastrand::f64() / 5.0)).await;
}

impl Elector {
    /// Not a leader until [`Elector::acquire`] returns. `host` names this replica in the Lease.
    pub fn new(client: Client, namespace: &str, host: &str) -> Self {
        Self::with_clock(client, namespace, host, Clock::Boot)
    }

    pub(super) fn with_clock(client: Client, namespace: &str, host: &str, clock: Clock) -> Self {
        // Unique per process, so that a restarted replica does not take the lease of its
        // predecessor for its own.
        let suffix = RandomState::new().hash_one(std::process::id());
        Self {
            leases: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            identity: format!("{host}_{suffix:016x}"),
            leadership: Leadership::elected(clock),
            clock,
            lease: None,
            observed: None,
        }
    }

    /// Shared view of whether this replica may work.
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    pub async fn acquire(&mut self) {
        let mut known = Some(String::new());
        loop {
            match self.step().await {
                Ok(Standing::Leading) => {
                    tracing::info!(identity = self.identity, "leading");
                    return;
                }
                Ok(Standing::Following(holder)) => {
                    if holder != known {
                        if let Some(holder) = &holder {
                            tracing::info!(holder, "another replica leads; waiting");
                        } else {
                            tracing::info!(
                                "there is no Lease {LEASE}; waiting for {LEASE_DURATION:?}, in case that it was deleted and its \
                                 holder works still"
                            );
                        }
                        known = holder;
                    }
                    self.follow().await;
                }
                Err(error) => {
                    tracing::warn!(
                        error,
                        lease = LEASE,
                        namespace = self.namespace,
                        "the lease can not be acquired"
                    );
                    pause().await;
                }
            }
        }
    }

    /// Waits until the lease should be read again. A watch shows each renewal, so that a follower
    /// sends no requests meanwhile; where it fails, the next read comes soon. Its events alone
    /// decide nothing.
    async fn follow(&mut self) {
        let read = self
            .lease
            .as_ref()
            .and_then(|lease| lease.metadata.resource_version.clone());
        // If there is no Lease, another replica may create it.
        let Some(version) = read else {
            return pause().await;
        };
        let leases = self.leases.clone();
        let params = WatchParams::default().fields(&format!("metadata.name={LEASE}"));
        let watch = timed(REQUEST_TIMEOUT, leases.watch(&params, &version)).await;
        let Ok(events) = watch else {
            return pause().await;
        };
        let mut events = std::pin::pin!(events);
        loop {
            let Some(Step::Wait { time, .. }) = self.decide() else {
                // Jitter, so that followers do not try at one moment.
                return tokio::time::sleep(MAX_JITTER.mul_f64(fastrand::f64())).await;
            };
            tokio::select! {
                () = tokio::time::sleep(time) => {}
                event = events.next() => match event {
                    Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease))) => self.note(Some(lease)),
                    Some(Ok(WatchEvent::Bookmark(_))) => {}
                    Some(Ok(WatchEvent::Deleted(_))) => return,
                    // The watch has ended normally, or has failed.
                    Some(Ok(WatchEvent::Error(_)) | Err(_)) | None => return pause().await,
                },
            }
        }
    }

    pub async fn keep(&mut self) -> LostLease {
        let mut period = RENEW_PERIOD;
        loop {
            tokio::time::sleep(period).await;
            period = RENEW_PERIOD;
            let failure = match self.step().await {
                Ok(Standing::Leading) => continue,
                Ok(Standing::Following(holder)) => {
                    self.leadership.lost();
                    return holder.map_or(LostLease::Deleted, LostLease::Taken);
                }
                Err(error) => error,
            };
            if self.leadership.is_leader() {
                tracing::warn!(
                    error = failure,
                    "the lease could not be renewed; trying again"
                );
                period = RETRY_PERIOD;
            } else {
                self.leadership.lost();
                return LostLease::NotRenewed(failure);
            }
        }
    }

    /// Releases the lease, so that the next replica need not wait for its expiry. Best effort.
    pub async fn release(mut self) {
        self.leadership.lost();
        let Some(mut lease) = self.lease.take() else {
            return;
        };
        if let Some(spec) = lease.spec.as_mut()
            && spec.holder_identity.as_deref() == Some(self.identity.as_str())
        {
            spec.holder_identity = None;
            spec.lease_duration_seconds = i32::try_from(RELEASED_SECONDS).ok();
            spec.renew_time = Some(MicroTime(Timestamp::now()));
            if let Err(error) = self.put(lease).await {
                tracing::warn!(
                    error = plain(&error),
                    "the lease was not released; it ends by itself"
                );
            }
        }
    }

    /// One look at the lease and, if we may write it, one write.
    async fn step(&mut self) -> Result<Standing, String> {
        // While we hold it, our last write is the base of the next one, without a read; a conflict
        // reads.
        if self.lease.is_none() || !self.leadership.is_leader() {
            self.read().await?;
        }
        let sent = self.clock.now();
        let spec = match self.decide() {
            None => return Err(format!("the Lease {LEASE} was not read")),
            Some(Step::Wait { holder, .. }) => return Ok(Standing::Following(holder)),
            Some(Step::Create) => self.spec(0, None),
            Some(Step::Take { transitions }) => self.spec(transitions, None),
            Some(Step::Renew) => {
                let before = self.lease.as_ref().and_then(|lease| lease.spec.as_ref());
                let transitions = before.and_then(|spec| spec.lease_transitions).unwrap_or(0);
                self.spec(
                    transitions,
                    before.and_then(|spec| spec.acquire_time.clone()),
                )
            }
        };
        let mut lease = self.lease.clone().unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(LEASE.to_owned()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            ..Lease::default()
        });
        lease.spec = Some(spec);
        match self.put(lease).await {
            Ok(written) => {
                self.leadership.renewed(sent);
                self.note(Some(written));
                Ok(Standing::Leading)
            }
            Err(error) => {
                // The race, or the answer, was lost: the next step reads the lease.
                self.lease = None;
                // Another program has written or deleted it. A leader has to know now, and not at
                // its next attempt.
                if is_conflict(&error) || is_gone(&error, LEASE) {
                    self.read().await?;
                    if let Some(Step::Wait { holder, .. }) = self.decide() {
                        return Ok(Standing::Following(holder));
                    }
                }
                Err(plain(&error))
            }
        }
    }

    /// `None` before the first read.
    fn decide(&self) -> Option<Step> {
        self.observed
            .as_ref()
            .map(|observed| decide(&self.identity, observed, self.clock.now()))
    }

    async fn read(&mut self) -> Result<(), String> {
        let read = timed(REQUEST_TIMEOUT, self.leases.get(LEASE)).await;
        self.note(found(read, LEASE).map_err(|error| plain(&error))?);
        Ok(())
    }

    fn note(&mut self, lease: Option<Lease>) {
        let spec = lease
            .as_ref()
            .map(|lease| lease.spec.clone().unwrap_or_default());
        self.observed = Some(LeaseObservation::again(
            self.observed.take(),
            spec,
            self.clock.now(),
        ));
        self.lease = lease;
    }

    /// With a resourceVersion, a PUT that only succeeds on exactly that version; without one, a
    /// creation.
    async fn put(&self, lease: Lease) -> Result<Lease, kube::Error> {
        let params = PostParams::default();
        let write = async {
            if lease.metadata.resource_version.is_some() {
                self.leases.replace(LEASE, &params, &lease).await
            } else {
                self.leases.create(&params, &lease).await
            }
        };
        timed(REQUEST_TIMEOUT, write).await.inspect_err(|error| {
            if is_conflict(error) {
                tracing::debug!("the lease has changed meanwhile");
            }
        })
    }

    /// The times are informational; no decision depends on them.
    fn spec(&self, transitions: i32, acquired: Option<MicroTime>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
            lease_transitions: Some(transitions),
            acquire_time: acquired.or_else(|| Some(now.clone())),
            renew_time: Some(now),
            ..LeaseSpec::default()
        }
    }
}
