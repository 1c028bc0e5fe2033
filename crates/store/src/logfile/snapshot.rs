//! Snapshots of the log of work in progress, for users who read it before its end: stored on
//! request.

use std::time::Duration;

use backup_core::api::download_request::DownloadTarget;
use jiff::Timestamp;
use object_store::path::Path;

use super::LogFile;
use crate::{
    Location, StoreError,
    download::{FileOwner, is_log},
    layout::NumberedKeys,
};

/// Minimum time for which a snapshot is kept: longer than a URL of it is valid.
const SNAPSHOT_TTL: Duration = Duration::from_mins(15);

impl Location {
    /// Stores the log of a backup or restore as of `now`, under a new private key (create-only),
    /// which is removed with the others when the end is published. Removes snapshots whose URLs
    /// have expired.
    ///
    /// Errors: any error of reading or writing.
    pub async fn keep_log_snapshot(
        &self,
        owner: FileOwner,
        name: &str,
        uid: &str,
        log: &LogFile,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let keys = self.log_snapshots(owner, name, uid)?;
        let kept = self.numbers(&keys).await?;
        let now = u64::try_from(now.as_millisecond()).unwrap_or_default();
        // The clock of an earlier leader may have been ahead.
        let number = kept.last().map_or(now, |last| now.max(last + 1));
        self.put_new(&keys.key(number), log.bytes()?).await?;
        let expired = kept
            .into_iter()
            .filter(|number| Duration::from_millis(now.saturating_sub(*number)) > SNAPSHOT_TTL)
            .map(|number| keys.key(number))
            .collect();
        self.delete(expired).await
    }

    /// The key of the last stored log; `None` if this very backup or restore has none, or another
    /// file is requested.
    pub(crate) async fn log_snapshot(
        &self,
        owner: FileOwner,
        target: &DownloadTarget,
        uid: &str,
    ) -> Result<Option<Path>, StoreError> {
        if !is_log(&target.kind) {
            return Ok(None);
        }
        // The folder of a backup has only its name in it.
        if owner == FileOwner::Backup
            && self.owner(&self.layout().backup(&target.name)?).await? != uid
        {
            return Ok(None);
        }
        let keys = self.log_snapshots(owner, &target.name, uid)?;
        Ok(self
            .numbers(&keys)
            .await?
            .last()
            .map(|number| keys.key(*number)))
    }

    fn log_snapshots(
        &self,
        owner: FileOwner,
        name: &str,
        uid: &str,
    ) -> Result<NumberedKeys, StoreError> {
        let keys = match owner {
            FileOwner::Backup => self.layout().backup(name)?,
            FileOwner::Restore => self.layout().restore(name)?.of_uid(uid)?,
        };
        Ok(keys.log_snapshots())
    }
}

#[cfg(test)]
mod tests {
    use backup_core::api::download_request::DownloadTargetKind as Kind;
    use futures::TryStreamExt as _;

    use super::*;
    use crate::{
        FileIdentity, LookupResult,
        testing::{folder, keys, memory, put, target, unzipped},
    };

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).unwrap()
    }

    /// Number of lines in the log of this uid.
    async fn lines(location: &Location, kind: &Kind, uid: &str) -> Option<usize> {
        let target = target(kind.clone());
        let of = FileIdentity {
            uid,
            started: None,
            ended: false,
        };
        let LookupResult::Found(file) = location.look_up(&target, of).await.unwrap() else {
            return None;
        };
        let pieces: Vec<bytes::Bytes> = file.read(None).await.unwrap().try_collect().await.unwrap();
        Some(unzipped(&pieces.concat()).lines().count())
    }

    #[tokio::test]
    async fn the_last_snapshot_of_a_log_is_given_of_that_very_object() {
        for (owner, kind) in [
            (FileOwner::Backup, Kind::BackupLog),
            (FileOwner::Restore, Kind::RestoreLog),
        ] {
            let (_dir, on_disk) = folder("p");
            for location in [memory("p"), on_disk] {
                put(&location, "p/backups/b/.private/owner", b"u\n").await;
                assert_eq!(lines(&location, &kind, "u").await, None);
                let mut log = LogFile::new().unwrap();
                // The second is stored by another leader, whose clock is an hour behind.
                for (number, seconds) in [(1, 0), (2, -3600), (3, -3599)] {
                    log.line("info", "working", &[], at(0));
                    location
                        .keep_log_snapshot(owner, "b", "u", &log, at(seconds))
                        .await
                        .unwrap();
                    assert_eq!(
                        lines(&location, &kind, "u").await,
                        Some(number),
                        "{owner:?}"
                    );
                    assert_eq!(
                        lines(&location, &kind, "v").await,
                        None,
                        "given for another's"
                    );
                }
            }
        }
    }

    #[tokio::test]
    async fn logs_whose_urls_have_ended_are_removed_and_others_stay() {
        let location = memory("p");
        let log = LogFile::new().unwrap();
        for seconds in [0, 600, 901, 902] {
            location
                .keep_log_snapshot(FileOwner::Backup, "b", "u", &log, at(seconds))
                .await
                .unwrap();
        }
        let kept: Vec<String> = keys(&location).await.into_iter().collect();
        let expected = [600, 901, 902]
            .map(|at| format!("p/backups/b/.private/so-far-log-{}000", 1_700_000_000 + at));
        assert_eq!(kept, expected);
    }
}
