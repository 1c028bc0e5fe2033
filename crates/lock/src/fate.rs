//! What becomes of an entry, judged by what its object looks like now. Pure.

use crate::{
    claim::{Entry, ObjectKey, ObjectKind, State},
    ledger::Ledger,
};

/// The object of an entry's name as it was just read, as far as the judgement needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sight {
    /// Uid of the object of that name; none: there is none.
    pub uid: Option<String>,
    pub over: bool,
    pub deleting: bool,
    /// Whether what it worked on may be touched again, as the profile's release rule says.
    pub settled: bool,
}

/// What the observer knows from before, on its own clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Known {
    /// The uid was seen stored. It can't be stored again.
    pub stored: bool,
    /// The entry has been as it is, with its object missing where it should have one, for as long as it may be.
    pub aged: bool,
    /// It has settled for longer than any release rule may ask for.
    pub overdue: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ends {
    /// Restores keep their place for a while after their end.
    pub settles: bool,
    /// The operator starts on sight, so an orphan's object may come late and run: keep restores out a while longer.
    pub entombs: bool,
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
pub enum Fate {
    Stays,
    /// It is noted that its object is missing; the next look decides.
    Suspect,
    /// It has ended and keeps its place until what it worked on has settled.
    Settles(Reason),
    Entombed,
    Ends(Reason),
    /// Its object came after its reservation was collected: it is claimed anew.
    Returns,
}

impl Fate {
    pub fn reason(self) -> Option<Reason> {
        match self {
            Self::Ends(reason) | Self::Settles(reason) => Some(reason),
            Self::Entombed => Some(Reason::Orphan),
            Self::Stays | Self::Suspect | Self::Returns => None,
        }
    }

    /// Does it to the ledger, unless the entry has another state by now. Whether anything was done. [`Fate::Returns`] is
    /// an admission, and not done here.
    pub fn befall(self, ledger: &mut Ledger, key: &ObjectKey, uid: &str, state: State) -> bool {
        let same = ledger.entry(key, uid).is_some_and(|entry| entry.state == state);
        same && match self {
            Self::Stays | Self::Returns => false,
            Self::Suspect => ledger.suspect(key, uid),
            Self::Settles(_) => ledger.settle(key, uid),
            Self::Entombed => ledger.entomb(key, uid, state),
            Self::Ends(_) => ledger.drop_if(key, uid, state),
        }
    }
}

/// Judges an entry.
///
/// An orphan takes two looks with a write of the ledger between them: the first notes the suspicion, the second, on a
/// ledger that has the note, ends it. `Active` ends only when the object is terminal or gone, not when it is merely
/// marked for deletion: its finalizer keeps it until its worker has stopped.
pub fn fate(key: &ObjectKey, entry: &Entry, sight: &Sight, known: Known, ends: Ends) -> Fate {
    let same = sight.uid.as_deref() == Some(entry.uid.as_str());
    let end = |reason| {
        // Who has waited only has touched nothing.
        let worked = key.kind == ObjectKind::Restore && entry.state != State::Waiting;
        let settles = worked && (ends.settles || !sight.settled);
        if settles { Fate::Settles(reason) } else { Fate::Ends(reason) }
    };
    let orphan = || match (known.aged, entry.suspect) {
        (false, _) => Fate::Stays,
        (true, false) => Fate::Suspect,
        (true, true) if ends.entombs && !key.kind.is_deletion() => Fate::Entombed,
        (true, true) => Fate::Ends(Reason::Orphan),
    };
    match (key.kind, entry.state) {
        (ObjectKind::Hold, _) => Fate::Stays,
        (_, State::Intent) if known.aged => Fate::Ends(Reason::Lapsed),
        (_, State::Settling) if known.overdue || known.aged && sight.settled => Fate::Ends(Reason::Settled),
        (_, State::Collected) if same && !sight.over => Fate::Returns,
        (_, State::Collected) if known.aged || same => Fate::Ends(Reason::Orphan),
        (_, State::Intent | State::Settling | State::Collected) => Fate::Stays,
        // Its object is the backup that it deletes: here, gone is the good end.
        (ObjectKind::Deletion, _) if !same => Fate::Ends(Reason::Gone),
        (ObjectKind::Deletion, _) if sight.deleting => Fate::Stays,
        (ObjectKind::Deletion, _) => orphan(),
        _ if same && sight.over => end(Reason::Over),
        _ if same => Fate::Stays,
        (_, State::Active) => end(Reason::Gone),
        _ if known.stored => end(Reason::Gone),
        _ => orphan(),
    }
}

#[cfg(test)]
mod tests;
