//! A node whose kubelet runs commands in containers that do not exist
//! (`tests/control-plane/kubelet.go`). The API server connects to it as to any other.

use std::{path::PathBuf, time::Duration};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, api::PostParams};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    World,
    api::ApiExt as _,
    control_plane::loopback_address,
    install::ensure_namespace,
    process::Process,
    wait::{Probe, eventually, when},
};

/// Annotations of pods.
pub const PRE_HOOK: &str = "pre.hook.backup.velero.io/command";
pub const PRE_HOOK_TIMEOUT: &str = "pre.hook.backup.velero.io/timeout";
pub const POST_HOOK: &str = "post.hook.backup.velero.io/command";

const NODE: &str = "scripted";

pub struct Kubelet {
    _process: Process,
    log: PathBuf,
}

/// One line of the kubelet's log.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Call {
    /// `namespace/name`.
    pub pod: String,
    pub container: String,
    pub command: Vec<String>,
    /// `began`, `ended with CODE`, or `broke off`.
    pub event: String,
}

impl Kubelet {
    /// Starts the kubelet, and registers its node.
    pub async fn start(world: &World) -> anyhow::Result<Self> {
        let (folder, address) = (world.folder().join("kubelet"), loopback_address()?);
        let log = folder.join(format!("calls-{}.jsonl", address.port()));
        let args = vec![format!("--log={}", log.display())];
        let process = Process::serve("kubelet", address, args, &folder).await?;
        let nodes: Api<Node> = Api::all(world.client.clone());
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE } });
        nodes.apply_object(NODE, &node).await?;
        let status = json!({
            "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }],
            "daemonEndpoints": { "kubeletEndpoint": { "Port": address.port() } },
            "conditions": [{ "type": "Ready", "status": "True", "reason": "Scripted" }],
        });
        nodes.merge_patch_status(NODE, status).await?;
        Ok(Self {
            _process: process,
            log,
        })
    }

    /// A pod on this node, with one container `main`, which is running for the API server, and
    /// these claims as volumes.
    pub async fn pod(
        &self,
        world: &World,
        namespace: &str,
        name: &str,
        annotations: &Value,
        claims: &[&str],
    ) -> anyhow::Result<()> {
        let volumes: Vec<Value> = claims
            .iter()
            .map(|claim| json!({ "name": claim, "persistentVolumeClaim": { "claimName": claim } }))
            .collect();
        ensure_namespace(&world.client, namespace).await?;
        let pods: Api<Pod> = Api::namespaced(world.client.clone(), namespace);
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": name, "annotations": annotations, "labels": { "app": name } },
            "spec": { "nodeName": NODE, "containers": [{ "name": "main", "image": "none" }],
                "volumes": volumes, "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0 },
        }))?;
        // For a moment, a new namespace has no service account.
        eventually("the pod is there", Duration::from_secs(30), async || {
            pods.create_object(&pod).await.map(Probe::Ready)
        })
        .await?;
        pods.merge_patch_status(name, json!({ "phase": "Running" }))
            .await?;
        Ok(())
    }

    /// Assigns a restored pod, which is on no node, to this one, and sets its containers running.
    pub async fn start_pod(
        &self,
        world: &World,
        namespace: &str,
        name: &str,
    ) -> anyhow::Result<()> {
        let pods: Api<Pod> = Api::namespaced(world.client.clone(), namespace);
        eventually("the pod is restored", Duration::from_mins(1), async || {
            let found = pods.get_opt(name).await?;
            anyhow::Ok(when(found.is_some(), "it is not there".to_owned()))
        })
        .await?;
        let binding = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name },
            "target": { "apiVersion": "v1", "kind": "Node", "name": NODE } });
        let params = PostParams::default();
        let _: Value = pods
            .create_subresource("binding", name, &params, &binding)
            .await?;
        let container = json!({ "name": "main", "image": "none", "imageID": "", "restartCount": 0, "ready": true,
            "state": { "running": { "startedAt": "2026-01-01T00:00:00Z" } } });
        pods.merge_patch_status(
            name,
            json!({ "phase": "Running", "containerStatuses": [container] }),
        )
        .await?;
        Ok(())
    }

    /// All commands that it was asked to run so far.
    pub fn calls(&self) -> anyhow::Result<Vec<Call>> {
        let text = std::fs::read_to_string(&self.log)?;
        Ok(text
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()?)
    }

    /// Waits until a command of a pod has begun, by its first word.
    pub async fn wait_for_begin(&self, pod: &str, command: &str) -> anyhow::Result<()> {
        eventually(
            &format!("{command} has begun"),
            Duration::from_mins(1),
            async || {
                let story = self.story(pod)?;
                anyhow::Ok(when(
                    story.contains(&format!("{command} began")),
                    format!("{story:?}"),
                ))
            },
        )
        .await
    }

    /// First words of the commands of a pod, and their outcomes, in order.
    pub fn story(&self, pod: &str) -> anyhow::Result<Vec<String>> {
        let calls = self.calls()?.into_iter().filter(|call| call.pod == pod);
        Ok(calls
            .map(|call| format!("{} {}", call.command[0], call.event))
            .collect())
    }
}
