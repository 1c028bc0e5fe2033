//! Collecting: lists of all selected types flow, page by page, into the store.

use std::{
    collections::{BTreeSet, HashSet},
    future::Future,
};

use backup_core::{resources::ResourceType, selection::LabelFilter};
use backup_store::{BackupWriter, ItemPath, ResourceList, Scope as Area, StoreError};
use kube::Client;

use super::{
    halt::{Halt, Reins},
    items::{Item, TypeMeta},
    page::Listing,
    progress::Progress,
    report::{Report, scope_of},
};

mod extras;
#[cfg(test)]
mod fake;
pub mod order;
pub mod scope;
mod seen;
mod tell;
pub mod walk;

use order::{CRDS, Types};
use scope::Scope;
use seen::Seen;
use tell::full_name;
use walk::{Patience, Step};

/// Why a list has no end.
const WALK_DIED: &str = "the walk through the lists ended unexpectedly";

/// Where items go.
pub trait Sink: Send {
    /// Stores one item.
    fn item(
        &mut self,
        path: &ItemPath<'_>,
        json: &[u8],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

impl Sink for BackupWriter {
    async fn item(&mut self, path: &ItemPath<'_>, json: &[u8]) -> Result<(), StoreError> {
        BackupWriter::item(self, path, json).await
    }
}

/// What is to be collected.
#[derive(Debug)]
pub struct Order {
    /// Types.
    pub types: Types,
    /// Namespaces.
    pub scope: Scope,
    /// Labels.
    pub labels: LabelFilter,
    /// Whether the definitions of custom resources that are backed up come along.
    pub definitions_come_along: bool,
    /// Objects in one page.
    pub page_size: u32,
    /// How long a failing list is tried again.
    pub patience: Patience,
}

/// Why a collection ended before its end. Errors of single items and lists are in the report instead.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// It was told to leave off.
    #[error(transparent)]
    Halt(#[from] Halt),
    /// The store does not take items any more.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Collects into a sink.
pub struct Collector<'a, S> {
    /// Where items go.
    pub sink: &'a mut S,
    /// Warnings, errors, log.
    pub report: &'a mut Report,
    /// Names of what was written.
    pub list: &'a mut ResourceList,
    /// Counts.
    pub progress: &'a Progress,
    /// Whether to go on.
    pub reins: &'a Reins,
}

/// What is remembered about what was written.
#[derive(Debug, Default)]
struct Written {
    /// Names of the present type.
    seen: Seen,
    /// Namespaces that have items.
    namespaces: BTreeSet<String>,
    /// Types that have items, as indexes of the listed types.
    types: BTreeSet<usize>,
    /// Names of definitions.
    definitions: HashSet<String>,
    /// Number of claims for volumes.
    claims: u64,
}

/// A type while its lists are read.
struct Present<'a> {
    resource: &'a ResourceType,
    group_resource: String,
    api_version: String,
    meta: TypeMeta,
}

impl<'a> Present<'a> {
    fn of(resource: &'a ResourceType) -> Self {
        Self {
            resource,
            group_resource: resource.group_resource(),
            api_version: resource.api_version(),
            meta: TypeMeta::of(resource),
        }
    }
}

impl<S: Sink> Collector<'_, S> {
    /// Collects everything. What could not be had is an error in the report; the backup goes on without it.
    pub async fn run(&mut self, client: &Client, order: &Order) -> Result<(), CollectError> {
        self.tell_missing_namespaces(&order.scope);
        let mut written = Written::default();
        let (listings, type_of) = listings(order);
        let mut steps = walk::start(client.clone(), listings.clone(), order.page_size, order.patience);
        let mut present: Option<(usize, Present<'_>)> = None;
        let mut ended = 0;
        while let Some(step) = steps.recv().await {
            self.reins.check()?;
            match step {
                Step::Items { listing, items, remaining } => {
                    let index = type_of[listing];
                    if present.as_ref().is_none_or(|(of, _)| *of != index) {
                        written.seen.clear();
                        present = Some((index, Present::of(&order.types.listed[index])));
                    }
                    let Some((_, of)) = &present else { continue };
                    self.progress.expect(items.len() as u64 + remaining);
                    for item in items {
                        if self.take(of, item.get(), order, &mut written).await? {
                            written.types.insert(index);
                        }
                    }
                }
                Step::Done => ended += 1,
                Step::Vanished { listing } => {
                    ended += 1;
                    let gone = format!(
                        "{} is not served any more: the rest is not in this backup",
                        listings[listing]
                    );
                    self.report.warn(Area::Velero, gone);
                }
                Step::Failed { listing, reason } => {
                    ended += 1;
                    self.tell_failed(&listings[listing], &reason);
                }
            }
        }
        // The walk ends early only if its task died; that must not look like the end of the lists.
        for listing in listings.iter().skip(ended) {
            self.tell_failed(listing, WALK_DIED);
        }
        self.take_definitions(client, order, &mut written).await?;
        self.take_namespaces(client, order, &mut written).await?;
        if written.claims > 0 {
            let claims = written.claims;
            self.report.warn(
                Area::Velero,
                format!("the data of {claims} PersistentVolumeClaims is not in this backup: volumes are not backed up yet"),
            );
        }
        Ok(())
    }

    /// One listed object. Whether it was written.
    async fn take(
        &mut self,
        of: &Present<'_>,
        text: &str,
        order: &Order,
        written: &mut Written,
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
        let namespace = item.namespace();
        if item.is_being_deleted() || namespace.is_some_and(|namespace| !order.scope.includes(namespace)) {
            return Ok(false);
        }
        if item.is_excluded() {
            self.report.info(&format!(
                "{} {} is left out: its label asks for it",
                of.group_resource,
                full_name(&item)
            ));
            return Ok(false);
        }
        if !written.seen.insert(namespace, item.name()) {
            return Ok(false);
        }
        if !self.write(of, &item, text).await? {
            return Ok(false);
        }
        if let Some(namespace) = namespace
            && !written.namespaces.contains(namespace)
        {
            written.namespaces.insert(namespace.to_owned());
        }
        match of.group_resource.as_str() {
            CRDS => {
                written.definitions.insert(item.name().to_owned());
            }
            "persistentvolumeclaims" => written.claims += 1,
            "pods" => self.tell_wishes(&item),
            _ => {}
        }
        Ok(true)
    }

    /// Writes an item and counts it. Whether the store has taken it: what only this item is too much for is reported.
    async fn write(&mut self, of: &Present<'_>, item: &Item<'_>, text: &str) -> Result<bool, CollectError> {
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
        Ok(true)
    }
}

/// All lists, and for each the index of its type.
fn listings(order: &Order) -> (Vec<Listing>, Vec<usize>) {
    let (mut listings, mut type_of) = (Vec::new(), Vec::new());
    let selectors = order.labels.selectors();
    let namespaces = order.scope.lists();
    for (index, resource) in order.types.listed.iter().enumerate() {
        let cluster = [None];
        let lists = if resource.namespaced { namespaces.as_slice() } else { cluster.as_slice() };
        for namespace in lists {
            for selector in &selectors {
                listings.push(Listing {
                    resource: resource.clone(),
                    namespace: namespace.clone(),
                    selector: selector.clone(),
                });
                type_of.push(index);
            }
        }
    }
    (listings, type_of)
}

#[cfg(test)]
mod tests;
