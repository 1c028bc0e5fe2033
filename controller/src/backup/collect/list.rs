//! Reads the lists of a backup: all selected items, page by page, and then definitions and
//! namespaces, which are known only from the items (Velero `pkg/backup/backup.go`,
//! `item_collector.go`, v1.18).

use std::{collections::BTreeSet, sync::Arc};

use backup_actions::ItemId;
use backup_client::{
    page::Listing,
    walk::{self, ListChoice, Part, Step},
};
use backup_core::{
    labels::CANCEL_ANNOTATION,
    resource_policy::PolicyRule,
    resources::{NAMESPACES, ResourceType},
};
use backup_store::Scope;
use futures::{StreamExt as _, stream};
use tokio::sync::mpsc::Receiver;

use super::{
    collector::{
        CollectError, CollectPlan, CollectRequest, Collector, ResourceKind, Sink, WrittenItems,
        fetch,
    },
    item::InclusionReason,
    raw_item::RawItem,
};
use crate::{backup::report::scope_of, job::cancellation::unless_cancelled};

/// Maximum number of definitions, or namespaces, read concurrently.
const MAX_CONCURRENT_READS: usize = 8;

const WALK_DIED: &str = "the walk through the lists ended unexpectedly";

impl<S: Sink> Collector<'_, S> {
    pub(super) async fn run(&mut self) -> Result<(), CollectError> {
        let plan = self.request.plan;
        for namespace in &plan.namespaces.missing {
            let message =
                format!("namespace {namespace} does not exist: nothing of it is in this backup");
            self.error(Scope::Namespace(namespace), message);
        }
        for pattern in &plan.namespaces.unmatched {
            self.warn(
                Scope::Velero,
                format!("no namespace matches {pattern}: it selects nothing"),
            );
        }
        for key in &plan.ordered.unknown {
            let message = format!(
                "spec.orderedResources names {key}, of which this backup lists nothing: no order is followed for it"
            );
            self.warn(Scope::Velero, message);
        }
        for problem in &plan.filter_problems {
            self.warn(Scope::Velero, format!("the resource policy: {problem}"));
        }
        for problem in self.request.actions.unusable() {
            self.error(Scope::Velero, problem.clone());
        }
        self.collect_lists().await?;
        self.collect_definitions().await?;
        self.collect_namespaces().await?;
        if self.request.hooks.is_some() {
            for idle in plan.hooks.idle() {
                self.warn(Scope::Velero, idle);
            }
        }
        Ok(())
    }

    async fn collect_lists(&mut self) -> Result<(), CollectError> {
        let plan = self.request.plan;
        let lists = lists(plan);
        let mut steps = walk::start(self.request.client.clone(), lists.clone(), plan.page_size);
        let mut current: Option<ResourceKind> = None;
        // Number of types that have begun, also of types without items.
        let mut begun = 0;
        let mut ended = 0;
        while let Some(step) = self.next_page(&mut steps).await? {
            self.check()?;
            match step {
                Step::Items {
                    walked,
                    items,
                    remaining,
                } => {
                    let resource = &lists[walked].whole().resource;
                    while begun < plan.types.listed.len()
                        && current
                            .as_ref()
                            .is_none_or(|kind| kind.resource != *resource)
                    {
                        current = Some(self.begin_type(begun).await?);
                        begun += 1;
                    }
                    let Some(kind) = &current else { continue };
                    let items = if plan.filters.is_empty() {
                        items
                    } else {
                        // An unreadable item is included, too: that reports it.
                        items
                            .into_iter()
                            .filter(|item| {
                                RawItem::parse(item.get())
                                    .map_or(true, |item| passes(plan, &kind.group_resource, &item))
                            })
                            .collect()
                    };
                    self.output.progress.expect(items.len() as u64 + remaining);
                    self.include_page(kind, items).await?;
                }
                Step::Done => ended += 1,
                Step::Vanished { listing } => {
                    let gone =
                        format!("{listing} is no longer served: the rest is not in this backup");
                    self.warn(Scope::Velero, gone);
                }
                Step::Failed { listing, reason } => self.report_failed_list(&listing, &reason),
            }
        }
        for index in begun..plan.types.listed.len() {
            self.begin_type(index).await?;
        }
        // The walk ends early only if its task died; that must not pass for the end of the lists.
        for list in lists.iter().skip(ended) {
            self.report_failed_list(list.whole(), WALK_DIED);
        }
        Ok(())
    }

    async fn begin_type(&mut self, index: usize) -> Result<ResourceKind, CollectError> {
        let CollectRequest { plan, actions, .. } = self.request;
        let resource = &plan.types.listed[index];
        if plan
            .served
            .other_versions(&resource.group_resource())
            .any(|other| other == resource)
        {
            return Ok(ResourceKind::less_preferred(resource, actions));
        }
        let kind = ResourceKind::new(resource, actions);
        self.collect_ordered(&kind).await?;
        Ok(kind)
    }

    /// Includes the items of a type that come first, each read by itself. One that does not exist,
    /// or is not selected, is a warning.
    async fn collect_ordered(&mut self, kind: &ResourceKind) -> Result<(), CollectError> {
        let plan = self.request.plan;
        for ordered in plan.ordered.of_type(&kind.group_resource) {
            self.check()?;
            let (namespace, name) = match ordered.split_once('/') {
                Some((namespace, name)) => (Some(namespace), name),
                None => (None, ordered.as_str()),
            };
            if namespace.is_some() != kind.resource.namespaced {
                let form = if kind.resource.namespaced {
                    "namespace/name"
                } else {
                    "name"
                };
                let message = format!(
                    "spec.orderedResources names {ordered:?} of {}; write {form}",
                    kind.group_resource
                );
                self.warn(Scope::Velero, message);
                continue;
            }
            let id = ItemId::new(&kind.group_resource, namespace, name);
            let problem = match fetch(self.request.client, kind, namespace, name).await {
                Ok(Some(text)) => {
                    if is_selected(plan, &kind.group_resource, &text) {
                        self.include(kind, &text, InclusionReason::Listed, 0)
                            .await?;
                        continue;
                    }
                    format!("spec.orderedResources names {id}, which is not selected")
                }
                Ok(None) => format!("spec.orderedResources names {id}, which does not exist"),
                // The list of its type may still hold it, then out of order.
                Err(reason) => format!(
                    "{id} was to come first, and is not in its place, because it could not be read: {reason}"
                ),
            };
            self.warn(scope_of(namespace), problem);
        }
        Ok(())
    }

    /// Includes the definition of each custom type with items, unless it is included already or was
    /// excluded by name.
    async fn collect_definitions(&mut self) -> Result<(), CollectError> {
        let plan = self.request.plan;
        let Some(definitions) = plan
            .types
            .definitions
            .as_ref()
            .filter(|_| plan.include_definitions)
        else {
            return Ok(());
        };
        let kind = ResourceKind::new(definitions, self.request.actions);
        let client = self.request.client;
        let mut names = std::mem::take(&mut self.written.custom_types);
        names.retain(|name| !self.written.seen.contains(&kind.group_resource, None, name));
        let mut definitions = stream::iter(names)
            .map(async |name: String| (fetch(client, &kind, None, &name).await, name))
            .buffered(MAX_CONCURRENT_READS);
        while let Some((definition, name)) = definitions.next().await {
            self.check()?;
            match definition {
                Ok(Some(text)) => {
                    self.include(&kind, &text, InclusionReason::Listed, 0).await?;
                }
                Ok(None) => {}
                Err(reason) => self.error(
                    Scope::Cluster,
                    format!("the CustomResourceDefinition {name} could not be read and is missing from this backup: {reason}"),
                ),
            }
        }
        Ok(())
    }

    /// The next step of a walk through lists.
    async fn next_page(&self, steps: &mut Receiver<Step>) -> Result<Option<Step>, CollectError> {
        let page = unless_cancelled(self.early_end, steps.recv());
        let waits = self.request.cancellation.waits();
        Ok(waits
            .during("the API server to list what is backed up", page)
            .await?)
    }

    /// Includes the namespaces themselves: live ones that are selected by name or label, or have
    /// items in this backup.
    async fn collect_namespaces(&mut self) -> Result<(), CollectError> {
        let plan = self.request.plan;
        let Some(resource) = &plan.types.namespaces else {
            return Ok(());
        };
        let kind = ResourceKind::new(resource, self.request.actions);
        if let Some(names) = plan.namespaces.by_name() {
            return self.collect_namespaces_by_name(&kind, names).await;
        }
        let listing = Listing {
            resource: resource.clone(),
            namespace: None,
            selector: String::new(),
        };
        let client = self.request.client.clone();
        let mut steps = walk::start(
            client,
            vec![ListChoice::One(listing.clone())],
            plan.page_size,
        );
        let mut ended = false;
        while let Some(step) = self.next_page(&mut steps).await? {
            self.check()?;
            match step {
                Step::Items { items, .. } => {
                    for text in items {
                        self.include_namespace(&kind, text.get()).await?;
                    }
                }
                Step::Done => ended = true,
                Step::Vanished { .. } => {
                    self.report_failed_list(&listing, "the type is not served");
                }
                Step::Failed { reason, .. } => self.report_failed_list(&listing, &reason),
            }
        }
        if !ended {
            self.report_failed_list(&listing, WALK_DIED);
        }
        Ok(())
    }

    async fn collect_namespaces_by_name(
        &mut self,
        kind: &ResourceKind,
        names: &BTreeSet<String>,
    ) -> Result<(), CollectError> {
        let client = self.request.client;
        let mut namespaces = stream::iter(names.clone())
            .map(async |name: String| (fetch(client, kind, None, &name).await, name))
            .buffered(MAX_CONCURRENT_READS);
        while let Some((namespace, name)) = namespaces.next().await {
            self.check()?;
            match namespace {
                Ok(Some(text)) => self.include_namespace(kind, &text).await?,
                Ok(None) => {}
                Err(reason) => self.error(
                    Scope::Namespace(&name),
                    format!("the namespace {name} itself could not be read and is missing from this backup: {reason}"),
                ),
            }
        }
        Ok(())
    }

    async fn include_namespace(
        &mut self,
        kind: &ResourceKind,
        text: &str,
    ) -> Result<(), CollectError> {
        let plan = self.request.plan;
        // An unreadable item is included, too: that reports it.
        if let Ok(namespace) = RawItem::parse(text) {
            if !includes_namespace(plan, &namespace, &self.written) {
                return Ok(());
            }
            if !namespace.is_active_namespace() {
                let name = namespace.name();
                self.warn(
                    Scope::Namespace(name),
                    format!("namespace {name} is being deleted, so it and its items that are being deleted are not in this backup"),
                );
                return Ok(());
            }
        }
        self.include(kind, text, InclusionReason::Listed, 0).await?;
        Ok(())
    }

    fn report_failed_list(&mut self, listing: &Listing, reason: &str) {
        let message = format!(
            "listing {listing} failed, so items of it are missing from this backup: {reason}"
        );
        self.error(scope_of(listing.namespace.as_deref()), message);
    }

    pub(super) fn report_cancelled(&mut self) {
        let message = format!(
            "cancelled, as the annotation {CANCEL_ANNOTATION} asks: {} items had been collected, and the rest is not in this \
             backup",
            self.output.progress.written()
        );
        self.error(Scope::Velero, message);
    }
}

/// The lists to read, in the order of types.
fn lists(plan: &CollectPlan) -> Vec<ListChoice> {
    let in_namespaces = NamespacedLists::new(plan);
    let mut lists = Vec::new();
    for resource in &plan.types.listed {
        if let Some(chosen) = &in_namespaces
            && resource.namespaced
        {
            for (selector, parts) in chosen.of(plan, resource) {
                lists.push(ListChoice::Either {
                    whole: cluster_listing(resource, selector),
                    parts,
                    namespaces: plan.namespaces.live(),
                });
            }
        } else {
            for selector in selectors(plan, resource, None) {
                lists.push(ListChoice::One(cluster_listing(resource, selector)));
            }
        }
    }
    lists
}

/// The list of a type in the whole cluster.
fn cluster_listing(resource: &ResourceType, selector: String) -> Listing {
    Listing {
        resource: resource.clone(),
        namespace: None,
        selector,
    }
}

/// The lists of a type in the namespaces that are chosen.
enum NamespacedLists {
    /// The same for each type, by label selector.
    Alike(Vec<(String, Arc<[Part]>)>),
    /// A policy has filters for single namespaces; items of a list over all namespaces are filtered
    /// afterwards.
    ByPolicy(Vec<Arc<str>>),
}

impl NamespacedLists {
    /// Returns `None` if no namespaces are chosen: all are meant.
    fn new(plan: &CollectPlan) -> Option<Self> {
        let names: Vec<Arc<str>> = plan
            .namespaces
            .chosen()?
            .iter()
            .map(|name| Arc::from(name.as_str()))
            .collect();
        if !plan.filters.namespaced.is_empty() {
            return Some(Self::ByPolicy(names));
        }
        let mut lists = Vec::new();
        for selector in plan.labels.selectors() {
            let shared: Arc<str> = Arc::from(selector.as_str());
            let parts = names
                .iter()
                .map(|name| Part {
                    namespace: Arc::clone(name),
                    selector: Arc::clone(&shared),
                })
                .collect();
            lists.push((selector, parts));
        }
        Some(Self::Alike(lists))
    }

    /// The lists of a type in namespaces, by the label selector of the list over all namespaces.
    fn of(&self, plan: &CollectPlan, resource: &ResourceType) -> Vec<(String, Arc<[Part]>)> {
        let names = match self {
            Self::Alike(lists) => return lists.clone(),
            Self::ByPolicy(names) => names,
        };
        let mut parts = Vec::new();
        for name in names {
            for selector in selectors(plan, resource, Some(name.as_ref())) {
                parts.push(Part {
                    namespace: Arc::clone(name),
                    selector: selector.into(),
                });
            }
        }
        vec![(String::new(), parts.into())]
    }
}

/// The label selectors of the lists of a type in one namespace, or in all; empty if nothing is
/// selected there.
fn selectors(plan: &CollectPlan, resource: &ResourceType, namespace: Option<&str>) -> Vec<String> {
    if resource.namespaced && namespace.is_none() && !plan.filters.namespaced.is_empty() {
        // Each namespace may have its own: items are filtered after they are listed.
        return vec![String::new()];
    }
    match plan.filters.rule(&resource.group_resource(), namespace) {
        PolicyRule::None => plan.labels.selectors(),
        PolicyRule::Filter(filter) => filter.labels.selectors(),
        PolicyRule::Unlisted => Vec::new(),
    }
}

/// Whether an item passes the policy's filter for it, or else the label selectors of the spec.
fn passes(plan: &CollectPlan, group_resource: &str, item: &RawItem<'_>) -> bool {
    match plan.filters.rule(group_resource, item.namespace()) {
        PolicyRule::None => plan.labels.selects(|| item.labels()),
        PolicyRule::Filter(filter) => filter.selects(item.name(), || item.labels()),
        PolicyRule::Unlisted => false,
    }
}

/// Whether the list of its type would hold an item.
fn is_selected(plan: &CollectPlan, group_resource: &str, text: &str) -> bool {
    RawItem::parse(text).is_ok_and(|item| {
        item.namespace()
            .is_none_or(|namespace| plan.namespaces.includes(namespace))
            && passes(plan, group_resource, &item)
    })
}

fn includes_namespace(plan: &CollectPlan, namespace: &RawItem<'_>, written: &WrittenItems) -> bool {
    let name = namespace.name();
    let selected = match plan.filters.rule(NAMESPACES, None) {
        PolicyRule::Filter(filter) => filter.selects(name, || namespace.labels()),
        _ => plan.namespaces.names(name) || plan.labels.selects(|| namespace.labels()),
    };
    plan.namespaces.includes(name) && (selected || written.namespaces.contains(name))
}
