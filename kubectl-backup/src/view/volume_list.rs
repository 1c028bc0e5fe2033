//! `volumes`: how the data of each volume of a backup is saved.

use std::collections::BTreeSet;

use backup_core::volume_info::NOTHING_SAVED;
use serde::Serialize;

use super::{
    stored::volumes::{Keeper, VolumeView},
    table_kind::dash,
    transfer::TransferView,
};
use crate::print::{Style, Tone, size, table};

/// How data is saved that a DataUpload moves.
const MOVED: &str = "moved CSI snapshot";
const ONLY_VELERO: &str = "only a Velero server restores it";
const IN_DAMAGED_REPOSITORY: &str =
    "it may rely on data that is damaged; `describe` of the backup says more";

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VolumeList {
    /// Name of the backup.
    pub(crate) of: String,
    pub(crate) items: Vec<SavedVolume>,
}

/// A volume of a backup. A number is null if it is not known.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SavedVolume {
    /// `namespace/claim`, or the name of the volume if its claim is unknown.
    claim: String,
    /// How its data is saved; empty if it is not, or not yet.
    saved_as: String,
    /// Phase of its DataUpload; null if there is none in the cluster.
    phase: Option<String>,
    #[serde(skip)]
    tone: Tone,
    /// Bytes that were read so far; null if there is no DataUpload in the cluster.
    done: Option<i64>,
    /// Size (bytes).
    size: Option<i64>,
    /// Bytes that the backup has added to the bucket.
    new_bytes: Option<i64>,
    files: Option<u64>,
    /// Where the data is: the folder of a repository, or the storage system.
    #[serde(rename = "where")]
    place: String,
    /// Why data is missing, or what its transfer waits for.
    problem: String,
    /// Name of the snapshot in the storage system or repository.
    snapshot: String,
    /// Name of the DataUpload.
    upload: String,
}

/// The volumes of a stored backup; its transfers add what its files do not contain. `damaged` has the
/// folders of repositories of which damage is known.
pub(crate) fn stored(
    volumes: &[VolumeView],
    transfers: &[TransferView],
    damaged: &BTreeSet<String>,
) -> Vec<SavedVolume> {
    volumes
        .iter()
        .map(|volume| {
            let transfer = transfers
                .iter()
                .find(|one| !volume.operation.is_empty() && one.name == volume.operation);
            SavedVolume::of_stored(volume, transfer, damaged)
        })
        .collect()
}

/// The volumes of a backup that is not stored yet: those whose data is moved.
pub(crate) fn running(transfers: &[TransferView]) -> Vec<SavedVolume> {
    transfers.iter().map(SavedVolume::of_transfer).collect()
}

impl SavedVolume {
    fn of_stored(
        volume: &VolumeView,
        transfer: Option<&TransferView>,
        damaged: &BTreeSet<String>,
    ) -> Self {
        let message = transfer.map_or("", |one| one.message.as_str());
        let (tone, problem) = match (&volume.skipped, volume.succeeded) {
            (Some(why), _) if why.is_empty() => (Tone::Warn, NOTHING_SAVED.to_owned()),
            (Some(why), _) => (Tone::Warn, why.clone()),
            (None, Some(false)) if !message.is_empty() => (Tone::Bad, message.to_owned()),
            (None, Some(false)) => (Tone::Bad, volume.missing_data().1.unwrap_or_default()),
            (None, _) => problem_of_saved(volume, damaged),
        };
        let is_saved =
            volume.skipped.is_none() && (volume.succeeded != Some(false) || volume.is_incomplete());
        Self {
            claim: volume.claim.clone(),
            saved_as: text_if(is_saved, &volume.method),
            phase: transfer.map(|one| one.phase.clone()),
            tone,
            done: transfer.map(|one| one.done),
            size: Some(volume.size).filter(|size| *size > 0),
            new_bytes: volume.new_bytes,
            files: transfer.and_then(|one| one.files),
            place: text_if(is_saved, &volume.place),
            problem,
            snapshot: volume.handle.clone(),
            upload: volume.operation.clone(),
        }
    }

    fn of_transfer(transfer: &TransferView) -> Self {
        let is_saved = !transfer.snapshot.is_empty() && transfer.has_ended();
        Self {
            claim: transfer.claim.clone(),
            saved_as: text_if(is_saved, MOVED),
            phase: Some(transfer.phase.clone()),
            tone: transfer.tone,
            done: Some(transfer.done),
            size: Some(transfer.total).filter(|size| *size > 0),
            new_bytes: transfer.new_bytes,
            files: transfer.files,
            place: text_if(is_saved, &transfer.repository),
            problem: transfer.message.clone(),
            snapshot: transfer.snapshot.clone(),
            upload: transfer.name.clone(),
        }
    }

    /// "CSI snapshot", "InProgress 24%", "Failed".
    fn state(&self) -> String {
        if !self.saved_as.is_empty() {
            return self.saved_as.clone();
        }
        let Some(phase) = &self.phase else {
            return String::new();
        };
        let share = self.size.zip(self.done).and_then(|(size, done)| {
            let is_running = self.tone == Tone::Busy && done > 0;
            is_running.then(|| i128::from(done.min(size)) * 100 / i128::from(size))
        });
        share.map_or_else(|| phase.clone(), |share| format!("{phase} {share}%"))
    }

    fn row(&self, style: Style) -> Vec<String> {
        let state = self.state();
        let bytes = |count: Option<i64>| {
            count
                .and_then(|count| u64::try_from(count).ok())
                .map_or_else(dash, size)
        };
        vec![
            or_dash(&self.claim),
            style.tone(self.tone, &or_dash(&state)),
            bytes(self.size),
            bytes(self.new_bytes),
            self.files.map_or_else(dash, |count| count.to_string()),
            or_dash(&self.place),
            or_dash(&self.problem),
            or_dash(&self.snapshot),
            or_dash(&self.upload),
        ]
    }
}

/// What is known against data that was saved.
fn problem_of_saved(volume: &VolumeView, damaged: &BTreeSet<String>) -> (Tone, String) {
    let problem = match volume.keeper {
        Keeper::VeleroRepository => ONLY_VELERO,
        Keeper::Repository if damaged.contains(&volume.place) => IN_DAMAGED_REPOSITORY,
        Keeper::Repository | Keeper::StorageSystem => return (Tone::Good, String::new()),
    };
    (Tone::Warn, problem.to_owned())
}

const HEADERS: [&str; 9] = [
    "CLAIM", "SAVED AS", "SIZE", "NEW", "FILES", "WHERE", "PROBLEM", "SNAPSHOT", "UPLOAD",
];
const NARROW_COLUMNS: usize = 7;

impl VolumeList {
    pub(crate) fn rows(
        &self,
        wide: bool,
        with_headers: bool,
        style: Style,
    ) -> std::io::Result<String> {
        let headers = if wide {
            &HEADERS[..]
        } else {
            &HEADERS[..NARROW_COLUMNS]
        };
        let rows = self.items.iter().map(|one| one.row(style));
        table(headers, with_headers, rows)
    }

    /// The claims, one on each line.
    pub(crate) fn names(&self) -> String {
        self.items
            .iter()
            .fold(String::new(), |all, one| all + &one.claim + "\n")
    }
}

/// The text if this holds, else an empty one.
fn text_if(holds: bool, text: &str) -> String {
    if holds {
        text.to_owned()
    } else {
        String::new()
    }
}

fn or_dash(text: &str) -> String {
    if text.is_empty() {
        dash()
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::view::transfer::Transfer as _;

    fn transfer(status: &Value) -> TransferView {
        let object = json!({
            "metadata": { "name": "upload-data-1" },
            "spec": { "snapshotType": "CSI", "sourcePVC": "data", "sourceNamespace": "shop", "datamover": "backup-mover",
                "backupStorageLocation": "default", "operationTimeout": "10m0s" },
            "status": status,
        });
        let upload: backup_core::api::DataUpload = serde_json::from_value(object).unwrap();
        upload.view()
    }

    #[test]
    fn data_counts_as_saved_only_where_it_is() {
        for (status, state, place) in [
            (json!({}), "New", ""),
            (
                json!({ "phase": "Accepted", "message": "waits" }),
                "Accepted",
                "",
            ),
            (
                json!({ "phase": "InProgress", "progress": { "totalBytes": 200, "bytesDone": 50 } }),
                "InProgress 25%",
                "",
            ),
            (
                json!({ "phase": "Completed", "snapshotID": "4f1c" }),
                MOVED,
                "restic/shop",
            ),
            // A part of its files is saved.
            (
                json!({ "phase": "Failed", "snapshotID": "4f1c" }),
                MOVED,
                "restic/shop",
            ),
            (json!({ "phase": "Failed" }), "Failed", ""),
            (json!({ "phase": "Canceled" }), "Canceled", ""),
        ] {
            let all = running(&[transfer(&status)]);
            assert_eq!(
                (all[0].state().as_str(), all[0].place.as_str()),
                (state, place),
                "{status}"
            );
        }
    }

    #[test]
    fn a_transfer_adds_what_the_files_do_not_contain() {
        let entry = json!({
            "pvcNamespace": "shop", "pvcName": "data", "backupMethod": "CSISnapshot", "snapshotDataMoved": true, "result": "failed",
            "snapshotDataMovementInfo": { "dataMover": "backup-mover", "uploaderType": "restic", "operationID": "upload-data-1",
                "snapshotHandle": "", "size": 200 },
        });
        let volume: VolumeView = serde_json::from_value(entry).unwrap();
        let why = "the pod was not scheduled";
        let failed = transfer(&json!({ "phase": "Failed", "message": why }));
        let all = stored(std::slice::from_ref(&volume), &[failed], &BTreeSet::new());
        assert_eq!(
            (all[0].problem.as_str(), all[0].state().as_str()),
            (why, "Failed")
        );
        let alone = stored(&[volume], &[], &BTreeSet::new());
        assert_eq!(alone[0].problem, "its data was not moved into the bucket");
        assert_eq!(alone[0].state(), "");
    }
}
