//! A plugin as an action on items of a backup.

use std::{sync::Arc, time::Duration};

use backup_core::{api::Backup, operation::ResourceIdentifier};
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::Value;

use super::{
    binary::{Binary, Call},
    error::PluginError,
    log::PluginLog,
    offers::{Kind, Offer},
    wire::{self, method},
};
use crate::backup::action::{ActionError, AppliesTo, BackupItemAction, Executed, ItemId, OperationProgress};

/// How long a plugin may take to say how far an operation is, or to tell it to stop. Who asks waits a little longer, so that a process that is dead
/// to the world is found out.
const ASKED: Duration = Duration::from_secs(15);

/// An action that a plugin binary offers.
#[derive(Debug)]
pub struct PluginAction {
    binary: Arc<Binary>,
    name: String,
    kind: Kind,
    applies_to: AppliesTo,
    /// How long it may take for an item.
    limit: Duration,
    log: PluginLog,
}

impl PluginAction {
    /// What a binary offers; none if nobody knows which items it wants to see.
    pub fn new(binary: Arc<Binary>, offer: &Offer, limit: Duration, log: &PluginLog) -> Option<Self> {
        Some(Self {
            binary,
            name: offer.name.clone(),
            kind: offer.kind,
            applies_to: offer.applies_to.clone().ok()?,
            limit,
            log: log.clone(),
        })
    }

    async fn executed(&self, item: &Value, backup: &Backup) -> Result<Executed, PluginError> {
        let call = Call {
            plugin: &self.name,
            method: self.kind.execute(),
            name: "Execute",
            limit: self.limit,
            log: Some(&self.log),
        };
        let sent = self.json(item, call.name)?;
        let question = wire::ExecuteRequest {
            plugin: self.name.clone(),
            item: sent.clone(),
            backup: self.json(backup, call.name)?,
        };
        let answer: wire::ExecuteResponse = self.binary.call(call, question).await?;
        let nonsense = |reason: String| self.nonsense(call.name, reason);
        read(&sent, item, answer).map_err(nonsense)
    }

    /// Asks the newer kind about an operation; the older one starts none.
    async fn about<A: prost::Message + Default + 'static>(
        &self,
        method: &'static str,
        name: &'static str,
        operation: &str,
        backup: &Backup,
    ) -> Result<A, PluginError> {
        if self.kind == Kind::BackupItemAction {
            return Err(PluginError::Refused {
                binary: self.binary.path(),
                plugin: self.name.clone(),
                call: name,
                reason: format!("it starts no operations, so it does not know {operation:?}"),
                lasting: true,
            });
        }
        let call = Call { plugin: &self.name, method, name, limit: ASKED, log: None };
        let question = wire::OperationRequest {
            plugin: self.name.clone(),
            operation_id: operation.to_owned(),
            backup: self.json(backup, name)?,
        };
        self.binary.call(call, question).await
    }

    fn json(&self, value: &impl serde::Serialize, call: &'static str) -> Result<Vec<u8>, PluginError> {
        serde_json::to_vec(value).map_err(|error| PluginError::Refused {
            binary: self.binary.path(),
            plugin: self.name.clone(),
            call,
            reason: format!("what it is asked can not be written as JSON: {error}"),
            lasting: true,
        })
    }

    fn nonsense(&self, call: &'static str, reason: String) -> PluginError {
        PluginError::Nonsense { binary: self.binary.path(), plugin: self.name.clone(), call, reason }
    }

    /// `executing`: what was asked for may have happened all the same.
    fn told(&self, error: &PluginError, executing: bool) -> ActionError {
        tracing::warn!(category = error.category(), %error, "a plugin failed");
        let (action, reason) = (self.name.clone(), error.to_string());
        if executing && error.leaves_outcome_unknown() {
            ActionError::Unknown { action, reason }
        } else if error.is_lasting() {
            ActionError::Final { action, reason }
        } else {
            ActionError::Passing { action, reason }
        }
    }
}

impl BackupItemAction for PluginAction {
    fn name(&self) -> &str {
        &self.name
    }

    fn applies_to(&self) -> &AppliesTo {
        &self.applies_to
    }

    /// The older kind starts nothing.
    fn is_executed_once(&self) -> bool {
        self.kind == Kind::BackupItemActionV2
    }

    fn execute<'a>(
        &'a self,
        item: &'a Value,
        backup: &'a Backup,
    ) -> BoxFuture<'a, Result<Executed, ActionError>> {
        Box::pin(async { self.executed(item, backup).await.map_err(|error| self.told(&error, true)) })
    }

    fn progress<'a>(
        &'a self,
        operation: &'a str,
        backup: &'a Backup,
    ) -> BoxFuture<'a, Result<OperationProgress, ActionError>> {
        Box::pin(async move {
            let asked = self.about(method::PROGRESS, "Progress", operation, backup).await;
            let progress = asked.and_then(|answer: wire::ProgressResponse| {
                answer.progress.ok_or_else(|| self.nonsense("Progress", "it says nothing".to_owned()))
            });
            progress.map(progress_of).map_err(|error| self.told(&error, false))
        })
    }

    fn cancel<'a>(
        &'a self,
        operation: &'a str,
        backup: &'a Backup,
    ) -> BoxFuture<'a, Result<(), ActionError>> {
        Box::pin(async move {
            let told: Result<(), _> = self.about(method::CANCEL, "Cancel", operation, backup).await;
            told.map_err(|error| self.told(&error, false))
        })
    }
}

/// What an answer says about an item that was sent as these bytes; the error says what is wrong with it.
fn read(sent: &[u8], item: &Value, answer: wire::ExecuteResponse) -> Result<Executed, String> {
    let wire::ExecuteResponse { item: made, additional_items, operation_id, post_operation_items } = answer;
    // Who changes nothing sends back what it was given.
    let made = if made.is_empty() || made == sent {
        None
    } else {
        let made: Value =
            serde_json::from_slice(&made).map_err(|error| format!("the item is no JSON: {error}"))?;
        let has_name = made.pointer("/metadata/name").and_then(Value::as_str).is_some();
        if !has_name {
            return Err("the item is an object without a name".to_owned());
        }
        Some(made).filter(|made| made != item)
    };
    Ok(Executed {
        item: made,
        additional: ids(additional_items)?,
        operation: Some(operation_id).filter(|id| !id.is_empty()),
        after_operation: ids(post_operation_items)?,
    })
}

/// Objects that an answer names; the error says what is wrong with one.
pub(super) fn ids(all: Vec<wire::ResourceIdentifier>) -> Result<Vec<ItemId>, String> {
    let id = |wire::ResourceIdentifier { group, resource, namespace, name }| {
        if resource.is_empty() || name.is_empty() {
            return Err(format!("it asks for an object without a type or a name: {resource:?} {name:?}"));
        }
        let id = ResourceIdentifier { group, resource, namespace, name };
        Ok(ItemId {
            group_resource: id.group_resource(),
            namespace: id.namespace().map(str::to_owned),
            name: id.name,
        })
    };
    all.into_iter().map(id).collect()
}

fn progress_of(progress: wire::OperationProgress) -> OperationProgress {
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

/// A time; none for Go's zero and for 1970, with which plugins say that they do not know (Velero
/// `pkg/plugin/velero/shared.go`, v1.18), and for what is no time.
fn time(time: wire::Timestamp) -> Option<Timestamp> {
    Timestamp::new(time.seconds, time.nanos).ok().filter(|time| *time > Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn id(group: &str, resource: &str, namespace: &str, name: &str) -> wire::ResourceIdentifier {
        wire::ResourceIdentifier {
            group: group.into(),
            resource: resource.into(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    fn answer(item: &str) -> wire::ExecuteResponse {
        wire::ExecuteResponse { item: item.as_bytes().to_vec(), ..wire::ExecuteResponse::default() }
    }

    #[test]
    fn an_item_that_comes_back_as_it_was_is_not_changed() {
        let item = json!({ "metadata": { "name": "a", "labels": { "x": "y" } } });
        let sent = serde_json::to_vec(&item).unwrap();
        for same in [
            String::from_utf8(sent.clone()).unwrap(),
            String::new(),
            r#"{ "metadata": { "labels": { "x": "y" }, "name": "a" } }"#.to_owned(),
        ] {
            assert_eq!(read(&sent, &item, answer(&same)).unwrap(), Executed::default(), "{same}");
        }
        let changed = read(&sent, &item, answer(r#"{"metadata":{"name":"b"}}"#)).unwrap();
        assert_eq!(changed.item, Some(json!({ "metadata": { "name": "b" } })));
    }

    #[test]
    fn nonsense_is_told() {
        let item = json!({ "metadata": { "name": "a" } });
        for (text, reason) in [
            ("no JSON", "no JSON"),
            ("[]", "without a name"),
            ("{}", "without a name"),
            (r#"{"metadata":{"name":7}}"#, "without a name"),
        ] {
            let error = read(b"", &item, answer(text)).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        let nameless =
            wire::ExecuteResponse { additional_items: vec![id("", "pods", "a", "")], ..answer("") };
        assert!(read(b"", &item, nameless).unwrap_err().contains("without a type or a name"));
    }

    #[test]
    fn what_else_an_answer_has_is_read() {
        let answer = wire::ExecuteResponse {
            additional_items: vec![id("apps", "deployments", "n", "d"), id("", "nodes", "", "x")],
            operation_id: "an id\u{0}".into(),
            post_operation_items: vec![id("", "pods", "n", "p")],
            ..answer("")
        };
        let executed = read(b"", &Value::Null, answer).unwrap();
        let item = |group_resource: &str, namespace: Option<&str>, name: &str| ItemId {
            group_resource: group_resource.into(),
            namespace: namespace.map(str::to_owned),
            name: name.into(),
        };
        assert_eq!(executed.additional, [item("deployments.apps", Some("n"), "d"), item("nodes", None, "x")]);
        assert_eq!(executed.operation.as_deref(), Some("an id\u{0}"));
        assert_eq!(executed.after_operation, [item("pods", Some("n"), "p")]);
    }

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
        let time = time(wire::Timestamp { seconds, nanos });
        assert_eq!(time.map(|time| time.to_string()).as_deref(), expected);
    }
}
