//! Folders left by a deleted Backup of this installation: it was deleted while its store was
//! unavailable, or by force.
//!
//! A committed backup is finished, as the bucket must hold complete backups. Everything else is
//! removed, including snapshots and operations: only this installation knows of them.

use backup_core::api::Backup;
use backup_core::sync::NoteKind;
use backup_store::{
    Abandonment, Claimant, CommittedBackup, FoundJob, IncompleteBackup, Remnant, StoreError,
};
use jiff::{SignedDuration, Timestamp};

use super::{
    folder_outcome::{FolderOutcome, Skip},
    pass::Pass,
};
use crate::{
    backup::Leftovers,
    error::ReconcileError,
    job::{cancellation::StopReason, worker::WorkerError},
};

/// Lifetime of the mark of an abandoned backup: it stops a controller that does not know that it
/// was replaced.
const MARK_TTL: SignedDuration = SignedDuration::from_hours(24);

/// The owner of the folder, if it belongs to this installation and the Backup is gone.
pub(super) async fn owner(
    pass: &Pass<'_>,
    name: &str,
    folder: &IncompleteBackup,
) -> Result<Option<Claimant>, ReconcileError> {
    // Contents without metadata may be the rest of a complete backup.
    if folder.most >= Remnant::Contents {
        return Ok(None);
    }
    let owner = pass.store.claimant_of_backup(name).await?;
    let ours = owner.filter(|owner| owner.is_same_installation(&pass.leftovers.claimant("")));
    // The Backup may have been created since the cluster was listed.
    if ours.is_some() && pass.backup_exists(name).await? {
        return Ok(None);
    }
    Ok(ours)
}

/// Finishes a committed backup, or removes everything that the Backup has left.
pub(super) async fn clean_up(
    pass: &Pass<'_>,
    name: &str,
    folder: &IncompleteBackup,
    owner: &Claimant,
) -> Result<FolderOutcome, ReconcileError> {
    let uid = &owner.uid;
    let gone = Leftovers::gone(&pass.cluster.namespace, name, uid);
    let mut abandonment = remove(pass, &gone, None).await?;
    if abandonment == Abandonment::Committed {
        let found = pass.store.find_job::<Backup>(name, uid).await?;
        let FoundJob::Committed(mut plan) = found else {
            return Ok(unfinished(
                "it has changed while it was checked; it is checked again",
            ));
        };
        match publish(pass, &mut plan).await {
            Ok(()) => {
                return Ok(unfinished(
                    "its end was recorded before it was deleted, and is written now",
                ));
            }
            Err(ReconcileError::Store(StoreError::Lost { .. })) => {
                abandonment = remove(pass, &gone, Some(plan.number())).await?;
            }
            Err(error) => return Err(error),
        }
    }
    let age = folder
        .newest
        .map(|newest| Timestamp::now().duration_since(newest));
    if abandonment == Abandonment::Abandoned && age.is_some_and(|age| age >= MARK_TTL) {
        pass.cluster.leadership.check()?;
        if pass.store.remove_abandoned(name, uid).await? {
            tracing::info!(
                folder = name,
                uid,
                "the folder of a Backup that is gone was removed"
            );
            return Ok(FolderOutcome::Pruned(format!(
                "it was left by the Backup with uid {uid}, which is gone"
            )));
        }
    }
    Ok(unfinished(
        "the Backup is gone, and what it has left is removed; the mark of that goes after a day",
    ))
}

fn unfinished(reason: &str) -> FolderOutcome {
    FolderOutcome::Skipped(Skip::transient(NoteKind::Unfinished, reason))
}

async fn remove(
    pass: &Pass<'_>,
    gone: &Backup,
    lost: Option<u64>,
) -> Result<Abandonment, ReconcileError> {
    Ok(pass.leftovers.remove(gone, Ok(pass.store), lost).await?)
}

async fn publish(pass: &Pass<'_>, plan: &mut CommittedBackup) -> Result<(), ReconcileError> {
    pass.cluster.leadership.check()?;
    let stored = plan.publish().await?;
    tracing::info!(backup = ?stored.metadata.name, "the recorded end of a Backup that is gone was written");
    // The snapshots belong to the backup now, and no controller tracks them.
    pass.leftovers.release_snapshots(&stored).await?;
    Ok(())
}

impl From<WorkerError> for ReconcileError {
    fn from(error: WorkerError) -> Self {
        match error {
            WorkerError::Stopped(StopReason::NotLeader(error)) => Self::NotLeader(error),
            WorkerError::Stopped(reason) => Self::Postponed(reason.to_string()),
            WorkerError::Blocked { reason, .. } => Self::Postponed(reason),
            WorkerError::Conflict | WorkerError::Waiting => {
                Self::Changed("it has changed meanwhile; it is checked again".to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use backup_core::api::BackupPhase;
    use backup_store::Location;
    use backup_testkit::FakeApi;

    use super::*;
    use crate::{backup::Backups, job::JobContext, recent_deletions::RecentDeletions, testing};

    fn location(folder: &tempfile::TempDir) -> Location {
        Location::open(&testing::local_location(folder.path()), None, None).unwrap()
    }

    async fn cleaned(store: &Location) -> String {
        let fake = FakeApi::new();
        let ctx = JobContext::fake(fake.client());
        let leftovers = Backups::fake(&ctx).leftovers(&ctx);
        let location = testing::local_location(std::path::Path::new("/unused"));
        let folder = store.inspect_folder("b").await.unwrap().incomplete.unwrap();
        let pass = Pass {
            cluster: &ctx.cluster,
            locations: &ctx.locations,
            deletions: &RecentDeletions::default(),
            leftovers: &leftovers,
            incomplete_ttl: std::time::Duration::ZERO,
            stop: &ctx.stop,
            location: &location,
            store,
            began: std::time::Duration::ZERO,
        };
        let Some(owner) = owner(&pass, "b", &folder).await.unwrap() else {
            return "another's".to_owned();
        };
        format!(
            "{:?}",
            Box::pin(clean_up(&pass, "b", &folder, &owner))
                .await
                .unwrap()
        )
    }

    #[tokio::test]
    async fn what_is_committed_is_finished_and_the_rest_goes() {
        let folder = tempfile::tempdir().unwrap();
        let store = location(&folder);
        let writer = store
            .open_backup("b", &testing::claimant("gone"))
            .await
            .unwrap();
        let mut end = testing::backup(BackupPhase::Completed);
        (end.metadata.name, end.metadata.uid) = (Some("b".to_owned()), Some("gone".to_owned()));
        let pending = writer.finish().await.unwrap();
        let _committed = pending.commit(&testing::no_files(), &end).await.unwrap();
        let said = Box::pin(cleaned(&store)).await;
        assert_says!(said, "is written now");
        assert_eq!(
            store.read_metadata("b").await.unwrap().unwrap().phase(),
            BackupPhase::Completed
        );

        store.delete_backup("b").await.unwrap();
        drop(
            store
                .open_backup("b", &testing::claimant("gone"))
                .await
                .unwrap(),
        );
        let said = Box::pin(cleaned(&store)).await;
        assert_says!(said, "the mark of that goes after a day");
        assert!(store.read_metadata("b").await.unwrap().is_none());
        assert_eq!(
            pending
                .commit(&testing::no_files(), &end)
                .await
                .unwrap_err()
                .category(),
            "exists"
        );
        assert!(store.remove_abandoned("b", "gone").await.unwrap());
        assert!(store.list_backups().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn what_another_installation_has_left_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let store = location(&folder);
        let other = Claimant {
            installation: "other/velero".to_owned(),
            ..testing::claimant("gone")
        };
        drop(store.open_backup("b", &other).await.unwrap());
        assert_eq!(Box::pin(cleaned(&store)).await, "another's");
    }
}
