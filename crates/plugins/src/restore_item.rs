//! A plugin as an action on items of a restore.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use backup_actions::{
    ActionError, AppliesTo, ItemAction, ItemId, OperationProgress,
    restore::{RestoreActionInput, RestoreActionOutput, RestoreItemAction, RestoreWait, json::Object},
};
use backup_core::{api::Restore, operation::ResourceIdentifier};

use crate::{
    binary::Binary,
    catalog::{Kind, Offer},
    error::PluginError,
    log::PluginLog,
    plugin_client::{Plugin, ids, made},
    wire::{self, restore as messages},
};

/// An action that a plugin binary offers.
#[derive(Debug)]
pub struct RestoreAction {
    plugin: Plugin,
    kind: Kind,
    applies_to: AppliesTo,
    /// How long it may take for an item.
    limit: Duration,
    log: PluginLog,
}

impl RestoreAction {
    /// What a binary offers; none if nobody knows which items it wants to see.
    pub fn new(binary: Arc<Binary>, offer: Offer, limit: Duration, log: &PluginLog) -> Option<Self> {
        let applies_to = offer.applies_to.ok()?;
        let plugin = Plugin::new(binary, offer.name);
        Some(Self { plugin, kind: offer.kind, applies_to, limit, log: log.clone() })
    }

    async fn executed(&self, given: RestoreActionInput<'_>) -> Result<RestoreActionOutput, PluginError> {
        let plugin = &self.plugin;
        let sent = plugin.json(given.item, "Execute")?;
        let question = messages::ExecuteRequest {
            plugin: plugin.name.clone(),
            item: sent.clone(),
            restore: plugin.json(given.restore, "Execute")?,
            item_from_backup: plugin.json(given.from_backup, "Execute")?,
        };
        let answer =
            plugin.execute((self.kind.execute(), "Execute"), self.limit, Some(&self.log), question).await?;
        read(&plugin.name, &sent, given.item, answer).map_err(|reason| plugin.nonsense("Execute", reason))
    }

    async fn ready(&self, items: &[ItemId], restore: &Restore) -> Result<bool, PluginError> {
        let id = |item: &ItemId| {
            let namespace = item.namespace.as_deref();
            let id = ResourceIdentifier::new(&item.group_resource, namespace, &item.name);
            wire::ResourceIdentifier {
                group: id.group,
                resource: id.resource,
                namespace: id.namespace,
                name: id.name,
            }
        };
        let call = "AreAdditionalItemsReady";
        let question = messages::ReadyRequest {
            plugin: self.plugin.name.clone(),
            restore: self.plugin.json(restore, call)?,
            additional_items: items.iter().map(id).collect(),
        };
        let answer: messages::ReadyResponse =
            self.plugin.ask(messages::method::READY, call, question).await?;
        Ok(answer.ready)
    }

    /// The older kind starts no operations.
    fn starts(&self, call: &'static str, operation: &str) -> Result<(), PluginError> {
        match self.kind {
            Kind::RestoreItemAction => Err(self.plugin.starts_none(call, operation)),
            _ => Ok(()),
        }
    }
}

impl ItemAction for RestoreAction {
    fn name(&self) -> &str {
        &self.plugin.name
    }

    fn applies_to(&self) -> AppliesTo {
        self.applies_to.clone()
    }
}

#[async_trait]
impl RestoreItemAction for RestoreAction {
    /// The older kind starts nothing.
    fn is_executed_once(&self) -> bool {
        self.kind == Kind::RestoreItemActionV2
    }

    fn may_add_items(&self) -> bool {
        true
    }

    async fn execute(&self, given: RestoreActionInput<'_>) -> Result<RestoreActionOutput, ActionError> {
        self.executed(given).await.map_err(|error| self.plugin.told(&error, true))
    }

    async fn progress(&self, operation: &str, restore: &Restore) -> Result<OperationProgress, ActionError> {
        let progress = match self.starts("Progress", operation) {
            Ok(()) => self.plugin.progress(messages::method::PROGRESS, operation, restore).await,
            Err(error) => Err(error),
        };
        progress.map_err(|error| self.plugin.told(&error, false))
    }

    async fn cancel(&self, operation: &str, restore: &Restore) -> Result<(), ActionError> {
        let told = match self.starts("Cancel", operation) {
            Ok(()) => self.plugin.about(messages::method::CANCEL, "Cancel", operation, restore).await,
            Err(error) => Err(error),
        };
        told.map_err(|error| self.plugin.told(&error, false))
    }

    async fn are_ready(&self, items: &[ItemId], restore: &Restore) -> Result<bool, ActionError> {
        self.ready(items, restore).await.map_err(|error| match error {
            // With an error it says that they never will be.
            PluginError::Refused { .. } => {
                ActionError::Final { action: self.plugin.name.clone(), reason: error.to_string() }
            }
            error => self.plugin.told(&error, false),
        })
    }
}

/// What an answer says about an item that was sent as these bytes; the error says what is wrong with it.
fn read(
    plugin: &str,
    sent: &[u8],
    item: &Object,
    answer: messages::ExecuteResponse,
) -> Result<RestoreActionOutput, String> {
    let skip = answer.skip_restore.then(|| format!("{plugin} does not want it restored"));
    // What is not restored does not have to make sense.
    let made = if skip.is_some() { None } else { made(sent, &answer.item)?.filter(|made| made != item) };
    let limit = answer.additional_items_ready_timeout.and_then(span);
    Ok(RestoreActionOutput {
        item: made,
        additional: if skip.is_some() { Vec::new() } else { ids(answer.additional_items)? },
        operation: Some(answer.operation_id).filter(|id| !id.is_empty()),
        wait: answer.wait_for_additional_items.then_some(RestoreWait { limit }),
        skip,
    })
}

/// A span of time; none for nothing, and for what is none.
fn span(span: messages::Duration) -> Option<Duration> {
    let (seconds, nanos) = (u64::try_from(span.seconds).ok()?, u32::try_from(span.nanos).ok()?);
    let nanos = Duration::from_nanos(u64::from(nanos));
    Duration::from_secs(seconds).checked_add(nanos).filter(|span| !span.is_zero())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(text: &str) -> Object {
        serde_json::from_str(text).unwrap()
    }

    fn answer(item: &str) -> messages::ExecuteResponse {
        messages::ExecuteResponse { item: item.as_bytes().to_vec(), ..messages::ExecuteResponse::default() }
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
            additional_items: vec![id.clone()],
            operation_id: "an id\u{0}".into(),
            wait_for_additional_items: true,
            additional_items_ready_timeout: Some(messages::Duration { seconds: 3, nanos: 5 }),
            ..answer(r#"{"metadata":{"name":"b"}}"#)
        };
        let executed = read("x/p", &sent, &item, full.clone()).unwrap();
        let additional = ItemId {
            group_resource: "deployments.apps".into(),
            namespace: Some("n".into()),
            name: "d".into(),
        };
        assert_eq!(
            executed,
            RestoreActionOutput {
                item: json!({ "metadata": { "name": "b" } }).as_object().cloned(),
                additional: vec![additional],
                skip: None,
                operation: Some("an id\u{0}".into()),
                wait: Some(RestoreWait { limit: Some(Duration::new(3, 5)) }),
            }
        );
        // What an operation was started for may still be left out.
        let skipped =
            read("x/p", &sent, &item, messages::ExecuteResponse { skip_restore: true, ..full }).unwrap();
        assert!(skipped.skip.is_some() && skipped.additional.is_empty() && skipped.item.is_none());
        assert_eq!(skipped.operation.as_deref(), Some("an id\u{0}"));
    }

    #[test]
    fn nonsense_is_told() {
        let item = object(r#"{"metadata":{"name":"a"}}"#);
        for (text, reason) in [("no JSON", "no JSON"), ("[]", "without a name"), ("{}", "without a name")] {
            let error = read("x/p", b"", &item, answer(text)).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        let nameless = messages::ExecuteResponse {
            additional_items: vec![wire::ResourceIdentifier::default()],
            ..answer("")
        };
        assert!(read("x/p", b"", &item, nameless).unwrap_err().contains("without a type or a name"));
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
        assert_eq!(span(messages::Duration { seconds, nanos }), expected);
    }
}
