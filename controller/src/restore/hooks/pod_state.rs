//! State of a pod and its containers, for which hooks wait. Pure.

use backup_actions::restore::json::{self, Object};
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ContainerState {
    /// A hook can run.
    Up,
    /// The pod has no container of this name.
    Missing,
    /// Why it is not up, as the end of a sentence.
    Waiting(String),
}

/// The phase of a pod that has ended.
pub(super) fn ended(pod: &Object) -> Option<&str> {
    json::text(pod, &["status"], "phase").filter(|phase| matches!(*phase, "Succeeded" | "Failed"))
}

/// Whether a container runs, or is ready. Init containers that keep running (sidecars) count;
/// others end before the pod is up.
pub(super) fn container_state(pod: &Object, container: &str, ready: bool) -> ContainerState {
    let statuses = if items(pod, "spec", "containers").any(|one| one["name"] == container) {
        "containerStatuses"
    } else if items(pod, "spec", "initContainers")
        .any(|one| one["name"] == container && one["restartPolicy"] == "Always")
    {
        "initContainerStatuses"
    } else {
        return ContainerState::Missing;
    };
    // Without a node, the status was restored and is not current.
    let is_bound = json::text(pod, &["spec"], "nodeName").is_some();
    let status = items(pod, "status", statuses)
        .find(|one| one["name"] == container)
        .filter(|_| is_bound);
    let Some(status) = status else {
        return ContainerState::Waiting(pending(pod));
    };
    let state = &status["state"];
    if state["running"].is_object() && (!ready || status["ready"] == true) {
        return ContainerState::Up;
    }
    let why = if state["running"].is_object() {
        "it runs and is not ready".to_owned()
    } else if state["terminated"].is_object() {
        format!(
            "it has ended with exit code {}",
            state["terminated"]["exitCode"]
        )
    } else {
        format!(
            "it waits ({})",
            state["waiting"]["reason"]
                .as_str()
                .unwrap_or("no reason was given")
        )
    };
    ContainerState::Waiting(why)
}

fn pending(pod: &Object) -> String {
    let unscheduled = items(pod, "status", "conditions")
        .find(|one| one["type"] == "PodScheduled" && one["status"] == "False");
    match unscheduled {
        Some(why) => {
            let why = why["message"].as_str().unwrap_or("no reason was given");
            format!("the pod is not scheduled: {why}")
        }
        None => format!(
            "no node says anything of the pod, which is {}",
            json::text(pod, &["status"], "phase").unwrap_or("Pending")
        ),
    }
}

fn items<'a>(pod: &'a Object, part: &str, list: &str) -> impl Iterator<Item = &'a Value> {
    let list = json::object(pod, &[part])
        .and_then(|part| part.get(list))
        .and_then(Value::as_array);
    list.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(status: &Value) -> Object {
        serde_json::from_value(
            json!({ "spec": { "nodeName": "n", "containers": [{ "name": "main" }] }, "status": status }),
        )
        .unwrap()
    }

    fn with(state: &Value, ready: bool) -> Object {
        let status =
            json!([{ "name": "sidecar" }, { "name": "main", "ready": ready, "state": state }]);
        pod(&json!({ "phase": "Running", "containerStatuses": status }))
    }

    #[test]
    fn a_sidecar_is_a_container_and_an_init_container_that_ends_is_none() {
        let pod = |init: &Value| -> Object {
            serde_json::from_value(json!({
                "spec": { "nodeName": "n", "containers": [{ "name": "main" }], "initContainers": [init] },
                "status": { "initContainerStatuses": [{ "name": "agent", "ready": true, "state": { "running": {} } }] },
            }))
            .unwrap()
        };
        let sidecar = pod(&json!({ "name": "agent", "restartPolicy": "Always" }));
        assert_eq!(container_state(&sidecar, "agent", true), ContainerState::Up);
        let init = pod(&json!({ "name": "agent" }));
        assert_eq!(
            container_state(&init, "agent", true),
            ContainerState::Missing
        );
    }

    #[test]
    fn a_container_is_up_when_it_runs_or_is_ready() {
        let running = json!({ "running": {} });
        for (pod, ready, expected) in [
            (with(&running, false), false, None),
            (with(&running, true), true, None),
            (
                with(&running, false),
                true,
                Some("it runs and is not ready"),
            ),
            (
                with(&json!({ "waiting": { "reason": "ErrImagePull" } }), false),
                false,
                Some("it waits (ErrImagePull)"),
            ),
            (
                with(&json!({}), false),
                false,
                Some("it waits (no reason was given)"),
            ),
            (
                with(&json!({ "terminated": { "exitCode": 3 } }), true),
                true,
                Some("it has ended with exit code 3"),
            ),
            (
                pod(&json!({})),
                false,
                Some("no node says anything of the pod, which is Pending"),
            ),
            (
                pod(&json!({ "phase": "Pending", "conditions": [
                    { "type": "PodScheduled", "status": "False", "message": "no nodes" }] })),
                false,
                Some("the pod is not scheduled: no nodes"),
            ),
        ] {
            let expected = expected.map_or(ContainerState::Up, |why| {
                ContainerState::Waiting(why.to_owned())
            });
            assert_eq!(container_state(&pod, "main", ready), expected);
        }
        assert_eq!(
            container_state(&pod(&json!({})), "other", false),
            ContainerState::Missing
        );
        let mut restored = with(&running, true);
        restored["spec"].as_object_mut().unwrap().remove("nodeName");
        let why = "no node says anything of the pod, which is Running".to_owned();
        assert_eq!(
            container_state(&restored, "main", false),
            ContainerState::Waiting(why)
        );
    }

    #[test]
    fn a_pod_ends_with_its_phase() {
        assert_eq!(
            ended(&pod(&json!({ "phase": "Succeeded" }))),
            Some("Succeeded")
        );
        assert_eq!(ended(&pod(&json!({ "phase": "Running" }))), None);
    }
}
