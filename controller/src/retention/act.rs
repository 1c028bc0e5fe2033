//! Asking for the deletion of a backup, or saying why it stays.

use backup_core::{
    api::{Backup, DeleteBackupRequest, delete_backup_request::DeleteBackupRequestSpec},
    labels,
};
use backup_runtime::{
    ReconcileError, delete,
    errors::is_conflict,
    retry::{self, PatchOutcome},
};
use kube::{Api, ResourceExt as _, api::PostParams};
use serde_json::json;

use super::{decide::Failure, observe::ours};
use crate::context::Context;

/// Says by Velero's label why an expired backup stays.
pub(super) async fn label(ctx: &Context, backup: &Backup, failure: Failure) -> Result<(), ReconcileError> {
    if mark(ctx, backup, Some(failure.as_str())).await? {
        let note = format!("the backup has expired and can not be deleted now ({})", failure.as_str());
        ctx.cluster.events.warning(backup, "NotDeleted", &note);
        tracing::warn!(backup = backup.name_any(), reason = failure.as_str(), "an expired backup stays");
    }
    Ok(())
}

/// Sets the label, or takes it off. Whether that was a change. Conditional on the resourceVersion.
async fn mark(ctx: &Context, backup: &Backup, value: Option<&str>) -> Result<bool, ReconcileError> {
    let marked = |backup: &Backup| backup.labels().get(labels::GC_FAILURE).map(String::as_str) == value;
    if marked(backup) {
        return Ok(false);
    }
    let outcome = retry::status_patch(&ctx.cluster, backup, |current| {
        (!marked(current)).then(|| json!({"metadata": {"labels": {labels::GC_FAILURE: value}}}))
    })
    .await?;
    Ok(matches!(outcome, PatchOutcome::Written(_)))
}

/// Asks for the deletion of this very backup: by its uid, so that another one of its name is never meant. Create-only, under a name
/// that is the same each time.
pub(super) async fn ask(ctx: &Context, backup: &Backup) -> Result<(), ReconcileError> {
    mark(ctx, backup, None).await?;
    let name = backup.name_any();
    let spec = DeleteBackupRequestSpec { backup_name: name.clone(), ..DeleteBackupRequestSpec::default() };
    let mut request = DeleteBackupRequest::new(&ours(backup), spec);
    let labels = [
        (labels::BACKUP_NAME, labels::valid_value(&name)),
        (labels::BACKUP_UID, backup.uid().unwrap_or_default()),
    ];
    request.metadata.labels = Some(labels.map(|(label, value)| (label.to_owned(), value)).into());
    ctx.cluster.leadership.check()?;
    let api: Api<DeleteBackupRequest> = ctx.cluster.api();
    match api.create(&PostParams::default(), &request).await {
        Ok(_) => {
            tracing::info!(
                backup = name,
                uid = backup.uid(),
                "a backup has expired; its deletion is asked for"
            );
            ctx.cluster.events.normal(backup, "Expired", "its time is over; it is deleted");
            Ok(())
        }
        Err(error) if is_conflict(&error) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Removes a request of ours that came to nothing, as it was seen.
pub(super) async fn remove(ctx: &Context, request: &DeleteBackupRequest) -> Result<(), ReconcileError> {
    ctx.cluster.leadership.check()?;
    delete::delete_unchanged(&ctx.cluster, request).await?;
    Ok(())
}
