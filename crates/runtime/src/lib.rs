//! What controllers stand on: leadership, watches, the work queue, retries, events, health. It knows a client and a
//! namespace, and nothing of what a controller does.
#![warn(unreachable_pub)]

pub mod backoff;
pub mod clock;
mod cluster;
pub mod delete;
pub mod errors;
pub mod events;
pub mod health;
pub mod leader;
pub mod list;
pub mod page;
pub mod path;
pub mod queue;
pub mod retry;
// Of programs of a cluster, which run on Linux; the command is built for Windows, too.
#[cfg(unix)]
pub mod signal;
pub mod walk;
pub mod watch;

pub use cluster::Cluster;
