//! Digests of the files of a backup. They are stored in an annotation of its metadata, so that each
//! later read can be compared with what was written, by any program that has the folder.

use std::collections::BTreeMap;

use backup_core::{
    api::Backup,
    labels::{DIGESTS_ANNOTATION, annotation},
};
use bytes::Bytes;
use object_store::path::Path;
use serde::{Deserialize, Serialize};

use crate::{
    layout::{JobKeys, PART_SIZE},
    piece_hasher::of_pieces,
    staging::StagedObject,
};

/// Digests of the files of one backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileDigests {
    /// Size of all pieces but the last (bytes).
    piece_bytes: usize,
    /// By the end of the file's name, which follows the name of the backup.
    sha256: BTreeMap<String, String>,
}

impl FileDigests {
    /// Of these files, and of contents that were uploaded before.
    pub(crate) fn of(
        keys: &JobKeys,
        files: &[(Path, Bytes)],
        uploaded: Option<&StagedObject>,
    ) -> Self {
        let mut digests = Self {
            piece_bytes: PART_SIZE,
            sha256: BTreeMap::new(),
        };
        if let Some(contents) = uploaded {
            digests.add(keys, &keys.contents(), contents);
        }
        for (key, bytes) in files {
            digests.add(keys, key, &StagedObject::Inline(bytes.clone()));
        }
        digests
    }

    fn add(&mut self, keys: &JobKeys, key: &Path, staged: &StagedObject) {
        if let Some(end) = name_end(keys, key) {
            let digest = of_pieces(&staged.digests());
            self.sha256.insert(end.to_owned(), digest);
        }
    }

    /// Reads the annotation of stored metadata. Returns `None` if it is missing or unreadable:
    /// Velero writes none, and neither did earlier versions.
    pub(crate) fn read(metadata: &Backup) -> Option<Self> {
        let text = annotation(metadata, DIGESTS_ANNOTATION)?;
        let digests: Self = serde_json::from_str(text).ok()?;
        Some(digests).filter(|digests| digests.piece_bytes > 0)
    }

    /// Adds the annotation.
    pub(crate) fn annotate(&self, metadata: &mut Backup) {
        let text = serde_json::to_string(self).unwrap_or_default();
        let annotations = metadata.metadata.annotations.get_or_insert_default();
        annotations.insert(DIGESTS_ANNOTATION.to_owned(), text);
    }

    /// The digest of the file with this key; `None` if none was stored.
    pub(crate) fn find(&self, keys: &JobKeys, key: &Path) -> Option<&str> {
        let digest = self.sha256.get(name_end(keys, key)?)?;
        Some(digest)
    }

    pub(crate) fn piece_bytes(&self) -> usize {
        self.piece_bytes
    }
}

/// The part of a file's name after the name of the backup.
fn name_end<'a>(keys: &JobKeys, key: &'a Path) -> Option<&'a str> {
    key.filename()?.strip_prefix(keys.name.as_str())
}
