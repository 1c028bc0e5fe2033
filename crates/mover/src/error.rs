//! Errors of the mover, with messages that tell the user what to do.

use std::{fmt::Display, path::Path, time::Duration};

use backup_core::{data_movement::failure_reason, text::shortened};
use backup_store::{AnswerClass, StoreError};

/// Maximum length of the detail in a message (characters).
const MAX_DETAIL: usize = 1000;

/// The reason of damage that is found when data is read.
pub(crate) const CHANGED_CONTENTS: &str =
    "it cannot be decrypted or decompressed, so its contents were changed";

/// Begin of the keys of packs, below the repository.
const PACKS: &str = "data/";
/// Begin of the keys of index files, below the repository.
const INDEX: &str = "index/";
/// Begin of the keys of snapshots, below the repository.
const SNAPSHOTS: &str = "snapshots/";
/// What everything in a repository is decrypted with.
const NEEDED_BY_ALL: [&str; 2] = ["config", "keys/"];

/// The request for the contents of an object, as messages call it.
pub(crate) const READ: &str = "read";

/// Why an operation ended without a result.
///
/// The variants hold text only, so that an error can be kept and reported twice; none of them ever
/// holds a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoverError {
    #[error("cancelled")]
    Cancelled,
    /// A flag or a variable is wrong.
    #[error("{what}: {detail}")]
    Config { what: String, detail: String },
    /// The object store refused a request, or did not answer.
    #[error("{detail}")]
    Store { detail: String },
    #[error("there is no repository at {url}: run `backup-mover init`, or correct the prefix")]
    RepositoryMissing { url: String },
    #[error("there is a repository at {url} already; it was not changed")]
    RepositoryExists { url: String },
    #[error(
        "there are objects of a repository at {url}, but its config is gone: bring that back, or remove the folder if its data is given up"
    )]
    ConfigMissing { url: String },
    #[error(
        "the password does not open the repository at {url}: use the current one, which is the one of the last rotation, or without a \
         rotation the one that the repository was made with"
    )]
    WrongPassword { url: String },
    #[error(
        "the repository at {url} has a format that this version does not know: use a newer version ({detail})"
    )]
    Unsupported { url: String, detail: String },
    #[error("there is no snapshot {snapshot} in the repository at {url}")]
    SnapshotMissing { url: String, snapshot: String },
    /// The folder or device that is saved cannot be used at all.
    #[error("{path} cannot be saved: {detail}")]
    Source { path: String, detail: String },
    /// The folder or device that is restored into cannot be used.
    #[error("{path} cannot be restored into: {detail}")]
    Target { path: String, detail: String },
    /// Contents of the repository are missing or were changed.
    #[error("the repository is damaged: {object}: {reason}. {}", damage_advice(.object))]
    Damaged {
        /// Key below the repository, such as that of a pack, or what else is damaged.
        object: String,
        /// Without a full stop at its end.
        reason: String,
    },
    /// Any other error of the repository's library.
    #[error("the repository cannot be used: {detail}")]
    Repository { detail: String },
    #[error("a bug ended the work: {detail}")]
    Panicked { detail: String },
}

impl MoverError {
    /// A short name out of a bounded set, for metrics and for decisions.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Config { .. } => "config",
            Self::Store { .. } => "store",
            Self::RepositoryMissing { .. } => failure_reason::REPOSITORY_MISSING,
            Self::RepositoryExists { .. } => failure_reason::REPOSITORY_EXISTS,
            Self::ConfigMissing { .. } => "config_missing",
            Self::WrongPassword { .. } => failure_reason::WRONG_PASSWORD,
            Self::Unsupported { .. } => failure_reason::UNSUPPORTED,
            Self::SnapshotMissing { .. } => "snapshot_missing",
            Self::Source { .. } => "source",
            Self::Target { .. } => "target",
            Self::Damaged { .. } => failure_reason::DAMAGED,
            Self::Repository { .. } => "repository",
            Self::Panicked { .. } => "panic",
        }
    }

    pub(crate) fn config(what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Config {
            what: what.into(),
            detail: detail.into(),
        }
    }

    /// The last error of a request to the store, which was tried for this time. `key` is that of an
    /// object below the repository at `url`.
    pub(crate) fn store(
        action: &str,
        url: &str,
        key: &str,
        source: &object_store::Error,
        tried: Duration,
    ) -> Self {
        let class = AnswerClass::of(source);
        let is_gone = class == AnswerClass::MissingKey && action == READ;
        if is_gone && key.starts_with(PACKS) {
            return Self::damaged(key, "it is missing");
        }
        let error = StoreError::from_store(action, &format!("{url}/{key}"), source);
        let error = shortened(&error.to_string(), MAX_DETAIL);
        let detail = match class {
            AnswerClass::Transient => format!(
                "{error}; it was tried again for {} s: make sure that pods in the namespace of the \
                 installation reach the store, and that it works",
                tried.as_secs()
            ),
            AnswerClass::MissingKey => format!(
                "{error}; a maintenance may have replaced it at this moment: try again. If that fails, \
                 too, the repository is damaged"
            ),
            _ => error,
        };
        Self::Store { detail }
    }

    /// `object`: its key below the repository, or what else is damaged.
    pub(crate) fn damaged(object: &str, reason: &str) -> Self {
        // Sentences of rustic_core have a full stop.
        let reason = reason.trim_end().trim_end_matches('.');
        Self::Damaged {
            object: object.to_owned(),
            reason: shortened(reason, MAX_DETAIL),
        }
    }

    pub(crate) fn source(path: &Path, detail: &dyn Display) -> Self {
        Self::Source {
            path: path.display().to_string(),
            detail: detail.to_string(),
        }
    }

    pub(crate) fn target(path: &Path, detail: &dyn Display) -> Self {
        Self::Target {
            path: path.display().to_string(),
            detail: detail.to_string(),
        }
    }

    pub(crate) fn repository(detail: &str) -> Self {
        Self::Repository {
            detail: shortened(detail, MAX_DETAIL),
        }
    }

    pub(crate) fn panicked(detail: &str) -> Self {
        Self::Panicked {
            detail: shortened(detail, MAX_DETAIL),
        }
    }
}

/// What damage means for volumes, and what to do.
fn damage_advice(object: &str) -> &'static str {
    if object.starts_with(INDEX) {
        "Nothing can be saved or restored until restic has made the index again: docs/operate/stores.md#a-damaged-index"
    } else if object.starts_with(SNAPSHOTS) {
        "Only the volume of this snapshot is lost (`kubectl backup volumes` shows the snapshot of each). \
         Checks and maintenance go on once the object is whole again, or, if there is no earlier version or copy of it, deleted"
    } else if NEEDED_BY_ALL.contains(&object) {
        "Nothing can be saved or restored until it is back: from an earlier version or a copy of the object"
    } else {
        "Volumes that do not need this data can be restored; the next check of the repository names those that do \
         (`kubectl backup repositories`)"
    }
}
