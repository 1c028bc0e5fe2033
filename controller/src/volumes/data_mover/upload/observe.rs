//! Reads what a decision about an upload needs, and nothing else: many uploads wait side by side.

use std::time::Duration;

use backup_core::{
    api::{
        DataUpload,
        transfer::{CsiSnapshotSpec, MovePhase},
    },
    data_movement::repository_name,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{Api, ResourceExt as _};

use super::{
    Uploads,
    decide::{Facts, SeenPod, phase},
    source::{Source, SourceObjects},
};
use crate::{
    error::ReconcileError,
    volumes::data_mover::{
        objects::{EVENT_DELAY, active_transfers, last_warning},
        pod_state::PodState,
        repository::RepositoryState,
    },
};

impl Uploads {
    /// The facts about an upload that is not settled.
    pub(super) async fn facts(&self, upload: &DataUpload) -> Result<Facts, ReconcileError> {
        let mut facts = Facts {
            source: Source::Waiting("its snapshot is looked for".to_owned()),
            repository: RepositoryState::Ready,
            has_room: true,
            pod: None,
            claim_problem: None,
            progress: None,
            prepare_timeout: self.mover.settings.prepare_timeout,
        };
        match phase(upload) {
            None | Some(MovePhase::New) => self.observe_new(upload, &mut facts).await?,
            Some(MovePhase::Accepted | MovePhase::Prepared | MovePhase::Canceling) => {
                self.observe_accepted(upload, &mut facts).await?;
            }
            Some(MovePhase::InProgress) => {
                let pod = self.mover.pod(&upload.name_any()).await?;
                facts.pod = pod.as_ref().map(seen);
                if is_in(&facts, &PodState::Running) {
                    facts.progress = self.mover.progress(&upload.name_any()).await;
                }
            }
            Some(
                MovePhase::Completed
                | MovePhase::Failed
                | MovePhase::Canceled
                | MovePhase::Unknown(_),
            ) => {}
        }
        Ok(facts)
    }

    /// The cheapest first: what comes later is not read if the upload has to wait anyway.
    async fn observe_new(
        &self,
        upload: &DataUpload,
        facts: &mut Facts,
    ) -> Result<(), ReconcileError> {
        facts.source = self.source(upload).await?;
        if !matches!(facts.source, Source::Ready(_)) {
            return Ok(());
        }
        let active = active_transfers(&self.mover).await?;
        facts.has_room = active < self.mover.settings.concurrency;
        if !facts.has_room {
            return Ok(());
        }
        let spec = &upload.spec;
        let namespace = &spec.source_namespace;
        let location = &spec.backup_storage_location;
        facts.repository = match self.mover.repository(namespace, location).await? {
            RepositoryState::Ready => {
                let name = repository_name(namespace, location);
                let awaited = self.mover.awaited_maintenance(&name).await?;
                awaited.unwrap_or(RepositoryState::Ready)
            }
            state @ (RepositoryState::Busy(_)
            | RepositoryState::Waiting(_)
            | RepositoryState::Unusable(_)) => state,
        };
        Ok(())
    }

    async fn observe_accepted(
        &self,
        upload: &DataUpload,
        facts: &mut Facts,
    ) -> Result<(), ReconcileError> {
        let name = upload.name_any();
        let pod = self.mover.pod(&name).await?;
        facts.pod = pod.as_ref().map(seen);
        let is_waiting = facts
            .pod
            .as_ref()
            .is_none_or(|pod| matches!(pod.state, PodState::Waiting(_)));
        if !is_waiting {
            return Ok(());
        }
        if facts.pod.is_none() || phase(upload) == Some(&MovePhase::Accepted) {
            facts.source = self.source(upload).await?;
        }
        let accepted = upload.status.transfer.accepted_timestamp.as_ref();
        let waited = accepted.map(|accepted| Timestamp::now().duration_since(accepted.0));
        let is_long = waited
            .and_then(|waited| Duration::try_from(waited).ok())
            .is_some_and(|waited| waited >= EVENT_DELAY);
        if is_long {
            facts.claim_problem = self.claim_problem(&name).await?;
            if let Some(pod) = &mut facts.pod {
                pod.problem = last_warning(&self.mover, "Pod", &name).await;
            }
        }
        Ok(())
    }

    /// What is known of the snapshot that an upload reads.
    async fn source(&self, upload: &DataUpload) -> Result<Source, ReconcileError> {
        let Some(csi) = &upload.spec.csi_snapshot else {
            return Ok(Source::Unusable(
                "spec.csiSnapshot is missing: expected the snapshot to read".to_owned(),
            ));
        };
        Ok(self.source_objects(upload, csi).await?.source(upload, csi))
    }

    async fn source_objects(
        &self,
        upload: &DataUpload,
        csi: &CsiSnapshotSpec,
    ) -> Result<SourceObjects, ReconcileError> {
        let spec = &upload.spec;
        let api = self.snapshots();
        let snapshot = api
            .snapshot(&spec.source_namespace, &csi.volume_snapshot)
            .await?;
        let content = snapshot.as_ref().and_then(|snapshot| {
            snapshot.data["status"]["boundVolumeSnapshotContentName"].as_str()
        });
        let content = match content {
            Some(content) => api.content(content).await?,
            None => None,
        };
        let client = self.mover.cluster.client.clone();
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client, &spec.source_namespace);
        Ok(SourceObjects {
            claim: claims.get_opt(&spec.source_pvc).await?,
            snapshot,
            content,
        })
    }

    /// Why the claim of an upload is not bound, if it is not.
    async fn claim_problem(&self, name: &str) -> Result<Option<String>, ReconcileError> {
        let claims: Api<PersistentVolumeClaim> = self.mover.cluster.api();
        let claim = claims.get_opt(name).await?;
        let status = claim.and_then(|claim| claim.status);
        let is_pending = status.is_some_and(|status| status.phase.as_deref() == Some("Pending"));
        Ok(if is_pending {
            last_warning(&self.mover, "PersistentVolumeClaim", name).await
        } else {
            None
        })
    }
}

fn is_in(facts: &Facts, state: &PodState) -> bool {
    facts.pod.as_ref().is_some_and(|pod| pod.state == *state)
}

fn seen(pod: &Pod) -> SeenPod {
    SeenPod {
        uid: pod.uid().unwrap_or_default(),
        state: PodState::of(pod),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        deleted: pod.metadata.deletion_timestamp.as_ref().map(|time| time.0),
        problem: None,
    }
}
