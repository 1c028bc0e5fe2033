//! One question to an action, with a deadline.

use std::{collections::HashMap, sync::Arc, time::Duration};

use backup_core::api::Backup;

use super::decide::{Answer, Call};
use crate::{
    backup::action::{ActionError, BackupItemAction},
    plugins::Host,
};

/// How long an action may take to answer. One that hangs is asked again later.
const LIMIT: Duration = Duration::from_secs(30);

/// Actions by name.
pub struct Registry {
    built_in: HashMap<String, Arc<dyn BackupItemAction>>,
    plugins: Host,
}

impl Registry {
    /// Those that are built in, and those of plugins.
    pub fn new(built_in: impl IntoIterator<Item = Arc<dyn BackupItemAction>>, plugins: Host) -> Self {
        let built_in = built_in.into_iter().map(|action| (action.name().to_owned(), action)).collect();
        Self { built_in, plugins }
    }

    /// The action of this name. If there is none, nobody can be asked; that may pass as long as some plugins are not known.
    async fn find(&self, name: &str) -> Result<Arc<dyn BackupItemAction>, Answer> {
        if let Some(action) = self.built_in.get(name) {
            return Ok(Arc::clone(action));
        }
        self.plugins.backup_item_action(name).await.map_err(|missing| {
            if missing.may_come { Answer::Passing(missing.reason) } else { Answer::Final(missing.reason) }
        })
    }
}

/// Makes a call, and says what came back.
pub async fn make(registry: &Registry, action: &str, operation: &str, call: Call, backup: &Backup) -> Answer {
    let answered = async {
        let action = match registry.find(action).await {
            Ok(action) => action,
            Err(answer) => return Ok(answer),
        };
        match call {
            Call::Cancel => action.cancel(operation, backup).await.map(|()| Answer::Told),
            Call::Progress | Call::Wait(_) | Call::Nothing => {
                action.progress(operation, backup).await.map(Answer::Progress)
            }
        }
    };
    match tokio::time::timeout(LIMIT, answered).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(ActionError::Passing { reason, .. } | ActionError::Unknown { reason, .. })) => {
            Answer::Passing(reason)
        }
        Ok(Err(ActionError::Final { reason, .. })) => Answer::Final(reason),
        Err(_) => Answer::Passing(format!("no answer within {LIMIT:?}")),
    }
}
