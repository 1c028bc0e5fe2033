//! When two claims conflict, and how a conflict is worded.

use std::fmt;

use crate::{
    claim::{Claim, Entry, ObjectKey, ObjectKind, State, Word},
    footprint::Footprint,
};

/// The profile's rules for its scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rules {
    /// Whether two backups of one scope exclude each other, too.
    pub backups_exclude_each_other: bool,
    /// Whether a backup that has not begun yields to a restore that may wait. Only where our
    /// controller activates the claim before it begins: an operator that starts at once has begun
    /// when its backup is stored.
    pub backups_yield: bool,
}

impl Rules {
    /// Whether objects of these kinds can conflict at all.
    pub(crate) fn may_exclude(self, one: ObjectKind, other: ObjectKind) -> bool {
        use ObjectKind::{Backup, DeleteBackupRequest, Deletion, Hold, Restore};
        match (one, other) {
            (Hold, Hold) => false,
            (Hold, _)
            | (_, Hold)
            | (Restore, Restore | Backup | DeleteBackupRequest | Deletion)
            | (Backup | DeleteBackupRequest | Deletion, Restore) => true,
            (Backup, Backup) => self.backups_exclude_each_other,
            (Backup | DeleteBackupRequest | Deletion, _) => false,
        }
    }

    /// Whether an object of this name and footprint conflicts with an entry of that claim. Two
    /// claims of one name never conflict: at most one of their objects can be stored.
    pub fn conflicts(
        self,
        key: &ObjectKey,
        footprint: &Footprint,
        claim: &Claim,
        entry: &Entry,
    ) -> bool {
        let one = key.kind;
        let other = claim.key.kind;
        if claim.key == *key || !self.may_exclude(one, other) {
            return false;
        }
        if one.is_deletion() || other.is_deletion() {
            footprint.shares_backup(&entry.footprint)
        } else {
            footprint.overlaps(&entry.footprint)
        }
    }
}

/// Whether the state of an entry keeps out a newcomer of this kind.
pub fn keeps_out(entry: &Entry, newcomer: ObjectKind) -> bool {
    match entry.state {
        State::Active | State::Settling | State::Reserved | State::Waiting => true,
        State::Intent => newcomer == ObjectKind::Backup && entry.word != Word::Remembered,
        State::Collected => newcomer.is_exclusive(),
        State::Released => false,
    }
}

/// A claim was refused because other claims conflict with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub key: ObjectKey,
    /// The conflicting claims, with only their conflicting entries: highest state first, then in
    /// order of admission; never empty.
    pub holders: Vec<Claim>,
}

impl std::error::Error for Conflict {}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} conflicts with ", self.key)?;
        for (i, holder) in self.holders.iter().take(3).enumerate() {
            let state = holder.state().as_str().to_lowercase();
            write!(
                f,
                "{}{} ({state} since {})",
                if i == 0 { "" } else { ", " },
                holder.key,
                holder.since()
            )?;
        }
        if self.holders.len() > 3 {
            write!(f, " and {} more", self.holders.len() - 3)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_in_the_way_are_told_and_the_rest_counted() {
        let holder = |n: usize| {
            let entry = Entry::new(
                "uid",
                Footprint::everything(),
                State::Active,
                "2026-11-21T09:00:00Z",
            );
            Claim {
                key: ObjectKey::backup("velero", &format!("b-{n}")),
                entries: vec![entry],
            }
        };
        for (count, end) in [
            (1, "b-0 (active since 2026-11-21T09:00:00Z)"),
            (3, "since 2026-11-21T09:00:00Z)"),
            (5, " and 2 more"),
        ] {
            let key = ObjectKey::restore("velero", "r");
            let text = Conflict {
                key,
                holders: (0..count).map(holder).collect(),
            }
            .to_string();
            assert!(text.ends_with(end), "{text}");
            assert_eq!(text.matches("active").count(), count.min(3), "{text}");
        }
    }
}
