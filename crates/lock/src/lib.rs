//! The lock that keeps backups and restores of one scope apart.
//!
//! [`claim`], [`footprint`], [`conflict`], [`ledger`], [`admission`] and [`fate`] are pure: values and the transitions
//! between them, the same for the webhook, the controller, the model and every test. [`lease`] stores a ledger in a Lease
//! and changes it by compare-and-swap; [`observe`] reads the objects that the claims are about; [`mod@activate`] and
//! [`collect`] put the two together.

pub mod activate;
pub mod admission;
pub mod caretaker;
pub mod claim;
pub mod collect;
pub mod conflict;
pub mod connection;
pub mod errors;
pub mod fate;
pub mod footprint;
pub mod guard;
pub mod lease;
pub mod ledger;
pub mod observe;
mod pause;
#[cfg(test)]
mod tests;

pub use activate::{ActivateError, Token, activate, release};
pub use caretaker::Caretaker;
pub use claim::{Claim, Entry, ObjectKey, ObjectKind, State};
pub use collect::{Collector, Times};
pub use conflict::Conflict;
pub use footprint::Footprint;
pub use guard::Guard;
pub use lease::{Keeper, LedgerError, LedgerStore, Tended, VELERO_SCOPE};
pub use ledger::Ledger;
