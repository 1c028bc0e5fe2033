//! The HTTP client of all object stores.

use std::time::Duration;

use async_trait::async_trait;
use backup_core::text::causes;
use bytes::Bytes;
use http::{Method, StatusCode};
use object_store::{
    BackoffConfig, Certificate, ClientOptions, RetryConfig,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
        HttpService, ReqwestConnector,
    },
};

use crate::{StoreError, http_failure::HttpFailure};

/// Time limit for the retries of one call to the store; after that the caller gets the error and
/// decides.
const RETRY_BUDGET: Duration = Duration::from_secs(30);

/// Timeout for a server that sends nothing.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// Options of a client. `ca` is a PEM bundle that is trusted beside the system's; `insecure` trusts
/// every certificate.
pub(super) fn options(
    ca: Option<&[u8]>,
    allow_http: bool,
    insecure: bool,
) -> Result<ClientOptions, StoreError> {
    // The HTTP client panics without a TLS provider.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let detail = "no TLS provider is installed in this process; it is the task of main";
        return Err(StoreError::io("make an HTTP client", detail));
    }
    let mut client = ClientOptions::new()
        .with_allow_http(allow_http)
        .with_allow_invalid_certificates(insecure)
        .with_connect_timeout(Duration::from_secs(10))
        .with_read_timeout(READ_TIMEOUT)
        .with_timeout_disabled(); // a large tarball takes as long as it takes; silence is what ends a request
    if let Some(pem) = ca {
        let bundle = Certificate::from_pem_bundle(pem)
            .map_err(|error| wrong_bundle(&format!("it is not a PEM bundle: {error}")))?;
        if bundle.is_empty() {
            return Err(wrong_bundle("it holds no certificate"));
        }
        client = bundle
            .into_iter()
            .fold(client, ClientOptions::with_root_certificate);
    }
    Ok(client)
}

/// Sends a request, and reads the body of its answer.
pub(super) async fn body(client: &HttpClient, request: HttpRequest) -> Result<Bytes, HttpError> {
    client.execute(request).await?.into_body().bytes().await
}

fn wrong_bundle(message: &str) -> StoreError {
    StoreError::config("spec.objectStorage.caCert", message)
}

pub(super) fn retry() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            base: 2.0,
        },
        max_retries: 10,
        retry_timeout: RETRY_BUDGET,
    }
}

/// Makes clients that report a failure as an [`HttpFailure`].
///
/// object_store (0.14) has the status and the body of an answer in an error of a private type, so
/// they could only be parsed from a text. But it keeps its connector's error as the source of its
/// own, so this connector returns the failure.
#[derive(Debug)]
pub(crate) struct Connector<C>(pub(crate) C);

pub(super) fn connector() -> Connector<ReqwestConnector> {
    Connector(ReqwestConnector::default())
}

impl<C: HttpConnector> HttpConnector for Connector<C> {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Client(self.0.connect(options)?)))
    }
}

#[derive(Debug)]
struct Client(HttpClient);

#[async_trait]
impl HttpService for Client {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let method = request.method().clone();
        let uri = request.uri().clone();
        let answer = self.0.execute(request).await.map_err(|error| {
            let failure = HttpFailure::new(&uri, None, "", &causes(&error));
            HttpError::new(error.kind(), failure)
        })?;
        let status = answer.status();
        // If AWS refuses this token, object_store falls back to IMDSv1.
        let is_metadata_token = method == Method::PUT && uri.path() == "/latest/api/token";
        if status.is_success() || status == StatusCode::NOT_MODIFIED || is_metadata_token {
            return Ok(answer);
        }
        let body = answer.into_body().bytes().await?;
        // The same retries as object_store's, but for a full store: it always retries an error of
        // the kind Request, never one of the kind Unknown.
        let is_retried = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
        ) || status.is_server_error()
            && !matches!(
                status,
                StatusCode::NOT_IMPLEMENTED | StatusCode::INSUFFICIENT_STORAGE
            );
        let kind = if is_retried {
            HttpErrorKind::Request
        } else {
            HttpErrorKind::Unknown
        };
        Err(HttpError::new(
            kind,
            HttpFailure::answered(&uri, status, &String::from_utf8_lossy(&body)),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_without_a_certificate_is_refused_with_its_field() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        assert_says!(
            options(Some(b"nothing"), false, false).unwrap_err(),
            "caCert"
        );
    }
}
