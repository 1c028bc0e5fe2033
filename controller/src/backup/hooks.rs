//! Commands in pods around their backup, such as freezing a file system and thawing it.
//!
//! A frozen file system must be thawed, whatever happens to this process. Therefore, before the
//! first pre command of a pod runs, the journal records durably which commands must run afterwards
//! ([`PendingPostHooks`]). The next process that works on the backup runs these first.
//!
//! Velero: `internal/hook`, `pkg/podexec`, v1.18. There, post commands are not run if the pre
//! command has failed, and are lost with the process.

mod pending;
mod rules;

use std::sync::Arc;

use backup_store::StoreError;
use parking_lot::Mutex;
use serde_json::Value;

pub(crate) use pending::PendingPostHooks;
use pending::run_pending;
pub(crate) use rules::{HookRules, PodHooks};

use super::progress::Progress;
use crate::{
    hooks::{
        Hook, Pod,
        exec::{self, ExecError, Executor},
    },
    job::journal::{JournalWriter, undecodable},
};

/// State of the commands of an earlier attempt at a backup.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct HookTakeover {
    /// Messages about possible errors in the backup.
    pub(crate) errors: Vec<String>,
    /// Message about commands that run a second time.
    pub(crate) again: Option<String>,
}

pub(crate) struct Hooks {
    executor: Arc<dyn Executor>,
    journal: Arc<dyn JournalWriter>,
    /// Pending commands, the latest last. A pod may be related to the block of another one.
    pending: Mutex<Vec<PendingPostHooks>>,
    progress: Progress,
}

impl Hooks {
    pub(crate) fn new(
        executor: Arc<dyn Executor>,
        journal: Arc<dyn JournalWriter>,
        progress: Progress,
    ) -> Self {
        Self {
            executor,
            journal,
            pending: Mutex::default(),
            progress,
        }
    }

    /// Whether the listed pod still exists (same uid), and runs.
    pub(crate) async fn is_running(&self, pod: &Pod) -> Result<bool, kube::Error> {
        self.executor
            .is_running(&pod.namespace, &pod.name, &pod.uid)
            .await
    }

    /// Records that the post commands of a pod are pending. Must be called before the first
    /// command.
    pub(crate) async fn begin(&self, pod: &Pod, post: &[Hook]) -> Result<(), StoreError> {
        if post.is_empty() {
            return Ok(());
        }
        let pending = PendingPostHooks::new(pod, post);
        self.journal.append(pending.pending_entry()).await?;
        self.pending.lock().push(pending);
        Ok(())
    }

    /// Records that the post commands of a pod have been run.
    pub(crate) async fn complete(&self, pod: &Pod) -> Result<(), StoreError> {
        let completed = {
            let mut pending = self.pending.lock();
            let at = pending.iter().position(|one| one.uid == pod.uid);
            at.map(|at| pending.remove(at))
        };
        match completed {
            Some(completed) => self.journal.append(completed.completed_entry()).await,
            None => Ok(()),
        }
    }

    /// Runs one pre command once, and returns its output.
    pub(crate) async fn run_pre(&self, pod: &Pod, hook: &Hook) -> Result<String, ExecError> {
        self.counted(self.executor.run(&pod.namespace, &pod.name, hook))
            .await
    }

    /// Runs one post command; retries it if it is not known to have begun.
    pub(crate) async fn run_post(&self, pod: &Pod, hook: &Hook) -> Result<String, ExecError> {
        self.counted(exec::run_until_begun(
            &*self.executor,
            &pod.namespace,
            &pod.name,
            hook,
        ))
        .await
    }

    async fn counted(
        &self,
        run: impl Future<Output = Result<String, ExecError>>,
    ) -> Result<String, ExecError> {
        self.progress.attempts_hook();
        run.await.inspect_err(|_| self.progress.hook_failed())
    }

    /// Takes over a backup that another process may have left: runs commands that are pending by
    /// these entries.
    pub(crate) async fn take_over(&self, entries: &[Value]) -> Result<HookTakeover, StoreError> {
        let pending = PendingPostHooks::read(entries)
            .map_err(|error| undecodable("commands in pods", &error))?;
        let earlier = PendingPostHooks::earlier_pods(entries)
            .map_err(|error| undecodable("commands in pods", &error))?;
        let again = (!earlier.is_empty()).then(|| {
            format!(
                "the items are collected again, and commands in pods are run again that an earlier try has run: {}",
                Vec::from_iter(earlier).join(", ")
            )
        });
        let mut errors: Vec<String> = pending.iter().map(unknown_result).collect();
        errors.extend(run_pending(&*self.executor, &*self.journal, &pending).await?);
        Ok(HookTakeover { errors, again })
    }

    /// Runs commands that are pending in this process, whose work was stopped midway. Returns
    /// messages about errors.
    pub(crate) async fn run_pending(&self) -> Vec<String> {
        let pending = std::mem::take(&mut *self.pending.lock());
        let run = run_pending(&*self.executor, &*self.journal, &pending).await;
        run.unwrap_or_else(|error| vec![error.to_string()])
    }
}

/// The error of a pod whose commands were interrupted.
fn unknown_result(pending: &PendingPostHooks) -> String {
    format!(
        "work stopped while commands were run around the backup of pod {}: what came of them is not known. Those \
         after its backup have been run since; those before it are run again when it is backed up again",
        pending.full_name()
    )
}

#[cfg(test)]
mod tests;
