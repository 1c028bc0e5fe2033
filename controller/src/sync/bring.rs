//! Bringing backups that are only in the bucket into the cluster.

use std::time::Duration;

use backup_core::{api::Backup, labels::SYNC_PENDING_ANNOTATION, sync::Summary};
use backup_runtime::{
    delete,
    errors::{is_conflict, is_transient, plain},
    retry,
};
use backup_store::{IncompleteBackup, SideFile, StoreError, crash};
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use kube::{Api, ResourceExt as _, api::PostParams};
use tokio::sync::Semaphore;

use super::{
    arrive::{self, Place},
    error::Error,
    extras,
    memory::{Remembered, Skip},
    observe::Facts,
    pass::Pass,
    stray,
};

/// Backups that are read and created at the same time.
const AT_ONCE: usize = 32;
/// Memory for metadata that is being read and decoded (KiB), of all that are looked at.
const ROOM: u32 = 64 * 1024;
/// How many times its size metadata takes when it is decoded, about.
const DECODED: u64 = 4;
/// After so many failures of the store or the API server in a row it is not only this backup that is concerned.
const FAILURES: usize = 40;
/// If so many have failed, and more than not, the pass has not come to its end.
const MANY: usize = 8;
/// How long a creation is tried.
const BUDGET: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(15);

/// What became of one folder.
enum Outcome {
    /// It is in the cluster now.
    Created,
    /// It is not, for this reason.
    Skipped(Skip),
    /// There is nothing to say: it has come into the cluster another way, or left the bucket.
    Settled,
    /// It held no backup, and was removed from the bucket.
    Pruned(String),
    /// It could not be looked at now.
    Failed(String),
}

/// FlushRequests at every folder and creates what is to be created.
///
/// # Errors
/// The store or the API server have stopped answering, or this replica must not write.
pub(super) async fn all(
    pass: &Pass<'_>,
    facts: &Facts,
    folders: Vec<String>,
    remembered: &mut Remembered,
    summary: &mut Summary,
) -> Result<(), Error> {
    let room = &Semaphore::new(ROOM as usize);
    let mut outcomes = stream::iter(folders)
        .map(|folder| async move {
            let outcome = one(pass, facts, room, &folder).await;
            (folder, outcome)
        })
        .buffer_unordered(AT_ONCE);
    let (mut failures, mut failed, mut others) = (0, 0, 0);
    let mut last = String::new();
    while let Some((folder, outcome)) = outcomes.next().await {
        if pass.ctx.stop.is_cancelled() {
            return Err(Error::Ending);
        }
        if !matches!(outcome, Ok(Outcome::Failed(_))) {
            (failures, others) = (0, others + 1);
        }
        match outcome? {
            Outcome::Created => summary.created += 1,
            Outcome::Settled => {}
            Outcome::Pruned(reason) => {
                summary.pruned += 1;
                summary.note(&folder, "pruned", &reason);
            }
            Outcome::Skipped(skip) => {
                summary.skip(&folder, skip.what, &skip.reason);
                remembered.skipped(&folder, skip, pass.began);
            }
            Outcome::Failed(reason) => {
                (failures, failed) = (failures + 1, failed + 1);
                summary.skip(&folder, "failed", &reason);
                if failures >= FAILURES {
                    return Err(Error::BrokenOff(failures, reason));
                }
                last = reason;
            }
        }
    }
    if failed >= MANY && failed > others { Err(Error::BrokenOff(failed, last)) } else { Ok(()) }
}

/// Errors: this replica must not write.
async fn one(pass: &Pass<'_>, facts: &Facts, room: &Semaphore, name: &str) -> Result<Outcome, Error> {
    if facts.deletions.contains(name) {
        let reason = "a DeleteBackupRequest names it, so its deletion may have begun; delete the request to have it back";
        return Ok(Outcome::Skipped(Skip::passing("deleting", reason)));
    }
    let (stored, lists) = match read(pass, room, name).await {
        Ok(Read::Stored(stored, lists)) => (*stored, lists),
        Ok(Read::Nothing) => return Ok(Outcome::Settled),
        Ok(Read::Skip(skip)) => return Ok(Outcome::Skipped(skip)),
        Ok(Read::Stray(found)) => {
            return match Box::pin(stray::look(pass, name, &found)).await {
                Ok(stray::Outcome::Told(skip)) => Ok(Outcome::Skipped(skip)),
                Ok(stray::Outcome::Removed) => {
                    let since = found.newest.map(|newest| newest.to_string()).unwrap_or_default();
                    Ok(Outcome::Pruned(format!(
                        "it held no backup, and nothing was written to it since {since}"
                    )))
                }
                Err(error @ (Error::NotLeader(_) | Error::Changed)) => Err(error),
                Err(error) => Ok(Outcome::Failed(error.to_string())),
            };
        }
        Err(error) => return Ok(Outcome::Failed(error.to_string())),
    };
    let location = pass.location.name_any();
    let place = Place {
        namespace: &pass.ctx.cluster.namespace,
        location: &location,
        schedules: facts.schedules.as_ref(),
        now: Timestamp::now(),
    };
    let mut backup = match arrive::arriving(stored, &place) {
        Ok(backup) => backup,
        Err(skip) => return Ok(Outcome::Skipped(skip)),
    };
    if !lists.is_empty() {
        // Whoever finds it creates what is missing; taken off when all of it is there.
        backup.annotations_mut().insert(SYNC_PENDING_ANNOTATION.to_owned(), String::new());
    }
    let created = match create(pass, &backup).await? {
        Ok(created) => created,
        Err(outcome) => return Ok(outcome),
    };
    crash::point("after-synced");
    if !lists.is_empty()
        && let Err(reason) = extras::bring(pass, &created, &lists).await?
    {
        tracing::info!(
            backup = name,
            reason,
            "objects that belong to the backup are created in the next pass"
        );
    }
    Ok(Outcome::Created)
}

enum Read {
    Stored(Box<Backup>, Vec<SideFile>),
    /// There is no metadata.
    Stray(IncompleteBackup),
    /// The folder has gone since it was listed.
    Nothing,
    Skip(Skip),
}

/// What the bucket has of it: one listing, and the metadata if there is any.
async fn read(pass: &Pass<'_>, room: &Semaphore, name: &str) -> Result<Read, StoreError> {
    let folder = match pass.store.inspect_folder(name).await {
        Err(error @ StoreError::Config { .. }) => {
            return Ok(Read::Skip(Skip::new("not_a_name", error.to_string())));
        }
        other => other?,
    };
    if !folder.has_anything {
        return Ok(Read::Nothing);
    }
    let Some(size) = folder.metadata else {
        return Ok(folder.incomplete.map_or(Read::Nothing, Read::Stray));
    };
    if folder.metadata_too_large {
        let reason = "its velero-backup.json is larger than any Backup can be, and was not read";
        return Ok(Read::Skip(Skip::new("unreadable", reason)));
    }
    // Velero deletes a folder's files in the order of their names, so its metadata goes last.
    if !folder.contents {
        let reason = format!(
            "there is no {name}.tar.gz beside its metadata: its deletion has begun, or it was never whole"
        );
        return Ok(Read::Skip(Skip::new("deleting", reason)));
    }
    let wanted = u32::try_from(size * DECODED / 1024).unwrap_or(ROOM).clamp(1, ROOM);
    // Never closed.
    let _room = room.acquire_many(wanted).await;
    match pass.store.read_metadata(name).await {
        Ok(Some(stored)) => Ok(Read::Stored(Box::new(stored), folder.lists)),
        Ok(None) => Ok(Read::Nothing),
        Err(error @ StoreError::Corrupt { .. }) => Ok(Read::Skip(Skip::new("unreadable", error.to_string()))),
        Err(error) => Err(error),
    }
}

/// Creates the Backup: create-only, so one that is there stays what it is. The inner error is what to say instead.
async fn create(pass: &Pass<'_>, backup: &Backup) -> Result<Result<Backup, Outcome>, Error> {
    let (ctx, name) = (pass.ctx, backup.name_any());
    let deleting = || Outcome::Skipped(Skip::passing("deleting", "it was deleted while it was being read"));
    let api: Api<Backup> = ctx.cluster.api();
    let created = retry::read(BUDGET, || async {
        // Asked before every try.
        if let Err(error) = ctx.cluster.leadership.check() {
            return Ok(Err(Error::NotLeader(error)));
        }
        // It was read before. In this cluster only this process deletes, and it says so before it does.
        if ctx.deletions.since(&name, pass.began) {
            return Ok(Ok(None));
        }
        let limit = ctx.cluster.leadership.request_timeout(TIMEOUT);
        let params = PostParams::default();
        let created = tokio::time::timeout(limit, api.create(&params, backup)).await;
        let created = created
            .unwrap_or_else(|_| Err(kube::Error::Service(format!("no answer within {limit:?}").into())));
        created.map(|created| Ok(Some(created)))
    })
    .await;
    match created {
        Ok(Err(error)) => Err(error),
        Ok(Ok(None)) => Ok(Err(deleting())),
        Ok(Ok(Some(created))) => {
            if ctx.deletions.since(&name, pass.began) {
                delete::delete(&ctx.cluster, &created).await?;
                return Ok(Err(deleting()));
            }
            Ok(Ok(created))
        }
        Err(error) if is_conflict(&error) => Ok(Err(Outcome::Settled)),
        Err(error) if is_transient(&error) => {
            Ok(Err(Outcome::Failed(format!("the Backup could not be created: {}", plain(&error)))))
        }
        Err(error) => {
            let reason = format!("the API server does not take it: {}", plain(&error));
            Ok(Err(Outcome::Skipped(Skip::new("refused", reason))))
        }
    }
}

#[cfg(test)]
mod tests {
    use backup_core::api::{BackupSpec, BackupStorageLocation, BackupStorageLocationSpec};
    use backup_testkit::{FakeApi, velero_path};

    use backup_runtime::clock::Clock;

    use super::*;
    use crate::context::Context;

    const BACKUPS: &str = "/apis/velero.io/v1/namespaces/velero/backups";

    /// When the deletion of a backup begins that a pass has read from the bucket.
    #[derive(Clone, Copy, Debug)]
    enum Deleted {
        Never,
        BeforeThePass,
        BeforeTheCreation,
        DuringTheCreation,
    }

    #[rstest::rstest]
    #[case(Deleted::Never, true, 1)]
    #[case(Deleted::BeforeThePass, true, 1)]
    #[case(Deleted::BeforeTheCreation, false, 0)]
    #[case(Deleted::DuringTheCreation, false, 2)]
    #[tokio::test]
    async fn a_backup_whose_deletion_began_since_it_was_read_does_not_come_back(
        #[case] deleted: Deleted,
        #[case] is_there: bool,
        #[case] writes: u64,
    ) {
        let (api, folder) = (FakeApi::new(), tempfile::tempdir().unwrap());
        let ctx = Context::fake(api.client());
        let mut spec = BackupStorageLocationSpec { provider: "local".to_owned(), ..Default::default() };
        spec.object_storage.bucket = folder.path().to_str().unwrap().to_owned();
        let location = BackupStorageLocation::new("default", spec);
        let store = backup_store::Location::open(&location, None, None).unwrap();

        if matches!(deleted, Deleted::BeforeThePass) {
            ctx.deletions.note("b");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let pass = Pass { ctx: &ctx, location: &location, store: &store, began: Clock::Boot.now() };
        match deleted {
            Deleted::Never | Deleted::BeforeThePass => {}
            Deleted::BeforeTheCreation => ctx.deletions.note("b"),
            Deleted::DuringTheCreation => {
                let deletions = ctx.deletions.clone();
                api.before("POST", BACKUPS, move |_| deletions.note("b"));
            }
        }
        let mut backup = Backup::new("b", BackupSpec::default());
        backup.metadata.namespace = Some("velero".to_owned());
        let created = create(&pass, &backup).await.unwrap();
        assert_eq!(created.is_ok(), is_there, "{deleted:?}");
        assert_eq!(api.get(&velero_path("Backup", "b")).is_some(), is_there, "{deleted:?}");
        assert_eq!(api.writes(), writes, "{deleted:?}");
    }
}
