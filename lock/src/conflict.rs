//! When two claims can't stand side by side, and how that is told.

use std::fmt;

use crate::{
    claim::{Claim, ObjectKey, ObjectKind, State},
    footprint::Footprint,
};

/// Whether an object of this name and footprint can't stand beside this claim.
///
/// One of the two is a restore, and they overlap. Two claims of one name never conflict: at most one of their objects
/// can be stored.
pub fn conflicts(key: &ObjectKey, footprint: &Footprint, claim: &Claim) -> bool {
    may_exclude(key.kind, claim.key.kind) && claim.key != *key && claim.overlaps(footprint)
}

/// Whether objects of these kinds can keep one another out at all.
pub fn may_exclude(one: ObjectKind, other: ObjectKind) -> bool {
    one.is_exclusive() || other.is_exclusive()
}

/// A claim was refused because others hold what it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// What was refused.
    pub key: ObjectKey,
    /// The claims in the way, in the order in which they came; never empty.
    pub holders: Vec<Claim>,
}

impl std::error::Error for Conflict {}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} conflicts with ", self.key)?;
        for (i, holder) in self.holders.iter().take(3).enumerate() {
            let state = match holder.state() {
                State::Reserved => "reserved",
                State::Active => "active",
            };
            write!(f, "{}{} ({state} since {})", if i == 0 { "" } else { ", " }, holder.key, holder.since())?;
        }
        if self.holders.len() > 3 {
            write!(f, " and {} more", self.holders.len() - 3)?;
        }
        Ok(())
    }
}
