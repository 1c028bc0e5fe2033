//! One listed object: its metadata, read without decoding the object, and the bytes to store.
//!
//! An object remains the text that the API server sent. Only its metadata is parsed; only
//! `apiVersion` and `kind`, which lists of built-in types leave out, are prepended.

use std::{borrow::Cow, collections::BTreeMap};

use backup_core::{
    labels::{EXCLUDE_FROM_BACKUP, VOLUMES_TO_COPY},
    resources::ResourceType,
};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The parts of an object that decide whether it is backed up. Borrows from the object's text.
#[derive(Debug, Deserialize)]
pub(crate) struct RawItem<'a> {
    #[serde(skip)]
    text: &'a str,
    #[serde(rename = "apiVersion", borrow, default)]
    api_version: Option<Text<'a>>,
    #[serde(borrow, default)]
    kind: Option<Text<'a>>,
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow, default)]
    status: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow, default)]
    namespace: Option<Text<'a>>,
    #[serde(borrow, default)]
    labels: Option<&'a RawValue>,
    #[serde(borrow, default)]
    annotations: Option<&'a RawValue>,
    #[serde(borrow, default)]
    deletion_timestamp: Option<Text<'a>>,
}

/// A string that is borrowed unless it has escapes (a ClusterRole's name may).
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> RawItem<'a> {
    /// Reads the metadata of an object's text. An error means that this is no Kubernetes object.
    pub(crate) fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
        Ok(Self {
            text,
            ..serde_json::from_str(text)?
        })
    }

    /// The object as the API server sent it.
    pub(crate) fn text(&self) -> &'a str {
        self.text
    }

    pub(crate) fn name(&self) -> &str {
        &self.metadata.name.0
    }

    /// `metadata.namespace`; `None` for a cluster-scoped object.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.metadata
            .namespace
            .as_ref()
            .map(|text| &*text.0)
            .filter(|namespace| !namespace.is_empty())
    }

    /// `namespace/name`, or the name of a cluster-scoped item.
    pub(crate) fn full_name(&self) -> String {
        self.namespace().map_or_else(
            || self.name().to_owned(),
            |namespace| format!("{namespace}/{}", self.name()),
        )
    }

    pub(crate) fn is_being_deleted(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Whether the object asks to be left out (`velero.io/exclude-from-backup: "true"`).
    pub(crate) fn is_excluded(&self) -> bool {
        // The text search avoids decoding the labels of most objects.
        self.metadata
            .labels
            .is_some_and(|labels| labels.get().contains("exclude-from-backup"))
            && self
                .labels()
                .get(EXCLUDE_FROM_BACKUP)
                .is_some_and(|value| value == "true")
    }

    pub(crate) fn labels(&self) -> BTreeMap<String, String> {
        self.metadata
            .labels
            .and_then(|labels| serde_json::from_str(labels.get()).ok())
            .unwrap_or_default()
    }

    /// Whether a Namespace is Active. True for anything without `status.phase`.
    pub(crate) fn is_active_namespace(&self) -> bool {
        self.phase().is_none_or(|phase| phase == "Active")
    }

    pub(crate) fn is_in_phase(&self, phase: &str) -> bool {
        self.phase().is_some_and(|found| found == phase)
    }

    fn phase(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Status {
            phase: Option<String>,
        }
        serde_json::from_str::<Status>(self.status?.get())
            .ok()?
            .phase
    }

    /// The annotations, undecoded; empty if there are none.
    pub(crate) fn raw_annotations(&self) -> &str {
        self.metadata.annotations.map_or("", RawValue::get)
    }

    /// Volumes of a pod whose files should be copied, as the annotation names them. `None` for most
    /// pods.
    pub(crate) fn volumes_to_copy(&self) -> Option<String> {
        let raw = self.raw_annotations();
        if !raw.contains(VOLUMES_TO_COPY) {
            return None;
        }
        let mut annotations: BTreeMap<String, String> = serde_json::from_str(raw).ok()?;
        annotations
            .remove(VOLUMES_TO_COPY)
            .filter(|volumes| !volumes.trim().is_empty())
    }
}

/// `"apiVersion":…,` and `"kind":…,` of a type, ready to be put into objects that lack them.
#[derive(Clone, Debug)]
pub(crate) struct TypeMeta {
    api_version: String,
    kind: String,
}

impl TypeMeta {
    pub(crate) fn of(resource: &ResourceType) -> Self {
        Self {
            api_version: format!(
                "\"apiVersion\":{},",
                serde_json::Value::from(resource.api_version())
            ),
            kind: format!(
                "\"kind\":{},",
                serde_json::Value::from(resource.kind.as_str())
            ),
        }
    }

    /// The object with `apiVersion` and `kind`: its own text, or its text with the missing fields
    /// prepended.
    pub(crate) fn complete<'a>(&self, item: &RawItem<'a>) -> Cow<'a, str> {
        let text = item.text;
        let Some(members) = text.strip_prefix('{') else {
            return Cow::Borrowed(text);
        };
        if item.api_version.is_some() && item.kind.is_some() {
            return Cow::Borrowed(text);
        }
        let mut whole =
            String::with_capacity(text.len() + self.api_version.len() + self.kind.len());
        whole.push('{');
        if item.api_version.is_none() {
            whole.push_str(&self.api_version);
        }
        if item.kind.is_none() {
            whole.push_str(&self.kind);
        }
        // An item always has metadata, so a member follows the comma.
        whole.push_str(members);
        Cow::Owned(whole)
    }
}

#[cfg(test)]
mod tests;
