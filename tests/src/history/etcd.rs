//! Watches what is stored and in which order: in etcd itself, not through the API servers and their
//! caches.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::ByteString;
use serde::Deserialize;
use serde_json::{Value, json};

/// Range of keys with the custom resources of Velero; `ConfigMaps`, and Leases of the installation,
/// come before them, and other keys in between do no harm.
const FROM: &str = "/registry/configmaps/";
const TO: &str = "/registry/velero.io0";

/// A key that was written or deleted.
#[derive(Debug)]
pub(crate) struct Change {
    pub key: String,
    pub revision: u64,
    /// The new value; `None`: deleted.
    pub value: Option<Vec<u8>>,
}

#[derive(Deserialize)]
struct Line {
    result: Option<Answer>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    events: Vec<Event>,
    #[serde(default)]
    canceled: bool,
}

#[derive(Deserialize)]
struct Event {
    /// Absent for a write.
    #[serde(rename = "type")]
    kind: Option<String>,
    kv: KeyValue,
}

#[derive(Deserialize)]
struct KeyValue {
    key: ByteString,
    mod_revision: String,
    value: Option<ByteString>,
}

/// Watches from now on, and calls `tell` for each change, until the connection ends.
pub(crate) async fn watch(
    url: &str,
    ready: impl FnOnce(),
    mut tell: impl FnMut(Change),
) -> anyhow::Result<()> {
    let base64 = |text: &str| serde_json::to_value(ByteString(text.as_bytes().to_vec()));
    let request = json!({ "create_request": { "key": base64(FROM)?, "range_end": base64(TO)? } });
    let client = reqwest::Client::builder()
        .connect_timeout(Duration::from_secs(5))
        .no_proxy()
        .build()?;
    let mut answer = client
        .post(format!("{url}/v3/watch"))
        .body(request.to_string())
        .send()
        .await
        .context("watch etcd")?;
    anyhow::ensure!(
        answer.status().is_success(),
        "etcd answers {}",
        answer.status()
    );
    let (mut buffer, mut ready) = (Vec::new(), Some(ready));
    while let Some(piece) = answer.chunk().await.context("the watch on etcd broke")? {
        buffer.extend_from_slice(&piece);
        let mut done = 0;
        // The search continues where the last piece ended, or a long line would be searched again
        // for each piece.
        while let Some(length) = buffer[done..].iter().position(|byte| *byte == b'\n') {
            let line: Line = serde_json::from_slice(&buffer[done..done + length])?;
            done += length + 1;
            if let Some(error) = line.error {
                anyhow::bail!("etcd ended the watch: {error}");
            }
            if let Some(ready) = ready.take() {
                ready();
            }
            let answer = line.result.context("etcd says nothing")?;
            anyhow::ensure!(!answer.canceled, "etcd cancelled the watch");
            for event in answer.events {
                let deleted = event.kind.as_deref() == Some("DELETE");
                tell(Change {
                    key: String::from_utf8_lossy(&event.kv.key.0).into_owned(),
                    revision: event.kv.mod_revision.parse()?,
                    value: if deleted {
                        None
                    } else {
                        Some(event.kv.value.map(|value| value.0).unwrap_or_default())
                    },
                });
            }
        }
        buffer.drain(..done);
    }
    anyhow::bail!("etcd closed the watch")
}

/// Deletes all keys below `/registry` with this prefix, past the API servers.
pub(crate) async fn sweep(url: &str, key: &str) -> anyhow::Result<()> {
    let base64 = |text: &str| serde_json::to_value(ByteString(text.as_bytes().to_vec()));
    let from = format!("/registry/{key}");
    // The first key after those with this prefix: names only have characters below this one.
    let to = format!("{from}\u{7f}");
    let request = json!({ "key": base64(&from)?, "range_end": base64(&to)? });
    let client = reqwest::Client::builder()
        .timeout(Duration::from_secs(10))
        .no_proxy()
        .build()?;
    client
        .post(format!("{url}/v3/kv/deleterange"))
        .body(request.to_string())
        .send()
        .await?
        .error_for_status()?;
    Ok(())
}
