//! What a ledger holds: claims, one for each object name, with an entry for each uid that was admitted under it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::footprint::Footprint;

/// The kinds that take claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ObjectKind {
    /// Reads; shares its scope with other backups.
    Backup,
    /// Writes; has what it touches to itself.
    Restore,
}

impl ObjectKind {
    /// Whether claims of this kind keep out every other claim that they overlap.
    pub fn is_exclusive(self) -> bool {
        self == Self::Restore
    }

    /// The kind as it stands in an object.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Backup => "Backup",
            Self::Restore => "Restore",
        }
    }

    /// The resource as it stands in a URL.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Backup => "backups",
            Self::Restore => "restores",
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
    /// Kind of the object.
    pub kind: ObjectKind,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

impl ObjectKey {
    /// The key of an object.
    pub fn new(kind: ObjectKind, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// The key of a Backup.
    pub fn backup(namespace: &str, name: &str) -> Self {
        Self::new(ObjectKind::Backup, namespace, name)
    }

    /// The key of a Restore.
    pub fn restore(namespace: &str, name: &str) -> Self {
        Self::new(ObjectKind::Restore, namespace, name)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// How far an entry has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum State {
    /// Written in admission: keeps others out, gives no right to work, may be collected as an orphan.
    Reserved,
    /// Written by the controller after a fresh read: the right to work. Stands until the work has ended.
    Active,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Reserved => "Reserved",
            Self::Active => "Active",
        })
    }
}

/// One admitted object under a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Uid of the object.
    pub uid: String,
    /// What the object reads or writes.
    pub footprint: Footprint,
    /// How far it has come.
    pub state: State,
    /// Epoch of the ledger when this entry was granted; the fencing number of its work.
    pub epoch: u64,
    /// When it was first seen, as RFC 3339. For people only: nothing is decided by it.
    pub since: String,
}

/// All admitted objects of one name. A claim covers what its entries cover together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The name.
    pub key: ObjectKey,
    /// The entries, in the order in which they came; never empty in a ledger.
    pub entries: Vec<Entry>,
}

impl Claim {
    /// The entry of this uid.
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

    /// Whether any entry overlaps this footprint.
    pub fn overlaps(&self, footprint: &Footprint) -> bool {
        self.entries.iter().any(|entry| entry.footprint.overlaps(footprint))
    }
}
