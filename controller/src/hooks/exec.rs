//! Runs a command in a container, with the exec subresource of its pod.

use std::time::Duration;

use async_trait::async_trait;
use backup_client::{backoff::Backoff, errors::plain, retry};
use backup_runtime::leader::Leadership;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Status};
use kube::{
    Api, Client,
    api::{ApiResource, AttachParams, AttachedProcess, DynamicObject},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    time::Instant,
};

use super::Hook;
use crate::job::cancellation::{Cancellation, NotSent, StopReason};

const FIND_BUDGET: Duration = Duration::from_secs(30);
/// Maximum output of a command that is kept (bytes per stream).
const MAX_OUTPUT_BYTES: usize = 16 << 10;
/// Time for retries of a command that must run and has not begun.
const RETRY_BUDGET: Duration = Duration::from_mins(1);
const RETRY_BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(500),
    cap: Duration::from_secs(10),
};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExecError {
    /// Its connection could not be opened.
    #[error("it could not be begun: {0}")]
    NotBegun(String),
    /// Work must stop, so the command was not begun.
    #[error("it was not begun: {0}")]
    Stopped(StopReason),
    /// The command was begun, or may have been; its outcome is unknown.
    #[error("its outcome is unknown: {0}")]
    Unknown(String),
    /// The command has ended and reports a failure.
    #[error("{reason}")]
    Failed {
        /// The exit code, as a sentence.
        reason: String,
        /// Output of the command. It may hold passwords, so it is only written to the log of the
        /// backup or restore.
        output: String,
    },
}

impl ExecError {
    /// Whether the command may have had an effect.
    pub(crate) fn has_begun(&self) -> bool {
        !matches!(self, Self::NotBegun(_) | Self::Stopped(_))
    }

    /// Output of a failed command; for the log of the backup or restore only.
    pub(crate) fn output(&self) -> &str {
        match self {
            Self::Failed { output, .. } => output,
            Self::NotBegun(_) | Self::Stopped(_) | Self::Unknown(_) => "",
        }
    }
}

/// Runs commands in pods; in a cluster, or in memory.
#[async_trait]
pub(crate) trait Executor: Send + Sync {
    /// Whether the pod of this name has this uid, and runs.
    async fn is_running(&self, namespace: &str, pod: &str, uid: &str) -> Result<bool, kube::Error>;

    /// Runs a command once, at most for its timeout. Returns its output.
    async fn run(&self, namespace: &str, pod: &str, hook: &Hook) -> Result<String, ExecError>;
}

/// Runs a command that must run: retries while it is known not to have begun.
pub(crate) async fn run_until_begun(
    executor: &dyn Executor,
    namespace: &str,
    pod: &str,
    hook: &Hook,
) -> Result<String, ExecError> {
    let started = Instant::now();
    let mut tries = 0;
    loop {
        let result = executor.run(namespace, pod, hook).await;
        let Err(error @ ExecError::NotBegun(_)) = &result else {
            return result;
        };
        if started.elapsed() >= RETRY_BUDGET {
            return result;
        }
        tracing::debug!(namespace, pod, %error, "a command is retried");
        tries += 1;
        tokio::time::sleep(RETRY_BACKOFF.delay(tries)).await;
    }
}

/// Runs commands only while work may write: a command is a write.
pub(crate) struct GatedExecutor<'a> {
    pub(crate) executor: &'a dyn Executor,
    pub(crate) cancellation: &'a Cancellation,
    /// Timeout for the confirmation of the claim.
    pub(crate) patience: Duration,
}

#[async_trait]
impl Executor for GatedExecutor<'_> {
    async fn is_running(&self, namespace: &str, pod: &str, uid: &str) -> Result<bool, kube::Error> {
        self.executor.is_running(namespace, pod, uid).await
    }

    async fn run(&self, namespace: &str, pod: &str, hook: &Hook) -> Result<String, ExecError> {
        self.cancellation
            .check_new_work()
            .map_err(ExecError::Stopped)?;
        match self.cancellation.may_write(self.patience).await {
            Ok(()) => {
                let subject = hook.subject("after the restore", namespace, pod);
                let subject = format!("the end of {}", subject.trim_end_matches(','));
                self.cancellation
                    .waits()
                    .during(subject, self.executor.run(namespace, pod, hook))
                    .await
            }
            Err(NotSent::Stopped(reason)) => Err(ExecError::Stopped(reason)),
            Err(error @ NotSent::Unconfirmed) => Err(ExecError::NotBegun(error.to_string())),
        }
    }
}

pub(crate) struct InCluster {
    client: Client,
    leadership: Leadership,
}

impl InCluster {
    /// Takes a client whose connections may be silent while a command runs. A replica that does not
    /// lead runs nothing: it would thaw what the leader has frozen.
    pub(crate) fn new(client: Client, leadership: Leadership) -> Self {
        Self { client, leadership }
    }
}

#[async_trait]
impl Executor for InCluster {
    async fn is_running(&self, namespace: &str, pod: &str, uid: &str) -> Result<bool, kube::Error> {
        let resource = ApiResource::erase::<Pod>(&());
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &resource);
        let found = retry::read(FIND_BUDGET, || api.get_opt(pod)).await?;
        Ok(found.is_some_and(|found| {
            found.metadata.uid.as_deref() == Some(uid) && found.data["status"]["phase"] == "Running"
        }))
    }

    async fn run(&self, namespace: &str, pod: &str, hook: &Hook) -> Result<String, ExecError> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let params = AttachParams {
            container: Some(hook.container.clone()),
            stdin: false,
            stdout: true,
            stderr: true,
            tty: false,
            ..AttachParams::default()
        };
        self.leadership
            .check()
            .map_err(|error| ExecError::NotBegun(error.to_string()))?;

        let deadline = Instant::now() + hook.timeout;
        let begun = tokio::time::timeout_at(deadline, api.exec(pod, &hook.command, &params)).await;
        let mut process = begun
            .map_err(|_| timed_out(hook))?
            .map_err(|error| ExecError::NotBegun(plain(&error)))?;
        let ended = tokio::time::timeout_at(deadline, outcome(&mut process)).await;
        // Otherwise the connection would stay open as long as the command runs.
        process.abort();
        ended.map_err(|_| timed_out(hook))?
    }
}

fn timed_out(hook: &Hook) -> ExecError {
    ExecError::Unknown(format!("it did not end within {:?}", hook.timeout))
}

async fn outcome(process: &mut AttachedProcess) -> Result<String, ExecError> {
    let stdout = process.stdout();
    let stderr = process.stderr();
    let status = process.take_status();
    let status = async {
        match status {
            Some(status) => status.await,
            None => None,
        }
    };
    let (stdout, stderr, status) = tokio::join!(read(stdout), read(stderr), status);
    let output = [stdout, stderr]
        .map(|text| text.trim().to_owned())
        .join("\n")
        .trim()
        .to_owned();
    classify(status, output)
}

fn classify(status: Option<Status>, output: String) -> Result<String, ExecError> {
    let Some(status) = status else {
        return Err(ExecError::Unknown(
            "the connection ended before the command".to_owned(),
        ));
    };
    if status.status.as_deref() == Some("Success") {
        return Ok(output);
    }
    let causes = status
        .details
        .and_then(|details| details.causes)
        .unwrap_or_default();
    let exit = causes
        .into_iter()
        .find(|cause| cause.reason.as_deref() == Some("ExitCode"));
    let message = status.message.unwrap_or_default();
    Err(match exit {
        Some(exit) => ExecError::Failed {
            reason: format!("exit code {}", exit.message.unwrap_or_default()),
            output,
        },
        // The API server could not reach the node, or the node could not begin the command.
        None => ExecError::NotBegun(message),
    })
}

/// Returns the beginning of a stream; the rest is read and dropped, so that the command does not
/// block.
async fn read(stream: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut stream) = stream else {
        return String::new();
    };
    let mut kept = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut piece).await {
        let room = MAX_OUTPUT_BYTES.saturating_sub(kept.len()).min(length);
        kept.extend_from_slice(&piece[..room]);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(value: serde_json::Value) -> Option<Status> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_status_says_how_a_command_has_ended() {
        let text = || "printed".to_owned();
        assert_eq!(
            classify(status(json!({ "status": "Success" })), text()),
            Ok(text())
        );
        let failed = json!({
            "status": "Failure", "reason": "NonZeroExitCode", "message": "command terminated with exit code 3",
            "details": { "causes": [{ "reason": "ExitCode", "message": "3" }] },
        });
        let error = classify(status(failed), text()).unwrap_err();
        assert_eq!(
            (
                error.to_string().as_str(),
                error.output(),
                error.has_begun()
            ),
            ("exit code 3", "printed", true)
        );
        let unreachable = json!({ "status": "Failure", "reason": "InternalError", "message": "error dialing backend" });
        assert_eq!(
            classify(status(unreachable), text()),
            Err(ExecError::NotBegun("error dialing backend".into()))
        );
        assert!(matches!(classify(None, text()), Err(ExecError::Unknown(_))));
    }

    #[tokio::test]
    async fn a_replica_that_does_not_lead_runs_nothing() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        // No server listens there.
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let executor = InCluster::new(Client::try_from(config).unwrap(), Leadership::never());
        let hook = Hook {
            source: "annotation".to_owned(),
            container: "c".to_owned(),
            command: vec!["thaw".to_owned()],
            fails: true,
            timeout: Duration::from_secs(1),
        };
        let error = executor.run("a", "p", &hook).await.unwrap_err();
        assert!(
            !error.has_begun() && error.to_string().contains("does not hold the Lease"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn what_a_command_prints_is_kept_up_to_a_limit() {
        let long = vec![b'x'; MAX_OUTPUT_BYTES * 3];
        assert_eq!(read(Some(&long[..])).await.len(), MAX_OUTPUT_BYTES);
        assert_eq!(read(None::<&[u8]>).await, "");
    }
}
