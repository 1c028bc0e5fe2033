//! `velero.io/add-pvc-from-pod`: a pod adds its claims (Velero
//! `pkg/restore/actions/add_pvc_from_pod_action.go`, v1.18). We add its priority class, too:
//! without it, admission refuses the pod.

use std::collections::BTreeSet;

use async_trait::async_trait;
use backup_core::resources::CLAIMS;
use serde_json::Value;

use super::{
    action::{RestoreActionInput, RestoreActionOutput, RestoreItemAction},
    json::{self, Object},
};
use crate::{ActionError, ItemId, action::BuiltInAction};

/// The type of priority classes, which pods add.
pub const PRIORITY_CLASSES: &str = "priorityclasses.scheduling.k8s.io";

/// Only used if a backup has pods: an action that adds items requires coordination of all items of
/// the restore.
pub struct AddClaimsOfPods {
    /// Names of the priority classes in the backup. Others are not requested: many backups have
    /// none, and the cluster may have them.
    pub priority_classes: BTreeSet<String>,
}

impl BuiltInAction for AddClaimsOfPods {
    const NAME: &'static str = "velero.io/add-pvc-from-pod";
    const RESOURCE: &'static str = "pods";
}

#[async_trait]
impl RestoreItemAction for AddClaimsOfPods {
    async fn execute(
        &self,
        input: RestoreActionInput<'_>,
    ) -> Result<RestoreActionOutput, ActionError> {
        let additional = related(input.item, input.from_backup, &self.priority_classes);
        Ok(RestoreActionOutput {
            additional,
            ..RestoreActionOutput::default()
        })
    }
}

/// The items that a pod needs, except claims of ephemeral volumes: these belong to the pod for
/// which the cluster created them.
fn related(pod: &Object, from_backup: &Object, priority_classes: &BTreeSet<String>) -> Vec<ItemId> {
    let class = json::text(pod, &["spec"], "priorityClassName")
        .filter(|name| priority_classes.contains(*name));
    let class = class.map(|name| ItemId::new(PRIORITY_CLASSES, None, name));
    let namespace = json::text(from_backup, &["metadata"], "namespace");
    let volumes = json::object(pod, &["spec"])
        .and_then(|spec| spec.get("volumes"))
        .and_then(Value::as_array);
    let claims = volumes.into_iter().flatten().filter_map(|volume| {
        let name = volume
            .pointer("/persistentVolumeClaim/claimName")?
            .as_str()?;
        Some(ItemId::new(CLAIMS, Some(namespace?), name))
    });
    class.into_iter().chain(claims).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_brings_its_claims_and_the_class_that_the_backup_has() {
        let pod = json!({
            "metadata": {"namespace": "shop", "name": "db-0"},
            "spec": {"priorityClassName": "high", "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
                {"name": "conf", "configMap": {"name": "conf"}},
                {"name": "wrong", "persistentVolumeClaim": {}},
            ]},
        });
        let pod = pod.as_object().unwrap();
        let class = ItemId::new(PRIORITY_CLASSES, None, "high");
        let both = [class, ItemId::new(CLAIMS, Some("shop"), "data-db-0")];
        assert_eq!(related(pod, pod, &BTreeSet::new()), both[1..]);
        assert_eq!(related(pod, pod, &["high".to_owned()].into()), both);
        assert_eq!(
            related(&Object::new(), &Object::new(), &BTreeSet::new()),
            []
        );
    }
}
