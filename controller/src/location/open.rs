//! Opening a location: the object, its Secrets, the store.

use std::sync::Arc;

use backup_core::api::{
    BackupStorageLocation, LocationPhase, backup_storage_location::AccessMode, common::SecretKey,
};
use backup_runtime::errors::{is_gone, is_transient, plain};
use backup_store::{Location, StoreError};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::Value;

use super::secrets::Used;
use backup_plugins::{
    Host, Missing,
    configured::{Credentials, Settings},
};

/// The Secret that locations without a credential of their own use, if it exists (Velero `velero install`).
const DEFAULT_SECRET: &str = "cloud-credentials";
/// Its key.
const DEFAULT_KEY: &str = "cloud";

/// Why a location can not be used.
#[derive(Debug, thiserror::Error)]
pub enum LocationError {
    /// There is no such object.
    #[error(
        "BackupStorageLocation {name} not found in namespace {namespace}: create it, or name another one in \
         spec.storageLocation"
    )]
    NotFound {
        /// Name that was asked for.
        name: String,
        /// Where it was looked for.
        namespace: String,
    },
    /// No location is named, and there is no default one.
    #[error(
        "no location is the default one: set spec.default: true on a BackupStorageLocation in namespace {namespace}, \
         or name one in spec.storageLocation"
    )]
    NoDefault {
        /// Where it was looked for.
        namespace: String,
    },
    /// The API server could not be asked.
    #[error("BackupStorageLocation {name} could not be read: {}", plain(.source))]
    Unreadable {
        /// The location.
        name: String,
        /// What the API server said.
        source: kube::Error,
    },
    /// A Secret that the location needs is not there.
    #[error(
        "BackupStorageLocation {name}: Secret {secret} of {field} not found: create it, or correct {field}"
    )]
    NoSecret {
        /// The location.
        name: String,
        /// The Secret.
        secret: String,
        /// The field that names it.
        field: &'static str,
    },
    /// The Secret is there, the key is not.
    #[error("BackupStorageLocation {name}: Secret {secret} has no key {key}: add it, or correct {field}.key")]
    NoKey {
        /// The location.
        name: String,
        /// The Secret.
        secret: String,
        /// The key that is missing.
        key: String,
        /// The field that names it.
        field: &'static str,
    },
    /// The Secret could not be read.
    #[error("BackupStorageLocation {name}: Secret {secret} could not be read: {}", plain(.source))]
    SecretUnreadable {
        /// The location.
        name: String,
        /// The Secret.
        secret: String,
        /// What the API server said.
        source: kube::Error,
    },
    /// No plugin serves its provider.
    #[error("BackupStorageLocation {name}: {reason}")]
    NoPlugin {
        /// The location.
        name: String,
        /// Which plugin is missing, and which there are.
        reason: String,
        /// Whether it may be among what could not be asked now.
        may_come: bool,
    },
    /// The store itself: settings, access, network.
    #[error("BackupStorageLocation {name}: {source}")]
    Store {
        /// The location.
        name: String,
        /// What the store said, and what to do.
        source: StoreError,
    },
}

impl LocationError {
    /// A word for metrics and logs.
    pub fn category(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "not_found",
            Self::NoDefault { .. } => "no_default",
            Self::Unreadable { .. } => "unreadable",
            Self::NoSecret { .. } | Self::NoKey { .. } | Self::SecretUnreadable { .. } => "credentials",
            Self::NoPlugin { .. } => "plugin",
            Self::Store { source, .. } => source.category(),
        }
    }

    /// Whether it may pass without anyone doing anything.
    pub fn is_transient(&self) -> bool {
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

/// Whether backups may only be read from the location.
pub fn is_read_only(location: &BackupStorageLocation) -> bool {
    location.spec.access_mode == Some(AccessMode::ReadOnly)
}

/// Whether the location could be used when it was last validated.
pub fn is_available(location: &BackupStorageLocation) -> bool {
    location.status.phase == Some(LocationPhase::Available)
}

/// Opens locations. Cheap to clone.
#[derive(Clone)]
pub struct Locations {
    client: Client,
    namespace: String,
    default: String,
    plugins: Host,
    /// Providers that are built in, and for which their plugin was chosen.
    by_plugin: Vec<String>,
}

impl Locations {
    /// For the locations of a namespace; `default` is used when none is marked as the default. Locations of a provider that
    /// is not built in, or is one of `by_plugin`, are served by plugins.
    pub fn new(client: Client, namespace: &str, default: &str, plugins: Host, by_plugin: &[String]) -> Self {
        let by_plugin = by_plugin.iter().map(|provider| backup_store::plugin_of(provider.trim())).collect();
        let (namespace, default) = (namespace.to_owned(), default.to_owned());
        Self { client, namespace, default, plugins, by_plugin }
    }

    /// The location of this name as it is now, and its store. Does not look at phase or access mode: see
    /// [`is_available`] and [`is_read_only`].
    ///
    /// # Errors
    /// See [`LocationError`]; nothing has been asked of the store yet.
    pub async fn open(&self, name: &str) -> Result<(BackupStorageLocation, Location), LocationError> {
        let location = self.get(name).await?;
        let store = self.store(&location).await?;
        Ok((location, store))
    }

    /// The location of this name as it is now.
    ///
    /// # Errors
    /// If it is not there or can not be read.
    pub async fn get(&self, name: &str) -> Result<BackupStorageLocation, LocationError> {
        match self.api().get(name).await {
            Ok(location) => Ok(location),
            Err(error) if is_gone(&error, name) => {
                Err(LocationError::NotFound { name: name.to_owned(), namespace: self.namespace.clone() })
            }
            Err(source) => Err(LocationError::Unreadable { name: name.to_owned(), source }),
        }
    }

    /// The store of a location, opened with the credentials that are in its Secrets now.
    ///
    /// # Errors
    /// See [`LocationError`].
    pub async fn store(&self, location: &BackupStorageLocation) -> Result<Location, LocationError> {
        self.store_noting(location, &mut Used::new()).await
    }

    /// The same; notes which Secrets were read, also if one is not there.
    pub(super) async fn store_noting(
        &self,
        location: &BackupStorageLocation,
        used: &mut Used,
    ) -> Result<Location, LocationError> {
        let name = location.name_any();
        // Both are read, so that it is known of both when they change.
        let credentials = match &location.spec.credential {
            Some(reference) => self.secret(&name, reference, "spec.credential", used).await,
            None => self.default_credentials(&name, used).await,
        };
        let ca = match &location.spec.object_storage.ca_cert_ref {
            Some(reference) => self.secret(&name, reference, "spec.objectStorage.caCertRef", used).await,
            None => inline_ca(location).map_err(|source| LocationError::Store { name: name.clone(), source }),
        };
        let (credentials, ca) = (credentials?, ca?);
        let provider = &location.spec.provider;
        if !backup_store::is_built_in(provider) || self.by_plugin.contains(&backup_store::plugin_of(provider))
        {
            return self.through_plugin(location, credentials, ca).await;
        }
        Location::open(location, credentials.as_deref(), ca.as_deref())
            .map_err(|source| LocationError::Store { name, source })
    }

    /// A plugin is told what Velero would tell it (`pkg/persistence/object_store.go`, v1.18).
    async fn through_plugin(
        &self,
        location: &BackupStorageLocation,
        credentials: Option<Vec<u8>>,
        ca: Option<Vec<u8>>,
    ) -> Result<Location, LocationError> {
        let name = location.name_any();
        let failed = |source| LocationError::Store { name: name.clone(), source };
        let (bucket, prefix) = backup_store::bucket_and_prefix(location).map_err(failed)?;
        let mut config = location.spec.config.clone();
        // Which file is read is not up to who may write a location.
        config.remove("credentialsFile");
        config.extend([("bucket".to_owned(), bucket.clone()), ("prefix".to_owned(), prefix)]);
        if let Some(ca) = ca {
            config.insert("caCert".to_owned(), String::from_utf8_lossy(&ca).into_owned());
        }
        let kind = if location.spec.credential.is_some() { Credentials::Own } else { Credentials::Default };
        let settings = Settings { config, credentials: credentials.map(kind) };
        let plugin = backup_store::plugin_of(&location.spec.provider);
        let bucket = self.plugins.bucket(&plugin, &bucket, settings).await.map_err(|missing| {
            let Missing { reason, may_come } = missing;
            LocationError::NoPlugin { name: name.clone(), reason, may_come }
        })?;
        Location::through_plugin(location, Arc::new(bucket)).map_err(failed)
    }

    /// The name of the location for backups that name none: the newest marked as the default, else that of the command
    /// line if it exists (Velero `internal/storage/storagelocation.go`, v1.18).
    ///
    /// # Errors
    /// If there is none, or they can not be read.
    pub async fn default_location(&self) -> Result<String, LocationError> {
        use kube::core::DeserializeGuard;
        let api: Api<DeserializeGuard<BackupStorageLocation>> =
            Api::namespaced(self.client.clone(), &self.namespace);
        let list = api.list(&kube::api::ListParams::default()).await;
        let list = list.map_err(|source| LocationError::Unreadable { name: "(all)".to_owned(), source })?;
        let readable: Vec<BackupStorageLocation> =
            list.items.into_iter().filter_map(|guard| guard.0.ok()).collect();
        choose_default(&readable, &self.default)
            .ok_or_else(|| LocationError::NoDefault { namespace: self.namespace.clone() })
    }

    fn api(&self) -> Api<BackupStorageLocation> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn default_credentials(
        &self,
        location: &str,
        used: &mut Used,
    ) -> Result<Option<Vec<u8>>, LocationError> {
        let reference =
            SecretKey { name: DEFAULT_SECRET.to_owned(), key: DEFAULT_KEY.to_owned(), optional: Some(true) };
        self.secret(location, &reference, "the default credentials", used).await
    }

    /// The value of a key; none only if the reference says that it is optional.
    async fn secret(
        &self,
        location: &str,
        reference: &SecretKey,
        field: &'static str,
        used: &mut Used,
    ) -> Result<Option<Vec<u8>>, LocationError> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let (name, optional) = (location.to_owned(), reference.optional == Some(true));
        let secret = match api.get(&reference.name).await {
            Ok(secret) => {
                used.push((reference.name.clone(), secret.resource_version()));
                secret
            }
            Err(error) if is_gone(&error, &reference.name) => {
                used.push((reference.name.clone(), None));
                let missing = LocationError::NoSecret { name, secret: reference.name.clone(), field };
                return if optional { Ok(None) } else { Err(missing) };
            }
            Err(source) => {
                return Err(LocationError::SecretUnreadable { name, secret: reference.name.clone(), source });
            }
        };
        match secret.data.and_then(|mut data| data.remove(&reference.key)) {
            Some(value) => Ok(Some(value.0)),
            None if optional => Ok(None),
            None => Err(LocationError::NoKey {
                name,
                secret: reference.name.clone(),
                key: reference.key.clone(),
                field,
            }),
        }
    }
}

/// The CA bundle in the location itself, which is base64 like all bytes in JSON.
fn inline_ca(location: &BackupStorageLocation) -> Result<Option<Vec<u8>>, StoreError> {
    let Some(text) = location.spec.object_storage.ca_cert.as_ref().filter(|text| !text.is_empty()) else {
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

/// The location for backups that name none: of those marked as the default the newest, else `fallback` if it exists
/// (Velero `backup_storage_location_controller.go`, v1.18).
pub fn choose_default(locations: &[BackupStorageLocation], fallback: &str) -> Option<String> {
    let marked = locations.iter().filter(|location| location.spec.default == Some(true));
    let newest = marked.max_by_key(|location| {
        (location.meta().creation_timestamp.as_ref().map(|time| time.0), location.name_any())
    });
    newest
        .or_else(|| locations.iter().find(|location| location.name_any() == fallback))
        .map(ResourceExt::name_any)
}

#[cfg(test)]
mod tests {
    use backup_core::api::BackupStorageLocationSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn location(name: &str, default: Option<bool>, created: i64) -> BackupStorageLocation {
        let mut location = BackupStorageLocation::new(name, BackupStorageLocationSpec::default());
        location.spec.default = default;
        location.metadata.creation_timestamp = Some(Time(jiff::Timestamp::from_second(created).unwrap()));
        location
    }

    #[test]
    fn the_default_is_the_newest_marked_one_else_that_of_the_command_line() {
        let (old, new) = (location("old", Some(true), 1), location("new", Some(true), 2));
        let (plain, named) = (location("plain", None, 3), location("default", Some(false), 0));
        for (locations, expected) in [
            (vec![old.clone(), new.clone(), plain.clone(), named.clone()], Some("new")),
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
        assert!(inline_ca(&plain).unwrap_err().to_string().contains("spec.objectStorage.caCert"));
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
}
