//! A reverse proxy that ends TLS on both sides, so that it can identify single requests and lose
//! the answer to exactly one of them.

use std::{net::SocketAddr, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::FromRequest,
    http::{HeaderMap, Method, StatusCode},
    response::{IntoResponse as _, Response},
};
use futures::stream;

/// Largest body that is passed on.
pub(crate) const BODY_LIMIT: usize = 16 * 1024 * 1024;
/// Timeout for an answer, longer than any timeout of a client.
const PATIENCE: Duration = Duration::from_mins(1);

/// A client that trusts this authority and never retries by itself.
pub(crate) fn client(ca_pem: &str) -> anyhow::Result<reqwest::Client> {
    Ok(reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(ca_pem.as_bytes())?])
        .retry(reqwest::retry::never())
        .no_proxy()
        .timeout(PATIENCE)
        .build()?)
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub method: Method,
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl<S: Sync> FromRequest<S> for Request {
    type Rejection = StatusCode;

    async fn from_request(request: axum::extract::Request, _: &S) -> Result<Self, StatusCode> {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, BODY_LIMIT)
            .await
            .map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
        let path = parts
            .uri
            .path_and_query()
            .map_or("/", |path| path.as_str())
            .to_owned();
        let mut headers = parts.headers;
        for hop in [
            "host",
            "connection",
            "content-length",
            "transfer-encoding",
            "accept-encoding",
        ] {
            headers.remove(hop);
        }
        Ok(Self {
            method: parts.method,
            path,
            headers,
            body,
        })
    }
}

impl Request {
    /// Passes the request on to the first of these that accepts a connection.
    pub(crate) async fn send(
        &self,
        client: &reqwest::Client,
        to: &[SocketAddr],
    ) -> reqwest::Result<reqwest::Response> {
        let mut last = None;
        for address in to {
            let request = client
                .request(
                    self.method.clone(),
                    format!("https://{address}{}", self.path),
                )
                .headers(self.headers.clone())
                .body(self.body.clone());
            match request.send().await {
                Err(error) if error.is_connect() => last = Some(error),
                answer => return answer,
            }
        }
        match last {
            Some(error) => Err(error),
            // No target: as if the host did not exist.
            None => client.get("https://127.0.0.1:1/").send().await,
        }
    }
}

/// Passes an answer back, piece by piece.
pub(crate) fn pass(from: reqwest::Response) -> Response {
    let (status, headers) = (from.status(), from.headers().clone());
    let pieces = stream::unfold(from, |mut from: reqwest::Response| async move {
        let piece = from.chunk().await.transpose()?;
        Some((piece, from))
    });
    answer(status, &headers, Body::from_stream(pieces))
}

/// Answers with nothing: the stream, or the connection, breaks.
pub(crate) fn cut() -> Response {
    let broken = stream::once(async {
        Err::<Bytes, _>(std::io::Error::from(std::io::ErrorKind::ConnectionReset))
    });
    Body::from_stream(broken).into_response()
}

/// An answer with this body, and with those headers that are not about the original connection.
pub(crate) fn answer(status: StatusCode, headers: &HeaderMap, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    for (name, value) in headers {
        if !["connection", "transfer-encoding", "content-length"].contains(&name.as_str()) {
            response.headers_mut().append(name, value.clone());
        }
    }
    response
}
