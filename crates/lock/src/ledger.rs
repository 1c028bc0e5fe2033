//! The ledger of one scope: its claims, and every transition between two ledgers. No function here
//! does I/O.
//!
//! Invariant: no two claims that are Reserved, Active or Settling conflict, except for objects that
//! were [adopted](Ledger::adopt) because they existed without a claim, or [forced](Ask::forced) by
//! a user.

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

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
pub enum Status {
    /// Just created; its marker does not name it yet.
    Opening,
    #[default]
    Open,
    /// Being rebuilt after a loss: nothing is granted until late creations have arrived or cannot.
    Rebuilding,
    /// Idle and empty, about to be removed. Never reopened.
    Closed,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ledger {
    pub status: Status,
    /// Increases by one at every exclusive grant and every forced release; never decreases.
    pub epoch: u64,
    /// Highest epoch allowed before the marker of the scope must be written again.
    pub bound: u64,
    /// The claims, in order of admission of their names.
    pub claims: Vec<Claim>,
    /// The rules of the profile. Not stored: each reader of a ledger knows the profile.
    pub rules: Rules,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ask {
    /// Wait for a place instead of being refused.
    pub queue: bool,
    /// Reserve in spite of conflicts, with the user's reason.
    pub forced: Option<String>,
    /// The resourceVersion of the ended object that is to be revived; empty for a creation or a
    /// deletion.
    pub revives: String,
    /// The user or schedule whose share of the ledger it takes, for display; empty: it takes no
    /// share.
    pub requester: String,
    /// A restore whose client retries automatically after a refusal.
    pub insists: bool,
    /// A creation: its object is not stored, so a repeated request cannot widen its footprint.
    pub creates: bool,
    /// Forced by a user: it may use the room reserved for that, and takes no share.
    pub urgent: bool,
}

impl Ask {
    /// Waits in the queue if anything conflicts.
    pub fn queued() -> Self {
        Self {
            queue: true,
            ..Self::default()
        }
    }

    /// Reserves in spite of conflicts.
    pub fn forced(reason: &str) -> Self {
        Self {
            forced: Some(reason.to_owned()),
            urgent: true,
            ..Self::default()
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grant {
    /// Reserved: it keeps others out, and may be activated.
    Reserved,
    Waiting(Conflict),
    /// Reserved in spite of these conflicts.
    Forced(Conflict),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Conflict(#[from] Conflict),
    #[error("it waits for its turn: {0}")]
    Waiting(Conflict),
    /// The ledger is full for this kind.
    #[error(
        "the ledger is full for {room} ({entries} entries, with one more {bytes} bytes): these may fill {} entries and {} bytes of \
         it{}. Wait until running backups and restores have ended, or delete those that should not run; \
         `kubectl backup locks` shows them",
        room.entries(), room.bytes(), room.rest()
    )]
    Full {
        room: Room,
        entries: usize,
        /// Upper bound of the size of its JSON.
        bytes: usize,
    },
    /// The requester's share is used up.
    #[error(
        "{requester} has {entries} entries in the ledger ({bytes} bytes with one more), and one person or schedule may have \
         {SHARE_ENTRIES} entries and {SHARE_BYTES} bytes. Wait until some of these have ended, or delete those that should not run; \
         `kubectl backup locks` shows them"
    )]
    Share {
        requester: String,
        entries: usize,
        bytes: usize,
    },
    /// Nothing was admitted under this name and uid.
    #[error("{key} (uid {uid}) has no claim in the ledger")]
    NotClaimed { key: ObjectKey, uid: String },
    /// A user released its claim by force; it is not claimed again.
    #[error("the claim of {key} was released by force{}; it is not claimed again", by(.note))]
    Released {
        key: ObjectKey,
        /// Who released it and why; empty if unknown.
        note: String,
    },
    /// The ledger is being created, rebuilt or removed, and grants nothing meanwhile.
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
    /// Replaces a lost ledger: grants nothing, with an epoch beyond the highest seen.
    pub fn lost(epoch: u64, rules: Rules) -> Self {
        Self {
            status: Status::Rebuilding,
            epoch: epoch + 1,
            rules,
            ..Self::default()
        }
    }

    /// Continues from the epoch of the ledger that it replaces.
    pub fn go_on_from(&mut self, epoch: u64) {
        self.epoch += epoch;
        for claim in &mut self.claims {
            claim
                .entries
                .iter_mut()
                .for_each(|entry| entry.epoch += epoch);
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

    /// The claims that keep an object of this name and footprint out, with only their conflicting
    /// entries.
    pub fn conflicts(&self, key: &ObjectKey, footprint: &Footprint) -> Vec<Claim> {
        self.in_the_way(key, footprint, |_, entry| keeps_out(entry, key.kind))
    }

    /// The conflicting claims, highest state first (Active, then Reserved, then intents): messages
    /// name the first.
    fn in_the_way(
        &self,
        key: &ObjectKey,
        footprint: &Footprint,
        counts: impl Fn(&Claim, &Entry) -> bool,
    ) -> Vec<Claim> {
        let mut holders: Vec<Claim> = self
            .claims
            .iter()
            .filter(|claim| self.rules.may_exclude(key.kind, claim.key.kind))
            .filter_map(|claim| {
                claim.only(|entry| {
                    counts(claim, entry) && self.rules.conflicts(key, footprint, claim, entry)
                })
            })
            .collect();
        holders.sort_by_key(|claim| Reverse(claim.state()));
        holders
    }

    /// Reserves a place for this uid, or queues it. A restore that may wait goes before backups
    /// that have not begun.
    ///
    /// The same uid may be admitted again: its age restarts at zero, and if its object is stored
    /// and asks for more, it is checked again.
    ///
    /// A uid whose claim was released by force is refused, unless its object has ended and is to be
    /// revived.
    ///
    /// `since` is for display. On a refusal the ledger is unchanged.
    pub fn admit(
        &mut self,
        key: &ObjectKey,
        uid: &str,
        footprint: &Footprint,
        since: &str,
        ask: &Ask,
    ) -> Result<Grant, Refusal> {
        self.take(
            key,
            uid,
            footprint,
            since,
            ask,
            ask.forced.as_deref().unwrap_or_default(),
        )
    }

    /// The same, with room required for `note` too.
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
            matches!(
                entry.state,
                State::Waiting | State::Reserved | State::Active
            ) && (ask.creates || entry.footprint.covers(footprint))
        });
        if let Some(entry) = known {
            entry.renew(&ask.revives);
            return Ok(match entry.state {
                State::Waiting => Grant::Waiting(self.behind(key, uid)),
                _ => Grant::Reserved,
            });
        }
        let own = self.entry(key, uid);
        // An entry with a place cannot go back to wait for a larger one: two that did would wait
        // for each other.
        let placed = own.is_some_and(|entry| entry.state > State::Waiting);
        // The entry will cover its old footprint, the requested one, and whatever their union has
        // to add.
        let together = own.map_or_else(
            || footprint.clone(),
            |entry| entry.footprint.union(footprint),
        );
        // Not under a name that waits already: it keeps its position, and so do the claims behind
        // it.
        let waits_already = self
            .claim(key)
            .is_some_and(|claim| claim.entries.iter().any(Entry::waits));
        let goes_first = ask.queue && !placed && !waits_already && key.kind == ObjectKind::Restore;
        let yielding = if goes_first {
            self.yielding_to(key, &together)
        } else {
            Vec::new()
        };
        let holders = self.in_the_way(key, &together, |claim, entry| {
            if yielding.iter().any(|one| one.key == claim.key) && self.yields(claim, entry) {
                return false;
            }
            let waits = entry.waits();
            let came_later = placed && (waits || entry.state == State::Intent);
            let behind = waits && self.is_behind(claim, key);
            keeps_out(entry, key.kind)
                && !behind
                && (!came_later || self.rules.conflicts(key, footprint, claim, entry))
        });
        let conflict = (!holders.is_empty()).then(|| Conflict {
            key: key.clone(),
            holders,
        });
        if let Some(conflict) = &conflict
            && (!ask.queue || placed)
            && ask.forced.is_none()
        {
            return Err(conflict.clone().into());
        }
        let waits = conflict.is_some() && ask.forced.is_none();
        let state = if waits {
            State::Waiting
        } else {
            State::Reserved
        };
        let entry = Entry {
            revives: ask.revives.clone(),
            requester: room::digest_of(&ask.requester),
            ..Entry::new(uid, footprint.clone(), state, since)
        };
        self.has_room(
            key,
            &Entry {
                note: note.to_owned(),
                ..entry.clone()
            },
            ask,
        )?;
        if waits {
            self.go_last(key);
        }
        self.place(key, entry);
        if !yielding.is_empty() {
            self.take_turns_back(key, &yielding);
        }
        self.remove(key, |entry| entry.state == State::Intent);
        // The replaced intent of this name may have kept others waiting.
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

    /// Adds an entry for an object that exists without a claim, in spite of conflicts. Not if its
    /// claim was released by force.
    ///
    /// Two adopted objects may conflict. [`Ledger::activate`] then lets only one of them work.
    /// There is always room: if needed, every footprint is widened to everything, and if that is
    /// not enough, one overflow claim stands for the rest.
    pub fn adopt(
        &mut self,
        key: &ObjectKey,
        uid: &str,
        footprint: &Footprint,
        state: State,
        since: &str,
    ) {
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

    /// [Adopts](Self::adopt) all of these, in order, Active ones first. `engine`: whether our
    /// controller works on them. It activates a claim before it begins: so an object that has not
    /// begun need not keep anything out, and is left out if there is no room.
    pub fn adopt_running(&mut self, mut running: Vec<(ObjectKey, Entry)>, engine: bool) {
        running.sort_by_key(|(_, entry)| entry.state != State::Active);
        for (key, entry) in running {
            let can_wait = engine && entry.state != State::Active;
            if !can_wait || self.has_room_for_running(&key, &entry) {
                self.adopt(
                    &key,
                    &entry.uid,
                    &entry.footprint,
                    entry.state,
                    &entry.since,
                );
            }
        }
    }

    /// Activates an admitted uid, and returns its epoch as the fencing number. May be called again
    /// for the same uid.
    ///
    /// Conflicting entries that are Active or Settling, and conflicting holds, prevail (possible
    /// only after an adoption).
    pub fn activate(&mut self, key: &ObjectKey, uid: &str) -> Result<u64, Refusal> {
        if self.status != Status::Open {
            return Err(Refusal::NotOpen(self.status));
        }
        self.not_released(key, uid)?;
        let entry = self
            .entry(key, uid)
            .filter(|entry| entry.state >= State::Waiting);
        let Some(entry) = entry.filter(|entry| entry.state != State::Settling) else {
            return Err(Refusal::NotClaimed {
                key: key.clone(),
                uid: uid.to_owned(),
            });
        };
        match entry.state {
            State::Active => return Ok(entry.epoch),
            State::Waiting => return Err(Refusal::Waiting(self.behind(key, uid))),
            _ => {}
        }
        let epoch = entry.epoch;
        let forced = entry.forced;
        let holders = self.in_the_way(key, &entry.footprint, |claim, entry| {
            matches!(entry.state, State::Active | State::Settling)
                || claim.key.kind == ObjectKind::Hold && entry.state == State::Reserved
        });
        if !holders.is_empty() && !forced {
            return Err(Conflict {
                key: key.clone(),
                holders,
            }
            .into());
        }
        if let Some(entry) = self.entry_mut(key, uid) {
            entry.state = State::Active;
            entry.suspect = false;
        }
        Ok(epoch)
    }

    /// Removes the entry of this uid and leaves the others of the name unchanged; a waiting claim
    /// may be reserved in the same step. Returns whether there was one.
    pub fn release(&mut self, key: &ObjectKey, uid: &str) -> bool {
        self.drop_where(key, |entry| entry.uid == uid)
    }

    /// Ends the work of this uid, but keeps its place until its data has settled. Returns whether
    /// there was one.
    pub fn settle(&mut self, key: &ObjectKey, uid: &str) -> bool {
        self.turn(
            key,
            uid,
            |state| matches!(state, State::Reserved | State::Active),
            State::Settling,
        )
    }

    /// Removes the entry of this uid if it is still in this state, so that a concurrent activation
    /// wins.
    pub fn drop_if(&mut self, key: &ObjectKey, uid: &str, state: State) -> bool {
        self.drop_where(key, |entry| entry.uid == uid && entry.state == state)
    }

    /// Marks an entry whose object was missing for a whole grace. Returns whether that is new.
    pub fn suspect(&mut self, key: &ObjectKey, uid: &str) -> bool {
        let entry = self
            .entry_mut(key, uid)
            .filter(|entry| entry.state < State::Settling && !entry.suspect);
        entry.map(|entry| entry.suspect = true).is_some()
    }

    /// Turns an orphan into a tombstone: its object may be stored late, and would start on sight.
    /// It keeps only restores out.
    pub fn tombstone(&mut self, key: &ObjectKey, uid: &str, state: State) -> bool {
        let done = self.turn(key, uid, |now| now == state, State::Collected);
        self.promote();
        done
    }

    /// Adds a user's hold on this footprint, effective now or once the current claims have ended.
    /// `by` says who and why.
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

    /// The holders of the scope, for display: the name if there is one of a kind, otherwise their
    /// number.
    pub fn holder(&self) -> String {
        let parts: Vec<String> = ObjectKind::ALL
            .into_iter()
            .filter_map(|kind| self.holder_of_kind(kind))
            .collect();
        match self.status {
            Status::Open => parts.join(" and "),
            status => format!("{status:?}").to_lowercase(),
        }
    }

    fn holder_of_kind(&self, kind: ObjectKind) -> Option<String> {
        let claims: Vec<&Claim> = self
            .claims
            .iter()
            .filter(|claim| claim.key.kind == kind && claim.state() >= State::Reserved)
            .collect();
        let noun = kind.as_str().to_lowercase();
        match claims.as_slice() {
            [] => None,
            [one] => Some(format!("{noun}/{}/{}", one.key.namespace, one.key.name)),
            many => Some(format!("{} {noun}s", many.len())),
        }
    }

    /// Sets an entry to this state; an existing one keeps its position in the order, and covers
    /// both footprints.
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
                own.state = entry.state;
                own.epoch = epoch;
                own.requester = entry.requester;
                own.renew(&entry.revives);
            }
            return;
        }
        let entry = Entry { epoch, ..entry };
        match self.claims.iter_mut().find(|claim| claim.key == *key) {
            Some(claim) => claim.entries.push(entry),
            None => self.claims.push(Claim {
                key: key.clone(),
                entries: vec![entry],
            }),
        }
    }

    /// Moves a name that begins to wait to the end of the order, if it has an older position: other
    /// claims have been waiting for longer.
    fn go_last(&mut self, key: &ObjectKey) {
        if let Some(place) = self
            .claims
            .iter()
            .position(|claim| claim.key == *key && !claim.entries.iter().any(Entry::waits))
        {
            let claim = self.claims.remove(place);
            self.claims.push(claim);
        }
    }

    fn turn(
        &mut self,
        key: &ObjectKey,
        uid: &str,
        from: impl Fn(State) -> bool,
        to: State,
    ) -> bool {
        let entry = self.entry_mut(key, uid).filter(|entry| from(entry.state));
        let Some(entry) = entry else {
            return false;
        };
        entry.state = to;
        entry.suspect = false;
        true
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
