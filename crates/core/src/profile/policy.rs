//! What is done about a conflict.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::duration;

/// What is done about a conflict, and how long things keep their place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Policy {
    /// What becomes of a restore that meets a conflict. [`OnConflict::Queue`] only where our controller does the work.
    pub on_conflict_restore: OnConflict,
    /// What becomes of a backup that meets a conflict. Never [`OnConflict::Queue`].
    pub on_conflict_backup: OnConflict,
    /// Whether two backups of one scope are a conflict.
    pub backups_exclude_each_other: bool,
    /// How long an object that is over still keeps its place, for what its operator cleans up afterwards.
    #[serde(with = "duration")]
    pub settle: Duration,
    /// How long a refused restore keeps new backups out, so that it can come again and find its place free.
    #[serde(with = "duration")]
    pub intent: Duration,
    /// Whether a conflict is refused or only told.
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
    /// Puts a wish for restores over what the policy says, for a profile whose objects our controller works on (`engine`) or not;
    /// whether it did: only our controller waits for its turn.
    pub fn wish_for_restores(&mut self, wish: OnConflict, engine: bool) -> bool {
        let holds = wish != OnConflict::Queue || engine;
        if holds {
            self.on_conflict_restore = wish;
        }
        holds
    }
}

/// What becomes of an object that meets a conflict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OnConflict {
    #[default]
    Deny,
    /// Let in, to wait for its turn. Only an operator that waits for its claim does that: our own controller.
    Queue,
    /// Sent back with a time to come again (429), so that clients wait by themselves.
    Wait,
}

/// Whether the lock holds or only warns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    #[default]
    Enforce,
    /// A conflict is let in with a warning, and counted: for a careful start.
    Warn,
}
