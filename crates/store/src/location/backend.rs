//! A store as a location uses it, whichever provider it is of.

use std::{path::PathBuf, sync::Arc};

use object_store::{ObjectStore, TagSet, multipart::MultipartStore, signer::Signer};

use super::{bucket_api::BucketApi, plugin_uploads::PluginBucket};

pub(super) struct Backend {
    pub(super) store: Arc<dyn ObjectStore>,
    /// The same store, for uploads that outlive the process.
    pub(super) uploads: Arc<dyn MultipartStore>,
    /// Completes an upload only if its key is not there; none where that cannot be asked for.
    pub(super) creating: Option<Arc<dyn MultipartStore>>,
    /// Set where more can be asked than objects.
    pub(super) bucket: Option<Arc<dyn BucketApi>>,
    pub(super) plugin: Option<Arc<PluginBucket>>,
    /// Makes URLs that open a key; none where the store has none.
    pub(super) signer: Option<Arc<dyn Signer>>,
    pub(super) tags: TagSet,
    /// What keys are relative to: `s3://bucket` or `file:///folder`.
    pub(super) url: String,
    /// Where that is served, if it is not obvious from the URL.
    pub(super) endpoint: Option<String>,
    /// The folder, if it is one on this machine.
    pub(super) folder: Option<PathBuf>,
}

impl Backend {
    pub(super) fn new(store: Arc<dyn ObjectStore>, uploads: Arc<dyn MultipartStore>, url: String) -> Self {
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
