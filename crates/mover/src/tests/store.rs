//! A store in memory that fails, waits and counts as a test asks for.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::{StreamExt as _, TryStreamExt as _, stream::BoxStream};
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt as _, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result, memory::InMemory, path::Path,
};
use parking_lot::Mutex;

#[derive(Debug, Default)]
pub(super) struct HookedStore {
    pub(super) inner: InMemory,
    /// Fails the writes of packs for good.
    pub(super) refuses_packs: AtomicBool,
    /// Number of requests that fail as if the store was away.
    pub(super) outages: AtomicUsize,
    /// Delay of reads and writes of packs (milliseconds).
    pub(super) delay: AtomicU64,
    pub(super) packs_read: Concurrency,
    pub(super) packs_written: Concurrency,
    pub(super) requests: AtomicUsize,
    /// Keys in the order in which their writes ended.
    pub(super) written: Mutex<Vec<String>>,
    /// Keys whose removal was requested.
    pub(super) removed: Arc<Mutex<Vec<String>>>,
}

/// How many requests for packs ran side by side.
#[derive(Debug, Default)]
pub(super) struct Concurrency {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Concurrency {
    async fn during<T>(&self, key: &Path, request: impl Future<Output = T>) -> T {
        if !is_pack(key) {
            return request.await;
        }
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        let done = request.await;
        self.now.fetch_sub(1, Ordering::SeqCst);
        done
    }

    /// The largest number since this was asked last.
    pub(super) fn take_most(&self) -> usize {
        self.most.swap(0, Ordering::SeqCst)
    }
}

impl HookedStore {
    pub(super) fn new(inner: InMemory) -> Self {
        Self {
            inner,
            ..Self::default()
        }
    }

    async fn before(&self, key: &Path) -> Result<()> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let is_away = self
            .outages
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            });
        if is_away.is_ok() {
            return Err(Error::Generic {
                store: "memory",
                source: "connection refused".into(),
            });
        }
        let delay = self.delay.load(Ordering::SeqCst);
        if delay > 0 && is_pack(key) {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        Ok(())
    }

    /// All keys, sorted.
    pub(super) async fn keys(&self) -> Vec<String> {
        let objects: Vec<_> = self.inner.list(None).try_collect().await.unwrap();
        let mut keys: Vec<_> = objects
            .into_iter()
            .map(|object| object.location.to_string())
            .collect();
        keys.sort();
        keys
    }

    pub(super) async fn size(&self, key: &str) -> u64 {
        self.inner.head(&Path::from(key)).await.unwrap().size
    }

    /// Changes one byte of an object.
    pub(super) async fn damage(&self, key: &str) {
        let path = Path::from(key);
        let object = self.inner.get(&path).await.unwrap();
        let mut bytes = object.bytes().await.unwrap().to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        self.inner.put(&path, bytes.into()).await.unwrap();
    }

    /// Removes all bytes of an object after this number.
    pub(super) async fn cut_off(&self, key: &str, bytes: usize) {
        let path = Path::from(key);
        let object = self.inner.get(&path).await.unwrap();
        let begin = object.bytes().await.unwrap().slice(..bytes);
        self.inner.put(&path, begin.into()).await.unwrap();
    }
}

pub(super) fn is_pack(key: &Path) -> bool {
    key.as_ref().contains("/data/")
}

impl fmt::Display for HookedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HookedStore")
    }
}

#[async_trait]
impl ObjectStore for HookedStore {
    async fn put_opts(
        &self,
        key: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        if is_pack(key) && self.refuses_packs.load(Ordering::SeqCst) {
            return Err(Error::PermissionDenied {
                path: key.to_string(),
                source: "no more".into(),
            });
        }
        self.packs_written.during(key, self.before(key)).await?;
        let result = self.inner.put_opts(key, payload, options).await?;
        self.written.lock().push(key.to_string());
        Ok(result)
    }

    async fn put_multipart_opts(
        &self,
        key: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(key, options).await
    }

    async fn get_opts(&self, key: &Path, options: GetOptions) -> Result<GetResult> {
        self.packs_read.during(key, self.before(key)).await?;
        self.inner.get_opts(key, options).await
    }

    fn delete_stream(
        &self,
        keys: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let removed = Arc::clone(&self.removed);
        let noted = keys.inspect_ok(move |key| removed.lock().push(key.to_string()));
        self.inner.delete_stream(noted.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
