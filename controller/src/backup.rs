//! Backups: queue, validation, collection.
//!
//! `lifecycle` implements the interface of `job`, whose types are in `kind`. `queue` decides which
//! Backup starts next, `prepare` how a Backup is changed when it starts; `collection` collects
//! items, `renewal` reads items again that operations have changed, `metadata` builds the metadata
//! stored at the end.

pub(crate) mod actions;
pub(crate) mod collect;
mod collection;
pub(crate) mod hooks;
mod journal;
mod kind;
mod leftovers;
mod lifecycle;
mod metadata;
mod observe;
mod patches;
mod pending_hooks;
pub(crate) mod prepare;
mod progress;
mod queue;
mod renewal;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod volume_snapshots;

use crate::job::report;
pub(crate) use kind::Backups;
pub(crate) use leftovers::Leftovers;
