//! Pods add the claims that they mount and their priority class as related items.

use async_trait::async_trait;
use backup_core::{
    api::Backup,
    resources::{CLAIMS, PODS},
};
use serde_json::Value;

use super::action::{BackupActionOutput, BackupItemAction, ItemBlockAction};
use crate::{
    ActionError, ItemId,
    action::BuiltInAction,
    json::{list, text},
};

/// `velero.io/pod`, on Pods (Velero `pkg/backup/actions/pod_action.go` and
/// `pkg/itemblock/actions/pod_action.go`, v1.18). We add claims of ephemeral volumes, too: they are
/// named after pod and volume.
pub(crate) struct PodAction;

impl BuiltInAction for PodAction {
    const NAME: &'static str = "velero.io/pod";
    const RESOURCE: &'static str = PODS;
}

#[async_trait]
impl BackupItemAction for PodAction {
    async fn execute(&self, item: &Value, _: &Backup) -> Result<BackupActionOutput, ActionError> {
        Ok(BackupActionOutput {
            additional: related_items(item),
            ..BackupActionOutput::default()
        })
    }
}

#[async_trait]
impl ItemBlockAction for PodAction {
    async fn related(&self, item: &Value, _: &Backup) -> Result<Vec<ItemId>, ActionError> {
        Ok(related_items(item))
    }
}

/// The related items of a pod: its priority class and its claims.
pub(super) fn related_items(pod: &Value) -> Vec<ItemId> {
    let mut related = Vec::new();
    if let Some(class) = text(pod, "/spec/priorityClassName") {
        related.push(ItemId::new(
            "priorityclasses.scheduling.k8s.io",
            None,
            class,
        ));
    }
    let (Some(namespace), Some(name)) = (
        text(pod, "/metadata/namespace"),
        text(pod, "/metadata/name"),
    ) else {
        return related;
    };
    for volume in list(pod, "/spec/volumes") {
        let claim = text(volume, "/persistentVolumeClaim/claimName")
            .map(str::to_owned)
            .or_else(|| {
                let ephemeral = volume.get("ephemeral").is_some_and(Value::is_object);
                text(volume, "/name")
                    .filter(|_| ephemeral)
                    .map(|volume| format!("{name}-{volume}"))
            });
        related.extend(claim.map(|claim| ItemId::new(CLAIMS, Some(namespace), &claim)));
    }
    related
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims_of_all_kinds_and_the_priority_class_come_along() {
        let pod = json!({
            "metadata": { "name": "web-0", "namespace": "shop" },
            "spec": { "priorityClassName": "high", "volumes": [
                { "name": "data", "persistentVolumeClaim": { "claimName": "data-web-0" } },
                { "name": "scratch", "ephemeral": { "volumeClaimTemplate": {} } },
                { "name": "conf", "configMap": { "name": "conf" } },
                { "name": "odd", "persistentVolumeClaim": { "claimName": "" } },
            ] },
        });
        let names: Vec<_> = related_items(&pod)
            .into_iter()
            .map(|id| (id.group_resource, id.name))
            .collect();
        let expected = [
            ("priorityclasses.scheduling.k8s.io", "high"),
            ("persistentvolumeclaims", "data-web-0"),
            ("persistentvolumeclaims", "web-0-scratch"),
        ];
        assert_eq!(
            names,
            expected.map(|(resource, name)| (resource.to_owned(), name.to_owned()))
        );
        assert!(
            related_items(&json!({ "metadata": { "name": "p", "namespace": "n" }, "spec": {} }))
                .is_empty()
        );
    }
}
