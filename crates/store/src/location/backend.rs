//! A store as a location uses it, the same for all providers.

use std::{path::PathBuf, sync::Arc};

use object_store::{ObjectStore, TagSet, multipart::MultipartStore, signer::Signer};

use super::{bucket_api::BucketApi, plugin_uploads::PluginBucket, store_identity::StoreIdentity};

pub(super) struct Backend {
    pub(super) store: Arc<dyn ObjectStore>,
    /// The same store, for uploads that outlive the process.
    pub(super) uploads: Arc<dyn MultipartStore>,
    /// Completes an upload only if its key does not exist; `None` where the store has no such
    /// condition.
    pub(super) creating: Option<Arc<dyn MultipartStore>>,
    /// Set where the bucket can be queried beyond its objects.
    pub(super) bucket: Option<Arc<dyn BucketApi>>,
    pub(super) plugin: Option<Arc<PluginBucket>>,
    /// Set where the store can copy objects to other locations in it.
    pub(super) identity: Option<StoreIdentity>,
    /// Makes signed URLs of keys; `None` where the store has none.
    pub(super) signer: Option<Arc<dyn Signer>>,
    pub(super) tags: TagSet,
    /// Base URL of the keys: `s3://bucket` or `file:///folder`.
    pub(super) url: String,
    /// The endpoint, if it is not obvious from the URL.
    pub(super) endpoint: Option<String>,
    /// The folder, if the store is one on this machine.
    pub(super) folder: Option<PathBuf>,
}

impl Backend {
    pub(super) fn new(
        store: Arc<dyn ObjectStore>,
        uploads: Arc<dyn MultipartStore>,
        url: String,
    ) -> Self {
        Self {
            store,
            uploads,
            creating: None,
            bucket: None,
            plugin: None,
            identity: None,
            signer: None,
            tags: TagSet::default(),
            url,
            endpoint: None,
            folder: None,
        }
    }
}
