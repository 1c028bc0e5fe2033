//! Kinds that are listed, and the rows that they make.

use std::fmt::Debug;

use backup_core::api::{Backup, Restore};
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use kube::{Resource, api::ApiResource};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{error::About, print::style::Style, view::list};

/// A kind that `get` lists.
pub trait Listed:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Serialize
    + DeserializeOwned
    + Clone
    + Debug
    + Send
    + 'static
{
    /// Kind in lower case.
    const KIND: &'static str;
    /// Plural, as in the API.
    const PLURAL: &'static str;
    /// Headers of `get`, wide.
    const HEADERS: &'static [&'static str];
    /// How many of them are shown unless wide.
    const NARROW: usize;
    /// Which of them is the status.
    const STATUS_COLUMN: usize;

    /// A row of `get`.
    fn row(&self, now: Timestamp, style: Style) -> Vec<String>;

    /// For messages about a request.
    fn about<'a>(verb: &'static str, name: &'a str) -> About<'a> {
        About { verb, kind: Self::KIND, plural: Self::PLURAL, name }
    }
}

/// Makes a row of an object, all columns; an error if the object can't be read.
type RowOf = Box<dyn Fn(&Value, Timestamp, Style) -> Result<Vec<String>, serde_json::Error> + Send + Sync>;

/// How `get` lists the objects of one kind, be it one of ours or of another operator.
pub struct Listing {
    /// The kind.
    pub resource: ApiResource,
    /// The kind in messages.
    pub word: &'static str,
    /// Whether its objects are in the namespace of the installation.
    pub is_ours: bool,
    /// Headers, wide.
    pub headers: &'static [&'static str],
    /// How many of them are shown unless wide.
    pub narrow: usize,
    /// Which of them is the status.
    pub status_column: usize,
    /// A row, as wide as the headers.
    pub row: RowOf,
    /// What programs are shown of an object; none: the object as it is stored.
    pub document: Option<fn(&Value) -> Value>,
}

impl Listing {
    /// Of one of our kinds.
    pub fn of<K: Listed>() -> Self {
        Self {
            resource: ApiResource::erase::<K>(&()),
            word: K::KIND,
            is_ours: true,
            headers: K::HEADERS,
            narrow: K::NARROW,
            status_column: K::STATUS_COLUMN,
            row: Box::new(|object, now, style| Ok(K::deserialize(object)?.row(now, style))),
            document: None,
        }
    }

    /// For messages about a request.
    pub fn about<'a>(&'a self, verb: &'static str, name: &'a str) -> About<'a> {
        About { verb, kind: self.word, plural: &self.resource.plural, name }
    }
}

impl Listed for Backup {
    const KIND: &'static str = "backup";
    const PLURAL: &'static str = "backups";
    const HEADERS: &'static [&'static str] = &list::BACKUP_HEADERS;
    const NARROW: usize = list::BACKUP_NARROW;
    const STATUS_COLUMN: usize = 1;

    fn row(&self, now: Timestamp, style: Style) -> Vec<String> {
        list::backup(self, now, style)
    }
}

impl Listed for Restore {
    const KIND: &'static str = "restore";
    const PLURAL: &'static str = "restores";
    const HEADERS: &'static [&'static str] = &list::RESTORE_HEADERS;
    const NARROW: usize = list::RESTORE_NARROW;
    const STATUS_COLUMN: usize = 2;

    fn row(&self, now: Timestamp, style: Style) -> Vec<String> {
        list::restore(self, now, style)
    }
}
