//! One object on its way into the backup: whether it belongs there, and that it is written once.

use backup_store::{ItemPath, Scope as Area};

use super::{CollectError, Collector, Present, Sink, order::CRDS, tell::full_name};
use crate::backup::{items::Item, report::scope_of};

/// How an object came here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From a list of what is selected.
    Listed,
    /// Another item needs it. Labels do not select it; the filters of types and namespaces do (Velero
    /// `pkg/backup/item_backupper.go`, v1.18).
    Along,
    /// Another item needs it, and an action said that no filter counts.
    Must,
}

impl<S: Sink> Collector<'_, S> {
    /// Takes one object up. Whether it was written; why it could not be is in the report. `depth` is how many items it
    /// comes along behind.
    pub(super) async fn take(
        &mut self,
        of: &Present,
        text: &str,
        way: Way,
        depth: u8,
    ) -> Result<bool, CollectError> {
        let item = match Item::parse(text) {
            Ok(item) => item,
            Err(error) => {
                let message =
                    format!("an object in the list of {} can not be read: {error}", of.group_resource);
                self.report.error(Area::Velero, message);
                return Ok(false);
            }
        };
        if !self.belongs(of, &item, way)
            || !self.written.seen.insert(&of.group_resource, item.namespace(), item.name())
        {
            return Ok(false);
        }
        if let Some(runner) = self.hooks
            && (of.blocks.iter().any(|block| block.applies_to(item.namespace(), || item.labels()))
                || self.hooks_of(of, &item, text).is_some())
        {
            return Box::pin(self.block(of, &item, text, depth, runner)).await;
        }
        self.store(of, &item, text, depth).await
    }

    /// Takes up an object of a block that is being written: what is run before has been run.
    pub(super) async fn take_member(
        &mut self,
        of: &Present,
        text: &str,
        depth: u8,
    ) -> Result<(), CollectError> {
        let Ok(item) = Item::parse(text) else { return Ok(()) };
        if self.written.seen.insert(&of.group_resource, item.namespace(), item.name()) {
            self.progress.expect(1);
            self.store(of, &item, text, depth).await?;
        }
        Ok(())
    }

    /// Writes an item by its actions, if there are some for it.
    pub(super) async fn store(
        &mut self,
        of: &Present,
        item: &Item<'_>,
        text: &str,
        depth: u8,
    ) -> Result<bool, CollectError> {
        if of.actions.iter().any(|action| action.applies_to(item.namespace(), || item.labels())) {
            // Boxed: what comes along is taken in here, too.
            Box::pin(self.act(of, item, text, depth)).await
        } else {
            self.write(of, item, text).await
        }
    }

    pub(super) fn belongs(&mut self, of: &Present, item: &Item<'_>, way: Way) -> bool {
        if item.is_being_deleted() {
            return false;
        }
        if way == Way::Must {
            return true;
        }
        if item.namespace().is_some_and(|namespace| !self.order.scope.includes(namespace))
            || way == Way::Along && !self.order.filter.lets_along(&of.resource)
        {
            return false;
        }
        if item.is_excluded() {
            let name = full_name(item);
            self.report.info(&format!("{} {name} is left out: its label asks for it", of.group_resource));
            return false;
        }
        true
    }

    /// Writes an item and counts it. Whether the store has taken it: what only this item is too much for is reported.
    pub(super) async fn write(
        &mut self,
        of: &Present,
        item: &Item<'_>,
        text: &str,
    ) -> Result<bool, CollectError> {
        if of.group_resource == "persistentvolumes" {
            // Boxed, as below.
            Box::pin(self.snapshot(of, item, text)).await?;
        }
        let path = ItemPath {
            group_resource: &of.group_resource,
            version: &of.resource.version,
            preferred: true,
            namespace: item.namespace(),
            name: item.name(),
        };
        match self.sink.item(&path, of.meta.complete(item, text).as_bytes()).await {
            Ok(()) => {}
            Err(error) if error.is_item() => {
                self.report.error(scope_of(item.namespace()), error.to_string());
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        self.list.add(&of.api_version, &of.resource.kind, item.namespace(), item.name(), None);
        self.progress.wrote();
        self.remember(of, item, text);
        if of.group_resource == "persistentvolumeclaims" {
            // Boxed: items that ask for one another stand behind one another on the stack.
            Box::pin(self.tell_wishes_for_claim(of, item, text)).await;
        }
        Ok(true)
    }

    /// What later steps want to know about what was written.
    fn remember(&mut self, of: &Present, item: &Item<'_>, text: &str) {
        let written = &mut self.written;
        if let Some(namespace) = item.namespace()
            && !written.namespaces.contains(namespace)
        {
            written.namespaces.insert(namespace.to_owned());
        }
        // The groups of built-in types have no dot, or no definition.
        if of.resource.group.contains('.')
            && of.group_resource != CRDS
            && !written.custom_types.contains(&of.group_resource)
        {
            written.custom_types.insert(of.group_resource.clone());
        }
        match of.group_resource.as_str() {
            "persistentvolumeclaims" => {
                written.claims += 1;
                written.bound_claims += u64::from(item.is_in_phase("Bound"));
            }
            "pods" => self.tell_wishes(item, text),
            _ => {}
        }
    }
}
