//! Actions on items of backups and restores: their interface, the built-in ones, and snapshots of
//! CSI volumes.
//!
//! Built-in actions and plugin processes are called through the same traits, which correspond to
//! the interfaces of Velero's plugins (`pkg/plugin/velero`, v1.18), with our types.
#![warn(unreachable_pub)]

#[cfg(test)]
#[macro_use]
extern crate backup_testkit;

mod action;
pub mod backup;
pub mod hook;
pub mod json;
pub mod restore;
mod rule_use;
mod selector;
mod volumes;

pub use action::{ActionError, AppliesTo, ItemAction, ItemId, OperationProgress};
pub use rule_use::RuleUse;
pub use selector::{ActionSet, SelectedAction};
pub use volumes::csi;
