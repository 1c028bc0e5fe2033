//! One call to an action, with a timeout.

use std::{collections::HashMap, sync::Arc, time::Duration};

use backup_actions::{ActionError, backup::BackupItemAction, restore::RestoreItemAction};
use backup_core::{
    api::{Backup, Restore},
    operation::{BackupOperation, Operation, RestoreOperation},
};
use futures::{StreamExt as _, stream};
use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};

use super::decide::{Answer, Call};
use backup_plugins::{Host, Missing, catalog::Kind};

/// Timeout of a call. An action that hangs is called again later.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Actions by name.
pub(crate) struct Registry {
    of_backups: HashMap<String, Arc<dyn BackupItemAction>>,
    of_restores: HashMap<String, Arc<dyn RestoreItemAction>>,
    plugins: Host,
}

impl Registry {
    /// With these built-in actions on items of backups and of restores, and the actions of plugins.
    pub(crate) fn new(
        of_backups: impl IntoIterator<Item = Arc<dyn BackupItemAction>>,
        of_restores: impl IntoIterator<Item = Arc<dyn RestoreItemAction>>,
        plugins: Host,
    ) -> Self {
        Self {
            of_backups: of_backups
                .into_iter()
                .map(|action| (action.name().to_owned(), action))
                .collect(),
            of_restores: of_restores
                .into_iter()
                .map(|action| (action.name().to_owned(), action))
                .collect(),
            plugins,
        }
    }

    /// The action of this name on items of a backup.
    async fn for_backup(&self, name: &str) -> Result<Arc<dyn BackupItemAction>, Missing> {
        match self.of_backups.get(name) {
            Some(action) => Ok(Arc::clone(action)),
            None => Ok(self.plugins.action(&Kind::BACKUP_ITEM, name).await?),
        }
    }

    /// The action of this name on items of a restore.
    async fn for_restore(&self, name: &str) -> Result<Arc<dyn RestoreItemAction>, Missing> {
        match self.of_restores.get(name) {
            Some(action) => Ok(Arc::clone(action)),
            None => Ok(self.plugins.action(&Kind::RESTORE_ITEM, name).await?),
        }
    }
}

/// Maximum number of operations that are cancelled concurrently.
const MAX_CONCURRENT_CANCELLATIONS: usize = 8;

/// The object that operations belong to; passed to the actions that started them.
pub(crate) trait Subject: Resource + Clone + Send + Sync + 'static {
    type Operation: Operation + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Calls the action that started an operation. The outer error: the action does not exist here.
    fn ask(
        &self,
        registry: &Registry,
        action: &str,
        operation: &str,
        call: Call,
    ) -> impl Future<Output = Result<Result<Answer, ActionError>, Missing>> + Send;
}

impl Subject for Backup {
    type Operation = BackupOperation;

    async fn ask(
        &self,
        registry: &Registry,
        action: &str,
        operation: &str,
        call: Call,
    ) -> Result<Result<Answer, ActionError>, Missing> {
        let action = registry.for_backup(action).await?;
        Ok(match call {
            Call::Cancel => action.cancel(operation, self).await.map(|()| Answer::Told),
            Call::Progress | Call::Wait(_) | Call::Nothing => {
                action.progress(operation, self).await.map(Answer::Progress)
            }
        })
    }
}

impl Subject for Restore {
    type Operation = RestoreOperation;

    async fn ask(
        &self,
        registry: &Registry,
        action: &str,
        operation: &str,
        call: Call,
    ) -> Result<Result<Answer, ActionError>, Missing> {
        let action = registry.for_restore(action).await?;
        Ok(match call {
            Call::Cancel => action.cancel(operation, self).await.map(|()| Answer::Told),
            Call::Progress | Call::Wait(_) | Call::Nothing => {
                action.progress(operation, self).await.map(Answer::Progress)
            }
        })
    }
}

/// Cancels operations that still run. Best effort: one call for each.
pub(crate) async fn cancel_all<S: Subject>(
    registry: &Registry,
    operations: &[S::Operation],
    subject: &S,
) {
    let running = operations
        .iter()
        .filter(|operation| !operation.status().phase.has_ended());
    stream::iter(running)
        .for_each_concurrent(MAX_CONCURRENT_CANCELLATIONS, async |operation| {
            let action = operation.action();
            let id = operation.id();
            let answer = make(registry, action, id, Call::Cancel, subject).await;
            if let Answer::Passing(reason) | Answer::Final(reason) = answer {
                tracing::warn!(
                    action,
                    operation = id,
                    reason,
                    "an operation could not be cancelled"
                );
            }
        })
        .await;
}

/// Makes a call and returns the answer. A missing action counts as temporary while some plugins are
/// unknown.
pub(crate) async fn make<S: Subject>(
    registry: &Registry,
    action: &str,
    operation: &str,
    call: Call,
    subject: &S,
) -> Answer {
    match tokio::time::timeout(CALL_TIMEOUT, subject.ask(registry, action, operation, call)).await {
        Ok(Ok(Ok(answer))) => answer,
        Ok(Ok(Err(
            ActionError::Retryable { reason, .. } | ActionError::Unknown { reason, .. },
        ))) => Answer::Passing(reason),
        Ok(Ok(Err(ActionError::Final { reason, .. }))) => Answer::Final(reason),
        Ok(Err(missing)) => {
            if missing.may_come {
                Answer::Passing(missing.reason)
            } else {
                Answer::Final(missing.reason)
            }
        }
        Err(_) => Answer::Passing(format!("no answer within {CALL_TIMEOUT:?}")),
    }
}
