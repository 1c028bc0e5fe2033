//! Kinds that `get` lists, and the rows that they make.

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

    /// Whether its rows say what its location means for it.
    const HAS_LOCATION: bool = false;

    fn row(&self, now: Timestamp, style: Style) -> Vec<String>;

    /// The same, with the locations of the installation.
    fn row_among(&self, _: Option<&Places>, now: Timestamp, style: Style) -> Vec<String> {
        self.row(now, style)
    }
}

/// The locations of installations, by namespace.
#[derive(Debug)]
pub(crate) struct InstallationPlaces {
    pub(crate) by_namespace: BTreeMap<String, Places>,
    /// Those of every other namespace: none, or why they are not known.
    pub(crate) elsewhere: Places,
}

impl InstallationPlaces {
    fn of(&self, namespace: Option<&str>) -> &Places {
        namespace.and_then(|namespace| self.by_namespace.get(namespace)).unwrap_or(&self.elsewhere)
    }
}

/// Makes a row of an object, all columns; an error if the object cannot be decoded.
type RowOf = Box<dyn Fn(&Value, Timestamp, Style) -> Result<Vec<String>, serde_json::Error> + Send + Sync>;

/// How `get` lists the objects of one kind, be it one of ours or of another operator.
pub(crate) struct KindTable {
    pub(crate) resource: ApiResource,
    pub(crate) word: &'static str,
    /// Whether its objects are in the namespace of the installation.
    pub(crate) is_ours: bool,
    pub(crate) columns: Columns,
    pub(crate) row: RowOf,
    /// What programs are shown of an object; none: the object as it is stored.
    pub(crate) document: Option<fn(&Value) -> Value>,
}

impl KindTable {
    pub(crate) fn of<K: TableKind>() -> Self {
        Self::among::<K>(None)
    }

    /// The same, with the locations of the installations.
    pub(crate) fn among<K: TableKind>(places: Option<InstallationPlaces>) -> Self {
        Self {
            resource: ApiResource::erase::<K>(&()),
            word: K::KIND,
            is_ours: true,
            columns: K::COLUMNS,
            row: Box::new(move |object, now, style| {
                let object = K::deserialize(object)?;
                let places = places.as_ref().map(|all| all.of(object.meta().namespace.as_deref()));
                Ok(object.row_among(places, now, style))
            }),
            document: None,
        }
    }

    pub(crate) fn about<'a>(&'a self, verb: &'static str, name: &'a str) -> About<'a> {
        About::called(verb, self.word, &self.resource.plural, name)
    }

    /// A row for an object that cannot be decoded: its name, where a status would be, and nothing else.
    pub(crate) fn unreadable(&self, name: &str) -> Vec<String> {
        let mut row = vec![dash(); self.columns.headers.len()];
        name.clone_into(&mut row[0]);
        "(unreadable)".clone_into(&mut row[self.columns.status]);
        row
    }
}

/// The command that lists a kind says so beside the table of an object that cannot be decoded: why, and what to do.
pub(crate) fn unreadable_warning(
    word: &str,
    resource: &ApiResource,
    namespace: &str,
    name: &str,
    why: &str,
) -> String {
    let (why, ApiResource { plural, group, .. }) = (plain(why), resource);
    format!(
        "warning: {word} {name} cannot be read: {why}\n  Correct it: kubectl -n {namespace} edit {plural}.{group} {name}"
    )
}

/// `backup.velero.io/nightly`
pub(crate) fn full_name<K: TableKind>(name: &str) -> String {
    format!("{}.{}/{name}", K::KIND, K::group(&()))
}

/// A cell for something that is not there.
pub(crate) fn dash() -> String {
    "-".to_owned()
}

/// How long ago, or a dash.
pub(crate) fn age(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map_or_else(dash, |at| human(seconds(at, now).max(0)))
}

/// By name; names that end in a time and begin alike (those of one schedule) newest first, as velero lists them.
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
