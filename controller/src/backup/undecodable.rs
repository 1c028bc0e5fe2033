//! A Backup that can't be decoded, stored by someone whom no webhook stopped: it ends as `FailedValidation`, with the
//! fields at fault, and nothing else is affected.

use backup_core::{
    api::{Backup, BackupPhase},
    validate,
};
use backup_lock::ObjectKey;
use backup_runtime::{
    errors::{is_gone, plain},
    retry::{self, PatchOutcome, WriteError},
    watch::Undecodable,
};
use kube::{
    Api,
    api::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};

use crate::{context::Context, metrics};

/// Why a refusal did not get through.
#[derive(Debug, thiserror::Error)]
pub enum RefuseError {
    /// The object could not be read.
    #[error("it could not be read: {}", plain(.0))]
    Read(#[from] kube::Error),
    /// The patch could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Ends a Backup that can't be decoded. Whether something was written.
pub async fn refuse(ctx: &Context, bad: &Undecodable) -> Result<bool, RefuseError> {
    let resource = ApiResource::erase::<Backup>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(ctx.cluster.client.clone(), &ctx.cluster.namespace, &resource);
    let object = match api.get(&bad.name).await {
        Ok(object) if object.metadata.uid.as_deref() == Some(&bad.uid) => object,
        Ok(_) => return Ok(false),
        Err(error) if is_gone(&error, &bad.name) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let budget = ctx.args.resource_timeout.as_std();
    // Carries the resourceVersion.
    match retry::status_patch_in(&api, &ctx.cluster.leadership, budget, &object, |now| patch(now, &bad.error))
        .await?
    {
        PatchOutcome::Written(_) => {
            tracing::warn!(name = bad.name, error = bad.error, "a Backup that can not be read was refused");
            ctx.cluster.events.warning_on(bad.object_ref(), "FailedValidation", &bad.to_string());
            ctx.metrics.backup(metrics::Outcome::ValidationFailure, "");
            let key = ObjectKey::backup(&ctx.cluster.namespace, &bad.name);
            if let Err(error) = backup_lock::release(&ctx.ledger, &key, &bad.uid).await {
                tracing::debug!(%key, %error, "claim not released; the collector of claims finds it");
            }
            Ok(true)
        }
        PatchOutcome::Gone | PatchOutcome::Stale => Ok(false),
    }
}

/// The patch to its end; none if it has ended, runs, or can be decoded by now.
fn patch(object: &DynamicObject, decoder: &str) -> Option<Value> {
    let phase = object.data.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    let phase = if phase.is_empty() { BackupPhase::New } else { BackupPhase::from(phase) };
    let raw = serde_json::to_value(object).ok()?;
    if serde_json::from_value::<Backup>(raw.clone()).is_ok() {
        return None;
    }
    let mut errors: Vec<String> = validate::raw_backup(&raw).iter().map(ToString::to_string).collect();
    if errors.is_empty() {
        errors.push(format!("the Backup can not be read: {decoder}"));
    }
    match phase {
        BackupPhase::New | BackupPhase::Queued | BackupPhase::ReadyToStart => Some(json!({
            "status": { "phase": "FailedValidation", "validationErrors": errors, "queuePosition": null }
        })),
        // Its worker, if there is one, still has it as it was; what it can't read it leaves alone.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let patch = patch(&bad(phase), "decoder").unwrap();
            assert_eq!(patch["status"]["phase"], "FailedValidation");
            let errors = patch["status"]["validationErrors"].as_array().unwrap();
            assert!(errors[0].as_str().unwrap().starts_with("spec.ttl"), "{errors:?}");
        }
    }

    #[test]
    fn one_that_runs_has_ended_or_can_be_read_is_left_alone() {
        for phase in ["InProgress", "Finalizing", "Completed", "FailedValidation", "Later"] {
            assert_eq!(patch(&bad(Some(phase)), "decoder"), None, "{phase}");
        }
        let good = object(json!({ "metadata": { "name": "b" }, "spec": { "ttl": "1h" } }));
        assert_eq!(patch(&good, "decoder"), None);
    }
}
