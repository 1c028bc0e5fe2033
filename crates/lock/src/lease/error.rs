//! Errors of reading and writing ledgers.

use std::time::Duration;

use backup_client::errors::plain;

use crate::{
    ledger::{FormatError, MAX_BYTES},
    observe::ObserveError,
};

/// Why a ledger could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Another writer changed it since it was read. Read and decide again.
    #[error("the ledger {lease} was changed by another writer")]
    Changed { lease: String },
    #[error("the API server refused to {what}: {}; check that the RBAC from deploy/ is installed", plain(.source))]
    Denied {
        what: String,
        source: Box<kube::Error>,
    },
    /// The API server could not be reached, or failed.
    #[error("could not {what}: {}", plain(.source))]
    Unreachable {
        what: String,
        source: Box<kube::Error>,
    },
    /// No answer within the timeout. The request may have been carried out.
    #[error("could not {what}: no answer from the API server in time")]
    Timeout { what: String },
    /// The objects of the claims could not be read.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// The ledger exists, but this version cannot work with it. Nothing was written.
    #[error("{source} (Lease {lease}; {})", source.outlook())]
    Format { lease: String, source: FormatError },
    /// The ledger was lost and is being rebuilt. Nothing is granted until late creations have
    /// arrived or cannot.
    #[error(
        "the ledger {lease} was lost or damaged and is being rebuilt; nothing is granted until that is done, which takes \
         as long as a late creation may ({} s)", grace.as_secs()
    )]
    Rebuilding {
        lease: String,
        /// Maximum duration of the rebuild, from when the loss was found.
        grace: Duration,
    },
    /// The ledger is being deleted. Nothing was written.
    #[error("the ledger {lease} is being deleted{}; nothing is granted until it is gone", held_by(.finalizers))]
    BeingDeleted {
        lease: String,
        /// Finalizers that keep it, all set by other programs: we set none.
        finalizers: Vec<String>,
    },
    /// The ledger is larger than a Lease may be. Nothing was written.
    #[error(
        "the ledger {lease} would have {bytes} bytes, more than the {MAX_BYTES} that it may have"
    )]
    TooLarge { lease: String, bytes: usize },
}

impl LedgerError {
    pub fn category(&self) -> &'static str {
        match self {
            Self::Changed { .. } => "changed",
            Self::Denied { .. } => "denied",
            Self::Unreachable { .. } => "unreachable",
            Self::Timeout { .. } => "timeout",
            Self::Observe(_) => "observe",
            Self::Format {
                source: FormatError::Newer { .. },
                ..
            } => "newer",
            Self::Format { .. } => "unreadable",
            Self::Rebuilding { .. } => "rebuilding",
            Self::BeingDeleted { .. } => "being_deleted",
            Self::TooLarge { .. } => "too_large",
        }
    }

    /// Whether a retry may succeed within about a second.
    pub fn passes_soon(&self) -> bool {
        matches!(
            self,
            Self::Changed { .. }
                | Self::Unreachable { .. }
                | Self::Timeout { .. }
                | Self::Observe(_)
        )
    }

    /// Whether a retry will succeed at some time without a user's help.
    pub fn is_transient(&self) -> bool {
        let rebuilt = matches!(
            self,
            Self::Rebuilding { .. }
                | Self::BeingDeleted { .. }
                | Self::Format {
                    source: FormatError::Unreadable(_),
                    ..
                }
        );
        self.passes_soon() || rebuilt
    }
}

fn held_by(finalizers: &[String]) -> String {
    if finalizers.is_empty() {
        return String::new();
    }
    format!(
        " and kept by the finalizer {} of another program",
        finalizers.join(", ")
    )
}

#[derive(Debug, thiserror::Error)]
pub enum UpdateError<E> {
    /// The change refused, on a fresh ledger. Nothing was written.
    #[error(transparent)]
    Refused(E),
    /// The ledger could not be read or written.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}
