//! Whose a folder is.
//!
//! The folder is claimed by one key with the object's uid in it, written create-only before anything else. Two objects of one
//! name (two clusters on one bucket, or a recreated object) thus never mix their files.

use bytes::Bytes;
use object_store::path::Path;

use crate::{Location, StoreError, layout::PRIVATE};

/// A note or a marker is at most this large (bytes).
pub(crate) const SMALL: u64 = 16 * 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimant {
    /// `metadata.uid` of the object.
    pub uid: String,
    /// The cluster and the namespace of the installation, in some form that names no other one; empty where that is not
    /// recorded.
    pub installation: String,
}

impl Claimant {
    fn encode(&self) -> Bytes {
        let Self { uid, installation } = self;
        if installation.is_empty() { format!("{uid}\n") } else { format!("{uid}\n{installation}\n") }.into()
    }

    fn decode(marker: &[u8]) -> Self {
        let text = String::from_utf8_lossy(marker);
        let mut lines = text.lines().map(|line| line.trim().to_owned());
        Self { uid: lines.next().unwrap_or_default(), installation: lines.next().unwrap_or_default() }
    }
}

impl Location {
    /// Who has claimed a folder, by its marker; none if there is no marker.
    pub(crate) async fn claimant(&self, marker: &Path) -> Result<Option<Claimant>, StoreError> {
        Ok(self.get_small(marker, SMALL).await?.map(|marker| Claimant::decode(&marker)))
    }

    /// Writes the marker (create-only).
    pub(crate) async fn put_marker(
        &self,
        marker: &Path,
        claimant: &Claimant,
        noun: &str,
    ) -> Result<(), StoreError> {
        self.put_new(marker, claimant.encode()).await.map_err(|error| match error {
            StoreError::Exists { url, .. } => StoreError::Exists {
                url,
                detail: format!(
                    "another {noun} of this name has just claimed the folder; choose another name"
                ),
            },
            other => other,
        })
    }

    /// Before a commit: where a store knows no conditions, two that claimed the folder at the same moment have both been
    /// told that it is theirs, and the marker is of the one who wrote last.
    pub(crate) async fn still_ours(
        &self,
        noun: &str,
        folder: &Path,
        marker: &Path,
        uid: &str,
    ) -> Result<(), StoreError> {
        if !self.is_unconditional() {
            return Ok(());
        }
        let owner = self.claimant(marker).await?.unwrap_or_default().uid;
        if owner == uid { Ok(()) } else { Err(self.is_of_another(noun, folder, &owner, uid)) }
    }

    pub(crate) fn is_of_another(&self, noun: &str, folder: &Path, owner: &str, uid: &str) -> StoreError {
        self.exists(
            folder,
            format!(
                "it belongs to another {noun} of this name, which is not finished (uid {owner:?}, ours is {uid:?}); choose \
                 another name, or remove the folder if that {noun} is gone"
            ),
        )
    }

    /// Refuses a folder with files outside of the private one, before anything of ours is there.
    pub(crate) fn refuse_foreign(&self, noun: &str, folder: &Path, found: &[Path]) -> Result<(), StoreError> {
        let private = folder.clone().join(PRIVATE);
        let Some(foreign) = found.iter().find(|key| !key.prefix_matches(&private)) else { return Ok(()) };
        let name = foreign.filename().unwrap_or_default();
        Err(self.exists(
            folder,
            format!("it holds files that this {noun} did not write, such as {name:?}; choose another name, or remove them"),
        ))
    }
}
