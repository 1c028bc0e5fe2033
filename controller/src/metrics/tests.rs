use backup_core::drill::DrillResult;
use serde_json::json;

use super::*;
use crate::testing;

fn ended() -> Backup {
    let object = json!({ "apiVersion": "velero.io/v1", "kind": "Backup", "spec": {},
        "metadata": { "name": "b", "creationTimestamp": "2026-01-01T00:00:00Z" },
        "status": { "phase": "Completed", "warnings": 2, "startTimestamp": "2026-01-01T00:00:00Z",
            "completionTimestamp": "2026-01-01T00:01:30Z",
            "volumeSnapshotsAttempted": 2, "volumeSnapshotsCompleted": 1,
            "csiVolumeSnapshotsAttempted": 3, "csiVolumeSnapshotsCompleted": 2 } });
    serde_json::from_value(object).unwrap()
}

#[test]
fn names_and_labels_are_those_that_dashboards_know() {
    let metrics = Metrics::default();
    metrics.backup(Outcome::Attempt, "nightly");
    metrics.backup(Outcome::Success, "nightly");
    metrics.backup_size("nightly", 1024);
    metrics.restore(Outcome::Failure, "");
    metrics.deletion(Outcome::Success, "");
    metrics.location("default", true, false);
    let lines = [
        "velero_backup_attempt_total{schedule=\"nightly\"} 1",
        "velero_backup_success_total{schedule=\"nightly\"} 1",
        "velero_backup_tarball_size_bytes{schedule=\"nightly\"} 1024",
        "velero_restore_failed_total{schedule=\"\"} 1",
        "velero_backup_deletion_success_total{schedule=\"\"} 1",
        "velero_backup_location_status_gauge{backup_location_name=\"default\"} 1",
        "velero_backup_location_writable{backup_location_name=\"default\"} 1",
        "velero_backup_total 0",
        "velero_restore_total 0",
    ];
    testing::assert_exported(&metrics, &lines);
}

#[test]
fn what_was_counted_of_a_schedule_or_a_location_goes_with_it() {
    let metrics = Metrics::default();
    for outcome in [
        Outcome::Attempt,
        Outcome::Success,
        Outcome::PartialFailure,
        Outcome::Failure,
        Outcome::ValidationFailure,
    ] {
        metrics.backup(outcome, "nightly");
        metrics.restore(outcome, "nightly");
        metrics.deletion(outcome, "nightly");
    }
    metrics.show_schedule("nightly");
    metrics.schedule_skipped("nightly");
    metrics.schedule_due("nightly", Some(60), Some(Timestamp::UNIX_EPOCH));
    metrics.schedule_state("nightly", true, false);
    let at = Some(Timestamp::UNIX_EPOCH);
    metrics.verification_due("nightly", at, at);
    metrics.verified("nightly", false);
    let drill = DrillResult::of_nothing("r", String::new(), Timestamp::UNIX_EPOCH);
    let drill = LastDrill::after(None, "b", drill);
    metrics.drill_due("nightly", at, Some(&drill));
    metrics.drilled("nightly", true);
    metrics.backup_size("nightly", 1);
    let mut backup = ended();
    backup.status.csi_volume_snapshots_attempted = 0;
    metrics.backup_ended("nightly", "b", &backup);
    metrics.location("gone", true, false);
    let summary = |error: Option<&str>| Summary {
        error: error.map(str::to_owned),
        ..Summary::default()
    };
    metrics.synced("gone", &summary(None));
    metrics.synced("gone", &summary(Some("x")));
    metrics.sync_expected("gone", Some(Duration::from_mins(1)), None);
    let shown = |text: &str| {
        metrics
            .encode()
            .lines()
            .filter(|line| line.contains(text))
            .count()
    };
    assert!(
        shown("nightly") > 27 && shown("gone") > 10,
        "{} {}",
        shown("nightly"),
        shown("\"gone\"")
    );
    metrics.forget_schedule("nightly");
    metrics.forget_location("gone");
    metrics.forget_sync("gone");
    assert_eq!((shown("nightly"), shown("\"gone\"")), (0, 0));
}

/// All names of Velero for features that exist here.
#[test]
fn every_name_is_there_once_it_has_happened() {
    let metrics = Metrics::default();
    for outcome in [
        Outcome::Attempt,
        Outcome::Success,
        Outcome::PartialFailure,
        Outcome::Failure,
        Outcome::ValidationFailure,
    ] {
        metrics.backup(outcome, "");
        metrics.restore(outcome, "");
        metrics.deletion(outcome, "");
    }
    metrics.backup_size("", 1);
    metrics.location("default", true, false);
    let mut stored = stored::StoredBackups::default();
    metrics.backup_ended("", "b", &ended());
    stored.applied(&ended(), &metrics);
    stored.listed(&["b".to_owned()].into(), &metrics);
    let text = metrics.encode();
    for name in [
        "backup_tarball_size_bytes",
        "backup_total",
        "backup_last_successful_timestamp",
        "backup_items_total",
        "backup_items_errors",
        "backup_last_status",
        "backup_attempt",
        "backup_success",
        "backup_partial_failure",
        "backup_failure",
        "backup_validation_failure",
        "backup_warning",
        "backup_deletion_attempt",
        "backup_deletion_success",
        "backup_deletion_failure",
        "backup_duration_seconds",
        "backup_location_status_gauge",
        "restore_total",
        "restore_attempt",
        "restore_validation_failed",
        "restore_success",
        "restore_partial_failure",
        "restore_failed",
        "csi_snapshot_attempt",
        "csi_snapshot_success",
        "csi_snapshot_failure",
        "volume_snapshot_attempt",
        "volume_snapshot_success",
        "volume_snapshot_failure",
    ] {
        assert!(
            text.contains(&format!("# TYPE velero_{name} ")),
            "{name} not in\n{text}"
        );
    }
}

#[test]
fn a_backup_that_has_ended_tells_its_duration_its_warnings_and_its_snapshots() {
    let metrics = Metrics::default();
    metrics.backup_ended("nightly", "b", &ended());
    metrics.backup_ended("", "without", &Backup::default());
    let lines = [
        "velero_backup_warning_total{schedule=\"nightly\"} 2",
        "velero_backup_duration_seconds_sum{schedule=\"nightly\"} 90.0",
        "velero_backup_duration_seconds_bucket{le=\"60.0\",schedule=\"nightly\"} 0",
        "velero_backup_duration_seconds_bucket{le=\"300.0\",schedule=\"nightly\"} 1",
        "velero_volume_snapshot_attempt_total{schedule=\"nightly\"} 2",
        "velero_volume_snapshot_success_total{schedule=\"nightly\"} 1",
        "velero_volume_snapshot_failure_total{schedule=\"nightly\"} 1",
        "velero_csi_snapshot_attempt_total{schedule=\"nightly\",backupName=\"b\"} 3",
        "velero_csi_snapshot_success_total{schedule=\"nightly\",backupName=\"b\"} 2",
        "velero_csi_snapshot_failure_total{schedule=\"nightly\",backupName=\"b\"} 1",
    ];
    testing::assert_exported(&metrics, &lines);
    assert!(!metrics.encode().contains("without"));
}
