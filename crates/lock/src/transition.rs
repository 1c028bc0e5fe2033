//! The transition of an entry, decided by what its object looks like now. Pure.

use std::time::Duration;

use crate::{
    claim::{Entry, ObjectKey, ObjectKind, State, Word},
    ledger::Ledger,
};

/// How long a refused restore is waited for once it may come, if it was not seen to come again. Whoever looks does so every
/// ten seconds: it keeps backups out for twenty seconds or so.
const EXPECTED: Duration = Duration::from_secs(10);

/// How long entries stay that nothing else ends. Each is counted on the observer's own clock, from first sight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// A reservation whose object is not there.
    pub grace: Duration,
    /// The place of a restore that has ended.
    pub settle: Duration,
    /// The same at most, whatever a release rule waits for.
    pub settle_at_most: Duration,
    /// The word that a refused restore leaves; at most.
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
    /// How long an entry stays as it is.
    pub(crate) fn of(&self, entry: &Entry) -> Duration {
        match entry.state {
            State::Intent if entry.word == Word::Expected => self.intent.min(EXPECTED),
            State::Intent => self.intent,
            State::Settling => self.settle,
            State::Waiting | State::Reserved | State::Collected | State::Active | State::Released => {
                self.grace
            }
        }
    }
}

/// The object of an entry's name as it was just read, as far as the judgement needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ObservedState {
    /// Uid of the object of that name; none: there is none.
    pub uid: Option<String>,
    /// Its resourceVersion.
    pub version: String,
    pub over: bool,
    pub deleting: bool,
    /// Whether what it worked on may be touched again: the profile's release rule says so, and no worker of ours has it.
    pub settled: bool,
}

impl ObservedState {
    /// Whether this is what the entry was admitted for. Not so if it has the entry's uid, but is what was there before: a
    /// revival that was admitted and is not stored yet.
    pub fn is_of(&self, entry: &Entry) -> bool {
        self.uid.as_deref() == Some(entry.uid.as_str()) && !self.awaits(entry)
    }

    /// Whether the object of the entry is there, and waits for the write that takes it back to life.
    fn awaits(&self, entry: &Entry) -> bool {
        let revives = !entry.revives.is_empty() && entry.revives == self.version;
        revives && self.uid.as_deref() == Some(entry.uid.as_str())
    }
}

/// What the observer knows from before, on its own clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PriorObservation {
    /// The uid was seen stored. It cannot be stored again.
    pub stored: bool,
    /// The entry has been as it is, with its object missing where it should have one, for as long as it may be.
    pub aged: bool,
    /// It has settled for longer than any release rule may ask for.
    pub overdue: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EndRules {
    /// Restores keep their place for a while after their end.
    pub settles: bool,
    /// The operator starts on sight, so an orphan's object may come late and run: keep restores out a while longer.
    pub tombstones: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    Over,
    /// The object was stored once and is gone.
    Gone,
    /// The object was never seen stored for the whole grace.
    Orphan,
    /// What it worked on has settled.
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
    /// It is noted that its object is missing; the next look decides.
    Suspect,
    /// It has ended and keeps its place until what it worked on has settled.
    Settle(Reason),
    Tombstone,
    End(Reason),
    /// A refused restore did not come again as soon as it could: it keeps nothing out any more.
    Lapse,
    /// Its object came after its reservation was collected: it gets a claim again.
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

    /// Changes the ledger, unless the entry stands otherwise by now than when it was judged. Returns whether anything changed. [`EntryTransition::Readmit`] is an admission, and is not made here.
    pub fn apply(self, ledger: &mut Ledger, key: &ObjectKey, judged: &Entry) -> bool {
        let (uid, state) = (judged.uid.as_str(), judged.state);
        let same = ledger.entry(key, uid).is_some_and(|entry| entry.stands_as(judged));
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
/// An orphan takes two looks with a write of the ledger between them: the first notes the suspicion, the second, on a
/// ledger that has the note, ends it. A revival that is not stored may be one, too. `Active` ends only when the object is terminal or gone, not when it is merely
/// marked for deletion: its finalizer keeps it until its worker has stopped.
pub fn decide(
    key: &ObjectKey,
    entry: &Entry,
    observed: &ObservedState,
    prior: PriorObservation,
    ends: EndRules,
) -> EntryTransition {
    use EntryTransition::{End, Keep, Lapse, Readmit, Settle, Suspect, Tombstone};
    let same = observed.is_of(entry);
    let end = |reason| {
        // Who has waited only has touched nothing.
        let worked = key.kind == ObjectKind::Restore && entry.state != State::Waiting;
        let settles = worked && (ends.settles || !observed.settled);
        if settles { Settle(reason) } else { End(reason) }
    };
    let orphan = || match (prior.aged, entry.suspect) {
        (false, _) => Keep,
        (true, false) => Suspect,
        (true, true) if ends.tombstones && !key.kind.is_deletion() => Tombstone,
        (true, true) => End(Reason::Orphan),
    };
    match (key.kind, entry.state) {
        (ObjectKind::Hold, _) => Keep,
        // It has touched nothing that would have to settle for it.
        (_, State::Released) if same && observed.over => End(Reason::Over),
        (_, State::Released) if same => Keep,
        (_, State::Released) if prior.stored => End(Reason::Gone),
        (_, State::Released) if prior.aged => End(Reason::Orphan),
        (_, State::Intent) if prior.aged && entry.word == Word::Expected => Lapse,
        (_, State::Intent) if prior.aged => End(Reason::Lapsed),
        (_, State::Settling) if prior.overdue || prior.aged && observed.settled => End(Reason::Settled),
        (_, State::Collected) if same && !observed.over => Readmit,
        (_, State::Collected) if prior.aged || same => End(Reason::Orphan),
        (_, State::Intent | State::Settling | State::Collected | State::Released) => Keep,
        // Its object is the backup that it deletes: here, gone is the good end.
        (ObjectKind::Deletion, _) if !same => End(Reason::Gone),
        (ObjectKind::Deletion, _) if observed.deleting => Keep,
        (ObjectKind::Deletion, _) => orphan(),
        _ if same && observed.over => end(Reason::Over),
        _ if same => Keep,
        _ if observed.awaits(entry) => match (orphan(), end(Reason::Over)) {
            // It never came back to life, and what it did before has to settle still.
            (Tombstone | End(_), settle @ Settle(_)) => settle,
            (orphan, _) => orphan,
        },
        (_, State::Active) => end(Reason::Gone),
        _ if prior.stored => end(Reason::Gone),
        _ => orphan(),
    }
}

#[cfg(test)]
mod tests;
