//! The files that DownloadRequests name, read by us for users who cannot reach the store.
//!
//! A folder has the name of its backup, so its files may belong to another backup of that name: of
//! another cluster that shares the bucket, or a deleted one. A file is only returned if it belongs
//! to the requested backup or restore.

use std::ops::Range;

use backup_core::{
    api::{Backup, Restore, download_request::DownloadTarget},
    digest::short_sha256,
};
use bytes::Bytes;
use futures::{
    StreamExt as _, TryStreamExt as _,
    stream::{self, BoxStream},
};
use jiff::Timestamp;
use object_store::{GetOptions, GetRange, path::Path};

use crate::{FoundJob, Location, StoreError, download::FileOwner};

/// The backup or restore that a file must belong to.
#[derive(Clone, Copy, Debug)]
pub struct FileIdentity<'a> {
    pub uid: &'a str,
    /// Start time. A backup imported from another cluster has another uid here, but the same start
    /// time.
    pub started: Option<Timestamp>,
    /// Whether a restore's end was published, so that all of its files are in place.
    pub ended: bool,
}

#[derive(Debug)]
pub enum LookupResult {
    Found(StoredFile),
    /// There is no file, as yet or for ever.
    Nothing,
    /// A file of another backup of that name.
    OfAnother,
}

#[derive(Debug)]
pub struct StoredFile {
    place: Place,
    /// Its size (bytes); `None` where only reading tells it. Then it cannot be read in part.
    pub size: Option<u64>,
    /// Equal for equal bytes; `None` where the store has no ETag.
    pub version: Option<String>,
}

#[derive(Debug)]
enum Place {
    /// A snapshot; the file is not in its place yet.
    Memory(Bytes),
    Store {
        location: Location,
        key: Path,
        e_tag: Option<String>,
    },
}

impl Location {
    /// Looks for a file of exactly this backup or restore.
    ///
    /// Errors: [`StoreError::Config`] for an invalid target, and any error of reading.
    pub async fn look_up(
        &self,
        target: &DownloadTarget,
        of: FileIdentity<'_>,
    ) -> Result<LookupResult, StoreError> {
        let key = self.layout().target(target)?;
        let snapshot = match FileOwner::of(&target.kind) {
            Some(FileOwner::Backup) => match self.find_job::<Backup>(&target.name, of.uid).await? {
                FoundJob::Stored(stored) => {
                    if is_of(&stored, of) {
                        return self.stored(key).await;
                    }
                    return Ok(LookupResult::OfAnother);
                }
                FoundJob::Awaiting(awaiting) => awaiting.file(&key)?.map(|(_, bytes)| bytes),
                FoundJob::Committed(plan) => self.recorded_for(&plan.record, &key).await?,
                FoundJob::Nothing => {
                    return self
                        .look_up_log_snapshot(FileOwner::Backup, target, of)
                        .await;
                }
            },
            Some(FileOwner::Restore) => match self.find_job::<Restore>(&target.name, of.uid).await?
            {
                FoundJob::Awaiting(awaiting) => awaiting.file(&key)?.map(|(_, bytes)| bytes),
                FoundJob::Committed(plan) => self.recorded_for(&plan.record, &key).await?,
                FoundJob::Stored(_) | FoundJob::Nothing => {
                    if of.ended {
                        return self.stored(key).await;
                    }
                    return self
                        .look_up_log_snapshot(FileOwner::Restore, target, of)
                        .await;
                }
            },
            None => None,
        };
        Ok(snapshot.map_or(LookupResult::Nothing, |bytes| {
            LookupResult::Found(StoredFile::in_memory(bytes))
        }))
    }

    /// While items are processed, only a log may exist.
    async fn look_up_log_snapshot(
        &self,
        owner: FileOwner,
        target: &DownloadTarget,
        of: FileIdentity<'_>,
    ) -> Result<LookupResult, StoreError> {
        match self.log_snapshot(owner, target, of.uid).await? {
            Some(key) => self.stored(key).await,
            None => Ok(LookupResult::Nothing),
        }
    }

    async fn stored(&self, key: Path) -> Result<LookupResult, StoreError> {
        let Some(there) = self.look_at(&key).await? else {
            return Ok(LookupResult::Nothing);
        };
        let e_tag = there.e_tag;
        let version = e_tag.as_ref().map(|tag| short_sha256(tag.as_bytes(), 12));
        let place = Place::Store {
            location: self.clone(),
            key,
            e_tag,
        };
        Ok(LookupResult::Found(StoredFile {
            place,
            size: there.size,
            version,
        }))
    }
}

/// Whether stored metadata belongs to this backup.
pub(crate) fn is_of(stored: &Backup, of: FileIdentity<'_>) -> bool {
    let began = stored
        .status
        .start_timestamp
        .as_ref()
        .map(|time| time.0.as_second());
    stored
        .metadata
        .uid
        .as_deref()
        .is_some_and(|uid| !uid.is_empty() && uid == of.uid)
        || began.is_some() && began == of.started.map(Timestamp::as_second)
}

impl StoredFile {
    pub(crate) fn in_memory(bytes: Bytes) -> Self {
        Self {
            size: Some(bytes.len() as u64),
            version: Some(short_sha256(&bytes, 12)),
            place: Place::Memory(bytes),
        }
    }

    /// Streams its bytes, or the bytes of a range, which must lie within it, at the reader's speed.
    ///
    /// Errors: any error of reading, also for a file that has changed since it was looked up.
    pub async fn read(
        self,
        range: Option<Range<u64>>,
    ) -> Result<BoxStream<'static, Result<Bytes, StoreError>>, StoreError> {
        let (location, key, e_tag) = match self.place {
            Place::Memory(bytes) => {
                let len = bytes.len();
                let part = range.map_or(bytes.clone(), |range| {
                    bytes.slice(index_within(len, range.start)..index_within(len, range.end))
                });
                return Ok(stream::iter([Ok(part)]).boxed());
            }
            Place::Store {
                location,
                key,
                e_tag,
            } => (location, key, e_tag),
        };
        let options = GetOptions {
            range: range.map(GetRange::Bounded),
            if_match: e_tag,
            ..GetOptions::default()
        };
        let object = location.store().get_opts(&key, options).await;
        let object = object.map_err(|error| location.failed("read", &key, &error))?;
        Ok(object
            .into_stream()
            .map_err(move |error| location.failed("read", &key, &error))
            .boxed())
    }
}

/// An offset as an index into `len` bytes, at most their end.
fn index_within(len: usize, offset: u64) -> usize {
    usize::try_from(offset).map_or(len, |offset| offset.min(len))
}

#[cfg(test)]
mod tests {
    use backup_core::api::download_request::DownloadTargetKind as Kind;

    use super::*;
    use crate::testing::{folder, memory, put, target};

    async fn bytes(file: StoredFile, range: Option<Range<u64>>) -> Vec<u8> {
        let pieces: Vec<Bytes> = file.read(range).await.unwrap().try_collect().await.unwrap();
        pieces.concat()
    }

    async fn store(location: &Location, uid: &str, started: &str) {
        let metadata = format!(
            r#"{{"apiVersion":"velero.io/v1","kind":"Backup","metadata":{{"name":"b","uid":"{uid}"}},"status":{{"startTimestamp":"{started}"}}}}"#
        );
        put(
            location,
            "p/backups/b/velero-backup.json",
            metadata.as_bytes(),
        )
        .await;
        put(location, "p/backups/b/b-logs.gz", b"0123456789").await;
    }

    #[tokio::test]
    async fn a_file_of_another_backup_of_the_name_is_not_given() {
        let location = memory("p");
        let began: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let of = |uid, started| FileIdentity {
            uid,
            started,
            ended: true,
        };
        let log = target(Kind::BackupLog);
        assert!(matches!(
            location.look_up(&log, of("u", None)).await.unwrap(),
            LookupResult::Nothing
        ));
        store(&location, "u", "2026-01-01T00:00:00Z").await;
        for (uid, started, ours) in [
            ("u", None, true),
            ("v", Some(began), true),
            ("v", Some(began + jiff::SignedDuration::from_secs(1)), false),
            ("v", None, false),
            ("", None, false),
        ] {
            match location.look_up(&log, of(uid, started)).await.unwrap() {
                LookupResult::Found(file) => {
                    assert!(ours, "{uid} {started:?}");
                    assert_eq!(bytes(file, None).await, b"0123456789");
                }
                LookupResult::OfAnother => assert!(!ours, "{uid} {started:?}"),
                LookupResult::Nothing => panic!("{uid} {started:?}: nothing"),
            }
        }
        let contents = location
            .look_up(&target(Kind::BackupContents), of("u", None))
            .await
            .unwrap();
        assert!(matches!(contents, LookupResult::Nothing));
    }

    #[tokio::test]
    async fn files_of_a_restore_are_given_when_its_end_is_published() {
        let location = memory("p");
        put(
            &location,
            "p/restores/b/restore-b-logs.gz",
            b"of an earlier one",
        )
        .await;
        for ended in [true, false] {
            let of = FileIdentity {
                uid: "u",
                started: None,
                ended,
            };
            let sought = location
                .look_up(&target(Kind::RestoreLog), of)
                .await
                .unwrap();
            assert_eq!(matches!(sought, LookupResult::Found(_)), ended);
        }
    }

    #[tokio::test]
    async fn a_part_is_a_part_in_memory_and_in_a_store() {
        let (_folder, location) = folder("p");
        store(&location, "u", "2026-01-01T00:00:00Z").await;
        let (log, of) = (
            target(Kind::BackupLog),
            FileIdentity {
                uid: "u",
                started: None,
                ended: true,
            },
        );
        let found = async || match location.look_up(&log, of).await.unwrap() {
            LookupResult::Found(file) => file,
            other => panic!("{other:?}"),
        };
        let whole = StoredFile::in_memory(Bytes::from_static(b"0123456789"));
        assert_eq!((whole.size, found().await.size), (Some(10), Some(10)));
        assert!(found().await.version.is_some() && found().await.version == found().await.version);
        for (range, expected) in [
            (None, "0123456789"),
            (Some(3..10), "3456789"),
            (Some(0..1), "0"),
        ] {
            let file = StoredFile::in_memory(Bytes::from_static(b"0123456789"));
            assert_eq!(bytes(file, range.clone()).await, expected.as_bytes());
            assert_eq!(bytes(found().await, range).await, expected.as_bytes());
        }
        let before = found().await;
        put(&location, "p/backups/b/b-logs.gz", b"other bytes").await;
        assert!(
            before.read(None).await.is_err(),
            "a file that has changed was read as the same"
        );
    }
}
