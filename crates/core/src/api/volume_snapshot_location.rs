//! VolumeSnapshotLocation: where native volume snapshots are made.
//!
//! Velero: `pkg/apis/velero/v1/volume_snapshot_location_type.go`.

use std::collections::BTreeMap;

use super::{
    common::SecretKey,
    kind::{api_struct, column, string_enum, velero_kind},
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

api_struct! {
    /// Who makes the snapshots.
    VolumeSnapshotLocationSpec {
        /// Plugin that makes the snapshots.
        provider: String,
        /// Settings of the provider.
        config?: BTreeMap<String, String>,
        /// Secret key with the credentials.
        credential?: Option<SecretKey>,
    }
}

string_enum! {
    /// Whether a location can be used.
    VolumeSnapshotLocationPhase {
        Available = "Available",
        Unavailable = "Unavailable",
    }
}

api_struct! {
    /// What is known of the location.
    VolumeSnapshotLocationStatus {
        /// Whether the location can be used. Velero's server never sets it.
        phase?: Option<VolumeSnapshotLocationPhase>,
    }
}
