use backup_lock::LedgerError;
use backup_runtime::retry::WriteError;
use backup_store::StoreError;

use crate::{discovery::ReadError, job::cancellation::StopReason, location::LocationError};

/// Why a step failed.
#[derive(Debug)]
pub(crate) enum WorkerError {
    Stopped(StopReason),
    /// What was read has changed since.
    Conflict,
    /// The object waits in the ledger for its turn.
    Waiting,
    Blocked {
        reason: String,
        /// Whether the cause may pass without user action.
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

/// Errors that know whether they may pass.
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
            WriteError::Refused { .. } => Self::Blocked {
                reason: error.to_string(),
                retryable: false,
            },
            WriteError::Exhausted { .. } => Self::Blocked {
                reason: error.to_string(),
                retryable: true,
            },
        }
    }
}
