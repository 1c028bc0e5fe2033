//! BackupStorageLocation: a bucket (or folder) that backups are stored in.
//!
//! Velero: `pkg/apis/velero/v1/backupstoragelocation_types.go`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    common::SecretKey,
    duration::GoDuration,
    kind::{api_struct, column, string_enum, velero_kind},
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

api_struct! {
    /// Where backups are stored and how to get there.
    BackupStorageLocationSpec {
        /// Who serves the store: `aws` for S3 and compatibles, `local` for a folder.
        provider: String,
        /// Settings of the provider.
        config?: BTreeMap<String, String>,
        /// Secret key with the credentials.
        credential?: Option<SecretKey>,
        /// Bucket and prefix.
        object_storage: ObjectStorageLocation,
        /// Whether this location is the default one.
        default?: Option<bool>,
        /// Whether backups may be written; unset: they may.
        access_mode?: Option<AccessMode>,
        /// How often the bucket is compared with the cluster; 0 is never.
        backup_sync_period?: Option<GoDuration>,
        /// How often the location is validated; 0 is once.
        validation_frequency?: Option<GoDuration>,
    }
}

api_struct! {
    /// Bucket and prefix.
    ObjectStorageLocation {
        /// Bucket; for provider `local` the folder.
        bucket: String,
        /// Path inside the bucket.
        prefix?: Option<String>,
        /// CA bundle of the server, base64 of PEM. Deprecated in favour of caCertRef.
        #[schemars(schema_with = "super::crd::base64_bytes")]
        ca_cert?: Option<String>,
        /// Secret key with the CA bundle of the server.
        ca_cert_ref?: Option<SecretKey>,
    }
}

string_enum! {
    /// Whether backups may be written to a location.
    AccessMode {
        ReadOnly = "ReadOnly",
        ReadWrite = "ReadWrite",
    }
}

string_enum! {
    /// Whether a location could be used when it was last validated.
    LocationPhase {
        Available = "Available",
        Unavailable = "Unavailable",
    }
}

api_struct! {
    /// What was seen when the location was last validated.
    BackupStorageLocationStatus {
        /// Whether the location can be used.
        phase?: Option<LocationPhase>,
        /// When the bucket was last compared with the cluster.
        last_synced_time?: Option<Time>,
        /// When the location was last validated.
        last_validation_time?: Option<Time>,
        /// Why the location can not be used.
        message?: Option<String>,
        /// Unused; deprecated.
        last_synced_revision?: Option<String>,
        /// Unused; deprecated.
        access_mode?: Option<AccessMode>,
    }
}
