//! Data of volumes in a repository of files by Velero. We cannot delete it, and it would be unknown
//! to all afterwards, so such a backup is kept until a user has decided about the data. (For data
//! that our data mover has saved see `volume_data`.)

use backup_core::{
    api::{Backup, DeleteBackupRequest},
    labels::FORGET_DATA_ANNOTATION,
    repository_data::RepositoryVolume,
};
use backup_store::StoreError;
use kube::ResourceExt as _;

use super::{
    DeletionController, copies,
    decide::{has_files, owns_files},
};
use crate::error::ReconcileError;

/// Maximum number of volumes in a message.
const MAX_VOLUMES: usize = 5;

impl DeletionController {
    /// Why the deletion does not begin, if the backup has such data and no annotation gives it up.
    pub(super) async fn keeps_for_its_data(
        &self,
        request: &DeleteBackupRequest,
        backup: &Backup,
    ) -> Result<Option<String>, ReconcileError> {
        let given_up = [request.annotations(), backup.annotations()]
            .iter()
            .any(|annotations| annotations.contains_key(FORGET_DATA_ANNOTATION));
        if given_up || !has_files(backup) {
            return Ok(None);
        }
        let store = self
            .locations
            .store(&self.locations.of_backup(backup).await?)
            .await?;
        if copies::is_copy(backup, &store).await? {
            return Ok(None);
        }
        let volumes = match store
            .saved_volumes(backup)
            .await
            .map(|saved| saved.in_repository)
        {
            // That is a reason why users delete a broken backup.
            Err(StoreError::Corrupt { .. }) => Vec::new(),
            volumes => volumes?,
        };
        if volumes.is_empty() {
            return Ok(None);
        }
        // Files under this name may belong to another backup.
        let stored = match store.read_metadata(&backup.name_any()).await {
            Err(StoreError::Corrupt { .. }) => None,
            stored => stored?,
        };
        Ok(owns_files(backup, stored.as_ref()).then(|| reason(&backup.name_any(), &volumes)))
    }
}

fn reason(backup: &str, volumes: &[RepositoryVolume]) -> String {
    let mut names: Vec<String> = volumes
        .iter()
        .take(MAX_VOLUMES)
        .map(ToString::to_string)
        .collect();
    if let Some(more) = volumes
        .len()
        .checked_sub(MAX_VOLUMES)
        .filter(|more| *more > 0)
    {
        names.push(format!("{more} more"));
    }
    format!(
        "nothing was deleted: backup {backup} has data in a repository of files, which only a Velero server can delete ({}). \
         Delete the backup with Velero; or give that data up with `kubectl backup delete {backup} --forget-data`, or the \
         annotation {FORGET_DATA_ANNOTATION} on the Backup, which retention obeys, too",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_names_some_volumes_and_what_to_do() {
        let volume = |claim: usize| RepositoryVolume {
            namespace: "shop".to_owned(),
            claim: Some(format!("c{claim}")),
            mount: None,
        };
        let one = reason("b", &[volume(1)]);
        assert!(
            one.contains("(claim shop/c1)") && one.contains("delete b --forget-data"),
            "{one}"
        );
        let many = reason("b", &(0..7).map(volume).collect::<Vec<_>>());
        assert!(many.contains("claim shop/c4, 2 more)"), "{many}");
    }
}
