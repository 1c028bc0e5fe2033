//! Which locations are in one store, so that it can copy objects between them by itself.

use backup_core::{api::BackupStorageLocationSpec, digest::sha256};
use object_store::{CopyMode, CopyOptions, path::Path};
use serde_json::json;

use super::{Location, settings};
use crate::{
    StoreError,
    error::{is_taken, is_unsupported},
};

/// Maximum size of an object that S3 copies in one request (bytes).
const MAX_COPY_BYTES: u64 = 5 * 1024 * 1024 * 1024;

/// Settings of objects that a copy by the store would not have.
const OF_OBJECTS: [&str; 4] = [
    "customerKeyEncryptionFile",
    "kmsKeyId",
    "serverSideEncryption",
    "tagging",
];

/// The server and the credentials of a location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoreIdentity {
    /// The same for all locations with the same server and credentials.
    pub(super) id: String,
    pub(super) bucket: String,
}

impl StoreIdentity {
    /// `None` where objects are copied through this process: in a folder a copy by the file system
    /// would be the same file.
    pub(super) fn of(
        spec: &BackupStorageLocationSpec,
        credentials: Option<&[u8]>,
        ca: Option<&[u8]>,
    ) -> Option<Self> {
        let provider = spec
            .provider
            .strip_prefix("velero.io/")
            .unwrap_or(&spec.provider);
        let is_special = OF_OBJECTS
            .iter()
            .any(|key| settings::get(&spec.config, key).is_some());
        if provider == "local" || is_special {
            return None;
        }
        let mut config = spec.config.clone();
        config.retain(|key, _| !settings::OF_ALL.contains(&key.as_str()));
        let identity = json!([provider, config, credentials.map(sha256), ca.map(sha256)]);
        Some(Self {
            id: sha256(identity.to_string().as_bytes()),
            bucket: spec.object_storage.bucket.clone(),
        })
    }
}

impl Location {
    /// Has the store copy an object of another location to a key of this one, which must not exist.
    /// Returns whether the store was able to; the caller compares what the key holds then, as it
    /// may have existed.
    pub(crate) async fn copy_in_store(
        &self,
        source: &Self,
        from: &Path,
        to: &Path,
        bytes: u64,
    ) -> Result<bool, StoreError> {
        let (Some(here), Some(there)) = (&self.backend().identity, &source.backend().identity)
        else {
            return Ok(false);
        };
        if here.id != there.id || bytes > MAX_COPY_BYTES {
            return Ok(false);
        }
        if let Some(bucket) = &self.backend().bucket {
            let copied = bucket.copy(&there.bucket, from, to).await;
            return copied.map_err(|error| self.unreachable("write", to, error.to_string()));
        }
        if here.bucket != there.bucket {
            return Ok(false);
        }
        let options = CopyOptions::new().with_mode(CopyMode::Create);
        match self.store().copy_opts(from, to, options).await {
            Ok(()) => Ok(true),
            Err(error) if is_taken(&error) => Ok(true),
            Err(error) => {
                let failed = self.failed("write", to, &error);
                if is_unsupported(&error) || !failed.is_transient() {
                    tracing::debug!(key = %to, error = %failed, "the store does not copy this object; it is transferred");
                    return Ok(false);
                }
                Err(failed)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::spec;

    #[test]
    fn locations_are_in_one_store_if_only_bucket_and_prefix_differ() {
        let of = |bucket: &str, config: &[(&str, &str)], secret: &str| {
            StoreIdentity::of(&spec("aws", bucket, config), Some(secret.as_bytes()), None)
        };
        let config = [("s3Url", "http://s3:9000"), ("region", "r")];
        let first = of("a", &config, "key").unwrap();
        let second = of("b", &config, "key").unwrap();
        assert_eq!(first.id, second.id);
        assert_ne!(first, second);
        let with_bucket = [config[0], config[1], ("bucket", "b"), ("prefix", "p")];
        assert_eq!(of("b", &with_bucket, "key").unwrap(), second);
        for other in [
            of("a", &[("s3Url", "http://s3:9001"), ("region", "r")], "key"),
            of("a", &config, "other key"),
            StoreIdentity::of(&spec("aws", "a", &config), None, None),
            StoreIdentity::of(&spec("aws", "a", &config), Some(b"key"), Some(b"ca")),
            StoreIdentity::of(&spec("gcp", "a", &config), Some(b"key"), None),
        ] {
            assert_ne!(other.unwrap().id, first.id);
        }
        for key in OF_OBJECTS {
            let config = [config[0], config[1], (key, "x")];
            assert_eq!(of("a", &config, "key"), None, "{key}");
        }
        assert_eq!(
            StoreIdentity::of(&spec("velero.io/local", "/f", &[]), None, None),
            None
        );
    }
}
