//! An opened BackupStorageLocation.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use backup_core::{
    api::{BackupStorageLocation, BackupStorageLocationSpec},
    bucket::Facts,
    labels::BUCKET_ANNOTATION,
};
use object_store::{ObjectStore, multipart::MultipartStore, path::Path};

use crate::{StoreError, layout::Layout};

mod allowed;
mod azure;
mod backend;
mod bucket_api;
mod check;
mod copy;
mod deletion;
mod gcs;
mod held_credential;
mod http_client;
mod incomplete_backup;
mod local;
mod objects;
mod plugin;
#[cfg(test)]
mod plugin_tests;
mod plugin_uploads;
mod read;
mod repositories;
mod s3;
mod settings;
mod store_identity;

pub use allowed::AllowedPlaces;
use backend::Backend;
pub use copy::{CopiedFile, CopyNote, PendingCopy};
pub use deletion::{DeletedBackup, RetainedVersions};
#[cfg(test)]
pub(crate) use http_client::Connector;
pub use incomplete_backup::{IncompleteBackup, Remnant};
pub use plugin::{BUILT_IN, bucket_and_prefix, is_built_in, plugin_of};
pub(crate) use plugin_uploads::PluginBucket;
pub use read::{BackupFolder, SavedVolumes, SideFile};
pub use repositories::SnapshotNote;
pub use s3::Regions;
use store_identity::StoreIdentity;

/// Checks the settings of a location as far as neither its credentials nor its store are needed. A
/// provider that is not built in has the settings of its plugin: of these, only those are refused
/// that no location may have.
pub fn check_settings(spec: &BackupStorageLocationSpec) -> Result<(), StoreError> {
    let mut spec = spec.clone();
    // The bundle that it has to repeat may be in a Secret, which is not read here.
    spec.config.remove("caCert");
    let provider = spec.provider.as_str();
    match provider.strip_prefix("velero.io/").unwrap_or(provider) {
        "aws" => s3::check(&spec),
        "azure" => azure::check(&spec),
        "gcp" => gcs::check(&spec, None),
        "local" => settings::known(&spec, None, &[]),
        _ => settings::common(&spec),
    }
}

/// A store that can be read and written. Cheap to clone.
#[derive(Clone)]
pub struct Location {
    inner: Arc<Inner>,
}

struct Inner {
    backend: Backend,
    layout: Layout,
    /// Set once the store has reported that it does not support conditional writes.
    unconditional: AtomicBool,
}

impl Location {
    /// Opens the store of a BackupStorageLocation; sends no request yet.
    ///
    /// `credentials` is the value of the Secret key that `spec.credential` names (an AWS
    /// credentials file, the JSON key of a Google service account, a file of `AZURE_…` variables);
    /// with `None`, the environment's are used (workload identity). `ca` is the PEM bundle of
    /// `spec.objectStorage.caCert(Ref)`. Providers: `aws` (S3 and compatibles), `gcp`, `azure`, and
    /// `local` (`bucket` is an absolute folder, created if need be); for others see
    /// [`Self::through_plugin`]. Errors: [`StoreError::Config`], and [`StoreError::Io`] if a folder
    /// cannot be created.
    pub fn open(
        bsl: &BackupStorageLocation,
        credentials: Option<&[u8]>,
        ca: Option<&[u8]>,
    ) -> Result<Self, StoreError> {
        let spec = &bsl.spec;
        let mut backend = match spec.provider.as_str() {
            "aws" | "velero.io/aws" => s3::open(spec, credentials, ca)?,
            "azure" | "velero.io/azure" => azure::open(spec, credentials, ca)?,
            "gcp" | "velero.io/gcp" => gcs::open(spec, credentials, ca)?,
            "local" | "velero.io/local" => local::open(spec)?,
            other => {
                let message = format!(
                    "{other:?} is not known: expected aws (S3 and compatibles), azure, gcp or local (a folder)"
                );
                return Err(StoreError::config("spec.provider", message));
            }
        };
        backend.identity = StoreIdentity::of(spec, credentials, ca);
        let location = Self::new(
            backend,
            spec.object_storage.prefix.as_deref().unwrap_or_default(),
        )?;
        // The result of an earlier probe.
        let annotation = bsl
            .metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(BUCKET_ANNOTATION));
        if Facts::read(annotation.map(String::as_str)).is_some_and(|facts| facts.unconditional) {
            location.inner.unconditional.store(true, Ordering::Relaxed);
        }
        Ok(location)
    }

    fn new(backend: Backend, prefix: &str) -> Result<Self, StoreError> {
        let unconditional = AtomicBool::new(backend.plugin.is_some());
        let inner = Inner {
            backend,
            layout: Layout::new(prefix)?,
            unconditional,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// A location in any object store. `url` is the base URL of the store's keys, without the
    /// prefix.
    #[cfg(test)]
    pub(crate) fn from_store<S: ObjectStore + MultipartStore>(
        store: Arc<S>,
        prefix: &str,
        url: &str,
    ) -> Self {
        Self::new(Backend::new(store.clone(), store, url.to_owned()), prefix).unwrap()
    }

    /// The same, in a store that copies objects to other locations with this `id`.
    #[cfg(test)]
    pub(crate) fn in_store<S: ObjectStore + MultipartStore>(
        store: Arc<S>,
        prefix: &str,
        id: String,
    ) -> Self {
        let mut backend = Backend::new(store.clone(), store, "s3://bucket".to_owned());
        backend.identity = Some(StoreIdentity {
            id,
            bucket: "bucket".to_owned(),
        });
        Self::new(backend, prefix).unwrap()
    }

    /// `s3://bucket/prefix` or `file:///folder/prefix`, for messages.
    pub fn url(&self) -> String {
        self.url_of(&self.layout().prefix)
    }

    /// The store itself, for data beside the backups: the repositories of volumes.
    pub fn object_store(&self) -> Arc<dyn ObjectStore> {
        self.backend().store.clone()
    }

    /// The prefix of all keys of this location.
    pub fn prefix(&self) -> &Path {
        &self.layout().prefix
    }

    fn backend(&self) -> &Backend {
        &self.inner.backend
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.inner.layout
    }

    pub(crate) fn store(&self) -> &dyn ObjectStore {
        self.backend().store.as_ref()
    }

    pub(crate) fn uploads(&self) -> &dyn MultipartStore {
        self.backend().uploads.as_ref()
    }

    /// The uploads of the plugin that serves the store, if one does.
    pub(crate) fn plugin(&self) -> Option<&PluginBucket> {
        self.backend().plugin.as_deref()
    }

    /// Whether the store lacks conditional writes, so that a key is checked before it is written.
    pub(crate) fn is_unconditional(&self) -> bool {
        self.inner.unconditional.load(Ordering::Relaxed)
    }

    pub(crate) fn url_of(&self, key: &Path) -> String {
        match key.as_ref() {
            "" => self.backend().url.clone(),
            key => format!("{}/{key}", self.backend().url),
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Location({})", self.url())
    }
}
