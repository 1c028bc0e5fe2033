//! Pods bring along the claims that they mount and their priority class.

use backup_core::api::Backup;
use futures::future::BoxFuture;
use serde_json::Value;

use super::json::{list, text};
use crate::backup::action::{ActionError, AppliesTo, BackupItemAction, Executed, ItemId};

/// `velero.io/pod`, on Pods (Velero `pkg/backup/actions/pod_action.go`, v1.18). Here, claims of ephemeral volumes come
/// along, too: they are named after pod and volume.
pub struct PodAction(AppliesTo);

impl Default for PodAction {
    fn default() -> Self {
        Self(AppliesTo { included_resources: vec!["pods".to_owned()], ..AppliesTo::default() })
    }
}

impl BackupItemAction for PodAction {
    fn name(&self) -> &'static str {
        "velero.io/pod"
    }

    fn applies_to(&self) -> &AppliesTo {
        &self.0
    }

    fn execute<'a>(&'a self, item: &'a Value, _: &'a Backup) -> BoxFuture<'a, Result<Executed, ActionError>> {
        Box::pin(async move { Ok(Executed { additional: along(item), ..Executed::default() }) })
    }
}

/// What belongs to a pod: its priority class and its claims.
pub fn along(pod: &Value) -> Vec<ItemId> {
    let mut along = Vec::new();
    if let Some(class) = text(pod, "/spec/priorityClassName") {
        along.push(ItemId {
            group_resource: "priorityclasses.scheduling.k8s.io".to_owned(),
            namespace: None,
            name: class.to_owned(),
        });
    }
    let (Some(namespace), Some(name)) = (text(pod, "/metadata/namespace"), text(pod, "/metadata/name"))
    else {
        return along;
    };
    for volume in list(pod, "/spec/volumes") {
        let claim = text(volume, "/persistentVolumeClaim/claimName").map(str::to_owned).or_else(|| {
            let ephemeral = volume.get("ephemeral").is_some_and(Value::is_object);
            text(volume, "/name").filter(|_| ephemeral).map(|volume| format!("{name}-{volume}"))
        });
        along.extend(claim.map(|claim| ItemId {
            group_resource: "persistentvolumeclaims".to_owned(),
            namespace: Some(namespace.to_owned()),
            name: claim,
        }));
    }
    along
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
        let names: Vec<_> = along(&pod).into_iter().map(|id| (id.group_resource, id.name)).collect();
        let expected = [
            ("priorityclasses.scheduling.k8s.io", "high"),
            ("persistentvolumeclaims", "data-web-0"),
            ("persistentvolumeclaims", "web-0-scratch"),
        ];
        assert_eq!(names, expected.map(|(resource, name)| (resource.to_owned(), name.to_owned())));
        assert!(along(&json!({ "metadata": { "name": "p", "namespace": "n" }, "spec": {} })).is_empty());
    }
}
