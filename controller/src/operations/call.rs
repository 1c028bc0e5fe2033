//! One question to an action, with a deadline.

use std::{collections::HashMap, sync::Arc, time::Duration};

use backup_core::api::Backup;

use super::decide::{Answer, Call};
use crate::backup::action::{ActionError, BackupItemAction};

/// How long an action may take to answer. One that hangs is asked again later.
const LIMIT: Duration = Duration::from_secs(30);

/// Actions by name.
pub type Registry = HashMap<String, Arc<dyn BackupItemAction>>;

/// Makes a call, and says what came back.
pub async fn make(registry: &Registry, action: &str, operation: &str, call: Call, backup: &Backup) -> Answer {
    let Some(action) = registry.get(action) else {
        return Answer::Final(format!(
            "there is no action {action} here any more: install the plugin that has it, or enable its feature"
        ));
    };
    let answered = async {
        match call {
            Call::Cancel => action.cancel(operation, backup).await.map(|()| Answer::Told),
            Call::Progress | Call::Wait(_) | Call::Nothing => {
                action.progress(operation, backup).await.map(Answer::Progress)
            }
        }
    };
    match tokio::time::timeout(LIMIT, answered).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(ActionError::Passing { reason, .. })) => Answer::Passing(reason),
        Ok(Err(ActionError::Final { reason, .. })) => Answer::Final(reason),
        Err(_) => Answer::Passing(format!("no answer within {LIMIT:?}")),
    }
}
