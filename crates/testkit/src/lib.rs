//! For tests without a cluster: an API server in memory that can inject faults, and initial objects
//! for tests.
//!
//! Also fuzzing: mutations of valid inputs for parsers of foreign texts; and a check that each key
//! of a list is read.
//!
//! A dev-dependency of the other crates, and part of no program.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    clippy::needless_pass_by_value,
    clippy::return_self_not_must_use,
    reason = "only tests use this crate"
)]

mod fake_api;
mod fuzz;
mod keys;
mod objects;
mod request;
mod says;
mod target;

pub use fake_api::{FakeApi, LastWrite};
pub use fuzz::Fuzz;
pub use keys::assert_each_key_counts;
pub use objects::{LEDGER_PATH, MARKER_PATH, ledger_path, marker_path, velero_path};
pub use request::{Fault, Request, failure, status};

#[cfg(test)]
mod tests;
