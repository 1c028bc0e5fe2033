//! Merge patches of a Restore. Pure.
//!
//! [`backup_runtime::retry::status_patch`] adds the resourceVersion to each, so none overwrites a
//! change that it has not seen.

use backup_core::time::whole_seconds;
use backup_core::{
    api::{
        Restore, RestorePhase, RestoreSpec, RestoreStatus, common::HookStatus,
        restore::RestoreProgress,
    },
    labels::{
        BLOCKED_ANNOTATION, LEFT_ITEMS_ANNOTATION, MISSING_DATA_ANNOTATION, STORED_SCOPE_ANNOTATION,
    },
    left_items::LeftItems,
    operation::Counts as Operations,
    stored_scope,
    volume_data::MissingData,
    volume_info::VolumeInfo,
};
use backup_store::RestoreEnd;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::Restores;
use crate::job::finalizers;

/// Results of a restore that are not in its files.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Summary {
    pub progress: RestoreProgress,
    /// `None` if no pod had a hook, or if they are published already.
    pub hooks: Option<HookStatus>,
    pub left: LeftItems,
}

/// Counts of a restore whose items are done.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    pub warnings: i64,
    pub errors: i64,
    pub summary: Summary,
    pub operations: Operations,
}

/// Begins the work: the prepared spec with an annotation of its scope, the finalizer, InProgress.
pub(crate) fn start(restore: &Restore, spec: &RestoreSpec, at: Timestamp) -> Option<Value> {
    if restore.phase() != RestorePhase::New || restore.metadata.deletion_timestamp.is_some() {
        return None;
    }
    Some(json!({
        "metadata": {
            "finalizers": finalizers::with::<Restores>(restore),
            "annotations": {STORED_SCOPE_ANNOTATION: stored_scope::annotation(spec)},
        },
        "spec": {
            "backupName": spec.backup_name,
            "scheduleName": spec.schedule_name,
            "excludedResources": spec.excluded_resources,
            "itemOperationTimeout": spec.item_operation_timeout,
        },
        "status": {"phase": RestorePhase::InProgress, "startTimestamp": whole_seconds(at).to_string()},
    }))
}

/// The progress and the current wait of a running restore.
pub(crate) fn progress(
    restore: &Restore,
    progress: &RestoreProgress,
    wait: Option<&str>,
) -> Option<Value> {
    (restore.phase() == RestorePhase::InProgress).then(|| {
        json!({
            "metadata": {"annotations": {BLOCKED_ANNOTATION: wait}},
            "status": {"progress": progress},
        })
    })
}

/// Sets `phase` and the counts: operations run, or everything is done. `None` if the phase cannot
/// follow, or nothing changes.
pub(crate) fn operating(restore: &Restore, phase: &RestorePhase, counts: &Counts) -> Option<Value> {
    let now = restore.phase();
    let status = &restore.status;
    let published = Operations {
        attempted: status.restore_item_operations_attempted,
        completed: status.restore_item_operations_completed,
        failed: status.restore_item_operations_failed,
    };
    let known = now == *phase && published == counts.operations && status.errors == counts.errors;
    if known || !(now == *phase || now.can_become(phase)) {
        return None;
    }
    // The published state of operations is stored: nothing blocks them now.
    let metadata = json!({"annotations": {BLOCKED_ANNOTATION: null}});
    Some(json!({"metadata": metadata, "status": so_far(phase, counts)}))
}

pub(crate) fn outcome(
    restore: &Restore,
    phase: RestorePhase,
    counts: &Counts,
    at: Timestamp,
) -> RestoreStatus {
    let mut status = restore.status.clone();
    status.phase = Some(phase);
    status.warnings = counts.warnings;
    status.errors = counts.errors;
    status.progress = Some(counts.summary.progress.clone());
    if let Some(hooks) = &counts.summary.hooks {
        status.hook_status = Some(hooks.clone());
    }
    if counts.operations.attempted > 0 {
        status.restore_item_operations_attempted = counts.operations.attempted;
        status.restore_item_operations_completed = counts.operations.completed;
        status.restore_item_operations_failed = counts.operations.failed;
    }
    status.completion_timestamp = Some(Time(whole_seconds(at)));
    status
}

/// The final status, with annotations about missing data (from `-volumeinfo.json.gz`) and about
/// items that were left.
pub(crate) fn end(status: RestoreStatus, volume_info: &[VolumeInfo], left: &LeftItems) -> RestoreEnd {
    let missing = MissingData::of(volume_info).map(|data| data.annotation());
    let said = [
        (MISSING_DATA_ANNOTATION, missing),
        (LEFT_ITEMS_ANNOTATION, left.annotation()),
    ];
    let annotations = said
        .into_iter()
        .filter_map(|(name, said)| Some((name.to_owned(), said?)));
    RestoreEnd {
        status,
        annotations: annotations.collect(),
    }
}

/// Publishes the end; `None` if it cannot follow the current phase. If another replica has advanced
/// the phase since a failure was recorded, it ends as PartiallyFailed.
pub(crate) fn published(restore: &Restore, end: &RestoreEnd) -> Option<Value> {
    let RestoreEnd {
        status: mut end,
        annotations,
    } = end.clone();
    let now = restore.phase();
    if end.phase == Some(RestorePhase::Failed) && !now.can_become(&RestorePhase::Failed) {
        end.phase = Some(RestorePhase::PartiallyFailed);
    }
    if !end
        .phase
        .as_ref()
        .is_some_and(|phase| now.can_become(phase))
    {
        return None;
    }
    let mut metadata = finalizers::ended_metadata::<Restores>(restore);
    for name in [MISSING_DATA_ANNOTATION, LEFT_ITEMS_ANNOTATION] {
        metadata["annotations"][name] = json!(annotations.get(name));
    }
    Some(json!({"metadata": metadata, "status": on_the_wire(&end)}))
}

/// Writes zeros, too: another program may have written other counts.
fn on_the_wire(end: &RestoreStatus) -> Value {
    let mut status = json!(end);
    status["warnings"] = json!(end.warnings);
    status["errors"] = json!(end.errors);
    if let Some(hooks) = &end.hook_status {
        status["hookStatus"] = hook_status(hooks);
    }
    if end.restore_item_operations_attempted > 0 {
        status["restoreItemOperationsCompleted"] = json!(end.restore_item_operations_completed);
        status["restoreItemOperationsFailed"] = json!(end.restore_item_operations_failed);
    }
    status
}

/// Publishes the hook counts that were recorded with the operations; `None` if that is done.
pub(crate) fn worked(restore: &Restore, recorded: &Value) -> Option<Value> {
    let hooks = HookStatus::deserialize(recorded.get("hookStatus")?).ok()?;
    (restore.status.hook_status.as_ref() != Some(&hooks))
        .then(|| json!({"status": {"hookStatus": hook_status(&hooks)}}))
}

/// The record that [`worked`] and [`left_items`] read.
pub(crate) fn recorded(summary: &Summary) -> Value {
    json!({"hookStatus": summary.hooks, "leftItems": summary.left})
}

/// Left items that were recorded with the operations of the restore.
pub(crate) fn left_items(recorded: &Value) -> LeftItems {
    recorded
        .get("leftItems")
        .and_then(|left| LeftItems::deserialize(left).ok())
        .unwrap_or_default()
}

fn hook_status(hooks: &HookStatus) -> Value {
    json!({"hooksAttempted": hooks.hooks_attempted, "hooksFailed": hooks.hooks_failed})
}

/// Refuses a Restore that cannot run; nothing was done.
pub(crate) fn refused(restore: &Restore, findings: &[String]) -> Option<Value> {
    (restore.phase() == RestorePhase::New)
        .then(|| json!({"status": {"phase": RestorePhase::FailedValidation, "validationErrors": findings}}))
}

fn so_far(phase: &RestorePhase, counts: &Counts) -> Value {
    let mut status = json!({
        "phase": phase,
        "warnings": counts.warnings,
        "errors": counts.errors,
        "progress": counts.summary.progress,
    });
    if let Some(hooks) = &counts.summary.hooks {
        status["hookStatus"] = hook_status(hooks);
    }
    let Operations {
        attempted,
        completed,
        failed,
    } = counts.operations;
    if attempted > 0 {
        status["restoreItemOperationsAttempted"] = Value::from(attempted);
        status["restoreItemOperationsCompleted"] = Value::from(completed);
        status["restoreItemOperationsFailed"] = Value::from(failed);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::lifecycle::Lifecycle as _;

    fn bare(status: RestoreStatus) -> RestoreEnd {
        end(status, &[], &LeftItems::default())
    }

    fn restore(phase: RestorePhase) -> Restore {
        let mut restore = Restore::new("r", RestoreSpec::default());
        restore.status.phase = Some(phase);
        restore.metadata.finalizers = Some(vec![
            finalizers::work::<Restores>().to_owned(),
            "other/one".to_owned(),
        ]);
        restore
    }

    #[test]
    fn a_terminal_restore_is_never_written_again() {
        let (counts, at) = (Counts::default(), Timestamp::UNIX_EPOCH);
        let end = |phase| {
            bare(outcome(
                &restore(RestorePhase::InProgress),
                phase,
                &counts,
                at,
            ))
        };
        for phase in [
            RestorePhase::Completed,
            RestorePhase::PartiallyFailed,
            RestorePhase::Failed,
            RestorePhase::FailedValidation,
        ] {
            let restore = restore(phase);
            assert_eq!(start(&restore, &restore.spec, at), None);
            assert_eq!(
                operating(&restore, &RestorePhase::Finalizing, &counts),
                None
            );
            assert_eq!(published(&restore, &end(RestorePhase::Completed)), None);
            assert_eq!(published(&restore, &end(RestorePhase::Failed)), None);
            assert_eq!(refused(&restore, &[]), None);
            assert_eq!(
                operating(&restore, &RestorePhase::WaitingForPluginOperations, &counts),
                None
            );
        }
    }

    #[test]
    fn the_end_takes_only_our_finalizer_off_and_clears_the_reason_for_waiting() {
        let mut restore = restore(RestorePhase::Finalizing);
        restore.metadata.annotations =
            Some([(BLOCKED_ANNOTATION.to_owned(), "store away".to_owned())].into());
        let status = outcome(
            &restore,
            RestorePhase::Completed,
            &Counts::default(),
            Timestamp::UNIX_EPOCH,
        );
        let patch = published(&restore, &bare(status)).unwrap();
        assert_eq!(patch["metadata"]["finalizers"], json!(["other/one"]));
        assert_eq!(
            patch["metadata"]["annotations"],
            json!({BLOCKED_ANNOTATION: null, MISSING_DATA_ANNOTATION: null, LEFT_ITEMS_ANNOTATION: null})
        );
        assert_eq!(patch["status"]["phase"], "Completed");
        assert_eq!(
            patch["status"]["completionTimestamp"],
            "1970-01-01T00:00:00Z"
        );
    }

    #[test]
    fn what_was_not_restored_is_said_together_with_the_end() {
        let restore = restore(RestorePhase::Finalizing);
        let status = outcome(
            &restore,
            RestorePhase::Completed,
            &Counts::default(),
            Timestamp::UNIX_EPOCH,
        );
        let mut left = LeftItems::default();
        left.add("ConfigMap", Some("shop"), "settings");
        let volumes = [VolumeInfo::not_restored(
            "shop",
            "data",
            "pv-1",
            "its snapshot was not restored",
        )];
        let patch = published(&restore, &end(status, &volumes, &left)).unwrap();
        assert_eq!(patch["status"]["phase"], "Completed");
        let said = |name: &str| patch["metadata"]["annotations"][name].as_str();
        let data = MissingData::read(said(MISSING_DATA_ANNOTATION)).unwrap();
        assert_eq!((data.missing, data.of), (1, 1));
        assert_eq!(data.volumes["shop/data"], "its snapshot was not restored");
        assert_eq!(
            LeftItems::read(said(LEFT_ITEMS_ANNOTATION)),
            Some(left.clone())
        );
        let summary = Summary {
            left: left.clone(),
            ..Summary::default()
        };
        assert_eq!(
            left_items(&recorded(&summary)),
            left,
            "operations that go on keep it"
        );
        assert_eq!(
            left_items(&json!({"hookStatus": null})),
            LeftItems::default()
        );
    }

    #[test]
    fn operations_are_published_once_for_each_change() {
        let mut restore = restore(RestorePhase::InProgress);
        let operations = Operations {
            attempted: 2,
            completed: 1,
            failed: 0,
        };
        let counts = Counts {
            operations,
            ..Counts::default()
        };
        let phase = RestorePhase::WaitingForPluginOperations;
        let patch = operating(&restore, &phase, &counts).unwrap();
        assert_eq!(patch["status"]["phase"], "WaitingForPluginOperations");
        assert_eq!(patch["status"]["restoreItemOperationsAttempted"], 2);
        assert_eq!(patch["status"]["restoreItemOperationsCompleted"], 1);
        restore.status.phase = Some(phase.clone());
        restore.status.restore_item_operations_attempted = 2;
        assert!(operating(&restore, &phase, &counts).is_some());
        restore.status.restore_item_operations_completed = 1;
        assert_eq!(operating(&restore, &phase, &counts), None);
        assert_eq!(
            operating(&restore, &RestorePhase::InProgress, &counts),
            None,
            "never back"
        );
    }

    #[test]
    fn a_restore_starts_with_its_finalizer_and_names_filled_in() {
        let mut restore = Restore::new("r", RestoreSpec::default());
        let spec = RestoreSpec {
            backup_name: Some("b".to_owned()),
            ..RestoreSpec::default()
        };
        let patch = start(&restore, &spec, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(patch["metadata"]["finalizers"], json!(Restores::FINALIZERS));
        assert_eq!(
            (&patch["spec"]["backupName"], &patch["status"]["phase"]),
            (&json!("b"), &json!("InProgress"))
        );
        restore.status.phase = Some(RestorePhase::InProgress);
        assert_eq!(
            start(&restore, &spec, Timestamp::UNIX_EPOCH),
            None,
            "started once"
        );
    }

    #[test]
    fn errors_seen_before_a_restart_are_not_forgotten_by_the_phase() {
        let restore = restore(RestorePhase::FinalizingPartiallyFailed);
        let (counts, at) = (Counts::default(), Timestamp::UNIX_EPOCH);
        let end = |phase| bare(outcome(&restore, phase, &counts, at));
        assert_eq!(published(&restore, &end(RestorePhase::Completed)), None);
        assert!(published(&restore, &end(RestorePhase::PartiallyFailed)).is_some());
    }

    #[test]
    fn a_finalizer_of_a_velero_server_goes_with_the_files() {
        let mut restore = restore(RestorePhase::Completed);
        restore.metadata.finalizers = Some(vec![Restores::FINALIZERS[1].to_owned()]);
        assert_eq!(
            finalizers::removed(&restore, &[finalizers::work::<Restores>()]),
            None
        );
        let patch = finalizers::removed(&restore, Restores::FINALIZERS).unwrap();
        assert_eq!(patch["metadata"]["finalizers"], json!([]));
    }

    #[test]
    fn a_failure_that_comes_too_late_is_published_as_partial() {
        let late = restore(RestorePhase::Finalizing);
        let status = outcome(
            &late,
            RestorePhase::Failed,
            &Counts::default(),
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!(
            published(&late, &bare(status)).unwrap()["status"]["phase"],
            "PartiallyFailed"
        );
    }
}
