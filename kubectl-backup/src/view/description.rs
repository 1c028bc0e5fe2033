//! The document behind `describe`: what a person sees, and what `-o json` prints.

use jiff::Timestamp;
use serde::Serialize;

use super::{
    part::{DeletionView, EventView, LocationView, LockView, Part, RunView},
    stored::Stored,
};
use crate::print::style::Tone;

/// Version of the document. A field is added without a new version; one is taken away or changed only with it.
pub const API_VERSION: &str = "kubectl-backup/v1";

/// One backup or restore: the verdict, its causes, the evidence, what to do next.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Description {
    /// [`API_VERSION`].
    pub api_version: &'static str,
    /// `BackupDescription` or `RestoreDescription`.
    pub kind: &'static str,
    /// Name of the object.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its uid.
    pub uid: String,
    /// The phase, as the server wrote it.
    pub phase: String,
    /// How it stands.
    pub tone: Tone,
    /// How it stands, in one sentence.
    pub verdict: String,
    /// Why, one sentence each.
    pub causes: Vec<String>,
    /// Whether a backup can be restored; nothing for a restore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restorable: Option<Restorable>,
    /// When the object was created.
    pub created: Option<Timestamp>,
    /// When work began.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub completed: Option<Timestamp>,
    /// When a backup may be deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// Errors counted.
    pub errors: i64,
    /// Warnings counted.
    pub warnings: i64,
    /// Items done, of how many.
    pub items: Option<Count>,
    /// Asynchronous operations.
    pub operations: Option<Attempts>,
    /// Hooks.
    pub hooks: Option<Attempts>,
    /// Volume snapshots.
    pub snapshots: Option<Attempts>,
    /// Facts that differ from the defaults, as title and text.
    pub facts: Vec<Fact>,
    /// What happened when, oldest first, as far as it is written down.
    pub timeline: Vec<Moment>,
    /// The run of the same schedule before this one; nothing for a restore.
    pub previous: Part<Option<RunView>>,
    /// What is told in files in the store.
    #[serde(flatten)]
    pub stored: Stored,
    /// Where the backup is stored (that of a restore: where it is read).
    pub location: Part<Option<LocationView>>,
    /// How it stands to the lock.
    pub lock: Part<LockView>,
    /// Requests to delete a backup.
    pub deletions: Part<Vec<DeletionView>>,
    /// Events about it.
    pub events: Part<Vec<EventView>>,
    /// What to type next.
    pub next: Vec<String>,
}

/// Done, of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Done.
    pub done: i64,
    /// Of how many; grows while collecting.
    pub total: i64,
}

/// Started, and how they ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Attempts {
    /// Started.
    pub attempted: i64,
    /// Ended well, where that is counted.
    pub completed: Option<i64>,
    /// Failed, where that is counted.
    pub failed: Option<i64>,
}

/// A title and its text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fact {
    /// "Scope".
    pub title: &'static str,
    /// "namespaces shop, db".
    pub text: String,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moment {
    /// When.
    pub at: Timestamp,
    /// "started".
    pub what: &'static str,
}

/// Whether a backup can be restored.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Restorable {
    /// `yes`, `partly`, `no`, `later`, `unknown`.
    pub answer: &'static str,
    /// More about it, if there is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// How something stands: the sign, the sentence, the causes.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// How it stands.
    pub tone: Tone,
    /// One sentence.
    pub sentence: String,
    /// Why, one sentence each.
    pub causes: Vec<String>,
}

impl Verdict {
    /// A verdict without causes.
    pub fn new(tone: Tone, sentence: impl Into<String>) -> Self {
        Self { tone, sentence: sentence.into(), causes: Vec::new() }
    }

    /// With causes.
    #[must_use]
    pub fn because(mut self, causes: impl IntoIterator<Item = String>) -> Self {
        self.causes.extend(causes.into_iter().filter(|cause| !cause.is_empty()));
        self
    }
}

/// "1 error", "3 errors".
pub fn counted(n: i64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// "2 errors and 17 warnings", "1 warning"; nothing for none.
pub fn troubles(errors: i64, warnings: i64) -> String {
    match (errors, warnings) {
        (..=0, ..=0) => String::new(),
        (_, ..=0) => counted(errors, "error"),
        (..=0, _) => counted(warnings, "warning"),
        _ => format!("{} and {}", counted(errors, "error"), counted(warnings, "warning")),
    }
}
