//! Patches of the status of a BackupRepository. Pure.

use backup_core::{
    api::{
        BackupRepository,
        backup_repository::{BackupRepositoryPhase, Maintenance, MaintenanceResult},
    },
    repository_records::{KEY_CHANGE_ANNOTATION, KeyChange, MAINTENANCE_REQUEST_ANNOTATION},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::{
    check::{CHECK_ANNOTATION, Check},
    verdict::Verdict,
};

/// Number of maintenances in the status (Velero
/// `pkg/controller/backup_repository_controller.go`, v1.18).
const MAX_RECENT: usize = 3;

/// What a check has found. A new repository counts as maintained. The remark about one that stays
/// ready is kept.
pub(super) fn verdict(current: &BackupRepository, verdict: &Verdict, check: &Check) -> Value {
    let is_ready = verdict.phase() == BackupRepositoryPhase::Ready;
    let mut status = json!({"phase": verdict.phase()});
    if !is_ready || current.status.phase.as_ref() != Some(&verdict.phase()) {
        status["message"] = json!(verdict.message);
    }
    if is_ready && current.status.last_maintenance_time.is_none() {
        status["lastMaintenanceTime"] = json!(Time(check.at));
    }
    json!({
        "metadata": {"annotations": {CHECK_ANNOTATION: check.annotation()}},
        "status": status,
    })
}

/// The remark about a repository that can be used; `None` if it is in the status already, or the
/// repository cannot be used.
pub(super) fn remark(current: &BackupRepository, remark: Option<&str>) -> Option<Value> {
    let status = &current.status;
    let is_new = status.message.as_deref() != remark;
    let is_ready = status.phase == Some(BackupRepositoryPhase::Ready);
    (is_ready && is_new).then(|| json!({"status": {"message": remark}}))
}

/// A change of the keys; `None` if another one was requested meanwhile.
pub(super) fn key_change(current: &BackupRepository, change: &KeyChange) -> Option<Value> {
    let known = KeyChange::of(current.annotations());
    let is_same = known.is_some_and(|known| known.is_of(change.work, &change.secret));
    is_same.then(|| annotated(KEY_CHANGE_ANNOTATION, &change.annotation()))
}

/// One annotation.
pub(super) fn annotated(name: &str, value: &str) -> Value {
    json!({"metadata": {"annotations": {name: value}}})
}

/// The request in this annotation.
pub(super) fn request<'a>(repository: &'a BackupRepository, name: &str) -> Option<&'a str> {
    repository.annotations().get(name).map(String::as_str)
}

/// Adds to a patch that the request in this annotation is removed, if `served` is that request: a
/// request that was made later is kept.
pub(super) fn remove_request(
    current: &BackupRepository,
    name: &str,
    served: Option<&str>,
    patch: &mut Value,
) {
    if served.is_some() && request(current, name) == served {
        patch["metadata"]["annotations"][name] = Value::Null;
    }
}

/// How a maintenance ended; `None` if that is in the status already. `served`: the request that it
/// was for.
pub(super) fn maintenance(
    current: &BackupRepository,
    ended: &Maintenance,
    served: Option<&str>,
) -> Option<Value> {
    let recent = current.status.recent_maintenance.iter();
    let mut all: Vec<&Maintenance> = recent.collect();
    if all
        .iter()
        .any(|known| known.start_timestamp == ended.start_timestamp)
    {
        return None;
    }
    all.push(ended);
    let mut status = json!({"recentMaintenance": &all[all.len().saturating_sub(MAX_RECENT)..]});
    if ended.result == Some(MaintenanceResult::Succeeded) {
        status["lastMaintenanceTime"] = json!(ended.complete_timestamp);
    }
    let mut patch = json!({"status": status});
    remove_request(current, MAINTENANCE_REQUEST_ANNOTATION, served, &mut patch);
    Some(patch)
}

#[cfg(test)]
mod tests {
    use backup_core::{api::backup_repository::BackupRepositorySpec, repository_records::KeyWork};
    use jiff::Timestamp;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_repository_that_becomes_ready_is_maintained_a_day_later_and_not_at_once() {
        let mut repository = BackupRepository::new("r", BackupRepositorySpec::default());
        let check = Check {
            inputs: "i".to_owned(),
            at: at("2026-11-01T12:00:00Z"),
            is_final: true,
        };
        let patch = verdict(&repository, &Verdict::ready(), &check);
        let status = json!({"phase": "Ready", "message": null, "lastMaintenanceTime": "2026-11-01T12:00:00Z"});
        assert_eq!(patch["status"], status);
        let annotation = &patch["metadata"]["annotations"][CHECK_ANNOTATION];
        let read: Check = serde_json::from_str(annotation.as_str().unwrap()).unwrap();
        assert_eq!(read, check);
        repository.status.last_maintenance_time = Some(Time(at("2026-10-01T12:00:00Z")));
        let patch = verdict(&repository, &Verdict::ready(), &check);
        assert_eq!(patch["status"].get("lastMaintenanceTime"), None);
        let patch = verdict(&repository, &Verdict::retried("why".to_owned()), &check);
        assert_eq!(
            patch["status"],
            json!({"phase": "NotReady", "message": "why"})
        );
    }

    #[test]
    fn a_remark_is_written_once_and_stays_as_long_as_the_repository_is_ready() {
        let mut repository = BackupRepository::new("r", BackupRepositorySpec::default());
        assert_eq!(remark(&repository, Some("damaged")), None, "not ready");
        repository.status.phase = Some(BackupRepositoryPhase::Ready);
        let patch = remark(&repository, Some("damaged")).unwrap();
        assert_eq!(patch["status"], json!({"message": "damaged"}));
        repository.status.message = Some("damaged".to_owned());
        assert_eq!(remark(&repository, Some("damaged")), None);
        let check = Check {
            inputs: "i".to_owned(),
            at: at("2026-11-01T12:00:00Z"),
            is_final: true,
        };
        let patch = verdict(&repository, &Verdict::ready(), &check);
        assert_eq!(patch["status"].get("message"), None);
        let gone = remark(&repository, None).unwrap();
        assert_eq!(gone["status"], json!({"message": null}));
    }

    #[test]
    fn only_the_change_of_keys_that_was_requested_last_is_recorded() {
        let mut repository = BackupRepository::new("r", BackupRepositorySpec::default());
        let done = |secret: &str| KeyChange {
            is_done: true,
            ..KeyChange::requested(KeyWork::Add, secret)
        };
        assert_eq!(key_change(&repository, &done("u/1")), None);
        let requested = KeyChange::requested(KeyWork::Add, "u/2");
        let annotations = [(KEY_CHANGE_ANNOTATION.to_owned(), requested.annotation())];
        repository.metadata.annotations = Some(annotations.into());
        assert_eq!(key_change(&repository, &done("u/1")), None);
        let patch = key_change(&repository, &done("u/2")).unwrap();
        let text = &patch["metadata"]["annotations"][KEY_CHANGE_ANNOTATION];
        let read: KeyChange = serde_json::from_str(text.as_str().unwrap()).unwrap();
        assert_eq!(read, done("u/2"));
    }

    #[test]
    fn only_the_request_that_a_maintenance_was_for_is_removed_with_its_end() {
        let mut repository = BackupRepository::new("r", BackupRepositorySpec::default());
        let annotations = [(MAINTENANCE_REQUEST_ANNOTATION.to_owned(), "two".to_owned())];
        repository.metadata.annotations = Some(annotations.into());
        for (served, is_removed) in [(None, false), (Some("one"), false), (Some("two"), true)] {
            let patch = maintenance(&repository, &Maintenance::default(), served).unwrap();
            let expected = json!({"annotations": {MAINTENANCE_REQUEST_ANNOTATION: null}});
            let expected = is_removed.then_some(&expected);
            assert_eq!(patch.get("metadata"), expected, "{served:?}");
        }
    }

    #[test]
    fn the_last_three_maintenances_are_kept_each_once() {
        let mut repository = BackupRepository::new("r", BackupRepositorySpec::default());
        let ended = |hour: u8, result: MaintenanceResult| Maintenance {
            result: Some(result),
            start_timestamp: Some(Time(at(&format!("2026-11-01T0{hour}:00:00Z")))),
            complete_timestamp: Some(Time(at(&format!("2026-11-01T0{hour}:30:00Z")))),
            ..Maintenance::default()
        };
        for hour in 0..4 {
            let one = ended(hour, MaintenanceResult::Failed);
            let patch = maintenance(&repository, &one, None).unwrap();
            assert_eq!(patch["status"].get("lastMaintenanceTime"), None);
            let recent = patch["status"]["recentMaintenance"].clone();
            repository.status.recent_maintenance = serde_json::from_value(recent).unwrap();
            assert_eq!(maintenance(&repository, &one, None), None, "after a crash");
        }
        let last = ended(4, MaintenanceResult::Succeeded);
        let patch = maintenance(&repository, &last, None).unwrap();
        assert_eq!(
            patch["status"]["lastMaintenanceTime"],
            "2026-11-01T04:30:00Z"
        );
        let recent = patch["status"]["recentMaintenance"].as_array().unwrap();
        let starts: Vec<_> = recent
            .iter()
            .map(|one| one["startTimestamp"].as_str().unwrap().to_owned())
            .collect();
        let expected = [2, 3, 4].map(|hour| format!("2026-11-01T0{hour}:00:00Z"));
        assert_eq!(starts, expected);
    }
}
