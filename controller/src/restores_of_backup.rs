//! The restores from a backup, read freshly each time.

use backup_core::{
    api::{Backup, Restore, RestorePhase, RestoreSpec},
    labels,
};
use backup_runtime::{Cluster, list};
use kube::{ResourceExt as _, api::DynamicObject};

/// Restores from the backup that have not ended. A restore that names only the backup's schedule
/// may still choose it.
pub(crate) async fn unfinished(
    cluster: &Cluster,
    backup: &Backup,
) -> Result<Vec<String>, kube::Error> {
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

/// Restores from the backup that have ended, with name and uid.
pub(crate) async fn ended(cluster: &Cluster, backup: &Backup) -> Result<Vec<Restore>, kube::Error> {
    let name = backup.name_any();
    list::raw::<Restore, _>(cluster, "", |restore| {
        let uses = restore.data["spec"]["backupName"].as_str() == Some(&name);
        (uses && phase_of(&restore).is_terminal()).then(|| {
            let mut brief = Restore::new(&restore.name_any(), RestoreSpec::default());
            brief.metadata.uid = restore.uid();
            brief
        })
    })
    .await
}

fn phase_of(restore: &DynamicObject) -> RestorePhase {
    match restore.data["status"]["phase"].as_str() {
        None | Some("") => RestorePhase::New,
        Some(phase) => phase.into(),
    }
}
