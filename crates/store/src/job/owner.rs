//! Ownership of folders.
//!
//! The folder is claimed by one key with the object's uid in it, written create-only before
//! anything else. Two objects of one name (two clusters on one bucket, or a recreated object) thus
//! never mix their files.

use bytes::Bytes;
use object_store::path::Path;

use super::record::Record;
use crate::{
    Location, StoreError,
    layout::{JobKeys, PRIVATE},
};

/// Maximum size of a note or a marker (bytes).
pub(crate) const MAX_NOTE_BYTES: u64 = 16 * 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimant {
    /// `metadata.uid` of the object.
    pub uid: String,
    /// Identifies the cluster and the namespace of the installation, unambiguously; empty where
    /// that is not recorded.
    pub installation: String,
}

impl Claimant {
    /// Whether both are known to belong to one installation, so that at most one of them has an
    /// object in the cluster.
    pub fn is_same_installation(&self, other: &Self) -> bool {
        self.installation == other.installation && !self.installation.is_empty()
    }

    fn encode(&self) -> Bytes {
        let Self { uid, installation } = self;
        if installation.is_empty() {
            format!("{uid}\n")
        } else {
            format!("{uid}\n{installation}\n")
        }
        .into()
    }

    fn decode(marker: &[u8]) -> Self {
        let text = String::from_utf8_lossy(marker);
        let mut lines = text.lines().map(|line| line.trim().to_owned());
        Self {
            uid: lines.next().unwrap_or_default(),
            installation: lines.next().unwrap_or_default(),
        }
    }
}

impl Location {
    /// The claimant of a folder, by its marker; `None` without a marker.
    pub(crate) async fn claimant(&self, keys: &JobKeys) -> Result<Option<Claimant>, StoreError> {
        // The marker of a restore is replaced instead of numbered.
        let found = if keys.noun == "backup" {
            self.list(&keys.private).await?
        } else {
            Vec::new()
        };
        self.claimant_among(keys, &found).await
    }

    /// The same, given the existing keys.
    pub(crate) async fn claimant_among(
        &self,
        keys: &JobKeys,
        found: &[Path],
    ) -> Result<Option<Claimant>, StoreError> {
        Ok(self
            .get_small(&keys.marker(found), MAX_NOTE_BYTES)
            .await?
            .map(|marker| Claimant::decode(&marker)))
    }

    /// The uid in the marker; empty if there is none.
    pub(crate) async fn owner(&self, keys: &JobKeys) -> Result<String, StoreError> {
        Ok(self.claimant(keys).await?.unwrap_or_default().uid)
    }

    /// Writes a marker (create-only).
    pub(crate) async fn put_marker(
        &self,
        keys: &JobKeys,
        marker: &Path,
        claimant: &Claimant,
    ) -> Result<(), StoreError> {
        let mut written = self.put_new(marker, claimant.encode()).await;
        if let Err(StoreError::Exists { detail, .. }) = &mut written {
            *detail = format!(
                "another {} of this name has just claimed the folder; choose another name",
                keys.noun
            );
        }
        written
    }

    /// Claims a folder without a marker, then looks again: programs that wrote into it meanwhile do
    /// not know our marker.
    pub(crate) async fn claim(
        &self,
        keys: &JobKeys,
        claimant: &Claimant,
    ) -> Result<(), StoreError> {
        self.put_marker(keys, &keys.owner(), claimant).await?;
        let found = self.list(&keys.folder).await?;
        if let Err(error) = self.refuse_foreign(keys, &found) {
            self.delete(vec![keys.owner()]).await?;
            return Err(error);
        }
        Ok(())
    }

    /// The claimant of a backup's folder; `None` if it is not claimed.
    pub async fn claimant_of_backup(&self, backup: &str) -> Result<Option<Claimant>, StoreError> {
        self.claimant(&self.layout().backup(backup)?).await
    }

    pub(crate) async fn check_owner(&self, keys: &JobKeys, uid: &str) -> Result<(), StoreError> {
        let owner = self.owner(keys).await?;
        if owner == uid {
            Ok(())
        } else {
            Err(self.is_of_another(keys, &owner, uid))
        }
    }

    /// Writes a record (create-only) of what the folder of its uid holds, or will hold.
    pub(crate) async fn put_record(
        &self,
        keys: &JobKeys,
        number: u64,
        record: &Record,
    ) -> Result<(), StoreError> {
        // Without conditional writes, two that claimed the folder at the same moment were both told
        // that they own it, and the marker is that of the last writer.
        if self.is_unconditional() {
            self.check_owner(keys, &record.uid).await?;
        }
        self.put_new(&keys.record(number), record.encode()?).await
    }

    pub(crate) fn is_of_another(&self, keys: &JobKeys, owner: &str, uid: &str) -> StoreError {
        let noun = keys.noun;
        self.exists(
            &keys.folder,
            format!(
                "it belongs to another {noun} of this name, which is not finished (uid {owner:?}, ours is {uid:?}); choose \
                 another name, or remove the folder if that {noun} is gone"
            ),
        )
    }

    /// Refuses a folder with files outside of the private one, before we write anything there.
    pub(crate) fn refuse_foreign(&self, keys: &JobKeys, found: &[Path]) -> Result<(), StoreError> {
        let private = keys.folder.clone().join(PRIVATE);
        let Some(foreign) = found.iter().find(|key| !key.prefix_matches(&private)) else {
            return Ok(());
        };
        let noun = keys.noun;
        let name = foreign.filename().unwrap_or_default();
        Err(self.exists(
            &keys.folder,
            format!("it holds files that this {noun} did not write, such as {name:?}; choose another name, or remove them"),
        ))
    }
}
