//! Restores: from a stored backup into the cluster.
//!
//! `lifecycle` is what `job` needs to know of them. `observe` reads and `validate` checks; `runner` runs the `work`, which reads
//! one item at a time from the local copy of the backup: `select` chooses and orders, actions rewrite, `apply` creates or
//! compares with what is there, `hooks` runs commands in created pods, `report` keeps the results, `volume_outcomes` says whose
//! data did not come back. A restore found running is run again: what is there and equal is left as it is, so this leads to the
//! same. `plan` does the same work without changing anything, for people who want to know.

mod apply;
mod calls;
mod files;
mod guard;
mod hooks;
mod identity;
mod item_memory;
mod left_out;
mod lifecycle;
mod names;
mod namespaces;
mod observe;
mod operations;
mod plan;
mod report;
mod runner;
mod select;
mod snapshots;
mod status;
mod type_names;
mod validate;
mod volume_outcomes;
mod work;

#[cfg(test)]
mod fake;

pub(crate) use item_memory::ItemMemory;
pub(crate) use lifecycle::Restores;
pub(crate) use plan::Planner;
