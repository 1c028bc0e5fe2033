//! What came of comparing buckets with the cluster, as data. Pure.

use backup_core::{
    api::BackupStorageLocation,
    bucket::Facts,
    labels::{BUCKET_ANNOTATION, SYNC_ANNOTATION, SYNC_REQUEST_ANNOTATION},
    sync::Summary,
};
use kube::ResourceExt as _;
use serde::Serialize;

use super::description::API_VERSION;

/// All locations, as `-o json` prints them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncList {
    /// The version of the document.
    pub api_version: &'static str,
    /// Always `SyncList`.
    pub kind: &'static str,
    /// Namespace of the installation.
    pub namespace: String,
    /// The locations, by namespace and name unless they were to be sorted by something else.
    pub locations: Vec<LocationView>,
}

/// One location.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LocationView {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Available, Unavailable, or nothing yet.
    pub phase: String,
    /// When a comparison came to its end last, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_synced: Option<String>,
    /// Why it can't be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What is known of its bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket: Option<Facts>,
    /// Whether somebody has asked for one that has not begun.
    pub requested: bool,
    /// What came of the last one; none was made yet, or what is written there can't be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_pass: Option<Summary>,
}

/// The document.
pub fn list(namespace: &str, mut locations: Vec<LocationView>) -> SyncList {
    locations.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    SyncList { api_version: API_VERSION, kind: "SyncList", namespace: namespace.to_owned(), locations }
}

/// One location.
pub fn location(location: &BackupStorageLocation) -> LocationView {
    LocationView {
        namespace: location.namespace().unwrap_or_default(),
        name: location.name_any(),
        phase: location.status.phase.as_ref().map(ToString::to_string).unwrap_or_default(),
        last_synced: location.status.last_synced_time.as_ref().map(|time| time.0.to_string()),
        message: location.status.message.clone().filter(|message| !message.is_empty()),
        bucket: Facts::read(location.annotations().get(BUCKET_ANNOTATION).map(String::as_str)),
        requested: location.annotations().contains_key(SYNC_REQUEST_ANNOTATION),
        last_pass: location
            .annotations()
            .get(SYNC_ANNOTATION)
            .and_then(|text| serde_json::from_str(text).ok()),
    }
}
