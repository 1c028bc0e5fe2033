//! What a ledger holds: claims, one for each object name, with an entry for each uid that was admitted under it.

use std::fmt;

use backup_core::profile::Role;
use serde::{Deserialize, Serialize};

use crate::footprint::Footprint;

/// The scope of all Backups and Restores of `velero.io` in a cluster.
pub const VELERO_SCOPE: &str = "velero.io";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ObjectKind {
    /// Reads; shares its scope with other backups, unless the profile says otherwise.
    Backup,
    /// Writes; has what it touches to itself.
    Restore,
    /// A request to delete a backup with its files; keeps restores from that backup out, and they it.
    DeleteBackupRequest,
    /// A DELETE of a Backup object; the claim bears the backup's name.
    Deletion,
    /// A person keeps everybody out. There is no object: it stands until a person takes it away.
    Hold,
}

impl ObjectKind {
    pub const ALL: [Self; 5] =
        [Self::Restore, Self::Backup, Self::DeleteBackupRequest, Self::Deletion, Self::Hold];

    /// Whether it deletes a backup: it then touches a backup and no namespaces.
    pub fn is_deletion(self) -> bool {
        matches!(self, Self::DeleteBackupRequest | Self::Deletion)
    }

    /// The part that such an object plays in a profile; none for what belongs to the engine alone.
    pub fn role(self) -> Option<Role> {
        match self {
            Self::Backup => Some(Role::Backup),
            Self::Restore => Some(Role::Restore),
            Self::DeleteBackupRequest | Self::Deletion | Self::Hold => None,
        }
    }

    /// Whether an object of this kind that is found without a claim is claimed.
    pub(crate) fn is_claimed_as_found(self) -> bool {
        matches!(self, Self::Backup | Self::Restore | Self::DeleteBackupRequest)
    }

    /// Whether it is counted as exclusive: each grant is a new epoch.
    pub(crate) fn is_exclusive(self) -> bool {
        matches!(self, Self::Restore | Self::Hold)
    }

    /// The kind in words, as Velero names its objects.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Backup => "Backup",
            Self::Restore => "Restore",
            Self::DeleteBackupRequest => "DeleteBackupRequest",
            Self::Deletion => "Deletion",
            Self::Hold => "Hold",
        }
    }
}

impl From<Role> for ObjectKind {
    fn from(role: Role) -> Self {
        match role {
            Role::Backup => Self::Backup,
            Role::Restore => Self::Restore,
        }
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The name that a claim is for. Two objects of one name can never both be stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    pub kind: ObjectKind,
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    pub fn new(kind: ObjectKind, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub fn backup(namespace: &str, name: &str) -> Self {
        Self::new(ObjectKind::Backup, namespace, name)
    }

    pub fn restore(namespace: &str, name: &str) -> Self {
        Self::new(ObjectKind::Restore, namespace, name)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ObjectKind::Deletion => write!(f, "deletion of Backup {}/{}", self.namespace, self.name),
            kind if self.namespace.is_empty() => write!(f, "{kind} {}", self.name),
            kind => write!(f, "{kind} {}/{}", self.namespace, self.name),
        }
    }
}

/// How far an entry has come, or how it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum State {
    /// A person has taken its claim by force. Keeps nothing out and gives no right to work; remembers until its object has ended
    /// that this uid is not claimed again.
    Released,
    /// A restore was refused a moment ago. Keeps new backups out for a while, as its [`Word`] says, so that the next try finds
    /// its way free.
    Intent,
    /// A reservation whose object never came, of an operator that starts on sight: keeps restores out a while longer.
    Collected,
    /// Wants to be Reserved: keeps newcomers out, gives no right to work. Becomes Reserved when its last blocker is freed.
    Waiting,
    /// Written in admission: keeps others out, gives no right to work, may be collected as an orphan.
    Reserved,
    /// Its work has ended, but what it worked on is not to be touched yet.
    Settling,
    /// Written by the controller after a fresh read: the right to work. Stands until the work has ended.
    Active,
}

impl State {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 7] = [
        Self::Released,
        Self::Intent,
        Self::Collected,
        Self::Waiting,
        Self::Reserved,
        Self::Settling,
        Self::Active,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Released => "Released",
            Self::Intent => "Intent",
            Self::Collected => "Collected",
            Self::Waiting => "Waiting",
            Self::Reserved => "Reserved",
            Self::Settling => "Settling",
            Self::Active => "Active",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What the intent of a refused restore is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Word {
    /// It was refused, and may come again once what was in its way has ended.
    #[default]
    Refused,
    /// Nothing is in its way any more: it may come now.
    Expected,
    /// It did not come. It keeps nothing out; that it was refused is remembered, so that it is known if it comes again.
    Remembered,
    /// It came again, or its client does so by itself.
    Insisting,
}

/// One admitted object under a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    pub uid: String,
    pub footprint: Footprint,
    pub state: State,
    /// Epoch of the ledger when this entry was granted; the fencing number of its work.
    pub epoch: u64,
    /// When it was first seen, as RFC 3339. For people only: nothing is decided by it.
    pub since: String,
    /// Looked for and not found for a whole grace. The next look decides.
    pub suspect: bool,
    /// Admitted although others were in its way, because a person said so: nothing keeps it from working.
    pub forced: bool,
    /// Who holds and why, why it was forced, or who released it by force and why. For people; empty for all others.
    pub note: String,
    /// How often it was admitted again. Each time its age starts at zero, for every observer.
    pub renewals: u32,
    /// The resourceVersion of the ended object that it was admitted to take back to life; empty for a creation. As long as
    /// this version is stored, what was admitted is not.
    pub revives: String,
    /// Whose share of the ledger it takes, as a digest; empty: it takes no share.
    pub requester: String,
    /// Of an intent.
    pub word: Word,
}

impl Entry {
    /// One that nothing is known of but this.
    pub fn new(uid: &str, footprint: Footprint, state: State, since: &str) -> Self {
        Self {
            uid: uid.to_owned(),
            footprint,
            state,
            epoch: 0,
            since: since.to_owned(),
            suspect: false,
            forced: false,
            note: String::new(),
            renewals: 0,
            revives: String::new(),
            requester: String::new(),
            word: Word::default(),
        }
    }

    /// It is admitted once more: what anybody knows of its age is worth nothing. What works does not age, unless it has ended
    /// and comes back to life.
    pub(crate) fn renew(&mut self, revives: &str) {
        if self.state == State::Active && revives.is_empty() {
            return;
        }
        if self.state == State::Active {
            self.state = State::Reserved;
        }
        self.renewals = self.renewals.wrapping_add(1);
        self.suspect = false;
        revives.clone_into(&mut self.revives);
    }

    /// Whether its object has a place, waits for one, or is not to have one because a person released its claim by force: it is
    /// not claimed because it was found.
    pub fn has_its_place(&self) -> bool {
        self.state >= State::Waiting || self.state == State::Released
    }

    pub(crate) fn waits(&self) -> bool {
        self.state == State::Waiting
    }

    pub fn standing(&self) -> Standing {
        let (state, renewals, word) = (self.state, self.renewals, self.word);
        Standing { state, renewals, word, revives: self.revives.clone() }
    }

    /// Whether a judgement of `judged` is good for this entry of the same name.
    pub fn stands_as(&self, judged: &Self) -> bool {
        self.uid == judged.uid && self.suspect == judged.suspect && self.standing() == judged.standing()
    }
}

/// How an entry stands. A judgement of it, and a count of its age, are good for as long as it stands so.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Standing {
    state: State,
    renewals: u32,
    word: Word,
    /// Between two looks an entry may be freed, and its object be admitted again, to take it back to life.
    revives: String,
}

/// All admitted objects of one name. A claim covers what its entries cover together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    pub key: ObjectKey,
    /// The entries, in the order in which they came; never empty in a ledger.
    pub entries: Vec<Entry>,
}

impl Claim {
    pub fn entry(&self, uid: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.uid == uid)
    }

    /// The furthest state among the entries.
    pub fn state(&self) -> State {
        self.entries.iter().map(|entry| entry.state).max().unwrap_or(State::Reserved)
    }

    /// When the name was first seen, as RFC 3339, for people.
    pub fn since(&self) -> &str {
        self.entries.first().map_or("", |entry| &entry.since)
    }

    /// This claim with only the entries for which `wanted` holds; none if there are none.
    pub fn only(&self, wanted: impl Fn(&Entry) -> bool) -> Option<Self> {
        let entries: Vec<Entry> = self.entries.iter().filter(|entry| wanted(entry)).cloned().collect();
        (!entries.is_empty()).then(|| Self { key: self.key.clone(), entries })
    }
}

#[cfg(test)]
mod tests;
