//! Hex digits, and SHA-256 in hex.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// Bytes as lower-case hex digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            let _ = write!(text, "{byte:02x}"); // A String takes everything.
            text
        })
}

/// The first `length` bytes of the SHA-256 of some bytes, in hex.
pub fn short_sha256(bytes: &[u8], length: usize) -> String {
    hex(&Sha256::digest(bytes)[..length.min(32)])
}

/// The SHA-256 of some bytes, in hex.
pub fn sha256(bytes: &[u8]) -> String {
    short_sha256(bytes, 32)
}
