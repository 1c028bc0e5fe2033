//! The ledger of one scope: its claims, and every transition between two ledgers. Nothing here reads or writes.
//!
//! What always holds: no two claims that are Reserved, Active or Settling conflict, but for objects that were
//! [adopted](Ledger::adopt) because they existed without a claim, or [forced](Ask::forced) by a person.

use std::cmp::Reverse;

use crate::{
    claim::{Claim, Entry, ObjectKey, ObjectKind, State},
    conflict::{Conflict, Rules, keeps_out},
    footprint::Footprint,
};

mod format;
mod intent;
mod queue;
mod release;
mod room;
#[cfg(test)]
mod tests;

pub(crate) use format::MAX_EPOCH;
pub use format::{FORMAT_VERSION, FormatError};
pub use release::by;
pub use room::Room;
pub(crate) use room::{MAX_BYTES, SHARE_BYTES, SHARE_ENTRIES};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Status {
    /// Just made; its marker does not name it yet.
    Opening,
    #[default]
    Open,
    /// Rebuilt after a loss: nothing is granted until late creations have come or cannot.
    Rebuilding,
    /// Idle and empty, about to be removed. Never opened again.
    Closed,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ledger {
    pub status: Status,
    /// One more at every exclusive grant and every forced release; never goes back.
    pub epoch: u64,
    /// As far as the epoch may go before the marker of the scope is written again.
    pub bound: u64,
    /// The claims, in the order in which their names came.
    pub claims: Vec<Claim>,
    /// What the profile says. Not stored: each reader of a ledger knows the profile.
    pub rules: Rules,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ask {
    /// Wait for a place instead of being refused.
    pub queue: bool,
    /// Take the place whatever is in the way, with the reason that a person gave.
    pub forced: Option<String>,
    /// The resourceVersion of the ended object that is to come back to life; empty for a creation or a deletion.
    pub revives: String,
    /// The person or the schedule whose share of the ledger it takes, in words; empty: it takes no share.
    pub requester: String,
    /// A restore whose client comes again by itself if it is refused.
    pub insists: bool,
    /// A creation: its object is not stored, so it cannot say that more is wanted than at first.
    pub creates: bool,
    /// A person forces it: there is room that is kept for that, and it takes no share.
    pub urgent: bool,
}

impl Ask {
    /// Waits for its turn if anything is in the way.
    pub fn queued() -> Self {
        Self { queue: true, ..Self::default() }
    }

    /// Takes its place whatever is in the way.
    pub fn forced(reason: &str) -> Self {
        Self { forced: Some(reason.to_owned()), urgent: true, ..Self::default() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grant {
    /// It keeps others out, and may be activated.
    Reserved,
    Waiting(Conflict),
    /// It was taken although these are in the way.
    Forced(Conflict),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Conflict(#[from] Conflict),
    #[error("it waits for its turn: {0}")]
    Waiting(Conflict),
    /// The ledger holds as much as this kind may fill of it.
    #[error(
        "the ledger is full for {room} ({entries} entries, with one more {bytes} bytes): these may fill {} entries and {} bytes of \
         it{}. Wait until running backups and restores have ended, or delete those that should not run; \
         `kubectl backup locks` shows them",
        room.entries(), room.bytes(), room.rest()
    )]
    Full {
        room: Room,
        entries: usize,
        /// Size of its JSON, at most.
        bytes: usize,
    },
    /// The requester has had its share.
    #[error(
        "{requester} has {entries} entries in the ledger ({bytes} bytes with one more), and one person or schedule may have \
         {SHARE_ENTRIES} entries and {SHARE_BYTES} bytes. Wait until some of these have ended, or delete those that should not run; \
         `kubectl backup locks` shows them"
    )]
    Share { requester: String, entries: usize, bytes: usize },
    /// Nothing was admitted under this name and uid.
    #[error("{key} (uid {uid}) has no claim in the ledger")]
    NotClaimed { key: ObjectKey, uid: String },
    /// A person took its claim by force, and what was released stays released.
    #[error("the claim of {key} was released by force{}; it is not claimed again", by(.note))]
    Released {
        key: ObjectKey,
        /// Who released it and why; empty if that is not known.
        note: String,
    },
    /// The ledger is being made, rebuilt or removed, and grants nothing meanwhile.
    #[error("the ledger is {0:?} and grants nothing now")]
    NotOpen(Status),
}

impl Refusal {
    pub fn category(&self) -> &'static str {
        match self {
            Self::Conflict(_) => "conflict",
            Self::Waiting(_) => "waiting",
            Self::Full { .. } => "full",
            Self::Share { .. } => "share",
            Self::NotClaimed { .. } => "not_claimed",
            Self::Released { .. } => "released",
            Self::NotOpen(_) => "not_open",
        }
    }
}

impl Ledger {
    /// What takes the place of a lost ledger: it grants nothing, and its epoch is beyond the highest that was seen.
    pub fn lost(epoch: u64, rules: Rules) -> Self {
        Self { status: Status::Rebuilding, epoch: epoch + 1, rules, ..Self::default() }
    }

    /// Goes on from the epoch of the ledger that it takes the place of.
    pub fn go_on_from(&mut self, epoch: u64) {
        self.epoch += epoch;
        for claim in &mut self.claims {
            claim.entries.iter_mut().for_each(|entry| entry.epoch += epoch);
        }
    }

    pub fn claim(&self, key: &ObjectKey) -> Option<&Claim> {
        self.claims.iter().find(|claim| claim.key == *key)
    }

    pub fn entry(&self, key: &ObjectKey, uid: &str) -> Option<&Entry> {
        self.claim(key)?.entry(uid)
    }

    pub fn len(&self) -> usize {
        self.claims.iter().map(|claim| claim.entries.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// What keeps an object of this name and footprint out: claims with the entries in its way.
    pub fn conflicts(&self, key: &ObjectKey, footprint: &Footprint) -> Vec<Claim> {
        self.in_the_way(key, footprint, |_, entry| keeps_out(entry, key.kind))
    }

    /// Who works comes before who may work, and both before who is only expected: the first is the one to be told of.
    fn in_the_way(
        &self,
        key: &ObjectKey,
        footprint: &Footprint,
        counts: impl Fn(&Claim, &Entry) -> bool,
    ) -> Vec<Claim> {
        let of = |claim: &Claim| {
            if !self.rules.may_exclude(key.kind, claim.key.kind) {
                return None;
            }
            claim.only(|entry| counts(claim, entry) && self.rules.conflicts(key, footprint, claim, entry))
        };
        let mut holders: Vec<Claim> = self.claims.iter().filter_map(of).collect();
        holders.sort_by_key(|claim| Reverse(claim.state()));
        holders
    }

    /// Reserves a place for this uid, or lets it wait for one. A restore that may wait goes before backups that have not begun.
    ///
    /// The same uid may come again: its age starts at zero, and if its object is stored and asks for more, it is checked again.
    ///
    /// A uid whose claim was released by force is refused, unless its object has ended and is to come back to life.
    ///
    /// `since` is for people. On a refusal the ledger is unchanged.
    pub fn admit(
        &mut self,
        key: &ObjectKey,
        uid: &str,
        footprint: &Footprint,
        since: &str,
        ask: &Ask,
    ) -> Result<Grant, Refusal> {
        self.take(key, uid, footprint, since, ask, ask.forced.as_deref().unwrap_or_default())
    }

    /// The same, and `note` has to have room with it.
    fn take(
        &mut self,
        key: &ObjectKey,
        uid: &str,
        footprint: &Footprint,
        since: &str,
        ask: &Ask,
        note: &str,
    ) -> Result<Grant, Refusal> {
        if self.status != Status::Open {
            return Err(Refusal::NotOpen(self.status));
        }
        if ask.revives.is_empty() {
            self.not_released(key, uid)?;
        }
        let known = self.entry_mut(key, uid).filter(|entry| {
            matches!(entry.state, State::Waiting | State::Reserved | State::Active)
                && (ask.creates || entry.footprint.covers(footprint))
        });
        if let Some(entry) = known {
            entry.renew(&ask.revives);
            return Ok(match entry.state {
                State::Waiting => Grant::Waiting(self.behind(key, uid)),
                _ => Grant::Reserved,
            });
        }
        let own = self.entry(key, uid);
        // Who has a place already cannot go back and wait for a larger one: two who did would wait for each other.
        let placed = own.is_some_and(|entry| entry.state > State::Waiting);
        // The entry will cover what it had, what is asked for, and whatever a footprint of both has to name besides.
        let together = own.map_or_else(|| footprint.clone(), |entry| entry.footprint.union(footprint));
        // Not under a name that waits already: it has its place, and those who wait behind it have theirs.
        let waits_already = self.claim(key).is_some_and(|claim| claim.entries.iter().any(Entry::waits));
        let goes_first = ask.queue && !placed && !waits_already && key.kind == ObjectKind::Restore;
        let yielding = if goes_first { self.yielding_to(key, &together) } else { Vec::new() };
        let holders = self.in_the_way(key, &together, |claim, entry| {
            if yielding.iter().any(|one| one.key == claim.key) && self.yields(claim, entry) {
                return false;
            }
            let waits = entry.waits();
            let came_later = placed && (waits || entry.state == State::Intent);
            let asked = || self.rules.conflicts(key, footprint, claim, entry);
            let behind = waits && self.is_behind(claim, key);
            keeps_out(entry, key.kind) && !behind && (!came_later || asked())
        });
        let conflict = (!holders.is_empty()).then(|| Conflict { key: key.clone(), holders });
        if let Some(conflict) = &conflict
            && (!ask.queue || placed)
            && ask.forced.is_none()
        {
            return Err(conflict.clone().into());
        }
        let waits = conflict.is_some() && ask.forced.is_none();
        let state = if waits { State::Waiting } else { State::Reserved };
        let entry = Entry {
            revives: ask.revives.clone(),
            requester: room::digest_of(&ask.requester),
            ..Entry::new(uid, footprint.clone(), state, since)
        };
        self.has_room(key, &Entry { note: note.to_owned(), ..entry.clone() }, ask)?;
        if waits {
            self.go_last(key);
        }
        self.place(key, entry);
        if !yielding.is_empty() {
            self.take_turns_back(key, &yielding);
        }
        self.remove(key, |entry| entry.state == State::Intent);
        // What the name had before may have kept others waiting.
        self.promote();
        Ok(match conflict {
            None => Grant::Reserved,
            Some(conflict) => match &ask.forced {
                Some(reason) => {
                    if let Some(entry) = self.entry_mut(key, uid) {
                        entry.forced = true;
                        entry.note.clone_from(reason);
                    }
                    Grant::Forced(conflict)
                }
                None => Grant::Waiting(conflict),
            },
        })
    }

    /// Takes in an object that exists without a claim, whatever stands beside it: it is there, and keeps others out. Not so
    /// if its claim was released by force.
    ///
    /// Two adopted objects may conflict. [`Ledger::activate`] then lets only one of them work. There is always room: if need
    /// be, every entry comes to cover everything, and if that is not enough, one claim stands for all that is left.
    pub fn adopt(&mut self, key: &ObjectKey, uid: &str, footprint: &Footprint, state: State, since: &str) {
        if self.entry(key, uid).is_some_and(Entry::has_its_place) {
            return;
        }
        let mut entry = Entry::new(uid, footprint.clone(), state, since);
        if !self.has_room_for_running(key, &entry) && self.len() < Room::Deletions.entries() {
            self.widen();
            entry.footprint = Footprint::everything();
        }
        if self.has_room_for_running(key, &entry) {
            self.place(key, entry);
        } else {
            self.overflow(since);
        }
    }

    /// [Adopts](Self::adopt) all of these, as they were found: what has begun comes first. `engine`: whether it is our
    /// controller that works on them. It asks for the right to work before it begins: until then, what it has not begun
    /// need not keep anything out, and is left out if there is no room.
    pub fn adopt_running(&mut self, mut running: Vec<(ObjectKey, Entry)>, engine: bool) {
        running.sort_by_key(|(_, entry)| entry.state != State::Active);
        for (key, entry) in running {
            let can_wait = engine && entry.state != State::Active;
            if !can_wait || self.has_room_for_running(&key, &entry) {
                self.adopt(&key, &entry.uid, &entry.footprint, entry.state, &entry.since);
            }
        }
    }

    /// Gives the right to work to an admitted uid, and returns the fencing number. The same uid may come again.
    ///
    /// What works, settles or is held by a person, and conflicts (possible only after an adoption), keeps its place.
    pub fn activate(&mut self, key: &ObjectKey, uid: &str) -> Result<u64, Refusal> {
        if self.status != Status::Open {
            return Err(Refusal::NotOpen(self.status));
        }
        self.not_released(key, uid)?;
        let entry = self.entry(key, uid).filter(|entry| entry.state >= State::Waiting);
        let Some(entry) = entry.filter(|entry| entry.state != State::Settling) else {
            return Err(Refusal::NotClaimed { key: key.clone(), uid: uid.to_owned() });
        };
        match entry.state {
            State::Active => return Ok(entry.epoch),
            State::Waiting => return Err(Refusal::Waiting(self.behind(key, uid))),
            _ => {}
        }
        let (epoch, forced) = (entry.epoch, entry.forced);
        let works = |claim: &Claim, entry: &Entry| {
            matches!(entry.state, State::Active | State::Settling)
                || claim.key.kind == ObjectKind::Hold && entry.state == State::Reserved
        };
        let holders = self.in_the_way(key, &entry.footprint, works);
        if !holders.is_empty() && !forced {
            return Err(Conflict { key: key.clone(), holders }.into());
        }
        if let Some(entry) = self.entry_mut(key, uid) {
            entry.state = State::Active;
            entry.suspect = false;
        }
        Ok(epoch)
    }

    /// Removes the entry of this uid and leaves the others of the name as they are; who waited for it may have its place
    /// in the same step. Whether there was one.
    pub fn release(&mut self, key: &ObjectKey, uid: &str) -> bool {
        self.drop_where(key, |entry| entry.uid == uid)
    }

    /// Ends the work of this uid, but keeps its place until what it worked on has settled. Whether there was one.
    pub fn settle(&mut self, key: &ObjectKey, uid: &str) -> bool {
        self.turn(key, uid, |state| matches!(state, State::Reserved | State::Active), State::Settling)
    }

    /// Removes the entry of this uid if it is in this state still, so that an activation in between wins.
    pub fn drop_if(&mut self, key: &ObjectKey, uid: &str, state: State) -> bool {
        self.drop_where(key, |entry| entry.uid == uid && entry.state == state)
    }

    /// Notes that a reservation's object was looked for and not found for a whole grace. Whether that was news.
    pub fn suspect(&mut self, key: &ObjectKey, uid: &str) -> bool {
        let entry = self.entry_mut(key, uid).filter(|entry| entry.state < State::Settling && !entry.suspect);
        entry.map(|entry| entry.suspect = true).is_some()
    }

    /// Turns an orphan into a tombstone: its object may come late, and would start on sight. It keeps restores out only.
    pub fn tombstone(&mut self, key: &ObjectKey, uid: &str, state: State) -> bool {
        let done = self.turn(key, uid, |now| now == state, State::Collected);
        self.promote();
        done
    }

    /// A person holds what this footprint covers, from now on or once those who are there have left. `by` says who and
    /// why.
    pub fn hold(
        &mut self,
        key: &ObjectKey,
        uid: &str,
        footprint: &Footprint,
        since: &str,
        by: &str,
    ) -> Result<Grant, Refusal> {
        let grant = self.take(key, uid, footprint, since, &Ask::queued(), by)?;
        if let Some(entry) = self.entry_mut(key, uid) {
            by.clone_into(&mut entry.note);
        }
        Ok(grant)
    }

    /// Who holds the scope, for people: a restore by name, or how many.
    pub fn holder(&self) -> String {
        let of = |kind: ObjectKind| {
            let holds = |claim: &&Claim| claim.key.kind == kind && claim.state() >= State::Reserved;
            let claims: Vec<&Claim> = self.claims.iter().filter(holds).collect();
            let noun = kind.as_str().to_lowercase();
            match claims.as_slice() {
                [] => None,
                [one] => Some(format!("{noun}/{}/{}", one.key.namespace, one.key.name)),
                many => Some(format!("{} {noun}s", many.len())),
            }
        };
        let parts: Vec<String> = ObjectKind::ALL.into_iter().filter_map(of).collect();
        match self.status {
            Status::Open => parts.join(" and "),
            status => format!("{status:?}").to_lowercase(),
        }
    }

    /// Puts an entry into this state; one that is there keeps its place in the order, and covers both footprints.
    fn place(&mut self, key: &ObjectKey, entry: Entry) {
        if key.kind.is_exclusive() && entry.state >= State::Reserved {
            self.epoch += 1;
        }
        let epoch = self.epoch;
        if let Some(own) = self.entry_mut(key, &entry.uid) {
            own.footprint = own.footprint.union(&entry.footprint);
            if own.state == State::Released {
                own.note.clear();
            }
            if own.state != State::Active {
                (own.state, own.epoch, own.requester) = (entry.state, epoch, entry.requester);
                own.renew(&entry.revives);
            }
            return;
        }
        let entry = Entry { epoch, ..entry };
        match self.claims.iter_mut().find(|claim| claim.key == *key) {
            Some(claim) => claim.entries.push(entry),
            None => self.claims.push(Claim { key: key.clone(), entries: vec![entry] }),
        }
    }

    /// Someone who begins to wait under a name that has been here before does not take the name's place in the order:
    /// others have been waiting for longer.
    fn go_last(&mut self, key: &ObjectKey) {
        let waits = |claim: &Claim| claim.entries.iter().any(|entry| entry.state == State::Waiting);
        if let Some(place) = self.claims.iter().position(|claim| claim.key == *key && !waits(claim)) {
            let claim = self.claims.remove(place);
            self.claims.push(claim);
        }
    }

    fn turn(&mut self, key: &ObjectKey, uid: &str, from: impl Fn(State) -> bool, to: State) -> bool {
        let entry = self.entry_mut(key, uid).filter(|entry| from(entry.state));
        entry.map(|entry| (entry.state, entry.suspect) = (to, false)).is_some()
    }

    fn entry_mut(&mut self, key: &ObjectKey, uid: &str) -> Option<&mut Entry> {
        let claim = self.claims.iter_mut().find(|claim| claim.key == *key)?;
        claim.entries.iter_mut().find(|entry| entry.uid == uid)
    }

    fn drop_where(&mut self, key: &ObjectKey, over: impl Fn(&Entry) -> bool) -> bool {
        let dropped = self.remove(key, over);
        if dropped {
            self.promote();
        }
        dropped
    }

    fn remove(&mut self, key: &ObjectKey, over: impl Fn(&Entry) -> bool) -> bool {
        let before = self.len();
        if let Some(claim) = self.claims.iter_mut().find(|claim| claim.key == *key) {
            claim.entries.retain(|entry| !over(entry));
        }
        self.claims.retain(|claim| !claim.entries.is_empty());
        self.len() < before
    }
}
