//! Why a step of a controller was not done, where no more can go wrong than that.

use super::{errors::plain, leader::NotLeader, retry::WriteError};

/// It is tried again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request was not answered as it should be.
    #[error("the API server could not be asked: {}", plain(.0))]
    Api(#[from] kube::Error),
    /// Something could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// This replica must not write.
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
}
