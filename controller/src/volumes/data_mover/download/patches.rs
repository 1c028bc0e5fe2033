//! What is recorded in a DataDownload, and its patches. Pure.
//!
//! Each patch is made from the state that it applies to; `None`: it no longer applies.

use backup_core::{
    api::{DataDownload, transfer::MovePhase},
    data_movement::{
        ATTEMPTS_ANNOTATION, DELETE_EXTRA_FILES, FINALIZER, FIRST_LOSS_ANNOTATION, InPlaceRestore,
        MoverProgress, MoverResult, PACE_ANNOTATION, TransferPace, VOLUME_PROPERTIES_ANNOTATION,
    },
    volume_info::VolumeProperties,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::volumes::data_mover::{objects::ACTIVE_LABEL, repository_wait};

/// Annotation: uid of the target claim when the DataDownload was accepted.
const TARGET_UID: &str = "backup-controller/target-uid";
/// Annotation: uid of the last pod that has started.
const POD: &str = "backup-controller/pod";
/// Annotation: the volume that the pod has filled, as [`Fill`]. With it the handover begins.
const FILL: &str = "backup-controller/fill";

/// A volume that holds the data. Written before the pod, which knew it, is removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fill {
    /// Name of the PersistentVolume.
    pub(super) volume: String,
    /// Complete or incomplete.
    pub(super) result: MoverResult,
    pub(super) at: Timestamp,
}

impl Fill {
    pub(super) fn of(download: &DataDownload) -> Option<Self> {
        let text = download.annotations().get(FILL)?;
        serde_json::from_str(text).ok()
    }
}

/// The pods of a DataDownload that have started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Attempts {
    pub(super) count: u32,
    /// Uid of the last one.
    pub(super) pod: Option<String>,
    /// Why the first one was lost.
    pub(super) first_loss: Option<String>,
}

impl Attempts {
    pub(super) fn of(download: &DataDownload) -> Self {
        let annotations = download.annotations();
        let count = annotations.get(ATTEMPTS_ANNOTATION);
        Self {
            count: count.and_then(|count| count.parse().ok()).unwrap_or(0),
            pod: annotations.get(POD).cloned(),
            first_loss: annotations.get(FIRST_LOSS_ANNOTATION).cloned(),
        }
    }
}

/// Uid of the target claim when the DataDownload was accepted; empty before that.
pub(super) fn target_uid(download: &DataDownload) -> &str {
    let uid = download.annotations().get(TARGET_UID);
    uid.map(String::as_str).unwrap_or_default()
}

/// How it restores into the volume of a claim that exists; `None`: into a new volume.
pub(super) fn in_place(download: &DataDownload) -> Option<InPlaceRestore> {
    InPlaceRestore::of(download.spec.restore_type.as_deref())
}

/// What `backup-mover` does with files that are in the volume (`--existing`), if that exists.
pub(super) fn existing_files(download: &DataDownload) -> Option<&'static str> {
    let config = &download.spec.mover.data_mover_config;
    let removes_extra = config
        .get(DELETE_EXTRA_FILES)
        .is_some_and(|value| value == "true");
    Some(match (in_place(download)?, removes_extra) {
        (InPlaceRestore::Full, true) => "replace",
        (InPlaceRestore::Full, false) => "overwrite",
        (InPlaceRestore::Incremental, true) => "update",
        (InPlaceRestore::Incremental, false) => "amend",
    })
}

/// Properties of the volume in the backup.
pub(super) fn volume_properties(download: &DataDownload) -> Option<VolumeProperties> {
    let text = download.annotations().get(VOLUME_PROPERTIES_ANNOTATION)?;
    serde_json::from_str(text).ok()
}

pub(super) fn has_finalizer(download: &DataDownload) -> bool {
    download.finalizers().iter().any(|one| one == FINALIZER)
}

/// Whether it is neither accepted nor ended.
pub(super) fn is_new(download: &DataDownload) -> bool {
    matches!(download.status.transfer.phase, None | Some(MovePhase::New))
}

/// Whether it was accepted and has not ended.
pub(super) fn is_working(download: &DataDownload) -> bool {
    matches!(
        download.status.transfer.phase,
        Some(
            MovePhase::Accepted
                | MovePhase::Prepared
                | MovePhase::InProgress
                | MovePhase::Canceling
        )
    )
}

pub(super) fn has_ended(download: &DataDownload) -> bool {
    let phase = download.status.transfer.phase.as_ref();
    phase.is_some_and(MovePhase::has_ended)
}

/// Records why it waits for its repository, and since when.
pub(super) fn awaiting_repository(
    current: &DataDownload,
    why: &str,
    now: Timestamp,
) -> Option<Value> {
    let message = current.status.transfer.message.as_deref();
    let patch = repository_wait::awaiting(current.annotations(), message, why, now);
    patch.filter(|_| is_new(current))
}

/// Ends the wait for its repository: only other transfers are awaited.
pub(super) fn repository_is_ready(current: &DataDownload) -> Option<Value> {
    let mut patch = repository_wait::ended(current.annotations())?;
    patch["status"] = json!({"message": null});
    Some(patch)
}

pub(super) fn accepted(current: &DataDownload, target_uid: &str, now: Timestamp) -> Option<Value> {
    if !is_new(current) || current.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let mut finalizers = current.finalizers().to_vec();
    if !has_finalizer(current) {
        finalizers.push(FINALIZER.to_owned());
    }
    Some(json!({
        "metadata": {
            "finalizers": finalizers,
            "labels": { ACTIVE_LABEL: "true" },
            "annotations": { TARGET_UID: target_uid },
        },
        "status": {"phase": MovePhase::Accepted, "acceptedTimestamp": Time(now), "message": null},
    }))
}

/// Counts a pod that has started, once.
pub(super) fn started(
    current: &DataDownload,
    pod: &str,
    node: Option<&str>,
    now: Timestamp,
) -> Option<Value> {
    let attempts = Attempts::of(current);
    if !is_working(current) || attempts.pod.as_deref() == Some(pod) {
        return None;
    }
    let started = current.status.transfer.start_timestamp.clone();
    // A later pod begins from the start.
    let pace = TransferPace {
        since: (attempts.count > 0).then_some(now),
        ..TransferPace::default()
    };
    Some(json!({
        "metadata": {"annotations": {
            ATTEMPTS_ANNOTATION: attempts.count.saturating_add(1).to_string(),
            POD: pod,
            PACE_ANNOTATION: pace.annotation(),
        }},
        "status": {
            "phase": MovePhase::InProgress,
            "startTimestamp": started.unwrap_or(Time(now)),
            "node": node,
        },
    }))
}

/// Records why the first pod was lost, once.
pub(super) fn first_loss(current: &DataDownload, why: &str) -> Option<Value> {
    let is_known = Attempts::of(current).first_loss.is_some();
    (is_working(current) && !is_known)
        .then(|| json!({"metadata": {"annotations": { FIRST_LOSS_ANNOTATION: why }}}))
}

pub(super) fn progressed(current: &DataDownload, progress: &MoverProgress) -> Option<Value> {
    if !is_working(current) {
        return None;
    }
    let done = i64::try_from(progress.bytes).unwrap_or(i64::MAX);
    let known = i64::try_from(progress.total_bytes).unwrap_or(i64::MAX);
    let total = if known == 0 {
        current.spec.snapshot_size.max(done)
    } else {
        known
    };
    let before = current.status.transfer.progress.as_ref();
    let is_same =
        before.is_some_and(|before| (before.bytes_done, before.total_bytes) == (done, total));
    let known = TransferPace::of(current.annotations());
    let pace = TransferPace {
        moved: progress.moved_bytes,
        ..known.unwrap_or_default()
    };
    (!is_same || known != Some(pace)).then(|| {
        json!({
            "metadata": {"annotations": {PACE_ANNOTATION: pace.annotation()}},
            "status": {"progress": {"bytesDone": done, "totalBytes": total}},
        })
    })
}

/// Records what is to be known while the pod works; empty: nothing.
pub(super) fn noted(current: &DataDownload, message: &str) -> Option<Value> {
    let before = current.status.transfer.message.as_deref();
    let is_same = before.unwrap_or_default() == message;
    (is_working(current) && !is_same).then(|| json!({"status": {"message": message}}))
}

/// Records that the volume holds the data. `message` says what is missing of it; empty: nothing.
pub(super) fn filled(
    current: &DataDownload,
    fill: &Fill,
    message: &str,
    bytes: u64,
) -> Option<Value> {
    if !is_working(current) || Fill::of(current).is_some() {
        return None;
    }
    let record = serde_json::to_string(fill).ok()?;
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    let started = current.status.transfer.start_timestamp.clone();
    Some(json!({
        "metadata": {"annotations": { FILL: record }},
        "status": {
            "phase": MovePhase::InProgress,
            "startTimestamp": started.unwrap_or(Time(fill.at)),
            "progress": {"bytesDone": bytes, "totalBytes": bytes},
            "message": message,
        },
    }))
}

/// An end is never changed.
pub(super) fn ended(
    current: &DataDownload,
    phase: &MovePhase,
    message: &str,
    now: Timestamp,
) -> Option<Value> {
    let started = current.status.transfer.start_timestamp.as_ref();
    // A clock that was set back does not end it before its start.
    let end = started.map_or(now, |started| started.0.max(now));
    (is_new(current) || is_working(current)).then(|| {
        json!({
            "metadata": {"labels": { ACTIVE_LABEL: null }},
            "status": {
                "phase": phase,
                "message": message,
                "completionTimestamp": Time(end),
            },
        })
    })
}

/// Removes our finalizer, when all objects of the DataDownload are gone.
pub(super) fn released(current: &DataDownload) -> Option<Value> {
    let mut finalizers = current.finalizers().to_vec();
    finalizers.retain(|one| one != FINALIZER);
    (has_ended(current) && has_finalizer(current))
        .then(|| json!({"metadata": {"finalizers": finalizers}}))
}
