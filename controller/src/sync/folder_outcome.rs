//! The outcome of a pass for one folder of the bucket that has no Backup in the cluster.

use backup_core::sync::NoteKind;

#[derive(Debug)]
pub(super) enum FolderOutcome {
    /// With a sentence if a part cannot be restored here.
    Created(Option<String>),
    Skipped(Skip),
    /// Nothing to report: the Backup was created in another way, or the folder has left the bucket.
    Settled,
    /// It held no backup, and was removed from the bucket; the reason as a sentence.
    Pruned(String),
    /// It could not be read or created now; the reason as a sentence.
    Failed(String),
}

/// Why a folder is not imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Skip {
    pub(super) what: NoteKind,
    /// As a sentence.
    pub(super) reason: String,
    /// Whether the reason may disappear at any time: then the folder is read in every pass.
    pub(super) transient: bool,
}

impl Skip {
    pub(super) fn new(what: NoteKind, reason: impl Into<String>) -> Self {
        Self {
            what,
            reason: reason.into(),
            transient: false,
        }
    }

    pub(super) fn transient(what: NoteKind, reason: impl Into<String>) -> Self {
        Self {
            transient: true,
            ..Self::new(what, reason)
        }
    }
}
