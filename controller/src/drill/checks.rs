//! Checks of a drill that are Jobs in a scratch namespace. Their exit codes count.

use backup_client::errors::{found, is_transient, plain};
use backup_core::{
    api::{Restore, drill::DrillCheck},
    drill::DEFAULT_CHECK_TIMEOUT,
};
use backup_runtime::{Cluster, retry::WRITE_TIMEOUT};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};

use super::decide::{self, CheckState};
use crate::error::ReconcileError;

/// Label by which Kubernetes marks the pods of a Job.
const JOB_NAME: &str = "batch.kubernetes.io/job-name";

/// Creates the Job of a check unless it is there, and returns how far it is.
pub(super) async fn run(
    cluster: &Cluster,
    restore: &Restore,
    check: &DrillCheck,
    now: Timestamp,
) -> Result<CheckState, ReconcileError> {
    let Some(namespace) = restore.spec.namespace_mapping.get(&check.namespace) else {
        return Ok(decide::not_restored(check));
    };
    let jobs: Api<Job> = Api::namespaced(cluster.client.clone(), namespace);
    let name = job_name(check);
    let Some(job) = found(jobs.get(&name).await, &name)? else {
        return create(cluster, &jobs, check).await;
    };
    let timeout = SignedDuration::from_secs(timeout(check));
    let state = decide::job_state(&job, timeout, now);
    let CheckState::Failed(why) = state else {
        return Ok(state);
    };
    let code = exit_code(cluster, namespace, &name).await;
    let code = code.map_or_else(String::new, |code| format!("exit code {code}: "));
    Ok(CheckState::Failed(format!("{code}{why}")))
}

fn job_name(check: &DrillCheck) -> String {
    format!("drill-check-{}", check.name)
}

/// Time limit (seconds).
fn timeout(check: &DrillCheck) -> i64 {
    check
        .timeout
        .unwrap_or(DEFAULT_CHECK_TIMEOUT)
        .as_secs()
        .max(1)
}

async fn create(
    cluster: &Cluster,
    jobs: &Api<Job>,
    check: &DrillCheck,
) -> Result<CheckState, ReconcileError> {
    let job = match job(check) {
        Ok(job) => job,
        Err(error) => return Ok(CheckState::Failed(format!("it is no Job: {error}"))),
    };
    let params = PostParams::default();
    let created = jobs.create(&params, &job);
    match cluster.leadership.write(WRITE_TIMEOUT, created).await {
        Ok(_) => Ok(CheckState::Running),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(CheckState::Running),
        Err(error) if is_transient(&error) => Err(error.into()),
        // Not valid, or a policy or quota forbids it.
        Err(error @ kube::Error::Api(_)) => Ok(CheckState::Failed(format!(
            "its Job was not created: {}",
            plain(&error)
        ))),
        Err(error) => Err(error.into()),
    }
}

/// The Job of a check. It is tried once, unless its spec says otherwise, and ends by its time limit.
fn job(check: &DrillCheck) -> serde_json::Result<Job> {
    let mut spec = check.job.clone();
    let defaults = [
        ("/backoffLimit", json!(0)),
        ("/activeDeadlineSeconds", json!(timeout(check))),
        ("/template/spec/restartPolicy", json!("Never")),
    ];
    for (path, value) in defaults {
        let (parent, field) = path.rsplit_once('/').unwrap_or_default();
        if let Some(Value::Object(fields)) = spec.pointer_mut(parent) {
            fields.entry(field).or_insert(value);
        }
    }
    serde_json::from_value(json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": job_name(check) },
        "spec": spec,
    }))
}

/// The exit code of a container of the Job that has failed, if it is known.
async fn exit_code(cluster: &Cluster, namespace: &str, job: &str) -> Option<i32> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), namespace);
    let params = ListParams::default().labels(&format!("{JOB_NAME}={job}"));
    let listed = pods.list(&params).await.ok()?;
    let statuses = listed
        .items
        .into_iter()
        .filter_map(|pod| pod.status?.container_statuses)
        .flatten();
    let mut codes = statuses.filter_map(|container| Some(container.state?.terminated?.exit_code));
    codes.find(|code| *code != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(job: &Value, timeout: &Value) -> DrillCheck {
        let check = json!({ "name": "a", "namespace": "shop", "job": job, "timeout": timeout });
        serde_json::from_value(check).unwrap()
    }

    #[test]
    fn a_job_is_tried_once_and_ends_in_time_unless_it_says_otherwise() {
        let spec =
            json!({ "template": { "spec": { "containers": [{ "name": "c", "image": "i" }] } } });
        let made = job(&check(&spec, &Value::Null)).unwrap();
        assert_eq!(made.metadata.name.as_deref(), Some("drill-check-a"));
        let spec = made.spec.unwrap();
        assert_eq!(
            (spec.backoff_limit, spec.active_deadline_seconds),
            (Some(0), Some(300))
        );
        let pod = spec.template.spec.unwrap();
        assert_eq!(pod.restart_policy.as_deref(), Some("Never"));
        let own = json!({ "backoffLimit": 2, "activeDeadlineSeconds": 10,
            "template": { "spec": { "restartPolicy": "OnFailure", "containers": [] } } });
        let made = job(&check(&own, &json!("1m"))).unwrap().spec.unwrap();
        assert_eq!(
            (made.backoff_limit, made.active_deadline_seconds),
            (Some(2), Some(10))
        );
        let pod = made.template.spec.unwrap();
        assert_eq!(pod.restart_policy.as_deref(), Some("OnFailure"));
        assert!(job(&check(&json!({ "template": 1 }), &Value::Null)).is_err());
    }
}
