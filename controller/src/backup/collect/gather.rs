//! The members of a block: what block actions say belongs to an item, and to what belongs to it, and so on (Velero
//! `pkg/backup/backup.go`, `executeItemBlockActions`, v1.18).

use std::{collections::VecDeque, sync::Arc};

use backup_actions::ItemId;
use backup_runtime::errors::plain;

use super::{CollectError, Collector, Present, Sink, fetch, take::Way};
use crate::backup::{items::Item, report::scope_of};

/// A block is in memory while it is written: so many members it has at most, and so many bytes of them.
const MOST: usize = 1_000;
const BYTES: usize = 32 << 20;

/// An item that belongs to a block. Its text waits with the collector.
pub struct Member {
    /// Its type.
    pub of: Arc<Present>,
    /// Its name.
    pub id: ItemId,
}

/// Somebody says that an item belongs to the block of another one.
struct Named {
    item: ItemId,
    belongs_to: ItemId,
    /// Who says so.
    action: String,
}

impl<S: Sink> Collector<'_, S> {
    /// Finds what belongs to the block of an item, in the order in which it was named. What is left out by filters, was
    /// written before or waits in a block around this one is not among it.
    pub(super) async fn gather(
        &mut self,
        of: &Present,
        item: &Item<'_>,
        text: &str,
    ) -> Result<Vec<Member>, CollectError> {
        let (root, mut members, mut bytes) = (of.id(item), Vec::new(), 0);
        let mut named = VecDeque::new();
        self.ask(of, item, text, &mut named).await?;
        while let Some(next) = named.pop_front() {
            let Some((of, id)) = self.missing(&next) else { continue };
            if members.len() >= MOST || bytes >= BYTES {
                let message = format!(
                    "the block of {} is larger than is kept together ({MOST} items, {} MiB): the rest is backed up by itself",
                    root,
                    BYTES >> 20
                );
                self.report.warn(scope_of(item.namespace()), message);
                break;
            }
            self.go_on()?;
            let Some(text) = self.read(&of, &id, &next).await? else { continue };
            // What can't be read is told when it is taken.
            let Ok(found) = Item::parse(&text) else { continue };
            if !self.belongs(&of, &found, Way::Along) {
                continue;
            }
            self.ask(&of, &found, &text, &mut named).await?;
            bytes += text.len();
            self.waiting.insert(id.clone(), text);
            members.push(Member { of, id });
        }
        Ok(members)
    }

    /// Asks what belongs to an item.
    async fn ask(
        &mut self,
        of: &Present,
        item: &Item<'_>,
        text: &str,
        named: &mut VecDeque<Named>,
    ) -> Result<(), CollectError> {
        let mut blocks =
            of.blocks.iter().filter(|block| block.applies_to(item.namespace(), || item.labels()));
        let Some(first) = blocks.next() else { return Ok(()) };
        // What can't be read is told when it is written.
        let Ok(value) = serde_json::from_str(&of.meta.complete(item, text)) else { return Ok(()) };
        let id = of.id(item);
        for block in std::iter::once(first).chain(blocks) {
            self.go_on()?;
            let (log, report) = (&self.actions.log, &mut *self.report);
            let related = block.action.related(&value, self.backup);
            let related = log.told_during(related, |lines| report.said(lines)).await;
            match related {
                Ok(related) => named.extend(related.into_iter().map(|item| Named {
                    item,
                    belongs_to: id.clone(),
                    action: block.action.name().to_owned(),
                })),
                Err(error) => {
                    let message = format!(
                        "what belongs to {id} is not known, so it is not backed up together with it: {error}"
                    );
                    self.report.error(scope_of(item.namespace()), message);
                }
            }
        }
        Ok(())
    }

    /// The type and name of what is named, if it belongs into this backup and was not taken up yet.
    fn missing(&mut self, named: &Named) -> Option<(Arc<Present>, ItemId)> {
        let Some(of) = self.kind(&named.item.group_resource) else {
            self.tell_unread(named, "the cluster serves no such type that can be backed up");
            return None;
        };
        let id = of.known_as(&named.item);
        let namespace = id.namespace.as_deref();
        let wanted = self.lets_along(&of, namespace)
            && !self.written.seen.contains(&of.group_resource, namespace, &id.name)
            && !self.waiting.contains_key(&id);
        wanted.then_some((of, id))
    }

    async fn read(
        &mut self,
        of: &Present,
        id: &ItemId,
        named: &Named,
    ) -> Result<Option<String>, CollectError> {
        match fetch::object(self.client, &of.resource, id.namespace.as_deref(), &id.name).await {
            Ok(Some(text)) => Ok(Some(text)),
            Ok(None) => {
                // Those that are built in name what actions on items ask for, too, and these tell it.
                if !named.action.starts_with("velero.io/") {
                    let message = format!(
                        "{} says that {} belongs to {}, and it does not exist",
                        named.action, id, named.belongs_to
                    );
                    self.report.warn(scope_of(named.belongs_to.namespace.as_deref()), message);
                }
                Ok(None)
            }
            Err(error) => {
                self.tell_unread(named, &plain(&error));
                Ok(None)
            }
        }
    }

    fn tell_unread(&mut self, named: &Named, reason: &str) {
        let message = format!(
            "{}, of which {} says that it belongs to {}, could not be read, so they are not backed up together: {reason}",
            named.item, named.action, named.belongs_to
        );
        self.report.error(scope_of(named.belongs_to.namespace.as_deref()), message);
    }
}
