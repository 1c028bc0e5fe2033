//! Reads objects from the cluster one by one: items that actions ask for, which are written before
//! the item that needs them, and items that are read again when operations have ended (Velero
//! `pkg/backup/backup.go`, `FinalizeBackup`, v1.18).

use backup_actions::ItemId;

use super::{
    collector::{CollectError, Collector, ResourceKind, Sink, fetch},
    item::InclusionReason,
    raw_item::RawItem,
};
use crate::backup::report::scope_of;

/// Maximum length of a chain of items that ask for one another. Built-in actions need three.
const MAX_DEPTH: u8 = 32;

impl<S: Sink> Collector<'_, S> {
    /// Includes an object that `asked_by` asks for. The inner error says why it could not be read;
    /// then `asked_by` is not written either. A missing object is a warning.
    pub(super) async fn include_related(
        &mut self,
        id: &ItemId,
        asked_by: &ItemId,
        reason: InclusionReason,
        depth: u8,
    ) -> Result<Result<(), String>, CollectError> {
        let Some(kind) = self.kind(&id.group_resource) else {
            return Ok(Err(format!(
                "the cluster serves no {} that can be backed up",
                id.group_resource
            )));
        };
        let id = &kind.normalize(id);
        if depth >= MAX_DEPTH {
            return Ok(Err(format!(
                "{MAX_DEPTH} items ask for one another in a row"
            )));
        }
        if let Some(text) = self.block_members.remove(id) {
            self.include_member(&kind, &text, depth + 1).await?;
            return Ok(Ok(()));
        }
        let namespace = id.namespace.as_deref();
        if reason == InclusionReason::Related && !self.allows_related(&kind, namespace)
            || self
                .written
                .seen
                .contains(&kind.group_resource, namespace, &id.name)
        {
            return Ok(Ok(()));
        }
        self.check()?;
        match fetch(self.request.client, &kind, namespace, &id.name).await {
            Ok(Some(text)) => {
                self.output.progress.expect(1);
                self.include(&kind, &text, reason, depth + 1).await?;
            }
            Ok(None) => {
                let message = format!("{asked_by} asks for {id}, which does not exist");
                self.warn(scope_of(asked_by.namespace.as_deref()), message);
            }
            Err(error) => return Ok(Err(error)),
        }
        Ok(Ok(()))
    }

    /// Includes an object of a block that is being written: its pre commands have been run.
    pub(super) async fn include_member(
        &mut self,
        kind: &ResourceKind,
        text: &str,
        depth: u8,
    ) -> Result<(), CollectError> {
        let Ok(item) = RawItem::parse(text) else {
            return Ok(());
        };
        if self
            .written
            .seen
            .insert(&kind.group_resource, item.namespace(), item.name())
        {
            self.output.progress.expect(1);
            self.store(kind, &item, depth).await?;
        }
        Ok(())
    }

    pub(super) fn allows_related(&self, kind: &ResourceKind, namespace: Option<&str>) -> bool {
        let plan = self.request.plan;
        plan.filter.allows_related(&kind.resource)
            && namespace.is_none_or(|namespace| plan.namespaces.includes(namespace))
    }

    /// Replaces a written item by its final state. Actions have asked for it, so no filter applies.
    pub(super) async fn update(
        &mut self,
        id: &ItemId,
        completed: bool,
    ) -> Result<(), CollectError> {
        self.request.cancellation.check()?;
        let scope = scope_of(id.namespace.as_deref());
        let Some(kind) = self.kind(&id.group_resource) else {
            self.error(
                scope,
                format!("{id} could not be read again: the cluster does not serve it"),
            );
            return Ok(());
        };
        let namespace = id.namespace.as_deref().filter(|_| kind.resource.namespaced);
        match fetch(self.request.client, &kind, namespace, &id.name).await {
            Ok(Some(text)) => {
                self.include(&kind, &text, InclusionReason::Required, 0)
                    .await?;
            }
            Ok(None) => {
                if completed {
                    let message = format!(
                        "{id} is gone after its operation has completed: this backup holds it as it was before"
                    );
                    self.warn(scope, message);
                } else {
                    // A failed operation often removes the object that it should have changed.
                    self.output
                        .report
                        .info(&format!("{id} is gone after its operation"));
                }
            }
            Err(reason) => {
                let message = format!(
                    "{id} could not be read again after its operation: this backup holds it as it was before: {reason}"
                );
                self.error(scope, message);
            }
        }
        Ok(())
    }
}
