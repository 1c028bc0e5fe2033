//! Writes to the status and annotations of a BackupRepository. Each carries the resourceVersion.

use backup_core::{api::BackupRepository, event_reason::EventReason};
use backup_runtime::retry::{self, PatchOutcome};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::json;

use super::{
    check::{CHECK_ANNOTATION, Check},
    decide::{self, Facts, PodEnd},
    patches,
    verdict::Verdict,
};
use crate::{error::ReconcileError, volumes::data_mover::DataMover};

impl DataMover {
    /// Writes a verdict into the status.
    pub(super) async fn publish_verdict(
        &self,
        repository: &BackupRepository,
        inputs: &str,
        verdict: &Verdict,
    ) -> Result<(), ReconcileError> {
        let check = Check {
            inputs: inputs.to_owned(),
            at: Timestamp::now(),
            is_final: verdict.is_final,
        };
        let outcome = retry::status_patch(&self.cluster, repository, |current| {
            decide::is_ours(current).then(|| patches::verdict(current, verdict, &check))
        })
        .await?;
        let message = verdict.message.as_deref();
        let is_same_phase = repository.status.phase.as_ref() == Some(&verdict.phase());
        let is_same_message = repository.status.message.as_deref() == message;
        let PatchOutcome::Written(written) = outcome else {
            return Ok(());
        };
        let name = written.name_any();
        match message {
            Some(message) if !(is_same_phase && is_same_message) => {
                tracing::warn!(repository = name, message, "the repository cannot be used");
                let events = &self.cluster.events;
                events.warning_for_note(&written, EventReason::Unavailable, message);
            }
            None if !is_same_phase => {
                tracing::info!(repository = name, "the repository is ready");
            }
            _ => {}
        }
        Ok(())
    }

    /// Publishes what a pod that was to open the repository has found. What it has found with other
    /// inputs, such as another password, says nothing.
    pub(super) async fn record_opening(
        &self,
        facts: &Facts<'_>,
        end: &PodEnd,
    ) -> Result<(), ReconcileError> {
        if end.valid_for.as_ref() != Some(&facts.inputs) {
            return Ok(());
        }
        let namespace = &facts.repository.spec.volume_namespace;
        let failure = end.failure.as_deref();
        let verdict = Verdict::of_opening(namespace, failure, end.outcome.as_ref());
        self.publish_verdict(facts.repository, &facts.inputs, &verdict)
            .await
    }

    /// Writes what the status of a repository that can be used says. Returns whether that is new.
    pub(super) async fn publish_remark(
        &self,
        repository: &BackupRepository,
        remark: Option<&str>,
    ) -> Result<bool, ReconcileError> {
        let outcome = retry::status_patch(&self.cluster, repository, |current| {
            patches::remark(current, remark)
        })
        .await?;
        Ok(matches!(outcome, PatchOutcome::Written(_)))
    }

    /// Removes what is known of a repository, so that it is checked again at once.
    pub(super) async fn forget_check(
        &self,
        repository: &BackupRepository,
    ) -> Result<(), ReconcileError> {
        retry::status_patch(&self.cluster, repository, |current| {
            current
                .annotations()
                .contains_key(CHECK_ANNOTATION)
                .then(|| json!({"metadata": {"annotations": {CHECK_ANNOTATION: null}}}))
        })
        .await?;
        Ok(())
    }

    /// Writes one annotation.
    pub(super) async fn annotate(
        &self,
        repository: &BackupRepository,
        name: &str,
        value: &str,
    ) -> Result<(), ReconcileError> {
        let patch = patches::annotated(name, value);
        retry::status_patch(&self.cluster, repository, |_| Some(patch.clone())).await?;
        Ok(())
    }
}
