//! The floor: the least work for any backup. Every list is paged through once, and the bytes are
//! compressed.

use std::{
    io::Write as _,
    num::NonZero,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use flate2::{Compression, write::GzEncoder};
use kube::{
    Client, Discovery,
    core::{DynamicObject, Resource as _},
    discovery::verbs,
};

use crate::bench::raw;

/// Size of separately compressed chunks, as in the controller (bytes).
const CHUNK_BYTES: usize = 1 << 20;
const COMPRESSION_LEVEL: u32 = 6;

/// Pages through the lists of all served types in these namespaces, or in all if there are none:
/// ConfigMaps in each of them, and types with few objects in all namespaces. Returns the number of
/// objects.
pub async fn list(client: &Client, namespaces: &[&str]) -> anyhow::Result<usize> {
    let mut objects = 0;
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if !capabilities.supports_operation(verbs::LIST) {
                continue;
            }
            if resource.plural != "configmaps" || namespaces.is_empty() {
                objects += raw::list(client, &DynamicObject::url_path(&resource, None)).await?;
                continue;
            }
            for &namespace in namespaces {
                let path = DynamicObject::url_path(&resource, Some(namespace));
                objects += raw::list(client, &path).await?;
            }
        }
    }
    Ok(objects)
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
