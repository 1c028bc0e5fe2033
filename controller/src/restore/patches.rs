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
        BLOCKED_ANNOTATION, LEFT_ITEMS_ANNOTATION, MISSING_DATA_ANNOTATION, NOTIFIED_ANNOTATION,
        READ_FROM_ANNOTATION, STORED_SCOPE_ANNOTATION,
    },
    left_items::LeftItems,
    operation::{Counts as Operations, RestoreOperation},
    phase::{Phase as _, Stage},
    stored_scope,
    volume_data::MissingData,
    volume_info::VolumeInfo,
};
use backup_store::{JobFiles, RestoreEnd, StoreError};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{
    Restores,
    kind::Summary,
    validate::{self, Facts},
};
use crate::job::{finalizers, operations::records, patches::Patches};

/// Counts of a restore whose items are done.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    pub warnings: i64,
    pub errors: i64,
    pub summary: Summary,
    pub operations: Operations,
}

impl Counts {
    /// The counts of a restore with these files.
    pub(crate) fn of(files: &JobFiles, summary: &Summary, operations: Operations) -> Self {
        Self {
            warnings: files.results.warnings(),
            errors: files.results.errors(),
            summary: summary.clone(),
            operations,
        }
    }

    /// The counts of a restore with these files, and with operations that are not in them yet.
    pub(crate) fn with_operations(
        restore: &Restore,
        files: &JobFiles,
        operations: &[RestoreOperation],
    ) -> Self {
        let failed = i64::try_from(records::errors(operations).len()).unwrap_or(i64::MAX);
        let done = i64::try_from(files.resource_list.len()).unwrap_or(i64::MAX);
        let total = restore
            .status
            .progress
            .as_ref()
            .map_or(0, |progress| progress.total_items);
        let summary = Summary {
            // The status may be from before a crash.
            progress: RestoreProgress {
                total_items: total.max(done),
                items_restored: done,
                ..RestoreProgress::default()
            },
            hooks: None,
            left: LeftItems::default(),
        };
        let mut counts = Self::of(files, &summary, Operations::of_all(operations));
        counts.errors += failed;
        counts
    }
}

impl Patches for Restores {
    type Turn = ();

    fn begin_patch(&self, restore: &Restore, facts: &Facts) -> Option<Value> {
        let mut spec = validate::prepared(restore, facts.backup.as_ref()?);
        // Velero's CLI sends 0s if the user sets no timeout.
        spec.item_operation_timeout = spec
            .item_operation_timeout
            .filter(|timeout| !timeout.is_zero())
            .or(Some(self.default_item_operation_timeout));
        let mut patch = begin(restore, &spec, Timestamp::now())?;
        patch["metadata"]["annotations"][READ_FROM_ANNOTATION] = json!(facts.copy_location());
        Some(patch)
    }

    fn refused_patch(&self, restore: &Restore, _: &Facts, findings: &[String]) -> Option<Value> {
        refuse(restore, findings)
    }

    fn announce_patch(
        restore: &Restore,
        next: &RestorePhase,
        files: &JobFiles,
        summary: &Summary,
    ) -> Option<Value> {
        let counts = Counts::of(files, summary, Operations::default());
        operations(restore, next, &counts)
    }

    /// Publishes the hook counts that were recorded with the operations; `None` if that is done.
    fn worked_patch(restore: &Restore, recorded: &Value) -> Option<Value> {
        let hooks = HookStatus::deserialize(recorded.get("hookStatus")?).ok()?;
        (restore.status.hook_status.as_ref() != Some(&hooks))
            .then(|| json!({"status": {"hookStatus": hook_status(&hooks)}}))
    }

    fn operations_patch(
        restore: &Restore,
        next: &RestorePhase,
        of: &[RestoreOperation],
        files: &JobFiles,
    ) -> Option<Value> {
        operations(restore, next, &Counts::with_operations(restore, files, of))
    }

    fn terminal_patch(restore: &Restore, outcome: &RestoreEnd) -> Option<Value> {
        terminal(restore, outcome)
    }

    fn outcome(
        restore: &Restore,
        files: &JobFiles,
        summary: &Summary,
        at: Timestamp,
    ) -> Result<RestoreEnd, StoreError> {
        let operations: Vec<RestoreOperation> = records::decode(&files.item_operations)?;
        let counts = Counts::of(files, summary, Operations::of_all(&operations));
        let phase = RestorePhase::ended(counts.errors > 0);
        let status = outcome(restore, phase, &counts, at);
        Ok(end(status, &files.volume_info, &summary.left))
    }

    /// The store holds no visible record of how a restore ended.
    fn stored_end(_: &RestoreEnd) -> (String, Stage) {
        (String::new(), Stage::Unknown)
    }
}

/// Begins the work: the prepared spec with an annotation of its scope, the finalizer, InProgress.
pub(crate) fn begin(restore: &Restore, spec: &RestoreSpec, at: Timestamp) -> Option<Value> {
    if restore.phase() != RestorePhase::New || restore.metadata.deletion_timestamp.is_some() {
        return None;
    }
    Some(json!({
        "metadata": {
            "finalizers": finalizers::with::<Restores>(restore),
            "annotations": {
                STORED_SCOPE_ANNOTATION: stored_scope::annotation(spec),
                // Deliveries in a manifest are those of another Restore.
                NOTIFIED_ANNOTATION: null,
            },
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
pub(crate) fn operations(
    restore: &Restore,
    phase: &RestorePhase,
    counts: &Counts,
) -> Option<Value> {
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
pub(crate) fn end(
    status: RestoreStatus,
    volume_info: &[VolumeInfo],
    left: &LeftItems,
) -> RestoreEnd {
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
pub(crate) fn terminal(restore: &Restore, end: &RestoreEnd) -> Option<Value> {
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

/// The record that [`Patches::worked_patch`] and [`left_items`] read.
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
pub(crate) fn refuse(restore: &Restore, findings: &[String]) -> Option<Value> {
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
    use crate::job::kind::JobKind as _;

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
            assert_eq!(begin(&restore, &restore.spec, at), None);
            assert_eq!(
                operations(&restore, &RestorePhase::Finalizing, &counts),
                None
            );
            assert_eq!(terminal(&restore, &end(RestorePhase::Completed)), None);
            assert_eq!(terminal(&restore, &end(RestorePhase::Failed)), None);
            assert_eq!(refuse(&restore, &[]), None);
            assert_eq!(
                operations(&restore, &RestorePhase::WaitingForPluginOperations, &counts),
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
        let patch = terminal(&restore, &bare(status)).unwrap();
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
        let patch = terminal(&restore, &end(status, &volumes, &left)).unwrap();
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
        let counts = Counts {
            operations: Operations {
                attempted: 2,
                completed: 1,
                failed: 0,
            },
            ..Counts::default()
        };
        let phase = RestorePhase::WaitingForPluginOperations;
        let patch = operations(&restore, &phase, &counts).unwrap();
        assert_eq!(patch["status"]["phase"], "WaitingForPluginOperations");
        assert_eq!(patch["status"]["restoreItemOperationsAttempted"], 2);
        assert_eq!(patch["status"]["restoreItemOperationsCompleted"], 1);
        restore.status.phase = Some(phase.clone());
        restore.status.restore_item_operations_attempted = 2;
        assert!(operations(&restore, &phase, &counts).is_some());
        restore.status.restore_item_operations_completed = 1;
        assert_eq!(operations(&restore, &phase, &counts), None);
        assert_eq!(
            operations(&restore, &RestorePhase::InProgress, &counts),
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
        let patch = begin(&restore, &spec, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(patch["metadata"]["finalizers"], json!(Restores::FINALIZERS));
        let annotations = patch["metadata"]["annotations"].as_object().unwrap();
        assert_eq!(annotations[NOTIFIED_ANNOTATION], Value::Null);
        assert_eq!(
            (&patch["spec"]["backupName"], &patch["status"]["phase"]),
            (&json!("b"), &json!("InProgress"))
        );
        restore.status.phase = Some(RestorePhase::InProgress);
        assert_eq!(
            begin(&restore, &spec, Timestamp::UNIX_EPOCH),
            None,
            "started once"
        );
    }

    #[test]
    fn errors_seen_before_a_restart_are_not_forgotten_by_the_phase() {
        let restore = restore(RestorePhase::FinalizingPartiallyFailed);
        let (counts, at) = (Counts::default(), Timestamp::UNIX_EPOCH);
        let end = |phase| bare(outcome(&restore, phase, &counts, at));
        assert_eq!(terminal(&restore, &end(RestorePhase::Completed)), None);
        assert!(terminal(&restore, &end(RestorePhase::PartiallyFailed)).is_some());
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
            terminal(&late, &bare(status)).unwrap()["status"]["phase"],
            "PartiallyFailed"
        );
    }
}
