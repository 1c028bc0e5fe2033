//! Folders in the bucket without a finished backup: reported, and removed when that is safe and
//! they are old enough.
//!
//! Only useless folders are removed: folders of a backup that was begun and never decided, or of a
//! copy that was never completed, to which nothing was written for `--stray-folder-ttl`, and without
//! a Backup of that name in the cluster.
//! Another cluster that shares the bucket and works on the backup writes to the folder.

use backup_core::sync::NoteKind;
use std::time::Duration;

use backup_store::{IncompleteBackup, Remnant, StoreError};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;

use super::{
    folder_outcome::{FolderOutcome, Skip},
    gone_backup,
    pass::{self, Pass},
};
use crate::{
    error::ReconcileError,
    location::{is_available, is_read_only},
};

/// A folder with a write within this time belongs to a backup in progress.
const MIN_STRAY_AGE: SignedDuration = SignedDuration::from_hours(24);
/// Category of a folder that receives no more writes.

#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// It may still be finished.
    Young,
    /// It is kept, for this reason.
    Stays(String),
    Expired,
}

/// A `ttl` of zero means never.
fn classify(folder: &IncompleteBackup, ttl: Duration, now: Timestamp) -> Verdict {
    let Some(newest) = folder.newest else {
        return Verdict::Stays(
            "the store does not tell how old it is, so it is not removed".to_owned(),
        );
    };
    let age = now.duration_since(newest);
    if age < MIN_STRAY_AGE {
        return Verdict::Young;
    }
    let stays =
        |what: &str| Verdict::Stays(format!("nothing was written to it since {newest}; {what}"));
    match folder.most {
        Remnant::Foreign => {
            stays("it holds files that are no part of a backup, so it is left alone")
        }
        Remnant::Contents => stays(
            "its contents are there: a deletion was broken off, or its metadata was lost; remove it by hand if it is not needed",
        ),
        Remnant::Record => stays(
            "what it will hold is decided, and the cluster that has the Backup finishes it; remove it by hand if that is gone",
        ),
        Remnant::Journal => stays(
            "it names what was begun outside of the bucket, such as snapshots: look at that, then remove it by hand",
        ),
        Remnant::Scrap | Remnant::Copy => {
            if ttl.is_zero() {
                return stays("--stray-folder-ttl is 0, so it is not removed");
            }
            let end = SignedDuration::try_from(ttl)
                .ok()
                .and_then(|ttl| newest.checked_add(ttl).ok());
            match end {
                Some(end) if end <= now => Verdict::Expired,
                Some(end) => stays(&format!("it is removed after {end}, if that is still so")),
                None => stays("it is not removed"),
            }
        }
    }
}

/// Reports or removes a folder without metadata and without a Backup in the cluster.
pub(super) async fn report_or_remove(
    pass: &Pass<'_>,
    name: &str,
    folder: &IncompleteBackup,
) -> Result<FolderOutcome, ReconcileError> {
    if !is_read_only(pass.location)
        && let Some(owner) = gone_backup::owner(pass, name, folder).await?
    {
        return Box::pin(gone_backup::clean_up(pass, name, folder, &owner)).await;
    }
    match classify(folder, pass.incomplete_ttl, Timestamp::now()) {
        Verdict::Young => {
            let reason =
                "there is no velero-backup.json: it is not finished, being deleted, or no backup";
            Ok(FolderOutcome::Skipped(Skip::new(
                NoteKind::Unfinished,
                reason,
            )))
        }
        Verdict::Stays(why) => {
            let owner = owner_note(pass, name).await?;
            Ok(stray(format!(
                "there is no velero-backup.json{owner}; {why}"
            )))
        }
        Verdict::Expired => {
            if is_read_only(pass.location) {
                return Ok(stray(
                    "it would be removed, but spec.accessMode of the location is ReadOnly",
                ));
            }
            let owner = owner_note(pass, name).await?;
            match remove(pass, name, folder).await {
                Ok(Some(keys)) => {
                    let newest = folder.newest;
                    let location = pass.location.name_any();
                    tracing::info!(
                        folder = name,
                        location,
                        keys,
                        ?newest,
                        owner,
                        "an incomplete backup was removed"
                    );
                    let since = newest.map(|newest| newest.to_string()).unwrap_or_default();
                    let note =
                        format!("it held no backup, and nothing was written to it since {since}");
                    Ok(FolderOutcome::Pruned(note))
                }
                Ok(None) => Ok(stray(
                    "it has changed while it was checked; it is checked again",
                )),
                // Locked, or permission denied.
                Err(ReconcileError::Store(error @ StoreError::Denied { .. })) => {
                    Ok(stray(format!("it could not be removed: {error}")))
                }
                Err(error) => Err(error),
            }
        }
    }
}

fn stray(reason: impl Into<String>) -> FolderOutcome {
    FolderOutcome::Skipped(Skip::new(NoteKind::Stray, reason))
}

/// A note in parentheses about the Backup that the folder belongs to; empty if none is recorded.
async fn owner_note(pass: &Pass<'_>, name: &str) -> Result<String, StoreError> {
    match pass.store.owner_of(name).await {
        Ok(uid) if uid.is_empty() => Ok(String::new()),
        Ok(uid) => Ok(format!(" (of the Backup with uid {uid})")),
        Err(StoreError::Corrupt { .. }) => Ok(" (of a Backup whose uid cannot be read)".to_owned()),
        Err(error) => Err(error),
    }
}

/// Removes the folder after location, cluster and folder were read again. Returns `None` if it must
/// be kept after all.
async fn remove(
    pass: &Pass<'_>,
    name: &str,
    folder: &IncompleteBackup,
) -> Result<Option<u64>, ReconcileError> {
    let location = pass.current_location().await?;
    if location.metadata.deletion_timestamp.is_some() || !is_available(&location) {
        return Err(pass::location_changed());
    }
    // Regardless of its phase and location: it may be about to write there.
    if pass.backup_exists(name).await? {
        return Ok(None);
    }
    pass.cluster.leadership.check()?;
    Ok(pass.store.remove_incomplete(name, folder).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_scrap_has_expired() {
        let now: Timestamp = "2026-03-01T00:00:00Z".parse().unwrap();
        let hours = |hours: i64| now.checked_sub(SignedDuration::from_hours(hours)).ok();
        let month = Duration::from_hours(720);
        let never = Duration::ZERO;
        for (most, newest, ttl, expected) in [
            (Remnant::Scrap, hours(0), month, "Young"),
            (Remnant::Scrap, hours(23), month, "Young"),
            (Remnant::Foreign, hours(23), month, "Young"),
            // The store's clock is ahead.
            (Remnant::Scrap, hours(-100), month, "Young"),
            (
                Remnant::Scrap,
                hours(24),
                month,
                "it is removed after 2026-03-30T00:00:00Z",
            ),
            (Remnant::Scrap, hours(719), month, "it is removed after"),
            (Remnant::Scrap, hours(720), month, "Expired"),
            (
                Remnant::Scrap,
                hours(24),
                Duration::from_hours(24),
                "Expired",
            ),
            (
                Remnant::Scrap,
                hours(100_000),
                never,
                "--stray-folder-ttl is 0",
            ),
            (Remnant::Copy, hours(719), month, "it is removed after"),
            (Remnant::Copy, hours(720), month, "Expired"),
            (Remnant::Scrap, None, month, "does not tell how old"),
            (Remnant::Journal, hours(100_000), month, "snapshots"),
            (
                Remnant::Record,
                hours(100_000),
                month,
                "the cluster that has the Backup finishes it",
            ),
            (
                Remnant::Contents,
                hours(100_000),
                month,
                "its contents are there",
            ),
            (
                Remnant::Foreign,
                hours(100_000),
                month,
                "no part of a backup",
            ),
        ] {
            let verdict = format!(
                "{:?}",
                classify(&IncompleteBackup { most, newest }, ttl, now)
            );
            assert!(
                verdict.contains(expected),
                "{most:?} {newest:?} {ttl:?}: {verdict}"
            );
            assert!(
                verdict == expected || verdict.starts_with("Stays"),
                "{verdict}"
            );
        }
    }
}
