//! The ledger as one compact JSON text with a format version. Equal footprints are written once.

use std::{collections::HashSet, fmt::Display};

use serde::{Deserialize, Serialize};

use super::{Ledger, Status};
use crate::{
    claim::{Claim, Entry, ObjectKey, ObjectKind, State, Word},
    conflict::Rules,
    footprint::Footprint,
};

/// The format of ledgers, the only one that there has been.
pub const FORMAT_VERSION: u32 = 1;

/// Maximum epoch: a grant each microsecond takes 140,000 years to get there. A larger one was
/// edited, and may have no successor.
pub(crate) const MAX_EPOCH: u64 = 1 << 62;

#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// Written by a newer version. Must not be overwritten.
    #[error(
        "the ledger has format {found}, this version knows {FORMAT_VERSION}: update this program"
    )]
    Newer { found: u32 },
    /// Damaged or edited by hand. It is rebuilt.
    #[error("the ledger can't be read: {0}")]
    Unreadable(String),
}

impl FormatError {
    /// What happens to such a ledger without a user's help.
    pub(crate) fn outlook(&self) -> &'static str {
        match self {
            Self::Newer { .. } => "a newer version wrote it, and it stays as it is",
            Self::Unreadable(_) => {
                "nothing is granted until it is rebuilt, which takes about two minutes"
            }
        }
    }
}

#[derive(Deserialize)]
struct Version {
    v: u32,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    v: u32,
    #[serde(default, skip_serializing_if = "is_open")]
    status: Status,
    epoch: u64,
    bound: u64,
    footprints: Vec<Footprint>,
    claims: Vec<WireClaim>,
}

/// Kind, namespace and name, then an entry for each uid. A list and no object: the API server
/// reads, checks and stores this text at every creation, and field names were half of it.
#[derive(Serialize, Deserialize)]
struct WireClaim(ObjectKind, String, String, Vec<WireEntry>);

impl WireClaim {
    /// `footprints` are the sorted footprints of the ledger.
    fn of(claim: &Claim, footprints: &[&Footprint]) -> Self {
        let Claim { key, entries } = claim;
        let entries = entries
            .iter()
            .map(|entry| WireEntry::of(entry, footprints))
            .collect();
        Self(key.kind, key.namespace.clone(), key.name.clone(), entries)
    }
}

/// Uid, index into the footprints, state, epoch, since, and rarely used fields.
#[derive(Serialize, Deserialize)]
struct WireEntry(
    String,
    usize,
    State,
    u64,
    String,
    #[serde(default, skip_serializing_if = "Special::is_none")] Special,
);

impl WireEntry {
    /// `footprints` are the sorted footprints of the ledger.
    fn of(entry: &Entry, footprints: &[&Footprint]) -> Self {
        let footprint = footprints
            .binary_search(&&entry.footprint)
            .unwrap_or_default();
        let special = Special {
            suspect: entry.suspect,
            forced: entry.forced,
            note: entry.note.clone(),
            renewals: entry.renewals,
            revives: entry.revives.clone(),
            requester: entry.requester.clone(),
            word: entry.word,
        };
        Self(
            entry.uid.clone(),
            footprint,
            entry.state,
            entry.epoch,
            entry.since.clone(),
            special,
        )
    }
}

/// A new field needs no new format: a version that does not know it drops it when it writes.
#[derive(Default, PartialEq, Serialize, Deserialize)]
struct Special {
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    suspect: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    forced: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    note: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    renewals: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    revives: String,
    #[serde(rename = "by", default, skip_serializing_if = "String::is_empty")]
    requester: String,
    #[serde(default, skip_serializing_if = "is_first_word")]
    word: Word,
}

impl Special {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde calls it so
fn is_open(status: &Status) -> bool {
    *status == Status::Open
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde calls it so
fn is_first_word(word: &Word) -> bool {
    *word == Word::default()
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde calls it so
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Ledger {
    /// The compact text of this ledger.
    pub(crate) fn to_json(&self) -> String {
        let footprints = self.footprints();
        let claims = self
            .claims
            .iter()
            .map(|claim| WireClaim::of(claim, &footprints))
            .collect();
        let wire = Wire {
            v: FORMAT_VERSION,
            status: self.status,
            epoch: self.epoch,
            bound: self.bound,
            footprints: footprints.into_iter().cloned().collect(),
            claims,
        };
        // Strings, numbers and lists of them: serialization cannot fail.
        serde_json::to_string(&wire).unwrap_or_default()
    }

    /// Reads a ledger written by `Ledger::to_json`.
    pub fn from_json(text: &str) -> Result<Self, FormatError> {
        let Version { v: found } = serde_json::from_str(text).map_err(|e| unreadable(&e))?;
        if found > FORMAT_VERSION {
            return Err(FormatError::Newer { found });
        }
        if found < FORMAT_VERSION {
            return Err(unreadable(&format!(
                "it has format {found}, this version reads {FORMAT_VERSION}"
            )));
        }
        let wire: Wire = serde_json::from_str(text).map_err(|e| unreadable(&e))?;
        let entries = wire
            .claims
            .iter()
            .flat_map(|claim| claim.3.iter().map(|entry| entry.3));
        let highest = entries
            .chain([wire.epoch, wire.bound])
            .max()
            .unwrap_or_default();
        if highest > MAX_EPOCH {
            return Err(unreadable(&format!(
                "it has epoch {highest}, which no ledger reaches"
            )));
        }
        let mut keys = HashSet::with_capacity(wire.claims.len());
        let mut claims = Vec::with_capacity(wire.claims.len());
        for WireClaim(kind, namespace, name, stored) in wire.claims {
            let key = ObjectKey::new(kind, &namespace, &name);
            if !keys.insert(key.clone()) {
                return Err(unreadable(&format!("{key} is in it twice")));
            }
            let mut entries = Vec::with_capacity(stored.len());
            for WireEntry(uid, index, state, epoch, since, special) in stored {
                let footprint = wire.footprints.get(index).cloned().ok_or_else(|| {
                    let there = wire.footprints.len();
                    unreadable(&format!(
                        "{key} refers to footprint {index}, there are {there}"
                    ))
                })?;
                let Special {
                    suspect,
                    forced,
                    note,
                    renewals,
                    revives,
                    requester,
                    word,
                } = special;
                entries.push(Entry {
                    uid,
                    footprint,
                    state,
                    epoch,
                    since,
                    suspect,
                    forced,
                    note,
                    renewals,
                    revives,
                    requester,
                    word,
                });
            }
            if !entries.is_empty() {
                claims.push(Claim { key, entries });
            }
        }
        Ok(Self {
            status: wire.status,
            epoch: wire.epoch,
            bound: wire.bound,
            claims,
            rules: Rules::default(),
        })
    }
}

fn unreadable(reason: &impl Display) -> FormatError {
    FormatError::Unreadable(reason.to_string())
}
