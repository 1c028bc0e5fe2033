//! A real S3 server on a loopback port, behind a proxy that can inject faults.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use object_store::{
    ClientOptions, ObjectStore as _,
    aws::{AmazonS3, AmazonS3Builder, AwsAuthorizer, AwsCredential},
    client::HttpRequestBody,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{
    binaries::build_control_plane, control_plane::loopback_address, pki::Identity,
    process::Process, proxy::Proxy,
};

/// Access key of the server's one account.
pub const ACCESS: &str = "backup-tests";
/// Its secret key: useless outside the test that started the server.
pub const SECRET: &str = "backup-tests-secret";
const REGION: &str = "us-east-1";
/// Timeout for one stream.
const STREAM_TIMEOUT: Duration = Duration::from_mins(5);

#[derive(Debug)]
pub struct S3 {
    pub process: Process,
    /// Proxy in front of the server; the programs under test connect to it.
    pub front: Proxy,
    address: SocketAddr,
    folder: PathBuf,
}

/// A server with TLS for the objects of an [`S3`].
#[derive(Debug)]
pub(crate) struct TlsFront {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
}

impl S3 {
    /// Starts a server that keeps its objects in `folder`.
    pub async fn start(folder: &Path) -> anyhow::Result<Self> {
        let folder = folder.join("s3");
        let address = loopback_address()?;
        let args = vec![
            format!("--dir={}", folder.display()),
            format!("--access={ACCESS}"),
            format!("--secret={SECRET}"),
        ];
        let process = Process::serve("s3", address, args, &folder).await?;
        Ok(Self {
            process,
            front: Proxy::start(vec![address]).await?,
            address,
            folder,
        })
    }

    /// Starts a second server, with TLS, for the same objects.
    pub(crate) async fn start_with_tls(&self, identity: &Identity) -> anyhow::Result<TlsFront> {
        let address = loopback_address()?;
        let args = vec![
            format!("--dir={}", self.folder.display()),
            format!("--access={ACCESS}"),
            format!("--secret={SECRET}"),
            format!("--tls-cert={}", identity.cert.display()),
            format!("--tls-key={}", identity.key.display()),
        ];
        let process = Process::serve("s3", address, args, &self.folder.join("tls")).await?;
        Ok(TlsFront { process, address })
    }

    /// The URL that the programs under test use.
    pub fn url(&self) -> String {
        format!("http://{}", self.front.address())
    }

    /// Address of the server itself, without the proxy.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Folder of a bucket's objects, each in a file named by its key.
    pub fn files(&self, bucket: &str) -> PathBuf {
        self.folder.join("data").join(bucket)
    }

    pub async fn create_bucket(&self, bucket: &str) -> anyhow::Result<()> {
        self.put(bucket, "").await
    }

    /// Creates a bucket with versioning.
    pub async fn create_versioned_bucket(&self, bucket: &str) -> anyhow::Result<()> {
        self.create_bucket(bucket).await?;
        let body = "<VersioningConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
                    <Status>Enabled</Status></VersioningConfiguration>";
        self.put(&format!("{bucket}?versioning="), body).await
    }

    /// Creates a bucket with object lock, versioning, and a default retention of one day.
    pub async fn create_locked_bucket(&self, bucket: &str) -> anyhow::Result<()> {
        self.create_lockable_bucket(bucket).await?;
        let body = "<ObjectLockConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
                    <ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention>\
                    <Mode>COMPLIANCE</Mode><Days>1</Days></DefaultRetention></Rule></ObjectLockConfiguration>";
        self.put(&format!("{bucket}?object-lock="), body).await
    }

    /// Creates a bucket with object lock and versioning, but without a default retention.
    pub async fn create_lockable_bucket(&self, bucket: &str) -> anyhow::Result<()> {
        let header = ("x-amz-bucket-object-lock-enabled", "true");
        self.request_with(http::Method::PUT, bucket, "", Some(header))
            .await
            .map(drop)
    }

    /// Locks the newest version of a key until a time.
    pub async fn lock(
        &self,
        bucket: &str,
        key: &str,
        until: jiff::Timestamp,
    ) -> anyhow::Result<()> {
        let body = format!(
            "<Retention xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Mode>COMPLIANCE</Mode>\
             <RetainUntilDate>{until}</RetainUntilDate></Retention>"
        );
        self.put(&format!("{bucket}/{key}?retention="), &body).await
    }

    /// Sets or clears the legal hold of the newest version of a key, or of the named version.
    /// Returns the version.
    pub async fn hold(
        &self,
        bucket: &str,
        key: &str,
        version: Option<&str>,
        on: bool,
    ) -> anyhow::Result<String> {
        use object_store::ObjectStoreExt as _;
        let version = match version {
            Some(version) => version.to_owned(),
            None => self
                .bucket(bucket)?
                .head(&key.into())
                .await?
                .version
                .context("no version")?,
        };
        let status = if on { "ON" } else { "OFF" };
        let body = format!(
            "<LegalHold xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Status>{status}</Status></LegalHold>"
        );
        let path = format!("{bucket}/{key}?legal-hold=&versionId={version}");
        self.put(&path, &body).await?;
        Ok(version)
    }

    /// Every version of every key: the key, and whether it is a delete marker.
    pub async fn versions(&self, bucket: &str) -> anyhow::Result<Vec<(String, bool)>> {
        let text = self
            .request(http::Method::GET, &format!("{bucket}?versions="), "")
            .await?;
        if text.contains("<IsTruncated>true</IsTruncated>") {
            bail!("bucket {bucket} has more versions than one page");
        }
        let of = |element: &str| -> Vec<String> {
            let opening = format!("<{element}>");
            let pieces = text.split(&opening).skip(1);
            pieces
                .filter_map(|piece| between(piece, "<Key>", "</Key>"))
                .collect()
        };
        let versions = of("Version").into_iter().map(|key| (key, false));
        Ok(versions
            .chain(of("DeleteMarker").into_iter().map(|key| (key, true)))
            .collect())
    }

    /// Keys of uploads that are neither completed nor aborted.
    pub async fn uploads(&self, bucket: &str) -> anyhow::Result<Vec<String>> {
        let text = self
            .request(http::Method::GET, &format!("{bucket}?uploads="), "")
            .await?;
        let pieces = text.split("<Upload>").skip(1);
        Ok(pieces
            .filter_map(|piece| between(piece, "<Key>", "</Key>"))
            .collect())
    }

    async fn put(&self, path: &str, body: &str) -> anyhow::Result<()> {
        self.request(http::Method::PUT, path, body).await.map(drop)
    }

    /// Sends a signed request, without the proxy. Returns the body of the answer.
    pub async fn request(
        &self,
        method: http::Method,
        path: &str,
        body: &str,
    ) -> anyhow::Result<String> {
        self.request_with(method, path, body, None).await
    }

    async fn request_with(
        &self,
        method: http::Method,
        path: &str,
        body: &str,
        header: Option<(&str, &str)>,
    ) -> anyhow::Result<String> {
        let credential = AwsCredential {
            key_id: ACCESS.into(),
            secret_key: SECRET.into(),
            token: None,
        };
        let mut request = http::Request::builder()
            .method(method)
            .uri(format!("http://{}/{path}", self.address));
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        if !body.is_empty() {
            // S3 accepts settings of a bucket only with a checksum.
            let digest = k8s_openapi::ByteString(Sha256::digest(body).to_vec());
            let text = serde_json::to_value(digest)?;
            request = request.header(
                "x-amz-checksum-sha256",
                text.as_str().context("not a text")?,
            );
        }
        let mut request = request.body(HttpRequestBody::from(body.to_owned()))?;
        AwsAuthorizer::new(&credential, "s3", REGION).try_authorize(&mut request, None)?;
        let (head, _) = request.into_parts();
        let answer = reqwest::Client::new()
            .request(head.method, head.uri.to_string())
            .headers(head.headers)
            .body(body.to_owned())
            .timeout(Duration::from_secs(20))
            .send()
            .await?;
        let (status, text) = (answer.status(), answer.text().await?);
        if !status.is_success() {
            bail!("S3 {path}: {status}: {text}");
        }
        Ok(text)
    }

    /// A client of one bucket, without the proxy.
    pub fn bucket(&self, bucket: &str) -> anyhow::Result<AmazonS3> {
        let endpoint = format!("http://{}", self.address);
        Ok(client_builder(bucket, endpoint).build()?)
    }

    /// A client of one bucket for streams: through the proxy, as the programs under test, and without
    /// hashing what it sends.
    fn stream_client(&self, bucket: &str) -> anyhow::Result<AmazonS3> {
        let options = ClientOptions::new()
            .with_allow_http(true)
            .with_timeout(STREAM_TIMEOUT);
        Ok(client_builder(bucket, self.url())
            .with_client_options(options)
            .with_unsigned_payload(true)
            .build()?)
    }

    /// Reads objects one after another through the proxy, without keeping them. Returns their size
    /// (bytes).
    pub async fn stream_down(&self, bucket: &str, keys: &[String]) -> anyhow::Result<u64> {
        use futures::TryStreamExt as _;
        use object_store::ObjectStoreExt as _;
        let client = self.stream_client(bucket)?;
        let mut bytes = 0;
        for key in keys {
            let mut chunks = client.get(&key.as_str().into()).await?.into_stream();
            while let Some(chunk) = chunks.try_next().await? {
                bytes += chunk.len() as u64;
            }
        }
        Ok(bytes)
    }

    /// Writes an object in one request through the proxy.
    pub async fn stream_up(&self, bucket: &str, key: &str, bytes: Bytes) -> anyhow::Result<()> {
        use object_store::ObjectStoreExt as _;
        let client = self.stream_client(bucket)?;
        client.put(&key.into(), bytes.into()).await?;
        Ok(())
    }

    pub async fn keys(&self, bucket: &str) -> anyhow::Result<Vec<String>> {
        use futures::TryStreamExt as _;
        let mut keys: Vec<String> = self
            .bucket(bucket)?
            .list(None)
            .map_ok(|meta| meta.location.to_string())
            .try_collect()
            .await?;
        keys.sort();
        Ok(keys)
    }

    /// Writes an object as a client does: the server stores its ETag, and need not compute it for
    /// each reader.
    pub async fn write(&self, bucket: &str, key: &str, bytes: Vec<u8>) -> anyhow::Result<()> {
        use object_store::ObjectStoreExt as _;
        self.bucket(bucket)?.put(&key.into(), bytes.into()).await?;
        Ok(())
    }

    pub async fn read(&self, bucket: &str, key: &str) -> anyhow::Result<Bytes> {
        use object_store::ObjectStoreExt as _;
        Ok(self.bucket(bucket)?.get(&key.into()).await?.bytes().await?)
    }

    /// The text of a compressed stored object.
    pub async fn text(&self, bucket: &str, key: &str) -> anyhow::Result<String> {
        Ok(std::io::read_to_string(MultiGzDecoder::new(
            self.read(bucket, key).await?.as_ref(),
        ))?)
    }

    /// The document of a compressed stored object.
    pub async fn document(&self, bucket: &str, key: &str) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&self.text(bucket, key).await?)?)
    }

    /// The spec of a location: a bucket of a server at this URL, with the credentials of all the
    /// kit's servers.
    pub fn location_spec(bucket: &str, url: &str) -> Value {
        json!({
            "provider": "aws", "objectStorage": { "bucket": bucket },
            "config": { "region": "us-east-1", "s3ForcePathStyle": "true", "s3Url": url },
            "credential": { "name": "cloud-credentials", "key": "cloud" },
        })
    }

    /// A credentials file in the form that locations expect.
    pub fn credentials() -> String {
        format!("[default]\naws_access_key_id = {ACCESS}\naws_secret_access_key = {SECRET}\n")
    }

    /// Copies a stored object to a local file and opens it with the independent reader (Go's tar
    /// and gzip). Returns one JSON value for each entry. Paths must be unique.
    pub async fn inspect_tarball(&self, bucket: &str, key: &str) -> anyhow::Result<Vec<Value>> {
        self.inspect(bucket, key, &[]).await
    }

    /// Like [`Self::inspect_tarball`], for a backup that has waited for operations: newer versions
    /// of items may follow.
    pub(crate) async fn inspect_replaced(
        &self,
        bucket: &str,
        key: &str,
    ) -> anyhow::Result<Vec<Value>> {
        self.inspect(bucket, key, &["--replaced"]).await
    }

    async fn inspect(&self, bucket: &str, key: &str, flags: &[&str]) -> anyhow::Result<Vec<Value>> {
        let bytes = self.read(bucket, key).await?;
        // A unique file: several may be inspected at the same time.
        let file = tempfile::NamedTempFile::new_in(&self.folder)?;
        tokio::fs::write(file.path(), &bytes).await?;
        let mut command = tokio::process::Command::new(build_control_plane()?);
        let output = command
            .arg("inspect")
            .args(flags)
            .arg(file.path())
            .output()
            .await?;
        if !output.status.success() {
            bail!(
                "{key} is no good tarball: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        String::from_utf8(output.stdout)?
            .lines()
            .map(|line| serde_json::from_str(line).context("a line of the inspector"))
            .collect()
    }
}

fn client_builder(bucket: &str, endpoint: String) -> AmazonS3Builder {
    AmazonS3Builder::new()
        .with_endpoint(endpoint)
        .with_allow_http(true)
        .with_bucket_name(bucket)
        .with_region(REGION)
        .with_access_key_id(ACCESS)
        .with_secret_access_key(SECRET)
}

fn between(text: &str, before: &str, after: &str) -> Option<String> {
    text.split_once(before)?
        .1
        .split_once(after)
        .map(|(found, _)| found.to_owned())
}
