//! The basis of controllers: leadership, watches, the work queue, conditional writes, events,
//! health. It knows a client and a namespace, but no controller's logic.
#![warn(unreachable_pub)]

#[cfg(test)]
#[macro_use]
extern crate backup_testkit;

pub mod clock;
mod cluster;
pub mod delete;
pub mod events;
pub mod health;
pub mod leader;
pub mod list;
pub mod queue;
pub mod retry;
// For programs of a cluster, which run on Linux; the command is built for Windows, too.
#[cfg(unix)]
pub mod signal;
pub mod watch;

pub use cluster::Cluster;
