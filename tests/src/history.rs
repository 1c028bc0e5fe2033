//! Histories: clients that create, apply, finish, delete and recreate Backups and Restores side by
//! side against real API servers and webhook replicas, while things go wrong at named points; and a
//! checker that judges what was recorded.
//!
//! `plan` and `check` are pure. `faults` decides which component is due for a fault; `tap` applies
//! faults to single requests. `whose` says whose objects a history is about. `operator` plays the
//! engine, or a guarded operator, `clients` the users, `soak_op` their operations in a soak only;
//! `disturbances` are the faults of a soak. `etcd` reports what is stored. `run` puts it together.

mod buckets;
mod check;
mod clients;
mod disturbances;
mod etcd;
mod faults;
mod fleet;
mod operator;
mod plan;
pub mod random;
mod record;
mod report;
mod run;
mod soak_op;
mod stage;
mod tap;
mod timeline;
mod whose;

pub use check::Promise;
pub use report::Report;
pub use run::{Options, run};
