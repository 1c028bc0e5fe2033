//! An opened BackupStorageLocation.

use std::{
    fmt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use backup_core::{
    api::BackupStorageLocation,
    bucket::{ObjectLock, Versions},
};
use object_store::{ObjectStore, TagSet, multipart::MultipartStore, path::Path, signer::Signer};

use crate::{StoreError, layout::Layout};

mod azure;
mod check;
mod credentials;
mod deletion;
mod gcs;
mod http_client;
mod incomplete_backup;
mod local;
mod objects;
mod plugin;
#[cfg(test)]
mod plugin_tests;
mod plugin_uploads;
mod read;
mod s3;
mod s3_bucket;
mod settings;

pub use deletion::{DeletedBackup, RetainedVersions};
use deletion::{Lock, Page, PageMarker, Undeleted, Version};
#[cfg(test)]
pub(crate) use http_client::Connector;
pub(crate) use http_client::HttpFailure;
pub use incomplete_backup::{IncompleteBackup, Remnant};
pub use plugin::{
    BUILT_IN, Body, Fault, ObjectPlugin, PluginFault, bucket_and_prefix, is_built_in, plugin_of,
};
pub(crate) use plugin_uploads::PluginUploads;
pub use read::{BackupFolder, SideFile};

/// A store that can be read and written. Cheap to clone.
#[derive(Clone)]
pub struct Location {
    inner: Arc<Inner>,
}

struct Inner {
    backend: Backend,
    layout: Layout,
    /// Set once the store has said that it does not know conditional writes.
    unconditional: AtomicBool,
}

struct Backend {
    store: Arc<dyn ObjectStore>,
    /// The same store, for uploads that outlive the process.
    uploads: Arc<dyn MultipartStore>,
    /// Completes an upload only if its key is not there; none where that cannot be asked for.
    creating: Option<Arc<dyn MultipartStore>>,
    /// Set where more can be asked than objects.
    bucket: Option<Arc<dyn BucketApi>>,
    plugin: Option<Arc<PluginUploads>>,
    /// Makes URLs that open a key; none where the store has none.
    signer: Option<Arc<dyn Signer>>,
    tags: TagSet,
    /// What keys are relative to: `s3://bucket` or `file:///folder`.
    url: String,
    /// Where that is served, if it is not obvious from the URL.
    endpoint: Option<String>,
    /// The folder, if it is one on this machine.
    folder: Option<PathBuf>,
}

impl Backend {
    fn new<S: ObjectStore + MultipartStore>(store: Arc<S>, url: String) -> Self {
        Self::with_uploads(store.clone(), store, url)
    }

    fn with_uploads(store: Arc<dyn ObjectStore>, uploads: Arc<dyn MultipartStore>, url: String) -> Self {
        Self {
            store,
            uploads,
            creating: None,
            bucket: None,
            plugin: None,
            signer: None,
            tags: TagSet::default(),
            url,
            endpoint: None,
            folder: None,
        }
    }
}

/// What can be asked of a bucket beyond its objects.
#[async_trait]
trait BucketApi: Send + Sync {
    /// What the store calls the uploads of this very key that are not completed.
    async fn uploads(&self, key: &Path) -> Result<Vec<String>, BucketError>;

    async fn versions(&self) -> Result<Versions, BucketError>;

    async fn lock(&self) -> Result<ObjectLock, BucketError>;

    /// A page of the versions of all keys that begin so, after the place where the last page ended.
    async fn page(&self, start: &str, after: Option<&PageMarker>) -> Result<Page, BucketError>;

    /// Removes versions for good, at most a page of them. Those that are refused.
    async fn remove(&self, versions: &[Version]) -> Result<Vec<Undeleted>, BucketError>;

    async fn lock_of(&self, version: &Version) -> Result<Lock, BucketError>;
}

/// Why a bucket gives no answer, in one line.
#[derive(Clone, Debug, thiserror::Error)]
enum BucketError {
    /// It will give none until something is changed.
    #[error("{0}")]
    Refused(String),
    /// It may give one later.
    #[error("{0}")]
    Retryable(String),
}

impl Location {
    /// Opens the store of a BackupStorageLocation; does not talk to it yet.
    ///
    /// `credentials` is the value of the Secret key that `spec.credential` names (an AWS credentials file, the JSON key of
    /// a Google service account, a file of `AZURE_…` variables), none to use those of the environment (workload
    /// identity); `ca` is the PEM bundle of `spec.objectStorage.caCert(Ref)`. Providers: `aws` (S3 and compatibles), `gcp`,
    /// `azure`, and `local` (`bucket` is an absolute folder, created if need be); for others see [`Self::through_plugin`].
    /// Errors: [`StoreError::Config`], and [`StoreError::Io`] if a folder cannot be made.
    pub fn open(
        bsl: &BackupStorageLocation,
        credentials: Option<&[u8]>,
        ca: Option<&[u8]>,
    ) -> Result<Self, StoreError> {
        let spec = &bsl.spec;
        let backend = match spec.provider.as_str() {
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
        Self::new(backend, spec.object_storage.prefix.as_deref().unwrap_or_default())
    }

    fn new(backend: Backend, prefix: &str) -> Result<Self, StoreError> {
        let unconditional = AtomicBool::new(backend.plugin.is_some());
        let inner = Inner { backend, layout: Layout::new(prefix)?, unconditional };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// A location in any object store. `url` is what the store's keys are relative to, without the prefix.
    #[cfg(test)]
    pub(crate) fn from_store<S: ObjectStore + MultipartStore>(
        store: Arc<S>,
        prefix: &str,
        url: &str,
    ) -> Self {
        Self::new(Backend::new(store, url.to_owned()), prefix).unwrap()
    }

    /// `s3://bucket/prefix` or `file:///folder/prefix`, for people.
    pub fn url(&self) -> String {
        self.url_of(self.layout().prefix())
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
    pub(crate) fn plugin(&self) -> Option<&PluginUploads> {
        self.backend().plugin.as_deref()
    }

    /// Whether the store knows no conditions, so that a key is looked at before it is written.
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
