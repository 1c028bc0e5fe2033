//! Decides what to do about a DeleteBackupRequest. Pure.

use std::time::Duration;

use backup_core::{
    api::{Backup, BackupPhase, DeleteBackupRequest, DeleteBackupRequestPhase as Phase},
    deletion::Waits,
    labels,
    text::listed,
};
use jiff::Timestamp;
use kube::ResourceExt;

#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// The backup with the name in the request.
    pub(super) backup: Option<Backup>,
    /// Restores from it that run or may still begin, as `name (phase)`.
    pub(super) users: Vec<String>,
    pub(super) store: Store,
    pub(super) now: Timestamp,
}

/// Whether the files of a backup can be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Store {
    /// They can, or there are no files.
    Ready,
    /// Not until a user changes something.
    Never(String),
    /// Not now: the location is unavailable.
    NotNow(String),
    /// Not known yet.
    Unknown(String),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Plan<'a> {
    /// The request is answered.
    Nothing,
    /// Check again in a while.
    Wait(String),
    /// Check again after this time: the store locks versions of the files until a date.
    Sleep(Duration),
    /// Answer with these errors; this decision has deleted nothing.
    Refuse(Vec<String>),
    /// Publish that the backup is being deleted, then continue.
    Begin(&'a Backup),
    /// Delete files, restores and the backup.
    Continue(&'a Backup),
    /// The backup is gone: answer.
    Finish,
    /// The request was answered with success: delete it, too.
    Sweep,
}

pub(super) fn decide<'a>(request: &DeleteBackupRequest, facts: &'a Facts) -> Plan<'a> {
    let name = &request.spec.backup_name;
    let begun = match &request.status.phase {
        None | Some(Phase::New) => false,
        Some(Phase::InProgress) => true,
        Some(Phase::Processed) => {
            return if request.status.errors.is_empty() {
                Plan::Sweep
            } else {
                Plan::Nothing
            };
        }
        Some(Phase::Unknown(_)) => return Plan::Nothing,
    };
    if name.is_empty() {
        return refuse("spec.backupName is required: name the backup to delete".to_owned());
    }
    let Some(backup) = &facts.backup else {
        return if begun {
            Plan::Finish
        } else {
            refuse(format!(
                "backup {name} not found: check the name with kubectl get backups.velero.io"
            ))
        };
    };
    // A name is not an identity: a backup that was created again is not the one of this request.
    let uid = request.labels().get(labels::BACKUP_UID);
    if uid.is_some() && *uid.unwrap_or(&String::new()) != backup.uid().unwrap_or_default() {
        return if begun {
            Plan::Finish
        } else {
            refuse(format!(
                "the label {} of this request names another backup than the {name} that exists now: make a new request",
                labels::BACKUP_UID
            ))
        };
    }
    if backup.phase().is_active() {
        return refuse(format!(
            "backup {name} is still in progress ({}): make a new request once it has ended",
            backup.phase()
        ));
    }
    if begun && let Some(left) = waits(backup).and_then(|waits| left(&waits, facts.now)) {
        return Plan::Sleep(left);
    }
    if !facts.users.is_empty() {
        let users = some_of(&facts.users);
        return if begun {
            Plan::Wait(format!(
                "backup {name} is deleted once these restores from it have ended: {users}"
            ))
        } else {
            refuse(format!(
                "backup {name} is used by restores that have not ended: {users}; make a new request once they have"
            ))
        };
    }
    match &facts.store {
        Store::Ready => {
            if begun {
                Plan::Continue(backup)
            } else {
                Plan::Begin(backup)
            }
        }
        Store::Never(why) => refuse(why.clone()),
        Store::NotNow(why) => {
            if begun {
                Plan::Wait(why.clone())
            } else {
                refuse(why.clone())
            }
        }
        Store::Unknown(why) => Plan::Wait(why.clone()),
    }
}

/// What the deletion of a backup waits for, once all its files are hidden.
pub(super) fn waits(backup: &Backup) -> Option<Waits> {
    let annotation = backup.annotations().get(labels::DELETION_WAITS_ANNOTATION);
    Waits::read(annotation.map(String::as_str)).filter(|_| backup.phase() == BackupPhase::Deleting)
}

/// The remaining wait; `None` if it is over. At most a day, as clocks may be set.
pub(super) fn left(waits: &Waits, now: Timestamp) -> Option<Duration> {
    const MAX_WAIT: Duration = Duration::from_hours(24);
    let left = Duration::try_from(waits.again.duration_since(now)).ok()?;
    (!left.is_zero()).then(|| left.min(MAX_WAIT))
}

fn refuse<'a>(error: String) -> Plan<'a> {
    Plan::Refuse(vec![error])
}

fn some_of(names: &[String]) -> String {
    const MAX_NAMES: usize = 5;
    listed(&names[..names.len().min(MAX_NAMES)], names.len())
}

/// Whether the backup may have files. A refused backup never wrote any; files under its name belong
/// to another.
pub(super) fn has_files(backup: &Backup) -> bool {
    backup.status.validation_errors.is_empty()
}

/// Whether the files under the backup's name are its own, given the metadata stored there: a backup
/// that failed because the name was taken has none. (A synced backup has another uid than its
/// metadata, but the same phase.)
pub(super) fn owns_files(backup: &Backup, stored: Option<&Backup>) -> bool {
    let Some(stored) = stored else { return true };
    let failed = backup.status.failure_reason.is_some();
    !failed || stored.uid() == backup.uid() || stored.status.failure_reason.is_some()
}

#[cfg(test)]
mod tests;
