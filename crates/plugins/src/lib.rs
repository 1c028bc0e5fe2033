//! Velero's plugins, as they are: programs in a folder that are spoken to over gRPC.
//!
//! - `host` has all binaries; `discover` finds them, `catalog` decides which of their plugins are used.
//! - `binary` runs the process of one again and again, `process` is one that runs, `handshake` its first line, `connection` the
//!   calls to it, `wire` and `store_wire` their messages, `streams` calls of many messages.
//! - `action`, `backup_item` and `restore_item` adapt a plugin to the traits of `backup_actions`; `objects` is a bucket for
//!   `backup_store`, and `snapshotter` takes snapshots of volumes.
//! - The last two get settings before anything else, so each set of settings has a process of its own (`configured`, `pool`).
//! - `lines` cuts what they write into lines, `log_line` reads one, `log` adds it to the log of its backup, or of this process.
#![warn(unreachable_pub)]

mod action;
mod backup_item;
mod binary;
pub mod catalog;
pub mod configured;
mod connection;
mod discover;
pub mod error;
#[cfg(test)]
mod fuzz;
mod handshake;
mod host;
mod lines;
mod log;
pub mod log_line;
mod objects;
mod pool;
mod process;
mod restore_item;
pub mod snapshotter;
mod store_wire;
mod streams;
mod wire;

pub use action::PluginAction;
pub use host::{Actions, Host, Missing, Options, PluginNames};
pub use log::PluginLog;
