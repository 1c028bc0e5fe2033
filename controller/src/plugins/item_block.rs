//! A plugin that says which items belong together.

use std::{sync::Arc, time::Duration};

use backup_core::api::Backup;
use futures::future::BoxFuture;
use serde_json::Value;

use super::{
    asking::ids,
    binary::{Binary, Call},
    error::PluginError,
    log::PluginLog,
    offers::{Kind, Offer},
    wire,
};
use crate::backup::{
    action::{ActionError, AppliesTo, ItemId},
    block_action::ItemBlockAction,
};

/// What belongs to an item. (The question is that of all kinds of actions on backups.)
#[derive(Clone, PartialEq, prost::Message)]
pub struct RelatedItems {
    /// All of it.
    #[prost(message, repeated, tag = "1")]
    pub related_items: Vec<wire::ResourceIdentifier>,
}

/// An action on blocks that a plugin binary offers.
#[derive(Debug)]
pub struct BlockAction {
    binary: Arc<Binary>,
    name: String,
    applies_to: AppliesTo,
    limit: Duration,
    log: PluginLog,
}

impl BlockAction {
    /// What a binary offers; none if nobody knows which items it wants to see.
    pub fn new(binary: Arc<Binary>, offer: Offer, limit: Duration, log: &PluginLog) -> Option<Self> {
        Some(Self { binary, name: offer.name, applies_to: offer.applies_to.ok()?, limit, log: log.clone() })
    }

    async fn ask(&self, item: &Value, backup: &Backup) -> Result<Vec<ItemId>, PluginError> {
        let call = Call {
            plugin: &self.name,
            method: Kind::ItemBlockAction.execute(),
            name: "GetRelatedItems",
            limit: self.limit,
            log: Some(&self.log),
        };
        let (binary, plugin) = (self.binary.path(), self.name.clone());
        let json = |value: serde_json::Result<Vec<u8>>| {
            value.map_err(|error| PluginError::Refused {
                binary: binary.clone(),
                plugin: plugin.clone(),
                call: call.name,
                reason: format!("what it is asked can not be written as JSON: {error}"),
                lasting: true,
            })
        };
        let question = wire::ExecuteRequest {
            plugin: self.name.clone(),
            item: json(serde_json::to_vec(item))?,
            backup: json(serde_json::to_vec(backup))?,
        };
        let answer: RelatedItems = self.binary.call(call, question).await?;
        ids(answer.related_items).map_err(|reason| PluginError::Nonsense {
            binary,
            plugin,
            call: call.name,
            reason,
        })
    }
}

impl ItemBlockAction for BlockAction {
    fn name(&self) -> &str {
        &self.name
    }

    fn applies_to(&self) -> &AppliesTo {
        &self.applies_to
    }

    fn related<'a>(
        &'a self,
        item: &'a Value,
        backup: &'a Backup,
    ) -> BoxFuture<'a, Result<Vec<ItemId>, ActionError>> {
        Box::pin(async {
            let asked = self.ask(item, backup).await;
            // It changes nothing, so nothing is left open by a call without an answer.
            asked.map_err(|error| ActionError::Passing {
                action: self.name.clone(),
                reason: error.to_string(),
            })
        })
    }
}
