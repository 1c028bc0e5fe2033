//! What comes along with the selected items: their definitions and their namespaces (Velero `pkg/backup/backup.go`,
//! `item_collector.go`, v1.18). Both are known only when the items are.

use kube::{
    Client,
    core::{DynamicObject, Resource as _, params::GetParams, request::Request},
};

use super::{CRDS, CollectError, Collector, Order, Present, Sink, Step, WALK_DIED, Written, walk};
use crate::{
    backup::{
        items::Item,
        page::{Listing, api_resource},
        report::scope_of,
    },
    runtime::{errors::plain, retry},
};

/// How long one definition is asked for.
const GET_BUDGET: std::time::Duration = std::time::Duration::from_secs(30);

impl<S: Sink> Collector<'_, S> {
    /// The definition of each custom type that has items, unless it is there already or was excluded by name.
    pub(super) async fn take_definitions(
        &mut self,
        client: &Client,
        order: &Order,
        written: &mut Written,
    ) -> Result<(), CollectError> {
        let Some(definitions) = order.types.definitions.as_ref().filter(|_| order.definitions_come_along)
        else {
            return Ok(());
        };
        let of = Present::of(definitions);
        written.seen.clear();
        for index in std::mem::take(&mut written.types) {
            let resource = &order.types.listed[index];
            let name = resource.group_resource();
            // The groups of built-in types have no dot, or no definition.
            if !resource.group.contains('.') || name == CRDS || written.definitions.contains(&name) {
                continue;
            }
            self.reins.check()?;
            let path = DynamicObject::url_path(&api_resource(definitions), None);
            let request = || async {
                let get = Request::new(path.as_str()).get(&name, &GetParams::default());
                client.request_text(get.map_err(kube::Error::BuildRequest)?).await
            };
            match retry::read(GET_BUDGET, request).await {
                Ok(text) => {
                    self.take(&of, &text, order, written).await?;
                }
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => self.report.error(
                    scope_of(None),
                    format!("the CustomResourceDefinition {name} could not be read and is missing from this backup: {}", plain(&error)),
                ),
            }
        }
        Ok(())
    }

    /// The namespaces themselves: live ones that are selected by name or label, or have items in this backup.
    pub(super) async fn take_namespaces(
        &mut self,
        client: &Client,
        order: &Order,
        written: &mut Written,
    ) -> Result<(), CollectError> {
        let Some(resource) = &order.types.namespaces else { return Ok(()) };
        let of = Present::of(resource);
        written.seen.clear();
        let listing = Listing { resource: resource.clone(), namespace: None, selector: String::new() };
        let mut steps = walk::start(client.clone(), vec![listing.clone()], order.page_size, order.patience);
        let mut ended = false;
        while let Some(step) = steps.recv().await {
            self.reins.check()?;
            ended |= !matches!(step, Step::Items { .. });
            match step {
                Step::Items { items, .. } => {
                    for text in items {
                        // One that can't be read is taken, too: that reports it.
                        if Item::parse(text.get())
                            .map_or(true, |namespace| belongs(&namespace, order, written))
                        {
                            self.take(&of, text.get(), order, written).await?;
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
