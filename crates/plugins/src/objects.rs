//! A bucket that a plugin serves (Velero's `ObjectStore`).

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use backup_store::{Body, Fault, ObjectPlugin, PluginFault};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::{
    configured::ConfiguredPlugin,
    connection::Failure,
    error::PluginError,
    process::Process,
    store_wire::{self as wire, method},
    streams::{Pace, Unsent},
    wire::{Answer, Question},
};

/// Size of an object's part in one message (bytes); gRPC servers in Go accept up to 4 MiB.
const PIECE_BYTES: usize = 64 * 1024;
/// Timeout for a call without a stream.
const ASK_TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub struct PluginBucket {
    pub(crate) plugin: Arc<ConfiguredPlugin>,
    /// The bucket in the plugin's settings.
    pub(crate) bucket: String,
    /// Timeout for each message of an object.
    pub(crate) limit: Duration,
}

impl PluginBucket {
    async fn process(&self) -> Result<Arc<Process>, PluginFault> {
        self.plugin.process().await.map_err(|error| fault(&error))
    }

    async fn ask<Q: Question, A: Answer>(
        &self,
        method: &'static str,
        question: Q,
    ) -> Result<A, PluginFault> {
        self.ask_once(method, question)
            .await
            .map_err(|error| fault(&error))
    }

    /// For calls that change nothing. When a process ends, all of its calls fail, perhaps because
    /// of another call, so this call is retried with the next process.
    async fn ask_again<Q, A>(&self, method: &'static str, question: Q) -> Result<A, PluginFault>
    where
        Q: Question + Clone,
        A: Answer,
    {
        match self.ask_once(method, question.clone()).await {
            Err(PluginError::Ended { .. }) => self.ask(method, question).await,
            answer => answer.map_err(|error| fault(&error)),
        }
    }

    async fn ask_once<Q: Question, A: Answer>(
        &self,
        method: &'static str,
        question: Q,
    ) -> Result<A, PluginError> {
        let process = self.plugin.process().await?;
        let limit = ASK_TIMEOUT.min(self.limit);
        self.plugin.ask(&process, method, question, limit).await
    }

    fn object(&self, key: &str) -> wire::ObjectRequest {
        wire::ObjectRequest {
            plugin: self.plugin.name().to_owned(),
            bucket: self.bucket.clone(),
            key: key.to_owned(),
        }
    }
}

#[async_trait]
impl ObjectPlugin for PluginBucket {
    async fn put(&self, key: &str, body: Body) -> Result<(), PluginFault> {
        let process = self.process().await?;
        let wire::ObjectRequest {
            plugin,
            bucket,
            key,
        } = self.object(key);
        // The first message has no bytes, as an empty object needs one, too.
        let pieces = body.map_ok(pieces).try_flatten();
        let messages = stream::once(async { Ok(Bytes::new()) })
            .chain(pieces)
            .map_ok(move |body| wire::PutObjectRequest {
                plugin: plugin.clone(),
                bucket: bucket.clone(),
                key: key.clone(),
                body,
            });
        let pace = Pace {
            message: self.limit,
            answer: self.limit,
        };
        let sent = process
            .connection()
            .send::<_, (), _>(method::PUT, messages.boxed(), pace)
            .await;
        match sent {
            Ok(()) => {
                process.was_useful();
                Ok(())
            }
            Err(Unsent::Ours(fault)) if !process.has_ended() => Err(fault),
            Err(unsent) => {
                // The sent bytes may come from the same plugin, in parts: when its process ends,
                // both calls fail.
                let failure = match unsent {
                    Unsent::Theirs(failure) => failure,
                    Unsent::Ours(fault) => Failure::Broken(fault.text),
                };
                let failure = process.explained(failure).await;
                Err(fault(&self.plugin.error(method::PUT, self.limit, failure)))
            }
        }
    }

    async fn exists(&self, key: &str) -> Result<bool, PluginFault> {
        let answer: wire::ObjectExistsResponse =
            self.ask_again(method::EXISTS, self.object(key)).await?;
        Ok(answer.exists)
    }

    async fn get(&self, key: &str) -> Result<Body, PluginFault> {
        let process = self.process().await?;
        let plugin = Arc::clone(&self.plugin);
        let limit = self.limit;
        let asked = process
            .connection()
            .receive(method::GET, self.object(key), limit)
            .await;
        let messages = match asked {
            Ok(messages) => messages,
            Err(failure) => return Err(get_fault(&plugin, &process, limit, failure).await),
        };
        process.was_useful();
        let body = messages.then(move |message| {
            let process = Arc::clone(&process);
            let plugin = Arc::clone(&plugin);
            async move {
                match message {
                    Ok(wire::Bytes { data }) => Ok(data),
                    Err(failure) => Err(get_fault(&plugin, &process, limit, failure).await),
                }
            }
        });
        Ok(body.boxed())
    }

    async fn folders(&self, prefix: &str) -> Result<Vec<String>, PluginFault> {
        let question = wire::ListCommonPrefixesRequest {
            plugin: self.plugin.name().to_owned(),
            bucket: self.bucket.clone(),
            delimiter: "/".to_owned(),
            prefix: prefix.to_owned(),
        };
        let answer: wire::ListCommonPrefixesResponse =
            self.ask_again(method::FOLDERS, question).await?;
        Ok(answer.prefixes)
    }

    async fn keys(&self, prefix: &str) -> Result<Vec<String>, PluginFault> {
        let answer: wire::ListObjectsResponse =
            self.ask_again(method::KEYS, self.object(prefix)).await?;
        Ok(answer.keys)
    }

    async fn delete(&self, key: &str) -> Result<(), PluginFault> {
        self.ask(method::DELETE, self.object(key)).await
    }

    async fn sign(&self, key: &str, ttl: Duration) -> Result<String, PluginFault> {
        let question = wire::CreateSignedUrlRequest {
            plugin: self.plugin.name().to_owned(),
            bucket: self.bucket.clone(),
            key: key.to_owned(),
            ttl: i64::try_from(ttl.as_nanos()).unwrap_or(i64::MAX),
        };
        let answer: wire::CreateSignedUrlResponse = self.ask_again(method::SIGN, question).await?;
        if answer.url.is_empty() {
            let text = format!("the plugin {} gives no URL", self.plugin.name());
            return Err(PluginFault {
                text,
                fault: Fault::Permanent,
            });
        }
        Ok(answer.url)
    }
}

/// The fault of a failed read of an object.
async fn get_fault(
    plugin: &ConfiguredPlugin,
    process: &Process,
    limit: Duration,
    failure: Failure,
) -> PluginFault {
    let failure = process.explained(failure).await;
    fault(&plugin.error(method::GET, limit, failure))
}

/// Splits bytes into pieces that fit into a message.
fn pieces(mut bytes: Bytes) -> impl futures::Stream<Item = Result<Bytes, PluginFault>> {
    stream::iter(std::iter::from_fn(move || {
        let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
        (!piece.is_empty()).then_some(Ok(piece))
    }))
}

fn fault(error: &PluginError) -> PluginFault {
    let fault = if error.is_lasting() {
        Fault::Permanent
    } else {
        Fault::Retryable
    };
    PluginFault {
        text: error.to_string(),
        fault,
    }
}
