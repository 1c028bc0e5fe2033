//! Commands in pods around their backup, such as freezing a file system and thawing it.
//!
//! What is frozen must not stay so, whatever happens to this process. Therefore, before the first command before a pod's
//! backup is run, it is written down durably which commands its pod is owed afterwards ([`Notes`]). Whoever has to do with
//! the backup next runs these first ([`settle`]).
//!
//! Velero: `internal/hook`, `pkg/podexec`, v1.18. There, commands after the backup are not run if the one before has failed,
//! and are lost with the process.

pub mod exec;
#[cfg(test)]
pub mod fake;
mod owed;
mod rules;
mod settle;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use backup_store::StoreError;
use serde_json::Value;

pub use exec::{Executor, InCluster};
pub use owed::Owed;
pub use rules::{Hook, Pod, PodHooks, Rules};
pub use settle::settle;

use exec::ExecError;

use super::progress::Progress;
use crate::job::journal::JournalWriter;

/// What there is to tell about a backup that was taken up.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TakenOver {
    /// What may be wrong in the backup, as sentences.
    pub errors: Vec<String>,
    /// Which commands are run for the second time.
    pub again: Option<String>,
}

/// The hooks of one backup.
pub struct Hooks {
    executor: Arc<dyn Executor>,
    journal: Arc<dyn JournalWriter>,
    /// What pods are owed now, the latest last. A pod may come along inside of another one's block.
    owed: Mutex<Vec<Owed>>,
    progress: Progress,
}

impl Hooks {
    /// For one collection.
    pub fn new(executor: Arc<dyn Executor>, journal: Arc<dyn JournalWriter>, progress: Progress) -> Self {
        Self { executor, journal, owed: Mutex::default(), progress }
    }

    /// Whether the pod is the one that was listed, and runs.
    pub async fn is_running(&self, pod: &Pod) -> Result<bool, kube::Error> {
        let found = self.executor.find(&pod.namespace, &pod.name).await?;
        Ok(found.is_some_and(|found| found.uid == pod.uid && found.running))
    }

    /// Writes down what the pod is owed from now on. To be called before the first command.
    pub async fn owe(&self, pod: &Pod, post: &[Hook]) -> Result<(), StoreError> {
        if post.is_empty() {
            return Ok(());
        }
        let owed = Owed::new(pod, post);
        self.journal.append(owed.note()).await?;
        self.desk().push(owed);
        Ok(())
    }

    /// The pod has got what it was owed.
    pub async fn paid(&self, pod: &Pod) -> Result<(), StoreError> {
        let paid = {
            let mut desk = self.desk();
            let at = desk.iter().position(|owed| owed.uid == pod.uid);
            at.map(|at| desk.remove(at))
        };
        match paid {
            Some(owed) => self.journal.append(owed.paid()).await,
            None => Ok(()),
        }
    }

    /// Runs one command before the backup of its pod, once. What it printed, or why it failed.
    pub async fn before(&self, pod: &Pod, hook: &Hook) -> Result<String, String> {
        self.progress.attempts_hook();
        let result = self.executor.run(&pod.namespace, &pod.name, hook).await;
        self.told(result)
    }

    /// Runs one command after the backup of its pod, again if it is not known to have begun.
    pub async fn after(&self, pod: &Pod, hook: &Hook) -> Result<String, String> {
        self.progress.attempts_hook();
        let result = exec::insist(&*self.executor, &pod.namespace, &pod.name, hook).await;
        self.told(result)
    }

    /// Takes a backup up that another process may have left: runs what pods are owed by these notes.
    ///
    /// # Errors
    /// Of the notes: one that can't be understood, or a new one that can't be written.
    pub async fn take_over(&self, notes: &[Value]) -> Result<TakenOver, StoreError> {
        let unreadable = |error: serde_json::Error| StoreError::Corrupt {
            url: "the notes of this backup".to_owned(),
            detail: format!("a note about commands in pods can't be understood: {error}"),
        };
        let owed = Owed::of(notes).map_err(unreadable)?;
        let earlier = Owed::earlier(notes).map_err(unreadable)?;
        let again = (!earlier.is_empty()).then(|| {
            let names: Vec<String> = earlier.iter().map(|(namespace, pod)| format!("{namespace}/{pod}")).collect();
            format!(
                "the items are collected again, and commands in pods are run again that an earlier try has run: {}",
                names.join(", ")
            )
        });
        let mut errors: Vec<String> = owed
            .iter()
            .map(|owed| {
                format!(
                    "work stopped while commands were run around the backup of pod {}/{}: what came of them is not known. Those \
                     after its backup have been run since; those before it are run again when it is backed up again",
                    owed.namespace, owed.pod
                )
            })
            .collect();
        errors.extend(settle(&*self.executor, &*self.journal, &owed).await?);
        Ok(TakenOver { errors, again })
    }

    /// Runs what is owed in this process: its work was stopped in the middle. What went wrong, as sentences.
    pub async fn settle_here(&self) -> Vec<String> {
        let owed: Vec<Owed> = std::mem::take(&mut *self.desk());
        if owed.is_empty() {
            return Vec::new();
        }
        settle(&*self.executor, &*self.journal, &owed).await.unwrap_or_else(|error| vec![error.to_string()])
    }

    fn told(&self, result: Result<String, ExecError>) -> Result<String, String> {
        result.map_err(|error| {
            self.progress.hook_failed();
            error.to_string()
        })
    }

    fn desk(&self) -> MutexGuard<'_, Vec<Owed>> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
