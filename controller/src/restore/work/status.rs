//! Restores the status of items where requested, and reports where it is missing.

use backup_actions::restore::{equality, json::Object};
use backup_core::resources::ResourceType;
use serde_json::Value;

use super::{RestoreError, item::ItemRestorer};
use crate::restore::apply::{self, ItemResult, Outcome, Target};

impl ItemRestorer<'_> {
    /// Restores the status of a created object, if requested. Warns if an object lacks the status
    /// of the backup although that was requested, or is data that nothing else writes.
    pub(super) async fn status(
        &self,
        target: Target<'_>,
        resource: &ResourceType,
        from_backup: &Object,
        applied: &mut ItemResult,
    ) -> Result<(), RestoreError> {
        let Target {
            kind,
            name,
            group_resource,
            collection,
            ..
        } = target;
        let Some(status) = from_backup
            .get("status")
            .filter(|status| !equality::is_nothing(status))
        else {
            return Ok(());
        };
        let asked = self.selection.restores_status(group_resource, from_backup);
        // Types of velero.io have controllers that write their status again.
        let is_data = resource.status_is_data && resource.group != "velero.io" && asked == Ok(None);
        let lacks = match (applied.outcome, asked) {
            (Outcome::Failed, _) | (_, Ok(Some(false))) => None,
            (Outcome::Created, Ok(Some(true))) => {
                let failed = apply::status(self.restoring.calls, target, status).await?.err();
                failed.map(|why| format!("was restored without its status: {why}"))
            }
            (Outcome::Created, Err(why)) => Some(format!("was restored without its status: {why}")),
            (Outcome::Created, Ok(None)) => is_data.then(|| {
                format!(
                    "was restored without its status: {group_resource} have no status subresource, so it may be data that nothing \
                     writes again; delete the object, and restore it with restoreStatus.includedResources: [{group_resource}]"
                )
            }),
            (Outcome::Skipped | Outcome::Updated, asked) => {
                let matters = is_data || asked == Ok(Some(true));
                let found = if matters && applied.warning.is_none() && applied.error.is_none() {
                    self.restoring.calls.get(collection, name).await
                } else {
                    return Ok(());
                };
                let differs = match found {
                    Ok(found) => found.is_none_or(|found| {
                        !equality::same(found.get("status").unwrap_or(&Value::Null), status, equality::is_nothing)
                    }),
                    Err(error) => {
                        error.unless_stopped()?;
                        true
                    }
                };
                differs.then(|| {
                    "exists, and its status is not the one of the backup: only what a restore creates gets its status".to_owned()
                })
            }
        };
        if let Some(why) = lacks {
            let why = format!("{kind} {name:?} {why}");
            // A skipped object was not written, so it is not incomplete.
            if applied.outcome == Outcome::Skipped {
                applied.warn(why);
            } else {
                applied.lacks(why);
            }
        }
        Ok(())
    }
}
