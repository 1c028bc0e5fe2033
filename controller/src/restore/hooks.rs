//! Commands in pods that a restore has created.
//!
//! 1. Once a pod is created, [`HookPlanner`] chooses its hooks, and hands them to the
//!    [`HookRunner`]. Pods that existed before get none.
//! 2. The runner polls each pod until the container of the next hook is up, or the hook's deadline
//!    has passed. The rest of the restore continues meanwhile.
//! 3. The journal records the start of a hook, the command runs, the journal records its outcome.
//! 4. The restore ends only after all hooks have ended.
//!
//! After a crash the next attempt finds the pods of this restore, and their hooks, again. A hook
//! that has ended is not run again, and its failure is reported again; a hook that has begun, and
//! has no end in the journal, is reported as an error; all others are run.
//!
//! Velero: `internal/hook/wait_exec_hook_handler.go`, v1.18. There, a hook without `waitTimeout`
//! may wait for ever, a failure ends the hooks of all pods, and all state is lost with the process.

mod attempt;
mod journal;
mod planner;
mod pod_hooks;
mod pod_state;
mod rules;
mod runner;
mod stop;
#[cfg(test)]
mod tests;

pub(super) use attempt::HookContext;
pub(super) use journal::HookJournal;
pub(super) use planner::HookPlanner;
pub(super) use runner::HookRunner;

/// When the commands run, for messages.
const WHEN: &str = "after the restore";
