//! Requests to a bucket that keeps versions.

use async_trait::async_trait;
use backup_core::bucket::{ObjectLock, Versions};
use jiff::Timestamp;
use object_store::path::Path;
use serde::{Deserialize, Serialize};

/// Requests to a bucket beyond those for its objects.
#[async_trait]
pub(super) trait BucketApi: Send + Sync {
    /// Ids of the incomplete uploads of exactly this key.
    async fn uploads(&self, key: &Path) -> Result<Vec<String>, BucketError>;

    async fn versions(&self) -> Result<Versions, BucketError>;

    async fn lock(&self) -> Result<ObjectLock, BucketError>;

    /// A page of the versions of all keys with this prefix, after the end of the last page.
    async fn page(&self, start: &str, after: Option<&PageMarker>) -> Result<Page, BucketError>;

    /// Deletes versions, at most a page of them. Returns the versions that the store did not
    /// remove.
    async fn remove(&self, versions: &[Version]) -> Result<Vec<FailedRemoval>, BucketError>;

    async fn lock_of(&self, version: &Version) -> Result<Lock, BucketError>;

    /// Copies an object of a bucket of the same store to a key of this one, on the condition that
    /// the key does not exist. Returns whether the store was able to, or the key exists.
    async fn copy(&self, bucket: &str, from: &Path, to: &Path) -> Result<bool, BucketError>;
}

/// Why a request to a bucket failed, in one line.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum BucketError {
    /// It will fail again until something is changed.
    #[error("{0}")]
    Refused(String),
    /// It may succeed later.
    #[error("{0}")]
    Retryable(String),
}

/// A version of a key, or a delete marker, which covers older versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Version {
    pub key: String,
    #[serde(rename = "VersionId")]
    pub id: String,
    /// Whether readers of the key see this version.
    #[serde(skip_serializing)]
    pub is_latest: bool,
    #[serde(skip)]
    pub is_mark: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    pub versions: Vec<Version>,
    pub next: Option<PageMarker>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct PageMarker {
    pub key: String,
    pub version: String,
}

/// A version that the store did not remove, with its error code.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FailedRemoval {
    pub version: Version,
    pub code: String,
}

/// The object lock that keeps a version from being removed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lock {
    pub until: Option<Timestamp>,
    pub held: bool,
}
