//! Histories: clients that create, apply, finish, delete and recreate Backups and Restores side by side against real API
//! servers and webhook replicas, while things go wrong at named points; and a checker that judges what was recorded.
//!
//! [`plan`] and [`check`] are pure. [`faults`] knows who is to be hit where; [`tap`] is where single requests are hit.
//! [`operator`] plays the engine, [`clients`] the people, [`etcd`] sees what is really stored. [`run`](mod@run) puts it
//! together.

pub mod check;
pub mod clients;
pub mod etcd;
pub mod faults;
pub mod fleet;
pub mod operator;
pub mod plan;
pub mod random;
pub mod record;
pub mod report;
pub mod run;
pub mod stage;
pub mod tap;
pub mod timeline;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use report::Report;
pub use run::{Options, run};

/// A lock that is there also after a panic elsewhere: what it guards is only ever added to.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
