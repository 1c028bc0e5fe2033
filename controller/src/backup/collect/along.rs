//! Items that come along with others: read from the cluster one by one, and written before whoever asked for them.

use std::{collections::HashMap, sync::Arc};

use backup_actions::ItemId;
use backup_runtime::errors::plain;

use super::{CollectError, Collector, Present, Sink, fetch, take::Way};
use crate::backup::report::scope_of;

/// How many items may stand behind one another, each asking for the next. Built-in actions make three.
const DEPTH: u8 = 32;

/// Types that items have come along of, by the name that was asked for.
#[derive(Default)]
pub struct Kinds(HashMap<String, Option<Arc<Present>>>);

impl<S: Sink> Collector<'_, S> {
    /// Backs an object up that another one asks for. The inner error says why it could not be read; then whoever asked is
    /// not written either. One that does not exist is a warning.
    pub(super) async fn bring(
        &mut self,
        id: &ItemId,
        asked_by: &ItemId,
        way: Way,
        depth: u8,
    ) -> Result<Result<(), String>, CollectError> {
        let Some(of) = self.kind(&id.group_resource) else {
            return Ok(Err(format!("the cluster serves no {} that can be backed up", id.group_resource)));
        };
        let id = &of.known_as(id);
        if depth >= DEPTH {
            return Ok(Err(format!("{DEPTH} items ask for one another in a row")));
        }
        if let Some(text) = self.waiting.remove(id) {
            self.take_member(&of, &text, depth + 1).await?;
            return Ok(Ok(()));
        }
        let namespace = id.namespace.as_deref();
        if way == Way::Along && !self.lets_along(&of, namespace)
            || self.written.seen.contains(&of.group_resource, namespace, &id.name)
        {
            return Ok(Ok(()));
        }
        self.go_on()?;
        match fetch::object(self.client, &of.resource, namespace, &id.name).await {
            Ok(Some(text)) => {
                self.progress.expect(1);
                self.take(&of, &text, way, depth + 1).await?;
                Ok(Ok(()))
            }
            Ok(None) => {
                let message = format!("{asked_by} asks for {id}, which does not exist");
                self.report.warn(scope_of(asked_by.namespace.as_deref()), message);
                Ok(Ok(()))
            }
            Err(error) => Ok(Err(plain(&error))),
        }
    }

    /// Whether the filters let an object come along.
    pub(super) fn lets_along(&self, of: &Present, namespace: Option<&str>) -> bool {
        self.order.filter.lets_along(&of.resource)
            && namespace.is_none_or(|namespace| self.order.scope.includes(namespace))
    }

    /// The type of this name; none if it can't be backed up.
    pub(super) fn kind(&mut self, name: &str) -> Option<Arc<Present>> {
        if let Some(known) = self.kinds.0.get(name) {
            return known.clone();
        }
        let served = &self.order.served;
        let resource = served.resolve(name).and_then(|full| served.by_group_resource(&full));
        let kind = resource.map(|resource| Arc::new(Present::of(resource, self.actions)));
        self.kinds.0.insert(name.to_owned(), kind.clone());
        kind
    }
}
