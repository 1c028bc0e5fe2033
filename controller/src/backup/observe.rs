//! Reads the data from the cluster that decisions need.

use std::{collections::BTreeMap, time::Duration};

use backup_client::{errors::found, paging, retry};
use backup_core::{
    api::{BackupSpec, BackupStorageLocation},
    labels::EXCLUDE_FROM_BACKUP,
    resource_policy::{GLOBAL_POLICIES, ResourcePolicy},
    resources::{NEVER_SELECTED, ResourceFilter, ResourceType},
    selection::{glob_match, is_glob},
};
use backup_runtime::{Cluster, list};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt as _, api::ListParams, core::PartialObjectMeta};

use super::{
    collect::{CollectPlan, NamespaceScope, NeededNamespaces, without_match},
    prepare::{self, EffectivePolicy, Facts, PolicyData},
};
use crate::{
    config_maps,
    discovery::{KnownGroups, ReadError, ServedTypes},
    volumes::snapshot_locations::SnapshotLocations,
};

const READ_BUDGET: Duration = Duration::from_secs(30);

/// The facts that the preparation of a Backup with this spec needs.
pub(crate) async fn facts(
    cluster: &Cluster,
    snapshot_locations: &SnapshotLocations,
    spec: &BackupSpec,
    global_policies: Option<&str>,
) -> Result<Facts, kube::Error> {
    let (locations, version, excluded_namespaces, policy, snapshots) = tokio::try_join!(
        // A location that can't be decoded counts as missing: its own controller reports it.
        list::raw::<BackupStorageLocation, BackupStorageLocation>(cluster, "", |object| {
            list::decode(&object).ok()
        }),
        retry::read(READ_BUDGET, || cluster.client.apiserver_version()),
        excluded_namespaces(&cluster.client),
        policy_data(cluster, spec, global_policies),
        snapshot_locations.candidates(),
    )?;
    let asks_for_labels = prepare::read_policy(spec, &policy, global_policies)
        .is_ok_and(|read| !read.policy.namespaces.is_empty());
    let namespaces = if asks_for_labels {
        namespaces(&cluster.client, "").await?.into_iter().collect()
    } else {
        BTreeMap::new()
    };
    Ok(Facts {
        locations,
        excluded_namespaces,
        version,
        policy,
        namespaces,
        snapshots,
    })
}

async fn policy_data(
    cluster: &Cluster,
    spec: &BackupSpec,
    global_policies: Option<&str>,
) -> Result<PolicyData, kube::Error> {
    let global = global_policies.map(config_maps::reference);
    let (own, global) = tokio::try_join!(
        config_maps::data(cluster, spec.resource_policy.as_ref()),
        config_maps::data(cluster, global.as_ref()),
    )?;
    Ok(PolicyData { own, global })
}

async fn excluded_namespaces(client: &Client) -> Result<Vec<String>, kube::Error> {
    Ok(names(
        namespaces(client, &format!("{EXCLUDE_FROM_BACKUP}=true")).await?,
    ))
}

fn names(namespaces: Vec<(String, BTreeMap<String, String>)>) -> Vec<String> {
    namespaces.into_iter().map(|(name, _)| name).collect()
}

/// Namespaces with their labels.
async fn namespaces(
    client: &Client,
    selector: &str,
) -> Result<Vec<(String, BTreeMap<String, String>)>, kube::Error> {
    let api: &Api<Namespace> = &Api::all(client.clone());
    let mut params = ListParams::default().limit(500);
    if !selector.is_empty() {
        params = params.labels(selector);
    }
    paging::collect(
        params,
        |page| async move { retry::read(READ_BUDGET, || api.list_metadata(&page)).await },
        |one: PartialObjectMeta<Namespace>| {
            Some((one.name_any(), one.metadata.labels.unwrap_or_default()))
        },
    )
    .await
}

/// The live namespaces that a list of a spec may mean. Few names are read one by one, as a list
/// would return all namespaces.
async fn live_namespaces(
    client: &Client,
    names_of_spec: &[String],
) -> Result<Vec<String>, kube::Error> {
    let named = match NamespaceScope::needed(names_of_spec) {
        NeededNamespaces::None => return Ok(Vec::new()),
        NeededNamespaces::All => return Ok(names(namespaces(client, "").await?)),
        NeededNamespaces::Named(named) => named,
    };
    let api: Api<Namespace> = Api::all(client.clone());
    let reads = named
        .iter()
        .cloned()
        .map(|name| name_if_exists(api.clone(), name));
    Ok(try_join_all(reads).await?.into_iter().flatten().collect())
}

async fn name_if_exists(api: Api<Namespace>, name: String) -> Result<Option<String>, kube::Error> {
    let read = retry::read(READ_BUDGET, || api.get_metadata(&name)).await;
    Ok(found(read, &name)?.map(|_| name))
}

/// The items that a backup should collect, and known gaps in it.
#[derive(Debug)]
pub(crate) struct Selection {
    pub plan: CollectPlan,
    /// API groups that did not answer, and may have selected types.
    pub unavailable: Vec<String>,
    /// API groups that did not answer, and have no types that could be backed up.
    pub silent: Vec<String>,
    /// Included resource names for which the cluster serves no type that could be backed up.
    pub unknown: Vec<String>,
    /// Included patterns of resources that match no served type.
    pub unmatched: Vec<String>,
    /// Excluded resource names for which the cluster serves no type.
    pub idle_excludes: Vec<String>,
    /// Excluded names and patterns of namespaces that match no namespace.
    pub idle_namespaces: Vec<String>,
    /// Why the requested resource policy can't be followed, or can no longer be followed.
    pub policy_problems: Vec<String>,
    /// Messages about valid parts of the policies that are not followed.
    pub policy_remarks: Vec<String>,
}

/// Resolves a spec against what the cluster serves now. With `only_related`, cluster-scoped
/// resources are only included with items related to them.
pub(crate) async fn selection(
    cluster: &Cluster,
    spec: &BackupSpec,
    only_related: bool,
    groups: &KnownGroups,
    global_policies: Option<&str>,
) -> Result<Selection, ReadError> {
    let client = &cluster.client;
    let served = ServedTypes::load(client).await?;
    groups.note(&served);
    let live = live_namespaces(client, &spec.included_namespaces).await?;
    // Skipped if possible: preparation has just asked, and another answer so soon takes up to 100
    // ms, as the API server requests progress from etcd only at intervals
    // (`pkg/storage/cacher/progress`, v1.34).
    let labelled = if spec.excluded_namespaces.is_empty() {
        Vec::new()
    } else {
        excluded_namespaces(client).await?
    };
    let mut asked = as_asked(spec, &labelled);
    let idle_namespaces = match asked.excluded_namespaces.as_slice() {
        [] => Vec::new(),
        excluded => without_match(excluded, &live_namespaces(client, excluded).await?),
    };
    let data = policy_data(cluster, spec, global_policies).await?;
    let (EffectivePolicy { policy, ignored }, policy_problems) =
        match prepare::read_policy(spec, &data, global_policies) {
            Ok(policy) => (policy, Vec::new()),
            // It was valid when the backup began.
            Err(findings) => (
                EffectivePolicy::default(),
                findings.iter().map(ToString::to_string).collect(),
            ),
        };
    let policy_remarks = remarks(spec, &policy, &ignored);
    asked = policy.types.added_to(&asked, &|name| served.resolve(name));
    let mut filter = ResourceFilter::for_backup(&asked, &|name| served.resolve(name));
    if only_related {
        filter = filter.only_related();
    }
    let UnservedNames {
        unknown,
        unmatched,
        idle_excludes,
    } = unserved(spec, &served);
    let failed = served
        .failed
        .iter()
        .filter(|group| !unknown.is_empty() || may_select(&filter, group));
    let (silent, unavailable) = failed
        .cloned()
        .partition(|group| groups.has_nothing_to_back_up(group));
    Ok(Selection {
        unavailable,
        silent,
        unknown,
        unmatched,
        idle_excludes,
        idle_namespaces,
        policy_problems,
        policy_remarks,
        plan: CollectPlan::new(spec, served, filter, &live, Some(policy), cluster.page_size),
    })
}

/// Messages about parts of the policies that have no effect in this backup.
fn remarks(spec: &BackupSpec, policy: &ResourcePolicy, ignored: &[&str]) -> Vec<String> {
    let global = ignored.iter().map(|part| {
        format!(
            "{GLOBAL_POLICIES}: {part} is not followed: only volumePolicies are for all backups"
        )
    });
    // Selected namespaces replace an empty list before the backup begins.
    let takes_all = !policy.namespaces.included.is_empty()
        && spec.included_namespaces.iter().any(|one| one == "*");
    let star = takes_all.then(|| {
        "spec.resourcePolicy: includeExcludePolicy.includedNamespacesByLabel selects nothing, as spec.includedNamespaces is \"*\", \
         which is all; unset that to select by labels"
            .to_owned()
    });
    global.chain(star).collect()
}

/// The spec without the namespaces that are excluded by their own label. Preparation adds them; a
/// backup of everything remains one of everything, including cluster-scoped resources (which Velero
/// drops then).
fn as_asked(spec: &BackupSpec, labelled: &[String]) -> BackupSpec {
    let mut asked = spec.clone();
    asked
        .excluded_namespaces
        .retain(|name| !labelled.contains(name));
    asked
}

/// Whether the filter may select a type of a group (`group/version`) whose types are unknown.
fn may_select(filter: &ResourceFilter, group_version: &str) -> bool {
    let group = group_version.split('/').next().unwrap_or_default();
    [true, false].into_iter().any(|namespaced| {
        filter.includes(&ResourceType {
            group: group.to_owned(),
            plural: "unknown".to_owned(),
            namespaced,
            ..ResourceType::default()
        })
    })
}

/// Names and patterns of resources in a spec that match no served type.
#[derive(Debug, PartialEq)]
struct UnservedNames {
    unknown: Vec<String>,
    unmatched: Vec<String>,
    idle_excludes: Vec<String>,
}

fn unserved(spec: &BackupSpec, served: &ServedTypes) -> UnservedNames {
    let included = [
        &spec.included_resources,
        &spec.included_cluster_scoped_resources,
        &spec.included_namespace_scoped_resources,
    ];
    let included = included
        .into_iter()
        .flatten()
        .filter(|name| !is_served(served, name))
        .cloned();
    let (unmatched, unknown) = included.partition(|name| is_glob(name));
    let excluded = [
        &spec.excluded_resources,
        &spec.excluded_cluster_scoped_resources,
        &spec.excluded_namespace_scoped_resources,
    ];
    let idle_excludes = excluded
        .into_iter()
        .flatten()
        .filter(|name| {
            !is_glob(name)
                && served.resolve(name).is_none()
                && !NEVER_SELECTED.contains(&name.as_str())
        })
        .cloned()
        .collect();
    UnservedNames {
        unknown,
        unmatched,
        idle_excludes,
    }
}

/// Whether a name or pattern matches a served type.
fn is_served(served: &ServedTypes, name: &str) -> bool {
    let full = served.resolve(name);
    full.is_some_and(|full| served.by_group_resource(&full).is_some())
        || is_glob(name)
            && served
                .types()
                .any(|of_type| glob_match(name, &of_type.group_resource()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_that_exclude_themselves_do_not_make_a_full_backup_a_partial_one() {
        let spec = BackupSpec {
            included_namespaces: vec!["*".to_owned()],
            excluded_namespaces: vec!["scratch".to_owned()],
            ..BackupSpec::default()
        };
        let nodes = ResourceType {
            plural: "nodes".to_owned(),
            ..ResourceType::default()
        };
        let selects =
            |spec: &BackupSpec| ResourceFilter::for_backup(spec, &|_| None).includes(&nodes);
        assert!(
            !selects(&spec),
            "excluded by the user: cluster-scoped resources do not come along"
        );
        assert!(selects(&as_asked(&spec, &["scratch".to_owned()])));
    }

    #[test]
    fn a_group_that_does_not_answer_matters_where_it_may_be_selected() {
        let filter =
            |spec: &BackupSpec| ResourceFilter::for_backup(spec, &|name| Some(name.to_owned()));
        assert!(may_select(
            &filter(&BackupSpec::default()),
            "metrics.k8s.io/v1beta1"
        ));
        let narrow = BackupSpec {
            included_resources: vec!["configmaps".to_owned()],
            ..BackupSpec::default()
        };
        assert!(!may_select(&filter(&narrow), "metrics.k8s.io/v1beta1"));
    }

    #[test]
    fn what_a_backup_names_and_the_cluster_does_not_serve_is_found() {
        let of = |plural: &str, group: &str, kind: &str| ResourceType {
            plural: plural.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            verbs: ["list", "get", "create", "delete"]
                .map(str::to_owned)
                .to_vec(),
            ..ResourceType::default()
        };
        let metrics = ResourceType {
            verbs: vec!["get".to_owned()],
            ..of("pods", "metrics.k8s.io", "PodMetrics")
        };
        let served = ServedTypes::just(&[
            of("pods", "", "Pod"),
            of("deployments", "apps", "Deployment"),
            metrics,
        ]);
        let names = |all: &[&str]| all.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let spec = BackupSpec {
            included_resources: names(&[
                "pod",
                "deployments.apps",
                "*",
                "*.apps",
                "secretz",
                "*.x.io",
                "podmetrics",
            ]),
            excluded_resources: names(&[
                "pods",
                "nowhere",
                "*.none",
                "volumesnapshots.snapshot.storage.k8s.io",
            ]),
            ..BackupSpec::default()
        };
        let expected = UnservedNames {
            unknown: names(&["secretz", "podmetrics"]),
            unmatched: names(&["*.x.io"]),
            idle_excludes: names(&["nowhere"]),
        };
        assert_eq!(unserved(&spec, &served), expected);
    }
}
