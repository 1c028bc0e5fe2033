//! What a plugin offers that serves a bucket, and how it fails.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

/// The bytes of an object, one after the other. An error ends them.
pub type Body = BoxStream<'static, Result<Bytes, PluginFault>>;

/// Why a plugin failed: words only, as Velero's framework has one code for all errors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct PluginFault {
    pub text: String,
    pub fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Retryable,
    /// The plugin will fail the same way again.
    Permanent,
    /// What was uploaded is no longer there, or not as it was.
    Lost,
}

impl From<PluginFault> for object_store::Error {
    fn from(fault: PluginFault) -> Self {
        match fault.fault {
            Fault::Lost => Self::NotFound { path: String::new(), source: fault.into() },
            _ => Self::Generic { store: "plugin", source: fault.into() },
        }
    }
}

/// What stands before the status of a store's answer, in the words of the clients of AWS, Google and Azure.
const STATUS: [&str; 3] = ["StatusCode: ", "googleapi: Error ", "RESPONSE "];

/// What is different in each answer: it would change the status of what waits for the store with every try.
const VARIABLE: [&str; 2] = ["RequestID: ", "HostID: "];

impl PluginFault {
    /// The status of the store's answer, where its words are known.
    pub(crate) fn status(&self) -> Option<u16> {
        let after = STATUS.iter().find_map(|words| Some(self.text.split_once(words)?.1))?;
        after.get(..3)?.parse().ok()
    }

    /// The same words each time.
    pub(crate) fn steady(&self) -> String {
        let mut text = self.text.clone();
        for words in VARIABLE {
            if let Some((before, after)) = text.split_once(words) {
                let rest = after.split_once(", ").map_or("", |(_, rest)| rest);
                text = format!("{before}{rest}");
            }
        }
        text
    }
}

#[async_trait]
pub trait ObjectPlugin: fmt::Debug + Send + Sync {
    /// Makes these bytes the object of a key, whatever was there. If `body` ends in an error, the plugin must not take what
    /// came before it for the object.
    async fn put(&self, key: &str, body: Body) -> Result<(), PluginFault>;
    async fn exists(&self, key: &str) -> Result<bool, PluginFault>;
    async fn get(&self, key: &str) -> Result<Body, PluginFault>;
    /// What lies in a folder (which ends with a slash, or is empty): folders only, each from the top and with a slash at
    /// its end.
    async fn folders(&self, prefix: &str) -> Result<Vec<String>, PluginFault>;
    async fn keys(&self, prefix: &str) -> Result<Vec<String>, PluginFault>;
    async fn delete(&self, key: &str) -> Result<(), PluginFault>;
    /// A URL that opens a key to all who have it, for that long.
    async fn sign(&self, key: &str, ttl: Duration) -> Result<String, PluginFault>;
}

/// Deletes an object. One that is not there is no error, whatever the plugin says to that.
pub(crate) async fn delete(plugin: &dyn ObjectPlugin, key: &str) -> object_store::Result<()> {
    let Err(fault) = plugin.delete(key).await else { return Ok(()) };
    match plugin.exists(key).await {
        Ok(false) => Ok(()),
        _ => Err(fault.into()),
    }
}
