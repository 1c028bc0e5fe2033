//! A container with an immutability policy, simulated at the connection of the real client.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use http::Method;
use object_store::{
    ClientOptions, Result, RetryConfig,
    azure::MicrosoftAzureBuilder,
    client::{HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService},
    path::Path,
};
use parking_lot::Mutex;

use crate::{Location, location::Connector};

/// An existing blob can be neither overwritten nor deleted (409 `BlobImmutableDueToPolicy`).
#[derive(Clone, Debug, Default)]
struct Container {
    /// Paths of the blobs. Their content is always [`OURS`].
    blobs: Arc<Mutex<BTreeSet<String>>>,
}

const OURS: &str = "ours";
const REFUSAL: &str = "<?xml version=\"1.0\"?><Error><Code>BlobImmutableDueToPolicy</Code>\
    <Message>This operation is not permitted as the blob is immutable due to a policy.</Message></Error>";
/// The answer to a batch of one deletion: the batch succeeds, the deletion in it fails.
const BATCH: &str = "--b\r\nContent-Type: application/http\r\nContent-ID: 0\r\n\r\n\
    HTTP/1.1 409 This operation is not permitted as the blob is immutable due to a policy.\r\n\
    x-ms-error-code: BlobImmutableDueToPolicy\r\n\r\n\r\n--b--\r\n";

impl Container {
    fn location(&self) -> Location {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let azure = MicrosoftAzureBuilder::new()
            .with_http_connector(Connector(self.clone()))
            .with_retry(RetryConfig {
                max_retries: 0,
                ..RetryConfig::default()
            })
            .with_account("acct")
            .with_container_name("c")
            .with_endpoint("http://azure:10000".to_owned())
            .with_allow_http(true)
            .with_access_key("S0VZ");
        Location::from_store(Arc::new(azure.build().unwrap()), "", "azure://acct/c")
    }
}

impl HttpConnector for Container {
    fn connect(&self, _: &ClientOptions) -> Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Container {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let path = request.uri().path().to_owned();
        let mut blobs = self.blobs.lock();
        let answer = http::Response::builder()
            .header("etag", "1")
            .header("last-modified", "Wed, 25 Nov 2026 02:00:00 GMT")
            .header("content-type", "multipart/mixed; boundary=b");
        let answer = match *request.method() {
            Method::PUT if blobs.insert(path.clone()) => answer.status(201).body(Vec::new()),
            Method::PUT | Method::DELETE => answer.status(409).body(REFUSAL.into()),
            Method::POST => answer.status(202).body(BATCH.into()),
            _ if blobs.contains(&path) => answer
                .status(200)
                .header("content-length", OURS.len())
                .body(OURS.into()),
            _ => answer.status(404).body(Vec::new()),
        };
        Ok(answer.unwrap().map(Into::into))
    }
}

#[tokio::test]
async fn an_immutable_blob_is_written_once_and_what_is_refused_is_final() {
    let location = Container::default().location();
    let key = Path::from("backups/b/velero-backup.json");
    for _ in 0..2 {
        location
            .put_new(&key, OURS.into())
            .await
            .expect("the same bytes again are no overwrite");
    }
    let overwrite = location.put_new(&key, "other".into()).await.unwrap_err();
    let deletion = location.delete(vec![key]).await.unwrap_err();
    for (error, category) in [(&overwrite, "exists"), (&deletion, "denied")] {
        assert_eq!(
            (error.category(), error.is_transient()),
            (category, false),
            "{error}"
        );
    }
    assert_says!(deletion, "immutable due to a policy");
}
