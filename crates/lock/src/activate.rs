//! Activation of a claim (the right to work), its check, and its release.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    claim::{Claim, ObjectKey, ObjectKind, State, VELERO_SCOPE},
    collect::{self, Collector, Judgement},
    conflict::Conflict,
    footprint::Footprint,
    lease::{LedgerError, LedgerStore, UpdateError, lease_name},
    ledger::{Ask, Ledger, Refusal, by},
    observe::ObserveError,
    transition::{EndRules, EntryTransition, Times},
};

/// Longest time for one activation or release, retries included.
const RETRY_BUDGET: Duration = Duration::from_secs(15);

/// Proof of the right to work. Of two restores under one Lease the later one has the higher epoch;
/// a backup's token carries the epoch of the last exclusive grant before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    pub lease_uid: String,
    /// Epoch of the ledger when the claim was granted.
    pub epoch: u64,
    /// What the work may touch. The object may have been edited since: work outside this footprint
    /// is not covered.
    pub footprint: Footprint,
}

#[derive(Debug, thiserror::Error)]
pub enum ActivateError {
    /// Other claims conflict with its footprint. The object must fail without having started, or
    /// wait, as its policy says.
    #[error(transparent)]
    Conflict(Conflict),
    /// The object waits in the queue until these claims end.
    #[error("it waits for its turn: {0}")]
    Waiting(Conflict),
    /// The object does not exist, or another object has its name.
    #[error("{key} (uid {uid}) is gone, or another object has its name now")]
    Gone { key: ObjectKey, uid: String },
    /// The object's work has already ended.
    #[error("{key} is {phase}; its work has ended")]
    Over { key: ObjectKey, phase: String },
    /// A user released the claim by force: the object must end, and is not claimed again.
    #[error("its claim was released by force{}", by(.note))]
    Released {
        /// Who released it and why; empty if unknown.
        note: String,
    },
    #[error(transparent)]
    Full(Refusal),
    /// The ledger could not be read or written. Whether the claim was activated is unknown; retry.
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

    /// Whether a retry may succeed soon without a user's help.
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

/// Activates the claim of an object, before any work: a fresh read must show this uid, not ended,
/// and the ledger must hold its entry, or admit it now without a conflict. May be called again for
/// the same object, also by a successor; the token stays the same.
///
/// An object that was created while the webhook was off gets its claim here, if nothing conflicts.
/// Claims of objects whose work is over do not conflict: those that were not released yet are freed
/// here.
pub async fn activate(
    store: &LedgerStore,
    key: &ObjectKey,
    uid: &str,
) -> Result<Token, ActivateError> {
    let object = store.objects().read(key).await?;
    let Some(object) = object.filter(|object| object.uid == uid) else {
        return Err(ActivateError::Gone {
            key: key.clone(),
            uid: uid.to_owned(),
        });
    };
    if object.over {
        return Err(ActivateError::Over {
            key: key.clone(),
            phase: object.phase,
        });
    }
    let footprint = store.objects().footprint(key, &object.spec).await?;
    let deadline = Instant::now() + RETRY_BUDGET;
    loop {
        let updated = store
            .update(VELERO_SCOPE, deadline, |ledger| {
                take_right(ledger, key, uid, &footprint, &object.created, object.new)
            })
            .await;
        match updated {
            Ok((epoch, stored)) => {
                let entry = stored.ledger.entry(key, uid);
                let footprint = entry.map_or(footprint, |entry| entry.footprint.clone());
                return Ok(Token {
                    lease_uid: stored.lease_uid().to_owned(),
                    epoch,
                    footprint,
                });
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
            // It was open when it was read: another writer has just found it damaged.
            Err(UpdateError::Refused(Refusal::NotOpen(_))) => {
                return Err(LedgerError::Changed {
                    lease: lease_name(VELERO_SCOPE),
                }
                .into());
            }
            Err(UpdateError::Refused(Refusal::Released { note, .. })) => {
                return Err(ActivateError::Released { note });
            }
            Err(UpdateError::Refused(other)) => return Err(ActivateError::Full(other)),
            Err(UpdateError::Ledger(error)) => return Err(error.into()),
        }
    }
}

/// The step of [`activate`] on a ledger: admits the object, unless it waits or its work has begun,
/// and activates its claim. Returns the epoch of the claim. On a refusal the ledger may have been
/// changed and must not be written.
///
/// Work that has begun is not checked again, or a successor could lose the claim to a changed view
/// of its footprint. Nor is a Waiting entry: it would lose its position in the queue.
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

/// Frees the conflicting entries if fresh reads show that the work of all of them is over. Returns
/// `false` if any remains.
async fn clear(
    store: &LedgerStore,
    holders: &[Claim],
    deadline: Instant,
) -> Result<bool, ActivateError> {
    // This collector has no history, so no entry counts as aged: entries that only a timeout ends
    // are left to collectors with one.
    let times = Times {
        settle: store.profile().policy.settle,
        ..Times::default()
    };
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

/// Whether these judgements end every entry of this claim.
pub fn all_end(holder: &Claim, judged: &[Judgement]) -> bool {
    judged.len() == holder.entries.len()
        && judged
            .iter()
            .all(|judgement| matches!(judgement.transition, EntryTransition::End(_)))
}

/// State of a token, by a fresh read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenState {
    /// Valid: its uid is Active in the same ledger with the same epoch.
    Holds,
    /// A user released its claim by force.
    Released {
        /// Who released it and why; empty if unknown.
        note: String,
    },
    /// Its claim is gone, or the ledger is another one: call [`activate`] to learn whether it gets
    /// a new claim.
    Lost,
}

/// Reads the state of a token freshly. Call before each step that cannot be undone; only the write
/// that follows can be too late, by the duration of one request.
pub async fn token_state(
    store: &LedgerStore,
    key: &ObjectKey,
    uid: &str,
    token: &Token,
) -> Result<TokenState, LedgerError> {
    let Some(stored) = store.read(VELERO_SCOPE).await? else {
        return Ok(TokenState::Lost);
    };
    let Some(entry) = stored.ledger.entry(key, uid) else {
        return Ok(TokenState::Lost);
    };
    if entry.state == State::Released {
        return Ok(TokenState::Released {
            note: entry.note.clone(),
        });
    }
    let same_ledger = stored.lease_uid() == token.lease_uid;
    if same_ledger && entry.state == State::Active && entry.epoch == token.epoch {
        Ok(TokenState::Holds)
    } else {
        Ok(TokenState::Lost)
    }
}

/// Whether a token is still valid, by a fresh read.
pub async fn holds(
    store: &LedgerStore,
    key: &ObjectKey,
    uid: &str,
    token: &Token,
) -> Result<bool, LedgerError> {
    Ok(token_state(store, key, uid, token).await? == TokenState::Holds)
}

/// Releases a claim after the work has ended and its terminal phase is written. Entries of other
/// uids of the name stay; a waiting claim may be reserved in the same write. With a settle time the
/// entry stays that long. Returns whether there was an entry; none is fine, a release may be
/// repeated.
pub async fn release(store: &LedgerStore, key: &ObjectKey, uid: &str) -> Result<bool, LedgerError> {
    if store.read(VELERO_SCOPE).await?.is_none() {
        return Ok(false);
    }
    store
        .change(VELERO_SCOPE, Instant::now() + RETRY_BUDGET, |ledger| {
            give_back(ledger, key, uid, store.ends())
        })
        .await
}

/// The step of [`release`] on a ledger: where restores settle, a restore that has worked becomes
/// Settling instead. Returns whether there was an entry.
pub fn give_back(ledger: &mut Ledger, key: &ObjectKey, uid: &str, ends: EndRules) -> bool {
    let settles = ends.settles && key.kind == ObjectKind::Restore;
    let worked = ledger
        .entry(key, uid)
        .is_some_and(|entry| entry.state >= State::Settling);
    if settles && worked {
        ledger.settle(key, uid)
    } else {
        ledger.release(key, uid)
    }
}
