//! The right to work, and its end.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    claim::{Claim, ObjectKey, State},
    collect::{self, Collector, DEFAULT_GRACE, Over},
    conflict::Conflict,
    footprint::Footprint,
    lease::{LedgerError, LedgerStore, UpdateError, scope_of},
    ledger::{Ledger, Refusal},
    observe::ObserveError,
};

/// Longest time for one activation or release, retries included.
const BUDGET: Duration = Duration::from_secs(15);

/// Proof of the right to work. Two tokens of conflicting work are never equal, and of two under one Lease the later
/// exclusive one has the higher epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    /// Uid of the ledger's Lease.
    pub lease_uid: String,
    /// Epoch of the ledger when the claim was granted.
    pub epoch: u64,
    /// What the right is for. The object may have been edited since: work outside of this is nobody's right.
    pub footprint: Footprint,
}

/// Why an object may not start.
#[derive(Debug, thiserror::Error)]
pub enum ActivateError {
    /// Others hold what it needs. It must end without having started, or wait, as its policy says.
    #[error(transparent)]
    Conflict(Conflict),
    /// There is no such object any more, or another one of the same name.
    #[error("{key} (uid {uid}) is gone, or another object has its name now")]
    Gone {
        /// The name.
        key: ObjectKey,
        /// The uid.
        uid: String,
    },
    /// Its work has ended already.
    #[error("{key} is {phase}; its work has ended")]
    Over {
        /// The name.
        key: ObjectKey,
        /// Its phase.
        phase: String,
    },
    /// The ledger holds no more entries.
    #[error(transparent)]
    Full(Refusal),
    /// The ledger could not be read or written. Whether the right was given is unknown; ask again.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The object could not be read.
    #[error(transparent)]
    Observe(#[from] ObserveError),
}

impl ActivateError {
    /// A bounded label for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Conflict(_) => "conflict",
            Self::Gone { .. } => "gone",
            Self::Over { .. } => "over",
            Self::Full(_) => "full",
            Self::Ledger(error) => error.category(),
            Self::Observe(error) => error.category(),
        }
    }

    /// Whether the same may succeed soon without anybody doing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Ledger(error) => error.is_transient(),
            Self::Observe(_) => true,
            Self::Conflict(_) | Self::Gone { .. } | Self::Over { .. } | Self::Full(_) => false,
        }
    }
}

/// Takes the right to work for an object, before any work: a fresh read must show this uid, not ended, and the ledger
/// must hold its entry, or take it now without a conflict. May be called again for the same object, also by a successor;
/// the token stays the same.
///
/// An object that was created while the webhook was off gets its claim here, if nothing is in its way. Nobody is in the
/// way whose work is over: a claim that was not released yet is freed here.
pub async fn activate(store: &LedgerStore, key: &ObjectKey, uid: &str) -> Result<Token, ActivateError> {
    let gone = || ActivateError::Gone { key: key.clone(), uid: uid.to_owned() };
    let object = store.objects().read(key).await?.ok_or_else(gone)?;
    if object.uid != uid {
        return Err(gone());
    }
    if object.over {
        return Err(ActivateError::Over { key: key.clone(), phase: object.phase });
    }
    let footprint = store.objects().footprint(key, &object.spec).await?;
    let change = |ledger: &mut Ledger| {
        // Work that has begun is not judged again, or its successor could lose it to a changed view of its footprint.
        if object.new || ledger.entry(key, uid).is_none_or(|entry| entry.state == State::Reserved) {
            ledger.admit(key, uid, &footprint, &object.created)?;
        }
        ledger.activate(key, uid)
    };
    let deadline = Instant::now() + BUDGET;
    loop {
        match store.update(scope_of(key), deadline, change).await {
            Ok((epoch, stored)) => {
                let entry = stored.ledger.entry(key, uid);
                let footprint = entry.map_or(footprint, |entry| entry.footprint.clone());
                return Ok(Token { lease_uid: stored.lease_uid().to_owned(), epoch, footprint });
            }
            Err(UpdateError::Refused(Refusal::Conflict(conflict))) => {
                if !clear(store, &conflict.holders, &footprint, deadline).await? {
                    return Err(ActivateError::Conflict(conflict));
                }
            }
            Err(UpdateError::Refused(other)) => return Err(ActivateError::Full(other)),
            Err(UpdateError::Ledger(error)) => return Err(error.into()),
        }
    }
}

/// Frees the entries in the way if the work of them all is over, by fresh reads. False: somebody is in the way.
async fn clear(
    store: &LedgerStore,
    holders: &[Claim],
    footprint: &Footprint,
    deadline: Instant,
) -> Result<bool, ActivateError> {
    let mut collector = Collector::new(DEFAULT_GRACE);
    let mut over = Vec::new();
    for claim in holders {
        let object = store.objects().read(&claim.key).await?;
        for entry in claim.entries.iter().filter(|entry| entry.footprint.overlaps(footprint)) {
            let now = Instant::now().into_std();
            let Some(reason) = collector.judge(&claim.key, entry, object.as_ref(), now) else {
                return Ok(false);
            };
            over.push(Over { key: claim.key.clone(), uid: entry.uid.clone(), state: entry.state, reason });
        }
    }
    let Some(first) = over.first() else { return Ok(false) };
    collect::free(store, scope_of(&first.key), &over, deadline).await?;
    Ok(true)
}

/// Whether a token is still good, by a fresh read: its uid is Active in the same ledger with the same epoch. Ask before
/// each step that can't be undone; only the write that follows can be too late, by what a request takes.
pub async fn holds(
    store: &LedgerStore,
    key: &ObjectKey,
    uid: &str,
    token: &Token,
) -> Result<bool, LedgerError> {
    let Some(stored) = store.read(scope_of(key)).await? else { return Ok(false) };
    let entry = stored.ledger.entry(key, uid);
    Ok(stored.lease_uid() == token.lease_uid
        && entry.is_some_and(|entry| entry.state == State::Active && entry.epoch == token.epoch))
}

/// Gives a place back, after the work has ended and its terminal phase is written. Other uids of the name keep theirs.
/// Whether there was one; none is fine, a release may be repeated.
pub async fn release(store: &LedgerStore, key: &ObjectKey, uid: &str) -> Result<bool, LedgerError> {
    let scope = scope_of(key);
    if store.read(scope).await?.is_none() {
        return Ok(false);
    }
    let change = |ledger: &mut Ledger| Ok::<bool, std::convert::Infallible>(ledger.release(key, uid));
    match store.update(scope, Instant::now() + BUDGET, change).await {
        Ok((was, _)) => Ok(was),
        Err(UpdateError::Ledger(error)) => Err(error),
        Err(UpdateError::Refused(never)) => match never {},
    }
}
