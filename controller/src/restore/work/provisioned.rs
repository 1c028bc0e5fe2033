//! Volumes that are provisioned again get the reclaim policy and the labels that the backup's
//! volumes had (Velero `pkg/controller/restore_finalizer_controller.go`,
//! `patchDynamicPVWithVolumeInfo`, v1.18).

use std::time::Duration;

use backup_actions::restore::json::{self, Object};
use backup_client::{backoff::Backoff, path};
use backup_core::{
    resources::CLAIMS,
    volume_info::{VolumeInfo, VolumeProperties},
};
use backup_store::Scope;
use futures::{StreamExt as _, stream};
use serde_json::json;
use tokio::time::Instant;

use super::{MAX_CONCURRENT_ITEMS, Restoring};
use crate::{
    job::cancellation::StopReason,
    restore::calls::{CallError, Calls},
};

const VOLUMES: &str = "/api/v1/persistentvolumes";
const READ_BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(200),
    cap: Duration::from_secs(5),
};

/// A created claim, and the properties for its new volume.
#[derive(Debug)]
pub(crate) struct ProvisionedClaim {
    namespace: String,
    claim: String,
    properties: VolumeProperties,
}

impl ProvisionedClaim {
    /// `None` if the class sets all properties of the volume: then there is no need to wait.
    pub(super) fn of(namespace: &str, claim: &str, record: &VolumeInfo) -> Option<Self> {
        let properties = record.pv_info.clone()?;
        let usual = matches!(properties.reclaim_policy.as_str(), "" | "Delete");
        (!usual || !properties.labels.is_empty()).then(|| Self {
            namespace: namespace.to_owned(),
            claim: claim.to_owned(),
            properties,
        })
    }

    /// The warning that its volume keeps the properties of the class, and why.
    pub(super) fn without_properties(&self, why: &str) -> String {
        let Self {
            claim, properties, ..
        } = self;
        format!(
            "the volume of claim {claim:?} did not get its reclaim policy ({}) and its labels back: {why}; \
             set them with `kubectl patch persistentvolume` once the claim is bound",
            properties.reclaim_policy
        )
    }

    /// The patch of the new volume; `None` if nothing changes.
    fn patch(&self, volume: &Object) -> Option<Object> {
        let mut patch = Object::new();
        let wanted = &self.properties.reclaim_policy;
        let policy = json::text(volume, &["spec"], "persistentVolumeReclaimPolicy");
        if !wanted.is_empty() && policy != Some(wanted) {
            json::set(
                &mut patch,
                &["spec"],
                "persistentVolumeReclaimPolicy",
                json!(wanted),
            );
        }
        for (label, value) in &self.properties.labels {
            // Labels set by the provisioner describe the new volume.
            if json::text(volume, &["metadata", "labels"], label).is_none() {
                json::set(&mut patch, &["metadata", "labels"], label, json!(value));
            }
        }
        (!patch.is_empty()).then_some(patch)
    }

    /// Waits until the claim is bound, and changes its volume.
    async fn complete(&self, calls: &Calls, deadline: Instant) -> Result<(), CallError> {
        let collection = path::collection("v1", CLAIMS, Some(&self.namespace));
        let mut looks = 0;
        let subject = format!(
            "claim {}/{} to be bound to its new volume",
            self.namespace, self.claim
        );
        let _wait = calls.cancellation().waits().begin(subject);
        let name = loop {
            let Some(claim) = calls.get(&collection, &self.claim).await? else {
                return Ok(());
            };
            let volume =
                json::text(&claim, &["spec"], "volumeName").filter(|name| !name.is_empty());
            if let (Some(name), Some("Bound")) = (volume, json::text(&claim, &["status"], "phase"))
            {
                break name.to_owned();
            }
            if Instant::now() >= deadline {
                return Err(CallError::Away("it is not bound".to_owned()));
            }
            looks += 1;
            calls.cancellation().wait(READ_BACKOFF.delay(looks)).await?;
        };
        let Some(volume) = calls.get(VOLUMES, &name).await? else {
            return Ok(());
        };
        match self.patch(&volume) {
            // It holds only wanted values, so it may be sent twice, and late.
            Some(patch) => match calls.patch(VOLUMES, &name, &patch, None).await?.1 {
                lost if lost.is_empty() => Ok(()),
                lost => Err(CallError::NotStored(lost)),
            },
            None => Ok(()),
        }
    }
}

impl Restoring<'_> {
    /// Completes the volumes of created claims. Waits for all unbound claims together, until one
    /// deadline.
    pub(super) async fn complete_provisioned(&self) -> Result<(), StopReason> {
        let claims = std::mem::take(&mut *self.plan.provisioned.lock());
        if self.calls.is_dry_run() {
            return Ok(());
        }
        let deadline = Instant::now() + self.patience;
        let completed = stream::iter(claims).map(|claim| async move {
            let Err(error) = claim.complete(self.calls, deadline).await else {
                return Ok(());
            };
            let error = error.unless_stopped()?;
            let message = claim.without_properties(&error.to_string());
            self.report
                .warn(Scope::Namespace(&claim.namespace), message);
            Ok(())
        });
        // Claims in flight are completed before work stops.
        let completed: Vec<Result<(), StopReason>> = completed
            .buffer_unordered(MAX_CONCURRENT_ITEMS)
            .collect()
            .await;
        completed.into_iter().collect()
    }
}
