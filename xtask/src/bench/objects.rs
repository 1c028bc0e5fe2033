//! What is backed up and restored: ConfigMaps of 1 KiB, in twenty namespaces.

use std::ops::Range;

use backup_core::labels;
use backup_tests::install::ensure_namespace;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use serde_json::{Value, json};

const NAMESPACES: usize = 20;
/// As many as a restore has items on their way.
pub const CONNECTIONS: usize = 16;

pub fn namespaces() -> Vec<String> {
    (0..NAMESPACES).map(|number| format!("bench-{number:02}")).collect()
}

/// Creates ConfigMaps with these numbers, and their namespaces.
pub async fn create(client: &Client, numbers: Range<usize>) -> anyhow::Result<()> {
    create_in(client, &namespaces(), &json!({}), numbers).await
}

/// The same in these namespaces, with these labels and annotations.
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
        .map(|number| config_map(client, &namespaces[number % namespaces.len()], metadata, number))
        .buffer_unordered(CONNECTIONS)
        .try_collect()
        .await
}

/// The labels that a restore gives to what it creates.
pub fn restored_labels(restore: &str) -> Value {
    json!({ labels::BACKUP_NAME: "bench", labels::RESTORE_NAME: restore })
}

/// So many parts of 32 bytes. Not the same letter over and over: that would flatter the compression.
pub fn text(number: usize, parts: usize) -> String {
    (0..parts)
        .map(|part| format!("{:032x}", (number * 1_000_003 + part).wrapping_mul(0x9E37_79B9_7F4A_7C15)))
        .collect()
}

async fn config_map(client: &Client, namespace: &str, metadata: &Value, number: usize) -> anyhow::Result<()> {
    let text = text(number, 32);
    let mut object =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "text": text }, "metadata": metadata });
    object["metadata"]["name"] = format!("item-{number:06}").into();
    object["metadata"]["namespace"] = namespace.into();
    post(client, &format!("/api/v1/namespaces/{namespace}/configmaps"), &object).await
}

/// Creates an object as plainly as can be: the answer is not decoded.
pub async fn post(client: &Client, path: &str, object: &Value) -> anyhow::Result<()> {
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes())?;
    client.request_text(request).await?;
    Ok(())
}
