//! Release of a claim by force, and the record of it.

use super::{Ledger, MAX_BYTES, Refusal};
use crate::{
    claim::{Entry, ObjectKey, State},
    footprint::{Footprint, json_bytes},
};

/// Maximum length of the note about a release by force (bytes).
const RELEASE_NOTE_BYTES: usize = 200;
/// Upper bound of the JSON around a note in a ledger (bytes).
const RELEASE_NOTE_FRAME: usize = 16;

/// The note as a suffix of a message: who released a claim by force and why.
pub fn by(note: &str) -> String {
    if note.is_empty() {
        String::new()
    } else {
        format!(" by {note}")
    }
}

impl Ledger {
    /// Releases the claim of this uid by force, in any state; `by` says who and why. Starts a new
    /// epoch: tokens of the old one are invalid. Returns whether there was a claim.
    ///
    /// If its object may still work or be stored late, a Released entry stays, so that it is not
    /// claimed again.
    pub fn force_release(&mut self, key: &ObjectKey, uid: &str, by: &str) -> bool {
        let epoch = self.epoch + 1;
        let Some(entry) = self
            .entry_mut(key, uid)
            .filter(|entry| entry.state != State::Released)
        else {
            return false;
        };
        let is_claimed_again = match entry.state {
            State::Active | State::Reserved | State::Waiting | State::Collected => {
                key.kind.is_claimed_as_found()
            }
            State::Settling | State::Intent | State::Released => false,
        };
        // The entry keeps no footprint, so that there is always room for it.
        let nothing = Footprint::namespaces([""; 0]);
        *entry = Entry {
            epoch,
            ..Entry::new(uid, nothing, State::Released, &entry.since)
        };
        self.epoch = epoch;
        if !is_claimed_again {
            return self.release(key, uid);
        }
        self.note_release(key, uid, by);
        self.promote();
        true
    }

    /// Adds the note about who released a claim and why, if there is room for it.
    fn note_release(&mut self, key: &ObjectKey, uid: &str, by: &str) {
        let note = &by[..by.floor_char_boundary(RELEASE_NOTE_BYTES)];
        if self.bytes_at_most() + json_bytes(note) + RELEASE_NOTE_FRAME > MAX_BYTES {
            return;
        }
        if let Some(entry) = self.entry_mut(key, uid) {
            note.clone_into(&mut entry.note);
        }
    }

    pub(super) fn not_released(&self, key: &ObjectKey, uid: &str) -> Result<(), Refusal> {
        match self
            .entry(key, uid)
            .filter(|entry| entry.state == State::Released)
        {
            Some(entry) => Err(Refusal::Released {
                key: key.clone(),
                note: entry.note.clone(),
            }),
            None => Ok(()),
        }
    }
}
