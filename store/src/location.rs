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
mod client;
mod closely;
mod credentials;
mod folder;
mod gcs;
mod local;
mod local_uploads;
mod objects;
mod plugin;
#[cfg(test)]
mod plugin_tests;
mod plugin_uploads;
mod read;
mod remove;
mod s3;
mod s3_bucket;
mod sign;
mod stray;
mod versions;

pub use folder::{Folder, SideFile};
pub(crate) use objects::is_taken;
pub use plugin::{BUILT_IN, Body, ObjectPlugin, bucket_and_prefix, is_built_in, plugin_of};
pub(crate) use plugin_uploads::PluginUploads;
pub use stray::{Left, Stray};
pub use versions::Rest;
use versions::{Lock, Page, Trouble, Version};

/// A store that can be read and written. Cheap to clone.
#[derive(Clone)]
pub struct Location {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn ObjectStore>,
    uploads: Uploads,
    /// Set where more can be asked than objects.
    bucket: Option<Arc<dyn AskBucket>>,
    /// What every object is tagged with.
    tags: TagSet,
    layout: Layout,
    root: Root,
    /// Set once the store has said that it does not know conditional writes.
    unconditional: AtomicBool,
    /// Set if a plugin serves the store.
    plugin: Option<Arc<PluginUploads>>,
    /// Makes URLs that open a key to everybody; none where nobody could make one.
    signer: Option<Arc<dyn Signer>>,
}

/// The same store, for uploads that outlive the process.
struct Uploads {
    store: Arc<dyn MultipartStore>,
    /// Completes an upload only if its key is not there; none where that can't be asked for.
    creating: Option<Arc<dyn MultipartStore>>,
}

/// What can be asked of a bucket beyond its objects. Errors: why it does not say, in one line.
#[async_trait]
trait AskBucket: Send + Sync {
    /// What the store calls the uploads of this very key that are not completed.
    async fn uploads(&self, key: &Path) -> Result<Vec<String>, String>;

    /// Whether it keeps versions.
    async fn versions(&self) -> Result<Versions, String>;

    /// What is locked against deletion.
    async fn lock(&self) -> Result<ObjectLock, String>;

    /// A page of the versions of all keys that begin so, after the place where the last page ended.
    async fn page(&self, start: &str, after: Option<&(String, String)>) -> Result<Page, Trouble>;

    /// Removes versions for good, at most a page of them. Those that are refused, each with the store's word for why.
    async fn remove(&self, versions: &[Version]) -> Result<Vec<(Version, String)>, Trouble>;

    /// What keeps a version from being removed.
    async fn lock_of(&self, version: &Version) -> Result<Lock, Trouble>;
}

/// A client of a store, in its roles.
struct Opened {
    store: Arc<dyn ObjectStore>,
    uploads: Uploads,
    bucket: Option<Arc<dyn AskBucket>>,
    tags: TagSet,
    root: Root,
    signer: Option<Arc<dyn Signer>>,
}

/// What keys are relative to.
#[derive(Debug)]
struct Root {
    /// `s3://bucket` or `file:///folder`.
    url: String,
    /// Where that is served, if it is not obvious from the URL.
    endpoint: Option<String>,
    /// The folder, if it is one on this machine.
    folder: Option<PathBuf>,
}

impl Location {
    /// Opens the store of a BackupStorageLocation; does not talk to it yet.
    ///
    /// `credentials` is the value of the Secret key that `spec.credential` names (an AWS credentials file, the JSON key of
    /// a Google service account, a file of `AZURE_…` variables), none to use those of the environment (workload
    /// identity); `ca` is the PEM bundle of `spec.objectStorage.caCert(Ref)`. Providers: `aws` (S3 and compatibles), `gcp`,
    /// `azure`, and `local` (`bucket` is an absolute folder, created if need be); for others see [`Self::through_plugin`].
    /// Errors: [`StoreError::Config`], and [`StoreError::Io`] if a folder can't be made.
    pub fn open(
        bsl: &BackupStorageLocation,
        credentials: Option<&[u8]>,
        ca: Option<&[u8]>,
    ) -> Result<Self, StoreError> {
        let spec = &bsl.spec;
        let opened = match spec.provider.as_str() {
            "aws" | "velero.io/aws" => s3::open(spec, credentials, ca)?,
            "azure" | "velero.io/azure" => azure::open(spec, credentials, ca)?,
            "gcp" | "velero.io/gcp" => gcs::open(spec, credentials, ca)?,
            "local" | "velero.io/local" => local::open(spec)?,
            other => {
                return Err(StoreError::Config {
                    field: "spec.provider".to_owned(),
                    message: format!(
                        "{other:?} is not known: expected aws (S3 and compatibles), azure, gcp or local (a folder)"
                    ),
                });
            }
        };
        Self::of(opened, spec.object_storage.prefix.as_deref().unwrap_or_default(), None)
    }

    /// A location in any object store, for tests. `url` is what the store's keys are relative to, without the prefix.
    pub fn from_store<S: ObjectStore + MultipartStore>(
        store: Arc<S>,
        prefix: &str,
        url: &str,
    ) -> Result<Self, StoreError> {
        let root = Root { url: url.trim_end_matches('/').to_owned(), endpoint: None, folder: None };
        let uploads = Uploads { store: store.clone(), creating: None };
        let tags = TagSet::default();
        Self::of(Opened { store, uploads, bucket: None, tags, root, signer: None }, prefix, None)
    }

    fn of(opened: Opened, prefix: &str, plugin: Option<Arc<PluginUploads>>) -> Result<Self, StoreError> {
        let Opened { store, uploads, bucket, tags, root, signer } = opened;
        let layout = Layout::new(prefix)?;
        let unconditional = AtomicBool::new(plugin.is_some());
        let inner = Inner { store, uploads, bucket, tags, layout, root, unconditional, plugin, signer };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// `s3://bucket/prefix` or `file:///folder/prefix`, for people.
    pub fn url(&self) -> String {
        self.url_of(self.layout().prefix())
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.inner.layout
    }

    pub(crate) fn store(&self) -> &dyn ObjectStore {
        self.inner.store.as_ref()
    }

    pub(crate) fn uploads(&self) -> &dyn MultipartStore {
        self.inner.uploads.store.as_ref()
    }

    /// The uploads of the plugin that serves the store, if one does.
    pub(crate) fn plugin(&self) -> Option<&PluginUploads> {
        self.inner.plugin.as_deref()
    }

    /// Whether the store knows no conditions, so that a key is looked at before it is written.
    pub(crate) fn is_unconditional(&self) -> bool {
        self.inner.unconditional.load(Ordering::Relaxed)
    }

    /// A key, for people.
    pub(crate) fn url_of(&self, key: &Path) -> String {
        match key.as_ref() {
            "" => self.inner.root.url.clone(),
            key => format!("{}/{key}", self.inner.root.url),
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Location({})", self.url())
    }
}
