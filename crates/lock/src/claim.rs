//! Content of a ledger: claims, one for each object name, with an entry for each uid that was
//! admitted under it.

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
    /// Writes; needs exclusive access to its footprint.
    Restore,
    /// A request to delete a backup with its files; excludes restores from that backup, and is
    /// excluded by them.
    DeleteBackupRequest,
    /// A DELETE of a Backup object; the claim bears the backup's name.
    Deletion,
    /// A user's hold keeps all backups and restores out. There is no object: it stays until a user
    /// removes it.
    Hold,
}

impl ObjectKind {
    pub const ALL: [Self; 5] = [
        Self::Restore,
        Self::Backup,
        Self::DeleteBackupRequest,
        Self::Deletion,
        Self::Hold,
    ];

    /// Whether it deletes a backup: its footprint is then one backup and no namespaces.
    pub fn is_deletion(self) -> bool {
        matches!(self, Self::DeleteBackupRequest | Self::Deletion)
    }

    /// The role of such an object in a profile; `None` for kinds that only our engine has.
    pub fn role(self) -> Option<Role> {
        match self {
            Self::Backup => Some(Role::Backup),
            Self::Restore => Some(Role::Restore),
            Self::DeleteBackupRequest | Self::Deletion | Self::Hold => None,
        }
    }

    /// Whether an object of this kind that is found without a claim gets one.
    pub(crate) fn is_claimed_as_found(self) -> bool {
        matches!(
            self,
            Self::Backup | Self::Restore | Self::DeleteBackupRequest
        )
    }

    /// Whether its grants are exclusive: each one increases the epoch.
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

/// The object name that a claim is for. Two objects of one name can never both be stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    pub kind: ObjectKind,
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    pub fn new(kind: ObjectKind, namespace: &str, name: &str) -> Self {
        Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
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
            ObjectKind::Deletion => {
                write!(f, "deletion of Backup {}/{}", self.namespace, self.name)
            }
            kind if self.namespace.is_empty() => write!(f, "{kind} {}", self.name),
            kind => write!(f, "{kind} {}/{}", self.namespace, self.name),
        }
    }
}

/// State of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum State {
    /// A user released its claim by force. Keeps nothing out and gives no right to work; records
    /// until its object has ended that this uid must not be claimed again.
    Released,
    /// A restore was refused recently. Keeps new backups out for a while, as its [`Word`] says, so
    /// that the restore's next try finds no conflict.
    Intent,
    /// A reservation whose object was never stored, of an operator that starts on sight: keeps
    /// restores out for another period.
    Collected,
    /// Wants to be Reserved: keeps newcomers out, gives no right to work. Becomes Reserved when its
    /// last blocker is freed.
    Waiting,
    /// Written in admission: keeps others out, gives no right to work, may be collected as an
    /// orphan.
    Reserved,
    /// Its work has ended, but the data it worked on must not be touched yet.
    Settling,
    /// Written by the controller after a fresh read: the right to work. Stays until the work has
    /// ended.
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

/// What is known about the next try of a refused restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Word {
    /// Refused; it may come again once the conflicting claims have ended.
    #[default]
    Refused,
    /// Nothing conflicts with it: it may come now.
    Expected,
    /// It did not come. It keeps nothing out; the refusal is recorded, so that the restore is
    /// recognized if it comes again.
    Remembered,
    /// It came again, or its client retries automatically.
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
    /// When it was first seen, as RFC 3339. For display only: no decision uses it.
    pub since: String,
    /// The object was missing for a whole grace. The next look decides.
    pub suspect: bool,
    /// Admitted in spite of conflicts, because a user forced it: no conflict prevents its
    /// activation.
    pub forced: bool,
    /// Who holds and why, why it was forced, or who released it by force and why. For display;
    /// empty for all others.
    pub note: String,
    /// Number of times it was admitted again. Each time its age starts at zero, for every observer.
    pub renewals: u32,
    /// The resourceVersion of the ended object that it was admitted to revive; empty for a
    /// creation. As long as this version is stored, the admitted write is not.
    pub revives: String,
    /// Digest of the requester whose share of the ledger it takes; empty: it takes no share.
    pub requester: String,
    /// Only for an intent.
    pub word: Word,
}

impl Entry {
    /// An entry with these fields, and defaults for all others.
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

    /// Admits it once more: no observer's count of its age is valid then. An Active entry does not
    /// age, unless its object has ended and is revived.
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

    /// Whether its object has a place, waits for one, or must not get one because a user released
    /// its claim by force: if so, finding the object does not claim it.
    pub fn has_its_place(&self) -> bool {
        self.state >= State::Waiting || self.state == State::Released
    }

    pub(crate) fn waits(&self) -> bool {
        self.state == State::Waiting
    }

    pub fn standing(&self) -> Standing {
        Standing {
            state: self.state,
            renewals: self.renewals,
            word: self.word,
            revives: self.revives.clone(),
        }
    }

    /// Whether a judgement of `judged` is valid for this entry of the same name.
    pub fn stands_as(&self, judged: &Self) -> bool {
        self.uid == judged.uid
            && self.suspect == judged.suspect
            && self.standing() == judged.standing()
    }
}

/// The state of an entry as far as judgements use it. A judgement, and a count of its age, are
/// valid while this is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Standing {
    state: State,
    renewals: u32,
    word: Word,
    /// Between two looks an entry may be freed, and its object admitted again, to revive it.
    revives: String,
}

/// All admitted objects of one name. A claim covers the footprints of all its entries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    pub key: ObjectKey,
    /// The entries, in order of admission; never empty in a ledger.
    pub entries: Vec<Entry>,
}

impl Claim {
    pub fn entry(&self, uid: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.uid == uid)
    }

    /// The highest state among the entries.
    pub fn state(&self) -> State {
        self.entries
            .iter()
            .map(|entry| entry.state)
            .max()
            .unwrap_or(State::Reserved)
    }

    /// When the name was first seen, as RFC 3339, for display.
    pub fn since(&self) -> &str {
        self.entries.first().map_or("", |entry| &entry.since)
    }

    /// This claim with only the entries for which `wanted` is true; `None` if there are none.
    pub fn only(&self, wanted: impl Fn(&Entry) -> bool) -> Option<Self> {
        let entries: Vec<Entry> = self
            .entries
            .iter()
            .filter(|entry| wanted(entry))
            .cloned()
            .collect();
        (!entries.is_empty()).then(|| Self {
            key: self.key.clone(),
            entries,
        })
    }
}

#[cfg(test)]
mod tests;
