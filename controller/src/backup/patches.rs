//! Patches of a Backup in its lifecycle. Every patch is a merge patch that is sent with the
//! resourceVersion of the object it was made from (`runtime::retry`), and none is made from a phase
//! it does not follow. Pure.

use backup_core::time::whole_seconds;
use backup_core::{
    api::{Backup, BackupPhase},
    labels::{
        BLOCKED_ANNOTATION, COLLECTS_AGAIN_ANNOTATION, COPY_OF_ANNOTATION,
        DATA_ELSEWHERE_ANNOTATION, DRILLED_ANNOTATION, FILES_MISSING_ANNOTATION,
        IMPORTED_ANNOTATION, MISSING_DATA_ANNOTATION, NOTIFIED_ANNOTATION, STORED_SCOPE_ANNOTATION,
        VERIFIED_ANNOTATION,
    },
    operation::BackupOperation,
    phase::{Phase as _, Stage},
    stored_scope,
};
use backup_store::{JobFiles, StoreError};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::{
    Backups,
    kind::{StartFacts, Summary},
    metadata,
    prepare::{Facts, Settings, prepare},
    progress::Progress,
    queue::Turn,
};
use crate::job::{decide, finalizers, operations::records, patches::Patches};

/// Annotations by which the controller says what has become of a backup. A new Backup has them only
/// if it was made from the manifest of another one, or to deceive.
const RECORDS_OF_THE_END: [&str; 7] = [
    COPY_OF_ANNOTATION,
    DATA_ELSEWHERE_ANNOTATION,
    DRILLED_ANNOTATION,
    FILES_MISSING_ANNOTATION,
    IMPORTED_ANNOTATION,
    NOTIFIED_ANNOTATION,
    VERIFIED_ANNOTATION,
];

impl Patches for Backups {
    type Turn = Turn;

    fn turn_patch(backup: &Backup, turn: Turn) -> Option<Value> {
        match turn {
            Turn::Queue { position } => is_in(backup, &BackupPhase::New)
                .then(|| json!({ "status": { "phase": "Queued", "queuePosition": position } })),
            Turn::Start => is_in(backup, &BackupPhase::Queued)
                .then(|| json!({ "status": { "phase": "ReadyToStart", "queuePosition": null } })),
        }
    }

    fn begin_patch(&self, backup: &Backup, start: &StartFacts) -> Option<Value> {
        begin(backup, &start.facts, &self.settings, start.at)
    }

    fn refused_patch(
        &self,
        backup: &Backup,
        start: &StartFacts,
        findings: &[String],
    ) -> Option<Value> {
        refuse(backup, findings, &start.facts, &self.settings, start.at)
    }

    fn announce_patch(
        backup: &Backup,
        next: &BackupPhase,
        _: &JobFiles,
        summary: &Summary,
    ) -> Option<Value> {
        announce(backup, next, Some(&summary.status))
    }

    /// Publishes that everything was collected, and clears the "blocked" annotation. The phase is
    /// unchanged. `None` if the status is published already.
    fn worked_patch(backup: &Backup, status: &Value) -> Option<Value> {
        let phase = backup.phase();
        let now = json!(backup.status);
        let said = status
            .as_object()
            .is_none_or(|new| new.iter().all(|(key, value)| now[key] == *value));
        (!said
            && phase.is_active()
            && !phase.can_become(&BackupPhase::InProgress)
            && !matches!(phase, BackupPhase::Unknown(_)))
        .then(|| everything(status))
    }

    fn operations_patch(
        backup: &Backup,
        next: &BackupPhase,
        of: &[BackupOperation],
        _: &JobFiles,
    ) -> Option<Value> {
        operations(backup, next, of)
    }

    /// In the finalizing phases a backup holds no claim, unless it is marked as reading the cluster
    /// again.
    fn claims_again_patch(backup: &Backup) -> Option<Value> {
        marks_claim(backup, true)
    }

    fn rests_patch(backup: &Backup) -> Option<Value> {
        marks_claim(backup, false)
    }

    fn terminal_patch(backup: &Backup, stored: &Backup) -> Option<Value> {
        terminal(backup, stored)
    }

    fn outcome(
        backup: &Backup,
        files: &JobFiles,
        summary: &Summary,
        at: Timestamp,
    ) -> Result<Backup, StoreError> {
        metadata::metadata(backup, files, &summary.progress, at)
    }

    fn stored_end(stored: &Backup) -> (String, Stage) {
        (
            stored.metadata.uid.clone().unwrap_or_default(),
            stored.phase().stage(),
        )
    }
}

/// Whether a Backup is in this phase and its deletion was not requested.
fn is_in(backup: &Backup, phase: &BackupPhase) -> bool {
    backup.phase() == *phase && backup.metadata.deletion_timestamp.is_none()
}

pub(super) fn is_finalizing(phase: &BackupPhase) -> bool {
    matches!(
        phase,
        BackupPhase::Finalizing | BackupPhase::FinalizingPartiallyFailed
    )
}

/// Moves to InProgress, with every default written out; `None` if it can't start, or can no longer
/// start.
pub(crate) fn begin(
    backup: &Backup,
    facts: &Facts,
    settings: &Settings,
    now: Timestamp,
) -> Option<Value> {
    if !is_in(backup, &BackupPhase::ReadyToStart) {
        return None;
    }
    let prepared = prepare(backup, facts, settings, now);
    if !prepared.findings.is_empty() {
        return None;
    }
    let begun = prepared.begun(now);
    let mut patch = json!({ "spec": begun.spec, "status": begun.status });
    patch["status"]["queuePosition"] = Value::Null;
    patch["metadata"] = json!({
        "labels": begun.metadata.labels,
        "annotations": begun.metadata.annotations,
        "finalizers": finalizers::with::<Backups>(backup),
    });
    patch["metadata"]["annotations"][BLOCKED_ANNOTATION] = Value::Null;
    for name in RECORDS_OF_THE_END {
        patch["metadata"]["annotations"][name] = Value::Null;
    }
    patch["status"]["copies"] = Value::Null;
    Some(patch)
}

pub(crate) fn refuse(
    backup: &Backup,
    errors: &[String],
    facts: &Facts,
    settings: &Settings,
    now: Timestamp,
) -> Option<Value> {
    if !is_in(backup, &BackupPhase::ReadyToStart) {
        return None;
    }
    let mut status = prepare(backup, facts, settings, now).backup.status;
    status.phase = Some(BackupPhase::FailedValidation);
    status.validation_errors = errors.to_vec();
    let mut patch =
        json!({ "status": status, "metadata": finalizers::ended_metadata::<Backups>(backup) });
    patch["status"]["queuePosition"] = Value::Null;
    Some(patch)
}

pub(crate) fn fail(backup: &Backup, reason: &str, now: Timestamp) -> Option<Value> {
    backup.phase().can_become(&BackupPhase::Failed).then(|| {
        json!({
            "status": {
                "phase": "Failed",
                "failureReason": reason,
                "completionTimestamp": whole_seconds(now).to_string(),
                "queuePosition": null,
            },
            "metadata": finalizers::ended_metadata::<Backups>(backup),
        })
    })
}

/// Moves to `next`, one of the finalizing phases, with the status of the collection. `None` if it
/// is in that phase already, as a record announced by another replica may exist. Also `None` once
/// its deletion was requested: a backup that is not announced by then is never recorded.
pub(crate) fn announce(
    backup: &Backup,
    next: &BackupPhase,
    status: Option<&Value>,
) -> Option<Value> {
    let phase = backup.phase();
    if !decide::announces(phase.stage())
        || !phase.can_become(next)
        || phase == BackupPhase::ReadyToStart
        || backup.metadata.deletion_timestamp.is_some()
    {
        return None;
    }
    let mut patch = status.map_or_else(|| json!({ "status": {} }), everything);
    patch["status"]["phase"] = json!(next);
    Some(patch)
}

fn marks_claim(backup: &Backup, claims: bool) -> Option<Value> {
    let value = claims.then_some("true");
    (is_finalizing(&backup.phase())
        && backup.annotations().contains_key(COLLECTS_AGAIN_ANNOTATION) != claims)
        .then(|| json!({ "metadata": { "annotations": { COLLECTS_AGAIN_ANNOTATION: value } } }))
}

/// Adds `status` and clears the "blocked" annotation.
fn everything(status: &Value) -> Value {
    json!({ "status": status, "metadata": { "annotations": { BLOCKED_ANNOTATION: null } } })
}

/// Moves to `next`, the phase that results from the operations kept in the store, with their
/// counts. `None` if it can't follow, or nothing changes.
pub(crate) fn operations(
    backup: &Backup,
    next: &BackupPhase,
    operations: &[BackupOperation],
) -> Option<Value> {
    let phase = backup.phase();
    if !(phase.can_become(next) || phase == *next)
        || phase.can_become(&BackupPhase::InProgress)
        || backup.metadata.deletion_timestamp.is_some()
    {
        return None;
    }
    let mut status = backup.status.clone();
    records::count(&mut status, operations);
    status.phase = Some(next.clone());
    (status != backup.status).then(|| {
        // The published state of operations is stored: nothing blocks them now.
        let mut annotations = json!({ BLOCKED_ANNOTATION: null });
        // Items that they have changed are read again, so the claim is kept.
        if is_finalizing(next) && !is_finalizing(&phase) {
            annotations[COLLECTS_AGAIN_ANNOTATION] = json!("true");
        }
        json!({ "metadata": { "annotations": annotations }, "status": {
            "phase": next,
            "backupItemOperationsAttempted": status.backup_item_operations_attempted,
            "backupItemOperationsCompleted": status.backup_item_operations_completed,
            "backupItemOperationsFailed": status.backup_item_operations_failed,
            "csiVolumeSnapshotsAttempted": status.csi_volume_snapshots_attempted,
            "csiVolumeSnapshotsCompleted": status.csi_volume_snapshots_completed,
        } })
    })
}

/// The progress of a collection; `None` once it has ended.
pub(crate) fn progress(backup: &Backup, progress: &Progress, wait: Option<&str>) -> Option<Value> {
    is_in(backup, &BackupPhase::InProgress).then(|| {
        json!({
            "metadata": { "annotations": { BLOCKED_ANNOTATION: wait } },
            "status": { "progress": progress.status(false) },
        })
    })
}

/// Publishes the stored end; `None` if it can't follow the current phase.
pub(crate) fn terminal(current: &Backup, stored: &Backup) -> Option<Value> {
    if !stored.phase().is_terminal() || !current.phase().can_become(&stored.phase()) {
        return None;
    }
    let mut patch = json!({ "status": stored.status });
    // Set by us while it waited; the stored Backup has no place in a queue.
    patch["status"]["queuePosition"] = Value::Null;
    patch["metadata"] = finalizers::ended_metadata::<Backups>(current);
    patch["metadata"]["annotations"][MISSING_DATA_ANNOTATION] =
        json!(stored.annotations().get(MISSING_DATA_ANNOTATION));
    patch["metadata"]["annotations"][STORED_SCOPE_ANNOTATION] =
        json!(stored_scope::annotation(&stored.spec));
    Some(patch)
}

#[cfg(test)]
mod tests {
    use crate::job::kind::JobKind as _;
    use backup_core::api::{BackupStorageLocation, BackupStorageLocationSpec};
    use clap::Parser as _;

    use super::*;
    use crate::testing::backup;

    fn settings() -> Settings {
        Settings::of(&crate::Args::parse_from(["backup-controller"]))
    }

    fn facts() -> Facts {
        let location = BackupStorageLocation::new("default", BackupStorageLocationSpec::default());
        Facts {
            locations: vec![location],
            ..Facts::default()
        }
    }

    fn every_patch(backup: &Backup) -> Vec<(&'static str, Option<Value>)> {
        let now = Timestamp::UNIX_EPOCH;
        let errors = ["spec.ttl: wrong".to_owned()];
        vec![
            (
                "Queued",
                Backups::turn_patch(backup, Turn::Queue { position: 1 }),
            ),
            ("ReadyToStart", Backups::turn_patch(backup, Turn::Start)),
            ("InProgress", begin(backup, &facts(), &settings(), now)),
            (
                "FailedValidation",
                refuse(backup, &errors, &facts(), &settings(), now),
            ),
            ("Failed", fail(backup, "reason", now)),
            (
                "Finalizing",
                announce(backup, &BackupPhase::Finalizing, None),
            ),
            (
                "FinalizingPartiallyFailed",
                announce(backup, &BackupPhase::FinalizingPartiallyFailed, None),
            ),
            (
                "WaitingForPluginOperations",
                operations(backup, &BackupPhase::WaitingForPluginOperations, &[]),
            ),
            (
                "FinalizingPartiallyFailed",
                operations(backup, &BackupPhase::FinalizingPartiallyFailed, &[]),
            ),
        ]
    }

    #[test]
    fn a_patch_only_moves_a_phase_forward() {
        for from in BackupPhase::known() {
            for (to, patch) in every_patch(&backup(from.clone())) {
                let Some(patch) = patch else { continue };
                let next = BackupPhase::from(patch["status"]["phase"].as_str().unwrap());
                assert_eq!(next.as_str(), to);
                assert!(from.can_become(&next) || from == next, "{from} to {next}");
            }
        }
    }

    #[test]
    fn nothing_is_written_to_a_phase_that_has_ended_or_is_unknown() {
        let ended = BackupPhase::known().filter(BackupPhase::is_terminal);
        for phase in ended.chain([BackupPhase::Unknown("Later".to_owned())]) {
            let backup = backup(phase.clone());
            assert!(
                every_patch(&backup)
                    .iter()
                    .all(|(_, patch)| patch.is_none()),
                "{phase}"
            );
            assert_eq!(progress(&backup, &Progress::default(), None), None);
        }
    }

    #[test]
    fn a_start_sets_the_finalizer_and_clears_the_queue() {
        let patch = begin(
            &backup(BackupPhase::ReadyToStart),
            &facts(),
            &settings(),
            Timestamp::UNIX_EPOCH,
        )
        .unwrap();
        assert_eq!(patch["metadata"]["finalizers"], json!(Backups::FINALIZERS));
        assert_eq!(patch["status"]["queuePosition"], Value::Null);
        assert_eq!(patch["spec"]["storageLocation"], "default");
    }

    #[test]
    fn a_backup_starts_without_what_its_manifest_says_of_its_end() {
        let mut copied = backup(BackupPhase::ReadyToStart);
        let verified = r#"{"at":"2026-11-03T05:14:12Z","findings":0}"#;
        copied.metadata.annotations = Some(
            [
                (COPY_OF_ANNOTATION, "s3://other"),
                (VERIFIED_ANNOTATION, verified),
                ("team", "a"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        );
        let mut object = serde_json::to_value(&copied).unwrap();
        object["status"]["copies"] = json!([{ "location": "second", "phase": "Completed" }]);
        let patch = begin(
            &serde_json::from_value(object.clone()).unwrap(),
            &facts(),
            &settings(),
            Timestamp::UNIX_EPOCH,
        );
        json_patch::merge(&mut object, &patch.unwrap());
        let begun: Backup = serde_json::from_value(object).unwrap();
        assert!(begun.status.copies.is_empty());
        let annotations = begun.annotations();
        assert!(
            RECORDS_OF_THE_END
                .iter()
                .all(|name| !annotations.contains_key(*name)),
            "{annotations:?}"
        );
        assert_eq!(annotations["team"], "a");
    }

    #[test]
    fn a_backup_whose_deletion_was_asked_for_is_not_started() {
        let mut backup = backup(BackupPhase::ReadyToStart);
        backup.metadata.deletion_timestamp = Some(
            k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH),
        );
        assert_eq!(
            begin(&backup, &facts(), &settings(), Timestamp::UNIX_EPOCH),
            None
        );
    }

    #[test]
    fn what_is_shown_of_operations_is_written_once() {
        let mut waiting = backup(BackupPhase::WaitingForPluginOperations);
        let next = BackupPhase::WaitingForPluginOperationsPartiallyFailed;
        let mut failed = BackupOperation::default();
        failed.status.phase = backup_core::operation::OperationPhase::Failed;
        let patch = operations(&waiting, &next, std::slice::from_ref(&failed)).unwrap();
        assert_eq!(patch["status"]["backupItemOperationsFailed"], 1);
        waiting.status = serde_json::from_value(patch["status"].clone()).unwrap();
        assert_eq!(operations(&waiting, &next, &[failed]), None);
    }

    #[test]
    fn commands_are_counted_with_and_without_operations() {
        let progress = Progress::default();
        progress.attempts_hook();
        let status = Summary::of(&progress).status;
        let worked = Backups::worked_patch(&backup(BackupPhase::Finalizing), &status).unwrap();
        let ends = announce(
            &backup(BackupPhase::InProgress),
            &BackupPhase::Finalizing,
            Some(&status),
        );
        for patch in [worked, ends.unwrap()] {
            assert_eq!(
                patch["status"]["hookStatus"]["hooksAttempted"], 1,
                "{patch}"
            );
        }
    }

    #[test]
    fn the_end_notes_what_was_asked_for() {
        let (mut current, mut stored) = (
            backup(BackupPhase::Finalizing),
            backup(BackupPhase::Completed),
        );
        stored.spec.included_namespaces = vec!["shop".to_owned()];
        current.spec.included_namespaces = vec!["edited-meanwhile".to_owned()];
        let patch = terminal(&current, &stored).unwrap();
        assert_eq!(
            patch["metadata"]["annotations"][STORED_SCOPE_ANNOTATION],
            r#"{"includedNamespaces":["shop"]}"#
        );
    }

    #[test]
    fn only_our_finalizer_is_taken_off() {
        let work = finalizers::work::<Backups>();
        let let_go = |backup: &Backup| finalizers::removed(backup, &[work]);
        let mut backup = backup(BackupPhase::InProgress);
        assert_eq!(let_go(&backup), None);
        backup.metadata.finalizers = Some(vec!["other".to_owned(), work.to_owned()]);
        assert_eq!(
            let_go(&backup).unwrap()["metadata"]["finalizers"],
            json!(["other"])
        );
        backup.metadata.finalizers = Some(vec![work.to_owned()]);
        assert_eq!(
            let_go(&backup).unwrap()["metadata"]["finalizers"],
            json!([])
        );
    }
}
