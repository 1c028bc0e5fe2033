//! Copies of backups of other locations. Where the original can be read, it is imported, and its
//! copies are recorded in the state of the Backup.

use backup_client::retry;
use backup_core::{
    api::{
        Backup,
        backup::{BackupCopyStatus, CopyPhase},
    },
    sync::{NoteKind, Summary},
    time::whole_seconds,
};
use backup_runtime::retry::{PatchOutcome, status_patch_in};
use backup_store::{CopyNote, StoreError};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;

use super::{
    folder_outcome::Skip,
    pass::{Pass, READ_BUDGET},
    skip_cache::LocationCache,
};
use crate::{copies, error::ReconcileError, location::is_available, restore::is_another};

/// Maximum number of folders that one pass reads for this.
const MAX_READ: usize = 200;

/// Records complete copies in the states of their Backups, and reports all other folders whose name
/// another location uses: `conflicts` has their names, each with that location.
pub(super) async fn adopt_or_report(
    pass: &Pass<'_>,
    conflicts: &[(&str, &str)],
    cache: &mut LocationCache,
    summary: &mut Summary,
    is_requested: bool,
) -> Result<(), ReconcileError> {
    let mut read = 0;
    for (name, other) in conflicts {
        let is_known = cache.skip_now(name, pass.began).is_some() && !is_requested;
        let is_adopted = if is_known || read == MAX_READ {
            false
        } else {
            read += 1;
            match adopt(pass, name).await {
                // Other backups of the pass do not depend on it.
                Err(ReconcileError::Store(error)) => {
                    tracing::debug!(folder = name, %error, "whether it is a copy is not known");
                    false
                }
                adopted => adopted?,
            }
        };
        if is_adopted {
            continue;
        }
        let reason =
            format!("the cluster has a Backup of this name that is stored in location {other}");
        summary.skip(name, NoteKind::Conflict, &reason);
        if !is_known {
            cache.record(name, Skip::new(NoteKind::Conflict, reason), pass.began);
        }
    }
    Ok(())
}

/// Whether the folder holds a complete copy of the Backup, which is recorded now.
async fn adopt(pass: &Pass<'_>, name: &str) -> Result<bool, ReconcileError> {
    let folder = pass.store.inspect_folder(name).await?;
    if !folder.is_copy || folder.metadata.is_none() || !folder.contents {
        return Ok(false);
    }
    let Some(note) = pass.store.copy_note(name).await? else {
        return Ok(false);
    };
    let Some(stored) = pass.store.read_metadata(name).await? else {
        return Ok(false);
    };
    let Some(backup) = pass.backup(name).await? else {
        return Ok(false);
    };
    if is_another(&backup, &stored) {
        return Ok(false);
    }
    let location = pass.location.name_any();
    let state = BackupCopyStatus {
        location: location.clone(),
        phase: Some(CopyPhase::Completed),
        completion_timestamp: Some(Time(whole_seconds(Timestamp::now()))),
        expiration: note.expiration.map(Time),
        uid: note.uid,
        ..BackupCopyStatus::default()
    };
    let adopted = status_patch_in(
        &pass.cluster.api(),
        &pass.cluster.leadership,
        READ_BUDGET,
        &backup,
        |now: &Backup| copies::added(now, &state),
    )
    .await?;
    let is_adopted = matches!(adopted, PatchOutcome::Written(_));
    if is_adopted {
        tracing::info!(backup = name, location, "a copy of the backup was found");
    }
    Ok(is_adopted)
}

/// The location of this cluster that has the original of a copy, and can be read.
pub(super) async fn original_location(
    pass: &Pass<'_>,
    name: &str,
    copy: &CopyNote,
) -> Result<Option<String>, ReconcileError> {
    let own = pass.location.name_any();
    let others = retry::read(READ_BUDGET, || pass.locations.all()).await?;
    for location in others
        .iter()
        .filter(|other| other.name_any() != own && is_available(other))
    {
        let store = pass.locations.store(location).await?;
        if store.url() != copy.source {
            continue;
        }
        let stored = match store.read_metadata(name).await {
            Err(StoreError::Corrupt { .. }) => None,
            stored => stored?,
        };
        if stored.is_some_and(|stored| stored.uid().as_deref() == Some(copy.uid.as_str())) {
            return Ok(Some(location.name_any()));
        }
    }
    Ok(None)
}
