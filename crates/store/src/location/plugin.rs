//! Providers that are served by a plugin of Velero's kind (`ObjectStore` in
//! `pkg/plugin/velero/object_store.go`, v1.18).
//!
//! Such a plugin can write, read, list and delete whole objects. It has no conditions, sizes or
//! uploads in parts: a key is checked before it is written, a size is known only after reading the
//! object, and parts are private objects (`plugin_uploads`).

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use backup_core::api::BackupStorageLocation;
use futures::{StreamExt, TryStreamExt, stream, stream::BoxStream};
use object_store::{
    Attributes, CopyOptions, Error, Extensions, GetOptions, GetResult, GetResultPayload,
    ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, Result, path::Path,
};

use super::{Location, backend::Backend, plugin_uploads::PluginBucket, settings};
use crate::{
    StoreError,
    object_plugin::{Fault, ObjectPlugin, PluginFault, delete},
};

pub const BUILT_IN: [&str; 4] = ["aws", "azure", "gcp", "local"];

/// Velero's prefix for the name of a provider that has no domain.
const DOMAIN: &str = "velero.io/";

const MAX_CONCURRENT_DELETIONS: usize = 8;

/// The name of the plugin that serves a provider (Velero `pkg/plugin/clientmgmt/manager.go`,
/// v1.18).
pub fn plugin_of(provider: &str) -> String {
    if provider.contains('/') {
        provider.to_owned()
    } else {
        format!("{DOMAIN}{provider}")
    }
}

pub fn is_built_in(provider: &str) -> bool {
    BUILT_IN.contains(&provider.strip_prefix(DOMAIN).unwrap_or(provider))
}

/// The bucket and the prefix of a location that a plugin serves, as Velero gives them to the
/// plugin.
///
/// Errors: [`StoreError::Config`] for a bucket that is no plain name.
pub fn bucket_and_prefix(bsl: &BackupStorageLocation) -> Result<(String, String), StoreError> {
    let storage = &bsl.spec.object_storage;
    let bucket = settings::bucket(storage.bucket.trim_matches('/'), "bucket")?;
    Ok((
        bucket,
        storage
            .prefix
            .as_deref()
            .unwrap_or_default()
            .trim_matches('/')
            .to_owned(),
    ))
}

impl Location {
    /// Opens a location whose bucket is served by a plugin; does not call it yet. Errors:
    /// [`StoreError::Config`].
    pub fn through_plugin(
        bsl: &BackupStorageLocation,
        plugin: Arc<dyn ObjectPlugin>,
    ) -> Result<Self, StoreError> {
        settings::common(&bsl.spec)?;
        let (name, prefix) = bucket_and_prefix(bsl)?;
        let url = format!("{}://{name}", plugin_of(&bsl.spec.provider));
        let bucket = Arc::new(PluginBucket(plugin));
        let backend = Backend {
            plugin: Some(bucket.clone()),
            ..Backend::new(bucket.clone(), bucket, url)
        };
        Self::new(backend, &prefix)
    }
}

impl fmt::Display for PluginBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plugin's bucket")
    }
}

fn cannot<T>(what: &str) -> Result<T> {
    Err(Error::NotImplemented {
        operation: what.to_owned(),
        implementer: "a plugin".to_owned(),
    })
}

/// Metadata of an object of which only the key is known.
#[allow(clippy::default_trait_access)] // the type of a time is not exported
fn meta(location: Path) -> ObjectMeta {
    ObjectMeta {
        location,
        last_modified: Default::default(),
        size: 0,
        e_tag: None,
        version: None,
    }
}

/// A folder in the form that plugins expect.
fn folder(prefix: Option<&Path>) -> String {
    prefix
        .filter(|prefix| !prefix.as_ref().is_empty())
        .map_or_else(String::new, |prefix| format!("{prefix}/"))
}

/// Keys in an answer. A key outside of `prefix` is an error; a key that we would never write
/// belongs to another program and is skipped.
pub(super) fn paths(prefix: &str, keys: Vec<String>) -> Result<Vec<Path>> {
    let mut paths = Vec::with_capacity(keys.len());
    for key in keys {
        if !key.starts_with(prefix) {
            let text =
                format!("the plugin that was asked for keys in {prefix:?} answers with {key:?}");
            return Err(PluginFault {
                text,
                fault: Fault::Retryable,
            }
            .into());
        }
        match Path::parse(&key) {
            Ok(path) => paths.push(path),
            Err(error) => tracing::debug!(key, %error, "a key that is none of a backup store"),
        }
    }
    Ok(paths)
}

#[async_trait]
impl ObjectStore for PluginBucket {
    async fn put_opts(
        &self,
        key: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        if opts.mode != PutMode::Overwrite {
            return cannot("a condition");
        }
        let pieces: Vec<_> = payload.iter().cloned().map(Ok).collect();
        self.0
            .put(key.as_ref(), stream::iter(pieces).boxed())
            .await?;
        Ok(PutResult {
            e_tag: None,
            version: None,
            extensions: Extensions::default(),
        })
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        cannot("an upload in parts")
    }

    async fn get_opts(&self, key: &Path, options: GetOptions) -> Result<GetResult> {
        if options.range.is_some() {
            return cannot("a range");
        }
        // For a missing key, each plugin has its own error message.
        if !self.0.exists(key.as_ref()).await? {
            return Err(Error::NotFound {
                path: key.to_string(),
                source: "the plugin does not have it".into(),
            });
        }
        let body = if options.head {
            stream::empty().boxed()
        } else {
            self.0.get(key.as_ref()).await?
        };
        Ok(GetResult {
            payload: GetResultPayload::Stream(body.map_err(Error::from).boxed()),
            meta: meta(key.clone()),
            range: 0..0,
            attributes: Attributes::default(),
            extensions: Extensions::default(),
        })
    }

    fn delete_stream(
        &self,
        keys: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let plugin = Arc::clone(&self.0);
        keys.map(move |key| {
            let plugin = Arc::clone(&plugin);
            async move {
                let key = key?;
                delete(plugin.as_ref(), key.as_ref()).await?;
                Ok(key)
            }
        })
        .buffered(MAX_CONCURRENT_DELETIONS)
        .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let plugin = Arc::clone(&self.0);
        let prefix = folder(prefix);
        let listed = async move {
            let keys = paths(&prefix, plugin.keys(&prefix).await?)?;
            Ok::<_, Error>(stream::iter(keys.into_iter().map(meta).map(Ok)))
        };
        stream::once(listed).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let prefix = folder(prefix);
        let folders = self.0.folders(&prefix).await?;
        // Some plugins include the folder itself in the answer.
        let folders = folders
            .into_iter()
            .filter(|folder| *folder != prefix)
            .collect();
        let common_prefixes = paths(&prefix, folders)?;
        Ok(ListResult {
            common_prefixes,
            objects: Vec::new(),
            extensions: Extensions::default(),
        })
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        cannot("a copy")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::cause;

    const AWS: &str = "the plugin says: operation error S3: PutObject, https response error StatusCode: 403, RequestID: \
                       17A2B3, HostID: 88, api error AccessDenied: Access Denied.";

    fn fault(text: &str) -> PluginFault {
        PluginFault {
            text: text.to_owned(),
            fault: Fault::Retryable,
        }
    }

    #[test]
    fn the_status_of_an_answer_is_found() {
        for (text, status) in [
            (AWS, Some(403)),
            (
                "googleapi: Error 404: No such object: b/k, notFound",
                Some(404),
            ),
            (
                "PUT https://a/b\n---\nRESPONSE 409: 409 Conflict\nERROR CODE: X",
                Some(409),
            ),
            ("no space left on device", None),
            ("StatusCode: 4", None),
            ("StatusCode: äöü", None),
        ] {
            assert_eq!(fault(text).status(), status, "{text}");
        }
    }

    #[test]
    fn the_words_are_the_same_each_time() {
        let first = fault(AWS).steady();
        assert_eq!(
            first,
            fault(
                &AWS.replace("17A2B3", "99")
                    .replace("HostID: 88", "HostID: 7=/x")
            )
            .steady()
        );
        assert!(
            first.ends_with("StatusCode: 403, api error AccessDenied: Access Denied."),
            "{first}"
        );
    }

    #[test]
    fn a_fault_is_found_in_an_error_of_the_store() {
        let error = Error::from(fault("x"));
        assert_eq!(cause(&error), Some(&fault("x")));
        assert_eq!(
            cause::<PluginFault>(&Error::Generic {
                store: "S3",
                source: "x".into()
            }),
            None
        );
    }
}
