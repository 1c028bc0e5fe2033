//! The intent of a refused restore: which objects it keeps out, and for how long.

use super::{Ask, Ledger, Status, room};
use crate::{
    claim::{Entry, ObjectKey, ObjectKind, State, Word},
    footprint::Footprint,
};

/// Maximum number of intents in a ledger; a refused restore beyond it leaves none.
pub(crate) const MAX_INTENTS: usize = 32;

impl Ledger {
    /// Records that a restore was refused: new backups that overlap it are kept out for a while,
    /// and for longer if it came before. One intent per name; a later one replaces the earlier.
    /// Returns whether it was recorded.
    pub fn leave_intent(
        &mut self,
        key: &ObjectKey,
        uid: &str,
        footprint: &Footprint,
        since: &str,
        ask: &Ask,
    ) -> bool {
        let taken = self.claim(key).is_some_and(|claim| {
            claim
                .entries
                .iter()
                .any(|entry| entry.state != State::Intent)
        });
        let all = self
            .claims
            .iter()
            .filter(|claim| claim.key != *key)
            .flat_map(|claim| &claim.entries);
        let intents = all.filter(|entry| entry.state == State::Intent).count();
        let before = self
            .claim(key)
            .and_then(|claim| claim.entries.first())
            .cloned();
        let word = if ask.insists {
            Word::Insisting
        } else if let Some(before) = &before {
            // The same request, decided twice.
            if before.uid == uid {
                before.word
            } else {
                Word::Insisting
            }
        } else {
            Word::Refused
        };
        let entry = Entry {
            requester: room::digest_of(&ask.requester),
            word,
            ..Entry::new(uid, footprint.clone(), State::Intent, since)
        };
        let room = self.has_room(key, &entry, ask).is_ok();
        let may = self.status == Status::Open && key.kind == ObjectKind::Restore;
        if !may || !room || taken || intents >= MAX_INTENTS {
            return false;
        }
        self.remove(key, |_| true);
        self.place(key, entry);
        self.promote();
        true
    }

    /// Turns an expected intent into one that keeps nothing out; claims that waited for it may be
    /// reserved in the same step. Returns whether that was a change.
    pub fn lapse(&mut self, key: &ObjectKey, uid: &str) -> bool {
        let expected = self
            .entry_mut(key, uid)
            .filter(|entry| entry.state == State::Intent && entry.word == Word::Expected);
        let Some(entry) = expected else {
            return false;
        };
        entry.word = Word::Remembered;
        self.promote();
        true
    }

    /// The same without intents that keep nothing out: only the admission of the same restore needs
    /// them.
    #[must_use]
    pub fn without_lapsed(&self) -> Self {
        let claims = self
            .claims
            .iter()
            .filter_map(|claim| {
                claim.only(|entry| entry.state != State::Intent || entry.word != Word::Remembered)
            })
            .collect();
        Self {
            claims,
            ..self.clone()
        }
    }

    /// Marks the refused restores that no longer conflict with anything: they may come now, and are
    /// expected only briefly.
    pub(super) fn expect_the_refused(&mut self) {
        let all = self
            .claims
            .iter()
            .flat_map(|claim| claim.entries.iter().map(move |entry| (claim, entry)));
        let free: Vec<(ObjectKey, String)> = all
            .filter(|(claim, entry)| {
                entry.state == State::Intent
                    && entry.word == Word::Refused
                    && self.conflicts(&claim.key, &entry.footprint).is_empty()
            })
            .map(|(claim, entry)| (claim.key.clone(), entry.uid.clone()))
            .collect();
        for (key, uid) in free {
            if let Some(entry) = self.entry_mut(&key, &uid) {
                entry.word = Word::Expected;
            }
        }
    }
}
