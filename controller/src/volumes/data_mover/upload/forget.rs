//! Removes snapshots that no backup will name from the repository, once the pods of an upload are
//! gone and write no more.

use backup_core::{
    api::{Backup, DataUpload},
    event_reason::EventReason,
    labels::BACKUP_UID,
};
use backup_store::Location;
use jiff::Timestamp;
use kube::{Resource as _, ResourceExt as _};

use super::{
    Uploads,
    decide::unneeded::{
        BackupState, is_given_up, is_marked, is_unneeded, may_have_unneeded, recorded,
    },
};
use crate::{
    error::ReconcileError,
    location::is_read_only,
    volumes::moved_snapshots::{self, BackupSnapshots},
};

impl Uploads {
    /// Returns whether it is done, or was given up, which an event says. To be repeated until then.
    pub(super) async fn forget_unneeded(
        &self,
        upload: &DataUpload,
    ) -> Result<bool, ReconcileError> {
        if !may_have_unneeded(upload) {
            return Ok(true);
        }
        let error = match self.forget(upload).await {
            Ok(()) => return Ok(true),
            Err(error @ ReconcileError::NotLeader(_)) => return Err(error),
            Err(error) => error,
        };
        let name = upload.name_any();
        if error.is_transient() && !is_given_up(upload, Timestamp::now()) {
            tracing::info!(upload = name, %error, "its unneeded snapshots are not removed yet");
            return Ok(false);
        }
        let note = format!(
            "snapshots that no backup names may stay in the repository of namespace {} until the backup of this \
             DataUpload is deleted: {error}",
            upload.spec.source_namespace
        );
        tracing::warn!(upload = name, note, "its unneeded snapshots stay");
        let events = &self.mover.cluster.events;
        events.warning(upload, EventReason::SnapshotsNotRemoved, &note);
        Ok(true)
    }

    async fn forget(&self, upload: &DataUpload) -> Result<(), ReconcileError> {
        let spec = &upload.spec;
        let name = &spec.backup_storage_location;
        let (location, store) = self.mover.locations.open(name).await?;
        if is_read_only(&location) {
            return Err(ReconcileError::Impossible(format!(
                "BackupStorageLocation {name} is read-only"
            )));
        }
        let namespace = &spec.source_namespace;
        let backup = backup_state(upload, &store).await?;
        let mut snapshots = BackupSnapshots::default();
        let named = recorded(upload).filter(|id| is_unneeded(upload, backup, id));
        if let Some(id) = named {
            snapshots.add(namespace, id);
        }
        if let Some(backup_uid) = upload.labels().get(BACKUP_UID) {
            let uid = upload.uid();
            for note in store.snapshot_notes(namespace, backup_uid).await? {
                if Some(&note.upload) == uid.as_ref() && is_unneeded(upload, backup, &note.snapshot)
                {
                    snapshots.add_note(namespace, note);
                }
            }
        }
        let count = snapshots.count();
        let leadership = &self.mover.cluster.leadership;
        moved_snapshots::forget(leadership, &store, snapshots, true).await?;
        if count > 0 {
            let upload = upload.name_any();
            tracing::info!(upload, count, ?backup, "unneeded snapshots were removed");
        }
        Ok(())
    }
}

/// The mark of an abandoned backup is checked once more, as data is removed for good: a backup with
/// metadata in the store may name the snapshot.
async fn backup_state(
    upload: &DataUpload,
    store: &Location,
) -> Result<BackupState, ReconcileError> {
    if !is_marked(upload) {
        return Ok(BackupState::MayBeStored);
    }
    let kind = Backup::kind(&());
    let owners = upload.owner_references();
    let Some(owner) = owners.iter().find(|owner| owner.kind == kind) else {
        return Ok(BackupState::MayBeStored);
    };
    let stored = store.read_metadata(&owner.name).await?;
    let is_stored = stored.is_some_and(|stored| stored.uid().as_ref() == Some(&owner.uid));
    Ok(if is_stored {
        BackupState::MayBeStored
    } else {
        BackupState::Abandoned
    })
}
