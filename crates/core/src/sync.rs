//! The result of comparing a bucket with the cluster, and a user's request for a comparison. Both
//! are annotations of the BackupStorageLocation: they have its read and write permissions, and are
//! deleted with it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{api::kind::string_enum, text::shortened};

string_enum! {
    /// What a note is about. docs/operate/sync.md explains those that keep a backup out.
    NoteKind {
        /// The name is used by another location.
        Conflict = "conflict",
        /// A copy, whose original is in another location.
        Copy = "copy",
        /// The copy of a backup of another location is gone; it is made again.
        CopyGone = "copy_gone",
        /// Files are being deleted, or a deletion is pending.
        Deleting = "deleting",
        /// The store or the API server did not answer.
        Failed = "failed",
        FailedValidation = "failed_validation",
        /// The backup was imported, and a file of it is missing.
        Incomplete = "incomplete",
        InvalidName = "invalid_name",
        /// A backup that is gone from the bucket could not be removed from the cluster.
        Kept = "kept",
        NewerFormat = "newer_format",
        /// Objects of an imported backup are not imported yet.
        Pending = "pending",
        /// A folder without a backup was removed from the bucket.
        Pruned = "pruned",
        /// The API server does not accept the backup.
        Refused = "refused",
        /// More backups are gone from the bucket than are removed without a user's consent.
        RemovalRefused = "removal_refused",
        Removed = "removed",
        ScheduleUnknown = "schedule_unknown",
        /// Nothing writes to a folder without a backup.
        Stray = "stray",
        Unfinished = "unfinished",
        UnknownPhase = "unknown_phase",
        Unreadable = "unreadable",
    }
}

impl Default for NoteKind {
    fn default() -> Self {
        Self::Unknown(String::new())
    }
}

pub(crate) const MAX_NOTES: usize = 20;
/// Maximum length of a reason in a note (characters).
pub(crate) const MAX_REASON_CHARS: usize = 300;

/// Result of a pass over one location.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Summary {
    pub started: Timestamp,
    /// Duration of the pass (milliseconds).
    pub millis: u64,
    /// The request that it answers, if a user requested it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// Number of folders under `backups/`.
    pub found: u64,
    /// Number of backups that were created in the cluster.
    pub created: u64,
    /// Number of backups that were removed from the cluster because they are gone from the bucket.
    pub removed: u64,
    /// Number of backups whose removal was refused because too many were gone at once.
    pub refused: u64,
    /// Number of folders without a backup that were removed from the bucket.
    pub pruned: u64,
    /// Number of folders for which no Backup was created, by reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub skipped: BTreeMap<NoteKind, u64>,
    /// Why the pass was not completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Problems by name, at most `MAX_NOTES`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
    pub more: u64,
}

/// A problem with one backup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Note {
    /// Name of the backup, or of the folder.
    pub name: String,
    pub what: NoteKind,
    pub reason: String,
}

impl Summary {
    /// Adds a note, if there is room.
    pub fn note(&mut self, name: &str, what: NoteKind, reason: &str) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(Note {
                name: shortened(name, MAX_REASON_CHARS),
                what,
                reason: shortened(reason, MAX_REASON_CHARS),
            });
        } else {
            self.more += 1;
        }
    }

    /// Adds a note about the whole pass, before notes about single backups.
    pub fn note_first(&mut self, what: NoteKind, reason: &str) {
        self.notes.insert(
            0,
            Note {
                name: String::new(),
                what,
                reason: shortened(reason, MAX_REASON_CHARS),
            },
        );
        if self.notes.len() > MAX_NOTES {
            self.notes.truncate(MAX_NOTES);
            self.more += 1;
        }
    }

    /// Notes that no Backup was created for a folder.
    pub fn skip(&mut self, name: &str, what: NoteKind, reason: &str) {
        *self.skipped.entry(what.clone()).or_default() += 1;
        self.note(name, what, reason);
    }

    pub fn skips(&self) -> u64 {
        self.skipped.values().sum()
    }

    pub fn skipped_as(&self, what: &NoteKind) -> u64 {
        self.skipped.get(what).copied().unwrap_or_default()
    }

    /// The value of the annotation: its size is bounded, whatever is in the bucket.
    pub fn annotation(&self) -> String {
        let mut bounded = self.clone();
        bounded.error = bounded
            .error
            .as_deref()
            .map(|error| shortened(error, MAX_REASON_CHARS));
        serde_json::to_string(&bounded).unwrap_or_default()
    }
}

/// A user's request for a pass now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Request {
    /// Returned in [`Summary::request`].
    pub id: String,
    /// Maximum number of backups to remove in spite of the limit: the number that the user was
    /// shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_bounded_whatever_lies_in_the_bucket() {
        let mut summary = Summary {
            error: Some("e".repeat(100_000)),
            ..Summary::default()
        };
        for _ in 0..1000 {
            summary.skip(
                &"ä".repeat(1000),
                NoteKind::Unreadable,
                &"\"".repeat(10_000),
            );
        }
        assert_eq!(
            (summary.skips(), summary.notes.len(), summary.more),
            (1000, MAX_NOTES, 1000 - MAX_NOTES as u64)
        );
        summary.note_first(NoteKind::RemovalRefused, "all");
        assert_eq!(
            (&summary.notes[0].what, summary.notes.len()),
            (&NoteKind::RemovalRefused, MAX_NOTES)
        );
        let text = summary.annotation();
        assert!(text.len() < 40 * 1024, "{}", text.len());
        let back: Summary = serde_json::from_str(&text).unwrap();
        assert_eq!(back.skips(), 1000);
    }

    #[test]
    fn what_an_older_or_newer_version_has_written_is_still_read() {
        let back: Summary = serde_json::from_str(r#"{"found":3,"later":{}}"#).unwrap();
        assert_eq!((back.found, back.created), (3, 0));
        let request: Request = serde_json::from_str(r#"{"id":"x"}"#).unwrap();
        assert_eq!(request.remove, None);
    }
}
