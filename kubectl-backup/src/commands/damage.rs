//! Repositories of volume data of which damage is known.

use backup_core::api::BackupRepository;

use super::prelude::*;
use crate::view::repository::DamagedRepository;

/// All of the installation. None if they cannot be read: who reads backups reads them, too.
pub(super) async fn damaged_repositories(session: &Session) -> Vec<DamagedRepository> {
    let found = session.list_readable(ListParams::default(), |one: BackupRepository| {
        DamagedRepository::of(&one)
    });
    found.await.unwrap_or_default()
}

/// Those in the location of a backup.
pub(super) async fn in_location_of(session: &Session, backup: &Backup) -> Vec<DamagedRepository> {
    let location = backup.spec.storage_location.as_deref().unwrap_or_default();
    let mut all = damaged_repositories(session).await;
    all.retain(|one| one.location == location);
    all
}
