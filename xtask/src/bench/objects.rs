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
    create_with(client, namespaces, metadata, numbers, |number| {
        text(number, 32)
    })
    .await
}

/// Like [`create_in`], with other texts than of 1 KiB; `make_text` gets the number of the object.
pub async fn create_with(
    client: &Client,
    namespaces: &[String],
    metadata: &Value,
    numbers: Range<usize>,
    make_text: impl Fn(usize) -> String,
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
                make_text(number),
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

/// A text of this size (KiB). gzip packs it to little more than half.
pub fn dense_text(number: usize, kib: usize) -> String {
    (0..kib * 64)
        .map(|part| format!("{:016x}", scrambled(number * 1_000_003 + part)))
        .collect()
}

/// A number that looks random: the last steps of SplitMix64.
fn scrambled(number: usize) -> usize {
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

async fn config_map(
    client: &Client,
    namespace: &str,
    metadata: &Value,
    number: usize,
    text: String,
) -> anyhow::Result<()> {
    let mut object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "text": text }, "metadata": metadata });
    object["metadata"]["name"] = format!("item-{number:06}").into();
    object["metadata"]["namespace"] = namespace.into();
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    raw::post(client, &path, &object).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    #[test]
    fn a_dense_text_is_packed_to_little_more_than_half() {
        let text = dense_text(7, 16);
        assert_eq!(text.len(), 16 << 10);
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        let packed = encoder.finish().unwrap().len();
        assert!((8 << 10..12 << 10).contains(&packed), "{packed} bytes");
    }
}
