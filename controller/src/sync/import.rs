//! Imports backups that are only in the bucket into the cluster.

use backup_core::sync::NoteKind;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use backup_client::{
    errors::{is_conflict, is_transient, plain},
    retry,
};
use backup_core::{
    api::{Backup, DeleteBackupRequest, DeleteBackupRequestPhase, Schedule},
    labels::{
        BACKUP_UID, COPY_OF_ANNOTATION, DATA_ELSEWHERE_ANNOTATION, IMPORTED_ANNOTATION,
        MISSING_DATA_ANNOTATION, STORED_SCOPE_ANNOTATION, SYNC_PENDING_ANNOTATION,
    },
    stored_scope,
    sync::Summary,
    text::counted,
    volume_data::MissingData,
};
use backup_runtime::{delete, list, retry::WRITE_TIMEOUT};
use backup_store::{CopyNote, IncompleteBackup, SavedVolumes, SideFile, StoreError, crash};
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Api, ResourceExt as _, api::PostParams};
use tokio::sync::Semaphore;

use super::{
    copies,
    folder_outcome::{FolderOutcome, Skip},
    incomplete_backup,
    pass::Pass,
    sanitize::{ImportTarget, sanitize},
    side_objects,
    skip_cache::LocationCache,
};
use crate::error::ReconcileError;

/// Maximum number of backups that are read and created concurrently.
const CONCURRENCY: usize = 32;
/// Memory for metadata that is being read and decoded, in total (KiB).
const MAX_METADATA_KIB: u32 = 64 * 1024;
/// Approximate memory of decoded metadata per stored byte.
const MEMORY_PER_STORED_BYTE: u64 = 4;
/// Consecutive failures of the store or the API server that abort the pass.
const MAX_FAILURES_IN_A_ROW: usize = 40;
/// Minimum failures for the pass to count as failed, if they are also the majority.
const MIN_FAILURES: usize = 8;
/// How long the import waits for a tarball that Velero stores after the metadata.
const TARBALL_GRACE: Duration = Duration::from_hours(1);
const RETRY_BUDGET: Duration = Duration::from_secs(30);

/// Reads every folder and creates the missing Backups.
pub(super) async fn import_all(
    pass: &Pass<'_>,
    folders: Vec<String>,
    cache: &mut LocationCache,
    summary: &mut Summary,
) -> Result<(), ReconcileError> {
    let facts = &facts(pass).await?;
    let memory = &Semaphore::new(MAX_METADATA_KIB as usize);
    let mut outcomes = stream::iter(folders)
        .map(|folder| async move {
            let outcome = import(pass, facts, memory, &folder).await;
            (folder, outcome)
        })
        .buffer_unordered(CONCURRENCY);
    let mut in_a_row = 0;
    let mut failed = 0;
    let mut others = 0;
    let mut last = String::new();
    while let Some((folder, outcome)) = outcomes.next().await {
        if pass.stop.is_cancelled() {
            let why = "the process is asked to end; the next one compares the rest";
            return Err(ReconcileError::Postponed(why.to_owned()));
        }
        if !matches!(outcome, Ok(FolderOutcome::Failed(_))) {
            in_a_row = 0;
            others += 1;
        }
        match outcome? {
            FolderOutcome::Created(gap) => {
                summary.created += 1;
                if let Some(gap) = gap {
                    summary.note(&folder, NoteKind::Incomplete, &gap);
                }
            }
            FolderOutcome::Settled => {}
            FolderOutcome::Pruned(reason) => {
                summary.pruned += 1;
                summary.note(&folder, NoteKind::Pruned, &reason);
            }
            FolderOutcome::Skipped(skip) => {
                summary.skip(&folder, skip.what.clone(), &skip.reason);
                cache.record(&folder, skip, pass.began);
            }
            FolderOutcome::Failed(reason) => {
                in_a_row += 1;
                failed += 1;
                summary.skip(&folder, NoteKind::Failed, &reason);
                if in_a_row >= MAX_FAILURES_IN_A_ROW {
                    return Err(broken_off(in_a_row, &reason));
                }
                last = reason;
            }
        }
    }
    if failed >= MIN_FAILURES && failed > others {
        Err(broken_off(failed, &last))
    } else {
        Ok(())
    }
}

fn broken_off(failures: usize, last: &str) -> ReconcileError {
    ReconcileError::Postponed(format!(
        "it was broken off after {}, the rest is compared in the next pass: {last}",
        counted(failures, "failure")
    ))
}

/// Facts about the cluster for the creation of backups.
struct Facts {
    /// Uids of the Schedules, by name; `None` if they could not be listed.
    schedules: Option<HashMap<String, String>>,
    /// Names of backups whose deletion was requested and may have begun.
    deletions: BTreeSet<String>,
}

async fn facts(pass: &Pass<'_>) -> Result<Facts, kube::Error> {
    let deletions = list::raw::<DeleteBackupRequest, _>(pass.cluster, "", |request| {
        // A deletion that was answered with errors has begun only if a label names its backup: the
        // label is set at the start.
        let answered = request.data["status"]["phase"].as_str()
            == Some(DeleteBackupRequestPhase::Processed.as_str());
        let begun = !answered || request.labels().contains_key(BACKUP_UID);
        begun.then(|| {
            request.data["spec"]["backupName"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        })
    })
    .await?;
    let schedules = list::raw::<Schedule, _>(pass.cluster, "", |schedule| {
        Some((schedule.name_any(), schedule.uid()?))
    })
    .await
    .inspect_err(|error| {
        tracing::warn!(%error, "Schedules cannot be listed; backups that one of them owns are left for the next pass");
    });
    let schedules = schedules.ok().map(|all| all.into_iter().collect());
    Ok(Facts {
        schedules,
        deletions: deletions.into_iter().collect(),
    })
}

async fn import(
    pass: &Pass<'_>,
    facts: &Facts,
    memory: &Semaphore,
    name: &str,
) -> Result<FolderOutcome, ReconcileError> {
    if facts.deletions.contains(name) {
        let reason = "a DeleteBackupRequest names it, so its deletion may have begun; delete the request to have it back";
        return Ok(FolderOutcome::Skipped(Skip::transient(
            NoteKind::Deleting,
            reason,
        )));
    }
    let stored = match read(pass, memory, name).await {
        Ok(FolderContents::Stored(stored)) => stored,
        Ok(FolderContents::Nothing) => return Ok(FolderOutcome::Settled),
        Ok(FolderContents::Skip(skip)) => return Ok(FolderOutcome::Skipped(skip)),
        Ok(FolderContents::Incomplete(folder)) => {
            return match Box::pin(incomplete_backup::report_or_remove(pass, name, &folder)).await {
                Err(error @ (ReconcileError::NotLeader(_) | ReconcileError::Changed(_))) => {
                    Err(error)
                }
                Err(error) => Ok(FolderOutcome::Failed(error.to_string())),
                outcome => outcome,
            };
        }
        Err(error) => return Ok(FolderOutcome::Failed(error.to_string())),
    };
    let now = Timestamp::now();
    let (stored, lists, copy) = match stored {
        StoredBackup {
            backup,
            newer_metadata: Some(written),
            ..
        } if awaits_tarball(&backup, written, now) => {
            let reason = format!(
                "its {name}.tar.gz is older than its metadata: Velero stores it once more when operations have ended; it is imported \
                 when that was done, or {} hour after the metadata was written",
                TARBALL_GRACE.as_secs() / 3600
            );
            return Ok(FolderOutcome::Skipped(Skip::transient(
                NoteKind::Unfinished,
                reason,
            )));
        }
        StoredBackup {
            backup,
            lists,
            copy,
            ..
        } => (*backup, lists, copy),
    };
    if let Some(copy) = &copy {
        match Box::pin(copies::original_location(pass, name, copy)).await {
            Ok(None) => {}
            Ok(Some(location)) => {
                let reason = format!("its original is in location {location}, which imports it");
                return Ok(FolderOutcome::Skipped(Skip::transient(
                    NoteKind::Copy,
                    reason,
                )));
            }
            Err(error) => return Ok(FolderOutcome::Failed(error.to_string())),
        }
    }
    let gaps = match gaps(pass, &stored, copy.is_some()).await {
        Ok(gaps) => gaps,
        Err(error) => return Ok(FolderOutcome::Failed(error.to_string())),
    };
    let noted = gaps.annotations(&stored);
    let target = ImportTarget {
        namespace: &pass.cluster.namespace,
        location: &pass.location.name_any(),
        schedules: facts.schedules.as_ref(),
        now,
    };
    let mut backup = match sanitize(stored, &target) {
        Ok(backup) => backup,
        Err(skip) => return Ok(FolderOutcome::Skipped(skip)),
    };
    backup.annotations_mut().extend(noted);
    if let Some(copy) = copy {
        // Each copy has a time of its own.
        backup.status.expiration = copy.expiration.map(Time);
        backup
            .annotations_mut()
            .insert(COPY_OF_ANNOTATION.to_owned(), copy.source);
    }
    if !lists.is_empty() {
        // Removed when all side objects exist; a later pass creates what is missing.
        backup
            .annotations_mut()
            .insert(SYNC_PENDING_ANNOTATION.to_owned(), String::new());
    }
    let created = match create(pass, &backup).await? {
        Ok(created) => created,
        Err(outcome) => return Ok(outcome),
    };
    crash::point("after-synced");
    if !lists.is_empty()
        && let Some(reason) = side_objects::create_all(pass, &created, &lists).await?
    {
        tracing::info!(
            backup = name,
            reason,
            "objects that belong to the backup are created in the next pass"
        );
    }
    Ok(FolderOutcome::Created(gaps.sentence()))
}

/// The volumes of a backup whose data cannot be restored from it in this cluster.
struct Gaps {
    missing: MissingData,
    elsewhere: Option<MissingData>,
}

impl Gaps {
    fn annotations(&self, stored: &Backup) -> BTreeMap<String, String> {
        let mut all = BTreeMap::from([
            (
                MISSING_DATA_ANNOTATION.to_owned(),
                self.missing.annotation(),
            ),
            (IMPORTED_ANNOTATION.to_owned(), Timestamp::now().to_string()),
        ]);
        let elsewhere = self.elsewhere.as_ref().map(MissingData::annotation);
        all.extend(elsewhere.map(|text| (DATA_ELSEWHERE_ANNOTATION.to_owned(), text)));
        let scope = stored_scope::annotation(&stored.spec);
        all.extend(scope.map(|text| (STORED_SCOPE_ANNOTATION.to_owned(), text)));
        all
    }

    fn sentence(&self) -> Option<String> {
        let missing = (self.missing.missing > 0).then(|| self.missing.sentence("is not in it"));
        let elsewhere = self
            .elsewhere
            .as_ref()
            .map(|data| data.sentence("cannot be restored here"));
        let all: Vec<String> = missing.into_iter().chain(elsewhere).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// As recorded in the backup, if our controller has made it; otherwise from its lists of volumes. Of
/// a copy, all data outside of its files is elsewhere.
async fn gaps(pass: &Pass<'_>, stored: &Backup, is_copy: bool) -> Result<Gaps, StoreError> {
    let noted = stored.annotations().get(MISSING_DATA_ANNOTATION);
    let noted: Option<MissingData> = noted.and_then(|text| serde_json::from_str(text).ok());
    if let Some(missing) = noted.clone().filter(|_| !is_copy) {
        return Ok(Gaps {
            missing,
            elsewhere: None,
        });
    }
    match pass.store.saved_volumes(stored).await {
        Ok(SavedVolumes {
            records,
            in_repository,
        }) => {
            let missing = noted.unwrap_or_else(|| MissingData::counted(&records));
            let elsewhere = if is_copy {
                MissingData::left_behind(&records, &in_repository)
            } else {
                MissingData::in_repository(&in_repository, missing.of)
            };
            Ok(Gaps { missing, elsewhere })
        }
        // Unknown data counts as missing.
        Err(error @ StoreError::Corrupt { .. }) => {
            let unknown = (
                "volumes that are not known".to_owned(),
                Some(error.to_string()),
            );
            Ok(Gaps {
                missing: MissingData::among([unknown]).unwrap_or_default(),
                elsewhere: None,
            })
        }
        Err(error) => Err(error),
    }
}

/// Whether the tarball of a backup from another program is still to come: its operations have
/// ended, and their changes are not in the stored tarball. A copy of a bucket may have files in any
/// order, so the wait is limited; a restore then checks to which backup the tarball belongs
/// (`restore::identity`).
fn awaits_tarball(backup: &Backup, metadata_written: Timestamp, now: Timestamp) -> bool {
    let grace = now.duration_since(metadata_written).unsigned_abs() < TARBALL_GRACE;
    let expired = backup
        .status
        .expiration
        .as_ref()
        .is_some_and(|expiration| expiration.0 < now);
    backup.status.backup_item_operations_attempted > 0 && grace && !expired
}

/// The files of a backup in the bucket.
struct StoredBackup {
    backup: Box<Backup>,
    lists: Vec<SideFile>,
    /// See [`backup_store::BackupFolder`].
    newer_metadata: Option<Timestamp>,
    /// The note of a copy; `None` if it is an original.
    copy: Option<CopyNote>,
}

/// The contents of a folder in the bucket.
enum FolderContents {
    Stored(StoredBackup),
    /// There is no metadata.
    Incomplete(IncompleteBackup),
    /// The folder was deleted after the listing.
    Nothing,
    Skip(Skip),
}

/// Reads the folder: one listing, and the metadata if there is any.
async fn read(
    pass: &Pass<'_>,
    memory: &Semaphore,
    name: &str,
) -> Result<FolderContents, StoreError> {
    let folder = match pass.store.inspect_folder(name).await {
        Err(error @ StoreError::Config { .. }) => {
            return Ok(FolderContents::Skip(Skip::new(
                NoteKind::InvalidName,
                error.to_string(),
            )));
        }
        other => other?,
    };
    if !folder.has_anything {
        return Ok(FolderContents::Nothing);
    }
    let Some(size) = folder.metadata else {
        return Ok(folder
            .incomplete
            .map_or(FolderContents::Nothing, FolderContents::Incomplete));
    };
    if folder.metadata_too_large {
        let reason = "its velero-backup.json is larger than any Backup can be, and was not read";
        return Ok(FolderContents::Skip(Skip::new(
            NoteKind::Unreadable,
            reason,
        )));
    }
    // Velero deletes a folder's files in the order of their names, so the metadata is deleted last.
    if !folder.contents {
        let reason = format!(
            "there is no {name}.tar.gz beside its metadata: its deletion has begun, or it was never whole"
        );
        return Ok(FolderContents::Skip(Skip::new(NoteKind::Deleting, reason)));
    }
    let wanted = u32::try_from(size * MEMORY_PER_STORED_BYTE / 1024)
        .unwrap_or(MAX_METADATA_KIB)
        .clamp(1, MAX_METADATA_KIB);
    // Never closed, so this never fails.
    let _memory = memory.acquire_many(wanted).await;
    let found = async {
        let stored = pass.store.read_metadata(name).await?;
        let copy = if folder.is_copy {
            pass.store.copy_note(name).await?
        } else {
            None
        };
        Ok::<_, StoreError>(stored.map(|stored| (stored, copy)))
    };
    match found.await {
        Ok(Some((stored, copy))) => Ok(FolderContents::Stored(StoredBackup {
            backup: Box::new(stored),
            lists: folder.lists,
            newer_metadata: folder.newer_metadata,
            copy,
        })),
        Ok(None) => Ok(FolderContents::Nothing),
        Err(error @ StoreError::Corrupt { .. }) => Ok(FolderContents::Skip(Skip::new(
            NoteKind::Unreadable,
            error.to_string(),
        ))),
        Err(error) => Err(error),
    }
}

/// Creates the Backup; an existing one of its name is not changed. The inner error is the outcome
/// if it was not created.
async fn create(
    pass: &Pass<'_>,
    backup: &Backup,
) -> Result<Result<Backup, FolderOutcome>, ReconcileError> {
    let name = backup.name_any();
    let leadership = &pass.cluster.leadership;
    // The backup was read before. In this cluster only this process deletes, and it records a
    // deletion before it begins.
    let api: Api<Backup> = pass.cluster.api();
    let created = retry::read(RETRY_BUDGET, || async {
        // Checked before every attempt.
        if leadership.check().is_err() || pass.deletions.any_since(&name, pass.began) {
            return Ok(None);
        }
        let params = PostParams::default();
        leadership
            .write(WRITE_TIMEOUT, api.create(&params, backup))
            .await
            .map(Some)
    })
    .await;
    let created = match created {
        Ok(created) => created,
        Err(error) => return Ok(Err(create_failure(&error))),
    };
    let Some(created) = created else {
        leadership.check()?;
        return Ok(Err(deleted_meanwhile()));
    };
    if pass.deletions.any_since(&name, pass.began) {
        delete::delete(pass.cluster, &created).await?;
        return Ok(Err(deleted_meanwhile()));
    }
    Ok(Ok(created))
}

/// The outcome for a Backup that the API server did not create.
fn create_failure(error: &kube::Error) -> FolderOutcome {
    if is_conflict(error) {
        return FolderOutcome::Settled;
    }
    if is_transient(error) {
        let reason = format!("the Backup could not be created: {}", plain(error));
        return FolderOutcome::Failed(reason);
    }
    let reason = format!("the API server does not take it: {}", plain(error));
    FolderOutcome::Skipped(Skip::new(NoteKind::Refused, reason))
}

fn deleted_meanwhile() -> FolderOutcome {
    FolderOutcome::Skipped(Skip::transient(
        NoteKind::Deleting,
        "it was deleted while it was being read",
    ))
}

#[cfg(test)]
mod tests {
    use backup_core::api::BackupSpec;
    use backup_runtime::clock::Clock;
    use backup_testkit::{FakeApi, velero_path};

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{recent_deletions::RecentDeletions, testing};

    const BACKUPS: &str = "/apis/velero.io/v1/namespaces/velero/backups";

    /// When the deletion of a backup begins, relative to a pass that has read it from the bucket.
    #[derive(Clone, Copy, Debug)]
    enum Deleted {
        Never,
        BeforeThePass,
        BeforeTheCreation,
        DuringTheCreation,
    }

    #[rstest::rstest]
    #[case::its_operations_have_just_ended(1, "2026-03-01T11:59:00Z", true)]
    #[case::by_a_clock_that_is_ahead(1, "2026-03-01T12:01:00Z", true)]
    #[case::it_never_comes(1, "2026-03-01T10:59:00Z", false)]
    #[case::without_operations_it_is_stored_once(0, "2026-03-01T11:59:00Z", false)]
    fn a_tarball_that_velero_stores_again_is_waited_for(
        #[case] operations: i64,
        #[case] written: &str,
        #[case] expected: bool,
    ) {
        let mut backup = Backup::new("b", BackupSpec::default());
        backup.status.backup_item_operations_attempted = operations;
        let now = "2026-03-01T12:00:00Z".parse().unwrap();
        assert_eq!(
            awaits_tarball(&backup, written.parse().unwrap(), now),
            expected
        );
        let before = "2026-03-01T11:00:00Z".parse().unwrap();
        backup.status.expiration = Some(Time(before));
        assert!(
            !awaits_tarball(&backup, written.parse().unwrap(), now),
            "retention is to find it"
        );
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
        let (cluster, deletions) = (testing::cluster(api.client()), RecentDeletions::default());
        let location = testing::local_location(folder.path());
        let store = backup_store::Location::open(&location, None, None).unwrap();

        if matches!(deleted, Deleted::BeforeThePass) {
            deletions.record("b");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let ctx = crate::job::JobContext::fake(api.client());
        let pass = Pass {
            leftovers: &crate::backup::Backups::fake(&ctx).leftovers(&ctx),
            cluster: &cluster,
            locations: &testing::locations(&cluster),
            deletions: &deletions,
            incomplete_ttl: Duration::ZERO,
            stop: &CancellationToken::new(),
            location: &location,
            store: &store,
            began: Clock::Boot.now(),
        };
        match deleted {
            Deleted::Never | Deleted::BeforeThePass => {}
            Deleted::BeforeTheCreation => deletions.record("b"),
            Deleted::DuringTheCreation => {
                let deletions = deletions.clone();
                api.before("POST", BACKUPS, move |_| deletions.record("b"));
            }
        }
        let mut backup = Backup::new("b", BackupSpec::default());
        backup.metadata.namespace = Some("velero".to_owned());
        let created = create(&pass, &backup).await.unwrap();
        assert_eq!(created.is_ok(), is_there, "{deleted:?}");
        assert_eq!(
            api.get(&velero_path("Backup", "b")).is_some(),
            is_there,
            "{deleted:?}"
        );
        assert_eq!(api.writes(), writes, "{deleted:?}");
    }

    #[tokio::test]
    async fn a_copy_arrives_with_its_own_time_and_names_its_source() {
        let [first, second] = [0, 1].map(|_| tempfile::tempdir().unwrap());
        let open = |folder: &tempfile::TempDir| {
            backup_store::Location::open(&testing::local_location(folder.path()), None, None)
                .unwrap()
        };
        let source = open(&first);
        let claimant = testing::claimant("u");
        let writer = source.open_backup("b", &claimant).await.unwrap();
        let pending = writer.finish().await.unwrap();
        let mut end = testing::backup(backup_core::api::BackupPhase::Completed);
        end.spec.storage_location = Some("first".to_owned());
        end.status.expiration = Some(Time("2030-01-01T00:00:00Z".parse().unwrap()));
        let plan = pending.commit(&testing::no_files(), &end).await;
        plan.unwrap().publish().await.unwrap();
        let store = open(&second);
        let note = CopyNote {
            uid: "u".to_owned(),
            source: source.url(),
            expiration: Some("2031-01-01T00:00:00Z".parse().unwrap()),
        };
        let copy = store.begin_copy(&source, "b", &claimant, &note).await;
        let copy = copy.unwrap();
        for file in copy.small_files() {
            copy.copy_file(&file).await.unwrap();
        }
        copy.finish().await.unwrap();

        let api = FakeApi::new();
        let (cluster, deletions) = (testing::cluster(api.client()), RecentDeletions::default());
        let ctx = crate::job::JobContext::fake(api.client());
        let pass = Pass {
            leftovers: &crate::backup::Backups::fake(&ctx).leftovers(&ctx),
            cluster: &cluster,
            locations: &testing::locations(&cluster),
            deletions: &deletions,
            incomplete_ttl: Duration::ZERO,
            stop: &CancellationToken::new(),
            location: &testing::local_location(second.path()),
            store: &store,
            began: Clock::Boot.now(),
        };
        let facts = Facts {
            schedules: Some(HashMap::new()),
            deletions: BTreeSet::new(),
        };
        let memory = Semaphore::new(1024);
        // The original is imported where it can be.
        let mut location = serde_json::to_value(testing::local_location(first.path())).unwrap();
        location["metadata"]["name"] = serde_json::json!("first");
        location["status"] = serde_json::json!({ "phase": "Available" });
        api.put(&velero_path("BackupStorageLocation", "first"), location);
        let outcome = import(&pass, &facts, &memory, "b").await.unwrap();
        let FolderOutcome::Skipped(skip) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(skip.what, NoteKind::Copy);
        source.delete_backup("b").await.unwrap();
        let outcome = import(&pass, &facts, &memory, "b").await.unwrap();
        assert!(
            matches!(outcome, FolderOutcome::Created(None)),
            "{outcome:?}"
        );
        let imported = api.get(&velero_path("Backup", "b")).unwrap();
        assert_eq!(imported["spec"]["storageLocation"], "default");
        assert_eq!(imported["status"]["expiration"], "2031-01-01T00:00:00Z");
        assert_eq!(
            imported["metadata"]["annotations"][COPY_OF_ANNOTATION],
            source.url()
        );
    }
}
