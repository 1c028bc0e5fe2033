//! Opens a BackupStorageLocation: the object, its Secrets, the store.

use std::{sync::Arc, time::Duration};

use backup_client::errors::{found, may_be_read_later, plain};
use backup_core::api::{
    Backup, BackupStorageLocation, GoDuration, LocationPhase, backup_storage_location::AccessMode,
    common::SecretKey,
};
use backup_plugins::{
    Host, Missing,
    configured::{Credentials, Settings},
};
use backup_store::{AllowedPlaces, Location, Regions, StoreError};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, Client, ResourceExt, api::ListParams, core::DeserializeGuard};
use serde_json::Value;

/// The Secret, and its key, for locations without their own credential, if it exists (Velero
/// `velero install`).
pub(crate) const DEFAULT_SECRET: &str = "cloud-credentials";
pub(crate) const DEFAULT_KEY: &str = "cloud";

/// Whether backups may only be read from the location.
pub(crate) fn is_read_only(location: &BackupStorageLocation) -> bool {
    location.spec.access_mode == Some(AccessMode::ReadOnly)
}

/// Whether the location could be used when it was last validated.
pub(crate) fn is_available(location: &BackupStorageLocation) -> bool {
    location.status.phase == Some(LocationPhase::Available)
}

/// Period of locations without one, if the command line has none or a negative one.
pub(crate) const DEFAULT_PERIOD: GoDuration = GoDuration::from_secs(60);

/// The period of an action on a location: the location's own, else the command line's, else every
/// minute; a negative period counts as not set (Velero `backup_storage_location_controller.go`,
/// `backup_sync_controller.go`, v1.18).
pub(crate) fn period(own: Option<GoDuration>, default: GoDuration) -> Duration {
    own.into_iter()
        .chain([default])
        .find(|period| *period >= GoDuration::default())
        .unwrap_or(DEFAULT_PERIOD)
        .as_std()
}

/// Why a location cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LocationError {
    #[error(
        "BackupStorageLocation {name} not found in namespace {namespace}: create it, or name another one in {field}"
    )]
    NotFound {
        name: String,
        namespace: String,
        /// The field that names the location.
        field: &'static str,
    },
    /// No location is named, and there is no default.
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
        /// The field that names the Secret.
        field: &'static str,
    },
    /// The Secret exists without the key.
    #[error(
        "BackupStorageLocation {name}: Secret {secret} has no key {key}: add it, or correct {field}.key"
    )]
    NoKey {
        name: String,
        secret: String,
        key: String,
        field: &'static str,
    },
    #[error("BackupStorageLocation {name}: Secret {secret} could not be read: {}", plain(.source))]
    SecretUnreadable {
        name: String,
        secret: String,
        source: kube::Error,
    },
    #[error("BackupStorageLocation {name}: {reason}")]
    NoPlugin {
        name: String,
        /// Names the missing plugin, and the existing ones.
        reason: String,
        /// Whether a binary that cannot be asked now may provide it.
        may_come: bool,
    },
    #[error("BackupStorageLocation {name}: {source}")]
    Store { name: String, source: StoreError },
}

impl LocationError {
    /// The error of the store of a location.
    pub(crate) fn of_store(location: &str, source: StoreError) -> Self {
        Self::Store {
            name: location.to_owned(),
            source,
        }
    }

    /// The error of the location of a copy.
    pub(crate) fn of_copy(self) -> Self {
        match self {
            Self::NotFound {
                name, namespace, ..
            } => Self::NotFound {
                name,
                namespace,
                field: "spec.copies",
            },
            other => other,
        }
    }

    /// Category for logs.
    pub(crate) fn category(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "not_found",
            Self::NoDefault { .. } => "no_default",
            Self::Unreadable { .. } => "unreadable",
            Self::NoSecret { .. } | Self::NoKey { .. } | Self::SecretUnreadable { .. } => {
                "credentials"
            }
            Self::NoPlugin { .. } => "plugin",
            Self::Store { source, .. } => source.category(),
        }
    }

    /// Whether a retry may succeed without a change.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Unreadable { source, .. } | Self::SecretUnreadable { source, .. } => {
                may_be_read_later(source)
            }
            Self::NoPlugin { may_come, .. } => *may_come,
            Self::Store { source, .. } => source.is_transient(),
            Self::NotFound { .. }
            | Self::NoDefault { .. }
            | Self::NoSecret { .. }
            | Self::NoKey { .. } => false,
        }
    }
}

/// A Secret that was read, with its version; `None` if it does not exist.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UsedSecret {
    pub(crate) name: String,
    pub(crate) version: Option<String>,
}

/// Opens locations. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Locations {
    client: Client,
    namespace: String,
    default: String,
    plugins: Host,
    /// Plugins of built-in providers, used instead of the built-in code.
    by_plugin: Vec<String>,
    /// Endpoints and folders they may use.
    allowed: AllowedPlaces,
    regions: Regions,
}

impl Locations {
    /// For the locations of a namespace; `default` is used if none is marked as the default.
    /// Plugins serve the locations of providers that are not built in, and of those in `by_plugin`.
    pub(crate) fn new(
        client: Client,
        namespace: &str,
        default: &str,
        plugins: Host,
        by_plugin: &[String],
        allowed: AllowedPlaces,
    ) -> Self {
        let by_plugin = by_plugin
            .iter()
            .map(|provider| backup_store::plugin_of(provider.trim()))
            .collect();
        Self {
            client,
            namespace: namespace.to_owned(),
            default: default.to_owned(),
            plugins,
            by_plugin,
            allowed,
            regions: Regions::default(),
        }
    }

    /// The current location of this name, and its store. Phase and access mode are not checked: see
    /// [`is_available`] and [`is_read_only`]. The store is only asked for its region, if the
    /// location does not name it.
    pub(crate) async fn open(
        &self,
        name: &str,
    ) -> Result<(BackupStorageLocation, Location), LocationError> {
        let location = self.get(name).await?;
        let store = self.store(&location).await?;
        Ok((location, store))
    }

    pub(crate) async fn get(&self, name: &str) -> Result<BackupStorageLocation, LocationError> {
        match self.find(name).await {
            Ok(Some(location)) => Ok(location),
            Ok(None) => Err(LocationError::NotFound {
                name: name.to_owned(),
                namespace: self.namespace.clone(),
                field: "spec.storageLocation",
            }),
            Err(source) => Err(LocationError::Unreadable {
                name: name.to_owned(),
                source,
            }),
        }
    }

    pub(crate) async fn find(
        &self,
        name: &str,
    ) -> Result<Option<BackupStorageLocation>, kube::Error> {
        let api: Api<BackupStorageLocation> = Api::namespaced(self.client.clone(), &self.namespace);
        found(api.get(name).await, name)
    }

    /// All locations that can be decoded (a handful per cluster).
    pub(crate) async fn all(&self) -> Result<Vec<BackupStorageLocation>, kube::Error> {
        let api: Api<DeserializeGuard<BackupStorageLocation>> =
            Api::namespaced(self.client.clone(), &self.namespace);
        let list = api.list(&ListParams::default()).await?;
        Ok(list
            .items
            .into_iter()
            .filter_map(|guard| guard.0.ok())
            .collect())
    }

    /// The location of a backup.
    pub(crate) async fn of_backup(
        &self,
        backup: &Backup,
    ) -> Result<BackupStorageLocation, LocationError> {
        match backup
            .spec
            .storage_location
            .as_ref()
            .filter(|name| !name.is_empty())
        {
            Some(name) => self.get(name).await,
            None => self.get(&self.default_location().await?).await,
        }
    }

    /// The name of the location for backups that name none: the newest marked as the default, else
    /// the command line's if it exists (Velero `internal/storage/storagelocation.go`, v1.18).
    pub(crate) async fn default_location(&self) -> Result<String, LocationError> {
        let all = self.all().await;
        let all = all.map_err(|source| LocationError::Unreadable {
            name: "(all)".to_owned(),
            source,
        })?;
        choose_default(&all, &self.default).ok_or_else(|| LocationError::NoDefault {
            namespace: self.namespace.clone(),
        })
    }

    /// The store of a location, opened with the current credentials from its Secrets.
    pub(crate) async fn store(
        &self,
        location: &BackupStorageLocation,
    ) -> Result<Location, LocationError> {
        self.store_and_secrets(location, &mut Vec::new()).await
    }

    /// Like [`Self::store`]; adds the Secrets that were read to `used`, including missing ones.
    pub(crate) async fn store_and_secrets(
        &self,
        location: &BackupStorageLocation,
        used: &mut Vec<UsedSecret>,
    ) -> Result<Location, LocationError> {
        let name = location.name_any();
        // Both are read before an error is returned, so that a change of either is noticed.
        let default = SecretKey {
            name: DEFAULT_SECRET.to_owned(),
            key: DEFAULT_KEY.to_owned(),
            optional: Some(true),
        };
        let credentials = match &location.spec.credential {
            Some(reference) => self.secret(&name, reference, "spec.credential", used).await,
            None => {
                self.secret(&name, &default, "the default credentials", used)
                    .await
            }
        };
        let ca = match &location.spec.object_storage.ca_cert_ref {
            Some(reference) => {
                self.secret(&name, reference, "spec.objectStorage.caCertRef", used)
                    .await
            }
            None => inline_ca(location).map_err(|source| LocationError::of_store(&name, source)),
        };
        let credentials = credentials?;
        let ca = ca?;
        self.allowed
            .check(&location.spec)
            .map_err(|source| LocationError::of_store(&name, source))?;
        let provider = &location.spec.provider;
        if !backup_store::is_built_in(provider)
            || self.by_plugin.contains(&backup_store::plugin_of(provider))
        {
            return self.through_plugin(location, credentials, ca).await;
        }
        let location = self
            .regions
            .complete(location, ca.as_deref())
            .await
            .map_err(|source| LocationError::of_store(&name, source))?;
        Location::open(&location, credentials.as_deref(), ca.as_deref())
            .map_err(|source| LocationError::of_store(&name, source))
    }

    /// A plugin gets the settings that Velero would give it (`pkg/persistence/object_store.go`,
    /// v1.18).
    async fn through_plugin(
        &self,
        location: &BackupStorageLocation,
        credentials: Option<Vec<u8>>,
        ca: Option<Vec<u8>>,
    ) -> Result<Location, LocationError> {
        let name = location.name_any();
        let (bucket, prefix) = backup_store::bucket_and_prefix(location)
            .map_err(|source| LocationError::of_store(&name, source))?;
        let mut config = location.spec.config.clone();
        // A location must not choose a file of this pod.
        config.remove("credentialsFile");
        config.extend([
            ("bucket".to_owned(), bucket.clone()),
            ("prefix".to_owned(), prefix),
        ]);
        if let Some(ca) = ca {
            config.insert(
                "caCert".to_owned(),
                String::from_utf8_lossy(&ca).into_owned(),
            );
        }
        let kind = if location.spec.credential.is_some() {
            Credentials::Own
        } else {
            Credentials::Default
        };
        let settings = Settings {
            config,
            credentials: credentials.map(kind),
        };
        let plugin = backup_store::plugin_of(&location.spec.provider);
        let bucket = self
            .plugins
            .bucket(&plugin, &bucket, settings)
            .await
            .map_err(|missing| {
                let Missing { reason, may_come } = missing;
                LocationError::NoPlugin {
                    name: name.clone(),
                    reason,
                    may_come,
                }
            })?;
        Location::through_plugin(location, Arc::new(bucket))
            .map_err(|source| LocationError::of_store(&name, source))
    }

    /// The value of a key; `None` only if the reference says that it is optional.
    async fn secret(
        &self,
        location: &str,
        reference: &SecretKey,
        field: &'static str,
        used: &mut Vec<UsedSecret>,
    ) -> Result<Option<Vec<u8>>, LocationError> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let name = location.to_owned();
        let is_optional = reference.optional == Some(true);
        let secret = found(api.get(&reference.name).await, &reference.name).map_err(|source| {
            LocationError::SecretUnreadable {
                name: name.clone(),
                secret: reference.name.clone(),
                source,
            }
        })?;
        let version = secret.as_ref().and_then(ResourceExt::resource_version);
        used.push(UsedSecret {
            name: reference.name.clone(),
            version,
        });
        let Some(secret) = secret else {
            let missing = LocationError::NoSecret {
                name,
                secret: reference.name.clone(),
                field,
            };
            return if is_optional { Ok(None) } else { Err(missing) };
        };
        let value = secret.data.and_then(|mut data| data.remove(&reference.key));
        if value.is_none() && !is_optional {
            return Err(LocationError::NoKey {
                name,
                secret: reference.name.clone(),
                key: reference.key.clone(),
                field,
            });
        }
        Ok(value.map(|value| value.0))
    }
}

/// The CA bundle in the location itself, which is base64 like all bytes in JSON.
pub(crate) fn inline_ca(location: &BackupStorageLocation) -> Result<Option<Vec<u8>>, StoreError> {
    let Some(text) = location
        .spec
        .object_storage
        .ca_cert
        .as_ref()
        .filter(|text| !text.is_empty())
    else {
        return Ok(None);
    };
    match serde_json::from_value::<ByteString>(Value::String(text.clone())) {
        Ok(bytes) => Ok(Some(bytes.0)),
        Err(_) => Err(StoreError::Config {
            field: "spec.objectStorage.caCert".to_owned(),
            message:
                "it is not base64: encode the PEM file, or put it in a Secret and name that in caCertRef"
                    .to_owned(),
        }),
    }
}

/// The location for backups that name none: of those marked as the default the newest, else
/// `fallback` if it exists (Velero `backup_storage_location_controller.go`, v1.18).
pub(crate) fn choose_default(
    locations: &[BackupStorageLocation],
    fallback: &str,
) -> Option<String> {
    let marked = locations
        .iter()
        .filter(|location| location.spec.default == Some(true));
    let newest = marked.max_by_key(|location| {
        (
            location
                .metadata
                .creation_timestamp
                .as_ref()
                .map(|time| time.0),
            location.name_any(),
        )
    });
    newest
        .or_else(|| {
            locations
                .iter()
                .find(|location| location.name_any() == fallback)
        })
        .map(ResourceExt::name_any)
}

#[cfg(test)]
pub(crate) mod tests {
    use backup_core::api::BackupStorageLocationSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kube::core::Status;

    use super::*;

    pub(crate) fn location(
        name: &str,
        default: Option<bool>,
        created: i64,
    ) -> BackupStorageLocation {
        let mut location = BackupStorageLocation::new(name, BackupStorageLocationSpec::default());
        location.spec.default = default;
        location.metadata.creation_timestamp =
            Some(Time(jiff::Timestamp::from_second(created).unwrap()));
        location
    }

    #[test]
    fn the_default_is_the_newest_marked_one_else_that_of_the_command_line() {
        let (old, new) = (
            location("old", Some(true), 1),
            location("new", Some(true), 2),
        );
        let (plain, named) = (
            location("plain", None, 3),
            location("default", Some(false), 0),
        );
        for (locations, expected) in [
            (
                vec![old.clone(), new.clone(), plain.clone(), named.clone()],
                Some("new"),
            ),
            (vec![old, named.clone()], Some("old")),
            (vec![plain.clone(), named], Some("default")),
            (vec![plain], None),
            (vec![], None),
        ] {
            assert_eq!(choose_default(&locations, "default").as_deref(), expected);
        }
    }

    #[test]
    fn a_ca_bundle_in_the_location_is_decoded_or_refused_with_its_field() {
        let mut plain = location("default", None, 0);
        assert_eq!(inline_ca(&plain), Ok(None));
        plain.spec.object_storage.ca_cert = Some("UEVN".to_owned());
        assert_eq!(inline_ca(&plain), Ok(Some(b"PEM".to_vec())));
        plain.spec.object_storage.ca_cert = Some("-----BEGIN".to_owned());
        assert_says!(inline_ca(&plain).unwrap_err(), "spec.objectStorage.caCert");
    }

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

    #[test]
    fn what_may_not_be_read_now_may_be_read_later() {
        // Answers of an API server that has just started, and of one that lacks a binding.
        for (code, expected) in [(401, true), (403, true), (503, true), (400, false)] {
            let status =
                Status::failure("secrets \"s\" is forbidden: User \"u\" cannot get it", "")
                    .with_code(code);
            let source = || kube::Error::Api(Box::new(status.clone()));
            let of_secret = LocationError::SecretUnreadable {
                name: String::new(),
                secret: String::new(),
                source: source(),
            };
            let of_location = LocationError::Unreadable {
                name: String::new(),
                source: source(),
            };
            assert_eq!(
                [of_secret, of_location].map(|error| error.is_transient()),
                [expected; 2],
                "{code}"
            );
        }
    }
}
