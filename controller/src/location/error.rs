//! Why a BackupStorageLocation cannot be used.

use backup_runtime::errors::{is_transient, plain};
use backup_store::StoreError;

/// Why a location cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LocationError {
    #[error(
        "BackupStorageLocation {name} not found in namespace {namespace}: create it, or name another one in \
         spec.storageLocation"
    )]
    NotFound { name: String, namespace: String },
    /// No location is named, and there is no default one.
    #[error(
        "no location is the default one: set spec.default: true on a BackupStorageLocation in namespace {namespace}, \
         or name one in spec.storageLocation"
    )]
    NoDefault { namespace: String },
    #[error("BackupStorageLocation {name} could not be read: {}", plain(.source))]
    Unreadable { name: String, source: kube::Error },
    #[error(
        "BackupStorageLocation {name}: Secret {secret} of {field} not found: create it, or correct {field}"
    )]
    NoSecret {
        name: String,
        secret: String,
        /// The field that names it.
        field: &'static str,
    },
    /// The Secret is there, the key is not.
    #[error("BackupStorageLocation {name}: Secret {secret} has no key {key}: add it, or correct {field}.key")]
    NoKey {
        name: String,
        secret: String,
        key: String,
        /// The field that names it.
        field: &'static str,
    },
    #[error("BackupStorageLocation {name}: Secret {secret} could not be read: {}", plain(.source))]
    SecretUnreadable { name: String, secret: String, source: kube::Error },
    #[error("BackupStorageLocation {name}: {reason}")]
    NoPlugin {
        name: String,
        /// Names the plugin that is missing, and those that exist.
        reason: String,
        /// Whether a binary that cannot be asked now may have it.
        may_come: bool,
    },
    /// The store itself: settings, access, network.
    #[error("BackupStorageLocation {name}: {source}")]
    Store { name: String, source: StoreError },
}

impl LocationError {
    /// A word for logs.
    pub(crate) fn category(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "not_found",
            Self::NoDefault { .. } => "no_default",
            Self::Unreadable { .. } => "unreadable",
            Self::NoSecret { .. } | Self::NoKey { .. } | Self::SecretUnreadable { .. } => "credentials",
            Self::NoPlugin { .. } => "plugin",
            Self::Store { source, .. } => source.category(),
        }
    }

    /// Whether it may work later without anything being changed.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Unreadable { source, .. } | Self::SecretUnreadable { source, .. } => is_transient(source),
            Self::NoPlugin { may_come, .. } => *may_come,
            Self::Store { source, .. } => source.is_transient(),
            Self::NotFound { .. } | Self::NoDefault { .. } | Self::NoSecret { .. } | Self::NoKey { .. } => {
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_location_and_what_to_do() {
        let error = LocationError::NoKey {
            name: "default".to_owned(),
            secret: "s3".to_owned(),
            key: "cloud".to_owned(),
            field: "spec.credential",
        };
        assert_eq!(
            error.to_string(),
            "BackupStorageLocation default: Secret s3 has no key cloud: add it, or correct spec.credential.key"
        );
        assert!(!error.is_transient());
    }
}
