//! What the last good backups hold, and what has come into the cluster since they began. Pure.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;

use super::{Asked, Judged, Observed, Places, newest};
use crate::{fetched::Fetched, view::stored::ResourceList};

/// Number of lists of items that are read for one page.
const MAX_LISTS: usize = 8;
/// Names in a remark.
const NAMED: usize = 3;

/// An object of the cluster, and when it was created.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Created {
    /// Empty for what is in no namespace.
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) at: Option<Timestamp>,
}

impl Created {
    fn is_after(&self, began: Option<Timestamp>) -> bool {
        self.at.zip(began).is_some_and(|(at, began)| at > began)
    }
}

/// A backup whose list of items is to be read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ListOf {
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// The namespaces that a backup has items of; by its list.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Held(BTreeSet<String>);

impl From<ResourceList> for Held {
    fn from(list: ResourceList) -> Self {
        let mut all = BTreeSet::new();
        for (kind, items) in list {
            for item in items {
                match item.split_once('/') {
                    Some((namespace, _)) if !all.contains(namespace) => _ = all.insert(namespace.to_owned()),
                    None if kind == "v1/Namespace" => _ = all.insert(item),
                    _ => {}
                }
            }
        }
        Self(all)
    }
}

/// By the name of the backup.
pub(crate) type HeldByBackup = HashMap<String, Fetched<Held>>;

/// The last good backups of each scope, the newest first.
pub(crate) fn lists_to_read(seen: &Observed) -> Vec<ListOf> {
    let places = Places::of(&seen.locations);
    let judged: Vec<Judged<'_>> = seen.backups.iter().map(|backup| Judged::of(backup, &places)).collect();
    let mut good: Vec<_> = newest(&judged).iter().filter_map(|one| one.good).map(|good| good.facts).collect();
    good.sort_by_key(|facts| std::cmp::Reverse(facts.began));
    let list = |facts: &super::BackupFacts| ListOf { name: facts.name.clone(), uid: facts.uid.clone() };
    good.into_iter().take(MAX_LISTS).map(list).collect()
}

/// Why the last good backup by its scope holds nothing of a namespace, if that is so.
pub(super) fn absence(
    namespace: &Created,
    good: &Judged<'_>,
    held: &HeldByBackup,
    age: impl FnOnce(Timestamp) -> String,
) -> Option<String> {
    let (name, began) = (&good.facts.name, good.facts.began);
    if let Some(at) = namespace.at.filter(|_| namespace.is_after(began)) {
        return Some(format!("it was created {} ago, after its last good backup, {name}, began", age(at)));
    }
    let known = held.get(name).and_then(Fetched::known)?;
    (!known.0.contains(&namespace.name))
        .then(|| format!("its last good backup by its scope, {name}, holds nothing of it"))
}

/// The claims of a namespace that its last good backup cannot hold.
pub(super) fn new_claims(
    namespace: &str,
    began: Option<Timestamp>,
    claims: &Fetched<Vec<Created>>,
) -> Option<String> {
    let all = claims.known()?.iter();
    let new = all.filter(|claim| claim.namespace == namespace && claim.is_after(began));
    let names: Vec<&str> = new.map(|claim| claim.name.as_str()).collect();
    let are = if names.len() == 1 { "claim is" } else { "claims are" };
    (!names.is_empty())
        .then(|| format!("{} {are} younger than its last good backup: {}", names.len(), first(&names)))
}

/// The types that are younger than each of the last good backups.
pub(super) fn new_types(newest_good: Option<Timestamp>, types: &Fetched<Vec<Created>>) -> Vec<String> {
    let all = types.known().into_iter().flatten();
    let mut new: Vec<String> =
        all.filter(|one| one.is_after(newest_good)).map(|one| one.name.clone()).collect();
    new.sort();
    new
}

/// What could not be looked at, one sentence each.
pub(super) fn unchecked(seen: &Observed) -> Vec<String> {
    let mut all = Vec::new();
    for (what, list) in [("claims", &seen.claims), ("types", &seen.types)] {
        if let Fetched::Missing { unavailable } = list {
            all.push(format!("{what} that are younger than their backups are not named: {unavailable}"));
        }
    }
    let mut unread: Vec<(&String, &String)> = seen
        .held
        .iter()
        .filter_map(|(name, held)| match held {
            Fetched::Missing { unavailable } => Some((name, unavailable)),
            Fetched::Known(_) => None,
        })
        .collect();
    unread.sort();
    if let Some((name, why)) = unread.first() {
        let others = unread.len() - 1;
        let others = if others > 0 { format!(" and {others} others") } else { String::new() };
        all.push(format!("what backup {name}{others} holds was not compared, only its scope: {why}"));
    }
    all
}

/// The namespaces that need no backups: those that were named, and the installation's own.
pub(super) fn is_left_out(name: &str, installation: &str, asked: &Asked<'_>) -> bool {
    name == installation || backup_core::selection::IncludesExcludes::new(asked.except, &[]).names(name)
}

fn first(names: &[&str]) -> String {
    backup_core::text::listed(&names[..names.len().min(NAMED)], names.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_says_of_which_namespaces_a_backup_holds_items() {
        let list = |kind: &str, items: &[&str]| {
            (kind.to_owned(), items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>())
        };
        let held = Held::from(ResourceList::from([
            list("v1/Namespace", &["shop"]),
            list("v1/Pod", &["db/x", "db/y"]),
            list("v1/PersistentVolume", &["pv-1"]),
        ]));
        assert_eq!(held.0.into_iter().collect::<Vec<_>>(), ["db", "shop"]);
    }
}
