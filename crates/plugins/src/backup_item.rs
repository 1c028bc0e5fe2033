//! Plugins as actions on items of a backup: those that change items, those that say which items
//! belong together, and those that remove their data outside of the cluster when a backup is
//! deleted.

use async_trait::async_trait;
use backup_actions::{
    ActionError, ItemId, OperationProgress,
    backup::{BackupActionOutput, BackupItemAction, ItemBlockAction},
};
use backup_core::api::Backup;
use serde_json::Value;

use crate::{
    action::{PluginAction, ids, made},
    error::PluginError,
    wire::{self, method},
};

impl PluginAction {
    fn question(&self, item: &Value, backup: &Backup) -> Result<wire::ExecuteRequest, PluginError> {
        let method = self.kind.execute();
        Ok(wire::ExecuteRequest {
            plugin: self.name.clone(),
            item: self.json(item, method)?,
            backup: self.json(backup, method)?,
        })
    }

    async fn back_up(
        &self,
        item: &Value,
        backup: &Backup,
    ) -> Result<BackupActionOutput, PluginError> {
        let question = self.question(item, backup)?;
        let sent = question.item.clone();
        let answer = self.call(question).await?;
        read(&sent, item, answer).map_err(|reason| self.nonsense(self.kind.execute(), reason))
    }

    async fn related_items(
        &self,
        item: &Value,
        backup: &Backup,
    ) -> Result<Vec<ItemId>, PluginError> {
        let answer: wire::RelatedItems = self.call(self.question(item, backup)?).await?;
        ids(answer.related_items).map_err(|reason| self.nonsense(self.kind.execute(), reason))
    }

    /// Calls it with an item of a backup that is being deleted, as stored in the backup. Safe to
    /// repeat. Errors: data of the item may still exist outside of the cluster.
    pub async fn delete_item(&self, item: &Value, backup: &Backup) -> Result<(), PluginError> {
        self.call(self.question(item, backup)?).await
    }
}

#[async_trait]
impl BackupItemAction for PluginAction {
    fn is_executed_once(&self) -> bool {
        self.starts_operations()
    }

    async fn execute(
        &self,
        item: &Value,
        backup: &Backup,
    ) -> Result<BackupActionOutput, ActionError> {
        self.back_up(item, backup)
            .await
            .map_err(|error| self.told(&error, true))
    }

    async fn progress(
        &self,
        operation: &str,
        backup: &Backup,
    ) -> Result<OperationProgress, ActionError> {
        self.progress_of(method::PROGRESS, operation, backup).await
    }

    async fn cancel(&self, operation: &str, backup: &Backup) -> Result<(), ActionError> {
        self.cancel_operation(method::CANCEL, operation, backup)
            .await
    }
}

#[async_trait]
impl ItemBlockAction for PluginAction {
    async fn related(&self, item: &Value, backup: &Backup) -> Result<Vec<ItemId>, ActionError> {
        // It changes nothing, so a call without an answer has no unknown effects.
        self.related_items(item, backup)
            .await
            .map_err(|error| ActionError::Retryable {
                action: self.name.clone(),
                reason: error.to_string(),
            })
    }
}

/// Decodes the answer about an item that was sent as these bytes; the error says what is wrong with
/// it.
pub(crate) fn read(
    sent: &[u8],
    item: &Value,
    answer: wire::ExecuteResponse,
) -> Result<BackupActionOutput, String> {
    let wire::ExecuteResponse {
        item: answered,
        additional_items,
        operation_id,
        post_operation_items,
    } = answer;
    Ok(BackupActionOutput {
        item: made(sent, &answered)?
            .map(Value::Object)
            .filter(|made| made != item),
        additional: ids(additional_items)?,
        operation: Some(operation_id).filter(|id| !id.is_empty()),
        after_operation: ids(post_operation_items)?,
    })
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
        wire::ExecuteResponse {
            item: item.as_bytes().to_vec(),
            ..wire::ExecuteResponse::default()
        }
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
            assert_eq!(
                read(&sent, &item, answer(&same)).unwrap(),
                BackupActionOutput::default(),
                "{same}"
            );
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
            assert_says!(error, reason);
        }
        let nameless = wire::ExecuteResponse {
            additional_items: vec![id("", "pods", "a", "")],
            ..answer("")
        };
        assert_says!(
            read(b"", &item, nameless).unwrap_err(),
            "without a type or a name"
        );
    }

    #[test]
    fn what_else_an_answer_has_is_read() {
        let answer = wire::ExecuteResponse {
            additional_items: vec![
                id("apps", "deployments", "n", "d"),
                id("", "nodes", "", "x"),
            ],
            operation_id: "an id\u{0}".into(),
            post_operation_items: vec![id("", "pods", "n", "p")],
            ..answer("")
        };
        let executed = read(b"", &Value::Null, answer).unwrap();
        assert_eq!(
            executed.additional,
            [
                ItemId::new("deployments.apps", Some("n"), "d"),
                ItemId::new("nodes", None, "x")
            ]
        );
        assert_eq!(executed.operation.as_deref(), Some("an id\u{0}"));
        assert_eq!(
            executed.after_operation,
            [ItemId::new("pods", Some("n"), "p")]
        );
    }
}
