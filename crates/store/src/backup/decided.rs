//! The last step: what was decided becomes visible, contents first, metadata last.

use backup_core::api::Backup;
use bytes::Bytes;
use object_store::path::Path;

use super::{
    BackupWriter,
    record::{Contents, Record},
};
use crate::{Location, StoreError, crash, layout::BackupKeys, staging::Staged};

/// A backup of which every byte is decided. From [`super::Collected::decide`], or found by [`Location::find_backup`].
#[derive(Debug)]
pub struct Decided {
    location: Location,
    keys: BackupKeys,
    number: u64,
    record: Record,
    metadata: Backup,
    /// How many files this process has seen in their place.
    done: usize,
}

impl Decided {
    pub(super) fn new(
        location: Location,
        keys: BackupKeys,
        number: u64,
        record: Record,
        metadata: Backup,
    ) -> Self {
        Self { location, keys, number, record, metadata, done: 0 }
    }

    /// The Backup as it will be stored: its phase, its times, its counts.
    pub fn metadata(&self) -> &Backup {
        &self.metadata
    }

    /// Size of the tarball (bytes).
    pub fn bytes(&self) -> u64 {
        self.contents().bytes()
    }

    /// What a final key will hold; none for the contents.
    pub(crate) fn file(&self, key: &Path) -> Option<Bytes> {
        self.record.file(key)
    }

    /// Number of the record.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Writes what is not there yet, each key once, and with the metadata, last, the backup exists.
    ///
    /// Returns the metadata as it stands in the store, read back: that is what is to be published. Safe to repeat, by
    /// any process, also by several at once. Errors: [`StoreError::Exists`] if a key holds other bytes, which are left
    /// alone; [`StoreError::Lost`] if the contents were uploaded and are gone without having become visible: then
    /// nothing of the backup is visible, and it can be begun again ([`Self::begin_again`]).
    pub async fn publish(&mut self) -> Result<Backup, StoreError> {
        let mut files = self.files();
        let metadata = files.pop();
        for (place, (key, staged)) in files.iter().enumerate().skip(self.done) {
            self.location.publish(key, staged).await?;
            self.done = place + 1;
            self.crash_point(key);
        }
        self.check_contents().await?;
        crash::point("before-metadata");
        let stored = match metadata {
            Some((_, staged)) => self.commit(&staged).await?,
            None => self.metadata.clone(),
        };
        crash::point("after-metadata");
        self.tidy().await;
        Ok(stored)
    }

    /// Begins again after [`StoreError::Lost`]. Files of this decision that are visible nevertheless (the contents were
    /// removed by somebody after they had been published) are removed first, if they are still as we wrote them.
    pub async fn begin_again(self) -> Result<BackupWriter, StoreError> {
        for (key, staged) in self.files() {
            if self.location.holds(&key, &staged).await? {
                self.location.delete(vec![key]).await?;
            }
        }
        self.location.begin(self.keys, &self.record.uid, self.number, false).await
    }

    /// `after-contents`, `after-logs.gz`, …
    fn crash_point(&self, key: &Path) {
        let name = key.filename().and_then(|name| name.strip_prefix(self.keys.name())).unwrap_or_default();
        let name = if *key == self.keys.contents() { "contents" } else { name.trim_start_matches('-') };
        crash::point(&format!("after-{name}"));
    }

    async fn commit(&self, staged: &Staged) -> Result<Backup, StoreError> {
        let key = self.keys.metadata();
        match self.location.publish(&key, staged).await {
            // Other bytes may be ours, too: of an earlier decision, or written by another version.
            Ok(()) | Err(StoreError::Exists { .. }) => {}
            Err(error) => return Err(error),
        }
        match self.location.read_metadata(self.keys.name()).await? {
            Some(stored)
                if stored.metadata.uid == self.metadata.metadata.uid
                    && stored.phase() == self.metadata.phase() =>
            {
                Ok(stored)
            }
            Some(stored) => Err(StoreError::Exists {
                url: self.location.url_of(&key),
                detail: format!(
                    "it holds a backup with uid {:?} as {}; it is left alone",
                    stored.metadata.uid.as_deref().unwrap_or_default(),
                    stored.phase()
                ),
            }),
            None => Err(StoreError::Unreachable {
                action: "read back".to_owned(),
                url: self.location.url_of(&key),
                detail: "it was written, and now it is not there; another program may have removed it"
                    .to_owned(),
            }),
        }
    }

    /// Metadata says that the contents are there. So they are looked at once more, as bucket rules, people and other
    /// programs may have removed them.
    async fn check_contents(&mut self) -> Result<(), StoreError> {
        let (key, expected) = (self.keys.contents(), self.bytes());
        let found = self.location.look_at(&key).await?;
        // A plugin does not tell sizes; it has said that it has all of it.
        let is_whole = |size: Option<u64>| size.is_none_or(|size| size == expected);
        if found.as_ref().is_some_and(|there| is_whole(there.size)) {
            return Ok(());
        }
        self.done = 0;
        match found.and_then(|there| there.size) {
            None => Err(StoreError::Unreachable {
                action: "read back".to_owned(),
                url: self.location.url_of(&key),
                detail: "it was written, and now it is not there; another program may have removed it"
                    .to_owned(),
            }),
            Some(size) => Err(StoreError::Exists {
                url: self.location.url_of(&key),
                detail: format!(
                    "{expected} bytes were stored, now there are {size}: another program has written it; it is left alone"
                ),
            }),
        }
    }

    /// Removes what nobody needs beside the metadata. Best effort: a bucket may refuse every deletion.
    async fn tidy(&self) {
        if let Err(error) = self.location.tidy_backup(self.keys.name()).await {
            tracing::debug!(backup = self.keys.name(), %error, "private files of a finished backup stay");
        }
    }

    fn contents(&self) -> Staged {
        match &self.record.contents {
            Contents::Uploaded(parts) => Staged::Upload(parts.clone()),
            _ => Staged::Inline(self.record.file(&self.keys.contents()).unwrap_or_default()),
        }
    }

    /// Everything in the order of writing: contents, side files, metadata.
    fn files(&self) -> Vec<(Path, Staged)> {
        let key = self.keys.contents();
        let rest = self.record.files.iter().filter(|(of, _)| *of != key);
        let rest = rest.map(|(key, bytes)| (key.clone(), Staged::Inline(bytes.clone())));
        std::iter::once((key.clone(), self.contents())).chain(rest).collect()
    }
}

impl Location {
    /// Removes what a finished backup needs no more: records, notes, and uploads that were never completed. Nothing if there
    /// is no metadata. Safe to repeat.
    pub async fn tidy_backup(&self, backup: &str) -> Result<(), StoreError> {
        let keys = self.layout().backup(backup)?;
        let found = self.list(keys.folder()).await?;
        if !found.contains(&keys.metadata()) {
            return Ok(());
        }
        if keys.upload_notes().has_any(&found) {
            self.remove_begun(&keys, false).await?;
        }
        let owner = keys.owner();
        self.delete(found.into_iter().filter(|key| keys.is_private(key) && *key != owner).collect()).await
    }
}
