//! `velero.io/csi-volumesnapshotcontent-restorer`: a content is made for a snapshot that is there.

use std::sync::Arc;

use async_trait::async_trait;
use backup_core::labels::csi;
use kube::{ResourceExt as _, core::DynamicObject};
use serde_json::{Map, Value, json};

use super::{NO_DATA_WANTED, classes::secret, disown, leaves_data, name_here};
use crate::{
    ActionError, AppliesTo, ItemAction,
    csi::api::{CONTENTS, SnapshotApi, failed},
    restore::{
        action::{RestoreActionInput, RestoreActionOutput, RestoreItemAction},
        json::{self, Object},
        rules::RestoreRules,
    },
};

pub(super) const NAME: &str = "velero.io/csi-volumesnapshotcontent-restorer";

pub(crate) struct ContentAction {
    api: SnapshotApi,
    rules: Arc<RestoreRules>,
}

impl ContentAction {
    pub(crate) fn new(api: SnapshotApi, rules: Arc<RestoreRules>) -> Self {
        Self { api, rules }
    }

    async fn run(&self, input: RestoreActionInput<'_>) -> Result<RestoreActionOutput, ActionError> {
        if leaves_data(input.restore) {
            return Ok(RestoreActionOutput {
                skip: Some(NO_DATA_WANTED.to_owned()),
                ..RestoreActionOutput::default()
            });
        }
        let classes = self.api.classes().await;
        let classes = classes.map_err(|error| failed(NAME, "listing VolumeSnapshotClasses", &error))?;
        let item = rewritten(input, &classes, &self.rules)
            .map_err(|reason| ActionError::Final { action: NAME.to_owned(), reason: reason.to_owned() })?;
        let additional = secret(&item, csi::DELETE_SECRET).into_iter().collect();
        Ok(RestoreActionOutput { item: Some(item), additional, ..RestoreActionOutput::default() })
    }
}

/// A content with the handle of one in the backup.
pub(super) fn rewritten(
    input: RestoreActionInput<'_>,
    classes: &[DynamicObject],
    rules: &RestoreRules,
) -> Result<Object, &'static str> {
    let from = input.from_backup;
    let text = |path: &[&str], key| json::text(from, path, key).filter(|text| !text.is_empty());
    let reference = ["spec", "volumeSnapshotRef"];
    let (Some(namespace), Some(name)) = (text(&reference, "namespace"), text(&reference, "name")) else {
        return Err("in the backup it does not say which VolumeSnapshot it belongs to");
    };
    let handle = text(&["status"], "snapshotHandle").or_else(|| text(&["spec", "source"], "snapshotHandle"));
    let (Some(handle), Some(driver)) = (handle, text(&["spec"], "driver")) else {
        return Err("in the backup it has no driver, or no name for the snapshot in the storage system");
    };
    let here = name_here(input.restore, namespace, name);
    let mut spec = Map::new();
    let mut set = |key: &str, value: Value| spec.insert(key.to_owned(), value);
    // Deleting it leaves the snapshot, which belongs to the backup.
    set("deletionPolicy", json!("Retain"));
    set("driver", json!(driver));
    set("source", json!({ "snapshotHandle": handle }));
    set(
        "volumeSnapshotRef",
        json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "namespace": rules.target(namespace), "name": here }),
    );
    if let Some(mode) = text(&["spec"], "sourceVolumeMode") {
        set("sourceVolumeMode", json!(mode));
    }
    // Some drivers look up a snapshot with what the class says, and the old one may not exist here: any of the driver's.
    let of_driver = |class: &&DynamicObject| class.data.get("driver").and_then(Value::as_str) == Some(driver);
    if let Some(class) = classes.iter().find(of_driver) {
        set("volumeSnapshotClassName", json!(class.name_any()));
    }
    let mut item = input.item.clone();
    disown(&mut item);
    json::set(&mut item, &["metadata"], "name", Value::from(here));
    item.insert("spec".to_owned(), Value::Object(spec));
    Ok(item)
}

impl ItemAction for ContentAction {
    fn name(&self) -> &'static str {
        NAME
    }

    fn applies_to(&self) -> AppliesTo {
        AppliesTo::resource(CONTENTS)
    }
}

#[async_trait]
impl RestoreItemAction for ContentAction {
    fn may_add_items(&self) -> bool {
        true
    }

    async fn execute(&self, input: RestoreActionInput<'_>) -> Result<RestoreActionOutput, ActionError> {
        self.run(input).await
    }
}
