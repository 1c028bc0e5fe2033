//! Limits on the content of a ledger, by kind and requester.

use std::fmt;

use backup_core::digest::short_sha256;

use super::{Ask, Ledger, Refusal};
use crate::{
    claim::{Entry, ObjectKey, ObjectKind, State},
    footprint::{Footprint, json_bytes},
};

/// Maximum number of entries in a ledger.
pub(crate) const MAX_ENTRIES: usize = 1000;
/// Maximum size of a ledger's JSON (bytes); the API server allows 262,144 for all annotations
/// together.
pub(crate) const MAX_BYTES: usize = 240 * 1024;
/// Maximum number of entries of one user or one schedule in a ledger.
pub(crate) const SHARE_ENTRIES: usize = MAX_ENTRIES / 2;
/// Maximum size of these entries (bytes).
pub(crate) const SHARE_BYTES: usize = MAX_BYTES / 2;

/// Class of a newcomer. Each class may fill a ledger further than the one before, so that less
/// important claims cannot keep more important ones out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    Backups,
    Restores,
    Deletions,
    /// Holds, and objects that a user forces.
    People,
}

impl Room {
    pub(super) fn of(kind: ObjectKind, urgent: bool) -> Self {
        if urgent {
            return Self::People;
        }
        match kind {
            ObjectKind::Backup => Self::Backups,
            ObjectKind::Restore => Self::Restores,
            ObjectKind::DeleteBackupRequest | ObjectKind::Deletion => Self::Deletions,
            ObjectKind::Hold => Self::People,
        }
    }

    /// Share of the ledger that it may fill, in thousandths.
    fn part(self) -> usize {
        match self {
            Self::Backups => 750,
            Self::Restores => 850,
            Self::Deletions => 925,
            Self::People => 1000,
        }
    }

    pub(crate) fn entries(self) -> usize {
        MAX_ENTRIES * self.part() / 1000
    }

    pub(crate) fn bytes(self) -> usize {
        MAX_BYTES * self.part() / 1000
    }

    /// What the remaining room is reserved for, for messages.
    pub(crate) fn rest(self) -> &'static str {
        match self {
            Self::Backups => {
                ", and the rest is kept for restores, deletions, holds and break-glass"
            }
            Self::Restores => ", and the rest is kept for deletions, holds and break-glass",
            Self::Deletions => ", and the rest is kept for holds and break-glass",
            Self::People => "",
        }
    }
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Backups => "backups",
            Self::Restores => "restores",
            Self::Deletions => "deletions",
            Self::People => "holds and what is forced",
        })
    }
}

/// The digest of a requester, as stored in a ledger.
pub(super) fn digest_of(requester: &str) -> String {
    if requester.is_empty() {
        String::new()
    } else {
        short_sha256(requester.as_bytes(), 4)
    }
}

impl Ledger {
    /// Checks that one more entry fits into the limits of its kind and its requester.
    pub(super) fn has_room(
        &self,
        key: &ObjectKey,
        entry: &Entry,
        ask: &Ask,
    ) -> Result<(), Refusal> {
        // The intent of a refused restore takes no room from admitted restores.
        let kind = if entry.state == State::Intent {
            ObjectKind::Backup
        } else {
            key.kind
        };
        let room = Room::of(kind, ask.urgent);
        let entries = self.len();
        let bytes = self.bytes_with_also(key, entry);
        if entries >= room.entries() || bytes > room.bytes() {
            return Err(Refusal::Full {
                room,
                entries,
                bytes,
            });
        }
        let within = entries < SHARE_ENTRIES && bytes <= SHARE_BYTES;
        if within || ask.urgent || entry.requester.is_empty() {
            return Ok(());
        }
        let own = Self {
            claims: self
                .claims
                .iter()
                .filter_map(|claim| claim.only(|other| other.requester == entry.requester))
                .collect(),
            ..Self::default()
        };
        let entries = own.len();
        let bytes = own.bytes_with_also(key, entry);
        if entries >= SHARE_ENTRIES || bytes > SHARE_BYTES {
            return Err(Refusal::Share {
                requester: ask.requester.clone(),
                entries,
                bytes,
            });
        }
        Ok(())
    }

    /// Whether a running object still fits: up to the limit of deletions, so that users can still
    /// act.
    pub(crate) fn has_room_for_running(&self, key: &ObjectKey, entry: &Entry) -> bool {
        let room = Room::Deletions;
        self.len() < room.entries() && self.bytes_with_also(key, entry) <= room.bytes()
    }

    /// Widens every footprint to everything, which takes the least room and errs on the safe side.
    pub(super) fn widen(&mut self) {
        for entry in self.claims.iter_mut().flat_map(|claim| &mut claim.entries) {
            entry.footprint = Footprint::everything();
        }
    }

    /// Whether it has an overflow claim, for running objects that had no room in it.
    pub fn overflows(&self) -> bool {
        self.claim(&overflow()).is_some()
    }

    /// Adds one claim for all running objects without room: nothing is admitted until that has
    /// changed.
    pub(super) fn overflow(&mut self, since: &str) {
        const WHY: &str = "more is running than the ledger has room for: nothing new comes in until some has ended";
        if !self.overflows() {
            let entry = Entry::new("overflow", Footprint::everything(), State::Reserved, since);
            self.place(
                &overflow(),
                Entry {
                    note: WHY.to_owned(),
                    ..entry
                },
            );
        }
    }

    /// The same without the overflow claim. Claims that wait for it stay Waiting until the objects
    /// it stood for were adopted.
    pub(crate) fn without_overflow(&self) -> Self {
        let claims = self
            .claims
            .iter()
            .filter(|claim| claim.key != overflow())
            .cloned()
            .collect();
        Self {
            claims,
            ..self.clone()
        }
    }

    fn bytes_with_also(&self, key: &ObjectKey, entry: &Entry) -> usize {
        self.bytes_at_most() + entry_bytes(key, entry) + entry.footprint.bytes_at_most()
    }

    /// Upper bound of the size of the JSON (bytes): cheap enough for every grant.
    pub(super) fn bytes_at_most(&self) -> usize {
        let entries = self.claims.iter().flat_map(|claim| &claim.entries);
        let all = self.bytes_with(entries.map(|entry| &entry.footprint));
        // Far from full, equal footprints need not be found.
        if all <= SHARE_BYTES {
            all
        } else {
            self.bytes_with(self.footprints())
        }
    }

    fn bytes_with<'a>(&self, footprints: impl IntoIterator<Item = &'a Footprint>) -> usize {
        // Version, status, epoch and bound.
        const FRAME: usize = 128;
        let entries = self.claims.iter().flat_map(|claim| {
            claim
                .entries
                .iter()
                .map(move |entry| entry_bytes(&claim.key, entry))
        });
        let footprints = footprints.into_iter().map(Footprint::bytes_at_most);
        FRAME + entries.sum::<usize>() + footprints.sum::<usize>()
    }

    /// Every footprint once, in order.
    pub(super) fn footprints(&self) -> Vec<&Footprint> {
        let entries = self.claims.iter().flat_map(|claim| &claim.entries);
        let mut footprints: Vec<&Footprint> = entries.map(|entry| &entry.footprint).collect();
        footprints.sort_unstable();
        footprints.dedup();
        footprints
    }
}

/// The name of the overflow claim. No object and no user's hold can have it.
fn overflow() -> ObjectKey {
    ObjectKey::new(ObjectKind::Hold, "", "overflow")
}

/// Upper bound of what an entry adds to the JSON (bytes), including its claim and later notes,
/// without its footprint: a ledger has room for these notes.
fn entry_bytes(key: &ObjectKey, entry: &Entry) -> usize {
    // Brackets, quotes, words and numbers; and the [`Word`] of an intent.
    const FRAME: usize = 112;
    let word = if entry.state == State::Intent {
        r#""word":"Remembered","#.len()
    } else {
        0
    };
    let texts = [
        key.kind.as_str(),
        &key.namespace,
        &key.name,
        &entry.uid,
        &entry.since,
    ];
    // The field names of these are written before them.
    let fields = [
        ("note", &entry.note),
        ("revives", &entry.revives),
        ("by", &entry.requester),
    ];
    let fields = fields
        .into_iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(name, text)| r#""":"","#.len() + name.len() + json_bytes(text));
    FRAME + word + texts.into_iter().map(json_bytes).sum::<usize>() + fields.sum::<usize>()
}
