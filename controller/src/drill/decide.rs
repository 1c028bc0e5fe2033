//! Decides how a drill goes on after its restore has ended, and which namespaces are its own. Pure.

use std::collections::BTreeMap;

use backup_core::{
    api::{Restore, RestorePhase, drill::DrillCheck},
    drill::{DEFAULT_READY_TIMEOUT, DrillResult, DrillState, Readiness},
    labels::{DRILL_LABEL, LEFT_ITEMS_ANNOTATION, SCRATCH_UID_ANNOTATION, annotation},
    left_items::LeftItems,
    text::{counted, shortened},
    time::whole_seconds,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, StatefulSet},
    batch::v1::Job,
    core::v1::Namespace,
};
use kube::ResourceExt as _;

/// Time after the limit of a check in which its Job is ended by Kubernetes itself.
const CHECK_GRACE: SignedDuration = SignedDuration::from_secs(30);
/// Maximum length of a reason in a result (characters).
const MAX_REASON_CHARS: usize = 300;

/// Whether a drill works, or may still begin to: then its namespaces are in use.
pub(super) fn is_running(restore: &Restore) -> bool {
    restore.metadata.deletion_timestamp.is_none() && DrillState::of(restore).result.is_none()
}

/// Why a drill cannot go on, as its restore has restored nothing.
pub(super) fn ended_early(restore: &Restore) -> Option<String> {
    let status = &restore.status;
    match restore.phase() {
        RestorePhase::FailedValidation => Some(status.validation_errors.join("; ")),
        RestorePhase::Failed => {
            let reason = status.failure_reason.clone();
            Some(reason.unwrap_or_else(|| "the restore has failed".to_owned()))
        }
        _ => None,
    }
}

/// A Deployment, StatefulSet or DaemonSet of a drill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Workload {
    /// Such as `Deployment shop/web`, by its namespace in the backup.
    pub(super) name: String,
    pub(super) is_ready: bool,
}

/// The namespaces of the backup by their scratch namespaces.
pub(super) fn sources(restore: &Restore) -> BTreeMap<&str, &str> {
    let mapping = restore.spec.namespace_mapping.iter();
    mapping
        .map(|(source, scratch)| (scratch.as_str(), source.as_str()))
        .collect()
}

pub(super) fn deployment_is_ready(deployment: &Deployment) -> bool {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    let wanted = wanted.unwrap_or(1);
    let generation = deployment.metadata.generation;
    deployment.status.as_ref().is_some_and(|status| {
        status.observed_generation >= generation
            && status.updated_replicas.unwrap_or(0) >= wanted
            && status.available_replicas.unwrap_or(0) >= wanted
    })
}

pub(super) fn stateful_set_is_ready(set: &StatefulSet) -> bool {
    let wanted = set.spec.as_ref().and_then(|spec| spec.replicas);
    let wanted = wanted.unwrap_or(1);
    let generation = set.metadata.generation;
    set.status.as_ref().is_some_and(|status| {
        status.observed_generation >= generation && status.ready_replicas.unwrap_or(0) >= wanted
    })
}

pub(super) fn daemon_set_is_ready(set: &DaemonSet) -> bool {
    let generation = set.metadata.generation;
    set.status.as_ref().is_some_and(|status| {
        status.observed_generation >= generation
            && status.number_ready >= status.desired_number_scheduled
    })
}

/// Whether workloads have become ready; `None` while that is waited for. Without a node nothing can.
pub(super) fn readiness(
    restore: &Restore,
    workloads: &[Workload],
    has_nodes: bool,
    now: Timestamp,
) -> Option<Readiness> {
    let not_ready: Vec<String> = workloads
        .iter()
        .filter(|workload| !workload.is_ready)
        .map(|workload| workload.name.clone())
        .collect();
    let is_over = not_ready.is_empty() || !has_nodes || now >= ready_deadline(restore);
    is_over.then(|| Readiness::of(workloads.len(), not_ready, !has_nodes, whole_seconds(now)))
}

/// When workloads are not waited for any longer.
fn ready_deadline(restore: &Restore) -> Timestamp {
    let own = restore
        .spec
        .drill
        .as_ref()
        .and_then(|drill| drill.settings.ready_timeout);
    let timeout = own.unwrap_or(DEFAULT_READY_TIMEOUT).as_std();
    let ended = restore.status.completion_timestamp.as_ref();
    let ended = ended.map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    ended.checked_add(timeout).unwrap_or(Timestamp::MAX)
}

/// How far a check is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CheckState {
    Running,
    Passed,
    /// A clause with the reason.
    Failed(String),
}

/// The end of a check in a namespace that the drill does not restore.
pub(super) fn not_restored(check: &DrillCheck) -> CheckState {
    CheckState::Failed(format!("namespace {} is not restored", check.namespace))
}

/// How far the Job of a check with this time limit is.
pub(super) fn job_state(job: &Job, timeout: SignedDuration, now: Timestamp) -> CheckState {
    let status = job.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let met = |type_: &str| {
        conditions
            .iter()
            .find(|one| one.type_ == type_ && one.status == "True")
    };
    if met("Complete").is_some() {
        return CheckState::Passed;
    }
    if let Some(failed) = met("Failed") {
        let why = failed.message.as_deref().or(failed.reason.as_deref());
        return CheckState::Failed(why.unwrap_or("it has failed").to_owned());
    }
    let created = job.metadata.creation_timestamp.as_ref();
    let age = created.map_or(SignedDuration::ZERO, |time| now.duration_since(time.0));
    if age > timeout.saturating_add(CHECK_GRACE) {
        return CheckState::Failed(format!("it has not ended within {}s", timeout.as_secs()));
    }
    CheckState::Running
}

/// The result of a drill whose restore has ended with items. `checks` are names and ends of checks.
pub(super) fn result(
    restore: &Restore,
    ready: &Readiness,
    checks: &[(&str, CheckState)],
    now: Timestamp,
) -> DrillResult {
    let status = &restore.status;
    let left = LeftItems::read(annotation(restore, LEFT_ITEMS_ANNOTATION)).unwrap_or_default();
    let progress = status.progress.clone().unwrap_or_default();
    let total = usize::try_from(progress.total_items).unwrap_or(0);
    let items = total.saturating_sub(left.left_out_items());
    let begun = status.start_timestamp.as_ref().map_or(ready.at, |at| at.0);
    let passed = checks
        .iter()
        .filter(|(_, state)| *state == CheckState::Passed);
    DrillResult {
        seconds: ready.at.duration_since(begun).as_secs().max(0),
        items,
        restored: items.saturating_sub(left.failed + left.left),
        differ: left.left + left.incomplete,
        left_out: left.left_out_items(),
        workloads: ready.workloads,
        ready: ready.ready,
        checks: checks.len(),
        passed: passed.count(),
        ..DrillResult::of_nothing(
            &restore.name_any(),
            failure(restore, items, &left, ready, checks),
            whole_seconds(now),
        )
    }
}

/// Why a drill of this many items has failed; empty if it has not.
fn failure(
    restore: &Restore,
    items: usize,
    left: &LeftItems,
    ready: &Readiness,
    checks: &[(&str, CheckState)],
) -> String {
    let mut reasons = Vec::new();
    if items == 0 {
        reasons
            .push("the backup holds nothing of these namespaces that a drill restores".to_owned());
    }
    if restore.phase() != RestorePhase::Completed {
        let errors = counted(restore.status.errors, "error");
        let items = counted(left.failed, "item");
        reasons.push(format!(
            "the restore is {} with {errors}, {items} not restored",
            restore.phase()
        ));
    }
    let drill = restore.spec.drill.as_ref();
    let is_required = drill.is_some_and(|drill| drill.settings.require_ready);
    if is_required && ready.ready < ready.workloads {
        let not_ready = ready.not_ready.join(", ");
        reasons.push(if ready.without_nodes {
            "no workload can become ready, as there is no node".to_owned()
        } else {
            format!("not ready in time: {not_ready}")
        });
    }
    for (name, state) in checks {
        if let CheckState::Failed(why) = state {
            reasons.push(format!("check {name}: {why}"));
        }
    }
    shortened(&reasons.join("; "), MAX_REASON_CHARS)
}

/// Whether a namespace with the label of a drill was created for it, and may be removed. Label and
/// uid prove it; where the controller was stopped between the creation and the note of the uid,
/// the spec of the Restore does.
pub(super) fn is_scratch(namespace: &Namespace, restore: Option<&Restore>) -> bool {
    let Some(drill) = namespace.labels().get(DRILL_LABEL) else {
        return false;
    };
    let noted = annotation(namespace, SCRATCH_UID_ANNOTATION);
    if noted.is_some() {
        return noted == namespace.uid().as_deref();
    }
    restore.is_some_and(|restore| {
        let name = namespace.name_any();
        let is_younger =
            namespace.metadata.creation_timestamp >= restore.metadata.creation_timestamp;
        restore.uid().as_ref() == Some(drill)
            && is_younger
            && restore
                .spec
                .namespace_mapping
                .values()
                .any(|to| *to == name)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::needless_pass_by_value)] // tables read better with values

    use backup_core::labels::DRILL_STATE_ANNOTATION;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn at(text: &str) -> Timestamp {
        format!("2026-01-01T{text}Z").parse().unwrap()
    }

    /// A drill of namespace `shop` that has ended at 10:01, with these changes.
    fn drill(change: &Value) -> Restore {
        let mut object = json!({
            "metadata": { "name": "r", "uid": "uid-r", "creationTimestamp": "2026-01-01T09:59:00Z", "annotations": {} },
            "spec": { "namespaceMapping": { "shop": "drill-0123abcd-shop" }, "drill": {} },
            "status": { "phase": "Completed", "startTimestamp": "2026-01-01T10:00:00Z",
                "completionTimestamp": "2026-01-01T10:01:00Z", "progress": { "totalItems": 20, "itemsRestored": 20 } },
        });
        json_patch::merge(&mut object, change);
        serde_json::from_value(object).unwrap()
    }

    fn left(left: &Value) -> Value {
        json!({ "metadata": { "annotations": { LEFT_ITEMS_ANNOTATION: left.to_string() } } })
    }

    fn ready(workloads: usize, not_ready: &[&str]) -> Readiness {
        let not_ready = not_ready.iter().map(|name| (*name).to_owned()).collect();
        Readiness::of(workloads, not_ready, false, at("10:01:30"))
    }

    #[rstest]
    #[case::works(json!({ "status": { "phase": "InProgress" } }), true)]
    #[case::is_checked(json!({}), true)]
    #[case::is_deleted(json!({ "metadata": { "deletionTimestamp": "2026-01-01T10:00:00Z" } }), false)]
    #[case::has_a_result(
        json!({ "metadata": { "annotations": { DRILL_STATE_ANNOTATION: DrillState {
            result: Some(DrillResult::of_nothing("r", String::new(), at("10:02:00"))), ..DrillState::default() }.annotation() } } }),
        false
    )]
    fn a_drill_uses_its_namespaces_until_it_has_a_result(
        #[case] change: Value,
        #[case] expected: bool,
    ) {
        assert_eq!(is_running(&drill(&change)), expected);
    }

    #[rstest]
    #[case::completed(json!({}), None)]
    #[case::partial(json!({ "status": { "phase": "PartiallyFailed" } }), None)]
    #[case::failed(json!({ "status": { "phase": "Failed", "failureReason": "no bucket" } }), Some("no bucket"))]
    #[case::failed_without_a_reason(json!({ "status": { "phase": "Failed" } }), Some("the restore has failed"))]
    #[case::refused(json!({ "status": { "phase": "FailedValidation", "validationErrors": ["a", "b"] } }), Some("a; b"))]
    fn a_restore_that_restored_nothing_ends_the_drill(
        #[case] change: Value,
        #[case] expected: Option<&str>,
    ) {
        assert_eq!(ended_early(&drill(&change)).as_deref(), expected);
    }

    #[rstest]
    #[case::all_ready(&[true, true], true, "10:01:05", Some(2))]
    #[case::nothing_to_wait_for(&[], true, "10:01:05", Some(0))]
    #[case::one_is_not_ready(&[true, false], true, "10:01:05", None)]
    #[case::at_the_deadline(&[true, false], true, "10:11:00", Some(1))]
    #[case::without_nodes(&[false, false], false, "10:01:05", Some(0))]
    fn workloads_are_waited_for_until_the_deadline(
        #[case] workloads: &[bool],
        #[case] has_nodes: bool,
        #[case] now: &str,
        #[case] expected: Option<usize>,
    ) {
        let workloads: Vec<Workload> = workloads
            .iter()
            .enumerate()
            .map(|(n, is_ready)| Workload {
                name: format!("Deployment shop/{n}"),
                is_ready: *is_ready,
            })
            .collect();
        let found = readiness(&drill(&json!({})), &workloads, has_nodes, at(now));
        assert_eq!(found.as_ref().map(|found| found.ready), expected);
        if let Some(found) = found {
            assert_eq!(
                (found.workloads, found.without_nodes, found.at),
                (workloads.len(), !has_nodes, at(now))
            );
        }
    }

    #[test]
    fn a_drill_may_have_another_deadline() {
        let change = json!({ "spec": { "drill": { "readyTimeout": "1m" } } });
        let waits = [Workload {
            name: "w".to_owned(),
            is_ready: false,
        }];
        for (now, is_over) in [("10:01:59", false), ("10:02:00", true)] {
            let found = readiness(&drill(&change), &waits, true, at(now));
            assert_eq!(found.is_some(), is_over, "{now}");
        }
    }

    #[test]
    fn a_workload_is_ready_when_its_controller_says_so_of_this_generation() {
        let object = |spec: Value, status: Value| json!({ "metadata": { "generation": 2 }, "spec": spec, "status": status });
        for (observed, updated, available, expected) in [
            (2, 3, 3, true),
            (1, 3, 3, false),
            (2, 2, 3, false),
            (2, 3, 2, false),
        ] {
            let status = json!({ "observedGeneration": observed, "updatedReplicas": updated, "availableReplicas": available });
            let spec = json!({ "replicas": 3, "selector": {}, "template": {} });
            let deployment = serde_json::from_value(object(spec, status)).unwrap();
            assert_eq!(deployment_is_ready(&deployment), expected, "{deployment:?}");
        }
        for (observed, ready, expected) in [(2, 1, true), (1, 1, false), (2, 0, false)] {
            let status =
                json!({ "observedGeneration": observed, "readyReplicas": ready, "replicas": 1 });
            let spec = json!({ "serviceName": "s", "selector": {}, "template": {} });
            let set = serde_json::from_value(object(spec, status)).unwrap();
            assert_eq!(stateful_set_is_ready(&set), expected, "{set:?}");
        }
        for (observed, desired, ready, expected) in [
            (2, 2, 2, true),
            (2, 0, 0, true),
            (1, 0, 0, false),
            (2, 2, 1, false),
        ] {
            let status = json!({ "observedGeneration": observed, "desiredNumberScheduled": desired, "numberReady": ready,
                "currentNumberScheduled": 0, "numberMisscheduled": 0 });
            let set =
                serde_json::from_value(object(json!({ "selector": {}, "template": {} }), status));
            let set = set.unwrap();
            assert_eq!(daemon_set_is_ready(&set), expected, "{set:?}");
        }
        assert!(!deployment_is_ready(&Deployment::default()));
    }

    #[rstest]
    #[case::new(json!({}), "10:00:10", CheckState::Running)]
    #[case::late(json!({}), "10:01:31", CheckState::Failed("it has not ended within 60s".to_owned()))]
    #[case::passed(json!({ "conditions": [{ "type": "Complete", "status": "True" }] }), "10:09:00", CheckState::Passed)]
    #[case::failed(
        json!({ "conditions": [{ "type": "Failed", "status": "True", "message": "exit code 1" }] }),
        "10:00:10",
        CheckState::Failed("exit code 1".to_owned())
    )]
    #[case::not_failed(json!({ "conditions": [{ "type": "Failed", "status": "False" }] }), "10:00:10", CheckState::Running)]
    fn the_end_of_a_job_is_that_of_its_check(
        #[case] status: Value,
        #[case] now: &str,
        #[case] expected: CheckState,
    ) {
        let job = json!({ "metadata": { "creationTimestamp": "2026-01-01T10:00:00Z" }, "status": status });
        let job = serde_json::from_value(job).unwrap();
        let timeout = SignedDuration::from_secs(60);
        assert_eq!(job_state(&job, timeout, at(now)), expected);
    }

    #[test]
    fn a_drill_is_measured_until_its_workloads_are_ready() {
        let left = left(
            &json!({ "left": 0, "items": [], "leftOut": [{ "kind": "Ingress", "count": 3, "reason": "r" }] }),
        );
        let checks = [("a", CheckState::Passed), ("b", CheckState::Passed)];
        let result = result(&drill(&left), &ready(2, &[]), &checks, at("10:02:00"));
        let expected = DrillResult {
            seconds: 90,
            items: 17,
            restored: 17,
            left_out: 3,
            workloads: 2,
            ready: 2,
            checks: 2,
            passed: 2,
            ..DrillResult::of_nothing("r", String::new(), at("10:02:00"))
        };
        assert_eq!(result, expected);
    }

    #[rstest]
    #[case::workloads_that_are_not_ready(json!({}), vec![], "")]
    #[case::workloads_that_have_to_be_ready(
        json!({ "spec": { "drill": { "requireReady": true } } }),
        vec![],
        "not ready in time: Deployment shop/web"
    )]
    #[case::items_that_are_missing(
        json!({ "status": { "phase": "PartiallyFailed", "errors": 1 },
            "metadata": { "annotations": { LEFT_ITEMS_ANNOTATION: "{\"left\":0,\"items\":[],\"failed\":2}" } } }),
        vec![],
        "the restore is PartiallyFailed with 1 error, 2 items not restored"
    )]
    #[case::nothing_to_restore(
        json!({ "status": { "progress": { "totalItems": 0 } } }),
        vec![],
        "the backup holds nothing of these namespaces that a drill restores"
    )]
    #[case::checks(
        json!({}),
        vec![("a", CheckState::Passed), ("b", CheckState::Failed("exit code 1".to_owned()))],
        "check b: exit code 1"
    )]
    fn a_drill_fails_for_each_of_its_reasons(
        #[case] change: Value,
        #[case] checks: Vec<(&str, CheckState)>,
        #[case] expected: &str,
    ) {
        let not_ready = ready(2, &["Deployment shop/web"]);
        let result = result(&drill(&change), &not_ready, &checks, at("10:02:00"));
        assert_eq!(result.failure, expected);
        assert_eq!((result.workloads, result.ready), (2, 1));
    }

    #[rstest]
    #[case::marked(json!({ "labels": { DRILL_LABEL: "uid-r" }, "annotations": { SCRATCH_UID_ANNOTATION: "uid-n" } }), true, true)]
    #[case::a_copy(json!({ "labels": { DRILL_LABEL: "uid-r" }, "annotations": { SCRATCH_UID_ANNOTATION: "uid-o" } }), false, false)]
    #[case::without_the_label(json!({ "annotations": { SCRATCH_UID_ANNOTATION: "uid-n" } }), false, false)]
    #[case::not_marked_yet(json!({ "labels": { DRILL_LABEL: "uid-r" } }), true, false)]
    #[case::of_another_drill(json!({ "labels": { DRILL_LABEL: "uid-o" } }), false, false)]
    #[case::older_than_the_drill(
        json!({ "labels": { DRILL_LABEL: "uid-r" }, "creationTimestamp": "2026-01-01T09:00:00Z" }),
        false,
        false
    )]
    #[case::of_another_name(json!({ "labels": { DRILL_LABEL: "uid-r" }, "name": "shop" }), false, false)]
    fn only_what_a_drill_has_made_is_removed(
        #[case] change: Value,
        #[case] with_restore: bool,
        #[case] alone: bool,
    ) {
        let mut metadata = json!({ "name": "drill-0123abcd-shop", "uid": "uid-n", "creationTimestamp": "2026-01-01T10:00:00Z" });
        json_patch::merge(&mut metadata, &change);
        let namespace = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        assert_eq!(
            is_scratch(&namespace, Some(&drill(&json!({})))),
            with_restore
        );
        assert_eq!(is_scratch(&namespace, None), alone);
    }
}
