//! A plugin as an action on items of a backup.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use backup_actions::{
    ActionError, AppliesTo, ItemAction, OperationProgress,
    backup::{BackupActionOutput, BackupItemAction},
};
use backup_core::api::Backup;
use serde_json::Value;

use crate::{
    binary::Binary,
    catalog::{Kind, Offer},
    error::PluginError,
    log::PluginLog,
    plugin_client::{Plugin, ids, made},
    wire::{self, method},
};

/// An action that a plugin binary offers.
#[derive(Debug)]
pub(crate) struct PluginAction {
    plugin: Plugin,
    kind: Kind,
    applies_to: AppliesTo,
    /// How long it may take for an item.
    limit: Duration,
    log: PluginLog,
}

impl PluginAction {
    /// What a binary offers; none if nobody knows which items it wants to see.
    pub(crate) fn new(binary: Arc<Binary>, offer: &Offer, limit: Duration, log: &PluginLog) -> Option<Self> {
        Some(Self {
            plugin: Plugin::new(binary, offer.name.clone()),
            kind: offer.kind,
            applies_to: offer.applies_to.clone().ok()?,
            limit,
            log: log.clone(),
        })
    }

    async fn executed(&self, item: &Value, backup: &Backup) -> Result<BackupActionOutput, PluginError> {
        let plugin = &self.plugin;
        let sent = plugin.json(item, "Execute")?;
        let question = wire::ExecuteRequest {
            plugin: plugin.name.clone(),
            item: sent.clone(),
            backup: plugin.json(backup, "Execute")?,
        };
        let answer =
            plugin.execute((self.kind.execute(), "Execute"), self.limit, Some(&self.log), question).await?;
        read(&sent, item, answer).map_err(|reason| plugin.nonsense("Execute", reason))
    }

    /// The older kind starts no operations.
    fn starts(&self, call: &'static str, operation: &str) -> Result<(), PluginError> {
        match self.kind {
            Kind::BackupItemAction => Err(self.plugin.starts_none(call, operation)),
            _ => Ok(()),
        }
    }
}

impl ItemAction for PluginAction {
    fn name(&self) -> &str {
        &self.plugin.name
    }

    fn applies_to(&self) -> AppliesTo {
        self.applies_to.clone()
    }
}

#[async_trait]
impl BackupItemAction for PluginAction {
    /// The older kind starts nothing.
    fn is_executed_once(&self) -> bool {
        self.kind == Kind::BackupItemActionV2
    }

    async fn execute(&self, item: &Value, backup: &Backup) -> Result<BackupActionOutput, ActionError> {
        self.executed(item, backup).await.map_err(|error| self.plugin.told(&error, true))
    }

    async fn progress(&self, operation: &str, backup: &Backup) -> Result<OperationProgress, ActionError> {
        let progress = match self.starts("Progress", operation) {
            Ok(()) => self.plugin.progress(method::PROGRESS, operation, backup).await,
            Err(error) => Err(error),
        };
        progress.map_err(|error| self.plugin.told(&error, false))
    }

    async fn cancel(&self, operation: &str, backup: &Backup) -> Result<(), ActionError> {
        let told = match self.starts("Cancel", operation) {
            Ok(()) => self.plugin.about(method::CANCEL, "Cancel", operation, backup).await,
            Err(error) => Err(error),
        };
        told.map_err(|error| self.plugin.told(&error, false))
    }
}

/// What an answer says about an item that was sent as these bytes; the error says what is wrong with it.
fn read(sent: &[u8], item: &Value, answer: wire::ExecuteResponse) -> Result<BackupActionOutput, String> {
    let wire::ExecuteResponse { item: answered, additional_items, operation_id, post_operation_items } =
        answer;
    Ok(BackupActionOutput {
        item: made(sent, &answered)?.map(Value::Object).filter(|made| made != item),
        additional: ids(additional_items)?,
        operation: Some(operation_id).filter(|id| !id.is_empty()),
        after_operation: ids(post_operation_items)?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use backup_actions::ItemId;

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
            assert_eq!(read(&sent, &item, answer(&same)).unwrap(), BackupActionOutput::default(), "{same}");
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
}
