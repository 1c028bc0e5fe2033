//! Includes one object in the backup: decides whether it belongs there, runs its actions and
//! snapshots of volumes, and writes it once (Velero `pkg/backup/item_backupper.go`, v1.18).

use backup_actions::{
    ActionError, ItemId,
    backup::{BackupActionOutput, BackupItemAction},
    json::text as text_of,
};
use backup_core::{
    labels::{MUST_INCLUDE_ADDITIONAL_ITEMS, SKIP_FROM_BACKUP},
    resource_policy::PolicyRule,
    resources::{CLAIMS, DEFINITIONS, PODS, VOLUMES},
};
use backup_store::{ItemPath, Scope};
use jiff::Timestamp;
use serde_json::Value;

use super::{
    collector::{CollectError, Collector, ResourceKind, Sink},
    raw_item::RawItem,
};
use crate::{
    backup::{
        actions::{Done, StartedOperation},
        report::scope_of,
        volume_snapshots::VolumeWithClaim,
    },
    job::cancellation::unless_cancelled,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InclusionReason {
    /// A list of selected items holds it.
    Listed,
    /// Another item needs it. The filters of types and namespaces apply, label selectors do not.
    Related,
    /// Another item needs it, and an action said that no filter applies.
    Required,
}

/// Whether an item belongs into the backup.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Belonging {
    Yes,
    No,
    /// It was selected, and is left out; a message for the log.
    LeftOut(String),
}

enum ActionResult {
    Unchanged,
    Changed(Value),
    /// It is not stored; the report says why.
    Dropped,
}

impl<S: Sink> Collector<'_, S> {
    /// Includes an object; true if it was written. Errors are in the report. `depth` is the number
    /// of items in the chain of requests before it.
    pub(super) async fn include(
        &mut self,
        kind: &ResourceKind,
        text: &str,
        reason: InclusionReason,
        depth: u8,
    ) -> Result<bool, CollectError> {
        let item = match RawItem::parse(text) {
            Ok(item) => item,
            Err(error) => {
                let message = format!(
                    "an object in the list of {} cannot be read: {error}",
                    kind.group_resource
                );
                self.error(Scope::Velero, message);
                return Ok(false);
            }
        };
        if !self.belongs(kind, &item, reason)
            || !self
                .written
                .seen
                .insert(&kind.unique_name, item.namespace(), item.name())
        {
            return Ok(false);
        }
        if let Some(hooks) = self.request.hooks
            && (kind
                .blocks
                .iter()
                .any(|block| block.applies_to(item.namespace(), || item.labels()))
                || self.hooks_of(kind, &item).is_some())
        {
            return Box::pin(self.include_block(kind, &item, depth, hooks)).await;
        }
        self.store(kind, &item, depth).await
    }

    /// Writes an item, after its actions if there are any.
    pub(super) async fn store(
        &mut self,
        kind: &ResourceKind,
        item: &RawItem<'_>,
        depth: u8,
    ) -> Result<bool, CollectError> {
        if kind.actions_for(item).next().is_none() {
            return self.write(kind, item).await;
        }
        // Boxed, because related items are included recursively.
        let changed = match Box::pin(self.run_actions(kind, item, depth)).await? {
            ActionResult::Unchanged => return self.write(kind, item).await,
            ActionResult::Dropped => return Ok(false),
            ActionResult::Changed(changed) => changed.to_string(),
        };
        // Actions may rename the item.
        match RawItem::parse(&changed) {
            Ok(changed) => self.write(kind, &changed).await,
            Err(error) => {
                let reason = format!("actions made something of it that is no object: {error}");
                self.report_dropped(kind, item, &reason);
                Ok(false)
            }
        }
    }

    pub(super) fn belongs(
        &mut self,
        kind: &ResourceKind,
        item: &RawItem<'_>,
        reason: InclusionReason,
    ) -> bool {
        match self.belonging(kind, item, reason) {
            Belonging::Yes => true,
            Belonging::No => false,
            Belonging::LeftOut(message) => {
                self.output.report.info(&message);
                false
            }
        }
    }

    pub(super) fn belonging(
        &self,
        kind: &ResourceKind,
        item: &RawItem<'_>,
        reason: InclusionReason,
    ) -> Belonging {
        if item.is_being_deleted() {
            return Belonging::No;
        }
        if reason == InclusionReason::Required {
            return Belonging::Yes;
        }
        let plan = self.request.plan;
        if item
            .namespace()
            .is_some_and(|namespace| !plan.namespaces.includes(namespace))
            || reason == InclusionReason::Related && !plan.filter.allows_related(&kind.resource)
        {
            return Belonging::No;
        }
        if reason == InclusionReason::Related
            && let PolicyRule::Filter(filter) =
                plan.filters.rule(&kind.group_resource, item.namespace())
            && !filter.names.includes(item.name())
        {
            return Belonging::LeftOut(format!(
                "{} {} is left out: the names in the resource policy do not select it",
                kind.group_resource,
                item.full_name()
            ));
        }
        if item.is_excluded() {
            let message = format!(
                "{} {} is left out: its label asks for it",
                kind.group_resource,
                item.full_name()
            );
            return Belonging::LeftOut(message);
        }
        Belonging::Yes
    }

    /// Runs the actions one after the other, each on the result of the one before. Items that they
    /// ask for are included first.
    async fn run_actions(
        &mut self,
        kind: &ResourceKind,
        item: &RawItem<'_>,
        depth: u8,
    ) -> Result<ActionResult, CollectError> {
        let mut value: Value = match serde_json::from_str(&kind.meta.complete(item)) {
            Ok(value) => value,
            Err(error) => {
                self.report_dropped(kind, item, &format!("it cannot be read: {error}"));
                return Ok(ActionResult::Dropped);
            }
        };
        let mut changed = false;
        let id = kind.id(item);
        // An action sees each version of an item, as with Velero.
        let versioned = ItemId {
            group_resource: kind.unique_name.clone(),
            ..id.clone()
        };
        for selected in kind.actions_for(item) {
            self.check()?;
            let action = &*selected.action;
            let Done { executed, at } = match self.run_action(action, &value, &versioned).await? {
                Ok(done) => done,
                Err(error) => {
                    self.report_dropped(kind, item, &error.to_string());
                    return Ok(ActionResult::Dropped);
                }
            };
            let BackupActionOutput {
                item: made,
                additional,
                operation,
                after_operation,
            } = executed;
            if let Some(made) = made {
                value = made;
                changed = true;
            }
            if let Some(operation) = operation.filter(|operation| !operation.is_empty()) {
                self.collected.operations.push(StartedOperation {
                    action: action.name().to_owned(),
                    item: id.clone(),
                    operation,
                    after: after_operation,
                    created: at,
                });
            }
            if annotation(&value, SKIP_FROM_BACKUP).is_some() {
                self.output.report.info(&format!(
                    "{} {} is left out: {} or its annotation asks for it",
                    kind.group_resource,
                    item.full_name(),
                    action.name()
                ));
                return Ok(ActionResult::Dropped);
            }
            let required = annotation(&value, MUST_INCLUDE_ADDITIONAL_ITEMS)
                .is_some_and(|text| text == "true");
            changed |= remove_annotation(&mut value, MUST_INCLUDE_ADDITIONAL_ITEMS);
            let reason = if required {
                InclusionReason::Required
            } else {
                InclusionReason::Related
            };
            for related in &additional {
                if let Err(why) = self.include_related(related, &id, reason, depth).await? {
                    let message = format!(
                        "{related}, which {} asks for, could not be read: {why}",
                        action.name()
                    );
                    self.report_dropped(kind, item, &message);
                    return Ok(ActionResult::Dropped);
                }
            }
        }
        Ok(if changed {
            ActionResult::Changed(value)
        } else {
            ActionResult::Unchanged
        })
    }

    /// Executes an action on an item. An action that may start something that could not be found
    /// again is executed once over all attempts; results of an earlier attempt are reused.
    async fn run_action(
        &mut self,
        action: &dyn BackupItemAction,
        value: &Value,
        id: &ItemId,
    ) -> Result<Result<Done, ActionError>, CollectError> {
        let request = &self.request;
        let log = &request.actions.log;
        let report = &mut *self.output.report;
        let _wait = request.cancellation.waits().begin_action(action.name(), id);
        let Some(journal) = self
            .output
            .action_journal
            .filter(|_| action.is_executed_once())
        else {
            let executed = log
                .told_during(action.execute(value, request.backup), |lines| {
                    report.said(lines);
                })
                .await;
            return Ok(executed.map(|executed| Done {
                executed,
                at: Timestamp::now(),
            }));
        };
        let execute = async {
            // A plugin may be slow.
            match unless_cancelled(self.early_end, action.execute(value, request.backup)).await {
                Ok(executed) => executed,
                Err(_) => Err(ActionError::Unknown {
                    action: action.name().to_owned(),
                    reason: "the backup was cancelled while it was at this item; what it did is not known"
                        .to_owned(),
                }),
            }
        };
        let executed = journal.execute_once(action.name(), id, (), execute);
        Ok(log
            .told_during(executed, |lines| report.said(lines))
            .await?)
    }

    /// Writes an item and counts it; true if the store has accepted it. Errors of this item only
    /// are in the report.
    async fn write(
        &mut self,
        kind: &ResourceKind,
        item: &RawItem<'_>,
    ) -> Result<bool, CollectError> {
        if kind.group_resource == VOLUMES {
            // Boxed, as below.
            Box::pin(self.snapshot_volume(kind, item)).await?;
        }
        let path = ItemPath {
            group_resource: &kind.group_resource,
            version: &kind.resource.version,
            preferred: kind.preferred,
            namespace: item.namespace(),
            name: item.name(),
        };
        if let Err(error) = self
            .output
            .sink
            .item(&path, kind.meta.complete(item).as_bytes())
            .await
        {
            if !error.is_item() {
                return Err(error.into());
            }
            self.error(scope_of(item.namespace()), error.to_string());
            return Ok(false);
        }
        self.collected.list.add(
            &kind.api_version,
            &kind.resource.kind,
            item.namespace(),
            item.name(),
            None,
        );
        self.output.progress.wrote();
        self.remember(kind, item);
        match kind.group_resource.as_str() {
            PODS => self.report_unsupported_volumes(item),
            // Boxed, because items that ask for one another are nested on the stack.
            CLAIMS => Box::pin(self.report_unsupported_claim(kind, item)).await,
            _ => {}
        }
        Ok(true)
    }

    /// Records what later steps need to know about written items.
    fn remember(&mut self, kind: &ResourceKind, item: &RawItem<'_>) {
        let written = &mut self.written;
        if let Some(namespace) = item.namespace()
            && !written.namespaces.contains(namespace)
        {
            written.namespaces.insert(namespace.to_owned());
        }
        // The groups of built-in types have no dot, or no definition.
        if kind.resource.group.contains('.')
            && kind.group_resource != DEFINITIONS
            && !written.custom_types.contains(&kind.group_resource)
        {
            written.custom_types.insert(kind.group_resource.clone());
        }
        if kind.group_resource == CLAIMS {
            self.collected.bound_claims += u64::from(item.is_in_phase("Bound"));
        }
    }

    /// Lets a plugin take a snapshot of a volume that is about to be written. Errors are in the
    /// report.
    async fn snapshot_volume(
        &mut self,
        kind: &ResourceKind,
        volume: &RawItem<'_>,
    ) -> Result<(), CollectError> {
        if self.request.volume_snapshots.is_none() {
            return Ok(());
        }
        let object: Value = serde_json::from_str(&kind.meta.complete(volume)).unwrap_or_default();
        let of = match self.claim_of(&object).await {
            Ok(claim) => VolumeWithClaim {
                volume: object,
                claim,
            },
            Err(reason) => {
                let message = format!(
                    "the data of PersistentVolume {} is not in this backup: its claim, about which the resource policy may say \
                     something, {reason}",
                    volume.name()
                );
                self.error(Scope::Cluster, message);
                return Ok(());
            }
        };
        self.check()?;
        let request = &mut self.request;
        let _wait = request
            .cancellation
            .waits()
            .begin(format!("the snapshot of volume {:?}", volume.name()));
        let Some(volume_snapshots) = &mut request.volume_snapshots else {
            return Ok(());
        };
        let taken = volume_snapshots.take(of, request.backup);
        let report = &mut *self.output.report;
        for problem in request
            .actions
            .log
            .told_during(taken, |lines| report.said(lines))
            .await?
        {
            self.error(Scope::Cluster, problem);
        }
        Ok(())
    }

    /// The claim that a volume is bound to, if the resource policy may have a rule for it; else
    /// null.
    pub(super) async fn claim_of(&mut self, volume: &Value) -> Result<Value, String> {
        let has_policy = self
            .request
            .plan
            .policy
            .as_ref()
            .is_some_and(|policy| !policy.volumes.is_empty());
        let namespace = text_of(volume, "/spec/claimRef/namespace");
        let name = text_of(volume, "/spec/claimRef/name");
        let (Some(namespace), Some(name), true) = (namespace, name, has_policy) else {
            return Ok(Value::Null);
        };
        // A volume that was released has lost its claim.
        Ok(self
            .fetch_value(CLAIMS, Some(namespace), name)
            .await?
            .unwrap_or_default())
    }

    fn report_dropped(&mut self, kind: &ResourceKind, item: &RawItem<'_>, reason: &str) {
        let message = format!(
            "{} {} is not in this backup: {reason}",
            kind.group_resource,
            item.full_name()
        );
        self.error(scope_of(item.namespace()), message);
    }
}

fn annotation<'a>(item: &'a Value, key: &str) -> Option<&'a str> {
    item.pointer("/metadata/annotations")?.get(key)?.as_str()
}

/// Removes an annotation that is only for this server; true if it was present.
fn remove_annotation(item: &mut Value, key: &str) -> bool {
    let annotations = item
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut);
    annotations.is_some_and(|annotations| annotations.remove(key).is_some())
}
