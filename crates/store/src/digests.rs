//! Digests of the files of a backup. They are stored in an annotation of its metadata, so that each
//! later read can be compared with what was written, by any program that has the folder.
//!
//! A file is hashed in pieces of 8 MiB, as it is uploaded.

use std::collections::BTreeMap;

use backup_core::{
    api::Backup,
    digest::{hex, sha256},
    labels::{DIGESTS_ANNOTATION, annotation},
};
use bytes::Bytes;
use object_store::path::Path;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    layout::{JobKeys, PART_SIZE},
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

/// The digest of a file by those of its pieces, in hex: of one piece its own, so that `sha256sum`
/// prints it; of several the SHA-256 of their digests, one after the other.
pub(crate) fn of_pieces(pieces: &[String]) -> String {
    match pieces {
        [only] => only.clone(),
        all => sha256(all.concat().as_bytes()),
    }
}

/// Hashes a file as it is read, piece by piece.
pub(crate) struct PieceHasher {
    piece_bytes: usize,
    hash: Sha256,
    /// Bytes of the current piece.
    filled: usize,
    /// Digests of the complete pieces.
    pieces: Vec<String>,
    size: u64,
}

impl PieceHasher {
    pub(crate) fn new(piece_bytes: usize) -> Self {
        Self {
            piece_bytes: piece_bytes.max(1),
            hash: Sha256::new(),
            filled: 0,
            pieces: Vec::new(),
            size: 0,
        }
    }

    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        self.size += bytes.len() as u64;
        while !bytes.is_empty() {
            let room = self.piece_bytes - self.filled;
            let (piece, rest) = bytes.split_at(bytes.len().min(room));
            self.hash.update(piece);
            self.filled += piece.len();
            if self.filled == self.piece_bytes {
                self.end_piece();
            }
            bytes = rest;
        }
    }

    fn end_piece(&mut self) {
        self.pieces.push(hex(self.hash.finalize_reset().as_slice()));
        self.filled = 0;
    }

    /// Number of bytes so far.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The digests of all pieces.
    pub(crate) fn finish(mut self) -> Vec<String> {
        if self.filled > 0 {
            self.end_piece();
        }
        self.pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_a_file_does_not_depend_on_how_it_is_read() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for piece in [1, 7, 250, 999, 1000, 1001] {
            let expected: Vec<String> = bytes.chunks(piece).map(sha256).collect();
            for step in [1, 3, 250, 1000] {
                let mut hasher = PieceHasher::new(piece);
                bytes.chunks(step).for_each(|part| hasher.update(part));
                assert_eq!(hasher.size(), 1000);
                assert_eq!(hasher.finish(), expected, "{piece} {step}");
            }
        }
    }

    #[test]
    fn a_file_of_one_piece_has_the_digest_that_other_programs_compute() {
        assert_eq!(of_pieces(&[sha256(b"a")]), sha256(b"a"));
        assert_eq!(of_pieces(&PieceHasher::new(8).finish()), sha256(b""));
        let both = [sha256(b"a"), sha256(b"b")];
        assert_eq!(of_pieces(&both), sha256(both.concat().as_bytes()));
    }
}
