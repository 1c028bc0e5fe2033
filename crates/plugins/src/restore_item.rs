//! A plugin as an action on items of a restore.

use std::time::Duration;

use async_trait::async_trait;
use backup_actions::{
    ActionError, ItemId, OperationProgress,
    restore::{
        RestoreActionInput, RestoreActionOutput, RestoreItemAction, RestoreWait, json::Object,
    },
};
use backup_core::{api::Restore, operation::ResourceIdentifier};

use crate::{
    action::{PluginAction, ids, made},
    error::PluginError,
    wire::{self, restore as messages},
};

impl PluginAction {
    async fn restore(
        &self,
        given: RestoreActionInput<'_>,
    ) -> Result<RestoreActionOutput, PluginError> {
        let method = self.kind.execute();
        let sent = self.json(given.item, method)?;
        let question = messages::ExecuteRequest {
            plugin: self.name.clone(),
            item: sent.clone(),
            restore: self.json(given.restore, method)?,
            item_from_backup: self.json(given.from_backup, method)?,
        };
        let answer = self.call(question).await?;
        read(&self.name, &sent, given.item, answer).map_err(|reason| self.nonsense(method, reason))
    }

    async fn additional_items_are_ready(
        &self,
        items: &[ItemId],
        restore: &Restore,
    ) -> Result<bool, PluginError> {
        let method = messages::method::READY;
        let question = messages::ReadyRequest {
            plugin: self.name.clone(),
            restore: self.json(restore, method)?,
            additional_items: items.iter().map(wire_id).collect(),
        };
        let answer: messages::ReadyResponse = self.ask(method, question).await?;
        Ok(answer.ready)
    }
}

#[async_trait]
impl RestoreItemAction for PluginAction {
    fn is_executed_once(&self) -> bool {
        self.starts_operations()
    }

    async fn execute(
        &self,
        given: RestoreActionInput<'_>,
    ) -> Result<RestoreActionOutput, ActionError> {
        self.restore(given)
            .await
            .map_err(|error| self.told(&error, true))
    }

    async fn progress(
        &self,
        operation: &str,
        restore: &Restore,
    ) -> Result<OperationProgress, ActionError> {
        self.progress_of(messages::method::PROGRESS, operation, restore)
            .await
    }

    async fn cancel(&self, operation: &str, restore: &Restore) -> Result<(), ActionError> {
        self.cancel_operation(messages::method::CANCEL, operation, restore)
            .await
    }

    async fn are_ready(&self, items: &[ItemId], restore: &Restore) -> Result<bool, ActionError> {
        self.additional_items_are_ready(items, restore)
            .await
            .map_err(|error| match error {
                // An error means that the items will never be ready.
                PluginError::Refused { .. } => ActionError::Final {
                    action: self.name.clone(),
                    reason: error.to_string(),
                },
                error => self.told(&error, false),
            })
    }
}

/// Decodes the answer about an item that was sent as these bytes; the error says what is wrong with
/// it.
pub(crate) fn read(
    plugin: &str,
    sent: &[u8],
    item: &Object,
    answer: messages::ExecuteResponse,
) -> Result<RestoreActionOutput, String> {
    let skip = answer
        .skip_restore
        .then(|| format!("{plugin} does not want it restored"));
    // The object of a skipped item need not be valid.
    let made = if skip.is_some() {
        None
    } else {
        made(sent, &answer.item)?.filter(|made| made != item)
    };
    let limit = answer.additional_items_ready_timeout.and_then(span);
    Ok(RestoreActionOutput {
        item: made,
        additional: if skip.is_some() {
            Vec::new()
        } else {
            ids(answer.additional_items)?
        },
        operation: Some(answer.operation_id).filter(|id| !id.is_empty()),
        wait: answer
            .wait_for_additional_items
            .then_some(RestoreWait { limit }),
        skip,
    })
}

fn wire_id(item: &ItemId) -> wire::ResourceIdentifier {
    let namespace = item.namespace.as_deref();
    let ResourceIdentifier {
        group,
        resource,
        namespace,
        name,
    } = ResourceIdentifier::new(&item.group_resource, namespace, &item.name);
    wire::ResourceIdentifier {
        group,
        resource,
        namespace,
        name,
    }
}

/// A duration; `None` if it is zero or invalid.
fn span(span: wire::Time) -> Option<Duration> {
    let seconds = u64::try_from(span.seconds).ok()?;
    let nanos = u32::try_from(span.nanos).ok()?;
    let nanos = Duration::from_nanos(u64::from(nanos));
    Duration::from_secs(seconds)
        .checked_add(nanos)
        .filter(|span| !span.is_zero())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(text: &str) -> Object {
        serde_json::from_str(text).unwrap()
    }

    fn answer(item: &str) -> messages::ExecuteResponse {
        messages::ExecuteResponse {
            item: item.as_bytes().to_vec(),
            ..messages::ExecuteResponse::default()
        }
    }

    #[test]
    fn an_answer_is_read() {
        let item = object(r#"{"metadata":{"name":"a","labels":{}}}"#);
        let sent = serde_json::to_vec(&item).unwrap();
        for same in ["", r#"{ "metadata": { "labels": {}, "name": "a" } }"#] {
            assert_eq!(
                read("x/p", &sent, &item, answer(same)).unwrap(),
                RestoreActionOutput::default(),
                "{same}"
            );
        }
        let id = wire::ResourceIdentifier {
            group: "apps".into(),
            resource: "deployments".into(),
            namespace: "n".into(),
            name: "d".into(),
        };
        let full = messages::ExecuteResponse {
            additional_items: vec![id],
            operation_id: "an id\u{0}".into(),
            wait_for_additional_items: true,
            additional_items_ready_timeout: Some(wire::Time {
                seconds: 3,
                nanos: 5,
            }),
            ..answer(r#"{"metadata":{"name":"b"}}"#)
        };
        let executed = read("x/p", &sent, &item, full.clone()).unwrap();
        let additional = ItemId::new("deployments.apps", Some("n"), "d");
        assert_eq!(
            executed,
            RestoreActionOutput {
                item: json!({ "metadata": { "name": "b" } }).as_object().cloned(),
                additional: vec![additional],
                skip: None,
                operation: Some("an id\u{0}".into()),
                wait: Some(RestoreWait {
                    limit: Some(Duration::new(3, 5))
                }),
            }
        );
        // An item whose operation was started may still be skipped.
        let skipped = read(
            "x/p",
            &sent,
            &item,
            messages::ExecuteResponse {
                skip_restore: true,
                ..full
            },
        )
        .unwrap();
        assert!(skipped.skip.is_some() && skipped.additional.is_empty() && skipped.item.is_none());
        assert_eq!(skipped.operation.as_deref(), Some("an id\u{0}"));
    }

    #[test]
    fn nonsense_is_told() {
        let item = object(r#"{"metadata":{"name":"a"}}"#);
        for (text, reason) in [
            ("no JSON", "no JSON"),
            ("[]", "without a name"),
            ("{}", "without a name"),
        ] {
            let error = read("x/p", b"", &item, answer(text)).unwrap_err();
            assert_says!(error, reason);
        }
        let nameless = messages::ExecuteResponse {
            additional_items: vec![wire::ResourceIdentifier::default()],
            ..answer("")
        };
        assert_says!(
            read("x/p", b"", &item, nameless).unwrap_err(),
            "without a type or a name"
        );
    }

    #[rstest::rstest]
    #[case(0, 0, None)]
    #[case(-5, 0, None)]
    #[case(1, -1, None)]
    #[case(2, 500_000_000, Some(Duration::from_millis(2_500)))]
    fn no_time_is_the_servers_own(
        #[case] seconds: i64,
        #[case] nanos: i32,
        #[case] expected: Option<Duration>,
    ) {
        assert_eq!(span(wire::Time { seconds, nanos }), expected);
    }
}
