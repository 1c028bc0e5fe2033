//! URLs of a bucket, as a Velero server gives them.

use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;

use super::Bytes;
use crate::error::causes;

/// Whether this can be followed.
pub(super) fn is_one(url: &str) -> bool {
    ["https://", "http://"].iter().any(|scheme| url.starts_with(scheme))
}

/// Sends a request without a body, and without anything that the API server knows of us. The error is a sentence, without the URL: that opens the file.
pub(super) async fn send(request: Request<Body>) -> Result<Response<Bytes>, String> {
    let explain =
        |error: reqwest::Error| format!("the store cannot be reached: {}", causes(&error.without_url()));
    let (parts, _) = request.into_parts();
    let client = reqwest::Client::builder().build().map_err(explain)?;
    let sent = client.get(parts.uri.to_string()).headers(parts.headers).send().await.map_err(explain)?;
    Ok(Response::<reqwest::Body>::from(sent)
        .map(|body| body.map_err(|error| error.without_url().into()).boxed_unsync()))
}
