//! Restores: from a stored backup into the cluster.
//!
//! `lifecycle` implements the interface of `job`, whose types are in `kind`. `observe` reads and
//! `validate` checks; `runner` builds the `Restoring`, which every step of the `work` borrows. The
//! work reads one item at a time from the local copy of the backup: `select` chooses and orders,
//! actions rewrite, `apply` creates or compares with existing objects, `hooks` runs commands in
//! created pods, `work::prune` removes objects that the backup does not have, `report` keeps the
//! results, `volume_outcomes` tells which data was not restored. A restore found running is run
//! again: equal existing objects are left unchanged, so the result is the same. `plan` does the same
//! work without changing anything, for users who want a preview. For a drill, `drill` keeps items
//! from having effects elsewhere, and `scratch` makes its namespaces.

mod about;
mod apply;
mod calls;
mod drill;
mod guard;
mod hooks;
mod identity;
mod item_memory;
mod kind;
mod left_out;
mod leftovers;
mod lifecycle;
mod names;
mod namespaces;
mod observe;
mod operations;
mod patches;
mod plan;
mod report;
mod runner;
mod scratch;
mod select;
#[cfg(test)]
mod tests;
mod type_names;
mod validate;
mod volume_outcomes;
mod volume_snapshots;
mod work;

pub(crate) use identity::is_another;
pub(crate) use item_memory::ItemMemory;
pub(crate) use kind::Restores;
pub(crate) use plan::Planner;
