//! The right to work, and its end.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    claim::{Claim, ObjectKey, ObjectKind, State, VELERO_SCOPE},
    collect::{self, Collector, Judged},
    conflict::Conflict,
    footprint::Footprint,
    lease::{LedgerError, LedgerStore, UpdateError, lease_name},
    ledger::{Ask, Ledger, Refusal, by},
    observe::ObserveError,
    transition::{EndRules, EntryTransition, Times},
};

/// Longest time for one activation or release, retries included.
const BUDGET: Duration = Duration::from_secs(15);

/// Proof of the right to work. Of two restores under one Lease the later one has the higher epoch; a backup has that of the
/// last exclusive grant before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    pub lease_uid: String,
    /// Epoch of the ledger when the claim was granted.
    pub epoch: u64,
    /// What the right is for. The object may have been edited since: work outside of this is nobody's right.
    pub footprint: Footprint,
}

#[derive(Debug, thiserror::Error)]
pub enum ActivateError {
    /// Others hold what it needs. It must end without having started, or wait, as its policy says.
    #[error(transparent)]
    Conflict(Conflict),
    /// It waits in the queue for these to end.
    #[error("it waits for its turn: {0}")]
    Waiting(Conflict),
    /// There is no such object any more, or another one of the same name.
    #[error("{key} (uid {uid}) is gone, or another object has its name now")]
    Gone { key: ObjectKey, uid: String },
    /// Its work has ended already.
    #[error("{key} is {phase}; its work has ended")]
    Over { key: ObjectKey, phase: String },
    /// A person took its claim by force: it must end, and does not get one again.
    #[error("its claim was released by force{}", by(.note))]
    Released {
        /// Who released it and why; empty if that is not known.
        note: String,
    },
    #[error(transparent)]
    Full(Refusal),
    /// The ledger could not be read or written. Whether the right was given is unknown; ask again.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Observe(#[from] ObserveError),
}

impl ActivateError {
    pub fn category(&self) -> &'static str {
        match self {
            Self::Conflict(_) => "conflict",
            Self::Waiting(_) => "waiting",
            Self::Gone { .. } => "gone",
            Self::Over { .. } => "over",
            Self::Released { .. } => "released",
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
            Self::Conflict(_)
            | Self::Waiting(_)
            | Self::Gone { .. }
            | Self::Over { .. }
            | Self::Released { .. }
            | Self::Full(_) => false,
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
    let change = |ledger: &mut Ledger| take_right(ledger, key, uid, &footprint, &object.created, object.new);
    let deadline = Instant::now() + BUDGET;
    loop {
        match store.update(VELERO_SCOPE, deadline, change).await {
            Ok((epoch, stored)) => {
                let entry = stored.ledger.entry(key, uid);
                let footprint = entry.map_or(footprint, |entry| entry.footprint.clone());
                return Ok(Token { lease_uid: stored.lease_uid().to_owned(), epoch, footprint });
            }
            Err(UpdateError::Refused(Refusal::Conflict(conflict))) => {
                if !clear(store, &conflict.holders, deadline).await? {
                    return Err(ActivateError::Conflict(conflict));
                }
            }
            Err(UpdateError::Refused(Refusal::Waiting(conflict))) => {
                if !clear(store, &conflict.holders, deadline).await? {
                    return Err(ActivateError::Waiting(conflict));
                }
            }
            // It was open when it was read: someone has just found it damaged.
            Err(UpdateError::Refused(Refusal::NotOpen(_))) => {
                return Err(LedgerError::Changed { lease: lease_name(VELERO_SCOPE) }.into());
            }
            Err(UpdateError::Refused(Refusal::Released { note, .. })) => {
                return Err(ActivateError::Released { note });
            }
            Err(UpdateError::Refused(other)) => return Err(ActivateError::Full(other)),
            Err(UpdateError::Ledger(error)) => return Err(error.into()),
        }
    }
}

/// The step of [`activate`] on a ledger: admits the object where it has no place, and gives it the right to work. Returns the
/// epoch of the right. On a refusal the ledger may be changed, and is not to be written.
///
/// Work that has begun is not judged again, or its successor could lose it to a changed view of its footprint. Nor is what
/// waits: its place in the queue is all it has.
pub fn take_right(
    ledger: &mut Ledger,
    key: &ObjectKey,
    uid: &str,
    footprint: &Footprint,
    since: &str,
    new: bool,
) -> Result<u64, Refusal> {
    let state = ledger.entry(key, uid).map(|entry| entry.state);
    if state != Some(State::Waiting) && (new || state != Some(State::Active)) {
        ledger.admit(key, uid, footprint, since, &Ask::default())?;
    }
    ledger.activate(key, uid)
}

/// Frees the entries in the way if the work of them all is over, by fresh reads. False: somebody is in the way.
async fn clear(store: &LedgerStore, holders: &[Claim], deadline: Instant) -> Result<bool, ActivateError> {
    // It has seen nothing yet, so nothing is old to it: what only time ends is left to those who have waited.
    let times = Times { settle: store.profile().policy.settle, ..Times::default() };
    let mut collector = Collector::new(times, store.ends());
    let mut over = Vec::new();
    for holder in holders {
        let (observed, _) = store.objects().observe(VELERO_SCOPE, holder).await?;
        let judged = collector.judge_entries(holder, &observed, Instant::now().into_std());
        if !all_end(holder, &judged) {
            return Ok(false);
        }
        over.extend(judged);
    }
    if over.is_empty() {
        return Ok(false);
    }
    let done = collect::apply(store, VELERO_SCOPE, &over, deadline).await?;
    Ok(!done.freed.is_empty())
}

/// Whether what was judged ends every entry of this claim.
pub fn all_end(holder: &Claim, judged: &[Judged]) -> bool {
    let ends = |judged: &Judged| matches!(judged.transition, EntryTransition::End(_));
    judged.len() == holder.entries.len() && judged.iter().all(ends)
}

/// What has become of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenState {
    /// It is good: its uid is Active in the same ledger with the same epoch.
    Holds,
    /// A person took its claim by force.
    Released {
        /// Who and why; empty if that is not known.
        note: String,
    },
    /// Its claim is gone, or the ledger is another one: whether it gets one again is to be asked.
    Lost,
}

/// What has become of a token, by a fresh read. Ask before each step that cannot be undone; only the write that follows can
/// be too late, by what a request takes.
pub async fn token_state(
    store: &LedgerStore,
    key: &ObjectKey,
    uid: &str,
    token: &Token,
) -> Result<TokenState, LedgerError> {
    let Some(stored) = store.read(VELERO_SCOPE).await? else { return Ok(TokenState::Lost) };
    let entry = stored.ledger.entry(key, uid);
    let same = stored.lease_uid() == token.lease_uid;
    Ok(match entry {
        Some(entry) if entry.state == State::Released => TokenState::Released { note: entry.note.clone() },
        Some(entry) if same && entry.state == State::Active && entry.epoch == token.epoch => {
            TokenState::Holds
        }
        _ => TokenState::Lost,
    })
}

/// Whether a token is still good, by a fresh read.
pub async fn holds(
    store: &LedgerStore,
    key: &ObjectKey,
    uid: &str,
    token: &Token,
) -> Result<bool, LedgerError> {
    Ok(token_state(store, key, uid, token).await? == TokenState::Holds)
}

/// Gives a place back, after the work has ended and its terminal phase is written. Other uids of the name keep theirs; who
/// waited may have it in the same write. With a settle time the place is kept that long. Whether there was one; none is
/// fine, a release may be repeated.
pub async fn release(store: &LedgerStore, key: &ObjectKey, uid: &str) -> Result<bool, LedgerError> {
    if store.read(VELERO_SCOPE).await?.is_none() {
        return Ok(false);
    }
    let change = |ledger: &mut Ledger| give_back(ledger, key, uid, store.ends());
    store.change(VELERO_SCOPE, Instant::now() + BUDGET, change).await
}

/// The step of [`release`] on a ledger: where restores settle, one that has worked keeps its place for that. Returns whether
/// there was a place.
pub fn give_back(ledger: &mut Ledger, key: &ObjectKey, uid: &str, ends: EndRules) -> bool {
    let settles = ends.settles && key.kind == ObjectKind::Restore;
    let worked = ledger.entry(key, uid).is_some_and(|entry| entry.state >= State::Settling);
    if settles && worked { ledger.settle(key, uid) } else { ledger.release(key, uid) }
}
