//! What is known before a decision. All freshly read.

use backup_core::{
    api::{Backup, BackupPhase, Schedule},
    labels, validate,
};
use backup_runtime::{errors::is_gone, list};
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject},
};
use serde_json::json;

use super::decide::in_template;
use crate::context::Context;

/// The schedule as it is now.
pub(super) enum Found {
    /// There is one.
    Schedule(Box<Schedule>),
    /// There is one that can't be decoded, and what is wrong with it.
    Undecodable(Box<DynamicObject>, Vec<String>),
    /// It is gone.
    Nothing,
}

pub(super) async fn schedule(ctx: &Context, name: &str) -> Result<Found, kube::Error> {
    let kind = ApiResource::erase::<Schedule>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(ctx.cluster.client.clone(), &ctx.cluster.namespace, &kind);
    let object = match api.get(name).await {
        Ok(object) => object,
        Err(error) if is_gone(&error, name) => return Ok(Found::Nothing),
        Err(error) => return Err(error),
    };
    Ok(match serde_json::to_value(&object).and_then(serde_json::from_value::<Schedule>) {
        Ok(schedule) => Found::Schedule(Box::new(schedule)),
        Err(error) => {
            let template = json!({ "spec": object.data["spec"]["template"] });
            let mut errors: Vec<String> = validate::raw_backup(&template).iter().map(in_template).collect();
            if errors.is_empty() {
                errors.push(format!("the Schedule can not be read: {error}"));
            }
            Found::Undecodable(Box::new(object), errors)
        }
    })
}

/// The name and phase of a backup of the schedule that has not ended, if there is one. A phase that is not known counts.
pub(super) async fn unfinished(ctx: &Context, schedule: &Schedule) -> Result<Option<String>, kube::Error> {
    let label = format!("{}={}", labels::SCHEDULE_NAME, labels::valid_value(&schedule.name_any()));
    let found = list::labelled::<Backup, _>(&ctx.cluster, &label, |backup| {
        let phase = match backup.data["status"]["phase"].as_str() {
            None | Some("") => BackupPhase::New,
            Some(phase) => phase.into(),
        };
        phase.is_active().then(|| format!("{} ({phase})", backup.name_any()))
    })
    .await?;
    Ok(found.into_iter().next())
}
