//! Velero's plugins, as they are: programs in a folder that are spoken to over gRPC.
//!
//! `host` has all binaries, `binary` looks after the process of one, `process` is one that runs, `connection` how it is spoken
//! to, `wire` in which messages. `offers` decides which plugins are used; `asking` is one of them, `action` as an action on
//! items of a backup, `restore_item` on those of a restore, `delete_item` one that sees the items of a backup that is
//! deleted, `item_block` one that says which belong together.
//! `objects` is a bucket that a plugin serves, by calls of many messages (`streams`, `store_wire`): such plugins are told their
//! settings first, so each set of settings has a process of its own (`configured`, `pool`), as has `snapshotter`, which takes
//! snapshots of volumes.
//! What they write is cut into lines by `lines`, understood by `said`, and brought to the backup it belongs to by `log`.

pub mod action;
mod allowance;
pub mod asking;
pub mod binary;
pub mod configured;
pub mod connection;
pub mod delete_item;
pub mod discover;
pub mod error;
pub mod handshake;
pub mod host;
pub mod item_block;
pub mod lines;
pub mod log;
pub mod objects;
pub mod offers;
mod pool;
pub mod process;
pub mod restore_item;
pub mod said;
pub mod snapshotter;
mod store_wire;
pub mod streams;
pub mod wire;

pub use host::Host;
pub use log::PluginLog;

use crate::context::Context;

/// Runs all plugin binaries until the process is asked to end.
///
/// # Errors
/// None: a binary that can't be run is a problem of the backups that would need it.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    ctx.plugins.run(ctx.stop).await;
    Ok(())
}
