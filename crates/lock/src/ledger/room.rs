//! How much a ledger holds.

use super::{Ledger, MAX_BYTES, MAX_ENTRIES, Refusal};
use crate::{
    claim::{Claim, Entry, ObjectKey},
    footprint::{Footprint, json_bytes},
};

impl Ledger {
    /// Whether one more entry has its place.
    pub(super) fn has_room(&self, key: &ObjectKey, entry: &Entry) -> Result<(), Refusal> {
        let more = entry_bytes(key, entry) + entry.footprint.bytes_at_most();
        let (entries, bytes) = (self.len(), self.bytes_at_most() + more);
        if entries >= MAX_ENTRIES || bytes > MAX_BYTES {
            return Err(Refusal::Full { entries, bytes });
        }
        Ok(())
    }

    /// The size of the JSON, a little too large: cheap enough to be asked at every grant.
    pub(super) fn bytes_at_most(&self) -> usize {
        let entries = || self.claims.iter().flat_map(|claim| &claim.entries);
        let all = self.bytes_with(entries().map(|entry| &entry.footprint));
        // Far from full, it need not be known which footprints are equal.
        if all <= MAX_BYTES / 2 { all } else { self.bytes_with(self.footprints()) }
    }

    fn bytes_with<'a>(&self, footprints: impl IntoIterator<Item = &'a Footprint>) -> usize {
        // Version, status, epoch and bound.
        const FRAME: usize = 128;
        let of = |claim: &Claim| -> usize {
            claim.entries.iter().map(|entry| entry_bytes(&claim.key, entry)).sum()
        };
        let footprints = footprints.into_iter().map(Footprint::bytes_at_most);
        FRAME + self.claims.iter().map(of).sum::<usize>() + footprints.sum::<usize>()
    }

    /// Every footprint once, in order.
    pub(super) fn footprints(&self) -> Vec<&Footprint> {
        let entries = self.claims.iter().flat_map(|claim| &claim.entries);
        let mut footprints: Vec<&Footprint> = entries.map(|entry| &entry.footprint).collect();
        footprints.sort_unstable();
        footprints.dedup();
        footprints
    }
}

/// What an entry adds to the JSON at most, with its claim around it and without its footprint. What may be noted of it later
/// is in it: a ledger has room for that.
fn entry_bytes(key: &ObjectKey, entry: &Entry) -> usize {
    // Brackets, quotes, words and numbers.
    const FRAME: usize = 136;
    let Entry { uid, since, note, revives, .. } = entry;
    let texts = [key.kind.as_str(), &key.namespace, &key.name, uid, since, note, revives];
    FRAME + texts.into_iter().map(json_bytes).sum::<usize>()
}
