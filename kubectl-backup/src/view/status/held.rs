//! Compares the contents of the last good backups with objects that were created since. Pure.

use std::collections::{BTreeSet, HashMap};

use backup_core::api::GROUP;
use jiff::Timestamp;

use super::{
    ClusterData, Coverage, JudgedBackup, Places, Requirements, covering, judged, newest, split,
};
use crate::{fetched::FetchResult, view::stored::ResourceList};

/// Maximum number of names in a remark.
const MAX_NAMES: usize = 3;

/// An object of the cluster and its creation time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClusterObject {
    /// Empty for a cluster-scoped object.
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) at: Option<Timestamp>,
    /// Time of the last write to its status.
    pub(crate) status_changed: Option<Timestamp>,
}

impl ClusterObject {
    fn is_after(&self, began: Option<Timestamp>) -> bool {
        self.at.zip(began).is_some_and(|(at, began)| at > began)
    }

    /// Whether its status was written after this time.
    fn has_changed_after(&self, began: Option<Timestamp>) -> bool {
        self.status_changed
            .zip(began)
            .is_some_and(|(at, began)| at > began)
    }
}

/// A backup whose list of items is to be read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UnreadBackup {
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// The kept part of a backup's item list; `None` if the backup has no list.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HeldItems(Option<Contents>);

#[derive(Clone, Debug, Default, PartialEq)]
struct Contents {
    /// Namespaces of which it contains items.
    namespaces: BTreeSet<String>,
    /// The definitions of custom resources that it contains.
    definitions: BTreeSet<String>,
}

impl From<ResourceList> for HeldItems {
    fn from(list: ResourceList) -> Self {
        let Contents {
            mut namespaces,
            mut definitions,
        } = Contents::default();
        for (kind, items) in list {
            for item in items {
                if let Some((namespace, _)) = item.split_once('/') {
                    if !namespaces.contains(namespace) {
                        namespaces.insert(namespace.to_owned());
                    }
                } else if kind == "v1/Namespace" {
                    namespaces.insert(item);
                } else if kind == "apiextensions.k8s.io/v1/CustomResourceDefinition" {
                    definitions.insert(item);
                }
            }
        }
        Self(Some(Contents {
            namespaces,
            definitions,
        }))
    }
}

/// Keyed by the name of the backup.
pub(crate) type HeldByBackup = HashMap<String, FetchResult<HeldItems>>;

/// The last good backup that contains something of a namespace.
#[derive(Default)]
pub(super) struct LastGoodBackup<'a> {
    pub(super) good: Option<&'a JudgedBackup<'a>>,
    /// Why a newer backup that is good and covers the namespace was skipped.
    pub(super) passed_over: Option<String>,
    /// The backup whose list has to be read first, and why it was not read.
    pub(super) unread: Option<(&'a JudgedBackup<'a>, Option<&'a str>)>,
}

/// Checks backups from the newest to the oldest, as far as their lists were read. Without `held`
/// only the scopes count.
pub(super) fn last_good<'a>(
    namespace: &ClusterObject,
    covering: &Coverage<'a>,
    held: Option<&'a HeldByBackup>,
    age: impl Fn(Timestamp) -> String,
) -> LastGoodBackup<'a> {
    let mut found = LastGoodBackup::default();
    let mut all: Vec<&[&JudgedBackup<'_>]> = covering
        .newest
        .iter()
        .map(|one| one.good.as_slice())
        .collect();
    // Each scope's backups are sorted: the newest of all is the first of some scope.
    while let Some((first, rest)) = all
        .iter_mut()
        .filter_map(|one| Some((*one.first()?, one)))
        .max_by_key(|(first, _)| first.facts.began)
    {
        let name = &first.facts.name;
        let began = first.facts.began;
        if let Some(at) = namespace.at.filter(|_| namespace.is_after(began)) {
            let age = age(at);
            let why =
                format!("it was created {age} ago, after its last good backup, {name}, began");
            found.passed_over.get_or_insert(why);
            return found;
        }
        let Some(held) = held else {
            found.good = Some(first);
            return found;
        };
        let why = match held.get(name) {
            Some(FetchResult::Known(HeldItems(Some(held)))) => {
                if held.namespaces.contains(&namespace.name) {
                    found.good = Some(first);
                    return found;
                }
                format!("its last good backup by its scope, {name}, holds nothing of it")
            }
            Some(FetchResult::Known(HeldItems(None))) => {
                let location = &first.facts.evidence.location;
                format!(
                    "its newest backup, {name}, cannot be restored: its files are not in location {location}"
                )
            }
            Some(FetchResult::Missing { unavailable }) => {
                found.unread = Some((first, Some(unavailable.as_str())));
                return found;
            }
            None => {
                found.unread = Some((first, None));
                return found;
            }
        };
        found.passed_over.get_or_insert(why);
        *rest = rest.get(1..).unwrap_or_default();
    }
    found
}

/// The backups whose lists have to be read next, newest first; empty once there is an answer for
/// each namespace.
pub(crate) fn lists_to_read(
    seen: &ClusterData,
    installation: &str,
    asked: &Requirements<'_>,
) -> Vec<UnreadBackup> {
    let Some(held) = seen.held.known() else {
        return Vec::new();
    };
    let places = seen.locations.known().map(Places::of);
    let judged = judged(&seen.backups, places.as_ref());
    let newest = newest(&judged);
    let (_, there) = split(seen, installation, asked);
    let names: Vec<String> = there.iter().map(|one| one.name.clone()).collect();
    let covering = covering(&names, &newest, &[]);
    let unread = there.iter().zip(&covering).filter_map(|(one, covering)| {
        let (judged, why) = last_good(one, covering, Some(held), |_| String::new()).unread?;
        why.is_none().then_some(judged.facts)
    });
    let mut wanted: Vec<_> = unread.collect();
    wanted.sort_by_key(|facts| (std::cmp::Reverse(facts.began), &facts.name));
    wanted.dedup_by_key(|facts| &facts.name);
    wanted
        .iter()
        .map(|facts| UnreadBackup {
            name: facts.name.clone(),
            uid: facts.uid.clone(),
        })
        .collect()
}

/// The claims of a namespace whose data its last good backup cannot contain, or may not contain.
pub(super) fn new_claims(
    namespace: &str,
    began: Option<Timestamp>,
    claims: &FetchResult<Vec<ClusterObject>>,
) -> Vec<String> {
    let of_namespace = claims
        .known()
        .into_iter()
        .flatten()
        .filter(|claim| claim.namespace == namespace);
    let (new, old): (Vec<&ClusterObject>, Vec<&ClusterObject>) =
        of_namespace.partition(|claim| claim.is_after(began));
    let bound: Vec<&ClusterObject> = old
        .into_iter()
        .filter(|claim| claim.has_changed_after(began))
        .collect();
    let new = remark(&new, "claim is younger than", "claims are younger than");
    let bound = remark(
        &bound,
        "claim was bound or resized after",
        "claims were bound or resized after",
    );
    new.into_iter().chain(bound).collect()
}

/// "2 claims are younger than its last good backup: a, b"; `None` if there are no claims.
fn remark(claims: &[&ClusterObject], one: &str, several: &str) -> Option<String> {
    let names: Vec<&str> = claims.iter().map(|claim| claim.name.as_str()).collect();
    let are = if names.len() == 1 { one } else { several };
    (!names.is_empty()).then(|| {
        format!(
            "{} {are} its last good backup: {}",
            names.len(),
            first(&names)
        )
    })
}

/// Types that no good backup is known to contain: they are newer than the last backup of
/// everything, and in no list that was read. Those of the installation come with it.
pub(super) fn new_types(
    last_of_everything: Option<Timestamp>,
    types: &FetchResult<Vec<ClusterObject>>,
    held: Option<&HeldByBackup>,
) -> Vec<String> {
    let lists: Vec<&Contents> = held
        .into_iter()
        .flat_map(HashMap::values)
        .filter_map(|list| list.known()?.0.as_ref())
        .collect();
    let all = types.known().into_iter().flatten();
    let own = format!(".{GROUP}");
    let mut new: Vec<String> = all
        .filter(|one| !one.name.ends_with(&own))
        .filter(|one| last_of_everything.is_none_or(|began| one.is_after(Some(began))))
        .filter(|one| {
            lists
                .iter()
                .all(|list| !list.definitions.contains(&one.name))
        })
        .map(|one| one.name.clone())
        .collect();
    new.sort();
    new
}

/// Checks that could not be made, one sentence each.
pub(super) fn unchecked(seen: &ClusterData) -> Vec<String> {
    let mut all = Vec::new();
    for (what, list) in [("claims", &seen.claims), ("types", &seen.types)] {
        if let FetchResult::Missing { unavailable } = list {
            all.push(format!(
                "{what} that are younger than their backups are not named: {unavailable}"
            ));
        }
    }
    if let FetchResult::Missing { unavailable } = &seen.held {
        all.push(format!(
            "what backups hold was not compared, only their scope: {unavailable}"
        ));
    }
    all
}

/// Whether a namespace needs no backups: the user excepted it, or it is the installation's own.
pub(super) fn is_left_out(name: &str, installation: &str, asked: &Requirements<'_>) -> bool {
    name == installation
        || backup_core::selection::IncludesExcludes::new(asked.except, &[]).names(name)
}

fn first(names: &[&str]) -> String {
    backup_core::text::listed(&names[..names.len().min(MAX_NAMES)], names.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_says_of_which_namespaces_a_backup_holds_items() {
        let list = |kind: &str, items: &[&str]| {
            (
                kind.to_owned(),
                items
                    .iter()
                    .map(|item| (*item).to_owned())
                    .collect::<Vec<_>>(),
            )
        };
        let held = HeldItems::from(ResourceList::from([
            list("v1/Namespace", &["shop"]),
            list("v1/Pod", &["db/x", "db/y"]),
            list("v1/PersistentVolume", &["pv-1"]),
            list(
                "apiextensions.k8s.io/v1/CustomResourceDefinition",
                &["widgets.example.com"],
            ),
        ]));
        let Contents {
            namespaces,
            definitions,
        } = held.0.unwrap();
        assert_eq!(namespaces.into_iter().collect::<Vec<_>>(), ["db", "shop"]);
        assert_eq!(
            definitions.into_iter().collect::<Vec<_>>(),
            ["widgets.example.com"]
        );
    }
}
