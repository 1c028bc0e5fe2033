//! Stores for tests: in memory, in a folder, and one that records and fails.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use backup_core::api::{BackupStorageLocation, BackupStorageLocationSpec};
use futures::{StreamExt, stream::BoxStream};
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartId, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    memory::InMemory,
    multipart::{MultipartStore, PartId},
    path::Path,
};

use crate::Location;

/// An empty store in memory.
pub(crate) fn memory(prefix: &str) -> Location {
    Location::from_store(Arc::new(InMemory::new()), prefix, "s3://bucket").unwrap()
}

/// An empty store in the folder `store` of a temporary folder, opened as a user would.
pub(crate) fn folder(prefix: &str) -> (tempfile::TempDir, Location) {
    let dir = tempfile::tempdir().unwrap();
    let mut bsl = BackupStorageLocation::new("default", BackupStorageLocationSpec::default());
    bsl.spec.provider = "local".to_owned();
    bsl.spec.object_storage.bucket = dir.path().join("store").display().to_string();
    bsl.spec.object_storage.prefix = Some(prefix.to_owned());
    let location = Location::open(&bsl, None, None).unwrap();
    (dir, location)
}

/// Writes an object behind the location's back.
pub(crate) async fn put(location: &Location, key: &str, bytes: &[u8]) {
    location.store().put(&Path::parse(key).unwrap(), bytes.to_vec().into()).await.unwrap();
}

/// An object, if it is there.
pub(crate) async fn get(location: &Location, key: &str) -> Option<Vec<u8>> {
    let object = location.store().get(&Path::parse(key).unwrap()).await.ok()?;
    Some(object.bytes().await.unwrap().to_vec())
}

/// All keys.
pub(crate) async fn keys(location: &Location) -> Vec<String> {
    location.list(&Path::default()).await.unwrap().iter().map(ToString::to_string).collect()
}

/// What a store does instead of an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// Nothing, and answers with a passing error.
    Fail,
    /// The operation, but the answer is lost.
    LoseAnswer,
    /// Nothing, and says that it does not know how (conditional writes on some S3 servers).
    Unsupported,
}

/// Records operations, and fails those that a test asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) store: Arc<InMemory>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    operations: Vec<String>,
    faults: Vec<(String, Fault)>,
    uploads: Vec<MultipartId>,
}

impl Recorder {
    pub(crate) fn location(&self, prefix: &str) -> Location {
        Location::from_store(Arc::new(self.clone()), prefix, "s3://bucket").unwrap()
    }

    /// `create <key>`, `begin <key>`, `part <key>`, `complete <key>`, `abort <key>`, `delete <key>`, … so far.
    pub(crate) fn operations(&self) -> Vec<String> {
        self.state.lock().unwrap().operations.clone()
    }

    /// Uploads that are neither completed nor aborted.
    pub(crate) fn uploads(&self) -> Vec<MultipartId> {
        self.state.lock().unwrap().uploads.clone()
    }

    /// What a lifecycle rule does.
    pub(crate) async fn expire_uploads(&self) {
        for id in self.uploads() {
            self.store.abort_multipart(&Path::default(), &id).await.unwrap();
        }
        self.state.lock().unwrap().uploads.clear();
    }

    /// The next operation with this text gets a fault.
    pub(crate) fn fault(&self, operation: &str, fault: Fault) {
        self.state.lock().unwrap().faults.push((operation.to_owned(), fault));
    }

    fn record(&self, operation: &str, key: &Path) -> Option<Fault> {
        let mut state = self.state.lock().unwrap();
        let text = format!("{operation} {key}");
        let fault = state.faults.iter().position(|(wanted, _)| *wanted == text);
        let fault = fault.map(|at| state.faults.remove(at).1);
        state.operations.push(text);
        fault
    }
}

fn lost() -> object_store::Error {
    object_store::Error::Generic { store: "test", source: "connection reset".into() }
}

impl fmt::Display for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorder")
    }
}

#[async_trait]
impl ObjectStore for Recorder {
    async fn put_opts(&self, key: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let operation = if opts.mode == PutMode::Create { "create" } else { "overwrite" };
        match self.record(operation, key) {
            Some(Fault::Fail) => Err(lost()),
            Some(Fault::Unsupported) => {
                let source = "Server returned non-2xx status code: 501 Not Implemented".into();
                Err(object_store::Error::Generic { store: "test", source })
            }
            Some(Fault::LoseAnswer) => self.store.put_opts(key, payload, opts).await.and(Err(lost())),
            None => self.store.put_opts(key, payload, opts).await,
        }
    }

    async fn put_multipart_opts(
        &self,
        key: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(key, opts).await
    }

    async fn get_opts(&self, key: &Path, options: GetOptions) -> Result<GetResult> {
        match self.record(if options.head { "head" } else { "get" }, key) {
            Some(_) => Err(lost()),
            None => self.store.get_opts(key, options).await,
        }
    }

    fn delete_stream(&self, keys: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let recorder = self.clone();
        let keys = keys.map(move |key| {
            let key = key?;
            match recorder.record("delete", &key) {
                Some(_) => Err(lost()),
                None => Ok(key),
            }
        });
        self.store.delete_stream(keys.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.record("copy", to);
        self.store.copy_opts(from, to, options).await
    }
}

#[async_trait]
impl MultipartStore for Recorder {
    async fn create_multipart(&self, key: &Path) -> Result<MultipartId> {
        if self.record("begin", key).is_some() {
            return Err(lost());
        }
        let id = self.store.create_multipart(key).await?;
        self.state.lock().unwrap().uploads.push(id.clone());
        Ok(id)
    }

    async fn put_part(&self, key: &Path, id: &MultipartId, index: usize, data: PutPayload) -> Result<PartId> {
        match self.record("part", key) {
            Some(_) => Err(lost()),
            None => self.store.put_part(key, id, index, data).await,
        }
    }

    async fn complete_multipart(
        &self,
        key: &Path,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> Result<PutResult> {
        let fault = self.record("complete", key);
        if matches!(fault, Some(Fault::Fail | Fault::Unsupported)) {
            return Err(lost());
        }
        let done = self.store.complete_multipart(key, id, parts).await;
        self.state.lock().unwrap().uploads.retain(|other| other != id);
        if fault.is_some() { done.and(Err(lost())) } else { done }
    }

    async fn abort_multipart(&self, key: &Path, id: &MultipartId) -> Result<()> {
        if self.record("abort", key).is_some() {
            return Err(lost());
        }
        self.state.lock().unwrap().uploads.retain(|other| other != id);
        self.store.abort_multipart(key, id).await
    }
}
