//! The ledger of one scope: its claims, and every transition between two ledgers. Nothing here reads or writes.
//!
//! What always holds: no two claims conflict, but for objects that were [adopted](Ledger::adopt) because they existed
//! without a claim. Waiting claims, intents and deletions will be further states and transitions beside these.

use crate::{
    claim::{Claim, Entry, ObjectKey, ObjectKind, State},
    conflict::{self, Conflict},
    footprint::Footprint,
};

mod format;
#[cfg(test)]
mod tests;

pub use format::{FORMAT_VERSION, FormatError};

/// Entries that a ledger holds at most.
pub const MAX_ENTRIES: usize = 1000;
/// Bytes of JSON that a ledger grows to at most; the API server allows 262,144 for all annotations together.
pub const MAX_BYTES: usize = 240 * 1024;

/// The claims of one scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// One more at every exclusive grant; never goes back.
    pub epoch: u64,
    /// The claims, in the order in which their names came.
    pub claims: Vec<Claim>,
}

/// Why an entry was not granted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Others hold what it asks for.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// The ledger holds as many entries as it can.
    #[error(
        "the ledger is full ({entries} entries, {bytes} bytes; it holds at most {MAX_ENTRIES} entries and {MAX_BYTES} bytes): \
         wait until running backups and restores have ended, or delete those that should not run"
    )]
    Full {
        /// Entries in the ledger.
        entries: usize,
        /// Size of its JSON.
        bytes: usize,
    },
    /// Nothing was admitted under this name and uid.
    #[error("{key} (uid {uid}) has no claim in the ledger")]
    NotClaimed {
        /// The name.
        key: ObjectKey,
        /// The uid.
        uid: String,
    },
}

impl Refusal {
    /// A bounded label for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Conflict(_) => "conflict",
            Self::Full { .. } => "full",
            Self::NotClaimed { .. } => "not_claimed",
        }
    }
}

impl Ledger {
    /// The claim of this name.
    pub fn claim(&self, key: &ObjectKey) -> Option<&Claim> {
        self.claims.iter().find(|claim| claim.key == *key)
    }

    /// The entry of this name and uid.
    pub fn entry(&self, key: &ObjectKey, uid: &str) -> Option<&Entry> {
        self.claim(key)?.entry(uid)
    }

    /// Number of entries in all claims.
    pub fn len(&self) -> usize {
        self.claims.iter().map(|claim| claim.entries.len()).sum()
    }

    /// Whether nothing is claimed.
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// The claims that keep an object of this name and footprint out.
    pub fn conflicts(&self, key: &ObjectKey, footprint: &Footprint) -> Vec<&Claim> {
        self.claims.iter().filter(|claim| conflict::conflicts(key, footprint, claim)).collect()
    }

    /// Reserves a place for this uid. The same uid may come again; if it then asks for more, it is checked again.
    ///
    /// `since` is for people. On a refusal the ledger is unchanged.
    pub fn admit(
        &mut self,
        key: &ObjectKey,
        uid: &str,
        footprint: &Footprint,
        since: &str,
    ) -> Result<(), Refusal> {
        let known = self.entry(key, uid);
        if known.is_some_and(|entry| entry.footprint == *footprint) {
            return Ok(());
        }
        let holders: Vec<Claim> = self.conflicts(key, footprint).into_iter().cloned().collect();
        if !holders.is_empty() {
            return Err(Conflict { key: key.clone(), holders }.into());
        }
        let before = self.clone();
        match self.entry_mut(key, uid) {
            Some(entry) => entry.footprint = entry.footprint.union(footprint),
            None => self.insert(key, uid, footprint, State::Reserved, since),
        }
        let (entries, bytes) = (self.len(), self.to_json().len());
        if entries > MAX_ENTRIES || bytes > MAX_BYTES {
            *self = before;
            return Err(Refusal::Full { entries: self.len(), bytes: self.to_json().len() });
        }
        Ok(())
    }

    /// Takes in an object that exists without a claim, whatever stands beside it: it is there, and keeps others out.
    ///
    /// Two adopted objects may conflict. [`Ledger::activate`] then lets only one of them work.
    pub fn adopt(&mut self, key: &ObjectKey, uid: &str, footprint: &Footprint, state: State, since: &str) {
        if self.entry(key, uid).is_none() {
            self.insert(key, uid, footprint, state, since);
        }
    }

    /// Gives the right to work to an admitted uid, and returns the fencing number. The same uid may come again.
    ///
    /// An Active claim that conflicts (possible only after an adoption) keeps it.
    pub fn activate(&mut self, key: &ObjectKey, uid: &str) -> Result<u64, Refusal> {
        let Some(entry) = self.entry(key, uid) else {
            return Err(Refusal::NotClaimed { key: key.clone(), uid: uid.to_owned() });
        };
        if entry.state == State::Active {
            return Ok(entry.epoch);
        }
        let holders: Vec<Claim> = self
            .conflicts(key, &entry.footprint)
            .into_iter()
            .filter(|claim| {
                let active = |other: &&Entry| other.state == State::Active;
                claim.entries.iter().filter(active).any(|other| other.footprint.overlaps(&entry.footprint))
            })
            .cloned()
            .collect();
        if !holders.is_empty() {
            return Err(Conflict { key: key.clone(), holders }.into());
        }
        let epoch = entry.epoch;
        if let Some(entry) = self.entry_mut(key, uid) {
            entry.state = State::Active;
        }
        Ok(epoch)
    }

    /// Removes the entry of this uid and leaves the others of the name as they are. Whether there was one.
    pub fn release(&mut self, key: &ObjectKey, uid: &str) -> bool {
        self.remove(key, |entry| entry.uid == uid)
    }

    /// Removes the entry of this uid if it is in this state still, so that an activation in between wins.
    pub fn drop_if(&mut self, key: &ObjectKey, uid: &str, state: State) -> bool {
        self.remove(key, |entry| entry.uid == uid && entry.state == state)
    }

    /// Who holds the scope, for people: a restore by name, or how many.
    pub fn holder(&self) -> String {
        let of = |kind: ObjectKind| {
            let claims: Vec<&Claim> = self.claims.iter().filter(|claim| claim.key.kind == kind).collect();
            match claims.as_slice() {
                [] => None,
                [one] => {
                    let kind = kind.as_str().to_lowercase();
                    Some(format!("{kind}/{}/{}", one.key.namespace, one.key.name))
                }
                many => Some(format!("{} {}", many.len(), kind.plural())),
            }
        };
        let parts: Vec<String> =
            [ObjectKind::Restore, ObjectKind::Backup].into_iter().filter_map(of).collect();
        parts.join(" and ")
    }

    fn insert(&mut self, key: &ObjectKey, uid: &str, footprint: &Footprint, state: State, since: &str) {
        if key.kind.is_exclusive() {
            self.epoch += 1;
        }
        let entry = Entry {
            uid: uid.to_owned(),
            footprint: footprint.clone(),
            state,
            epoch: self.epoch,
            since: since.to_owned(),
        };
        match self.claims.iter_mut().find(|claim| claim.key == *key) {
            Some(claim) => claim.entries.push(entry),
            None => self.claims.push(Claim { key: key.clone(), entries: vec![entry] }),
        }
    }

    fn entry_mut(&mut self, key: &ObjectKey, uid: &str) -> Option<&mut Entry> {
        let claim = self.claims.iter_mut().find(|claim| claim.key == *key)?;
        claim.entries.iter_mut().find(|entry| entry.uid == uid)
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
