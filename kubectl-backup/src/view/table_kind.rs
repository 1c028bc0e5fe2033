//! Kinds that `get` lists, and their rows.

use std::{cmp::Ordering, collections::BTreeMap};

use backup_core::{api::NamespacedKind, restorability::Places};
use jiff::Timestamp;
use kube::api::ApiResource;
use serde_json::Value;

use crate::{
    error::About,
    print::{Style, human, plain, seconds},
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Columns {
    pub(crate) headers: &'static [&'static str],
    pub(crate) narrow: usize,
    pub(crate) status: usize,
}

/// A kind of ours that `get` lists.
pub(crate) trait TableKind: NamespacedKind {
    const KIND: &'static str;
    const COLUMNS: Columns;

    /// Whether its rows depend on its location.
    const HAS_LOCATION: bool = false;

    fn row(&self, now: Timestamp, style: Style) -> Vec<String>;

    /// Like `row`, with the locations of the installation.
    fn row_among(&self, _: Option<&Places>, now: Timestamp, style: Style) -> Vec<String> {
        self.row(now, style)
    }
}

/// The locations of installations, by namespace.
#[derive(Debug)]
pub(crate) struct InstallationPlaces {
    pub(crate) by_namespace: BTreeMap<String, Places>,
    /// Locations for every other namespace: none, or why they are unknown.
    pub(crate) elsewhere: Places,
}

impl InstallationPlaces {
    fn of(&self, namespace: Option<&str>) -> &Places {
        namespace
            .and_then(|namespace| self.by_namespace.get(namespace))
            .unwrap_or(&self.elsewhere)
    }
}

/// Makes the complete row of an object; fails if the object cannot be decoded.
type RowOf = fn(
    &Value,
    Option<&InstallationPlaces>,
    Timestamp,
    Style,
) -> Result<Vec<String>, serde_json::Error>;

/// How `get` lists the objects of one kind.
pub(crate) struct KindTable {
    pub(crate) resource: ApiResource,
    pub(crate) word: &'static str,
    pub(crate) columns: Columns,
    /// The locations of the installations, if the rows depend on them.
    pub(crate) places: Option<InstallationPlaces>,
    pub(crate) row: RowOf,
    /// Converts an object to its document for programs; `None`: the stored object is the document.
    pub(crate) document: Option<fn(&Value) -> Value>,
}

impl KindTable {
    pub(crate) fn of<K: TableKind>() -> Self {
        Self::among::<K>(None)
    }

    /// The table of a kind, with the locations of the installations.
    pub(crate) fn among<K: TableKind>(places: Option<InstallationPlaces>) -> Self {
        Self {
            resource: ApiResource::erase::<K>(&()),
            word: K::KIND,
            columns: K::COLUMNS,
            places,
            row: |object, places, now, style| {
                let object = K::deserialize(object)?;
                let places = places.map(|all| all.of(object.meta().namespace.as_deref()));
                Ok(object.row_among(places, now, style))
            },
            document: None,
        }
    }

    pub(crate) fn about<'a>(&'a self, verb: &'static str, name: &'a str) -> About<'a> {
        About::called(verb, self.word, &self.resource.plural, name)
    }

    /// A row for an object that cannot be decoded: only its name, and a remark in place of the
    /// status.
    pub(crate) fn unreadable(&self, name: &str) -> Vec<String> {
        let mut row = vec![dash(); self.columns.headers.len()];
        name.clone_into(&mut row[0]);
        "(unreadable)".clone_into(&mut row[self.columns.status]);
        row
    }
}

/// The warning for an object that cannot be decoded, shown beside the table: why, and the remedy.
pub(crate) fn unreadable_warning(
    word: &str,
    resource: &ApiResource,
    namespace: &str,
    name: &str,
    why: &str,
) -> String {
    let why = plain(why);
    let ApiResource { plural, group, .. } = resource;
    format!(
        "warning: {word} {name} cannot be read: {why}\n  Correct it: kubectl -n {namespace} edit {plural}.{group} {name}"
    )
}

/// `backup.velero.io/nightly`
pub(crate) fn full_name<K: TableKind>(name: &str) -> String {
    format!("{}.{}/{name}", K::KIND, K::group(&()))
}

/// A cell for a missing value.
pub(crate) fn dash() -> String {
    "-".to_owned()
}

/// The age, or a dash.
pub(crate) fn age(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map_or_else(dash, |at| human(seconds(at, now).max(0)))
}

/// By name; names that differ only in the time at their end (backups of one schedule) newest first,
/// as velero lists them.
pub(crate) fn order(a: &str, b: &str) -> Ordering {
    match (split_time(a), split_time(b)) {
        (Some((a, a_time)), Some((b, b_time))) if a == b => b_time.cmp(a_time),
        _ => a.cmp(b),
    }
}

/// `nightly-` and `20261103030000`.
fn split_time(name: &str) -> Option<(&str, &str)> {
    let at = name.len().checked_sub(14)?;
    let (prefix, time) = name.split_at_checked(at)?;
    (prefix.ends_with('-') && time.bytes().all(|b| b.is_ascii_digit())).then_some((prefix, time))
}
