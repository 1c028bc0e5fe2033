//! An item that actions want to see: they are executed one after the other, each on what the one before it has made of the
//! item, and what they ask for is backed up before it (Velero `pkg/backup/item_backupper.go`, v1.18).

use backup_actions::{
    ActionError, ItemId, SelectedAction,
    backup::{BackupActionOutput, BackupItemAction},
};
use backup_core::labels::{MUST_INCLUDE_ADDITIONAL_ITEMS, SKIP_FROM_BACKUP};
use jiff::Timestamp;
use serde_json::Value;

use super::{
    CollectError, Collector, Present, Sink,
    operations::{Done, StartedOperation},
    take::Way,
    tell::full_name,
};
use crate::job::cancellation::unless_cancelled;
use crate::{
    backup::{items::Item, report::scope_of},
    job::action_journal::execute_once,
};

/// What has become of an item.
enum Acted {
    /// It is stored as it was sent.
    Unchanged,
    /// It is stored like this.
    Changed(Value),
    /// It is not stored; the report says why.
    Dropped,
}

impl<S: Sink> Collector<'_, S> {
    /// Executes the actions, then writes the item. Whether it was written.
    pub(super) async fn act(
        &mut self,
        of: &Present,
        item: &Item<'_>,
        text: &str,
        depth: u8,
    ) -> Result<bool, CollectError> {
        let changed = match self.execute(of, item, text, depth).await? {
            Acted::Unchanged => return self.write(of, item, text).await,
            Acted::Dropped => return Ok(false),
            Acted::Changed(changed) => changed.to_string(),
        };
        // Actions may rename what they are given.
        match Item::parse(&changed) {
            Ok(item) => self.write(of, &item, &changed).await,
            Err(error) => {
                self.tell_item(of, item, &format!("actions made something of it that is no object: {error}"));
                Ok(false)
            }
        }
    }

    async fn execute(
        &mut self,
        of: &Present,
        item: &Item<'_>,
        text: &str,
        depth: u8,
    ) -> Result<Acted, CollectError> {
        let mut value: Value = match serde_json::from_str(&of.meta.complete(item, text)) {
            Ok(value) => value,
            Err(error) => {
                self.tell_item(of, item, &format!("it can not be read: {error}"));
                return Ok(Acted::Dropped);
            }
        };
        let mut changed = false;
        let id = of.id(item);
        let applies = |one: &&SelectedAction<_>| one.applies_to(item.namespace(), || item.labels());
        for resolved in of.actions.iter().filter(applies) {
            self.go_on()?;
            let action = &*resolved.action;
            let executed = self.execute_action(action, &value, &id).await?;
            let Done { executed, at } = match executed {
                Ok(done) => done,
                Err(error) => {
                    self.tell_item(of, item, &error.to_string());
                    return Ok(Acted::Dropped);
                }
            };
            let BackupActionOutput { item: made, additional, operation, after_operation } = executed;
            if let Some(made) = made {
                (value, changed) = (made, true);
            }
            if let Some(operation) = operation.filter(|operation| !operation.is_empty()) {
                self.started.push(StartedOperation {
                    action: action.name().to_owned(),
                    item: id.clone(),
                    operation,
                    after: after_operation,
                    created: at,
                });
            }
            if annotation(&value, SKIP_FROM_BACKUP).is_some() {
                let name = full_name(item);
                self.report.info(&format!(
                    "{} {name} is left out: {} or its annotation asks for it",
                    of.group_resource,
                    action.name()
                ));
                return Ok(Acted::Dropped);
            }
            let must = annotation(&value, MUST_INCLUDE_ADDITIONAL_ITEMS).is_some_and(|text| text == "true");
            changed |= take_annotation(&mut value, MUST_INCLUDE_ADDITIONAL_ITEMS);
            let way = if must { Way::Must } else { Way::Along };
            for along in &additional {
                if let Err(reason) = self.bring(along, &id, way, depth).await? {
                    let message =
                        format!("{}, which {} asks for, could not be read: {reason}", along, action.name());
                    self.tell_item(of, item, &message);
                    return Ok(Acted::Dropped);
                }
            }
        }
        Ok(if changed { Acted::Changed(value) } else { Acted::Unchanged })
    }

    /// Executes an action on an item: one that may start what nobody could find again only once in all tries of the backup.
    /// What an earlier try has started is taken as it was.
    async fn execute_action(
        &mut self,
        action: &dyn BackupItemAction,
        value: &Value,
        id: &ItemId,
    ) -> Result<Result<Done, ActionError>, CollectError> {
        let (log, report) = (&self.actions.log, &mut *self.report);
        let tell = |lines| report.said(lines);
        if !action.is_executed_once() {
            let executed = log.told_during(action.execute(value, self.backup), tell).await;
            return Ok(executed.map(|executed| Done { executed, at: Timestamp::now() }));
        }
        let execute = async {
            // A plugin may take its time.
            match unless_cancelled(self.early, action.execute(value, self.backup)).await {
                Ok(executed) => executed,
                Err(_) => Err(ActionError::Unknown {
                    action: action.name().to_owned(),
                    reason: "the backup was cancelled while it was at this item; what it did is not known"
                        .to_owned(),
                }),
            }
        };
        Ok(log.told_during(execute_once(self.operations, action.name(), id, execute), tell).await?)
    }

    fn tell_item(&mut self, of: &Present, item: &Item<'_>, reason: &str) {
        let message = format!("{} {} is not in this backup: {reason}", of.group_resource, full_name(item));
        self.report.error(scope_of(item.namespace()), message);
    }
}

fn annotation<'a>(item: &'a Value, key: &str) -> Option<&'a str> {
    item.pointer("/metadata/annotations")?.get(key)?.as_str()
}

/// Takes an annotation away that was only meant for us. Whether it was there.
fn take_annotation(item: &mut Value, key: &str) -> bool {
    let annotations = item.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    annotations.is_some_and(|annotations| annotations.remove(key).is_some())
}
