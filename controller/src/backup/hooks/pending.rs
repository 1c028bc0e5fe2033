//! Post commands of pods that must run whatever happens to this process: the journal holds them,
//! and they are run by the process that stops in between, or by the one that takes the backup over.

use std::collections::BTreeSet;

use backup_client::errors::plain;
use backup_store::StoreError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    hooks::{
        Hook, Pod,
        exec::{self, Executor},
    },
    job::journal::JournalWriter,
};

const PENDING: &str = "hooksPending";
const COMPLETED: &str = "hooksCompleted";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PendingPostHooks {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    /// Uid of the pod: no command runs in another pod of this name.
    pub(crate) uid: String,
    pub(crate) post: Vec<Hook>,
}

impl PendingPostHooks {
    pub(crate) fn new(pod: &Pod, post: &[Hook]) -> Self {
        Self {
            namespace: pod.namespace.clone(),
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            post: post.to_vec(),
        }
    }

    /// The entry that makes the commands pending.
    pub(crate) fn pending_entry(&self) -> Value {
        json!({ PENDING: self })
    }

    /// The entry that ends them: they have been run.
    pub(crate) fn completed_entry(&self) -> Value {
        json!({ COMPLETED: self.uid })
    }

    /// Commands that are still pending by all entries, in order. Other entries are ignored. Fails
    /// if an entry about hooks cannot be decoded: then it is unknown which commands are pending.
    pub(crate) fn read(entries: &[Value]) -> Result<Vec<Self>, serde_json::Error> {
        let mut pending: Vec<Self> = Vec::new();
        for entry in entries {
            if let Some(one) = entry.get(PENDING) {
                pending.push(Self::deserialize(one)?);
            }
            if let Some(uid) = entry.get(COMPLETED).and_then(Value::as_str) {
                pending.retain(|one| one.uid != uid);
            }
        }
        Ok(pending)
    }

    /// Pods, as `namespace/name`, whose commands were begun before, by all entries.
    pub(super) fn earlier_pods(entries: &[Value]) -> Result<BTreeSet<String>, serde_json::Error> {
        let pending = entries.iter().filter_map(|entry| entry.get(PENDING));
        pending
            .map(|one| Ok(Self::deserialize(one)?.full_name()))
            .collect()
    }

    pub(super) fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.pod)
    }

    /// Runs the commands, but not in a pod that is gone or was replaced. Returns messages about
    /// errors. Commands that could not be begun stay pending.
    async fn run(
        &self,
        executor: &dyn Executor,
        journal: &dyn JournalWriter,
    ) -> Result<Vec<String>, StoreError> {
        let name = self.full_name();
        let exists = match executor
            .is_running(&self.namespace, &self.pod, &self.uid)
            .await
        {
            Ok(exists) => exists,
            Err(error) => {
                return Ok(vec![format!(
                    "post hooks of pod {name} are pending, and the pod could not be read: {}",
                    plain(&error)
                )]);
            }
        };
        let mut problems = Vec::new();
        let mut begun = true;
        for hook in self.post.iter().filter(|_| exists) {
            tracing::info!(
                pod = name,
                container = hook.container,
                "running a command that is pending"
            );
            if let Err(error) =
                exec::run_until_begun(executor, &self.namespace, &self.pod, hook).await
            {
                begun &= error.has_begun();
                let subject = hook.subject("after the backup", &self.namespace, &self.pod);
                problems.push(format!("{subject} failed: {error}"));
            }
        }
        if begun {
            journal.append(self.completed_entry()).await?;
        }
        Ok(problems)
    }
}

/// Runs all pending commands. Returns messages about errors.
pub(crate) async fn run_pending(
    executor: &dyn Executor,
    journal: &dyn JournalWriter,
    all: &[PendingPostHooks],
) -> Result<Vec<String>, StoreError> {
    let mut problems = Vec::new();
    for pending in all {
        problems.extend(pending.run(executor, journal).await?);
    }
    Ok(problems)
}
