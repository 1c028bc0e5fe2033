//! VolumeSnapshotLocation: where native volume snapshots are made.
//!
//! Velero: `pkg/apis/velero/v1/volume_snapshot_location_type.go`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    common::{Extra, SecretKey, null_default},
    kind::{column, string_enum, velero_kind},
};

velero_kind! {
    /// A place that volume snapshots are made in.
    VolumeSnapshotLocation, "v1", "volumesnapshotlocations",
    spec: VolumeSnapshotLocationSpec, status: VolumeSnapshotLocationStatus,
    short: ["vsl"],
    columns: [
        column("Provider", "string", ".spec.provider"),
        column("Phase", "string", ".status.phase"),
        column("Age", "date", ".metadata.creationTimestamp"),
    ]
}

/// Who makes the snapshots.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotLocationSpec {
    /// Plugin that makes the snapshots.
    pub provider: String,
    /// Settings of the provider.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_default")]
    pub config: BTreeMap<String, String>,
    /// Secret key with the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<SecretKey>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

string_enum! {
    /// Whether a location can be used.
    VolumeSnapshotLocationPhase {
        /// It can.
        Available = "Available",
        /// It can not.
        Unavailable = "Unavailable",
    }
}

/// What is known of the location.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotLocationStatus {
    /// Whether the location can be used. Velero's server never sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<VolumeSnapshotLocationPhase>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}
