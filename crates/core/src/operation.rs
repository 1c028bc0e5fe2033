//! Item operations: work that an action started for an item, and that continues after the item is
//! written.
//!
//! The JSON is the one of Velero's `-itemoperations.json.gz` (`pkg/itemoperation`,
//! `pkg/plugin/velero/shared.go`, v1.18). Formats of older versions, and unknown fields, are read
//! and kept.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

use crate::api::{
    Extra,
    go_json::{is_default, null_default},
    kind::string_enum,
};

pub trait Operation: Clone {
    fn action(&self) -> &str;

    /// The operation's id, chosen by the action; any text.
    fn id(&self) -> &str;

    fn item(&self) -> &ResourceIdentifier;

    fn status(&self) -> &OperationStatus;

    /// See [`Self::status`].
    fn status_mut(&mut self) -> &mut OperationStatus;
}

string_enum! {
    #[derive(Default)]
    OperationPhase {
        /// Started by us; nothing was heard of it yet.
        #[default]
        New = "New",
        /// It has said when it began.
        InProgress = "InProgress",
        /// It has done what it was started for.
        Completed = "Completed",
        Failed = "Failed",
    }
}

impl OperationPhase {
    /// Whether the operation is over. An unknown phase is not: the action is polled, up to the
    /// operation's deadline.
    pub fn has_ended(&self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }
}

/// An object by its type and name, in the one JSON form of Velero with capitalized fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ResourceIdentifier {
    /// API group; empty for the core group.
    #[serde(
        rename = "Group",
        alias = "group",
        default,
        deserialize_with = "null_default"
    )]
    pub group: String,
    #[serde(
        rename = "Resource",
        alias = "resource",
        default,
        deserialize_with = "null_default"
    )]
    pub resource: String,
    /// Namespace; empty for a cluster-scoped object.
    #[serde(
        rename = "Namespace",
        alias = "namespace",
        default,
        deserialize_with = "null_default"
    )]
    pub namespace: String,
    #[serde(
        rename = "Name",
        alias = "name",
        default,
        deserialize_with = "null_default"
    )]
    pub name: String,
}

impl ResourceIdentifier {
    /// Takes `plural` or `plural.group`.
    pub fn new(group_resource: &str, namespace: Option<&str>, name: &str) -> Self {
        let (resource, group) = group_resource
            .split_once('.')
            .unwrap_or((group_resource, ""));
        Self {
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.unwrap_or_default().to_owned(),
            name: name.to_owned(),
        }
    }

    /// `plural`, or `plural.group`.
    pub fn group_resource(&self) -> String {
        crate::resources::group_resource(&self.resource, &self.group)
    }

    /// The namespace; `None` for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        Some(self.namespace.as_str()).filter(|namespace| !namespace.is_empty())
    }
}

impl fmt::Display for ResourceIdentifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.group_resource())?;
        match self.namespace() {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Defines the operations of backups or restores, which differ in field names and in the action
/// that is polled.
macro_rules! operation {
    ($operation:ident, $spec:ident, $action:ident) => {
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $operation {
            pub spec: $spec,
            pub status: OperationStatus,
            #[serde(flatten)]
            pub extra: Extra,
        }

        impl Operation for $operation {
            fn action(&self) -> &str {
                &self.spec.$action
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
    };
}

operation!(BackupOperation, BackupOperationSpec, backup_item_action);
operation!(RestoreOperation, RestoreOperationSpec, restore_item_action);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackupOperationSpec {
    pub backup_name: String,
    #[serde(rename = "backupUID")]
    pub backup_uid: String,
    pub backup_item_action: String,
    pub resource_identifier: ResourceIdentifier,
    /// The operation's id, chosen by the action; any text.
    #[serde(rename = "operationID")]
    pub operation_id: String,
    /// Objects that are read again and stored in their final form once all operations have ended.
    #[serde(deserialize_with = "null_default")]
    pub post_operation_items: Vec<ResourceIdentifier>,
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
    /// The item, in its target namespace.
    pub resource_identifier: ResourceIdentifier,
    /// The operation's id, chosen by the action; any text.
    #[serde(rename = "operationID")]
    pub operation_id: String,
    #[serde(flatten)]
    pub extra: Extra,
}

/// Progress of an operation, as its action reports it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OperationStatus {
    /// Its phase; a missing one is New.
    #[serde(deserialize_with = "phase")]
    pub phase: OperationPhase,
    /// Why it failed; while it runs, the latest problem.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_default")]
    pub error: String,
    #[serde(skip_serializing_if = "is_default")]
    pub n_completed: i64,
    #[serde(skip_serializing_if = "is_default")]
    pub n_total: i64,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_default")]
    pub operation_units: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_default")]
    pub description: String,
    /// When we started it; its deadline counts from here.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "time")]
    pub created: Option<Timestamp>,
    /// When it began, as its action reports.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "time")]
    pub started: Option<Timestamp>,
    /// When the action last updated this status.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "time")]
    pub updated: Option<Timestamp>,
    #[serde(flatten)]
    pub extra: Extra,
}

/// A phase; null and a missing value are New.
fn phase<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OperationPhase, D::Error> {
    let phase = Option::<OperationPhase>::deserialize(deserializer)?;
    Ok(phase
        .filter(|phase| !phase.as_str().is_empty())
        .unwrap_or_default())
}

/// A time; an unreadable one counts as missing, so that one bad field does not hide a whole list.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let value = Option::<serde_json::Value>::deserialize(deserializer)?;
    Ok(value.and_then(|value| value.as_str()?.parse().ok()))
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub attempted: i64,
    pub completed: i64,
    pub failed: i64,
}

impl Counts {
    pub fn of_all<O: Operation>(operations: &[O]) -> Self {
        Self::of(operations.iter().map(|operation| &operation.status().phase))
    }

    /// Counts operations. Always derived from stored phases, never stored itself.
    pub fn of<'a>(phases: impl IntoIterator<Item = &'a OperationPhase>) -> Self {
        let mut counts = Self::default();
        for phase in phases {
            counts.attempted += 1;
            match phase {
                OperationPhase::Completed => counts.completed += 1,
                OperationPhase::Failed => counts.failed += 1,
                _ => {}
            }
        }
        counts
    }

    pub fn all_ended(self) -> bool {
        self.completed + self.failed >= self.attempted
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_operation_has_the_json_of_velero_with_its_capitals() {
        let operation = BackupOperation {
            spec: BackupOperationSpec {
                backup_name: "b".into(),
                backup_uid: "u".into(),
                backup_item_action: "velero.io/csi-volumesnapshot-backupper".into(),
                resource_identifier: ResourceIdentifier::new(
                    "volumesnapshots.snapshot.storage.k8s.io",
                    Some("ns"),
                    "vs",
                ),
                operation_id: "ns/vs/2026-01-01T00:00:00Z".into(),
                post_operation_items: vec![ResourceIdentifier::new("pods", Some("ns"), "p")],
                ..BackupOperationSpec::default()
            },
            status: OperationStatus {
                created: Some("2026-01-01T00:00:00Z".parse().unwrap()),
                n_total: 7,
                ..OperationStatus::default()
            },
            ..BackupOperation::default()
        };
        let text = json!({
            "spec": {
                "backupName": "b", "backupUID": "u", "backupItemAction": "velero.io/csi-volumesnapshot-backupper",
                "resourceIdentifier": {
                    "Group": "snapshot.storage.k8s.io", "Resource": "volumesnapshots", "Namespace": "ns", "Name": "vs",
                },
                "operationID": "ns/vs/2026-01-01T00:00:00Z",
                "postOperationItems": [{ "Group": "", "Resource": "pods", "Namespace": "ns", "Name": "p" }],
            },
            "status": { "phase": "New", "created": "2026-01-01T00:00:00Z", "nTotal": 7 },
        });
        assert_eq!(serde_json::to_value(&operation).unwrap(), text);
        assert_eq!(
            serde_json::from_value::<BackupOperation>(text).unwrap(),
            operation
        );
        assert_eq!(
            operation.spec.resource_identifier.to_string(),
            "volumesnapshots.snapshot.storage.k8s.io ns/vs"
        );
    }

    #[test]
    fn an_operation_of_a_restore_has_the_json_of_velero() {
        let operation = RestoreOperation {
            spec: RestoreOperationSpec {
                restore_name: "r".into(),
                restore_uid: "u".into(),
                restore_item_action: "example.io/mover".into(),
                resource_identifier: ResourceIdentifier::new(
                    "persistentvolumeclaims",
                    Some("ns"),
                    "c",
                ),
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

    #[test]
    fn what_others_wrote_is_read_and_kept() {
        let text = json!({
            "spec": { "backupName": "b", "operationID": "\u{0}\n\u{fffd}", "postOperationItems": null,
                "resourceIdentifier": { "group": "g", "resource": "r", "namespace": "n", "name": "x" }, "later": 1 },
            "status": { "phase": "Resting", "created": "yesterday", "started": null, "error": null,
                "updated": "9999-01-01T00:00:00Z", "nCompleted": -5, "more": [1] },
        });
        let read: BackupOperation = serde_json::from_value(text).unwrap();
        assert_eq!(read.spec.resource_identifier.name, "x");
        assert_eq!(read.status.phase.as_str(), "Resting");
        assert!(!read.status.phase.has_ended() && read.status.created.is_none());
        let written = serde_json::to_value(&read).unwrap();
        assert_eq!(
            (&written["spec"]["later"], &written["status"]["more"]),
            (&json!(1), &json!([1]))
        );
        assert!(serde_json::from_str::<BackupOperation>("{}").is_ok());
    }

    #[test]
    fn counts_are_those_of_the_list() {
        use OperationPhase as P;
        let counts = |phases: &[P]| Counts::of(phases);
        assert!(counts(&[]).all_ended());
        let some = counts(&[
            P::New,
            P::InProgress,
            P::Completed,
            P::Failed,
            P::from("Resting"),
        ]);
        assert_eq!(
            some,
            Counts {
                attempted: 5,
                completed: 1,
                failed: 1
            }
        );
        assert!(!some.all_ended() && counts(&[P::Completed, P::Failed]).all_ended());
    }
}
