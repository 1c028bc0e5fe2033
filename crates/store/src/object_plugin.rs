//! Interface of a plugin that serves a bucket, and its errors.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

/// The bytes of an object, in chunks. An error ends them.
pub type Body = BoxStream<'static, Result<Bytes, PluginFault>>;

/// Why a plugin failed: text only, as Velero's framework has one code for all errors.
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
    /// Uploaded data is missing, or has changed.
    Lost,
}

impl From<PluginFault> for object_store::Error {
    fn from(fault: PluginFault) -> Self {
        match fault.fault {
            Fault::Lost => Self::NotFound {
                path: String::new(),
                source: fault.into(),
            },
            _ => Self::Generic {
                store: "plugin",
                source: fault.into(),
            },
        }
    }
}

/// Text before the status of a store's answer, as written by the clients of AWS, Google and Azure.
const STATUS: [&str; 3] = ["StatusCode: ", "googleapi: Error ", "RESPONSE "];

/// Parts of the text that differ in each answer: they would change the status of objects that wait
/// for the store with every retry.
const VARIABLE: [&str; 2] = ["RequestID: ", "HostID: "];

impl PluginFault {
    /// The status of the store's answer, where the text is recognized.
    pub(crate) fn status(&self) -> Option<u16> {
        let after = STATUS
            .iter()
            .find_map(|words| Some(self.text.split_once(words)?.1))?;
        after.get(..3)?.parse().ok()
    }

    /// The text without its variable parts.
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
    /// Makes these bytes the object of a key, replacing any other. If `body` ends in an error, the
    /// plugin must not store the bytes before it as the object.
    async fn put(&self, key: &str, body: Body) -> Result<(), PluginFault>;
    async fn exists(&self, key: &str) -> Result<bool, PluginFault>;
    async fn get(&self, key: &str) -> Result<Body, PluginFault>;
    /// Lists the folders in a folder (whose name ends with a slash, or is empty): each with its
    /// full path and a slash at its end.
    async fn folders(&self, prefix: &str) -> Result<Vec<String>, PluginFault>;
    async fn keys(&self, prefix: &str) -> Result<Vec<String>, PluginFault>;
    async fn delete(&self, key: &str) -> Result<(), PluginFault>;
    /// A URL by which everyone who has it can read a key, valid for `ttl`.
    async fn sign(&self, key: &str, ttl: Duration) -> Result<String, PluginFault>;
}

/// Deletes an object. A missing object is no error, whatever error the plugin returns.
pub(crate) async fn delete(plugin: &dyn ObjectPlugin, key: &str) -> object_store::Result<()> {
    let Err(fault) = plugin.delete(key).await else {
        return Ok(());
    };
    match plugin.exists(key).await {
        Ok(false) => Ok(()),
        _ => Err(fault.into()),
    }
}
