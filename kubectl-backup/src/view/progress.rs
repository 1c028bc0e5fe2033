//! How far something that runs has come.

use super::description::{Attempts, Count, Description};
use crate::print::style::Tone;

/// A part of a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Done.
    pub done: i64,
    /// Of how many.
    pub total: i64,
    /// "items", "operations".
    pub unit: &'static str,
}

/// Operations once they are all that is waited for, items before that; nothing for what does not run or can't be counted.
pub fn share(description: &Description) -> Option<Share> {
    if description.completed.is_some() || !matches!(description.tone, Tone::Busy | Tone::Warn) {
        return None;
    }
    let operations = |Attempts { attempted, completed, failed }| Share {
        done: completed.unwrap_or_default() + failed.unwrap_or_default(),
        total: attempted,
        unit: "operations",
    };
    let items = |Count { done, total }| Share { done, total, unit: "items" };
    let share = if description.phase.starts_with("Waiting") {
        description.operations.map(operations)
    } else {
        description.items.map(items)
    };
    share.filter(|share| share.total > 0)
}
