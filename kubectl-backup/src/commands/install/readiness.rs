//! Whether a program is ready, and why not.

use backup_deploy::kind;
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use tokio::time::Instant;

use super::objects;
use crate::{
    commands::{
        poll::{Look, Polled, poll},
        prelude::*,
    },
    print::Tone,
};

/// Waits until all replicas of this version are ready. Prints a line for each change.
pub(super) async fn until_ready(
    session: &Session,
    program: &str,
    deadline: Instant,
    terminal: &mut Terminal,
) -> Result<Polled<()>, Problem> {
    let left = deadline.saturating_duration_since(Instant::now());
    let mut said = String::new();
    poll(session, terminal, left, async |terminal: &mut Terminal| {
        let state = look(session, program).await?;
        let is_new = said != state.text;
        if is_new {
            let tone = if state.is_ready {
                Tone::Good
            } else {
                Tone::Busy
            };
            let sign = terminal.err_style().tone(tone, tone.sign());
            terminal.say(&format!("{sign} {program:<23}{}", state.text));
            said.clone_from(&state.text);
        }
        Ok(if state.is_ready {
            Look::Found(())
        } else if is_new {
            Look::Changed
        } else {
            Look::Same
        })
    })
    .await
}

async fn look(session: &Session, program: &str) -> Result<State, Problem> {
    let Some(kind) = kind("Deployment") else {
        return Err(Problem::other("no kind Deployment"));
    };
    let about = About::called("get", "deployment", kind.plural, program);
    let deployment = session
        .call(about, objects::api(session, kind).get(program))
        .await?;
    let resource = ApiResource::erase::<Pod>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(session.client.clone(), &session.namespace, &resource);
    let params = ListParams::default().labels(&format!("app.kubernetes.io/name={program}"));
    let pods = session
        .list(About::of::<Pod>("list", ""), &api, params, Some)
        .await?;
    let mut state = judge(&deployment, &pods);
    if let Some(pod) = &state.crashing
        && let Some(line) = last_words(session, pod).await
    {
        state.text = format!("{}: {line}", state.text);
    }
    Ok(state)
}

/// The last line of the log of a container's previous run.
async fn last_words(session: &Session, pod: &str) -> Option<String> {
    let api: Api<Pod> = session.api();
    let params = LogParams {
        previous: true,
        tail_lines: Some(1),
        ..LogParams::default()
    };
    let text = session
        .call(About::of::<Pod>("read", pod), api.logs(pod, &params))
        .await
        .ok()?;
    Some(plain(text.lines().last()?)).filter(|line| !line.is_empty())
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    is_ready: bool,
    text: String,
    /// A pod with a container that keeps restarting.
    crashing: Option<String>,
}

/// The progress of a Deployment, judged as by `kubectl rollout status` (kubectl
/// `pkg/polymorphichelpers/rollout_status.go`, v1.34), and the reason for a delay.
fn judge(deployment: &DynamicObject, pods: &[DynamicObject]) -> State {
    let spec = &deployment.data["spec"];
    let status = &deployment.data["status"];
    let wanted = spec["replicas"].as_i64().unwrap_or(1);
    let generation = deployment.metadata.generation.unwrap_or(0);
    let is_seen = count(status, "observedGeneration") >= generation;
    let replicas = count(status, "replicas");
    let updated = count(status, "updatedReplicas");
    let available = count(status, "availableReplicas");
    let is_ready = is_seen && updated >= wanted && replicas <= updated && available >= updated;
    if is_ready {
        return State {
            is_ready,
            text: format!("{available} of {wanted} ready"),
            crashing: None,
        };
    }
    // Available replicas may be of the previous version, so their number means nothing until all
    // are updated.
    let far = if !is_seen || updated < wanted {
        format!("{updated} of {wanted} are of this version")
    } else if replicas > updated {
        format!(
            "{} of the version before are still there",
            replicas - updated
        )
    } else {
        format!("{available} of {wanted} ready")
    };
    let refused = condition(status, "ReplicaFailure", "True").map(|message| (message, None));
    let held_up = refused.or_else(|| {
        let mut worst: Vec<_> = pods.iter().filter_map(trouble).collect();
        worst.sort_by_key(|trouble| trouble.rank);
        let Trouble { text, pod, rank } = worst.into_iter().next()?;
        Some((text, (rank == Rank::Crashes).then_some(pod)))
    });
    let (why, crashing) = held_up.unwrap_or_else(|| ("no pod is there yet".to_owned(), None));
    State {
        is_ready,
        text: format!("{far}: {why}"),
        crashing,
    }
}

/// A number in a status; 0 if it is missing.
fn count(status: &Value, field: &str) -> i64 {
    status[field].as_i64().unwrap_or(0)
}

/// The message of this condition, if it has this status.
fn condition(status: &Value, name: &str, value: &str) -> Option<String> {
    let mut conditions = status["conditions"].as_array()?.iter();
    let found = conditions.find(|one| one["type"] == name && one["status"] == value)?;
    Some(plain(
        found["message"]
            .as_str()
            .or_else(|| found["reason"].as_str())?,
    ))
}

/// The worst problem of a pod that is not ready; problems that do not resolve by themselves come
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Crashes,
    Waits,
    NoNode,
    Starts,
    NotReady,
}

struct Trouble {
    rank: Rank,
    text: String,
    pod: String,
}

fn trouble(pod: &DynamicObject) -> Option<Trouble> {
    let (rank, delay) = delay(pod)?;
    let name = pod.name_any();
    Some(Trouble {
        rank,
        text: format!("pod {name} {delay}"),
        pod: name,
    })
}

/// Why a pod is not ready; `None` if it is ready or being deleted.
fn delay(pod: &DynamicObject) -> Option<(Rank, String)> {
    let status = &pod.data["status"];
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let is_ready = conditions
        .into_iter()
        .any(|one| one["type"] == "Ready" && one["status"] == "True");
    if is_ready || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    for container in ["initContainerStatuses", "containerStatuses"]
        .into_iter()
        .flat_map(|list| status[list].as_array().into_iter().flatten())
    {
        let waiting = &container["state"]["waiting"];
        let ended = [
            &container["state"]["terminated"],
            &container["lastState"]["terminated"],
        ];
        let ended = ended
            .into_iter()
            .find(|ended| ended["exitCode"].as_i64().is_some_and(|code| code != 0));
        match (waiting["reason"].as_str(), ended) {
            (_, Some(ended)) => {
                let reason = ended["reason"].as_str().unwrap_or("Error");
                let text = format!(
                    "ends with exit code {} ({})",
                    ended["exitCode"],
                    plain(reason)
                );
                return Some((Rank::Crashes, text));
            }
            (Some("ContainerCreating" | "PodInitializing") | None, None) => {}
            (Some(reason), None) => {
                let message = waiting["message"]
                    .as_str()
                    .map_or_else(String::new, |text| format!(": {}", plain(text)));
                let text = format!("waits ({}){message}", plain(reason));
                return Some((Rank::Waits, text));
            }
        }
    }
    if let Some(message) = condition(status, "PodScheduled", "False") {
        return Some((Rank::NoNode, format!("has no node: {message}")));
    }
    if status["phase"] == "Running" {
        return Some((Rank::NotReady, "runs, and is not ready yet".to_owned()));
    }
    Some((Rank::Starts, "is being started".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    fn deployment(observed: i64, replicas: i64, updated: i64, available: i64) -> DynamicObject {
        object(json!({
            "metadata": {"name": "backup-webhook", "generation": 2}, "spec": {"replicas": 2},
            "status": {"observedGeneration": observed, "replicas": replicas, "updatedReplicas": updated,
                "availableReplicas": available},
        }))
    }

    #[test]
    fn a_rollout_is_over_when_all_replicas_are_new_and_ready() {
        for (observed, replicas, updated, available, is_ready) in [
            (2, 2, 2, 2, true),
            (1, 2, 2, 2, false),
            (2, 3, 2, 3, false),
            (2, 2, 1, 2, false),
            (2, 2, 2, 1, false),
            (0, 0, 0, 0, false),
        ] {
            let state = judge(&deployment(observed, replicas, updated, available), &[]);
            assert_eq!(
                state.is_ready, is_ready,
                "{observed} {replicas} {updated} {available}: {state:?}"
            );
        }
    }

    #[test]
    fn what_holds_a_rollout_up_is_named() {
        let pod = |status: Value| object(json!({"metadata": {"name": "p"}, "status": status}));
        let container = |state: Value| json!({"phase": "Pending", "containerStatuses": [state]});
        for (status, expected, crashes) in [
            (
                json!({"conditions": [{"type": "Ready", "status": "True"}]}),
                "no pod is there yet",
                false,
            ),
            (json!({"phase": "Pending"}), "pod p is being started", false),
            (
                json!({"phase": "Running"}),
                "pod p runs, and is not ready yet",
                false,
            ),
            (
                json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}]}),
                "pod p has no node: 0/1 nodes",
                false,
            ),
            (
                container(
                    json!({"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}),
                ),
                "pod p waits (ImagePullBackOff): no such image",
                false,
            ),
            (
                container(json!({"state": {"waiting": {"reason": "ContainerCreating"}}})),
                "pod p is being started",
                false,
            ),
            (
                container(
                    json!({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}}),
                ),
                "pod p ends with exit code 1 (Error)",
                true,
            ),
        ] {
            let state = judge(&deployment(2, 2, 2, 0), &[pod(status)]);
            assert_eq!(state.text, format!("0 of 2 ready: {expected}"));
            assert_eq!(state.crashing.is_some(), crashes, "{expected}");
        }
        let mut refused = deployment(2, 0, 0, 0);
        refused.data["status"]["conditions"] = json!([{"type": "ReplicaFailure", "status": "True", "message": "violates PodSecurity"}]);
        assert_eq!(
            judge(&refused, &[]).text,
            "0 of 2 are of this version: violates PodSecurity"
        );
    }

    #[test]
    fn replicas_of_the_version_before_are_not_counted_as_ready() {
        for (observed, replicas, updated, expected) in [
            (1, 2, 1, "1 of 2 are of this version: no pod is there yet"),
            (2, 3, 1, "1 of 2 are of this version: no pod is there yet"),
            (
                2,
                3,
                2,
                "1 of the version before are still there: no pod is there yet",
            ),
        ] {
            assert_eq!(
                judge(&deployment(observed, replicas, updated, 2), &[]).text,
                expected
            );
        }
    }

    #[test]
    fn what_does_not_pass_is_named_before_what_does() {
        let starts = object(json!({"metadata": {"name": "a"}, "status": {"phase": "Pending"}}));
        let waits = object(
            json!({"metadata": {"name": "b"}, "status": {"containerStatuses": [
            {"state": {"waiting": {"reason": "ErrImagePull"}}}]}}),
        );
        let state = judge(&deployment(2, 2, 2, 0), &[starts, waits]);
        assert_eq!(state.text, "0 of 2 ready: pod b waits (ErrImagePull)");
    }
}
