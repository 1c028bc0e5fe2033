//! What is found when the stored files of a backup are verified.

pub mod counts;
pub mod tarball;

use serde::Serialize;

use super::description::API_VERSION;

/// What to do about a file that is missing, or is not what it should be.
pub const PUT_BACK: &str = "Use another backup, or put the file back from a copy of the bucket.";

/// The document that `verify -o json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    /// [`API_VERSION`].
    pub api_version: &'static str,
    /// `BackupVerification`.
    pub kind: &'static str,
    /// Of which backup.
    pub of: String,
    /// Its phase, as the server wrote it.
    pub phase: String,
    /// Whether nothing is wrong.
    pub good: bool,
    /// Every file that was looked for.
    pub files: Vec<FileView>,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// A stored file.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileView {
    /// As DownloadRequests call it: `BackupContents`.
    pub file: String,
    /// Bytes, as it is stored; none if it could not be read to its end.
    pub size: Option<u64>,
    /// What is in it, or why that is not known.
    pub found: String,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file, as DownloadRequests call it.
    pub file: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

impl Verification {
    /// Of the backup of this name.
    pub fn new(of: &str, phase: String, files: Vec<FileView>, findings: Vec<Finding>) -> Self {
        let (api_version, kind) = (API_VERSION, "BackupVerification");
        Self { api_version, kind, of: of.to_owned(), phase, good: findings.is_empty(), files, findings }
    }
}
