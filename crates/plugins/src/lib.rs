//! Velero's plugins, unchanged: programs in a folder, called over gRPC.
//!
//! - `host` manages all binaries; `discover` finds them, `catalog` decides which of their plugins
//!   are used.
//! - `binary` keeps the process of one running, `process` is a running one, `handshake` its first
//!   line, `connection` the calls to it, `wire` and `store_wire` their messages, `streams` calls of
//!   many messages.
//! - `action`, `backup_item` and `restore_item` adapt a plugin to the traits of `backup_actions`;
//!   `objects` is a bucket for `backup_store`, and `snapshotter` creates snapshots of volumes.
//! - The last two need settings first, so each set of settings has a separate process
//!   (`configured`, `pool`).
//! - `lines` splits their output into lines, `log_line` parses one, `log` adds it to the log of its
//!   backup, or of this process.
#![warn(unreachable_pub)]

#[cfg(test)]
#[macro_use]
extern crate backup_testkit;

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
