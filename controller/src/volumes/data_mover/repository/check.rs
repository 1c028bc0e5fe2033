//! What a repository was checked with, and when: our annotation of a BackupRepository.

use backup_core::api::BackupRepository;
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};

/// Our annotation of a BackupRepository, with a [`Check`].
pub(super) const CHECK_ANNOTATION: &str = "backup-controller/repository-check";

/// No inputs at all: a phase with these is checked at once.
pub(super) const NO_INPUTS: &str = "";

/// The phase of a BackupRepository is valid as long as nothing has changed since its check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Check {
    /// Digest of all that the result depends on ([`super::decide::inputs`]).
    pub(super) inputs: String,
    pub(super) at: Timestamp,
    /// Whether the result stays the same until something is changed.
    #[serde(rename = "final")]
    pub(super) is_final: bool,
}

impl Check {
    /// `None` if the repository was not checked, or is to be checked again.
    pub(super) fn of(repository: &BackupRepository) -> Option<Self> {
        let annotation = repository.annotations().get(CHECK_ANNOTATION)?;
        serde_json::from_str(annotation).ok()
    }

    pub(super) fn annotation(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}
