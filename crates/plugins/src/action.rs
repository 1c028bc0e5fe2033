//! An action that a plugin binary offers: its calls, and how its answers and errors are
//! interpreted, for all kinds.

use std::{sync::Arc, time::Duration};

use backup_actions::{ActionError, AppliesTo, ItemAction, ItemId, OperationProgress};
use backup_core::operation::ResourceIdentifier;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    binary::{Binary, Call},
    catalog::{Kind, Offer},
    error::PluginError,
    log::PluginLog,
    wire::{self, Answer, Question, name_of},
};

/// Timeout for a plugin to report progress, or to accept a cancellation. The callers' own timeouts
/// are a little longer, so that an unresponsive process is detected.
const ASK_TIMEOUT: Duration = Duration::from_secs(15);

/// An action of any kind; `backup_item` and `restore_item` implement what it does.
#[derive(Debug)]
pub struct PluginAction {
    binary: Arc<Binary>,
    /// As `domain/name`.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    applies_to: AppliesTo,
    /// Timeout for one item.
    limit: Duration,
    log: Option<PluginLog>,
}

impl PluginAction {
    /// Builds an action from a binary's offer; `None` if the items it applies to are unknown.
    pub(crate) fn new(
        binary: Arc<Binary>,
        offer: Offer,
        limit: Duration,
        log: Option<&PluginLog>,
    ) -> Option<Self> {
        let Offer {
            kind,
            name,
            applies_to,
        } = offer;
        Some(Self {
            binary,
            name,
            kind,
            applies_to: applies_to.ok()?,
            limit,
            log: log.cloned(),
        })
    }

    /// Calls the method of its kind that processes an item.
    pub(crate) async fn call<Q: Question, A: Answer>(&self, question: Q) -> Result<A, PluginError> {
        self.binary
            .call(
                Call {
                    plugin: &self.name,
                    method: self.kind.execute(),
                    limit: self.limit,
                    log: self.log.as_ref(),
                },
                question,
            )
            .await
    }

    /// Sends a question that should be answered at once.
    pub(crate) async fn ask<Q: Question, A: Answer>(
        &self,
        method: &'static str,
        question: Q,
    ) -> Result<A, PluginError> {
        self.binary
            .call(
                Call {
                    plugin: &self.name,
                    method,
                    limit: ASK_TIMEOUT,
                    log: None,
                },
                question,
            )
            .await
    }

    /// Whether its kind can start operations: the older kinds cannot.
    pub(crate) fn starts_operations(&self) -> bool {
        matches!(
            self.kind,
            Kind::BackupItemActionV2 | Kind::RestoreItemActionV2
        )
    }

    /// Asks about an operation of a backup or restore, or cancels it.
    async fn about<A: Answer>(
        &self,
        method: &'static str,
        operation: &str,
        subject: &impl Serialize,
    ) -> Result<A, PluginError> {
        if !self.starts_operations() {
            let reason = format!("it starts no operations, so it does not know {operation:?}");
            return Err(self.refused(method, reason));
        }
        let question = wire::OperationRequest {
            plugin: self.name.clone(),
            operation_id: operation.to_owned(),
            subject: self.json(subject, method)?,
        };
        self.ask(method, question).await
    }

    /// The progress of an operation of a backup or restore.
    pub(crate) async fn progress_of(
        &self,
        method: &'static str,
        operation: &str,
        subject: &impl Serialize,
    ) -> Result<OperationProgress, ActionError> {
        let answer = self
            .about::<wire::ProgressResponse>(method, operation, subject)
            .await;
        let progress = answer.and_then(|answer| {
            answer
                .progress
                .ok_or_else(|| self.nonsense(method, "it says nothing".to_owned()))
        });
        progress
            .map(progress_of)
            .map_err(|error| self.told(&error, false))
    }

    /// Cancels an operation of a backup or restore.
    pub(crate) async fn cancel_operation(
        &self,
        method: &'static str,
        operation: &str,
        subject: &impl Serialize,
    ) -> Result<(), ActionError> {
        self.about(method, operation, subject)
            .await
            .map_err(|error| self.told(&error, false))
    }

    pub(crate) fn json(
        &self,
        value: &impl Serialize,
        method: &'static str,
    ) -> Result<Vec<u8>, PluginError> {
        serde_json::to_vec(value).map_err(|error| {
            self.refused(
                method,
                format!("what it is asked can not be written as JSON: {error}"),
            )
        })
    }

    fn refused(&self, method: &'static str, reason: String) -> PluginError {
        PluginError::Refused {
            binary: self.binary.path(),
            plugin: self.name.clone(),
            call: name_of(method),
            reason,
            lasting: true,
        }
    }

    pub(crate) fn nonsense(&self, method: &'static str, reason: String) -> PluginError {
        PluginError::Nonsense {
            binary: self.binary.path(),
            plugin: self.name.clone(),
            call: name_of(method),
            reason,
        }
    }

    /// `executing`: the call may have had its effect despite the error.
    pub(crate) fn told(&self, error: &PluginError, executing: bool) -> ActionError {
        tracing::warn!(category = error.category(), %error, "a plugin failed");
        let action = self.name.clone();
        let reason = error.to_string();
        if executing && error.leaves_outcome_unknown() {
            ActionError::Unknown { action, reason }
        } else if error.is_lasting() {
            ActionError::Final { action, reason }
        } else {
            ActionError::Retryable { action, reason }
        }
    }
}

impl ItemAction for PluginAction {
    fn name(&self) -> &str {
        &self.name
    }

    fn applies_to(&self) -> AppliesTo {
        self.applies_to.clone()
    }
}

/// The object that a plugin returned; `None` if it equals the sent bytes, as plugins that change
/// nothing return their input. The error says what is wrong with it.
pub(crate) fn made(sent: &[u8], answered: &[u8]) -> Result<Option<Map<String, Value>>, String> {
    if answered.is_empty() || answered == sent {
        return Ok(None);
    }
    let made: Value = serde_json::from_slice(answered)
        .map_err(|error| format!("the item is no JSON: {error}"))?;
    match made {
        Value::Object(made)
            if made
                .get("metadata")
                .and_then(|data| data.get("name")?.as_str())
                .is_some() =>
        {
            Ok(Some(made))
        }
        _ => Err("the item is an object without a name".to_owned()),
    }
}

pub(crate) fn ids(all: Vec<wire::ResourceIdentifier>) -> Result<Vec<ItemId>, String> {
    all.into_iter().map(item_id).collect()
}

fn item_id(id: wire::ResourceIdentifier) -> Result<ItemId, String> {
    let wire::ResourceIdentifier {
        group,
        resource,
        namespace,
        name,
    } = id;
    if resource.is_empty() || name.is_empty() {
        return Err(format!(
            "it asks for an object without a type or a name: {resource:?} {name:?}"
        ));
    }
    let id = ResourceIdentifier {
        group,
        resource,
        namespace,
        name,
    };
    Ok(ItemId {
        group_resource: id.group_resource(),
        namespace: id.namespace().map(str::to_owned),
        name: id.name,
    })
}

pub(crate) fn progress_of(progress: wire::OperationProgress) -> OperationProgress {
    OperationProgress {
        completed: progress.completed,
        error: progress.err,
        done: progress.n_completed,
        total: progress.n_total,
        units: progress.operation_units,
        description: progress.description,
        started: progress.started.and_then(time),
        updated: progress.updated.and_then(time),
    }
}

/// A time; `None` if it is invalid, and for Go's zero and 1970, which plugins use for an unknown
/// time (Velero `pkg/plugin/velero/shared.go`, v1.18).
fn time(time: wire::Time) -> Option<Timestamp> {
    Timestamp::new(time.seconds, time.nanos)
        .ok()
        .filter(|time| *time > Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case(-62_135_596_800, 0, None)]
    #[case(0, 0, None)]
    #[case(i64::MAX, 0, None)]
    #[case(1, 2_000_000_000, None)]
    #[case(1_700_000_000, 0, Some("2023-11-14T22:13:20Z"))]
    fn a_time_that_is_not_known_is_none(
        #[case] seconds: i64,
        #[case] nanos: i32,
        #[case] expected: Option<&str>,
    ) {
        let time = time(wire::Time { seconds, nanos });
        assert_eq!(time.map(|time| time.to_string()).as_deref(), expected);
    }
}
