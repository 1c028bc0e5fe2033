//! Names and formats of volume data that our data mover keeps in repositories of the restic format.
//! Pure.
//!
//! The controller creates DataUploads and DataDownloads, and runs a pod with the program
//! `backup-mover` for each. Repositories lie where Velero up to 1.16 has its restic repositories:
//! `restic/<namespace>/` below the prefix of the location.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::names;

/// Our data mover, as DataUploads, DataDownloads and `-volumeinfo.json.gz` name it.
pub const DATA_MOVER: &str = "backup-mover";
/// Format of our repositories, as Velero's fields `uploaderType` and `repositoryType` name it.
pub const REPOSITORY_TYPE: &str = "restic";
/// Finalizer of a DataUpload or DataDownload until all its objects are removed (Velero
/// `pkg/controller/data_upload_controller.go`, v1.18).
pub const FINALIZER: &str = "velero.io/data-upload-download-finalizer";
/// Secret with the password of all repositories, in the namespace of the Backups (Velero
/// `pkg/repository/keys/keys.go`, v1.18).
pub const PASSWORD_SECRET: &str = "velero-repo-credentials";
/// Key of the password in that Secret.
pub const PASSWORD_KEY: &str = "repository-password";
/// Label of a DataUpload or DataDownload: id of the operation that it belongs to.
pub const OPERATION_LABEL: &str = "velero.io/async-operation-id";
/// Label of what belongs to a DataUpload or DataDownload: its name.
pub const TRANSFER_LABEL: &str = "backup-controller/transfer";
/// Label of a VolumeSnapshot whose data is moved: it is removed from the storage system once the
/// data is in the repository.
pub const MOVED_LABEL: &str = "backup-controller/data-moved";
/// Label of a DataUpload or DataDownload: uid of the claim in the backup (Velero
/// `pkg/apis/velero/v1/labels_annotations.go`, v1.18).
pub const CLAIM_UID_LABEL: &str = "velero.io/pvc-uid";
/// Annotation of a DataUpload: uid of the claim, which names its snapshots in the repository.
pub const CLAIM_UID_ANNOTATION: &str = "backup-controller/claim-uid";
/// Annotation of a DataUpload: `Block` if the volume is a block device. Not set otherwise.
pub const VOLUME_MODE_ANNOTATION: &str = "backup-controller/volume-mode";
/// Annotation of a DataUpload: number of files in the snapshot.
pub const FILES_ANNOTATION: &str = "backup-controller/files";
/// Annotation of a DataUpload or DataDownload that runs: how fast it is, as [`TransferPace`].
pub const PACE_ANNOTATION: &str = "backup-controller/pace";
/// Annotation of a DataUpload: number of the current attempt, from the second on. Of a
/// DataDownload: number of pods that have started.
pub const ATTEMPTS_ANNOTATION: &str = "backup-controller/attempts";
/// Annotation of a DataUpload or DataDownload: why its first pod was lost.
pub const FIRST_LOSS_ANNOTATION: &str = "backup-controller/first-loss";
/// Annotation of a DataUpload whose backup will never be stored, always `true`: its snapshots are
/// removed from the repository.
pub const ABANDONED_ANNOTATION: &str = "backup-controller/backup-abandoned";
/// Folder of a repository with the [notes](snapshot_notes) of snapshots. Restic ignores it.
pub const NOTES_FOLDER: &str = "uploads";
/// Environment variable of `backup-mover`: password of the repository.
pub const PASSWORD_VARIABLE: &str = "BACKUP_REPOSITORY_PASSWORD";
/// Environment variable of `backup-mover`: contents of the location's credentials file. Unset: the
/// credentials of the environment, such as workload identity.
pub const CREDENTIALS_VARIABLE: &str = "BACKUP_STORE_CREDENTIALS";
/// Environment variable of `backup-mover`: CA certificates of the store, PEM. `--ca-file` takes
/// precedence.
pub const CA_VARIABLE: &str = "BACKUP_STORE_CA";
/// DataUploads, as `plural.group`.
pub const DATA_UPLOADS: &str = "datauploads.velero.io";
/// Annotation of a claim in a backup: namespace and name of its DataUpload (Velero
/// `pkg/apis/velero/v1/labels_annotations.go`, v1.18).
pub const DATA_UPLOAD_NAME: &str = "velero.io/data-upload-name";
/// Annotation of a DataDownload: properties of the volume in the backup, which the new one gets
/// ([`crate::volume_info::VolumeProperties`]).
pub const VOLUME_PROPERTIES_ANNOTATION: &str = "backup-controller/volume-properties";
/// Key in `spec.dataMoverConfig` of a DataDownload: whether files that the backup does not have are
/// removed from the volume of a claim that exists. Named like Velero's other keys
/// (`pkg/uploader/util/uploader_config.go`, v1.18).
pub const DELETE_EXTRA_FILES: &str = "DeleteExtraFiles";

/// Whether this value of `spec.datamover` means our data mover.
pub fn is_our_mover(name: &str) -> bool {
    matches!(name, "" | "velero" | DATA_MOVER)
}

/// Name of the DataUpload of a claim, which is also the id of its operation.
pub fn upload_name(claim: &str, backup_uid: &str, claim_uid: &str) -> String {
    names::derived("upload", claim, &[backup_uid, claim_uid])
}

/// Name of the DataDownload of a claim, which is also the id of its operation. `namespace` is that
/// of the claim in the backup.
pub fn download_name(claim: &str, restore_uid: &str, namespace: &str) -> String {
    names::derived("download", claim, &[restore_uid, namespace, claim])
}

/// Name of the BackupRepository of a namespace in a location.
pub fn repository_name(namespace: &str, location: &str) -> String {
    names::derived("repository", namespace, &[namespace, location])
}

/// Path of a namespace's repository below the prefix of the location.
pub fn repository_path(namespace: &str) -> String {
    format!("{REPOSITORY_TYPE}/{namespace}")
}

/// Folder below a repository with the notes of a DataUpload: an empty object with the id of each
/// snapshot, which is written before the snapshot. The notes name a snapshot whose pod was gone
/// before its outcome was read.
pub fn snapshot_notes(backup_uid: &str, upload_uid: &str) -> String {
    format!("{NOTES_FOLDER}/{backup_uid}/{upload_uid}")
}

/// Reference to a DataDownload in `dataSourceRef` of the claim that it fills: no provisioner fills
/// such a claim (KEP-1495).
pub fn data_source(download: &str) -> Value {
    json!({ "apiGroup": "velero.io", "kind": "DataDownload", "name": download })
}

/// The DataDownload that fills a claim, from the claim's `spec`.
pub fn download_of_claim(spec: &Value) -> Option<&str> {
    ["dataSourceRef", "dataSource"]
        .into_iter()
        .find_map(|field| {
            let source = spec.get(field)?;
            let is_ours = source["apiGroup"] == "velero.io" && source["kind"] == "DataDownload";
            is_ours.then(|| source["name"].as_str()).flatten()
        })
}

/// How data is restored into the volume of a claim that exists: `existingVolumeDataPolicy` of a
/// Restore, and `restoreType` of a DataDownload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InPlaceRestore {
    /// All files of the backup are written.
    Full,
    /// Only files whose size or time differs are written.
    Incremental,
}

impl InPlaceRestore {
    /// `None`: a claim that exists keeps its data.
    pub fn of(policy: Option<&str>) -> Option<Self> {
        match policy? {
            "full" => Some(Self::Full),
            "incremental" => Some(Self::Incremental),
            _ => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Incremental => "incremental",
        }
    }
}

/// How a run of `backup-mover` ended, which it prints as one line of JSON and leaves as the
/// container's termination message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MoverOutcome {
    /// The command of `backup-mover`, such as `backup`.
    pub operation: String,
    pub result: MoverResult,
    /// Why it failed, out of a bounded set ([`failure_reason`] and others).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The end as a sentence for the user.
    pub message: String,
    /// Id of the snapshot that was written or restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    pub files: u64,
    pub bytes: u64,
    /// Bytes that were added to the repository.
    pub new_bytes: u64,
    /// Bytes that were sent to the store, or came from it.
    pub moved_bytes: u64,
    pub seconds: f64,
    pub failures: MoverFailures,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<Box<CheckReport>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<Box<MaintainReport>>,
}

impl MoverOutcome {
    pub fn json(&self) -> String {
        // Never fails: there are only strings and numbers.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Values of [`MoverOutcome::reason`] that the controller acts on.
pub mod failure_reason {
    pub const REPOSITORY_MISSING: &str = "repository_missing";
    pub const REPOSITORY_EXISTS: &str = "repository_exists";
    pub const WRONG_PASSWORD: &str = "wrong_password";
    /// The repository has a format that the mover does not know.
    pub const UNSUPPORTED: &str = "unsupported";
    /// Contents of the repository are missing or were changed; the failures name them.
    pub const DAMAGED: &str = "damaged";
}

/// How complete the work of a mover is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MoverResult {
    /// All was done. Exit code 0.
    Complete,
    /// Nothing may be relied on. Exit code 1.
    #[default]
    Failed,
    /// The work was done, but for what the failures name. Exit code 3.
    Incomplete,
    /// Cancelled by a signal. Exit code 130.
    Cancelled,
}

impl MoverResult {
    /// The exit code of the program.
    pub fn code(self) -> u8 {
        match self {
            Self::Complete => 0,
            Self::Failed => 1,
            Self::Incomplete => 3,
            Self::Cancelled => 130,
        }
    }
}

/// What could not be saved or restored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MoverFailures {
    pub count: u64,
    /// The first ones.
    pub first: Vec<MoverFailure>,
}

/// One file or folder, and what is missing of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MoverFailure {
    /// Path below the root of the volume. Bytes that are not UTF-8 are shown as `\xNN`.
    pub path: String,
    pub reason: String,
}

/// A snapshot that cannot be restored whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AffectedSnapshot {
    pub id: String,
    pub host: String,
    pub label: String,
    pub tags: String,
    /// One file or folder that is damaged.
    pub example: String,
}

/// What a check found. The repository is whole if there are no failures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CheckReport {
    pub packs: u64,
    /// Packs in no index: of a backup that runs or was interrupted. They take room, and are no
    /// damage.
    pub orphaned_packs: u64,
    /// Bytes of packs that were read.
    pub read_bytes: u64,
    /// What is damaged: objects below the repository.
    pub failures: MoverFailures,
    /// Snapshots that are concerned: how many, and the first of them.
    pub affected_count: u64,
    pub affected: Vec<AffectedSnapshot>,
}

/// What a maintenance did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MaintainReport {
    pub forgotten: u64,
    pub removed_packs: u64,
    pub removed_bytes: u64,
    /// Packs that no snapshot needs and that are marked now, also from before.
    pub marked_packs: u64,
    pub marked_bytes: u64,
    /// Packs that were marked, and that a snapshot needs.
    pub recovered_packs: u64,
    /// Packs that were in no index, and are marked now.
    pub orphaned_packs: u64,
}

/// How far a run of `backup-mover` is: a line on its stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MoverProgress {
    /// Number of files and other entries that were processed, without folders.
    pub files: u64,
    /// Bytes of their contents that are done.
    pub bytes: u64,
    /// Bytes to do; 0 while that is not known.
    pub total_bytes: u64,
    /// Bytes that were sent to the object store, or came from it.
    pub moved_bytes: u64,
    /// Bytes that a backup has read from the volume, without holes and other zeros; files that have
    /// not changed are not read.
    pub read_bytes: u64,
}

/// How fast a transfer is, apart from the progress in its status: an annotation of a DataUpload or
/// DataDownload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TransferPace {
    /// Begin of a later attempt; without it the transfer's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Bytes that were sent to the object store, or came from it.
    pub moved: u64,
    /// Bytes that were read from the volume, without holes and unchanged files; not known of a
    /// restore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<u64>,
}

impl TransferPace {
    /// `None` if it is not recorded, or cannot be read.
    pub fn of(annotations: &BTreeMap<String, String>) -> Option<Self> {
        serde_json::from_str(annotations.get(PACE_ANNOTATION)?).ok()
    }

    pub fn annotation(&self) -> String {
        // Never fails: there are only numbers and times.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl MoverProgress {
    /// Reads a line of the log; `None` if it is about something else.
    pub fn of_line(line: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Line {
            progress: MoverProgress,
        }
        let line: Line = serde_json::from_str(line).ok()?;
        Some(line.progress)
    }
}
