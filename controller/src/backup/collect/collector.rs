//! Input, output and state of a collection.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use backup_actions::{
    ItemId, SelectedAction,
    backup::{BackupItemAction, ItemBlockAction},
};
use backup_client::{errors::plain, page::api_resource, path, retry};
use backup_core::{
    api::{Backup, BackupSpec},
    resource_policy::{FilterPolicies, ResourcePolicy},
    resources::{ResourceFilter, ResourceType, group_resource},
    selection::LabelFilter,
    snapshot::VolumeSnapshot,
};
use backup_store::{BackupWriter, ItemPath, ResourceList, Scope, StoreError};
use kube::{
    Client,
    core::{DynamicObject, Resource as _, params::GetParams, request::Request},
};
use serde_json::Value;
use tokio::task::JoinSet;

use super::{
    order::{OrderedResources, Types},
    raw_item::{RawItem, TypeMeta},
    scope::NamespaceScope,
};
use crate::{
    backup::{
        actions::{ActionJournal, BackupActions, StartedOperation},
        hooks::{HookRules, Hooks},
        progress::Progress,
        report::Report,
        volume_snapshots::VolumeSnapshots,
    },
    discovery::{ReadError, ServedTypes},
    job::cancellation::{Cancellation, StopReason},
};

const FETCH_BUDGET: Duration = Duration::from_secs(30);

pub(crate) trait Sink: Send {
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

#[derive(Debug)]
pub(crate) struct CollectPlan {
    pub(crate) types: Types,
    /// All served types: a related item may be of any type.
    pub(crate) served: ServedTypes,
    pub(crate) filter: ResourceFilter,
    pub(crate) namespaces: NamespaceScope,
    pub(crate) labels: LabelFilter,
    /// Filters of the policy for items of some namespaces and types.
    pub(crate) filters: FilterPolicies,
    /// Messages about policy rules that match nothing.
    pub(crate) filter_problems: Vec<String>,
    /// Items that come first within their type.
    pub(crate) ordered: OrderedResources,
    pub(crate) hooks: HookRules,
    pub(crate) policy: Option<ResourcePolicy>,
    /// Whether the definitions of custom resources that are backed up are included.
    pub(crate) include_definitions: bool,
    pub(crate) page_size: u32,
}

impl CollectPlan {
    /// The plan for a spec: `filter` selects types, `live` are the namespaces that exist.
    pub(crate) fn new(
        spec: &BackupSpec,
        served: ServedTypes,
        filter: ResourceFilter,
        live: &[String],
        policy: Option<ResourcePolicy>,
        page_size: u32,
    ) -> Self {
        let types = Types::choose(served.types(), &filter);
        let filters = policy
            .as_ref()
            .map(|policy| policy.filters.clone())
            .unwrap_or_default();
        let (filters, filter_problems) = filters.resolved(&|name| {
            let full = served.resolve(name)?;
            let namespaced = served
                .by_group_resource(&full)
                .map(|resource| resource.namespaced);
            Some((full, namespaced))
        });
        Self {
            filters,
            filter_problems,
            include_definitions: types
                .definitions
                .as_ref()
                .is_some_and(|crds| !filter.excludes(crds)),
            ordered: OrderedResources::new(&spec.ordered_resources, &types.listed, &|name| {
                served.resolve(name)
            }),
            hooks: HookRules::new(spec.hooks.as_ref()),
            namespaces: NamespaceScope::resolve(spec, live),
            labels: LabelFilter::of(&spec.label_selector, &spec.or_label_selectors),
            types,
            served,
            filter,
            policy,
            page_size,
        }
    }

    /// Adds the less preferred versions of each type behind it (Velero `pkg/discovery/helper.go`,
    /// `Refresh`, v1.18).
    pub(crate) fn add_versions(&mut self) {
        let Self { types, served, .. } = self;
        for resource in std::mem::take(&mut types.listed) {
            let name = resource.group_resource();
            types.listed.push(resource);
            types.listed.extend(served.other_versions(&name).cloned());
        }
    }
}

pub(crate) struct CollectRequest<'a> {
    pub(crate) client: &'a Client,
    pub(crate) backup: &'a Backup,
    pub(crate) plan: &'a CollectPlan,
    pub(crate) actions: &'a BackupActions,
    /// Runs commands in pods; `None` if they have already been run.
    pub(crate) hooks: Option<&'a Hooks>,
    /// Lets plugins take snapshots of volumes; `None` if they have already been taken.
    pub(crate) volume_snapshots: Option<VolumeSnapshots>,
    pub(crate) cancellation: &'a Cancellation,
    /// Maximum number of blocks or single claims whose snapshots are begun ahead.
    pub(crate) item_block_workers: usize,
}

pub(crate) struct CollectOutput<'a, S> {
    pub(crate) sink: &'a mut S,
    /// Records the operations of actions; `None` where they are no longer followed.
    pub(crate) action_journal: Option<&'a ActionJournal>,
    pub(crate) report: &'a mut Report,
    pub(crate) progress: &'a Progress,
}

#[derive(Debug, Default)]
pub(crate) struct CollectedItems {
    /// Names of the written items.
    pub(crate) list: ResourceList,
    /// Operations that actions have started, in order.
    pub(crate) operations: Vec<StartedOperation>,
    /// Snapshots that plugins have taken.
    pub(crate) snapshots: Vec<VolumeSnapshot>,
    /// Number of PersistentVolumeClaims that are bound to a volume.
    pub(crate) bound_claims: u64,
}

/// Why a collection ended early. Errors of single items and lists are in the report instead.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CollectError {
    /// A read from the API server failed.
    #[error(transparent)]
    Api(#[from] ReadError),
    #[error(transparent)]
    Stopped(#[from] StopReason),
    /// The store no longer accepts items.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<kube::Error> for CollectError {
    fn from(error: kube::Error) -> Self {
        Self::Api(error.into())
    }
}

pub(super) struct Collector<'a, S> {
    pub(super) request: CollectRequest<'a>,
    pub(super) output: CollectOutput<'a, S>,
    /// Ends the collection early when a user cancels the backup. `None` where items of an earlier
    /// collection are read again.
    pub(super) early_end: Option<&'a Cancellation>,
    pub(super) collected: CollectedItems,
    pub(super) written: WrittenItems,
    /// Types of related items, by requested name.
    kinds: HashMap<String, Option<Arc<ResourceKind>>>,
    /// Members of blocks in progress that are not written yet, as the API server sent them.
    pub(super) block_members: HashMap<ItemId, String>,
    pub(super) ahead: WorkAhead,
}

#[derive(Debug, Default)]
pub(super) struct WrittenItems {
    /// All included items, so that none is written twice: a list may begin again, selectors may
    /// overlap, and related items come before their turn or long after it.
    pub(super) seen: SeenItems,
    /// Namespaces that have items.
    pub(super) namespaces: BTreeSet<String>,
    /// Types with items that may have definitions.
    pub(super) custom_types: BTreeSet<String>,
}

/// Slow work that was begun for later items.
#[derive(Default)]
pub(super) struct WorkAhead {
    /// Work in progress.
    pub(super) tasks: JoinSet<()>,
    /// The members of blocks that were found ahead, by their first item.
    pub(super) blocks: HashMap<ItemId, Vec<Member>>,
}

/// An item that belongs to a block. Its text is in [`Collector::block_members`].
pub(super) struct Member {
    pub(super) kind: Arc<ResourceKind>,
    pub(super) id: ItemId,
}

impl<'a, S: Sink> Collector<'a, S> {
    pub(super) fn new(
        request: CollectRequest<'a>,
        output: CollectOutput<'a, S>,
        early_end: Option<&'a Cancellation>,
    ) -> Self {
        Self {
            request,
            output,
            early_end,
            collected: CollectedItems::default(),
            written: WrittenItems::default(),
            kinds: HashMap::new(),
            block_members: HashMap::new(),
            ahead: WorkAhead::default(),
        }
    }

    /// Returns the collected items, once the last log lines of plugins are in the report.
    pub(super) async fn finish(&mut self) -> CollectedItems {
        let report = &mut *self.output.report;
        self.request
            .actions
            .log
            .settle(|lines| report.said(lines))
            .await;
        let taken = self
            .request
            .volume_snapshots
            .take()
            .map(VolumeSnapshots::finish);
        let (snapshots, problems) = taken.unwrap_or_default();
        for problem in problems {
            report.error(Scope::Cluster, problem);
        }
        CollectedItems {
            snapshots,
            ..std::mem::take(&mut self.collected)
        }
    }

    /// Called before each step.
    pub(super) fn check(&self) -> Result<(), StopReason> {
        self.early_end.map_or_else(
            || self.request.cancellation.check(),
            Cancellation::check_new_work,
        )
    }

    pub(super) fn warn(&mut self, scope: Scope<'_>, message: String) {
        self.output.report.warn(scope, message);
    }

    pub(super) fn error(&mut self, scope: Scope<'_>, message: String) {
        self.output.report.error(scope, message);
    }

    /// The type with this name; `None` if it cannot be backed up.
    pub(super) fn kind(&mut self, name: &str) -> Option<Arc<ResourceKind>> {
        if let Some(known) = self.kinds.get(name) {
            return known.clone();
        }
        let served = &self.request.plan.served;
        let resource = served
            .resolve(name)
            .and_then(|full| served.by_group_resource(&full));
        let kind =
            resource.map(|resource| Arc::new(ResourceKind::new(resource, self.request.actions)));
        self.kinds.insert(name.to_owned(), kind.clone());
        kind
    }

    /// Reads and decodes an object; `None` if it does not exist. The error is the end of a
    /// sentence.
    pub(super) async fn fetch_value(
        &mut self,
        group_resource: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, String> {
        let Some(kind) = self.kind(group_resource) else {
            return Ok(None);
        };
        match fetch(self.request.client, &kind, namespace, name).await {
            Ok(Some(text)) => {
                serde_json::from_str(&text).map_err(|error| format!("is no object: {error}"))
            }
            Ok(None) => Ok(None),
            Err(reason) => Err(format!("could not be read: {reason}")),
        }
    }
}

/// Reads an object as the text that the API server sends; `None` if it does not exist.
pub(super) async fn fetch(
    client: &Client,
    kind: &ResourceKind,
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<String>, String> {
    // The client does not escape names; some types allow any character in names but a slash and a
    // percent sign.
    if !path::is_segment(name) {
        return Ok(None);
    }
    let collection = DynamicObject::url_path(&api_resource(&kind.resource), namespace);
    let name = &path::segment(name);
    let text = retry::read(FETCH_BUDGET, || async {
        let get = Request::new(collection.as_str()).get(name, &GetParams::default());
        client
            .request_text(get.map_err(kube::Error::BuildRequest)?)
            .await
    })
    .await;
    match text {
        Ok(text) => Ok(Some(text)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(plain(&error)),
    }
}

/// A type whose items are being written: its names, and the actions that apply to it.
pub(super) struct ResourceKind {
    pub(super) resource: ResourceType,
    /// Whether its version is the one that the cluster prefers.
    pub(super) preferred: bool,
    pub(super) group_resource: String,
    /// Distinguishes its items from those in other versions; equal to `group_resource` for the
    /// preferred version.
    pub(super) unique_name: String,
    pub(super) api_version: String,
    /// `apiVersion` and `kind`, which lists leave out of items.
    pub(super) meta: TypeMeta,
    pub(super) actions: Vec<SelectedAction<dyn BackupItemAction>>,
    pub(super) blocks: Vec<SelectedAction<dyn ItemBlockAction>>,
}

impl ResourceKind {
    pub(super) fn new(resource: &ResourceType, actions: &BackupActions) -> Self {
        let group_resource = resource.group_resource();
        Self {
            actions: actions.items.for_type(&group_resource).cloned().collect(),
            blocks: actions.blocks.for_type(&group_resource).cloned().collect(),
            preferred: true,
            unique_name: group_resource.clone(),
            group_resource,
            api_version: resource.api_version(),
            meta: TypeMeta::of(resource),
            resource: resource.clone(),
        }
    }

    /// A type in a version that is not the preferred one. Blocks are found by items of the
    /// preferred version.
    pub(super) fn less_preferred(resource: &ResourceType, actions: &BackupActions) -> Self {
        let unique_name = group_resource(
            &format!("{}.{}", resource.plural, resource.version),
            &resource.group,
        );
        Self {
            preferred: false,
            unique_name,
            blocks: Vec::new(),
            ..Self::new(resource, actions)
        }
    }

    /// The actions that apply to an item, in their order.
    pub(super) fn actions_for<'k>(
        &'k self,
        item: &RawItem<'_>,
    ) -> impl Iterator<Item = &'k SelectedAction<dyn BackupItemAction>> {
        self.actions
            .iter()
            .filter(|action| action.applies_to(item.namespace(), || item.labels()))
    }

    pub(super) fn id(&self, item: &RawItem<'_>) -> ItemId {
        ItemId::new(&self.group_resource, item.namespace(), item.name())
    }

    /// The id that an action has named, in the form of [`Self::id`].
    pub(super) fn normalize(&self, id: &ItemId) -> ItemId {
        let namespace = id.namespace.as_deref().filter(|_| self.resource.namespaced);
        ItemId::new(&self.group_resource, namespace, &id.name)
    }
}

/// Names by type, as hashes of 16 bytes (about 40 in memory at worst). A collision within one
/// backup is far less likely than a broken disk.
#[derive(Debug, Default)]
pub(super) struct SeenItems {
    hashers: [RandomState; 2],
    types: HashMap<String, HashSet<u128>>,
}

impl SeenItems {
    /// Adds a name; false if it was present before.
    pub(super) fn insert(
        &mut self,
        group_resource: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> bool {
        let hash = self.hash(namespace, name);
        match self.types.get_mut(group_resource) {
            Some(names) => names.insert(hash),
            None => self
                .types
                .entry(group_resource.to_owned())
                .or_default()
                .insert(hash),
        }
    }

    pub(super) fn contains(
        &self,
        group_resource: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> bool {
        self.types
            .get(group_resource)
            .is_some_and(|names| names.contains(&self.hash(namespace, name)))
    }

    fn hash(&self, namespace: Option<&str>, name: &str) -> u128 {
        let [high, low] = self
            .hashers
            .each_ref()
            .map(|hasher| u128::from(hasher.hash_one((namespace, name))));
        high << 64 | low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_new_once_in_each_type_and_namespace() {
        let mut seen = SeenItems::default();
        assert!(seen.insert("pods", Some("a"), "x"));
        assert!(!seen.insert("pods", Some("a"), "x"));
        assert!(seen.contains("pods", Some("a"), "x") && !seen.contains("secrets", Some("a"), "x"));
        assert!(seen.insert("secrets", Some("a"), "x"));
        assert!(seen.insert("pods", Some("b"), "x"));
        assert!(seen.insert("pods", None, "x"));
        assert!(seen.insert("pods", Some("ab"), "c") && seen.insert("pods", Some("a"), "bc"));
    }
}
