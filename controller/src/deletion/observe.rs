//! Reads the facts about a request: the backup, the restores that use it, and its store. Nothing is
//! cached.

use backup_client::errors::found;
use backup_core::{
    api::{
        Backup, DeleteBackupRequest, DeleteBackupRequestPhase, Restore, RestorePhase, RestoreSpec,
        delete_backup_request::DeleteBackupRequestSpec,
    },
    labels,
};
use backup_runtime::{Cluster, list};
use jiff::Timestamp;
use kube::{ResourceExt, api::DynamicObject};

use super::decide::{Facts, Store, has_files};
use crate::location::{Locations, is_available, is_read_only};

pub(super) async fn facts(
    cluster: &Cluster,
    locations: &Locations,
    request: &DeleteBackupRequest,
) -> Result<Facts, kube::Error> {
    let name = &request.spec.backup_name;
    let backup = if name.is_empty() {
        None
    } else {
        found(cluster.api::<Backup>().get(name).await, name)?
    };
    let (users, store) = match &backup {
        Some(backup) => (
            users(cluster, backup).await?,
            store(locations, backup).await,
        ),
        None => (Vec::new(), Store::Ready),
    };
    Ok(Facts {
        backup,
        users,
        store,
        now: Timestamp::now(),
    })
}

/// Restores from the backup that have not ended. A restore that names only the backup's schedule
/// may still choose it.
pub(super) async fn users(cluster: &Cluster, backup: &Backup) -> Result<Vec<String>, kube::Error> {
    let name = backup.name_any();
    let schedule = backup.schedule();
    list::raw::<Restore, _>(cluster, "", |restore| {
        let from = restore.data["spec"]["backupName"]
            .as_str()
            .filter(|name| !name.is_empty());
        let follows = restore.data["spec"]["scheduleName"]
            .as_str()
            .map(labels::valid_value);
        let uses = from.map_or_else(
            || follows.is_some() && follows.as_deref() == schedule,
            |from| from == name,
        );
        let phase = phase_of(&restore);
        (uses && !phase.is_terminal()).then(|| format!("{} ({phase})", restore.name_any()))
    })
    .await
}

pub(super) async fn ended_restores(
    cluster: &Cluster,
    backup: &Backup,
) -> Result<Vec<Restore>, kube::Error> {
    let name = backup.name_any();
    list::raw::<Restore, _>(cluster, "", |restore| {
        let uses = restore.data["spec"]["backupName"].as_str() == Some(&name);
        (uses && phase_of(&restore).is_terminal()).then(|| {
            // Enough to delete it: name and uid.
            let mut brief = Restore::new(&restore.name_any(), RestoreSpec::default());
            brief.metadata.uid = restore.uid();
            brief
        })
    })
    .await
}

/// Requests to delete the backup of this name and uid. A request without a uid may mean a backup
/// created since, so it only counts once it was answered.
pub(super) async fn requests_for(
    cluster: &Cluster,
    backup: &str,
    uid: Option<&str>,
) -> Result<Vec<DeleteBackupRequest>, kube::Error> {
    list::raw::<DeleteBackupRequest, _>(cluster, "", |request| {
        let label = request.labels().get(labels::BACKUP_UID).map(String::as_str);
        let answered = request.data["status"]["phase"].as_str()
            == Some(DeleteBackupRequestPhase::Processed.as_str());
        let meant = if label.is_some() {
            label == uid
        } else {
            answered
        };
        let same = request.data["spec"]["backupName"].as_str() == Some(backup) && meant;
        same.then(|| {
            let mut brief =
                DeleteBackupRequest::new(&request.name_any(), DeleteBackupRequestSpec::default());
            brief.metadata.uid = request.uid();
            brief
        })
    })
    .await
}

async fn store(locations: &Locations, backup: &Backup) -> Store {
    if !has_files(backup) {
        return Store::Ready;
    }
    match locations.of_backup(backup).await {
        Err(error) if error.is_transient() => Store::Unknown(error.to_string()),
        Err(error) => Store::Never(error.to_string()),
        Ok(location) => {
            let name = location.name_any();
            if is_read_only(&location) {
                Store::Never(format!(
                    "BackupStorageLocation {name} is read-only: set spec.accessMode to ReadWrite to delete backups"
                ))
            } else if is_available(&location) {
                Store::Ready
            } else if location.status.phase.is_none() {
                Store::Unknown(format!(
                    "BackupStorageLocation {name} was not validated yet"
                ))
            } else {
                let message = location
                    .status
                    .message
                    .unwrap_or_else(|| format!("BackupStorageLocation {name} is unavailable"));
                Store::NotNow(format!("its files can not be deleted now: {message}"))
            }
        }
    }
}

fn phase_of(restore: &DynamicObject) -> RestorePhase {
    match restore.data["status"]["phase"].as_str() {
        None | Some("") => RestorePhase::New,
        Some(phase) => phase.into(),
    }
}
