//! Finds existing items page by page in a list, which costs far less than a creation and a read for
//! each.

use std::collections::{BTreeMap, HashSet};

use backup_actions::restore::json::{self, Object};
use backup_client::path;
use backup_store::ItemRef;
use futures::{FutureExt as _, StreamExt as _, stream};

use super::{
    RestoreError,
    item::{ItemRestorer, ResourceKind},
};

/// Minimum number of items of a type in a namespace for a list: there may be many other objects.
const MIN_LISTED_ITEMS: usize = 32;
/// Maximum number of remaining objects per item with which a list is continued.
const MAX_OBJECTS_PER_ITEM: u64 = 4;
/// Maximum number of concurrent lists.
const MAX_CONCURRENT_LISTS: usize = 4;
/// Target size of a page (bytes), by the size of the objects in the backup.
const PAGE_BYTES: u64 = 1024 * 1024;

impl ItemRestorer<'_> {
    /// Restores the items that a list finds in the cluster, and returns the others. Lists only
    /// where existing items are likely.
    pub(super) async fn existing(
        &self,
        kind: ResourceKind<'_>,
        items: &[ItemRef],
    ) -> Result<Vec<ItemRef>, RestoreError> {
        let mut by_source: BTreeMap<Option<&str>, HashSet<ItemRef>> = BTreeMap::new();
        for item in items {
            by_source
                .entry(self.restoring.contents.namespace_of(item))
                .or_default()
                .insert(*item);
        }
        by_source.retain(|source, of_source| {
            let target = source.map(|source| self.restoring.rules.target(source));
            let expected = self.restoring.resumed
                || target.is_none_or(|target| self.namespaces.was_there(target));
            expected && of_source.len() >= MIN_LISTED_ITEMS
        });
        let lists: Vec<_> = by_source
            .iter()
            .map(|(source, items)| self.listed(kind, *source, items).boxed())
            .collect();
        // Lists in flight are completed before work stops.
        let lists: Vec<Result<HashSet<ItemRef>, RestoreError>> = stream::iter(lists)
            .buffer_unordered(MAX_CONCURRENT_LISTS)
            .collect()
            .await;
        let lists = lists.into_iter().collect::<Result<Vec<_>, _>>()?;
        let done: HashSet<ItemRef> = lists.into_iter().flatten().collect();
        Ok(items
            .iter()
            .filter(|item| !done.contains(*item))
            .copied()
            .collect())
    }

    /// Restores the listed items of one namespace of the backup, and returns them. If a list fails,
    /// the remaining items are created one by one.
    async fn listed(
        &self,
        kind: ResourceKind<'_>,
        source: Option<&str>,
        items: &HashSet<ItemRef>,
    ) -> Result<HashSet<ItemRef>, RestoreError> {
        let mut done = HashSet::new();
        let ResourceKind {
            group_resource,
            resource,
        } = kind;
        let target = source.map(|source| self.restoring.rules.target(source));
        let collection = path::collection(&resource.api_version(), &resource.plural, target);
        let limit = page_limit(items);
        let mut from: Option<String> = None;
        loop {
            let page = match self
                .restoring
                .calls
                .list(&collection, limit, from.as_deref())
                .await
            {
                Ok(page) => page,
                Err(error) => {
                    let error = error.unless_stopped()?;
                    self.restoring.report.info(&format!(
                        "what there is of {group_resource} could not be listed: {error}"
                    ));
                    return Ok(done);
                }
            };
            let next = page.next().map(str::to_owned);
            let left = page.remaining();
            let found = page.items.into_iter().filter_map(|object| {
                let mut object: Object = serde_json::from_str(object.get()).ok()?;
                let item = self.restoring.contents.find(
                    group_resource,
                    source,
                    json::text(&object, &["metadata"], "name")?,
                )?;
                // Items of a list have no apiVersion and kind.
                object.insert("apiVersion".to_owned(), resource.api_version().into());
                object.insert("kind".to_owned(), resource.kind.as_str().into());
                (items.contains(&item) && done.insert(item)).then_some((item, Some(object)))
            });
            self.items(kind, found).await?;
            let missing = items.len() as u64;
            from = next.filter(|_| left <= missing.saturating_mul(MAX_OBJECTS_PER_ITEM));
            if from.is_none() {
                return Ok(done);
            }
        }
    }
}

/// Number of objects in a page, so that pages of large and of small objects have the same size.
fn page_limit(items: &HashSet<ItemRef>) -> u32 {
    let bytes: u64 = items.iter().map(ItemRef::size).sum();
    let average = bytes / (items.len() as u64).max(1);
    u32::try_from(PAGE_BYTES / average.max(1))
        .unwrap_or(u32::MAX)
        .clamp(4, 500)
}
