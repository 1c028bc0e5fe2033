use backup_core::data_movement::{MoverFailure, MoverFailures};
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn state_of(status: &Value) -> PodState {
    let pod =
        json!({ "metadata": { "name": "p" }, "spec": { "containers": [] }, "status": status });
    PodState::of(&serde_json::from_value(pod).unwrap())
}

fn container(state: &Value) -> Value {
    json!([{ "name": "mover", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state }])
}

fn waiting(phase: &str, reason: &str, message: &str) -> Value {
    let state = json!({ "waiting": { "reason": reason, "message": message } });
    json!({ "phase": phase, "containerStatuses": container(&state) })
}

fn terminated(code: i32, reason: &str, message: &str) -> Value {
    let state = json!({ "terminated": { "exitCode": code, "reason": reason, "message": message } });
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    json!({ "phase": phase, "containerStatuses": container(&state) })
}

#[rstest]
#[case::new(json!({}), "being started")]
#[case::creating(waiting("Pending", "ContainerCreating", ""), "being started")]
#[case::image(
    waiting("Pending", "ImagePullBackOff", "Back-off pulling image \"x\""),
    "(ImagePullBackOff): Back-off pulling image \"x\""
)]
#[case::secret(
    waiting(
        "Pending",
        "CreateContainerConfigError",
        "secret \"velero-repo-credentials\" not found"
    ),
    "secret \"velero-repo-credentials\" not found"
)]
#[case::bare_reason(
    waiting("Pending", "ErrImagePull", ""),
    "does not start (ErrImagePull)"
)]
#[case::unschedulable(
    json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "0/3 nodes are available" }] }),
    "cannot be scheduled: 0/3 nodes are available"
)]
#[case::scheduled(
    json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "True" }] }),
    "being started"
)]
fn a_pod_that_does_not_run_says_why(#[case] status: Value, #[case] part: &str) {
    match state_of(&status) {
        PodState::Waiting(why) => assert!(why.contains(part), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pod_without_status_waits() {
    let pod = serde_json::from_value(json!({ "metadata": { "name": "p" } })).unwrap();
    assert!(matches!(PodState::of(&pod), PodState::Waiting(_)));
}

#[test]
fn a_running_container_runs() {
    let state = json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } });
    let status = json!({ "phase": "Running", "containerStatuses": container(&state) });
    assert_eq!(state_of(&status), PodState::Running);
}

#[test]
fn the_outcome_is_in_the_termination_message() {
    let said = json!({
        "operation": "backup", "result": "incomplete", "message": "complete but for 2 failures", "snapshot": "abc",
        "files": 7, "bytes": 70, "newBytes": 50, "movedBytes": 9, "seconds": 1.5,
        "failures": { "count": 2, "first": [{ "path": "a/b", "reason": "gone" }] },
    });
    let expected = MoverOutcome {
        operation: "backup".to_owned(),
        result: MoverResult::Incomplete,
        reason: None,
        message: "complete but for 2 failures".to_owned(),
        snapshot: Some("abc".to_owned()),
        files: 7,
        bytes: 70,
        new_bytes: 50,
        moved_bytes: 9,
        seconds: 1.5,
        failures: MoverFailures {
            count: 2,
            first: vec![MoverFailure {
                path: "a/b".to_owned(),
                reason: "gone".to_owned(),
            }],
        },
        ..MoverOutcome::default()
    };
    let state = PodState::Ended(expected);
    assert_eq!(state_of(&terminated(3, "Error", &said.to_string())), state);
    let log = format!("{{\"progress\":{{}}}}\n{said}\n\n");
    assert_eq!(
        state_of(&terminated(3, "Error", &log)),
        state,
        "the end of the log, in place of a message"
    );
}

#[rstest]
#[case::wrong_flag(
    2,
    "error: unexpected argument '--x'",
    "exit code 2",
    "unexpected argument"
)]
#[case::nothing(1, "", "exit code 1", "left no message")]
#[case::other_json(1, "{}", "exit code 1", "{}")]
#[case::cut(0, "{\"operation\":\"backup\",\"res", "exit code 0", "operation")]
fn without_a_readable_outcome_it_has_failed(
    #[case] code: i32,
    #[case] message: &str,
    #[case] part: &str,
    #[case] said: &str,
) {
    match state_of(&terminated(code, "Error", message)) {
        PodState::Ended(outcome) => {
            assert_eq!(outcome.result, MoverResult::Failed);
            let text = &outcome.message;
            assert!(text.contains(part) && text.contains(said), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_long_message_is_cut() {
    match state_of(&terminated(1, "Error", &"x".repeat(4000))) {
        PodState::Ended(outcome) => assert!(outcome.message.len() < 600),
        other => panic!("{other:?}"),
    }
}

fn evicted(mut status: Value) -> Value {
    status["reason"] = json!("Evicted");
    status["message"] = json!("The node was low on resource: memory.");
    status
}

const CANCELLED: &str = r#"{"operation":"backup","result":"cancelled"}"#;

#[rstest]
#[case::oom(terminated(137, "OOMKilled", ""), "--mover-memory-limit")]
#[case::killed(terminated(137, "Error", ""), "exit code 137")]
#[case::evicted(evicted(json!({ "phase": "Failed" })), "(Evicted): The node was low")]
#[case::evicted_while_it_ran(evicted(terminated(137, "Error", "")), "(Evicted)")]
#[case::evicted_and_said_so(evicted(terminated(130, "Error", CANCELLED)), "(Evicted)")]
#[case::unknown_container(terminated(137, "ContainerStatusUnknown", ""), "was killed")]
#[case::node_lost(json!({ "phase": "Unknown" }), "does not answer")]
#[case::failed_without_container(json!({ "phase": "Failed" }), "was killed")]
fn a_pod_that_was_killed_is_lost(#[case] status: Value, #[case] part: &str) {
    match state_of(&status) {
        PodState::Lost(why) => assert!(why.contains(part), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pod_that_was_asked_to_end_has_ended() {
    match state_of(&terminated(130, "Error", CANCELLED)) {
        PodState::Ended(outcome) => assert_eq!(outcome.result, MoverResult::Cancelled),
        other => panic!("{other:?}"),
    }
}
