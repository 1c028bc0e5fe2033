//! Stores for tests: in memory, in a folder, and one that records operations and injects faults.

use std::{
    fmt, io,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use backup_core::{
    api::{
        Backup, BackupPhase, BackupSpec, BackupStorageLocation, BackupStorageLocationSpec,
        download_request::{DownloadTarget, DownloadTargetKind},
    },
    labels::DIGESTS_ANNOTATION,
};
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use http::{StatusCode, Uri};
use object_store::{
    ClientOptions, CopyOptions, GetOptions, GetResult, ListResult, MultipartId, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder},
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    },
    memory::InMemory,
    multipart::{MultipartStore, PartId},
    path::Path,
};

use crate::{
    BackupWriter, Claimant, ItemPath, JobFiles, Location, LogFile, PendingBackup, StoreError,
    http_failure::HttpFailure, location::Connector,
};

/// A connection that gives every request the same answer, or fails without a status.
#[derive(Clone, Debug)]
pub(crate) struct CannedAnswer {
    pub(crate) status: Option<u16>,
    pub(crate) body: &'static str,
    pub(crate) header: Option<(&'static str, &'static str)>,
}

impl CannedAnswer {
    /// The errors of an S3 client that gets this answer: for listing, reading and creating.
    pub(crate) async fn errors(self) -> [object_store::Error; 3] {
        let (s3, key) = (self.s3(), Path::from("k"));
        [
            s3.list_with_delimiter(None).await.unwrap_err(),
            s3.get(&key).await.unwrap_err(),
            s3.put_opts(&key, "x".into(), PutMode::Create.into())
                .await
                .unwrap_err(),
        ]
    }

    /// The error of an S3 client that gets this answer to a deletion.
    pub(crate) async fn delete_error(self) -> object_store::Error {
        let key = stream::once(async { Ok(Path::from("k")) }).boxed();
        self.s3()
            .delete_stream(key)
            .next()
            .await
            .unwrap()
            .unwrap_err()
    }

    fn s3(self) -> AmazonS3 {
        let _ = rustls::crypto::ring::default_provider().install_default();
        AmazonS3Builder::new()
            .with_http_connector(Connector(self))
            .with_retry(RetryConfig {
                max_retries: 0,
                ..RetryConfig::default()
            })
            .with_endpoint("http://minio:9000")
            .with_allow_http(true)
            .with_region("r")
            .with_bucket_name("b")
            .with_access_key_id("AKIA")
            .with_secret_access_key("TOPSECRET")
            .build()
            .unwrap()
    }
}

impl HttpConnector for CannedAnswer {
    fn connect(&self, _: &ClientOptions) -> Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for CannedAnswer {
    async fn call(&self, _: HttpRequest) -> Result<HttpResponse, HttpError> {
        let refused = || {
            HttpError::new(
                HttpErrorKind::Connect,
                io::Error::other("Connection refused"),
            )
        };
        let status = self.status.ok_or_else(refused)?;
        let answer = self.header.iter().fold(
            http::Response::builder().status(status),
            |answer, (name, value)| answer.header(*name, *value),
        );
        Ok(answer.body(self.body.to_owned().into()).unwrap())
    }
}

pub(crate) fn memory(prefix: &str) -> Location {
    Location::from_store(Arc::new(InMemory::new()), prefix, "s3://bucket")
}

/// An empty store in the folder `store` of a temporary folder, opened as by a user.
pub(crate) fn folder(prefix: &str) -> (tempfile::TempDir, Location) {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = spec("local", dir.path().join("store").to_str().unwrap(), &[]);
    spec.object_storage.prefix = Some(prefix.to_owned());
    let bsl = BackupStorageLocation::new("default", spec);
    let location = Location::open(&bsl, None, None).unwrap();
    (dir, location)
}

pub(crate) fn spec(
    provider: &str,
    bucket: &str,
    config: &[(&str, &str)],
) -> BackupStorageLocationSpec {
    let mut spec = BackupStorageLocationSpec {
        provider: provider.to_owned(),
        ..Default::default()
    };
    bucket.clone_into(&mut spec.object_storage.bucket);
    spec.config = config
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    spec
}

/// A bucket, settings, a secret, and the field that the error about one of them begins with.
pub(crate) type Refused<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str, &'a str);

/// Opens a location with each: the error names the wrong field and shows no secret.
pub(crate) fn assert_refused(provider: &str, table: &[Refused<'_>]) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    for (bucket, config, secret, field) in table {
        let bsl = BackupStorageLocation::new("default", spec(provider, bucket, config));
        let error = Location::open(&bsl, Some(secret.as_bytes()), None).unwrap_err();
        assert_eq!(error.category(), "config");
        let text = error.to_string();
        assert!(text.starts_with(field), "{text}");
        assert!(
            !text.contains("TOPSECRET") && !text.contains("TOP SECRET"),
            "{text}"
        );
    }
}

/// Writes an object directly into the store.
pub(crate) async fn put(location: &Location, key: &str, bytes: &[u8]) {
    location
        .store()
        .put(&Path::parse(key).unwrap(), bytes.to_vec().into())
        .await
        .unwrap();
}

pub(crate) async fn get(location: &Location, key: &str) -> Option<Vec<u8>> {
    let object = location
        .store()
        .get(&Path::parse(key).unwrap())
        .await
        .ok()?;
    Some(object.bytes().await.unwrap().to_vec())
}

/// The text of a gzipped file.
pub(crate) fn unzipped(bytes: &[u8]) -> String {
    io::read_to_string(flate2::read::MultiGzDecoder::new(bytes)).unwrap()
}

pub(crate) async fn keys(location: &Location) -> Vec<String> {
    location
        .list(&Path::default())
        .await
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect()
}

/// The path of a pod in namespace `ns`.
pub(crate) fn pod(name: &str) -> ItemPath<'_> {
    ItemPath {
        group_resource: "pods",
        version: "v1",
        preferred: true,
        namespace: Some("ns"),
        name,
    }
}

/// A file of the backup or restore `b`.
pub(crate) fn target(kind: DownloadTargetKind) -> DownloadTarget {
    DownloadTarget {
        kind,
        name: "b".to_owned(),
        ..DownloadTarget::default()
    }
}

/// The claimant of backup `b`.
pub(crate) fn of(uid: &str) -> Claimant {
    Claimant {
        uid: uid.to_owned(),
        installation: "cluster/velero".to_owned(),
    }
}

pub(crate) fn backup(uid: &str, phase: BackupPhase) -> Backup {
    let mut backup = Backup::new("b", BackupSpec::default());
    backup.metadata.uid = Some(uid.to_owned());
    backup.status.phase = Some(phase);
    backup
}

/// Stored metadata without what the store has added.
pub(crate) fn without_digests(mut metadata: Backup) -> Backup {
    let annotations = metadata.metadata.annotations.take();
    let mut annotations = annotations.unwrap_or_default();
    assert!(annotations.remove(DIGESTS_ANNOTATION).is_some());
    metadata.metadata.annotations = Some(annotations).filter(|all| !all.is_empty());
    metadata
}

pub(crate) fn no_files() -> JobFiles {
    JobFiles::new(LogFile::new().unwrap())
}

/// Number of items of [`noise`] that make contents of more than one part.
pub(crate) const NOISE: u32 = 2;

/// A JSON text that hardly compresses: 6 MiB, compressed 4.5 MiB.
pub(crate) fn noise() -> &'static [u8] {
    static DATA: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| {
        const LETTERS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut state = 1_u64;
        let letters = (0..6 << 20).map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            LETTERS[usize::from(state.to_le_bytes()[4] % 64)]
        });
        std::iter::once(b'"')
            .chain(letters)
            .chain(std::iter::once(b'"'))
            .collect()
    });
    &DATA
}

pub(crate) async fn add_noise(writer: &mut BackupWriter, items: u32) -> Result<(), StoreError> {
    for n in 0..items {
        writer.item(&pod(&format!("p{n}")), noise()).await?;
    }
    Ok(())
}

/// Backup `b`, with contents of several parts, or of less than one.
pub(crate) async fn collected(
    location: &Location,
    uid: &str,
    large: bool,
) -> Result<PendingBackup, StoreError> {
    let mut writer = location.open_backup("b", &of(uid)).await?;
    add_noise(&mut writer, if large { NOISE } else { 0 }).await?;
    writer.item(&pod("one"), br#"{"kind":"Pod"}"#).await?;
    writer.finish().await
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    Fail,
    /// Does the operation, but its answer is lost.
    LoseAnswer,
    /// Does nothing, and reports that it is not supported (conditional writes on some S3 servers).
    Unsupported,
    /// Does the operation without its condition (other S3 servers).
    Ignored,
}

/// Records operations, and injects the faults that a test sets.
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
        Location::from_store(Arc::new(self.clone()), prefix, "s3://bucket")
    }

    /// `create <key>`, `begin <key>`, `part <key>`, `complete <key>`, `abort <key>`, `delete
    /// <key>`, … so far.
    pub(crate) fn operations(&self) -> Vec<String> {
        self.state.lock().unwrap().operations.clone()
    }

    /// Uploads that are neither completed nor aborted.
    pub(crate) fn uploads(&self) -> Vec<MultipartId> {
        self.state.lock().unwrap().uploads.clone()
    }

    /// Acts like a lifecycle rule.
    pub(crate) async fn expire_uploads(&self) {
        for id in self.uploads() {
            self.store
                .abort_multipart(&Path::default(), &id)
                .await
                .unwrap();
        }
        self.state.lock().unwrap().uploads.clear();
    }

    /// Number of recorded operations of this kind.
    pub(crate) fn count(&self, operation: &str) -> usize {
        self.operations()
            .iter()
            .filter(|line| line.starts_with(operation))
            .count()
    }

    pub(crate) fn fault(&self, operation: &str, fault: Fault) {
        self.state
            .lock()
            .unwrap()
            .faults
            .push((operation.to_owned(), fault));
    }

    fn record(&self, operation: &str, key: &Path) -> Option<Fault> {
        let mut state = self.state.lock().unwrap();
        let text = format!("{operation} {key}");
        let fault = state.faults.iter().position(|(wanted, _)| *wanted == text);
        let fault = fault.map(|at| state.faults.remove(at).1);
        state.operations.push(text);
        fault
    }

    /// Records an operation; fails if a test has set a fault for it.
    fn pass(&self, operation: &str, key: &Path) -> Result<()> {
        self.record(operation, key).map_or(Ok(()), |_| Err(lost()))
    }
}

fn lost() -> object_store::Error {
    object_store::Error::Generic {
        store: "test",
        source: "connection reset".into(),
    }
}

impl fmt::Display for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorder")
    }
}

#[async_trait]
impl ObjectStore for Recorder {
    async fn put_opts(
        &self,
        key: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let operation = if opts.mode == PutMode::Create {
            "create"
        } else {
            "overwrite"
        };
        match self.record(operation, key) {
            Some(Fault::Fail) => Err(lost()),
            Some(Fault::Unsupported) => {
                let uri = Uri::from_static("http://test");
                let source = HttpFailure::answered(&uri, StatusCode::NOT_IMPLEMENTED, "").into();
                Err(object_store::Error::Generic {
                    store: "test",
                    source,
                })
            }
            Some(Fault::LoseAnswer) => self
                .store
                .put_opts(key, payload, opts)
                .await
                .and(Err(lost())),
            Some(Fault::Ignored) => self.store.put(key, payload).await,
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
        self.pass(if options.head { "head" } else { "get" }, key)?;
        self.store.get_opts(key, options).await
    }

    fn delete_stream(
        &self,
        keys: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let recorder = self.clone();
        let keys =
            keys.map(move |key| key.and_then(|key| recorder.pass("delete", &key).map(|()| key)));
        self.store.delete_stream(keys.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let fault = self.record("copy", to);
        match fault {
            Some(Fault::Fail | Fault::Ignored) => return Err(lost()),
            Some(Fault::Unsupported) => {
                return Err(object_store::Error::NotSupported {
                    source: "no copies".into(),
                });
            }
            Some(Fault::LoseAnswer) | None => {}
        }
        self.store.copy_opts(from, to, options).await?;
        if fault.is_some() { Err(lost()) } else { Ok(()) }
    }
}

#[async_trait]
impl MultipartStore for Recorder {
    async fn create_multipart(&self, key: &Path) -> Result<MultipartId> {
        self.pass("begin", key)?;
        let id = self.store.create_multipart(key).await?;
        self.state.lock().unwrap().uploads.push(id.clone());
        Ok(id)
    }

    async fn put_part(
        &self,
        key: &Path,
        id: &MultipartId,
        index: usize,
        data: PutPayload,
    ) -> Result<PartId> {
        self.pass("part", key)?;
        self.store.put_part(key, id, index, data).await
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
        if !self.uploads().contains(id) {
            return Err(object_store::Error::NotFound {
                path: key.to_string(),
                source: "no such upload".into(),
            });
        }
        let done = self.store.complete_multipart(key, id, parts).await;
        self.state
            .lock()
            .unwrap()
            .uploads
            .retain(|other| other != id);
        if fault.is_some() {
            done.and(Err(lost()))
        } else {
            done
        }
    }

    async fn abort_multipart(&self, key: &Path, id: &MultipartId) -> Result<()> {
        self.pass("abort", key)?;
        self.state
            .lock()
            .unwrap()
            .uploads
            .retain(|other| other != id);
        self.store.abort_multipart(key, id).await
    }
}
