//! An operation of a restore: its JSON differs from that of a backup's in names only, and it has nothing to read again.

use serde::{Deserialize, Serialize};

use super::{Operation, OperationStatus, ResourceIdentifier};
use crate::api::Extra;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RestoreOperation {
    pub spec: RestoreOperationSpec,
    pub status: OperationStatus,
    #[serde(flatten)]
    pub extra: Extra,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RestoreOperationSpec {
    pub restore_name: String,
    #[serde(rename = "restoreUID")]
    pub restore_uid: String,
    pub restore_item_action: String,
    /// The item, in the namespace that it was restored into.
    pub resource_identifier: ResourceIdentifier,
    /// What the action calls it; any text.
    #[serde(rename = "operationID")]
    pub operation_id: String,
    #[serde(flatten)]
    pub extra: Extra,
}

impl Operation for RestoreOperation {
    fn action(&self) -> &str {
        &self.spec.restore_item_action
    }

    fn id(&self) -> &str {
        &self.spec.operation_id
    }

    fn item(&self) -> &ResourceIdentifier {
        &self.spec.resource_identifier
    }

    fn status(&self) -> &OperationStatus {
        &self.status
    }

    fn status_mut(&mut self) -> &mut OperationStatus {
        &mut self.status
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_operation_of_a_restore_has_the_json_of_velero() {
        let operation = RestoreOperation {
            spec: RestoreOperationSpec {
                restore_name: "r".into(),
                restore_uid: "u".into(),
                restore_item_action: "example.io/mover".into(),
                resource_identifier: ResourceIdentifier::new("persistentvolumeclaims", Some("ns"), "c"),
                operation_id: "o".into(),
                ..RestoreOperationSpec::default()
            },
            ..RestoreOperation::default()
        };
        let text = json!({
            "spec": {
                "restoreName": "r", "restoreUID": "u", "restoreItemAction": "example.io/mover",
                "resourceIdentifier": { "Group": "", "Resource": "persistentvolumeclaims", "Namespace": "ns", "Name": "c" },
                "operationID": "o",
            },
            "status": { "phase": "New" },
        });
        assert_eq!(serde_json::to_value(&operation).unwrap(), text);
        let mut later = text;
        later["spec"]["later"] = json!(1);
        let read: RestoreOperation = serde_json::from_value(later.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), later);
        assert!(serde_json::from_str::<RestoreOperation>("{}").is_ok());
    }
}
