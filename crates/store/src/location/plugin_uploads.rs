//! Uploads in parts for a plugin without such uploads: each part is a private object beside the
//! final key, and completing is one write of the final key that reads them in order.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher as _, Hasher as _},
    sync::Arc,
};

use async_trait::async_trait;
use backup_core::digest::{hex, sha256};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::{
    Error, Extensions, MultipartId, PutPayload, PutResult, Result,
    multipart::{MultipartStore, PartId},
    path::Path,
};
use sha2::{Digest as _, Sha256};

use crate::{
    layout::PRIVATE,
    object_plugin::{Body, Fault, ObjectPlugin, PluginFault, delete},
};

const PARTS: &str = "parts-";

/// Number of parts that are checked, or removed, concurrently.
const MAX_CONCURRENT_PARTS: usize = 8;

/// The bucket of a plugin, with the interface that this crate uses for every store.
#[derive(Debug)]
pub(crate) struct PluginBucket(pub(super) Arc<dyn ObjectPlugin>);

/// A part, as encoded in its id: `<index>-<bytes>-<SHA-256>`. Its key includes all three, so two
/// processes that resume one upload never write different bytes under one key.
#[derive(Clone, Debug)]
struct Part {
    key: Path,
    bytes: u64,
    sha256: String,
}

impl Part {
    /// A part of an upload. Ids read from the store are checked to be plain names.
    fn of(key: &Path, upload: &str, id: &str) -> Result<Self> {
        Self::parse(key, upload, id).ok_or_else(|| {
            let text = format!("{upload:?} and {id:?} are not the names of an upload and its part");
            PluginFault {
                text,
                fault: Fault::Permanent,
            }
            .into()
        })
    }

    fn parse(key: &Path, upload: &str, id: &str) -> Option<Self> {
        let (_, rest) = id.split_once('-')?;
        let (bytes, sha256) = rest.split_once('-')?;
        let name = format!("{upload}-{id}");
        let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if !upload.starts_with(PARTS) || !is_plain {
            return None;
        }
        Some(Self {
            key: private(key).join(name),
            bytes: bytes.parse().ok()?,
            sha256: sha256.to_owned(),
        })
    }
}

fn private(key: &Path) -> Path {
    let mut parts: Vec<_> = key.parts().collect();
    parts.pop();
    Path::from_iter(parts).join(PRIVATE)
}

impl PluginBucket {
    pub(crate) fn part(&self, key: &Path, upload: &str, id: &str) -> Result<Body> {
        Ok(read(Arc::clone(&self.0), Part::of(key, upload, id)?))
    }

    async fn remove(&self, keys: Vec<String>) -> Result<()> {
        let removing =
            stream::iter(keys).map(|key| async move { delete(self.0.as_ref(), &key).await });
        removing
            .buffer_unordered(MAX_CONCURRENT_PARTS)
            .try_collect()
            .await
    }
}

#[async_trait]
impl MultipartStore for PluginBucket {
    async fn create_multipart(&self, _: &Path) -> Result<MultipartId> {
        Ok(format!(
            "{PARTS}{:016x}{:016x}",
            random_number(),
            random_number()
        ))
    }

    async fn put_part(
        &self,
        key: &Path,
        upload: &MultipartId,
        index: usize,
        data: PutPayload,
    ) -> Result<PartId> {
        let bytes = Bytes::from(data);
        let id = format!("{index}-{}-{}", bytes.len(), sha256(&bytes));
        let part = Part::of(key, upload, &id)?;
        self.0
            .put(part.key.as_ref(), stream::iter([Ok(bytes)]).boxed())
            .await?;
        Ok(PartId { content_id: id })
    }

    async fn complete_multipart(
        &self,
        key: &Path,
        upload: &MultipartId,
        parts: Vec<PartId>,
    ) -> Result<PutResult> {
        let parts: Result<Vec<Part>> = parts
            .iter()
            .map(|part| Part::of(key, upload, &part.content_id))
            .collect();
        let parts = parts?;
        // Checks all parts before writing anything under the final key.
        for some in parts.chunks(MAX_CONCURRENT_PARTS) {
            let looking = some.iter().map(|part| async move {
                if self.0.exists(part.key.as_ref()).await? {
                    return Ok(());
                }
                Err(Error::from(lost(part, "is no longer there")))
            });
            futures::future::try_join_all(looking).await?;
        }
        let keys = parts.iter().map(|part| part.key.to_string()).collect();
        let plugin = Arc::clone(&self.0);
        let all = stream::iter(parts).flat_map(move |part| read(Arc::clone(&plugin), part));
        self.0.put(key.as_ref(), all.boxed()).await?;
        if let Err(error) = self.remove(keys).await {
            tracing::debug!(%key, %error, "parts stay until the backup is tidied up");
        }
        Ok(PutResult {
            e_tag: None,
            version: None,
            extensions: Extensions::default(),
        })
    }

    async fn abort_multipart(&self, key: &Path, upload: &MultipartId) -> Result<()> {
        let folder = private(key);
        let parts = format!("{folder}/{upload}-");
        let keys = self.0.keys(&format!("{folder}/")).await?;
        self.remove(
            keys.into_iter()
                .filter(|key| key.starts_with(&parts))
                .collect(),
        )
        .await
    }
}

/// Seeded by the operating system, with a different seed each time.
fn random_number() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn lost(part: &Part, what: &str) -> PluginFault {
    PluginFault {
        text: format!("{} {what}", part.key),
        fault: Fault::Lost,
    }
}

/// Streams the bytes of a part; ends with an error if they differ from those that were uploaded.
fn read(plugin: Arc<dyn ObjectPlugin>, part: Part) -> Body {
    let begun = async move {
        let body = plugin.get(part.key.as_ref()).await?;
        Ok(stream::try_unfold(
            (body, Sha256::new(), 0),
            move |(mut body, mut hash, bytes)| {
                let part = part.clone();
                async move {
                    if let Some(piece) = body.try_next().await? {
                        hash.update(&piece);
                        let bytes = bytes + piece.len() as u64;
                        return Ok(Some((piece, (body, hash, bytes))));
                    }
                    if bytes < part.bytes {
                        let text = format!(
                            "the plugin gave {bytes} bytes of {}, which has {}",
                            part.key, part.bytes
                        );
                        return Err(PluginFault {
                            text,
                            fault: Fault::Retryable,
                        });
                    }
                    if hex(&hash.finalize()) != part.sha256 {
                        return Err(lost(&part, "has other bytes than were uploaded"));
                    }
                    Ok(None)
                }
            },
        ))
    };
    stream::once(begun).try_flatten().boxed()
}
