//! Collecting: lists of all selected types flow, page by page, into the store.

use std::{
    collections::{BTreeSet, HashMap},
    future::Future,
};

use backup_actions::{ItemId, backup::BackupActionOutput};
use backup_core::{
    api::Backup, resource_policy::ResourcePolicy, resources::ResourceFilter, selection::LabelFilter,
};
use backup_runtime::{
    page::Listing,
    walk::{self, Patience, Step},
};
use backup_store::{BackupWriter, ItemPath, ResourceList, Scope as Area, StoreError};
use kube::Client;

use super::{
    actions::BackupActions,
    hooks::{Hooks, Rules},
    natives::Natives,
    progress::Progress,
    report::Report,
};
use crate::job::cancellation::{Cancellation, StopReason, unless_cancelled};
use crate::{discovery::ServedTypes, job::action_journal::ActionRecords};

mod act;
mod along;
mod block;
mod extras;
#[cfg(test)]
pub mod fake;
mod fetch;
mod gather;
pub mod operations;
pub mod order;
pub mod ordered;
mod present;
mod renew;
pub mod scope;
mod seen;
mod snapshot;
mod take;
mod tell;
mod wishes;

use along::Kinds;
use operations::StartedOperation;
use order::Types;
use ordered::Ordered;
use present::Present;
pub use renew::renew;
use scope::Scope;
use seen::Seen;
use take::Way;

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
    /// Everything that is served: what comes along may be of any type.
    pub served: ServedTypes,
    /// Which types are selected.
    pub filter: ResourceFilter,
    /// Namespaces.
    pub scope: Scope,
    /// Labels.
    pub labels: LabelFilter,
    /// Items that come first among those of their type.
    pub ordered: Ordered,
    /// The commands in pods that the Backup asks for.
    pub hooks: Rules,
    /// The resource policy.
    pub policy: Option<ResourcePolicy>,
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
    Stopped(#[from] StopReason),
    /// The store does not take items any more.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a collection is given.
pub struct Given<'a, S> {
    /// The cluster.
    pub client: &'a Client,
    /// The Backup.
    pub backup: &'a Backup,
    /// What is to be collected.
    pub order: &'a Order,
    /// BackupActions on items.
    pub actions: &'a BackupActions,
    /// Told of what actions start.
    pub operations: &'a mut dyn ActionRecords<BackupActionOutput>,
    /// Runs commands in pods; none where they have been run.
    pub hooks: Option<&'a Hooks>,
    /// Has plugins take snapshots of volumes; none where they have been taken.
    pub natives: Option<&'a mut Natives>,
    /// Where items go.
    pub sink: &'a mut S,
    /// Warnings, errors, log.
    pub report: &'a mut Report,
    /// Counts.
    pub progress: &'a Progress,
    /// Whether to go on.
    pub cancellation: &'a Cancellation,
}

/// What a collection hands back.
#[derive(Debug, Default)]
pub struct Collected {
    /// Names of what was written.
    pub list: ResourceList,
    /// What actions have started, in order.
    pub operations: Vec<StartedOperation>,
    /// Number of claims for volumes.
    pub claims: u64,
    /// How many of them are bound to one.
    pub bound_claims: u64,
}

/// Collects everything into the sink. What could not be had is an error in the report; the backup goes on without it.
///
/// One that is cancelled ends early; what is in the sink then is whole, and an error says that the rest is missing.
pub async fn collect<S: Sink>(given: Given<'_, S>) -> Result<Collected, CollectError> {
    let mut collector = Collector { early: Some(given.cancellation), ..Collector::new(given) };
    match collector.run().await {
        Err(CollectError::Stopped(StopReason::Cancelled)) => collector.tell_cancelled(),
        result => result?,
    }
    let Collector { actions, report, .. } = &mut collector;
    actions.log.settle(|lines| report.said(lines)).await;
    Ok(collector.collected())
}

/// A collection at work.
struct Collector<'a, S> {
    client: &'a Client,
    backup: &'a Backup,
    order: &'a Order,
    actions: &'a BackupActions,
    operations: &'a mut dyn ActionRecords<BackupActionOutput>,
    hooks: Option<&'a Hooks>,
    natives: Option<&'a mut Natives>,
    sink: &'a mut S,
    report: &'a mut Report,
    progress: &'a Progress,
    cancellation: &'a Cancellation,
    /// The cancellation where a cancellation ends it; none where the items belong to what has been collected before.
    early: Option<&'a Cancellation>,
    list: ResourceList,
    started: Vec<StartedOperation>,
    written: Written,
    kinds: Kinds,
    /// Members of blocks that are being written, which have not been written yet, as the API server sent them.
    waiting: HashMap<ItemId, String>,
}

/// What is remembered about what was written.
#[derive(Debug, Default)]
struct Written {
    /// Names of everything that was taken up.
    seen: Seen,
    /// Namespaces that have items.
    namespaces: BTreeSet<String>,
    /// Types that may have definitions, and have items.
    custom_types: BTreeSet<String>,
    /// Number of claims for volumes.
    claims: u64,
    /// How many of them are bound to one.
    bound_claims: u64,
}

impl<'a, S: Sink> Collector<'a, S> {
    /// Has collected nothing yet.
    fn new(given: Given<'a, S>) -> Self {
        let Given {
            client,
            backup,
            order,
            actions,
            operations,
            hooks,
            natives,
            sink,
            report,
            progress,
            cancellation,
        } = given;
        Self {
            client,
            backup,
            order,
            actions,
            operations,
            hooks,
            natives,
            sink,
            report,
            progress,
            cancellation,
            early: None,
            list: ResourceList::default(),
            started: Vec::new(),
            written: Written::default(),
            kinds: Kinds::default(),
            waiting: HashMap::new(),
        }
    }

    fn collected(self) -> Collected {
        let Written { claims, bound_claims, .. } = self.written;
        Collected { list: self.list, operations: self.started, claims, bound_claims }
    }

    async fn run(&mut self) -> Result<(), CollectError> {
        let order = self.order;
        self.tell_missing_namespaces(&order.scope);
        for key in &order.ordered.unknown {
            let message = format!(
                "spec.orderedResources names {key}, of which this backup lists nothing: no order is followed for it"
            );
            self.report.warn(Area::Velero, message);
        }
        for problem in self.actions.unusable() {
            self.report.error(Area::Velero, problem.clone());
        }
        self.take_lists().await?;
        self.take_definitions().await?;
        self.take_namespaces().await
    }

    /// Asked before each step.
    fn go_on(&self) -> Result<(), StopReason> {
        self.early.map_or_else(|| self.cancellation.check(), Cancellation::check_new_work)
    }

    async fn take_lists(&mut self) -> Result<(), CollectError> {
        let order = self.order;
        let (listings, type_of) = listings(order);
        let mut steps = walk::start(self.client.clone(), listings.clone(), order.page_size, order.patience);
        let mut present: Option<Present> = None;
        // Types that have had their turn to begin; those without items, too.
        let mut begun = 0;
        let mut ended = 0;
        while let Some(step) = unless_cancelled(self.early, steps.recv()).await? {
            self.go_on()?;
            match step {
                Step::Items { listing, items, remaining } => {
                    while begun <= type_of[listing] {
                        present = Some(self.begin(begun).await?);
                        begun += 1;
                    }
                    let Some(of) = &present else { continue };
                    self.progress.expect(items.len() as u64 + remaining);
                    for item in items {
                        self.go_on()?;
                        self.take(of, item.get(), Way::Listed, 0).await?;
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
        for index in begun..order.types.listed.len() {
            self.begin(index).await?;
        }
        // The walk ends early only if its task died; that must not look like the end of the lists.
        for listing in listings.iter().skip(ended) {
            self.tell_failed(listing, WALK_DIED);
        }
        Ok(())
    }

    /// A type has its turn.
    async fn begin(&mut self, index: usize) -> Result<Present, CollectError> {
        let of = Present::of(&self.order.types.listed[index], self.actions);
        self.take_ordered(&of).await?;
        Ok(of)
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
