//! Checks whether the author of a Backup may read directly what it reads. Asked of namespace owners
//! (ClusterRole `backup-owner`) only: our controller reads with its own permissions, which equal an
//! administrator's.

use std::collections::BTreeSet;

use backup_client::discovery::ServedTypes;
use backup_core::{
    api::BackupSpec,
    resources::{NAMESPACES, ResourceFilter, ResourceType, group_resource, uses_combined_fields},
};
use backup_lock::footprint::Footprint;
use k8s_openapi::api::{authentication::v1::UserInfo, authorization::v1::ResourceAttributes};

use crate::{
    authorization::{Authorization, right},
    restore_rights::MissingRights,
};

/// Maximum number of permissions that are checked for one object.
const MAX_CHECKS: usize = 1000;
/// Maximum number of permissions in a message.
const MAX_NAMED: usize = 5;
/// The whole cluster, in the place of a namespace.
const CLUSTER: &str = "";

/// The parts of a backup that are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadPart {
    /// Its items, and the cluster-scoped ones that other items need.
    Items,
    /// Its spec and status only.
    Object,
}

/// The spec of a backup of everything in these namespaces.
pub(crate) fn of_namespaces<'a>(names: impl IntoIterator<Item = &'a String>) -> BackupSpec {
    BackupSpec {
        included_namespaces: names.into_iter().cloned().collect(),
        include_cluster_resources: Some(false),
        ..BackupSpec::default()
    }
}

/// The permissions that a user lacks to read directly what a backup with this spec reads; `None` if
/// none is missing. `namespace` is that of the Backup.
pub(crate) async fn lacking(
    authorization: &Authorization,
    user: &UserInfo,
    namespace: &str,
    spec: &BackupSpec,
    part: ReadPart,
) -> Result<Option<MissingRights>, String> {
    let places = places(spec);
    let mut rights = further(spec, namespace, &places);
    let whole_cluster = reading("*", "*", CLUSTER).into();
    if !authorization.lacking(user, whole_cluster).await?.is_empty() {
        let all = places.iter().flat_map(|place| reading("*", "*", place));
        let partly: BTreeSet<String> = authorization
            .lacking(user, all.collect())
            .await?
            .into_iter()
            .filter_map(|right| right.namespace)
            .collect();
        // Without cluster-scoped resources nothing outside of the namespaces is read.
        if !partly.is_empty() || spec.include_cluster_resources != Some(false) {
            let served = ServedTypes::load(&authorization.client)
                .await
                .map_err(|error| error.to_string())?;
            rights.extend(types(spec, &served, &partly, part));
        }
    }
    if rights.len() > MAX_CHECKS {
        return Ok(Some(MissingRights {
            field: "spec.includedNamespaces".to_owned(),
            rights: format!(
                "get and list everything (*.*) in each of its namespaces, and its types are too many to ask for each (more than \
                 {MAX_CHECKS} permissions)"
            ),
            instead: "include fewer namespaces or fewer types".to_owned(),
        }));
    }
    let missing = authorization.lacking(user, rights).await?;
    Ok(described(&missing, places.contains(CLUSTER)))
}

/// The permissions to read the objects of a type.
fn reading(group: &str, plural: &str, place: &str) -> [ResourceAttributes; 2] {
    ["get", "list"].map(|verb| right(verb, group, plural, place))
}

/// The namespaces that a backup reads, or the whole cluster if they are not given as plain names.
fn places(spec: &BackupSpec) -> BTreeSet<String> {
    let footprint = Footprint::of_backup(spec);
    footprint
        .names()
        .cloned()
        .unwrap_or_else(|| [CLUSTER.to_owned()].into())
}

/// What a backup does beside reading objects: hooks run commands in pods, and the errors of a
/// resource policy quote its ConfigMap.
fn further(
    spec: &BackupSpec,
    namespace: &str,
    places: &BTreeSet<String>,
) -> Vec<ResourceAttributes> {
    let has_hooks = spec
        .hooks
        .as_ref()
        .is_some_and(|hooks| !hooks.resources.is_empty());
    let commands = places
        .iter()
        .filter(|_| has_hooks)
        .map(|place| ResourceAttributes {
            subresource: Some("exec".to_owned()),
            ..right("create", "", "pods", place)
        });
    let policy = spec
        .resource_policy
        .as_ref()
        .map(|policy| ResourceAttributes {
            name: Some(policy.name.clone()),
            ..right("get", "", "configmaps", namespace)
        });
    commands.chain(policy).collect()
}

/// The permissions to read each type of a backup, in these places and of cluster-scoped types.
fn types(
    spec: &BackupSpec,
    served: &ServedTypes,
    places: &BTreeSet<String>,
    part: ReadPart,
) -> Vec<ResourceAttributes> {
    let spec = &without_what_a_policy_adds(spec);
    let filter = ResourceFilter::for_backup(spec, &|name| served.resolve(name));
    let is_read = |of_type: &ResourceType| {
        filter.includes(of_type) || part == ReadPart::Items && filter.allows_related(of_type)
    };
    let mut rights = Vec::new();
    for of_type in served.types() {
        let ResourceType { group, plural, .. } = of_type;
        if of_type.namespaced {
            if filter.includes(of_type) {
                rights.extend(
                    places
                        .iter()
                        .flat_map(|place| reading(group, plural, place)),
                );
            }
        } else if of_type.group_resource() != NAMESPACES && is_read(of_type) {
            rights.extend(reading(group, plural, CLUSTER));
        }
    }
    // The types of a group that does not answer are not known, and it may answer when the backup
    // runs.
    let silent: BTreeSet<&str> = served
        .failed
        .iter()
        .map(|version| version.split('/').next().unwrap_or_default())
        .collect();
    for group in silent {
        let unknown = ResourceType {
            group: group.to_owned(),
            plural: "unknown".to_owned(),
            ..ResourceType::default()
        };
        rights.extend(places.iter().flat_map(|place| reading(group, "*", place)));
        if is_read(&unknown) {
            rights.extend(reading(group, "*", CLUSTER));
        }
    }
    // The namespaces themselves come along with their items.
    rights.extend(places.iter().map(|place| ResourceAttributes {
        name: (place != CLUSTER).then(|| place.clone()),
        ..right("get", "", NAMESPACES, place)
    }));
    rights
}

/// A resource policy may add types to the lists for each scope: then all types count.
fn without_what_a_policy_adds(spec: &BackupSpec) -> BackupSpec {
    let mut spec = spec.clone();
    if spec.resource_policy.is_some() && !uses_combined_fields(&spec) {
        spec.included_cluster_scoped_resources.clear();
        spec.excluded_cluster_scoped_resources.clear();
        spec.included_namespace_scoped_resources.clear();
        spec.excluded_namespace_scoped_resources.clear();
    }
    spec
}

/// Names what is missing, and how to do without. `everywhere`: the backup reads all namespaces, or
/// those that match a pattern.
fn described(missing: &[ResourceAttributes], everywhere: bool) -> Option<MissingRights> {
    if missing.is_empty() {
        return None;
    }
    if everywhere {
        return Some(MissingRights {
            field: "spec.includedNamespaces".to_owned(),
            rights: "get and list everything (*.*) in the whole cluster".to_owned(),
            instead: "name each namespace in spec.includedNamespaces, without wildcards".to_owned(),
        });
    }
    let mut named: Vec<(String, Vec<&str>)> = Vec::new();
    for one in missing {
        let subject = subject(one);
        let verb = one.verb.as_deref().unwrap_or_default();
        match named.iter_mut().find(|(known, _)| *known == subject) {
            Some((_, verbs)) => verbs.push(verb),
            None => named.push((subject, vec![verb])),
        }
    }
    let mut texts: Vec<String> = named
        .iter()
        .take(MAX_NAMED)
        .map(|(subject, verbs)| format!("{} {subject}", verbs.join(" and ")))
        .collect();
    if named.len() > MAX_NAMED {
        texts.push(format!("{} more", named.len() - MAX_NAMED));
    }
    let of_cluster = missing
        .iter()
        .any(|right| right.namespace.as_deref() == Some(CLUSTER));
    let (field, instead) = if of_cluster {
        (
            "spec.includeClusterResources",
            "set spec.includeClusterResources to false",
        )
    } else {
        (
            "spec.includedNamespaces",
            "leave that out (spec.excludedResources, spec.includedNamespaces)",
        )
    };
    Some(MissingRights {
        field: field.to_owned(),
        rights: texts.join(", "),
        instead: instead.to_owned(),
    })
}

/// `secrets in namespace shop`
pub(crate) fn subject(right: &ResourceAttributes) -> String {
    let mut subject = group_resource(
        right.resource.as_deref().unwrap_or_default(),
        right.group.as_deref().unwrap_or_default(),
    );
    if let Some(subresource) = &right.subresource {
        subject = format!("{subject}/{subresource}");
    }
    if let Some(name) = &right.name {
        subject = format!("{subject} {name:?}");
    }
    match right.namespace.as_deref().unwrap_or_default() {
        CLUSTER => format!("{subject} in the whole cluster"),
        namespace => format!("{subject} in namespace {namespace}"),
    }
}
