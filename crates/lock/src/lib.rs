//! The lock that keeps backups and restores of one scope apart.
//!
//! [`claim`], [`footprint`], [`conflict`], [`ledger`], [`admission`] and [`transition`] are pure:
//! values and the transitions between them, the same for the webhook, the controller, the model and
//! every test. [`lease`] stores a ledger in a Lease and changes it by compare-and-swap; [`observe`]
//! reads the objects that the claims are about; [`mod@activate`] and [`collect`] put the two
//! together.
#![warn(unreachable_pub)]

#[cfg(test)]
#[macro_use]
extern crate backup_testkit;

pub mod activate;
pub mod admission;
pub mod claim;
pub mod collect;
pub mod conflict;
pub mod connection;
pub mod footprint;
pub mod lease;
pub mod ledger;
pub mod observe;
pub mod protected_profile;
pub mod reconciler;
pub mod registration;
pub mod running;
pub mod server_time;
#[cfg(test)]
mod tests;
pub mod transition;

pub use activate::{ActivateError, Token, activate, release};
pub use claim::{Claim, Entry, ObjectKey, ObjectKind, State, VELERO_SCOPE};
pub use collect::Collector;
pub use conflict::Conflict;
pub use footprint::Footprint;
pub use lease::{LedgerError, LedgerRepair, LedgerStore, RepairOutcome};
pub use ledger::Ledger;
pub use protected_profile::ProtectedProfile;
pub use reconciler::LedgerReconciler;
pub use registration::{GuardedRequest, Installations, Registration};
pub use running::RunningObjects;
pub use transition::Times;
