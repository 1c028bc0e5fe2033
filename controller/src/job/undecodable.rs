//! Objects that cannot be decoded, stored without the webhook's check: one that has not begun ends
//! as `FailedValidation`, with the fields at fault, and no other object is affected.

use backup_client::errors::is_gone;
use backup_core::{
    event_reason::EventReason,
    phase::{Phase as _, Stage},
};
use backup_runtime::{
    retry::{self, PatchOutcome},
    watch::Undecodable,
};
use kube::{
    Api,
    api::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};

use super::{
    JobContext, finalizers,
    kind::{JobKind, PhaseOf},
    lifecycle::Lifecycle,
    object::JobObject,
};
use crate::{error::ReconcileError, metrics};

/// Ends an object that cannot be decoded. Returns whether something was written.
pub(crate) async fn refuse<L: Lifecycle>(
    ctx: &JobContext,
    bad: &Undecodable,
) -> Result<bool, ReconcileError> {
    let resource = ApiResource::erase::<L::Object>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(
        ctx.cluster.client.clone(),
        &ctx.cluster.namespace,
        &resource,
    );
    let object = match api.get(&bad.name).await {
        Ok(object) => object,
        Err(error) if is_gone(&error, &bad.name) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    if object.metadata.uid.as_deref() != Some(bad.uid.as_str()) {
        return Ok(false);
    }
    // Carries the resourceVersion.
    match retry::status_patch_in(
        &api,
        &ctx.cluster.leadership,
        ctx.resource_timeout,
        &object,
        |now| patch::<L>(now, &bad.error),
    )
    .await?
    {
        PatchOutcome::Written(ended) => {
            let noun = L::KIND.noun();
            let reason = EventReason::of_end(phase::<L>(&ended).stage());
            tracing::warn!(
                name = bad.name,
                error = bad.error,
                "a {noun} that cannot be read was refused"
            );
            ctx.cluster
                .events
                .warning_on(bad.object_ref(), reason, &bad.to_string());
            L::count(&ctx.metrics, None, metrics::Outcome::ValidationFailure);
            let key = L::Object::ledger_key(&ctx.cluster.namespace, &bad.name);
            if let Err(error) = backup_lock::release(&ctx.ledger, &key, &bad.uid).await {
                tracing::debug!(%key, %error, "claim not released; the collector of claims finds it");
            }
            Ok(true)
        }
        PatchOutcome::Gone | PatchOutcome::Stale => Ok(false),
    }
}

fn phase<L: JobKind>(object: &DynamicObject) -> PhaseOf<L> {
    let phase = object
        .data
        .pointer("/status/phase")
        .filter(|phase| **phase != json!(""));
    let phase = phase.and_then(|phase| serde_json::from_value(phase.clone()).ok());
    phase
        .or_else(|| PhaseOf::<L>::of(Stage::New))
        .unwrap_or(PhaseOf::<L>::FAILED)
}

/// The patch that ends the object; `None` if it has ended, or can be decoded now.
fn patch<L: JobKind>(object: &DynamicObject, decoder: &str) -> Option<Value> {
    let raw = serde_json::to_value(object).ok()?;
    if serde_json::from_value::<L::Object>(raw.clone()).is_ok() {
        return None;
    }
    let mut errors = L::Object::raw_findings(&raw);
    if errors.is_empty() {
        errors.push(format!("the {} cannot be read: {decoder}", L::KIND.noun()));
    }
    match phase::<L>(object).stage() {
        Stage::New | Stage::Queued | Stage::ReadyToStart => {
            let mut patch =
                json!({ "status": { "phase": "FailedValidation", "validationErrors": errors } });
            if L::KIND.has_queue() {
                patch["status"]["queuePosition"] = Value::Null;
            }
            Some(patch)
        }
        // A running backup was decoded before; its worker ends it as it was read then. A restore
        // cannot be resumed from a broken spec.
        Stage::InProgress if L::KIND.is_validated_again() => Some(json!({
            "metadata": { "finalizers": finalizers::without(object, &[finalizers::work::<L>()]) },
            "status": { "phase": "Failed", "failureReason": errors.join("; ") },
        })),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::Backups;

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    fn bad(phase: Option<&str>) -> DynamicObject {
        object(json!({
            "apiVersion": "velero.io/v1", "kind": "Backup", "metadata": { "name": "b", "uid": "u" },
            "spec": { "ttl": "tomorrow" }, "status": { "phase": phase },
        }))
    }

    #[test]
    fn a_malformed_ttl_is_refused_with_the_name_of_the_field() {
        for phase in [None, Some("New"), Some("Queued"), Some("ReadyToStart")] {
            let patch = patch::<Backups>(&bad(phase), "decoder").unwrap();
            assert_eq!(patch["status"]["phase"], "FailedValidation");
            let errors = patch["status"]["validationErrors"].as_array().unwrap();
            assert!(
                errors[0].as_str().unwrap().starts_with("spec.ttl"),
                "{errors:?}"
            );
        }
    }

    #[test]
    fn one_that_runs_has_ended_or_can_be_read_is_left_alone() {
        for phase in [
            "InProgress",
            "Finalizing",
            "Completed",
            "FailedValidation",
            "Later",
        ] {
            assert_eq!(
                patch::<Backups>(&bad(Some(phase)), "decoder"),
                None,
                "{phase}"
            );
        }
        let good = object(json!({ "metadata": { "name": "b" }, "spec": { "ttl": "1h" } }));
        assert_eq!(patch::<Backups>(&good, "decoder"), None);
    }
}
