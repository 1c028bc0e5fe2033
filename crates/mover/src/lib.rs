//! Moves the contents of volumes into repositories of the restic format in an object store, and
//! back. The program `backup-mover` does that once, in its own pod.
//!
//! - [`Repository`] does the work, on blocking threads.
//! - [`Job`] cancels it and shows its progress.
//! - [`backup_core::data_movement::MoverOutcome`] is its end, as JSON for the controller.
#![warn(unreachable_pub)]

mod args;
mod error;
mod failures;
mod log_lines;
mod objects;
mod outcome;
mod progress;
mod repository;
mod run;
mod stop;
#[cfg(test)]
mod tests;
mod volume;

pub use args::Args;
pub use error::MoverError;
pub use failures::MAX_NAMED;
pub use log_lines::install;
pub use objects::TransferLimits;
pub use progress::Progress;
pub use repository::{
    BackupRequest, CheckRequest, DataPart, DataToRead, ExistingFiles, Job, MaintainRequest,
    Password, Report, Repository, RestoreRequest, Source,
};
pub use run::run;
pub use stop::StopFlag;
