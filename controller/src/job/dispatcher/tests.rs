use backup_core::api::{Backup, BackupPhase, Restore, RestorePhase, RestoreSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::{
    backup::{
        Backups,
        tests::fake::{BACKUP, Cluster},
    },
    job::kind::JobKind as _,
    restore::Restores,
    testing::{self, listed},
};

fn backup(phase: BackupPhase, version: &str) -> Backup {
    let mut backup = testing::backup(phase);
    backup.metadata.resource_version = Some(version.to_owned());
    backup
}

#[test]
fn what_a_job_wrote_is_not_undone_by_a_watch_that_lags() {
    let mut entry = Entry::<Backups>::new(backup(BackupPhase::New, "9"));
    entry.update(backup(BackupPhase::Queued, "10"));
    entry.update(backup(BackupPhase::New, "9"));
    assert_eq!(entry.object.phase(), BackupPhase::Queued);
    entry.update(backup(BackupPhase::ReadyToStart, "100"));
    assert_eq!(entry.object.phase(), BackupPhase::ReadyToStart);
}

#[test]
fn a_worker_belongs_to_every_backup_whose_turn_has_come_and_to_what_work_has_left_behind() {
    for (phase, deleting, guarded, needs) in [
        (BackupPhase::New, false, false, false),
        (BackupPhase::Queued, false, false, false),
        (BackupPhase::ReadyToStart, false, false, true),
        (BackupPhase::InProgress, false, true, true),
        (BackupPhase::InProgress, true, true, true),
        (BackupPhase::InProgress, true, false, false),
        (BackupPhase::Finalizing, false, true, true),
        (BackupPhase::FinalizingPartiallyFailed, false, false, true),
        (BackupPhase::WaitingForPluginOperations, false, true, true),
        (BackupPhase::Completed, false, true, true),
        (BackupPhase::Completed, false, false, false),
        (BackupPhase::Deleting, true, true, true),
        (BackupPhase::Unknown("Later".to_owned()), false, true, false),
    ] {
        let mut backup = backup(phase.clone(), "1");
        if deleting {
            backup.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        }
        if guarded {
            backup.metadata.finalizers = Some(vec![finalizers::work::<Backups>().to_owned()]);
        }
        assert_eq!(
            Entry::<Backups>::new(backup).needs_worker(),
            needs,
            "{phase} {deleting} {guarded}"
        );
    }
}

#[test]
fn a_backup_that_lets_a_restore_go_first_is_told_of_while_its_worker_waits() {
    let mut entry = Entry::<Backups>::new(backup(BackupPhase::ReadyToStart, "1"));
    entry
        .yields
        .store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(!entry.ticket("b").yields, "it has no worker");
    entry.busy = true;
    assert!(entry.ticket("b").yields);
}

#[tokio::test]
async fn what_a_list_does_not_name_was_deleted_while_the_watch_was_down() {
    let cluster = Cluster::with(|_, _, _, _| None);
    let ctx = cluster.context();
    let kind = Backups::fake(&ctx);
    let mut dispatcher = Dispatcher::new(ctx, kind);
    let seen = |name: &str| {
        let mut backup = backup(BackupPhase::New, "1");
        backup.metadata.name = Some(name.to_owned());
        WatchEvent::Applied(Ok(backup))
    };
    for name in ["b", "c"] {
        dispatcher.touched(seen(name));
    }
    dispatcher.touched(listed(&["b", "c"]));
    assert_eq!(dispatcher.entries.len(), 2);
    // What has changed since the last list is no exception.
    dispatcher.touched(seen("b"));
    dispatcher.touched(listed(&["c", "an object that has ended"]));
    assert_eq!(dispatcher.entries.keys().collect::<Vec<_>>(), ["c"]);
}

#[test]
fn a_restore_needs_a_worker_from_its_creation_until_its_files_are_gone() {
    for (phase, deleting, finalizers, needs) in [
        (RestorePhase::New, false, 0..0, true),
        (RestorePhase::New, true, 0..0, false),
        (RestorePhase::InProgress, false, 0..2, true),
        (RestorePhase::InProgress, true, 0..2, true),
        (RestorePhase::Completed, false, 0..2, true),
        (RestorePhase::Completed, false, 1..2, false),
        (RestorePhase::Completed, true, 1..2, true),
        (RestorePhase::Completed, true, 0..0, false),
        (
            RestorePhase::Unknown("Later".to_owned()),
            false,
            0..2,
            false,
        ),
        (RestorePhase::Unknown("Later".to_owned()), true, 0..2, true),
    ] {
        let mut restore = Restore::new("r", RestoreSpec::default());
        restore.status.phase = Some(phase.clone());
        restore.metadata.deletion_timestamp = deleting.then_some(Time(jiff::Timestamp::UNIX_EPOCH));
        let names = Restores::FINALIZERS[finalizers.clone()]
            .iter()
            .map(|name| (*name).to_owned());
        restore.metadata.finalizers = Some(names.collect());
        assert_eq!(
            Entry::<Restores>::new(restore).needs_worker(),
            needs,
            "{phase} {deleting} {finalizers:?}"
        );
    }
}

/// There is one slot. Whatever happens to the start that takes it, the next backup gets the slot
/// afterwards.
#[tokio::test(start_paused = true)]
async fn no_end_of_a_job_leaves_its_slot_taken() {
    for end in ["aborted", "refused", "gone", "replaced"] {
        let refuse =
            move |method: &str, path: &str| end == "refused" && method == "PATCH" && path == BACKUP;
        let cluster = Cluster::with(move |_, method, path, _| refuse(method, path).then_some(422));
        let ctx = cluster.context();
        let kind = Backups::fake(&ctx);
        assert_eq!(kind.slots, 1);
        let mut dispatcher = Dispatcher::new(ctx, kind);
        let seen = |name: &str, uid: &str, phase: &str, position: i64| {
            let status = serde_json::json!({"phase": phase, "queuePosition": position});
            let mut backup = testing::velero("Backup", name, serde_json::json!({}), status);
            backup["metadata"]["uid"] = serde_json::json!(uid);
            WatchEvent::Applied(Ok(serde_json::from_value(backup).unwrap()))
        };
        cluster
            .change_backup(&serde_json::json!({"status": {"phase": "Queued", "queuePosition": 1}}));
        dispatcher.touched(seen("b", "uid-b", "Queued", 1));
        dispatcher.touched(seen("c", "uid-c", "Queued", 2));
        dispatcher.touched(listed(&["b", "c"]));
        dispatcher.dispatch();
        assert!(dispatcher.turns().is_empty(), "{end}: the slot is taken");
        match end {
            "aborted" => dispatcher.jobs.abort_all(),
            "gone" => {
                cluster.remove(BACKUP);
                let key = backup_runtime::queue::Key {
                    namespace: "velero".to_owned(),
                    name: "b".to_owned(),
                };
                dispatcher.touched(WatchEvent::Deleted(key));
            }
            "replaced" => dispatcher.touched(seen("b", "another", "New", 0)),
            _ => {}
        }
        dispatcher.job_ended().await.unwrap();
        let next = dispatcher.turns();
        assert!(next.iter().any(|(name, _)| name == "c"), "{end}: {next:?}");
        assert!(
            dispatcher.running.is_empty() && dispatcher.jobs.is_empty(),
            "{end}"
        );
    }
}
