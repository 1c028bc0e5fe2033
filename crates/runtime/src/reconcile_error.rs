//! Why a reconcile failed, where no more can go wrong than that.

use crate::{errors::plain, leader::NotLeader, retry::WriteError};

/// Why an object was not reconciled. It is tried again.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// A request was not answered as it should be.
    #[error("the API server could not be asked: {}", plain(.0))]
    Api(#[from] kube::Error),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
}
