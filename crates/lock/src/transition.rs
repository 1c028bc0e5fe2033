//! The transition of an entry, decided by the observed state of its object. Pure.

use std::time::Duration;

use crate::{
    claim::{Entry, ObjectKey, ObjectKind, State, Word},
    ledger::Ledger,
};

/// How long a refused restore is expected once it may come, if it has not come again so far. Looks
/// are ten seconds apart: it keeps backups out for about twenty seconds.
const EXPECTED_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeouts of entries that nothing else ends. Each is counted on the observer's own clock, from
/// first sight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// For a reservation whose object is missing.
    pub grace: Duration,
    /// For a restore that has ended and settles.
    pub settle: Duration,
    /// Maximum settle time, whatever a release rule waits for.
    pub settle_at_most: Duration,
    /// Maximum, for the intent of a refused restore.
    pub intent: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            grace: Duration::from_mins(2),
            settle: Duration::ZERO,
            settle_at_most: Duration::from_mins(30),
            intent: Duration::from_mins(2),
        }
    }
}

impl Times {
    /// The timeout of an entry in its state.
    pub(crate) fn of(&self, entry: &Entry) -> Duration {
        match entry.state {
            State::Intent => {
                if entry.word == Word::Expected {
                    self.intent.min(EXPECTED_TIMEOUT)
                } else {
                    self.intent
                }
            }
            State::Settling => self.settle,
            State::Waiting
            | State::Reserved
            | State::Collected
            | State::Active
            | State::Released => self.grace,
        }
    }
}

/// The object of an entry's name as it was just read, reduced to the fields that judgements need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ObservedState {
    /// Uid of the object of that name; `None` if there is no object.
    pub uid: Option<String>,
    /// Its resourceVersion.
    pub version: String,
    pub over: bool,
    pub deleting: bool,
    /// Whether its data may be touched again: the profile's release rule says so, and no worker of
    /// ours still runs.
    pub settled: bool,
}

impl ObservedState {
    /// Whether the entry was admitted for this object. Not if it has the entry's uid, but the
    /// revival that was admitted is not stored yet.
    pub fn is_of(&self, entry: &Entry) -> bool {
        self.uid.as_deref() == Some(entry.uid.as_str()) && !self.awaits(entry)
    }

    /// Whether the object of the entry exists, and the write that revives it is pending.
    fn awaits(&self, entry: &Entry) -> bool {
        let revives = !entry.revives.is_empty() && entry.revives == self.version;
        revives && self.uid.as_deref() == Some(entry.uid.as_str())
    }
}

/// The observer's history, on its own clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PriorObservation {
    /// The uid was seen stored. It cannot be stored again.
    pub stored: bool,
    /// The entry has been in this state, with its object missing where it should have one, for its
    /// timeout.
    pub aged: bool,
    /// It has settled for longer than any release rule may require.
    pub overdue: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EndRules {
    /// Restores keep their place for the settle time after their end.
    pub settles: bool,
    /// The operator starts on sight, so an orphan's object may be stored late and run: keep
    /// restores out for another period.
    pub tombstones: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    Over,
    /// The object was stored once and is gone.
    Gone,
    /// The object was never seen stored for the whole grace.
    Orphan,
    /// Its data has settled.
    Settled,
    /// The intent was not followed by another try.
    Lapsed,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Over => "over",
            Self::Gone => "gone",
            Self::Orphan => "orphan",
            Self::Settled => "settled",
            Self::Lapsed => "lapsed",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryTransition {
    Keep,
    /// Mark that its object is missing; the next look decides.
    Suspect,
    /// It has ended and keeps its place until its data has settled.
    Settle(Reason),
    Tombstone,
    End(Reason),
    /// A refused restore did not come as soon as it could: it no longer keeps anything out.
    Lapse,
    /// Its object was stored after its reservation was collected: it is claimed again.
    Readmit,
}

impl EntryTransition {
    pub fn reason(self) -> Option<Reason> {
        match self {
            Self::End(reason) | Self::Settle(reason) => Some(reason),
            Self::Tombstone => Some(Reason::Orphan),
            Self::Keep | Self::Suspect | Self::Lapse | Self::Readmit => None,
        }
    }

    /// Applies this to the ledger, unless the entry has changed since it was judged. Returns
    /// whether anything changed. [`EntryTransition::Readmit`] is an admission, and is not made
    /// here.
    pub fn apply(self, ledger: &mut Ledger, key: &ObjectKey, judged: &Entry) -> bool {
        let uid = judged.uid.as_str();
        let state = judged.state;
        let same = ledger
            .entry(key, uid)
            .is_some_and(|entry| entry.stands_as(judged));
        same && match self {
            Self::Keep | Self::Readmit => false,
            Self::Suspect => ledger.suspect(key, uid),
            Self::Lapse => ledger.lapse(key, uid),
            Self::Settle(_) => ledger.settle(key, uid),
            Self::Tombstone => ledger.tombstone(key, uid, state),
            Self::End(_) => ledger.drop_if(key, uid, state),
        }
    }
}

/// Judges an entry.
///
/// An orphan takes two looks with a write of the ledger between them: the first marks it suspect,
/// the second, on a ledger with that mark, ends it. A revival that is not stored may be an orphan,
/// too. `Active` ends only when the object is terminal or gone, not when it is merely marked for
/// deletion: its finalizer keeps it until its worker has stopped.
pub fn decide(
    key: &ObjectKey,
    entry: &Entry,
    observed: &ObservedState,
    prior: PriorObservation,
    ends: EndRules,
) -> EntryTransition {
    use EntryTransition::{End, Keep, Lapse, Readmit, Settle, Suspect, Tombstone};
    let same = observed.is_of(entry);
    // An entry that only waited has touched nothing.
    let worked = key.kind == ObjectKind::Restore && entry.state != State::Waiting;
    let settles = worked && (ends.settles || !observed.settled);
    let end: fn(Reason) -> EntryTransition = if settles { Settle } else { End };
    let orphan = match (prior.aged, entry.suspect) {
        (false, _) => Keep,
        (true, false) => Suspect,
        (true, true) if ends.tombstones && !key.kind.is_deletion() => Tombstone,
        (true, true) => End(Reason::Orphan),
    };
    match (key.kind, entry.state) {
        (ObjectKind::Hold, _) => Keep,
        // It has touched nothing that would have to settle.
        (_, State::Released) if same && observed.over => End(Reason::Over),
        (_, State::Released) if same => Keep,
        (_, State::Released) if prior.stored => End(Reason::Gone),
        (_, State::Released) if prior.aged => End(Reason::Orphan),
        (_, State::Intent) if prior.aged && entry.word == Word::Expected => Lapse,
        (_, State::Intent) if prior.aged => End(Reason::Lapsed),
        (_, State::Settling) if prior.overdue || prior.aged && observed.settled => {
            End(Reason::Settled)
        }
        (_, State::Collected) if same && !observed.over => Readmit,
        (_, State::Collected) if prior.aged || same => End(Reason::Orphan),
        (_, State::Intent | State::Settling | State::Collected | State::Released) => Keep,
        // Its object is the backup that it deletes, so a missing object means success.
        (ObjectKind::Deletion, _) if !same => End(Reason::Gone),
        (ObjectKind::Deletion, _) if observed.deleting => Keep,
        (ObjectKind::Deletion, _) => orphan,
        (_, State::Waiting | State::Reserved | State::Active) => {
            if same && observed.over {
                end(Reason::Over)
            } else if same {
                Keep
            } else if observed.awaits(entry) {
                match (orphan, end(Reason::Over)) {
                    // The revival was never stored, and the earlier work still has to settle.
                    (Tombstone | End(_), settle @ Settle(_)) => settle,
                    (orphan, _) => orphan,
                }
            } else if entry.state == State::Active || prior.stored {
                end(Reason::Gone)
            } else {
                orphan
            }
        }
    }
}

#[cfg(test)]
mod tests;
