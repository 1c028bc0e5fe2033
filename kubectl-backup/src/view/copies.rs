//! The copies of a backup in other locations.

use backup_core::{
    api::{
        Backup,
        backup::{BackupCopyStatus, CopyPhase},
    },
    restorability::Places,
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
    /// Why a complete copy cannot be read now, or may not be readable; or why it is never made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

impl CopyView {
    fn of(state: &BackupCopyStatus, places: &Places) -> Self {
        let problem = state.is_complete().then(|| places.find(&state.location));
        Self {
            location: plain(&state.location),
            phase: plain(state.phase().as_str()),
            completed: state.completion_timestamp.as_ref().map(|at| at.0),
            expires: state.expiration.as_ref().map(|at| at.0),
            bytes: state.bytes,
            message: plain(&state.message),
            problem: problem
                .and_then(|place| place.copy_problem())
                .map(|why| plain(&why)),
        }
    }

    pub(crate) fn phase(&self) -> CopyPhase {
        CopyPhase::from(self.phase.as_str())
    }
}

/// A copy that the backup names in its own location.
fn own(backup: &Backup) -> CopyView {
    let state = BackupCopyStatus {
        location: backup.spec.storage_location.clone().unwrap_or_default(),
        ..BackupCopyStatus::default()
    };
    CopyView {
        problem: Some("the backup itself is there".to_owned()),
        ..CopyView::of(&state, &Places::of([]))
    }
}

/// The copies with a state, those that are named and have none yet, and one that is never made.
pub(crate) fn of(backup: &Backup, places: &Places) -> Vec<CopyView> {
    let states = backup.status.copies.iter().cloned();
    let wanted = backup.wanted_copies().into_iter();
    let without_state = wanted
        .filter(|copy| backup.copy_in(&copy.location).is_none())
        .map(|copy| BackupCopyStatus {
            location: copy.location.clone(),
            ..BackupCopyStatus::default()
        });
    let all = states.chain(without_state);
    let never_made = backup.names_own_location().then(|| own(backup));
    all.map(|state| CopyView::of(&state, places))
        .chain(never_made)
        .collect()
}
