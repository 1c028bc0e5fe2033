//! The floor: the least work for any backup. Every list is paged through once, and the bytes are
//! compressed.

use std::{
    io::Write as _,
    num::NonZero,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use anyhow::Context as _;
use flate2::{Compression, write::GzEncoder};
use kube::core::Resource as _;
use kube::{
    Client, Discovery,
    core::{ApiResource, DynamicObject},
    discovery::verbs,
};
use serde::{Deserialize, de::IgnoredAny};

/// Objects per page, as the controller requests.
const PAGE_SIZE: usize = 500;
/// Size of separately compressed chunks, as in the controller (bytes).
const CHUNK_BYTES: usize = 1 << 20;
const COMPRESSION_LEVEL: u32 = 6;

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

/// Pages through the lists of all served types, and decodes only the position of the next page.
/// Returns the number of objects.
pub async fn list(client: &Client) -> anyhow::Result<usize> {
    list_by(client, |_| vec![None]).await
}

/// Like [`list`], for these namespaces: ConfigMaps in each of them, and types with few objects in
/// all namespaces.
pub async fn list_of(client: &Client, namespaces: &[&str]) -> anyhow::Result<usize> {
    list_by(client, |resource| match resource.plural.as_str() {
        "configmaps" => namespaces.iter().copied().map(Some).collect(),
        _ => vec![None],
    })
    .await
}

async fn list_by<'a>(
    client: &Client,
    namespaces: impl Fn(&ApiResource) -> Vec<Option<&'a str>>,
) -> anyhow::Result<usize> {
    let mut objects = 0;
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if !capabilities.supports_operation(verbs::LIST) {
                continue;
            }
            for namespace in namespaces(&resource) {
                objects += pages(client, &DynamicObject::url_path(&resource, namespace)).await?;
            }
        }
    }
    Ok(objects)
}

async fn pages(client: &Client, path: &str) -> anyhow::Result<usize> {
    let mut objects = 0;
    let mut token = String::new();
    loop {
        let request = http::Request::get(format!("{path}?limit={PAGE_SIZE}&continue={token}"))
            .body(Vec::new())?;
        let text = client.request_text(request).await?;
        let page: Page =
            serde_json::from_str(&text).with_context(|| format!("a page of {path}"))?;
        objects += page.items.map_or(0, |items| items.len());
        match page.metadata.next.filter(|next| !next.is_empty()) {
            Some(next) => token = next,
            None => return Ok(objects),
        }
    }
}

/// Compresses chunks on all cores. Returns the compressed size (bytes).
pub fn compress(tar: &[u8]) -> usize {
    let chunks: Vec<&[u8]> = tar.chunks(CHUNK_BYTES).collect();
    let next = AtomicUsize::new(0);
    let bytes = AtomicUsize::new(0);
    let workers = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(chunk) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut encoder = GzEncoder::new(
                        Vec::with_capacity(CHUNK_BYTES / 2),
                        Compression::new(COMPRESSION_LEVEL),
                    );
                    // Writing to memory cannot fail.
                    let member = encoder.write_all(chunk).and_then(|()| encoder.finish());
                    bytes.fetch_add(member.map_or(0, |member| member.len()), Ordering::Relaxed);
                }
            });
        }
    });
    bytes.into_inner()
}
