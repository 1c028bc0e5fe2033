//! Definitions of custom resources: after they are created, their resources take a moment to be served.

use std::time::Duration;

use backup_actions::restore::json::{self, Object};
use serde_json::Value;
use tokio::time::Instant;

use super::calls::{CallError, Calls};
use crate::job::cancellation::StopReason;

/// The resource of definitions.
pub const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const COLLECTION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// First and longest pause between two looks.
const LOOK: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// How far a definition has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its resources are served.
    Established,
    /// Not yet.
    Pending,
    /// Never, and why: its names are taken by another definition.
    Refused(String),
}

/// Reads the conditions of a definition.
pub fn stage(definition: &Object) -> Stage {
    let conditions =
        json::object(definition, &["status"]).and_then(|s| s.get("conditions")).and_then(Value::as_array);
    let mut stage = Stage::Pending;
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object) {
        let field = |key: &str| condition.get(key).and_then(Value::as_str).unwrap_or_default();
        match (field("type"), field("status")) {
            ("Established", "True") => stage = Stage::Established,
            ("NamesAccepted", "False") => return Stage::Refused(field("message").to_owned()),
            _ => {}
        }
    }
    stage
}

/// Waits until a definition is established. The error is for the results of the restore.
pub async fn wait(calls: &Calls, name: &str, deadline: Instant) -> Result<Result<(), String>, StopReason> {
    let mut pause = LOOK.0;
    loop {
        let last = match calls.get(COLLECTION, name).await {
            Ok(Some(definition)) => match stage(&definition) {
                Stage::Established => return Ok(Ok(())),
                Stage::Refused(why) => {
                    return Ok(Err(format!("definition {name:?} was refused by the API server: {why}")));
                }
                Stage::Pending => "it is not Established".to_owned(),
            },
            Ok(None) => "it was deleted".to_owned(),
            Err(CallError::Stopped(halt)) => return Err(halt),
            Err(error) => error.to_string(),
        };
        if Instant::now() >= deadline {
            return Ok(Err(format!(
                "definition {name:?} was not ready within --resource-timeout ({last}); its resources may be missing"
            )));
        }
        calls.cancellation().wait(pause).await?;
        pause = (pause * 2).min(LOOK.1);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stage_of(conditions: &Value) -> Stage {
        let definition = json!({"status": {"conditions": conditions}});
        stage(definition.as_object().unwrap())
    }

    #[test]
    fn a_definition_is_ready_once_established() {
        assert_eq!(stage(&Object::new()), Stage::Pending);
        assert_eq!(stage_of(&json!([{"type": "Established", "status": "False"}])), Stage::Pending);
        let both =
            json!([{"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"}]);
        assert_eq!(stage_of(&both), Stage::Established);
    }

    #[test]
    fn a_definition_whose_names_are_taken_is_not_waited_for() {
        let taken = json!([{"type": "NamesAccepted", "status": "False", "message": "in use"}]);
        assert_eq!(stage_of(&taken), Stage::Refused("in use".to_owned()));
    }
}
