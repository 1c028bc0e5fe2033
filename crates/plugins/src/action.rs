//! An action that a plugin binary offers.

use std::{sync::Arc, time::Duration};

use backup_actions::{ActionError, AppliesTo, ItemAction, OperationProgress};
use serde::Serialize;

use crate::{
    binary::Binary,
    catalog::{Kind, Offer},
    error::PluginError,
    log::PluginLog,
    plugin_client::Plugin,
    wire::{Answer, Question},
};

/// An action of any kind: `backup_item` and `restore_item` are what it does.
#[derive(Debug)]
pub struct PluginAction {
    pub(crate) plugin: Plugin,
    kind: Kind,
    applies_to: AppliesTo,
    /// How long it may take for an item.
    limit: Duration,
    log: Option<PluginLog>,
}

impl PluginAction {
    /// What a binary offers; none if it is not known which items it applies to.
    pub(crate) fn new(
        binary: Arc<Binary>,
        offer: Offer,
        limit: Duration,
        log: Option<&PluginLog>,
    ) -> Option<Self> {
        let plugin = Plugin::new(binary, offer.name);
        Some(Self { plugin, kind: offer.kind, applies_to: offer.applies_to.ok()?, limit, log: log.cloned() })
    }

    /// Calls the method of its kind that works on an item; `name` is what people call the method.
    pub(crate) async fn call<Q: Question, A: Answer>(
        &self,
        name: &'static str,
        question: Q,
    ) -> Result<A, PluginError> {
        self.plugin.execute(self.kind.execute(), name, self.limit, self.log.as_ref(), question).await
    }

    /// Whether it is of a kind that starts operations: the older kinds do not.
    pub(crate) fn starts_operations(&self) -> bool {
        matches!(self.kind, Kind::BackupItemActionV2 | Kind::RestoreItemActionV2)
    }

    /// How far an operation of a backup or restore is.
    pub(crate) async fn progress_of(
        &self,
        method: &'static str,
        operation: &str,
        subject: &impl Serialize,
    ) -> Result<OperationProgress, ActionError> {
        let progress = if self.starts_operations() {
            self.plugin.progress(method, operation, subject).await
        } else {
            Err(self.plugin.starts_none("Progress", operation))
        };
        progress.map_err(|error| self.plugin.told(&error, false))
    }

    /// Asks an operation of a backup or restore to end.
    pub(crate) async fn cancel_operation(
        &self,
        method: &'static str,
        operation: &str,
        subject: &impl Serialize,
    ) -> Result<(), ActionError> {
        let answer = if self.starts_operations() {
            self.plugin.about(method, "Cancel", operation, subject).await
        } else {
            Err(self.plugin.starts_none("Cancel", operation))
        };
        answer.map_err(|error| self.plugin.told(&error, false))
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
