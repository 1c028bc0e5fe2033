//! What comes along with the selected items: their definitions and their namespaces (Velero `pkg/backup/backup.go`,
//! `item_collector.go`, v1.18). Both are known only when the items are.

use backup_runtime::errors::plain;
use backup_runtime::page::Listing;
use backup_runtime::walk;

use super::{CollectError, Collector, Order, Present, Sink, Step, WALK_DIED, Written, fetch, take::Way};
use crate::backup::{items::Item, report::scope_of};
use crate::job::cancellation::unless_cancelled;

impl<S: Sink> Collector<'_, S> {
    /// The definition of each custom type that has items, unless it is there already or was excluded by name.
    pub(super) async fn take_definitions(&mut self) -> Result<(), CollectError> {
        let order = self.order;
        let Some(definitions) = order.types.definitions.as_ref().filter(|_| order.definitions_come_along)
        else {
            return Ok(());
        };
        let of = Present::of(definitions, self.actions);
        for name in std::mem::take(&mut self.written.custom_types) {
            if self.written.seen.contains(&of.group_resource, None, &name) {
                continue;
            }
            self.go_on()?;
            match fetch::object(self.client, definitions, None, &name).await {
                Ok(Some(text)) => {
                    self.take(&of, &text, Way::Listed, 0).await?;
                }
                Ok(None) => {}
                Err(error) => self.report.error(
                    scope_of(None),
                    format!("the CustomResourceDefinition {name} could not be read and is missing from this backup: {}", plain(&error)),
                ),
            }
        }
        Ok(())
    }

    /// The namespaces themselves: live ones that are selected by name or label, or have items in this backup.
    pub(super) async fn take_namespaces(&mut self) -> Result<(), CollectError> {
        let order = self.order;
        let Some(resource) = &order.types.namespaces else { return Ok(()) };
        let of = Present::of(resource, self.actions);
        let listing = Listing { resource: resource.clone(), namespace: None, selector: String::new() };
        let mut steps =
            walk::start(self.client.clone(), vec![listing.clone()], order.page_size, order.patience);
        let mut ended = false;
        while let Some(step) = unless_cancelled(self.early, steps.recv()).await? {
            self.go_on()?;
            ended |= !matches!(step, Step::Items { .. });
            match step {
                Step::Items { items, .. } => {
                    for text in items {
                        // One that can't be read is taken, too: that reports it.
                        if Item::parse(text.get())
                            .map_or(true, |namespace| belongs(&namespace, order, &self.written))
                        {
                            self.take(&of, text.get(), Way::Listed, 0).await?;
                        }
                    }
                }
                Step::Done => {}
                Step::Vanished { .. } => self.tell_failed(&listing, "the type is not served"),
                Step::Failed { reason, .. } => self.tell_failed(&listing, &reason),
            }
        }
        if !ended {
            self.tell_failed(&listing, WALK_DIED);
        }
        Ok(())
    }
}

fn belongs(namespace: &Item<'_>, order: &Order, written: &Written) -> bool {
    let name = namespace.name();
    namespace.is_active_namespace()
        && order.scope.includes(name)
        && (order.labels.everything()
            || order.scope.names(name)
            || written.namespaces.contains(name)
            || order.labels.matches(&namespace.labels()))
}
