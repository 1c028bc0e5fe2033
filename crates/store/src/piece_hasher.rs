//! Hashes files in pieces, as large files are uploaded.

use backup_core::digest::{hex, sha256};
use sha2::{Digest as _, Sha256};

/// The digest of a file from the digests of its pieces, in hex: of one piece its own, so that
/// `sha256sum` prints it; of several the SHA-256 of their digests, one after the other.
pub(crate) fn of_pieces(pieces: &[String]) -> String {
    match pieces {
        [only] => only.clone(),
        all => sha256(all.concat().as_bytes()),
    }
}

/// Hashes a file while it is read, piece by piece.
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
