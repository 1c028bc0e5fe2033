//! A claim that a person takes by force, and what is remembered of it.

use super::{Ledger, MAX_BYTES, Refusal};
use crate::{
    claim::{Entry, ObjectKey, State},
    footprint::{Footprint, json_bytes},
};

/// Bytes of the note about a release by force.
const RELEASE_NOTE_BYTES: usize = 200;
/// What stands around a note in the text of a ledger, at most.
const RELEASE_NOTE_FRAME: usize = 16;

/// Who released a claim by force and why, to follow that it was.
pub fn by(note: &str) -> String {
    if note.is_empty() { String::new() } else { format!(" by {note}") }
}

impl Ledger {
    /// Takes the claim of this uid away whatever its state, because a person says so; `by` says who and why. A new epoch:
    /// tokens of the old one are worth nothing. Whether there was one to take.
    ///
    /// Where the object may work or come still, an entry remembers that it was released, so that it is not claimed again.
    pub fn force_release(&mut self, key: &ObjectKey, uid: &str, by: &str) -> bool {
        let epoch = self.epoch + 1;
        let Some(entry) = self.entry_mut(key, uid).filter(|entry| entry.state != State::Released) else {
            return false;
        };
        let is_claimed_again = match entry.state {
            State::Active | State::Reserved | State::Waiting | State::Collected => {
                key.kind.is_claimed_as_found()
            }
            State::Settling | State::Intent | State::Released => false,
        };
        // It keeps its name only, so that there is always room for it.
        let nothing = Footprint::namespaces([""; 0]);
        *entry = Entry { epoch, ..Entry::new(uid, nothing, State::Released, &entry.since) };
        self.epoch = epoch;
        if !is_claimed_again {
            return self.release(key, uid);
        }
        self.note_release(key, uid, by);
        self.promote();
        true
    }

    /// Notes who released a claim, and why, as far as there is room for it.
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
        match self.entry(key, uid).filter(|entry| entry.state == State::Released) {
            Some(entry) => Err(Refusal::Released { key: key.clone(), note: entry.note.clone() }),
            None => Ok(()),
        }
    }
}
