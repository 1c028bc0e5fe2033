//! A plugin that sees the items of a backup that is deleted, to remove what it has made outside of the cluster.

use std::{sync::Arc, time::Duration};

use backup_actions::{AppliesTo, ItemAction};
use backup_core::api::Backup;
use serde_json::Value;

use crate::{
    binary::Binary,
    catalog::{Kind, Offer},
    error::PluginError,
    plugin_client::Plugin,
    wire,
};

/// An action that a plugin binary offers.
#[derive(Debug)]
pub struct DeleteAction {
    plugin: Plugin,
    applies_to: AppliesTo,
    limit: Duration,
}

impl DeleteAction {
    /// What a binary offers; none if nobody knows which items it wants to see.
    pub fn new(binary: Arc<Binary>, offer: Offer, limit: Duration) -> Option<Self> {
        let plugin = Plugin::new(binary, offer.name);
        Some(Self { plugin, applies_to: offer.applies_to.ok()?, limit })
    }

    /// Has it look at an item, as it is in the backup. May be done again.
    /// Errors: the item may still have something outside of the cluster.
    pub async fn execute(&self, item: &Value, backup: &Backup) -> Result<(), PluginError> {
        let (plugin, name) = (&self.plugin, "Execute");
        let question = wire::ExecuteRequest {
            plugin: plugin.name.clone(),
            item: plugin.json(item, name)?,
            backup: plugin.json(backup, name)?,
        };
        plugin.execute((Kind::DeleteItemAction.execute(), name), self.limit, None, question).await
    }
}

impl ItemAction for DeleteAction {
    fn name(&self) -> &str {
        &self.plugin.name
    }

    fn applies_to(&self) -> AppliesTo {
        self.applies_to.clone()
    }
}
