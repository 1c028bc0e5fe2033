//! Commands in pods that a restore has created.
//!
//! 1. Once a pod is created, [`HookPlanner`] chooses its hooks, and hands them to the [`HookRunner`]. Pods that were there
//!    before have none.
//! 2. The runner looks at each pod until the container of the next hook is up, or the hook's deadline has passed. The rest of
//!    the restore goes on meanwhile.
//! 3. The journal says that a hook begins, the command runs, the journal says how it has ended.
//! 4. The restore ends only when all hooks have.
//!
//! After a crash the next attempt finds the pods that are its own, and their hooks again. One that has ended is not run again,
//! and a failure is reported again; one that has begun, and whose end is not in the journal, is an error that says so; any
//! other is run.
//!
//! Velero: `internal/hook/wait_exec_hook_handler.go`, v1.18. There, a hook without `waitTimeout` may wait for ever, a failure
//! ends the hooks of all pods, and all is lost with the process.

mod journal;
mod planner;
mod pod_hooks;
mod pod_state;
mod rules;
mod runner;
#[cfg(test)]
mod tests;

pub(super) use journal::HookJournal;
pub(super) use planner::HookPlanner;
pub(super) use runner::{HookContext, HookRunner};

/// When the commands run, for people.
const WHEN: &str = "after the restore";
