//! What controllers stand on: leadership, watches, the work queue, retries, events, health.

pub mod clock;
pub mod delete;
pub mod errors;
pub mod events;
pub mod health;
pub mod leader;
pub mod list;
pub mod path;
pub mod queue;
pub mod retry;
pub mod signal;
pub mod step;
pub mod watch;
