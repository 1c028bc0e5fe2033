//! Histories: clients that create, apply, finish, delete and recreate Backups and Restores side by side against real API
//! servers and webhook replicas, while things go wrong at named points; and a checker that judges what was recorded.
//!
//! `plan` and `check` are pure. `faults` knows who is to be hit where; `tap` is where single requests are hit.
//! `whose` says whose objects a history is about. `operator` plays the engine, or an operator that is guarded, `clients` the
//! people, `soak_op` what they do in a soak only; `disturbances` are those of a soak. `etcd` sees what is really stored. `run` puts it together.

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

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use check::Promise;
pub use report::Report;
pub use run::{Options, run};

/// A lock that is there also after a panic elsewhere: what it guards is only ever added to.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
