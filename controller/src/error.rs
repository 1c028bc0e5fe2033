//! Why a controller could not reconcile an object.

use backup_client::errors::plain;
use backup_lock::ActivateError;
use backup_runtime::{leader::NotLeader, retry::WriteError};
use backup_store::StoreError;

use crate::{discovery::ReadError, location::LocationError};

/// Why an object was not reconciled. The queue retries it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    #[error("the API server could not be asked: {}", plain(.0))]
    Api(#[from] kube::Error),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
    #[error(transparent)]
    Claim(#[from] ActivateError),
    #[error(transparent)]
    Location(#[from] LocationError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The object has changed since the reconcile began. A sentence.
    #[error("{0}")]
    Changed(String),
    /// Not possible now, or not completely. A sentence.
    #[error("{0}")]
    Postponed(String),
    /// Not possible until something is changed. A sentence.
    #[error("{0}")]
    Impossible(String),
}

impl ReconcileError {
    /// Category for logs.
    pub(crate) fn category(&self) -> &'static str {
        match self {
            Self::Api(_) | Self::Read(_) => "api",
            Self::Write(error) => error.category(),
            Self::NotLeader(_) => "not_leader",
            Self::Claim(error) => error.category(),
            Self::Location(error) => error.category(),
            Self::Store(error) => error.category(),
            Self::Changed(_) => "changed",
            Self::Postponed(_) => "postponed",
            Self::Impossible(_) => "impossible",
        }
    }

    /// Whether a retry may succeed without a change.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Location(error) => error.is_transient(),
            Self::Store(error) => error.is_transient(),
            Self::Impossible(_) => false,
            _ => true,
        }
    }
}
