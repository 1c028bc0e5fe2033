//! A plugin that says which items belong together.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use backup_actions::{ActionError, AppliesTo, ItemAction, ItemId, backup::ItemBlockAction};
use backup_core::api::Backup;
use serde_json::Value;

use crate::{
    binary::Binary,
    catalog::{Kind, Offer},
    error::PluginError,
    log::PluginLog,
    plugin_client::{Plugin, ids},
    wire,
};

/// An action on blocks that a plugin binary offers.
#[derive(Debug)]
pub(crate) struct BlockAction {
    plugin: Plugin,
    applies_to: AppliesTo,
    limit: Duration,
    log: PluginLog,
}

impl BlockAction {
    /// What a binary offers; none if nobody knows which items it wants to see.
    pub(crate) fn new(binary: Arc<Binary>, offer: Offer, limit: Duration, log: &PluginLog) -> Option<Self> {
        let plugin = Plugin::new(binary, offer.name);
        Some(Self { plugin, applies_to: offer.applies_to.ok()?, limit, log: log.clone() })
    }

    async fn ask(&self, item: &Value, backup: &Backup) -> Result<Vec<ItemId>, PluginError> {
        let (plugin, name) = (&self.plugin, "GetRelatedItems");
        let question = wire::ExecuteRequest {
            plugin: plugin.name.clone(),
            item: plugin.json(item, name)?,
            backup: plugin.json(backup, name)?,
        };
        let method = (Kind::ItemBlockAction.execute(), name);
        let answer: wire::RelatedItems =
            plugin.execute(method, self.limit, Some(&self.log), question).await?;
        ids(answer.related_items).map_err(|reason| plugin.nonsense(name, reason))
    }
}

impl ItemAction for BlockAction {
    fn name(&self) -> &str {
        &self.plugin.name
    }

    fn applies_to(&self) -> AppliesTo {
        self.applies_to.clone()
    }
}

#[async_trait]
impl ItemBlockAction for BlockAction {
    async fn related(&self, item: &Value, backup: &Backup) -> Result<Vec<ItemId>, ActionError> {
        let asked = self.ask(item, backup).await;
        // It changes nothing, so nothing is left open by a call without an answer.
        asked.map_err(|error| ActionError::Retryable {
            action: self.plugin.name.clone(),
            reason: error.to_string(),
        })
    }
}
