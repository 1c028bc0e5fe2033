//! Snapshots of volumes that plugins have taken for a backup that is deleted.

use backup_core::{api::Backup, snapshot::VolumeSnapshot};
use backup_store::{Location, StoreError};
use kube::ResourceExt as _;

use super::{act::Error, decide::owns_files};
use crate::{backup::volume_snapshots, context::Context};

/// Deletes them in their storage systems. Each that stays is one of `errors`, and the backup stays, too: nobody else knows of
/// them. May be done again.
pub(super) async fn delete(
    ctx: &Context,
    backup: &Backup,
    store: &Location,
    errors: &mut Vec<String>,
) -> Result<(), Error> {
    let name = backup.name_any();
    let values = match store.read_volume_snapshots(&name).await {
        Ok(Some(values)) if !values.is_empty() => values,
        Ok(_) => return Ok(()),
        Err(error) if error.is_transient() => return Err(Error::Store(error)),
        Err(error) => {
            tracing::warn!(backup = name, %error, "its snapshots by plugins are not known, and may stay in the storage system");
            return Ok(());
        }
    };
    // Files under this name may be those of another backup.
    let stored = match store.read_metadata(&name).await {
        Ok(stored) => stored,
        Err(StoreError::Corrupt { .. }) => None,
        Err(error) if error.is_transient() => return Err(Error::Store(error)),
        Err(error) => {
            errors.push(error.to_string());
            return Ok(());
        }
    };
    if !owns_files(backup, stored.as_ref()) {
        return Ok(());
    }
    let mut snapshots = Vec::with_capacity(values.len());
    for value in values {
        match serde_json::from_value::<VolumeSnapshot>(value) {
            Ok(snapshot) => snapshots.push(snapshot),
            Err(error) => {
                errors.push(format!("a snapshot that is recorded for the backup can't be read: {error}"));
            }
        }
    }
    errors.extend(volume_snapshots::delete(ctx, &snapshots).await?);
    Ok(())
}
