//! The state of an operation whose work is a DataUpload or DataDownload.

use backup_core::api::transfer::{MovePhase, TransferStatus};
use jiff::Timestamp;

use crate::OperationProgress;

/// Unit of the progress, as Velero names it.
const BYTES: &str = "Bytes";

/// The state of the operation of a transfer. `object` is its kind and name.
pub(super) fn operation_progress(object: &str, transfer: &TransferStatus) -> OperationProgress {
    let phase = transfer.phase.clone().unwrap_or(MovePhase::New);
    let message = transfer.message.as_deref().unwrap_or_default();
    let bytes = transfer.progress.clone().unwrap_or_default();
    let completed = phase.has_ended();
    let error = if !completed || phase == MovePhase::Completed {
        String::new()
    } else if message.is_empty() {
        format!("{object} is {phase}")
    } else {
        message.to_owned()
    };
    let description = if message.is_empty() {
        phase.to_string()
    } else {
        format!("{phase}: {message}")
    };
    let ended = transfer.completion_timestamp.as_ref().map(|time| time.0);
    OperationProgress {
        completed,
        error,
        done: bytes.bytes_done,
        total: bytes.total_bytes,
        units: BYTES.to_owned(),
        description,
        started: transfer.start_timestamp.as_ref().map(|time| time.0),
        updated: ended.or_else(|| completed.then(Timestamp::now)),
    }
}
