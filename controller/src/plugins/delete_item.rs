//! A plugin that sees the items of a backup that is deleted, to remove what it has made outside of the cluster.

use std::{sync::Arc, time::Duration};

use backup_core::api::Backup;
use serde_json::Value;

use super::{
    binary::{Binary, Call},
    error::PluginError,
    offers::{Kind, Offer},
    wire,
};
use crate::backup::action::AppliesTo;

/// An action that a plugin binary offers.
#[derive(Debug)]
pub struct DeleteAction {
    binary: Arc<Binary>,
    name: String,
    applies_to: AppliesTo,
    limit: Duration,
}

impl DeleteAction {
    /// What a binary offers; none if nobody knows which items it wants to see.
    pub fn new(binary: Arc<Binary>, offer: Offer, limit: Duration) -> Option<Self> {
        Some(Self { binary, name: offer.name, applies_to: offer.applies_to.ok()?, limit })
    }

    /// Its name, as `domain/name`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which items it wants to see.
    pub fn applies_to(&self) -> &AppliesTo {
        &self.applies_to
    }

    /// Has it look at an item, as it is in the backup. May be done again.
    ///
    /// # Errors
    /// The item may still have something outside of the cluster.
    pub async fn execute(&self, item: &Value, backup: &Backup) -> Result<(), PluginError> {
        let call = Call {
            plugin: &self.name,
            method: Kind::DeleteItemAction.execute(),
            name: "Execute",
            limit: self.limit,
            log: None,
        };
        let json = |value: serde_json::Result<Vec<u8>>| {
            value.map_err(|error| PluginError::Refused {
                binary: self.binary.path(),
                plugin: self.name.clone(),
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
        self.binary.call(call, question).await
    }
}
