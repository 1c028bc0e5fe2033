//! Backups: queue, validation, collection.
//!
//! `lifecycle` is what `job` needs to know of them. `queue` decides whose turn it is, `prepare` what a Backup becomes when it
//! starts; `collection` collects, `renewal` reads again what operations have changed, `metadata` is what is stored at the end.

pub(crate) mod actions;
pub(crate) mod collect;
mod collection;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod hooks;
mod journal;
mod leftovers;
mod lifecycle;
mod metadata;
#[cfg(test)]
mod model;
mod observe;
mod patches;
mod pending_hooks;
pub(crate) mod prepare;
mod progress;
mod queue;
mod renewal;
pub(crate) mod volume_snapshots;

use crate::job::report;
pub(crate) use leftovers::Leftovers;
pub(crate) use lifecycle::Backups;
