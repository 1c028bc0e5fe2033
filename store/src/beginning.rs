//! What a write may leave that was broken off: the beginning of an object.
//!
//! A store of its own makes an object visible as a whole or not at all. A plugin may write into a file, say, and be ended in
//! the middle. Nobody else writes the first bytes of what is decided, so such a beginning is ours, and is written again.

use futures::TryStreamExt as _;
use object_store::path::Path;
use sha2::{Digest as _, Sha256};

use crate::{
    Location, StoreError,
    staging::{PART_SIZE, Staged, hex, sha256},
};

impl Location {
    /// Whether an object of so many bytes, whose pieces have these digests, is the beginning of what is staged. Only where
    /// a plugin serves the store.
    pub(crate) async fn is_beginning(
        &self,
        key: &Path,
        digests: &[String],
        size: u64,
        staged: &Staged,
    ) -> Result<bool, StoreError> {
        if self.plugin().is_none() || size >= staged.bytes() {
            return Ok(false);
        }
        let expected = staged.digests();
        let rest = usize::try_from(size % PART_SIZE as u64).unwrap_or_default();
        let whole = digests.len() - usize::from(rest > 0);
        if digests.get(..whole) != expected.get(..whole) {
            return Ok(false);
        }
        match digests.get(whole) {
            Some(digest) => Ok(self.digest_of_first(key, staged, whole, rest).await? == *digest),
            None => Ok(true),
        }
    }

    /// Digest of the first bytes of a piece of what is staged.
    async fn digest_of_first(
        &self,
        key: &Path,
        staged: &Staged,
        piece: usize,
        mut bytes: usize,
    ) -> Result<String, StoreError> {
        let (parts, plugin) = match (staged, self.plugin()) {
            (Staged::Upload(parts), Some(plugin)) => (parts, plugin),
            (Staged::Inline(all), _) => {
                let from = piece * PART_SIZE;
                return Ok(sha256(all.get(from..from + bytes).unwrap_or_default()));
            }
            (Staged::Upload(_), None) => return Ok(String::new()),
        };
        let Some(part) = parts.parts.get(piece) else { return Ok(String::new()) };
        let failed = |error: object_store::Error| self.failed("read the parts of", key, &error);
        let mut body = plugin.part(key, &parts.upload, &part.id).map_err(failed)?;
        let mut hash = Sha256::new();
        while bytes > 0
            && let Some(chunk) = body.try_next().await.map_err(|fault| failed(fault.into()))?
        {
            let used = chunk.len().min(bytes);
            hash.update(&chunk[..used]);
            bytes -= used;
        }
        Ok(hex(hash.finalize().as_slice()))
    }
}
