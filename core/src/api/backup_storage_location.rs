//! BackupStorageLocation: a bucket (or folder) that backups are stored in.
//!
//! Velero: `pkg/apis/velero/v1/backupstoragelocation_types.go`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::{
    common::{Extra, SecretKey, null_default},
    duration::GoDuration,
    kind::{column, string_enum, velero_kind},
};

velero_kind! {
    /// A place that backups are stored in.
    BackupStorageLocation, "v1", "backupstoragelocations",
    spec: BackupStorageLocationSpec, status: BackupStorageLocationStatus,
    short: ["bsl"],
    columns: [
        column("Phase", "string", ".status.phase"),
        column("Last Validated", "date", ".status.lastValidationTime"),
        column("Age", "date", ".metadata.creationTimestamp"),
        column("Default", "boolean", ".spec.default"),
    ]
}

/// Where backups are stored and how to get there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupStorageLocationSpec {
    /// Who serves the store: `aws` for S3 and compatibles, `local` for a folder.
    pub provider: String,
    /// Settings of the provider.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_default")]
    pub config: BTreeMap<String, String>,
    /// Secret key with the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<SecretKey>,
    /// Bucket and prefix.
    pub object_storage: ObjectStorageLocation,
    /// Whether this location is the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<bool>,
    /// Whether backups may be written; unset: they may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_mode: Option<AccessMode>,
    /// How often the bucket is compared with the cluster; 0 is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_sync_period: Option<GoDuration>,
    /// How often the location is validated; 0 is once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_frequency: Option<GoDuration>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// Bucket and prefix.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectStorageLocation {
    /// Bucket; for provider `local` the folder.
    pub bucket: String,
    /// Path inside the bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// CA bundle of the server, base64 of PEM. Deprecated in favour of caCertRef.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::crd::base64_bytes")]
    pub ca_cert: Option<String>,
    /// Secret key with the CA bundle of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_cert_ref: Option<SecretKey>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

string_enum! {
    /// Whether backups may be written to a location.
    AccessMode {
        /// Reading only.
        ReadOnly = "ReadOnly",
        /// Reading and writing.
        ReadWrite = "ReadWrite",
    }
}

string_enum! {
    /// Whether a location could be used when it was last validated.
    LocationPhase {
        /// It could.
        Available = "Available",
        /// It could not; see the message.
        Unavailable = "Unavailable",
    }
}

/// What was seen when the location was last validated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupStorageLocationStatus {
    /// Whether the location can be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<LocationPhase>,
    /// When the bucket was last compared with the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_synced_time: Option<Time>,
    /// When the location was last validated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_validation_time: Option<Time>,
    /// Why the location can not be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Unused; deprecated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_synced_revision: Option<String>,
    /// Unused; deprecated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_mode: Option<AccessMode>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}
