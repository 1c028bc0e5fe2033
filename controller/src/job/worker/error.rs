use backup_lock::LedgerError;
use backup_runtime::retry::WriteError;
use backup_store::StoreError;

use crate::{discovery::ReadError, job::cancellation::StopReason, location::LocationError};

/// Why a step did not get through.
#[derive(Debug)]
pub(crate) enum WorkerError {
    Stopped(StopReason),
    /// What was read is not true any more.
    Conflict,
    /// It waits in the ledger for its turn.
    Waiting,
    Blocked {
        reason: String,
        /// Whether it may pass without anybody doing something.
        retryable: bool,
    },
}

impl From<StopReason> for WorkerError {
    fn from(reason: StopReason) -> Self {
        Self::Stopped(reason)
    }
}

impl From<kube::Error> for WorkerError {
    fn from(error: kube::Error) -> Self {
        ReadError::from(error).into()
    }
}

/// Errors that say themselves whether they may pass.
macro_rules! blocked_by {
    ($($error:ty),*) => {
        $(impl From<$error> for WorkerError {
            fn from(error: $error) -> Self {
                Self::Blocked { reason: error.to_string(), retryable: error.is_transient() }
            }
        })*
    };
}

blocked_by!(StoreError, LocationError, LedgerError, ReadError);

impl From<WriteError> for WorkerError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::NotLeader(error) => Self::Stopped(error.into()),
            WriteError::Refused { .. } => Self::Blocked { reason: error.to_string(), retryable: false },
            WriteError::Exhausted { .. } => Self::Blocked { reason: error.to_string(), retryable: true },
        }
    }
}
