//! Copies of a backup in other locations: its files byte for byte under the same names.
//!
//! A copy is written in this order, and every key is created once:
//!
//! 1. The marker of the folder's owner, with the uid of the backup: no other backup of the name
//!    starts there.
//! 2. The note of the copy. From now on readers know that the folder holds a copy, complete or not.
//! 3. All files but the metadata, without private ones, which no reader of an ended backup needs.
//! 4. The metadata. From now on the copy exists, as a backup like any other.
//!
//! A crash between any two writes leaves no backup. The copy is resumed from its beginning: keys
//! with the right bytes are skipped, and other bytes are an error that names the key.

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use object_store::path::Path;
use serde::{Deserialize, Serialize};

use super::{DeletedBackup, Location, read::MAX_METADATA};
use crate::{
    Claimant, StoreError,
    backup::note_number,
    crash,
    job::MAX_NOTE_BYTES,
    layout::{JobKeys, PART_SIZE},
    staging::StagedObject,
    upload::Upload,
};

/// What the folder of a copy says about it. Never changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CopyNote {
    /// Uid in the stored metadata of the backup.
    pub uid: String,
    /// URL of the location that it was copied from.
    pub source: String,
    /// When the copy may be deleted. The metadata has the time of the original.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiration: Option<Timestamp>,
}

/// A file of a backup that is copied.
#[derive(Clone, Debug)]
pub struct CopiedFile {
    /// Its key in the source.
    key: Path,
    /// Its size; `None` where the source has no sizes.
    bytes: Option<u64>,
    /// Its place among the files.
    number: u64,
}

/// A copy whose folder is claimed. From [`Location::begin_copy`]; copy each file, then
/// [`PendingCopy::finish`]. Dropping it at any point leaves a copy that can be resumed.
#[derive(Debug)]
pub struct PendingCopy {
    source: Location,
    target: Location,
    from: JobKeys,
    to: JobKeys,
    note: CopyNote,
    metadata: Bytes,
    files: Vec<CopiedFile>,
}

impl Location {
    /// The note of a folder that holds a copy, complete or not; `None` for any other folder.
    pub async fn copy_note(&self, backup: &str) -> Result<Option<CopyNote>, StoreError> {
        self.read_copy_note(&self.layout().backup(backup)?).await
    }

    async fn read_copy_note(&self, keys: &JobKeys) -> Result<Option<CopyNote>, StoreError> {
        let key = keys.copy_note();
        let Some(text) = self.get_small(&key, MAX_NOTE_BYTES).await? else {
            return Ok(None);
        };
        serde_json::from_slice(&text).map(Some).map_err(|error| {
            self.corrupt(
                &key,
                format!("it is no note of a copy: {error}; delete the folder"),
            )
        })
    }

    /// Claims the folder of a backup in this location for a copy from `source`. `claimant` and
    /// `note` have the uid in the stored metadata. An earlier attempt is resumed, with the note that
    /// it has written. Safe to repeat.
    ///
    /// Errors: [`StoreError::Corrupt`] if the source has no whole backup of this name;
    /// [`StoreError::Exists`] if the folder here belongs to another backup, or is the original.
    pub async fn begin_copy(
        &self,
        source: &Self,
        backup: &str,
        claimant: &Claimant,
        note: &CopyNote,
    ) -> Result<PendingCopy, StoreError> {
        let from = source.layout().backup(backup)?;
        let to = self.layout().backup(backup)?;
        let Some(metadata) = source.get_small(&from.metadata(), MAX_METADATA).await? else {
            return Err(source.corrupt(
                &from.metadata(),
                "it is not there: the backup was deleted, or was never stored",
            ));
        };
        let files = source.files_to_copy(&from).await?;
        if !files.iter().any(|file| file.key == from.contents()) {
            return Err(source.corrupt(
                &from.contents(),
                "it is not there: a deletion of the backup has begun, or it was never whole",
            ));
        }
        let found = self.list(&to.folder).await?;
        self.claim_copy(&to, &found, claimant).await?;
        crash::point("after-copy-claimed");
        let note = self.write_copy_note(&to, &found, note).await?;
        crash::point("after-copy-note");
        if found.contains(&to.metadata())
            && self.get_small(&to.metadata(), MAX_METADATA).await?.as_ref() != Some(&metadata)
        {
            return Err(self.exists(
                &to.metadata(),
                "it is not the metadata of the backup that is copied; it is left alone. Delete that backup, or copy to \
                 another location",
            ));
        }
        self.remove_begun(&to, found.is_empty()).await?;
        Ok(PendingCopy {
            source: source.clone(),
            target: self.clone(),
            from,
            to,
            note,
            metadata,
            files,
        })
    }

    /// The files of a backup but its metadata. One listing.
    async fn files_to_copy(&self, keys: &JobKeys) -> Result<Vec<CopiedFile>, StoreError> {
        let is_sized = self.plugin().is_none();
        let mut files = Vec::new();
        let mut listed = self.store().list(Some(&keys.folder));
        while let Some(object) = listed
            .try_next()
            .await
            .map_err(|error| self.failed("list", &keys.folder, &error))?
        {
            let key = object.location;
            if keys.is_private(&key) || key == keys.metadata() {
                continue;
            }
            let number = files.len() as u64;
            files.push(CopiedFile {
                key,
                bytes: is_sized.then_some(object.size),
                number,
            });
        }
        Ok(files)
    }

    async fn claim_copy(
        &self,
        keys: &JobKeys,
        found: &[Path],
        claimant: &Claimant,
    ) -> Result<(), StoreError> {
        if found.is_empty() {
            return self.claim(keys, claimant).await;
        }
        let Some(owner) = self.claimant_among(keys, found).await? else {
            return Err(self.exists(
                &keys.folder,
                "the folder holds files of another program, such as a Velero server; they are left alone. Remove them, or copy \
                 to another location",
            ));
        };
        if owner.uid == claimant.uid {
            return Ok(());
        }
        let detail = format!(
            "the folder belongs to another backup of this name (uid {:?}, ours is {:?}); it is left alone. Delete that backup, \
             or copy to another location",
            owner.uid, claimant.uid
        );
        Err(self.exists(&keys.folder, detail))
    }

    /// Writes the note of a copy into a folder that is ours, or returns the earlier one.
    async fn write_copy_note(
        &self,
        keys: &JobKeys,
        found: &[Path],
        note: &CopyNote,
    ) -> Result<CopyNote, StoreError> {
        if found.contains(&keys.copy_note())
            && let Some(earlier) = self.read_copy_note(keys).await?
        {
            return Ok(earlier);
        }
        if found.iter().any(|key| !keys.is_private(key)) {
            return Err(self.exists(
                &keys.folder,
                "the folder holds the original, not a copy; name another location",
            ));
        }
        let text = serde_json::to_vec(note)
            .map_err(|error| StoreError::io("encode the note of a copy", &error))?;
        self.put_new(&keys.copy_note(), text.into()).await?;
        Ok(note.clone())
    }

    /// Removes a copy of the backup with this uid in its stored metadata; returns the number of its
    /// keys, and the versions that the store keeps. Files that are not those of the copy stay. Safe to
    /// repeat, also if an earlier call has hidden all keys but the marker.
    ///
    /// `keeps_versions`: see [`Location::may_keep_versions`].
    pub async fn delete_copy(
        &self,
        backup: &str,
        uid: &str,
        keeps_versions: bool,
    ) -> Result<DeletedBackup, StoreError> {
        let keys = self.layout().backup(backup)?;
        let found = self.list(&keys.folder).await?;
        // The metadata goes before the note.
        let is_original = found.contains(&keys.metadata()) && !found.contains(&keys.copy_note());
        let owner = self.claimant_among(&keys, &found).await?;
        if is_original || owner.is_none_or(|owner| owner.uid != uid) {
            return Ok(DeletedBackup::default());
        }
        if keeps_versions {
            return self.delete_backup_and_versions(backup, None).await;
        }
        Ok(DeletedBackup {
            keys: self.delete_backup(backup).await?,
            ..DeletedBackup::default()
        })
    }
}

impl PendingCopy {
    /// The note in the folder of the copy.
    pub fn note(&self) -> &CopyNote {
        &self.note
    }

    /// Size of all files (bytes), as far as the source has sizes.
    pub fn bytes(&self) -> u64 {
        let files = self.files.iter().filter_map(|file| file.bytes);
        files.sum::<u64>() + self.metadata.len() as u64
    }

    /// The files that are copied side by side: each is in memory while it is copied.
    pub fn small_files(&self) -> Vec<CopiedFile> {
        self.files_where(CopiedFile::is_small)
    }

    /// The files that are copied one after another.
    pub fn large_files(&self) -> Vec<CopiedFile> {
        self.files_where(|file| !file.is_small())
    }

    fn files_where(&self, is_wanted: impl Fn(&CopiedFile) -> bool) -> Vec<CopiedFile> {
        let files = self.files.iter().filter(|file| is_wanted(file));
        files.cloned().collect()
    }

    /// Copies a file, unless it is there: in the store where that is possible, else through this
    /// process in parts. Safe to repeat.
    ///
    /// Errors: [`StoreError::Exists`] if the key holds other bytes, which are left unchanged.
    pub async fn copy_file(&self, file: &CopiedFile) -> Result<(), StoreError> {
        let to = self.target_key(file);
        if self.is_copied(file, &to).await? {
            return Ok(());
        }
        let bytes = file.bytes.unwrap_or(u64::MAX);
        if !self
            .target
            .copy_in_store(&self.source, &file.key, &to, bytes)
            .await?
        {
            self.transfer(file, &to).await?;
        } else if !self.has_its_size(file, &to).await? {
            return Err(self.target.unreachable(
                "write",
                &to,
                "the store says that it has copied the file, but it is not there",
            ));
        }
        crash::point("after-copied-file");
        Ok(())
    }

    /// Writes the metadata: from now on the copy exists. All files must have been copied. Safe to
    /// repeat.
    pub async fn finish(&self) -> Result<(), StoreError> {
        crash::point("before-copied-metadata");
        let Self {
            target, to, note, ..
        } = self;
        // Without conditional writes, two that claimed the folder at the same moment were both told
        // that they own it.
        target.check_owner(to, &note.uid).await?;
        target
            .put_new(&to.metadata(), self.metadata.clone())
            .await?;
        crash::point("after-copied-metadata");
        // Best effort: a bucket may refuse every deletion.
        if let Err(error) = target.tidy_backup(&to.name).await {
            tracing::debug!(backup = &to.name, %error, "private files of a finished copy stay");
        }
        Ok(())
    }

    fn target_key(&self, file: &CopiedFile) -> Path {
        let mut key = self.to.folder.clone();
        for part in file
            .key
            .prefix_match(&self.from.folder)
            .into_iter()
            .flatten()
        {
            key = key.join(part);
        }
        key
    }

    /// Whether the target holds a file of this size. Errors: [`StoreError::Exists`] for another
    /// size.
    async fn has_its_size(&self, file: &CopiedFile, to: &Path) -> Result<bool, StoreError> {
        let Some(there) = self.target.look_at(to).await? else {
            return Ok(false);
        };
        match (there.size, file.bytes) {
            (Some(found), Some(expected)) if found != expected => {
                Err(self.holds_other_bytes(to, found))
            }
            // Without sizes it is written again, which compares the bytes.
            (found, expected) => Ok(found.is_some() && expected.is_some()),
        }
    }

    /// Whether the file was copied before. An object is visible as a whole or not at all, so the
    /// size of a large one in a folder that is ours suffices; a small one is compared.
    async fn is_copied(&self, file: &CopiedFile, to: &Path) -> Result<bool, StoreError> {
        if !self.has_its_size(file, to).await? {
            return Ok(false);
        }
        if !file.is_small() {
            return Ok(true);
        }
        let max = PART_SIZE as u64;
        let expected = self.source.get_small(&file.key, max).await?;
        match self.target.get_small(to, max).await? {
            None => Ok(false),
            found if found == expected => Ok(true),
            Some(found) => Err(self.holds_other_bytes(to, found.len() as u64)),
        }
    }

    fn holds_other_bytes(&self, to: &Path, bytes: u64) -> StoreError {
        let detail = format!(
            "it holds {bytes} bytes that are not those of the backup's file; it is left alone. Remove it, or copy to another \
             location"
        );
        self.target.exists(to, detail)
    }

    /// Copies a file through this process, in parts.
    async fn transfer(&self, file: &CopiedFile, to: &Path) -> Result<(), StoreError> {
        let note = self.to.upload_notes().key(note_number() + file.number);
        let mut upload = Upload::new(self.target.clone(), to.clone(), Some(note));
        let staged = match self.stage(file, &mut upload).await {
            Ok(staged) => staged,
            Err(error) => {
                upload.abort().await;
                return Err(error);
            }
        };
        match self.target.publish(to, &staged).await {
            // Another process has removed the parts; they are sent again.
            Err(StoreError::Lost { detail, .. }) => {
                Err(self.target.unreachable("write", to, detail))
            }
            published => published,
        }
    }

    async fn stage(
        &self,
        file: &CopiedFile,
        upload: &mut Upload,
    ) -> Result<StagedObject, StoreError> {
        let key = &file.key;
        let Some(object) = self.source.get(key).await? else {
            return Err(self
                .source
                .corrupt(key, "it was deleted while the backup was copied"));
        };
        let mut chunks = object.into_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| self.source.failed("read", key, &error))?;
            upload.write(chunk).await?;
        }
        let staged = upload.finish().await?;
        if file.bytes.is_some_and(|bytes| bytes != staged.bytes()) {
            let detail = format!("it ended after {} bytes", staged.bytes());
            return Err(self.source.unreachable("read", key, detail));
        }
        Ok(staged)
    }
}

impl CopiedFile {
    /// Whether the file is at most one part.
    fn is_small(&self) -> bool {
        self.bytes.is_some_and(|bytes| bytes <= PART_SIZE as u64)
    }
}

#[cfg(test)]
mod tests;
