use backup_core::api::BackupSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

fn backup(phase: BackupPhase, version: &str) -> Backup {
    let mut backup = Backup::new("b", BackupSpec::default());
    backup.metadata.uid = Some("u".to_owned());
    backup.metadata.resource_version = Some(version.to_owned());
    backup.status.phase = Some(phase);
    backup
}

#[test]
fn what_a_job_wrote_is_not_undone_by_a_watch_that_lags() {
    let mut entry = Entry::new(backup(BackupPhase::New, "9"));
    entry.update(backup(BackupPhase::Queued, "10"));
    entry.update(backup(BackupPhase::New, "9"));
    assert_eq!(entry.backup.phase(), BackupPhase::Queued);
    entry.update(backup(BackupPhase::ReadyToStart, "100"));
    assert_eq!(entry.backup.phase(), BackupPhase::ReadyToStart);
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
            backup.metadata.finalizers = Some(vec![finalizer::NAME.to_owned()]);
        }
        assert_eq!(Entry::new(backup).needs_worker(), needs, "{phase} {deleting} {guarded}");
    }
}

#[test]
fn an_entry_is_touched_until_somebody_asks() {
    let mut entry = Entry::new(backup(BackupPhase::New, "1"));
    assert!(entry.take_touched());
    assert!(!entry.take_touched());
    entry.update(backup(BackupPhase::New, "1"));
    assert!(entry.take_touched());
}
