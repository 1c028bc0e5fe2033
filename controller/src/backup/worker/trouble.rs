//! What comes after one round of a worker.

use crate::job::cancellation::StopReason;
use backup_core::api::Backup;
use backup_runtime::{
    errors::{is_transient, plain},
    retry::WriteError,
};

/// What comes after a round.
#[derive(Debug)]
pub(super) enum Next {
    /// Look again; this is what the Backup is now, if that is known.
    Again(Option<Box<Backup>>),
    /// Nothing is left to do.
    Done,
}

/// Why a round did not get through.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It must not go on.
    Stopped(StopReason),
    /// What was read is not true any more.
    Changed,
    /// It can't go on now.
    Blocked {
        /// Why, for people.
        reason: String,
        /// Whether it may pass without anybody doing something.
        passing: bool,
    },
}

impl From<StopReason> for Trouble {
    fn from(halt: StopReason) -> Self {
        Self::Stopped(halt)
    }
}

impl From<kube::Error> for Trouble {
    fn from(error: kube::Error) -> Self {
        Self::Blocked {
            reason: format!("the API server can't be read: {}", plain(&error)),
            passing: is_transient(&error),
        }
    }
}

impl From<WriteError> for Trouble {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::NotLeader(error) => Self::Stopped(error.into()),
            WriteError::Refused { .. } => Self::Blocked { reason: error.to_string(), passing: false },
            WriteError::Exhausted { .. } => Self::Blocked { reason: error.to_string(), passing: true },
        }
    }
}
