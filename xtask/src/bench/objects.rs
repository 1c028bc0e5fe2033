//! Objects to back up and restore: ConfigMaps of 1 KiB, in twenty namespaces.

use std::ops::Range;

use backup_core::labels;
use backup_tests::install::ensure_namespace;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use serde_json::{Value, json};

use super::raw;

const NAMESPACES: usize = 20;
/// Number of concurrent requests, as in a restore.
pub const CONNECTIONS: usize = 16;

pub fn namespaces() -> Vec<String> {
    (0..NAMESPACES)
        .map(|number| format!("bench-{number:02}"))
        .collect()
}

/// Creates ConfigMaps with these numbers, and their namespaces.
pub async fn create(client: &Client, numbers: Range<usize>) -> anyhow::Result<()> {
    create_in(client, &namespaces(), &json!({}), numbers).await
}

/// Creates ConfigMaps in these namespaces, with this metadata.
pub async fn create_in(
    client: &Client,
    namespaces: &[String],
    metadata: &Value,
    numbers: Range<usize>,
) -> anyhow::Result<()> {
    for name in namespaces {
        ensure_namespace(client, name).await?;
    }
    stream::iter(numbers)
        .map(|number| {
            config_map(
                client,
                &namespaces[number % namespaces.len()],
                metadata,
                number,
            )
        })
        .buffer_unordered(CONNECTIONS)
        .try_collect()
        .await
}

/// The labels that a restore adds to created objects.
pub fn restored_labels(restore: &str) -> Value {
    json!({ labels::BACKUP_NAME: "bench", labels::RESTORE_NAME: restore })
}

/// A text of `parts` parts with 32 bytes each. It is not uniform, as that would compress too well.
pub fn text(number: usize, parts: usize) -> String {
    (0..parts)
        .map(|part| {
            format!(
                "{:032x}",
                (number * 1_000_003 + part).wrapping_mul(0x9E37_79B9_7F4A_7C15)
            )
        })
        .collect()
}

async fn config_map(
    client: &Client,
    namespace: &str,
    metadata: &Value,
    number: usize,
) -> anyhow::Result<()> {
    let text = text(number, 32);
    let mut object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "text": text }, "metadata": metadata });
    object["metadata"]["name"] = format!("item-{number:06}").into();
    object["metadata"]["namespace"] = namespace.into();
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    raw::post(client, &path, &object).await?;
    Ok(())
}
