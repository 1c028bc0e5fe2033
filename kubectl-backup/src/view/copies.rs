//! The copies of a backup in other locations.

use backup_core::api::{
    Backup,
    backup::{BackupCopyStatus, CopyPhase},
};
use jiff::Timestamp;
use serde::Serialize;

use crate::print::plain;

/// A copy of a backup, and how far it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CopyView {
    pub(crate) location: String,
    /// The phase, as the server wrote it; `New` before that.
    pub(crate) phase: String,
    /// When it was complete, or the last attempt failed.
    pub(crate) completed: Option<Timestamp>,
    pub(crate) expires: Option<Timestamp>,
    /// Size of its files.
    pub(crate) bytes: i64,
    /// Why it is not complete, or why it is still there; empty if there is no reason.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
}

impl CopyView {
    fn of(state: &BackupCopyStatus) -> Self {
        Self {
            location: plain(&state.location),
            phase: plain(state.phase().as_str()),
            completed: state.completion_timestamp.as_ref().map(|at| at.0),
            expires: state.expiration.as_ref().map(|at| at.0),
            bytes: state.bytes,
            message: plain(&state.message),
        }
    }

    pub(crate) fn phase(&self) -> CopyPhase {
        CopyPhase::from(self.phase.as_str())
    }
}

/// The copies with a state, then those that are named and have none yet.
pub(crate) fn of(backup: &Backup) -> Vec<CopyView> {
    let states = backup.status.copies.iter().cloned();
    let wanted = backup.wanted_copies().into_iter();
    let without_state = wanted
        .filter(|copy| backup.copy_in(&copy.location).is_none())
        .map(|copy| BackupCopyStatus {
            location: copy.location.clone(),
            ..BackupCopyStatus::default()
        });
    let all = states.chain(without_state);
    all.map(|state| CopyView::of(&state)).collect()
}
