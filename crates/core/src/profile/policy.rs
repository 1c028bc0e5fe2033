//! Reactions to conflicts.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::duration;

/// Reactions to conflicts, and times for which places are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Policy {
    /// Reaction to a restore with a conflict. [`OnConflict::Queue`] only if our controller does the
    /// work.
    pub on_conflict_restore: OnConflict,
    /// Reaction to a backup with a conflict. Never [`OnConflict::Queue`].
    pub on_conflict_backup: OnConflict,
    /// Whether two backups of one scope conflict.
    pub backups_exclude_each_other: bool,
    /// How long an object that is over still keeps its place, for its operator's cleanup.
    #[serde(with = "duration")]
    pub settle: Duration,
    /// How long a refused restore keeps new backups out, so that its next try finds no conflict.
    #[serde(with = "duration")]
    pub intent: Duration,
    /// Whether a conflict is refused or only reported.
    pub mode: Mode,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            on_conflict_restore: OnConflict::Deny,
            on_conflict_backup: OnConflict::Deny,
            backups_exclude_each_other: false,
            settle: Duration::ZERO,
            intent: Duration::from_mins(2),
            mode: Mode::Enforce,
        }
    }
}

impl Policy {
    /// Overrides the reaction for restores, in a profile whose objects our controller works on
    /// (`engine`) or not. Returns whether it was applied: only our controller supports waiting in
    /// the queue.
    pub fn wish_for_restores(&mut self, wish: OnConflict, engine: bool) -> bool {
        let holds = wish != OnConflict::Queue || engine;
        if holds {
            self.on_conflict_restore = wish;
        }
        holds
    }
}

/// Reaction to an object with a conflict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OnConflict {
    #[default]
    Deny,
    /// Admitted, to wait in the queue. Only for an operator that waits for its claim: our own
    /// controller.
    Queue,
    /// Refused with a time to retry (429), so that clients wait.
    Wait,
}

/// Whether the lock refuses or only warns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    #[default]
    Enforce,
    /// A conflicting object is admitted with a warning, and counted: for a cautious start.
    Warn,
}
