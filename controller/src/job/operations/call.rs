//! One question to an action, with a deadline.

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

/// How long an action may take to answer. One that hangs is asked again later.
const LIMIT: Duration = Duration::from_secs(30);

/// Actions by name. Those on items of a restore that are built in start no operations.
pub(crate) struct Registry {
    built_in: HashMap<String, Arc<dyn BackupItemAction>>,
    plugins: Host,
}

impl Registry {
    /// Those that are built in, and those of plugins.
    pub(crate) fn new(built_in: impl IntoIterator<Item = Arc<dyn BackupItemAction>>, plugins: Host) -> Self {
        let built_in = built_in.into_iter().map(|action| (action.name().to_owned(), action)).collect();
        Self { built_in, plugins }
    }

    /// The action of this name on items of a backup.
    async fn for_backup(&self, name: &str) -> Result<Arc<dyn BackupItemAction>, Missing> {
        match self.built_in.get(name) {
            Some(action) => Ok(Arc::clone(action)),
            None => Ok(self.plugins.action(&Kind::BACKUP_ITEM, name).await?),
        }
    }
}

/// Operations that are cancelled at the same time.
const AT_ONCE: usize = 8;

/// What operations belong to: the actions that started them are told of it.
pub(crate) trait Subject: Resource + Clone + Send + Sync + 'static {
    type Operation: Operation + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Asks the action that started an operation. The outer error: there is no such action here.
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
        let action = registry.plugins.action(&Kind::RESTORE_ITEM, action).await?;
        let action: Arc<dyn RestoreItemAction> = action;
        Ok(match call {
            Call::Cancel => action.cancel(operation, self).await.map(|()| Answer::Told),
            Call::Progress | Call::Wait(_) | Call::Nothing => {
                action.progress(operation, self).await.map(Answer::Progress)
            }
        })
    }
}

/// Cancels those that still run. Best effort: each is called once.
pub(crate) async fn cancel_all<S: Subject>(registry: &Registry, operations: &[S::Operation], subject: &S) {
    let running = operations.iter().filter(|operation| !operation.status().phase.has_ended());
    stream::iter(running)
        .for_each_concurrent(AT_ONCE, async |operation| {
            let (action, id) = (operation.action(), operation.id());
            let answer = make(registry, action, id, Call::Cancel, subject).await;
            if let Answer::Passing(reason) | Answer::Final(reason) = answer {
                tracing::warn!(action, operation = id, reason, "an operation could not be cancelled");
            }
        })
        .await;
}

/// Makes a call, and says what came back. That there is no such action may pass as long as some plugins are not known.
pub(crate) async fn make<S: Subject>(
    registry: &Registry,
    action: &str,
    operation: &str,
    call: Call,
    subject: &S,
) -> Answer {
    match tokio::time::timeout(LIMIT, subject.ask(registry, action, operation, call)).await {
        Ok(Ok(Ok(answer))) => answer,
        Ok(Ok(Err(ActionError::Retryable { reason, .. } | ActionError::Unknown { reason, .. }))) => {
            Answer::Passing(reason)
        }
        Ok(Ok(Err(ActionError::Final { reason, .. }))) => Answer::Final(reason),
        Ok(Err(missing)) if missing.may_come => Answer::Passing(missing.reason),
        Ok(Err(missing)) => Answer::Final(missing.reason),
        Err(_) => Answer::Passing(format!("no answer within {LIMIT:?}")),
    }
}
