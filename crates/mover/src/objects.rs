//! The objects of one repository, for threads that block.
//!
//! rustic_core works with threads, `object_store` with tasks: each call here waits for a task of
//! the runtime. All waits end when the operation is stopped, and have a deadline: an attempt takes
//! at most [`ATTEMPT_TIMEOUT`], and a call retries within [`TransferLimits::retry_budget`].

use std::{num::NonZeroU64, ops::Range, sync::Arc, time::Duration};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use backup_core::text::{causes, shortened};
use backup_store::{AnswerClass, Throttle};
use bytes::Bytes;
use futures::TryStreamExt as _;
use object_store::{
    Error as StoreError, GetOptions, GetRange, ObjectStore, ObjectStoreExt as _, PutMode,
    PutOptions, PutPayload, path::Path,
};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use crate::{
    MoverError, Progress, StopFlag,
    error::{CHANGED_CONTENTS, READ},
};

/// Timeout for one attempt of one call. A pack of 16 MiB fits at 55 KB/s.
const ATTEMPT_TIMEOUT: Duration = Duration::from_mins(5);

/// Maximum length of the cause in a line about a retry (characters).
const MAX_CAUSE: usize = 300;

/// Bytes of a read for each permit of its semaphore.
const READ_UNIT: u64 = 1024;

/// Bounds on what an operation takes from the network and from memory.
#[derive(Clone, Debug)]
pub struct TransferLimits {
    /// Maximum number of packs that are uploaded side by side.
    pub parallel_uploads: u16,
    /// Maximum size of the packs that a restore holds in memory (bytes). One pack is always held.
    pub read_memory: u32,
    /// Maximum size of the packs of folders that are kept in memory (bytes).
    pub tree_cache: usize,
    /// Bytes per second to the store; `None` is no limit.
    pub upload_rate: Option<NonZeroU64>,
    /// Bytes per second from the store; `None` is no limit.
    pub download_rate: Option<NonZeroU64>,
    /// Time during which a call is tried again while the store does not answer.
    pub retry_budget: Duration,
}

impl Default for TransferLimits {
    fn default() -> Self {
        Self {
            parallel_uploads: 4,
            read_memory: 32 << 20,
            tree_cache: 32 << 20,
            upload_rate: None,
            download_rate: None,
            retry_budget: Duration::from_mins(10),
        }
    }
}

/// The objects below a prefix. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Objects {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    /// Where it is, for messages.
    url: String,
    runtime: Handle,
    stop: StopFlag,
    progress: Arc<Progress>,
    limits: TransferLimits,
    /// One permit for each upload that may run.
    uploads: Arc<Semaphore>,
    /// One permit for each [`READ_UNIT`] bytes of packs that may be in memory.
    reads: Arc<Semaphore>,
    upload_throttle: Throttle,
    download_throttle: Throttle,
}

/// A repository's place in a store.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) prefix: Path,
    pub(crate) url: String,
}

impl Objects {
    /// To be called in a tokio runtime.
    pub(crate) fn new(
        place: &Place,
        limits: &TransferLimits,
        stop: StopFlag,
        progress: Arc<Progress>,
    ) -> Self {
        let inner = Inner {
            store: place.store.clone(),
            prefix: place.prefix.clone(),
            url: place.url.clone(),
            runtime: Handle::current(),
            stop,
            progress,
            uploads: Arc::new(Semaphore::new(limits.parallel_uploads.max(1).into())),
            reads: Arc::new(Semaphore::new(
                read_units(limits.read_memory.into()) as usize
            )),
            upload_throttle: Throttle::new(limits.upload_rate),
            download_throttle: Throttle::new(limits.download_rate),
            limits: limits.clone(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.inner.url
    }

    pub(crate) fn stop(&self) -> &StopFlag {
        &self.inner.stop
    }

    pub(crate) fn tree_cache(&self) -> usize {
        self.inner.limits.tree_cache
    }

    /// The names and sizes of all objects below a folder, in any depth. An error is returned, never
    /// a part of the list: a prune takes what is not listed for gone.
    pub(crate) fn list(&self, folder: &str) -> Result<Vec<(String, u64)>, MoverError> {
        let inner = &self.inner;
        let prefix = inner.prefix.clone().join(folder);
        self.block(self.retry("list", folder, async || {
            let objects: Vec<_> = inner.store.list(Some(&prefix)).try_collect().await?;
            let named = objects.into_iter().filter_map(|object| {
                let name = object.location.filename()?.to_owned();
                Some((name, object.size))
            });
            Ok(named.collect())
        }))
    }

    /// The size of an object; `None` if it does not exist.
    pub(crate) fn size(&self, key: &str) -> Result<Option<u64>, MoverError> {
        let path = self.path(key);
        self.block(self.retry("look up", key, async || self.find(&path).await))
    }

    async fn find(&self, path: &Path) -> object_store::Result<Option<u64>> {
        match self.inner.store.head(path).await {
            Ok(found) => Ok(Some(found.size)),
            Err(error) if AnswerClass::of(&error) == AnswerClass::MissingKey => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads an object, or a range of it. The range ends at the object's end at the latest: nothing
    /// is read of one that begins there.
    pub(crate) fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes, MoverError> {
        self.block(self.download(key, range))
    }

    /// Like [`Self::get`], and the bytes count as memory of reads until they are dropped.
    pub(crate) fn get_in_bounds(&self, key: &str, range: Range<u64>) -> Result<Bytes, MoverError> {
        let inner = &self.inner;
        let all = read_units(inner.limits.read_memory.into());
        let permits = read_units(range.end - range.start).min(all);
        let read = async {
            let acquired = inner.reads.clone().acquire_many_owned(permits);
            // Never an error: the semaphore is not closed.
            let permit = inner.stop.unless_stopped(acquired).await?.ok();
            let bytes = self.download(key, Some(range)).await?;
            Ok(Bytes::from_owner(HeldBytes {
                bytes,
                key: key.to_owned(),
                stop: inner.stop.clone(),
                _permit: permit,
            }))
        };
        self.block(read)
    }

    async fn download(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes, MoverError> {
        let inner = &self.inner;
        let path = self.path(key);
        let bytes = self
            .retry(READ, key, async || {
                let options = GetOptions {
                    range: range.clone().map(GetRange::Bounded),
                    ..GetOptions::default()
                };
                let error = match inner.store.get_opts(&path, options).await {
                    Ok(found) => return found.bytes().await,
                    Err(error) => error,
                };
                let Some(range) = &range else {
                    return Err(error);
                };
                // Stores refuse such a range, each with an error of its own.
                let size = self.find(&path).await.ok().flatten();
                if size.is_some_and(|size| size <= range.start) {
                    Ok(Bytes::new())
                } else {
                    Err(error)
                }
            })
            .await?;
        let size = bytes.len() as u64;
        inner.progress.add_moved(size);
        let pass = inner.download_throttle.pass(size);
        inner.stop.unless_stopped(pass).await?;
        Ok(bytes)
    }

    /// Writes an object whose name says what it holds, after all uploads in the background are
    /// done: what it refers to must be there first.
    pub(crate) fn put(&self, key: &str, payload: PutPayload) -> Result<(), MoverError> {
        self.wait_for_uploads()?;
        self.block(self.upload(key, payload))
    }

    /// Writes an object unless its key exists. Returns false if it exists with other contents.
    pub(crate) fn create(&self, key: &str, payload: &PutPayload) -> Result<bool, MoverError> {
        self.wait_for_uploads()?;
        let content: Bytes = payload.clone().into();
        let path = self.path(key);
        let created = self.block(self.retry("write", key, async || {
            let options = PutOptions::from(PutMode::Create);
            let store = &self.inner.store;
            let Err(error) = store.put_opts(&path, payload.clone(), options).await else {
                return Ok(true);
            };
            match AnswerClass::of(&error) {
                AnswerClass::Taken => Ok(false),
                // Without conditional writes: only one program at a time may create, which is the
                // caller's task.
                AnswerClass::Unsupported => {
                    if self.find(&path).await?.is_some() {
                        return Ok(false);
                    }
                    store.put(&path, payload.clone()).await?;
                    Ok(true)
                }
                _ => Err(error),
            }
        }))?;
        // An attempt whose answer was lost has created it.
        Ok(created || self.get(key, None)? == content)
    }

    async fn upload(&self, key: &str, payload: PutPayload) -> Result<(), MoverError> {
        let inner = &self.inner;
        let size = payload.content_length() as u64;
        let pass = inner.upload_throttle.pass(size);
        inner.stop.unless_stopped(pass).await?;
        let path = self.path(key);
        self.retry("write", key, async || {
            inner.store.put(&path, payload.clone()).await
        })
        .await?;
        inner.progress.add_moved(size);
        Ok(())
    }

    /// Starts an upload; waits only for a free place among those that run. A failure stops the
    /// whole operation.
    pub(crate) fn upload_in_background(
        &self,
        key: String,
        payload: PutPayload,
    ) -> Result<(), MoverError> {
        let inner = &self.inner;
        let permit = self.block(async {
            let acquired = inner.uploads.clone().acquire_owned();
            inner.stop.unless_stopped(acquired).await
        })?;
        let pending = PendingUpload {
            stop: inner.stop.clone(),
            key,
            is_done: false,
            _permit: permit.ok(),
        };
        let objects = self.clone();
        inner.runtime.spawn_blocking(move || {
            let uploaded = objects.block(objects.upload(&pending.key, payload));
            pending.end(uploaded);
        });
        Ok(())
    }

    /// Waits for all uploads that were started. Fails if one of them failed.
    pub(crate) fn wait_for_uploads(&self) -> Result<(), MoverError> {
        let inner = &self.inner;
        let all = inner.limits.parallel_uploads.max(1);
        self.block(async {
            let acquired = inner.uploads.acquire_many(all.into());
            inner.stop.unless_stopped(acquired).await.map(drop)
        })?;
        // A failure is set before its upload gives its permit back.
        inner.stop.check()
    }

    /// Removes an object; also succeeds if it does not exist.
    pub(crate) fn delete(&self, key: &str) -> Result<(), MoverError> {
        self.wait_for_uploads()?;
        let path = self.path(key);
        self.block(self.retry(
            "remove",
            key,
            async || match self.inner.store.delete(&path).await {
                Err(error) if AnswerClass::of(&error) != AnswerClass::MissingKey => Err(error),
                _ => Ok(()),
            },
        ))
    }

    fn path(&self, key: &str) -> Path {
        key.split('/').fold(self.inner.prefix.clone(), Path::join)
    }

    fn block<T>(&self, work: impl Future<Output = Result<T, MoverError>>) -> Result<T, MoverError> {
        self.inner.runtime.block_on(work)
    }

    /// Tries until it succeeds, fails for good, the budget is used up or the operation is stopped.
    async fn retry<T>(
        &self,
        action: &'static str,
        key: &str,
        attempt: impl AsyncFn() -> object_store::Result<T>,
    ) -> Result<T, MoverError> {
        let inner = &self.inner;
        let begun = Instant::now();
        let mut delays = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(200))
            .with_max_delay(Duration::from_secs(20))
            .with_jitter()
            .without_max_times()
            .build();
        loop {
            let limited = tokio::time::timeout(ATTEMPT_TIMEOUT, attempt());
            let error = match inner.stop.unless_stopped(limited).await? {
                Ok(Ok(done)) => return Ok(done),
                Ok(Err(error)) => error,
                Err(elapsed) => StoreError::Generic {
                    store: "object store",
                    source: elapsed.into(),
                },
            };
            let delay = delays.next().unwrap_or_default();
            let tried = begun.elapsed();
            if is_final(&error) || tried + delay > inner.limits.retry_budget {
                return Err(MoverError::store(action, &inner.url, key, &error, tried));
            }
            let cause = shortened(&causes(&error), MAX_CAUSE);
            log::warn!("could not {action} {key}, trying again in {delay:.1?}: {cause}");
            let pause = tokio::time::sleep(delay);
            inner.stop.unless_stopped(pause).await?;
        }
    }
}

/// The number of permits for this number of bytes.
fn read_units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(READ_UNIT).max(1)).unwrap_or(u32::MAX)
}

/// Whether the same call would fail again.
fn is_final(error: &StoreError) -> bool {
    !matches!(
        AnswerClass::of(error),
        AnswerClass::Transient | AnswerClass::Taken
    )
}

/// Bytes of a pack that take memory of reads while they exist.
///
/// A restore of rustic_core panics where it cannot decrypt or decompress a part of a pack, and the
/// panic does not name the pack. But the thread that panics drops its bytes.
struct HeldBytes {
    bytes: Bytes,
    /// Key of the pack.
    key: String,
    stop: StopFlag,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.stop
                .fail(MoverError::damaged(&self.key, CHANGED_CONTENTS));
        }
    }
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// An upload that runs. If its task ends in any way without success, the operation is stopped
/// before the permit is given back, so that nothing that refers to the object is written.
struct PendingUpload {
    stop: StopFlag,
    key: String,
    is_done: bool,
    // After `drop` has run: fields are dropped last.
    _permit: Option<OwnedSemaphorePermit>,
}

impl PendingUpload {
    fn end(mut self, uploaded: Result<(), MoverError>) {
        match uploaded {
            Ok(()) => self.is_done = true,
            Err(error) => self.stop.fail(error),
        }
    }
}

impl Drop for PendingUpload {
    fn drop(&mut self) {
        if !self.is_done {
            let detail = format!("the upload of {} did not end", self.key);
            self.stop.fail(MoverError::panicked(&detail));
        }
    }
}
