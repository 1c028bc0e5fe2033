//! Why a pass could not be made, or not to its end.

use backup_runtime::{errors::plain, leader::NotLeader, retry::WriteError};
use backup_store::StoreError;

use crate::location::LocationError;

/// Why a pass was not made, or ended early. It is made again when the next one is due.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// Without knowing the cluster, nothing is compared.
    #[error("the API server could not be asked: {}", plain(.0))]
    Api(#[from] kube::Error),
    #[error(transparent)]
    Location(#[from] LocationError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
    /// The store or the API server stopped answering on the way.
    #[error("it was broken off after {0} failures, the rest is looked at in the next pass: {1}")]
    BrokenOff(usize, String),
    #[error("the location was changed meanwhile; the rest is looked at in the next pass")]
    Changed,
    #[error("the process is asked to end; the rest is looked at by the next one")]
    Ending,
}
