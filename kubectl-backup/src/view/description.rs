//! The document of `describe`: it is shown as text, and printed by `-o json`.

use backup_core::{
    api::common::HookStatus,
    drill::DrillResult,
    left_items::LeftItems,
    restorability::{Answer, Place},
    text::counted,
    verification::Verification,
    volume_data::MissingData,
};
use jiff::Timestamp;
use serde::Serialize;

use super::{
    DeletionView, EventView, FileContents, LocationSummary, LockView, RunView,
    copies::CopyView,
    transfer::{TransferView, are_none},
};
use crate::{fetched::FetchResult, print::Tone};

/// A backup or restore: the verdict, its causes, the evidence, and the next commands.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Description {
    /// Kind of the document.
    #[serde(skip)]
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    /// The phase, as the server wrote it.
    pub(crate) phase: String,
    pub(crate) tone: Tone,
    pub(crate) verdict: String,
    pub(crate) causes: Vec<String>,
    /// Whether a backup can be restored; null for a restore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) restorable: Option<Restorable>,
    /// The last drill of a backup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) drilled: Option<DrillResult>,
    /// Whether a backup is known to be the last good one of what it protects: only users delete it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) last_good: bool,
    pub(crate) created: Option<Timestamp>,
    pub(crate) started: Option<Timestamp>,
    pub(crate) completed: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires: Option<Timestamp>,
    pub(crate) errors: i64,
    pub(crate) warnings: i64,
    pub(crate) items: Option<Count>,
    pub(crate) operations: Option<Attempts>,
    pub(crate) hooks: Option<Attempts>,
    pub(crate) snapshots: Option<Attempts>,
    /// Volumes whose data is not in the backup, or was not restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) missing_data: Option<MissingData>,
    /// Volumes of an imported backup whose data only another server can read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data_elsewhere: Option<MissingData>,
    /// Items that a restore left unchanged, although they differ from the backup, and those that it
    /// left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) left_items: Option<LeftItems>,
    /// What is known of damage of the repositories that have data of a backup, as sentences; its
    /// facts say it.
    #[serde(skip)]
    pub(crate) damage: Vec<String>,
    /// Copies of a backup in other locations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) copies: Vec<CopyView>,
    /// Facts that differ from the defaults, as title and text.
    pub(crate) facts: Vec<Fact>,
    /// Times of events, oldest first, as far as they are recorded.
    pub(crate) timeline: Vec<Moment>,
    /// The previous run of the same schedule; null for a restore.
    pub(crate) previous: FetchResult<Option<RunView>>,
    #[serde(flatten)]
    pub(crate) stored: FileContents,
    /// Transfers of volume data, the ones that need attention first.
    #[serde(skip_serializing_if = "are_none")]
    pub(crate) transfers: FetchResult<Vec<TransferView>>,
    /// The location that stores the backup; for a restore, the location of its backup.
    pub(crate) location: FetchResult<Option<LocationSummary>>,
    #[serde(skip)]
    pub(crate) place: Place,
    pub(crate) lock: FetchResult<LockView>,
    pub(crate) deletions: FetchResult<Vec<DeletionView>>,
    pub(crate) events: FetchResult<Vec<EventView>>,
    pub(crate) next: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Count {
    pub(crate) done: i64,
    /// Total number; grows while items are collected.
    pub(crate) total: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Attempts {
    pub(crate) attempted: i64,
    /// Number of successful ones, if it is counted.
    pub(crate) completed: Option<i64>,
    pub(crate) failed: Option<i64>,
}

impl Attempts {
    pub(crate) fn ended(&self) -> i64 {
        self.completed.unwrap_or_default() + self.failed.unwrap_or_default()
    }
}

impl From<&HookStatus> for Attempts {
    fn from(hooks: &HookStatus) -> Self {
        Self {
            attempted: hooks.hooks_attempted,
            completed: None,
            failed: Some(hooks.hooks_failed),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Fact {
    pub(crate) title: &'static str,
    pub(crate) text: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Moment {
    pub(crate) at: Timestamp,
    pub(crate) what: &'static str,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Restorable {
    pub(crate) answer: Answer,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) why: String,
    /// The last verification of the stored files; null if there was none.
    pub(crate) verified: Option<Verification>,
}

/// An assessment: the sign, the sentence, the causes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) tone: Tone,
    pub(crate) sentence: String,
    pub(crate) causes: Vec<String>,
}

impl Verdict {
    pub(crate) fn new(tone: Tone, sentence: impl Into<String>) -> Self {
        Self {
            tone,
            sentence: sentence.into(),
            causes: Vec::new(),
        }
    }

    #[must_use]
    pub(crate) fn because(mut self, causes: impl IntoIterator<Item = String>) -> Self {
        self.causes
            .extend(causes.into_iter().filter(|cause| !cause.is_empty()));
        self
    }
}

/// "2 errors and 17 warnings", "1 warning"; empty if there are none.
pub(crate) fn troubles(errors: i64, warnings: i64) -> String {
    match (errors, warnings) {
        (..=0, ..=0) => String::new(),
        (_, ..=0) => counted(errors, "error"),
        (..=0, _) => counted(warnings, "warning"),
        _ => format!(
            "{} and {}",
            counted(errors, "error"),
            counted(warnings, "warning")
        ),
    }
}
