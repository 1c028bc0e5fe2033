//! Requests of floors and controls, with minimal overhead: answers are not decoded.

use anyhow::Context as _;
use http::{Method, header::CONTENT_TYPE};
use kube::Client;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;

/// Objects per page, as the controller and kubectl request.
const PAGE_SIZE: usize = 500;

/// Sends a request. Returns the text of the answer.
pub async fn send(
    client: &Client,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> kube::Result<String> {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header(CONTENT_TYPE, "application/json")
        .body(body)
        .map_err(kube::Error::HttpError)?;
    client.request_text(request).await
}

pub async fn get(client: &Client, path: &str) -> kube::Result<String> {
    send(client, Method::GET, path, Vec::new()).await
}

/// Creates an object in a collection. Returns it as text.
pub async fn post(client: &Client, path: &str, object: &Value) -> kube::Result<String> {
    send(client, Method::POST, path, object.to_string().into_bytes()).await
}

#[derive(Deserialize)]
struct Page {
    metadata: PageMetadata,
    #[serde(default)]
    items: Option<Vec<IgnoredAny>>,
}

#[derive(Deserialize)]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

/// Pages through a list, and decodes only the position of the next page. Returns the number of
/// objects.
pub async fn list(client: &Client, path: &str) -> anyhow::Result<usize> {
    let mut objects = 0;
    let mut token = String::new();
    loop {
        let path = format!("{path}?limit={PAGE_SIZE}&continue={token}");
        let text = get(client, &path).await?;
        let page: Page =
            serde_json::from_str(&text).with_context(|| format!("a page of {path}"))?;
        objects += page.items.map_or(0, |items| items.len());
        match page.metadata.next.filter(|next| !next.is_empty()) {
            Some(next) => token = next,
            None => return Ok(objects),
        }
    }
}
