//! Selects the items of the backup to restore, and their order.
//!
//! Only references to items are kept; an item is read when it is needed, or when labels decide
//! about it.

use std::collections::{BTreeMap, BTreeSet};

use backup_actions::{
    csi::CONTENTS,
    restore::json::{self, Object},
};
use backup_core::{
    api::RestoreSpec,
    labels::RESTORE_STATUS_ANNOTATION,
    resource_policy::{FilterPolicies, PolicyRule},
    resources::{DEFINITIONS, NAMESPACES, ResourceFilter, ResourceType, RestoreOrder, VOLUMES},
    selection::{IncludesExcludes, LabelFilter, ObjectName},
};
use backup_store::{Contents, ItemRef, StoreError};
use serde::Deserialize;

use super::{guard, type_names::TypeNames};
use crate::discovery::ServedTypes;

#[derive(Debug)]
pub(super) struct Selection {
    types: ResourceFilter,
    namespaces: IncludesExcludes,
    labels: LabelFilter,
    filters: FilterPolicies,
    /// Messages about rules of the filter policies that select nothing.
    pub(super) problems: Vec<String>,
    /// Types whose objects would start work of other operators, and that the spec does not name.
    guarded: Vec<String>,
    /// Types whose status is restored, if the spec has any.
    status: Option<IncludesExcludes>,
    /// Unless this is empty, only these are selected.
    objects: Vec<NamedObject>,
    /// Whether contents of snapshots are restored with their snapshots although cluster-scoped
    /// types are not selected: in a drill of volumes.
    takes_contents: bool,
}

/// An object that the spec names.
#[derive(Debug)]
struct NamedObject {
    /// As written in the spec.
    text: String,
    namespace: Option<String>,
    /// `None`: neither the cluster nor the backup has such a type.
    group_resource: Option<String>,
    name: String,
}

#[derive(Debug)]
pub(super) struct Batch {
    /// `deployments.apps`, as the tarball has it.
    pub(super) group_resource: String,
    /// The type that the cluster serves under this name, if any.
    pub(super) resource: Option<ResourceType>,
    pub(super) items: Vec<ItemRef>,
}

impl Batch {
    /// Whether the server of its API group did not answer, so that the type may be served later.
    pub(super) fn may_still_be_served(&self, served: &ServedTypes) -> bool {
        let group = self
            .group_resource
            .split_once('.')
            .map_or("", |(_, group)| group);
        served.by_group_resource(&self.group_resource).is_none() && served.is_away(group)
    }
}

impl Selection {
    /// The filters of a spec, with names completed from the types of the cluster, or else of the
    /// backup. `guarded` are types that are only restored where the spec names them. Fails if the
    /// local disk fails.
    pub(super) fn new(
        spec: &RestoreSpec,
        served: &ServedTypes,
        contents: &Contents,
        guarded: &[String],
        filters: &FilterPolicies,
    ) -> Result<Self, StoreError> {
        let names = TypeNames::read(spec, served, contents, !filters.is_empty())?;
        let types = ResourceFilter::for_restore(spec, &|name| names.resolve(name));
        // Names that cannot be parsed are refused before any work.
        let objects = spec.included_objects.iter().filter_map(|text| {
            let object = ObjectName::parse(text)?;
            Some(NamedObject {
                text: text.clone(),
                namespace: object.namespace.map(str::to_owned),
                group_resource: names.resolve(object.of_type),
                name: object.name.to_owned(),
            })
        });
        let objects: Vec<NamedObject> = objects.collect();
        let within = if objects.is_empty() {
            IncludesExcludes::new(&spec.included_namespaces, &spec.excluded_namespaces)
        } else {
            // Related items of an object stay within the namespaces of the claim.
            let theirs: BTreeSet<&str> = objects
                .iter()
                .filter_map(|object| object.namespace.as_deref())
                .collect();
            let nothing = if theirs.is_empty() {
                vec!["*".to_owned()]
            } else {
                Vec::new()
            };
            IncludesExcludes::new(
                &theirs.into_iter().map(str::to_owned).collect::<Vec<_>>(),
                &nothing,
            )
        };
        let guarded = guarded
            .iter()
            .filter(|name| !types.asks_for(name))
            .cloned()
            .collect();
        let drill = spec.drill.as_ref();
        let (filters, problems) = filters.resolved(&|name| {
            let full = names.resolve(name)?;
            let namespaced = served
                .by_group_resource(&full)
                .map(|resource| resource.namespaced);
            Some((full, namespaced))
        });
        Ok(Self {
            filters,
            problems,
            status: ResourceFilter::status_in_restore(spec, &|name| names.resolve(name)),
            types,
            guarded,
            objects,
            takes_contents: drill.is_some_and(|drill| drill.settings.volumes),
            namespaces: within,
            labels: LabelFilter::of(&spec.label_selector, &spec.or_label_selectors),
        })
    }

    /// Whether the filters select any item, apart from types that are always restored.
    pub(super) fn selects_any(&self, contents: &Contents) -> Result<bool, StoreError> {
        for group_resource in contents.types() {
            if group_resource == NAMESPACES
                || self.types.needs(&group_resource)
                || self.keeps_type(&group_resource)
            {
                continue;
            }
            let takes = self.takes(&group_resource);
            for item in contents.items(&group_resource) {
                if self.selects(takes, contents, &group_resource, item)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// All selected items except definitions and namespaces, by type, in the order of restoring.
    pub(super) fn batches(
        &self,
        contents: &Contents,
        served: &ServedTypes,
        order: &RestoreOrder,
    ) -> Result<Vec<Batch>, StoreError> {
        let mut batches = Vec::new();
        let mut types = contents.types();
        order.sort(&mut types, &|name| served.resolve(name));
        for group_resource in types {
            if [DEFINITIONS, NAMESPACES].contains(&group_resource.as_str()) {
                continue;
            }
            let items = self.items(contents, &group_resource)?;
            if !items.is_empty() {
                let resource = served.by_group_resource(&group_resource).cloned();
                batches.push(Batch {
                    group_resource,
                    resource,
                    items,
                });
            }
        }
        Ok(batches)
    }

    /// The items of guarded types that are left out although the filters select them.
    pub(super) fn left_out(
        &self,
        contents: &Contents,
    ) -> Result<Vec<(&str, Vec<ItemRef>)>, StoreError> {
        let all = self.guarded.iter();
        let all = all.map(|name| Ok((name.as_str(), self.filtered(contents, name)?)));
        all.filter(|left_out| !left_out.as_ref().is_ok_and(|(_, items)| items.is_empty()))
            .collect()
    }

    pub(super) fn items(
        &self,
        contents: &Contents,
        group_resource: &str,
    ) -> Result<Vec<ItemRef>, StoreError> {
        if self.keeps_type(group_resource) {
            return Ok(Vec::new());
        }
        self.filtered(contents, group_resource)
    }

    /// Whether an item is part of the restore.
    pub(super) fn includes(
        &self,
        contents: &Contents,
        group_resource: &str,
        item: &ItemRef,
    ) -> Result<bool, StoreError> {
        Ok(!self.keeps_type(group_resource)
            && self.selects(self.takes(group_resource), contents, group_resource, item)?)
    }

    /// Whether no item of this type is restored.
    pub(super) fn keeps_type(&self, group_resource: &str) -> bool {
        guard::keeps_type(group_resource) || self.guarded.iter().any(|name| name == group_resource)
    }

    /// Whether namespaced objects of this type are selected.
    pub(super) fn takes_type(&self, group_resource: &str) -> bool {
        !self.keeps_type(group_resource) && self.takes(group_resource)[0]
    }

    /// Whether an object of a selected type in the cluster would be selected if the backup had it.
    /// `source` is its namespace in the backup; `labels` is called only if needed.
    pub(super) fn takes_object(
        &self,
        group_resource: &str,
        source: &str,
        name: &str,
        labels: impl FnOnce() -> BTreeMap<String, String>,
    ) -> bool {
        if !self.objects.is_empty() && !self.names(group_resource, Some(source), name) {
            return false;
        }
        match self.filters.rule(group_resource, Some(source)) {
            PolicyRule::None => self.labels.selects(labels),
            PolicyRule::Unlisted => false,
            PolicyRule::Filter(filter) => filter.selects(name, labels),
        }
    }

    fn filtered(
        &self,
        contents: &Contents,
        group_resource: &str,
    ) -> Result<Vec<ItemRef>, StoreError> {
        let takes = self.takes(group_resource);
        let mut chosen = Vec::new();
        for item in contents.items(group_resource) {
            if self.selects(takes, contents, group_resource, item)? {
                chosen.push(*item);
            }
        }
        Ok(chosen)
    }

    /// Whether namespaced and cluster-scoped items of a type are selected.
    fn takes(&self, group_resource: &str) -> [bool; 2] {
        [true, false].map(|namespaced| self.types.includes(&named(group_resource, namespaced)))
    }

    fn selects(
        &self,
        takes: [bool; 2],
        contents: &Contents,
        group_resource: &str,
        item: &ItemRef,
    ) -> Result<bool, StoreError> {
        let selected = match contents.namespace_of(item) {
            Some(namespace) => takes[0] && self.namespaces.includes(namespace),
            None => takes[1],
        };
        Ok(selected && self.passes(contents, group_resource, item)?)
    }

    /// Whether an item passes the policy's filter for it, or else the label selectors of the spec.
    fn passes(
        &self,
        contents: &Contents,
        group_resource: &str,
        item: &ItemRef,
    ) -> Result<bool, StoreError> {
        if self.types.needs(group_resource) {
            return Ok(true);
        }
        if !self.objects.is_empty() {
            let namespace = contents.namespace_of(item);
            let name = contents.name_of(item)?;
            if !self.names(group_resource, namespace, &name) {
                return Ok(false);
            }
        }
        match self
            .filters
            .rule(group_resource, contents.namespace_of(item))
        {
            PolicyRule::None => labels_match(&self.labels, contents, item),
            PolicyRule::Unlisted => Ok(false),
            PolicyRule::Filter(filter) => Ok(filter.names.includes(&contents.name_of(item)?)
                && labels_match(&filter.labels, contents, item)?),
        }
    }

    /// Whether this is one of the objects that the spec names.
    fn names(&self, group_resource: &str, namespace: Option<&str>, name: &str) -> bool {
        self.objects.iter().any(|object| {
            object.group_resource.as_deref() == Some(group_resource)
                && object.namespace.as_deref() == namespace
                && object.name == name
        })
    }

    /// The objects that the spec names and that are not restored, as written there.
    pub(super) fn unselected_objects(&self, contents: &Contents) -> Result<Vec<&str>, StoreError> {
        let mut unselected = Vec::new();
        for object in &self.objects {
            if !self.selects_object(contents, object)? {
                unselected.push(object.text.as_str());
            }
        }
        Ok(unselected)
    }

    /// Whether an object that the spec names is restored.
    fn selects_object(
        &self,
        contents: &Contents,
        object: &NamedObject,
    ) -> Result<bool, StoreError> {
        let Some(of_type) = &object.group_resource else {
            return Ok(false);
        };
        // Namespaces are created with their items.
        if of_type == NAMESPACES {
            return Ok(contents.find(of_type, None, &object.name).is_some());
        }
        match contents.find(of_type, object.namespace.as_deref(), &object.name) {
            Some(item) => self.includes(contents, of_type, &item),
            None => Ok(false),
        }
    }

    /// The definitions that are restored: the selected ones, and those that selected custom
    /// resources need while the cluster does not serve them (unless the spec leaves definitions
    /// out).
    pub(super) fn definitions(
        &self,
        contents: &Contents,
        served: &ServedTypes,
    ) -> Result<Vec<ItemRef>, StoreError> {
        let mut chosen = self.items(contents, DEFINITIONS)?;
        if self.types.excludes(&named(DEFINITIONS, false)) {
            return Ok(chosen);
        }
        let mut needed = BTreeSet::new();
        for group_resource in contents.types() {
            // Only a type with a group can come from a definition.
            if group_resource.contains('.')
                && served.by_group_resource(&group_resource).is_none()
                && !self.items(contents, &group_resource)?.is_empty()
            {
                needed.insert(group_resource);
            }
        }
        // A definition is named after its type.
        let related = needed
            .iter()
            .filter_map(|name| contents.find(DEFINITIONS, None, name));
        let related: Vec<ItemRef> = related.filter(|item| !chosen.contains(item)).collect();
        chosen.extend(related);
        Ok(chosen)
    }

    /// Whether items of this namespace of the backup are restored at all.
    pub(super) fn takes_namespace(&self, namespace: &str) -> bool {
        self.namespaces.includes(namespace)
    }

    /// Whether a Namespace object is restored even if nothing is restored into it.
    pub(super) fn takes_empty_namespace(
        &self,
        name: &str,
        labels: &BTreeMap<String, String>,
    ) -> bool {
        self.types.includes(&named(NAMESPACES, false))
            && self.takes_namespace(name)
            && (self.objects.is_empty() || self.names(NAMESPACES, None, name))
            && match self.filters.rule(NAMESPACES, None) {
                PolicyRule::Filter(filter) => filter.selects(name, || labels.clone()),
                _ => self.labels.matches(labels),
            }
    }

    /// Whether an action on another item may ask for an item of this type and namespace of the
    /// backup. Volumes are restored with their claims unless the spec excludes their type.
    pub(super) fn allows_related(&self, group_resource: &str, namespace: Option<&str>) -> bool {
        let of_type = named(group_resource, namespace.is_some());
        let allowed = match group_resource {
            VOLUMES => !self.types.excludes(&of_type),
            CONTENTS => self.takes_contents || self.types.allows_related_in_restore(&of_type),
            _ => self.types.allows_related_in_restore(&of_type),
        };
        allowed
            && !self.keeps_type(group_resource)
            && namespace.is_none_or(|namespace| self.namespaces.includes(namespace))
    }

    /// Whether the status of an item is restored, too: by the item's annotation, else by the spec
    /// for its type (Velero `pkg/restore/restore.go`, `determineRestoreStatus`, v1.18). `None`:
    /// neither is set, so it is not restored. The error names an invalid annotation value.
    pub(super) fn restores_status(
        &self,
        group_resource: &str,
        item: &Object,
    ) -> Result<Option<bool>, String> {
        match json::text(
            item,
            &["metadata", "annotations"],
            RESTORE_STATUS_ANNOTATION,
        ) {
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            None => Ok(self.status.as_ref().and_then(|types| {
                let is_said = types.includes(group_resource) || types.excludes(group_resource);
                is_said.then(|| types.includes(group_resource))
            })),
            Some(other) => Err(format!(
                "its annotation {RESTORE_STATUS_ANNOTATION} is {other:?}, expected \"true\" or \"false\""
            )),
        }
    }
}

/// Whether a filter selects an item by its labels.
fn labels_match(
    filter: &LabelFilter,
    contents: &Contents,
    item: &ItemRef,
) -> Result<bool, StoreError> {
    if filter.everything() {
        return Ok(true);
    }
    let bytes = match contents.read(item) {
        Ok(bytes) => bytes,
        Err(error) if error.is_transient() => return Err(error),
        // It may match: it is selected, and becomes an error when it is restored.
        Err(_) => return Ok(true),
    };
    let labels = match serde_json::from_slice::<Head>(&bytes) {
        Ok(head) => head.metadata.labels.unwrap_or_default(),
        Err(_) => match serde_json::from_slice::<Object>(&bytes) {
            Ok(object) => json::labels(&object),
            Err(_) => return Ok(true),
        },
    };
    Ok(filter.matches(&labels))
}

/// A type that is known by its name only.
fn named(group_resource: &str, namespaced: bool) -> ResourceType {
    let (plural, group) = group_resource
        .split_once('.')
        .unwrap_or((group_resource, ""));
    ResourceType {
        plural: plural.to_owned(),
        group: group.to_owned(),
        namespaced,
        ..ResourceType::default()
    }
}

/// The part of an item that selection reads.
#[derive(Debug, Default, Deserialize)]
struct Head {
    #[serde(default)]
    metadata: HeadMetadata,
}

#[derive(Debug, Default, Deserialize)]
struct HeadMetadata {
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
}
