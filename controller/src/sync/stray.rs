//! Folders in the bucket that hold no finished backup: told, and removed when that is safe and long enough ago.
//!
//! Removed is only what nobody can miss: a folder of a backup that was begun and never got as far as a decision, into which
//! nothing was written for `--stray-folder-ttl`, and of whose name there is no Backup in the cluster. Another cluster that shares
//! the bucket and works on it writes into it.

use std::time::Duration;

use backup_store::{IncompleteBackup, Remnant, StoreError};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;

use super::{error::Error, memory::Skip, observe, pass::Pass};
use crate::location::{is_available, is_read_only};

/// A folder that was written to since is a backup that is under way.
const YOUNG: SignedDuration = SignedDuration::from_hours(24);
/// The word for a folder that nobody seems to work on.
pub(super) const STRAY: &str = "stray";

/// What is done about a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// It may be finished still.
    Young,
    /// It stays, for this reason.
    Stays(String),
    /// It is to be removed.
    Over,
}

/// What becomes of a folder without metadata; `ttl` of zero is never.
fn judge(stray: &IncompleteBackup, ttl: Duration, now: Timestamp) -> Verdict {
    let Some(newest) = stray.newest else {
        return Verdict::Stays("the store does not tell how old it is, so it is not removed".to_owned());
    };
    let age = now.duration_since(newest);
    if age < YOUNG {
        return Verdict::Young;
    }
    let stays = |what: &str| Verdict::Stays(format!("nothing was written to it since {newest}; {what}"));
    match stray.most {
        Remnant::Foreign => stays("it holds files that are no part of a backup, so it is left alone"),
        Remnant::Contents => stays(
            "its contents are there: a deletion was broken off, or its metadata was lost; remove it by hand if nobody needs it",
        ),
        Remnant::Record => stays(
            "what it will hold is decided, and the cluster that has the Backup finishes it; remove it by hand if that is gone",
        ),
        Remnant::Journal => stays(
            "it names what was begun outside of the bucket, such as snapshots: look at that, then remove it by hand",
        ),
        Remnant::Scrap if ttl.is_zero() => stays("--stray-folder-ttl is 0, so it is not removed"),
        Remnant::Scrap => {
            match SignedDuration::try_from(ttl).ok().and_then(|ttl| newest.checked_add(ttl).ok()) {
                Some(end) if end <= now => Verdict::Over,
                Some(end) => stays(&format!("it is removed after {end}, if that is still so")),
                None => stays("it is not removed"),
            }
        }
    }
}

/// What came of looking at a folder.
pub(super) enum Outcome {
    /// It is told with this word and reason.
    Told(Skip),
    /// It was removed.
    Removed,
}

/// FlushRequests at a folder without metadata, of which there is no Backup in the cluster.
///
/// # Errors
/// The location has changed, the store or the API server does not answer; this replica must not write.
pub(super) async fn look(pass: &Pass<'_>, name: &str, stray: &IncompleteBackup) -> Result<Outcome, Error> {
    let ttl = pass.ctx.args.stray_folder_ttl.as_std();
    let told = |reason: String| Ok(Outcome::Told(Skip::new(STRAY, reason)));
    let owner = async || match pass.store.owner_of(name).await {
        Ok(uid) if uid.is_empty() => Ok(String::new()),
        Ok(uid) => Ok(format!(" (of the Backup with uid {uid})")),
        Err(StoreError::Corrupt { .. }) => Ok(" (of a Backup that can't be told)".to_owned()),
        Err(error) => Err(error),
    };
    match judge(stray, ttl, Timestamp::now()) {
        Verdict::Young => {
            let reason = "there is no velero-backup.json: it is not finished, being deleted, or no backup";
            Ok(Outcome::Told(Skip::new("unfinished", reason)))
        }
        Verdict::Stays(why) => told(format!("there is no velero-backup.json{}; {why}", owner().await?)),
        Verdict::Over if is_read_only(pass.location) => {
            told("it would be removed, but spec.accessMode of the location is ReadOnly".to_owned())
        }
        Verdict::Over => {
            let owner = owner().await?;
            match remove(pass, name, stray).await {
                Ok(Some(keys)) => {
                    let (newest, location) = (stray.newest, pass.location.name_any());
                    tracing::info!(
                        folder = name,
                        location,
                        keys,
                        ?newest,
                        owner,
                        "a folder without a backup was removed"
                    );
                    Ok(Outcome::Removed)
                }
                Ok(None) => told("it has changed while it was looked at; it is looked at again".to_owned()),
                // Locked, or not granted.
                Err(Error::Store(error @ StoreError::Denied { .. })) => {
                    told(format!("it could not be removed: {error}"))
                }
                Err(error) => Err(error),
            }
        }
    }
}

/// Removes it after a second look at location, cluster and folder, each as it is now. None: it is not to be removed any more.
async fn remove(pass: &Pass<'_>, name: &str, stray: &IncompleteBackup) -> Result<Option<u64>, Error> {
    let ctx = pass.ctx;
    let location = observe::location(ctx, &pass.location.name_any()).await?;
    let same = |now: &backup_core::api::BackupStorageLocation| {
        let there = now.metadata.deletion_timestamp.is_none() && is_available(now);
        there && now.metadata.uid == pass.location.metadata.uid && now.spec == pass.location.spec
    };
    if !location.as_ref().is_some_and(same) {
        return Err(Error::Changed);
    }
    // Whatever its phase and location: it may be about to write there.
    if observe::backup_exists(ctx, name).await? {
        return Ok(None);
    }
    ctx.cluster.leadership.check()?;
    Ok(pass.store.remove_incomplete(name, stray).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_scrap_is_over() {
        let now: Timestamp = "2026-03-01T00:00:00Z".parse().unwrap();
        let hours = |hours: i64| now.checked_sub(SignedDuration::from_hours(hours)).ok();
        let month = Duration::from_hours(720);
        let never = Duration::ZERO;
        for (most, newest, ttl, expected) in [
            (Remnant::Scrap, hours(0), month, "Young"),
            (Remnant::Scrap, hours(23), month, "Young"),
            (Remnant::Foreign, hours(23), month, "Young"),
            // A clock of the store that is ahead.
            (Remnant::Scrap, hours(-100), month, "Young"),
            (Remnant::Scrap, hours(24), month, "it is removed after 2026-03-30T00:00:00Z"),
            (Remnant::Scrap, hours(719), month, "it is removed after"),
            (Remnant::Scrap, hours(720), month, "Over"),
            (Remnant::Scrap, hours(24), Duration::from_hours(24), "Over"),
            (Remnant::Scrap, hours(100_000), never, "--stray-folder-ttl is 0"),
            (Remnant::Scrap, None, month, "does not tell how old"),
            (Remnant::Journal, hours(100_000), month, "snapshots"),
            (Remnant::Record, hours(100_000), month, "the cluster that has the Backup finishes it"),
            (Remnant::Contents, hours(100_000), month, "its contents are there"),
            (Remnant::Foreign, hours(100_000), month, "no part of a backup"),
        ] {
            let verdict = format!("{:?}", judge(&IncompleteBackup { most, newest }, ttl, now));
            assert!(verdict.contains(expected), "{most:?} {newest:?} {ttl:?}: {verdict}");
            assert!(verdict == expected || verdict.starts_with("Stays"), "{verdict}");
        }
    }
}
