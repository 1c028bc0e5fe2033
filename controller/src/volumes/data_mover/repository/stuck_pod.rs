//! Pods of a repository that do not end, as their node does not answer.
//!
//! Uploads wait for such a maintenance pod: it may run, and a maintenance that runs beside an upload
//! destroys data. Therefore it is not removed until the node is surely off, and a user is told what
//! to do.

use backup_client::errors::{found, is_conflict, is_gone, plain};
use backup_core::{api::backup_repository::BackupRepositoryPhase, event_reason::EventReason};
use backup_runtime::{queue::Action, retry::WRITE_TIMEOUT};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api,
    api::{DeleteParams, Preconditions},
};

use super::{
    REQUEUE_SOON,
    decide::{Facts, NodeState},
    verdict::Verdict,
};
use crate::{error::ReconcileError, volumes::data_mover::DataMover};

/// Maximum number of uploads that get an Event about the pod that they wait for.
const MAX_UPLOAD_EVENTS: usize = 20;

impl DataMover {
    /// The state of the node of a pod that does not end.
    pub(super) async fn node_state(&self, node: Option<&str>) -> NodeState {
        let Some(name) = node else {
            return NodeState::Unknown;
        };
        let nodes: Api<Node> = Api::all(self.cluster.client.clone());
        match found(nodes.get(name).await, name) {
            Ok(node) => NodeState::of(node.as_ref()),
            Err(error) => {
                tracing::debug!(node = name, error = plain(&error), "the node was not read");
                NodeState::Unknown
            }
        }
    }

    /// Publishes why a pod does not end, on its BackupRepository and on the uploads that wait for it.
    pub(super) async fn report_stuck(
        &self,
        facts: &Facts<'_>,
        message: &str,
        holds_up_uploads: bool,
    ) -> Result<Action, ReconcileError> {
        let repository = facts.repository;
        if repository.status.phase == Some(BackupRepositoryPhase::Ready) {
            // Restores can use it.
            if !self.publish_remark(repository, Some(message)).await? {
                return Ok(REQUEUE_SOON);
            }
            tracing::warn!(message, "a pod of a repository does not end");
            let events = &self.cluster.events;
            events.warning(repository, EventReason::Blocked, message);
        } else {
            let verdict = Verdict::retried(message.to_owned());
            self.publish_verdict(repository, &facts.inputs, &verdict)
                .await?;
        }
        if holds_up_uploads {
            let uploads = self.waiting_uploads(&repository.spec).await?;
            for upload in uploads.iter().take(MAX_UPLOAD_EVENTS) {
                let events = &self.cluster.events;
                events.warning(upload, EventReason::Blocked, message);
            }
        }
        Ok(REQUEUE_SOON)
    }

    /// Removes a pod from the API server without waiting for its node, which is off.
    pub(super) async fn discard_pod(&self, name: &str) -> Result<(), ReconcileError> {
        let Some(pod) = self.pod(name).await? else {
            return Ok(());
        };
        if pod.metadata.deletion_timestamp.is_none() {
            // Another pod of this name.
            return Ok(());
        }
        let params = DeleteParams::background()
            .grace_period(0)
            .preconditions(Preconditions {
                uid: pod.metadata.uid.clone(),
                resource_version: None,
            });
        let pods: Api<Pod> = self.cluster.api();
        let leadership = &self.cluster.leadership;
        match leadership
            .write(WRITE_TIMEOUT, pods.delete(name, &params))
            .await
        {
            Ok(_) => {
                tracing::warn!(pod = name, "the pod was removed, as its node is off");
                Ok(())
            }
            Err(error) if is_gone(&error, name) || is_conflict(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
