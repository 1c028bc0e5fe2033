//! Container logs of the pods of controller, webhook and data mover; after a restart also the log of
//! the previous container.

use std::io::Write as _;

use backup_deploy::{MOVER, PROGRAMS};
use futures::AsyncReadExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;

use super::{PIECE_BYTES, part::PartBuffer};
use crate::commands::prelude::*;

/// The label that names the program of a pod.
const PROGRAM: &str = "/metadata/labels/app.kubernetes.io~1name";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogSource {
    pod: String,
    container: String,
    /// Whether it is the log of the container before the last restart.
    previous: bool,
}

impl LogSource {
    pub(super) fn file(&self) -> String {
        let previous = if self.previous { ".previous" } else { "" };
        format!("logs/{}/{}{previous}.txt", self.pod, self.container)
    }
}

/// The logs of a pod; empty unless the pod is of a program of ours.
pub(super) fn logs(pod: &Value) -> Vec<LogSource> {
    let program = text(pod, PROGRAM);
    if program != MOVER && !PROGRAMS.contains(&program) {
        return Vec::new();
    }
    let mut logs = Vec::new();
    let init_containers = elements(pod, "/spec/initContainers");
    for container in init_containers.chain(elements(pod, "/spec/containers")) {
        let Some(name) = container["name"].as_str() else {
            continue;
        };
        let log = LogSource {
            pod: text(pod, "/metadata/name").to_owned(),
            container: name.to_owned(),
            previous: false,
        };
        let before = has_restarted(pod, name).then(|| LogSource {
            previous: true,
            ..log.clone()
        });
        logs.extend([Some(log), before].into_iter().flatten());
    }
    logs
}

/// The text at a JSON pointer; empty if there is none.
fn text<'a>(pod: &'a Value, pointer: &str) -> &'a str {
    pod.pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The elements of the array at a JSON pointer; empty if there is no array.
fn elements<'a>(pod: &'a Value, pointer: &str) -> std::slice::Iter<'a, Value> {
    let array = pod.pointer(pointer).and_then(Value::as_array);
    array.map(Vec::as_slice).unwrap_or_default().iter()
}

fn has_restarted(pod: &Value, container: &str) -> bool {
    elements(pod, "/status/containerStatuses")
        .chain(elements(pod, "/status/initContainerStatuses"))
        .any(|status| {
            status["name"] == container
                && status["restartCount"]
                    .as_u64()
                    .is_some_and(|times| times > 0)
        })
}

/// Streams a log.
pub(super) async fn read(
    session: &Session,
    log: &LogSource,
    lines: u32,
    mut kept: PartBuffer,
) -> Result<(), Problem> {
    let params = LogParams {
        container: Some(log.container.clone()),
        previous: log.previous,
        tail_lines: Some(lines.into()),
        ..LogParams::default()
    };
    let api: Api<Pod> = session.api();
    let about = About::called("read", "log of pod", "pods/log", &log.pod);
    let mut stream = std::pin::pin!(
        session
            .call(about, api.log_stream(&log.pod, &params))
            .await?
    );
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = stream.read(&mut piece).await;
        let read = read.map_err(|error| Problem::other(format!("the log broke off: {error}")))?;
        if read == 0 {
            return Ok(());
        }
        kept.write_all(&piece[..read])?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(program: &str) -> Value {
        json!({
            "metadata": { "name": "p", "labels": { "app.kubernetes.io/name": program } },
            "spec": { "initContainers": [{ "name": "plugin" }], "containers": [{ "name": "main" }, { "name": "side" }] },
            "status": {
                "initContainerStatuses": [{ "name": "plugin", "restartCount": 0 }],
                "containerStatuses": [{ "name": "main", "restartCount": 2 }, { "name": "side", "restartCount": 0 }],
            },
        })
    }

    #[test]
    fn every_container_of_our_programs_has_a_log_and_a_restarted_one_two() {
        let files = ["plugin.txt", "main.txt", "main.previous.txt", "side.txt"]
            .map(|file| format!("logs/p/{file}"));
        for program in PROGRAMS.into_iter().chain([MOVER]) {
            assert_eq!(
                logs(&pod(program))
                    .iter()
                    .map(LogSource::file)
                    .collect::<Vec<_>>(),
                files
            );
        }
        assert_eq!(logs(&pod("velero")), []);
        assert_eq!(logs(&json!({})), []);
    }
}
