//! A VolumeSnapshot is statically bound to a content that is created by hand; the content is
//! created for an existing snapshot, and a class adds the Secret that it names.

use std::sync::Arc;

use async_trait::async_trait;
use backup_core::labels::csi;
use kube::{ResourceExt as _, core::DynamicObject};
use serde_json::{Map, Value, json};

use super::{NO_DATA_WANTED, disown, leaves_data, name_here};
use crate::{
    ActionError, ItemId,
    action::BuiltInAction,
    csi::api::{CLASSES, CONTENTS, SNAPSHOTS, SnapshotApi},
    restore::{
        action::{RestoreActionInput, RestoreActionOutput, RestoreItemAction},
        json::{self, Object},
        rules::RestoreRules,
    },
};

pub(super) struct SnapshotAction;

impl BuiltInAction for SnapshotAction {
    const NAME: &'static str = "velero.io/csi-volumesnapshot-restorer";
    const RESOURCE: &'static str = SNAPSHOTS;
}

#[async_trait]
impl RestoreItemAction for SnapshotAction {
    async fn execute(
        &self,
        input: RestoreActionInput<'_>,
    ) -> Result<RestoreActionOutput, ActionError> {
        if leaves_data(input.restore) {
            return Ok(RestoreActionOutput::skipped(NO_DATA_WANTED));
        }
        let text = |path: &[&str], key| json::text(input.from_backup, path, key);
        let Some(content) = text(&["status"], "boundVolumeSnapshotContentName") else {
            return Err(Self::refuse(
                "in the backup it has no content, so nobody knows what the storage system calls the snapshot",
            ));
        };
        let [namespace, name] =
            ["namespace", "name"].map(|key| text(&["metadata"], key).unwrap_or_default());
        let here = name_here(input.restore, namespace, name);
        let mut item = input.item.clone();
        disown(&mut item);
        json::set(&mut item, &["metadata"], "name", Value::from(here.as_str()));
        json::set(
            &mut item,
            &["metadata", "annotations"],
            csi::DELETION_POLICY,
            Value::from("Retain"),
        );
        // Without a class: it may not exist here, and no new snapshot is taken.
        item.insert(
            "spec".to_owned(),
            json!({ "source": { "volumeSnapshotContentName": here } }),
        );
        let additional = vec![ItemId::new(CONTENTS, None, content)];
        Ok(RestoreActionOutput {
            item: Some(item),
            additional,
            ..RestoreActionOutput::default()
        })
    }
}

pub(super) struct ContentAction {
    pub(super) api: SnapshotApi,
    pub(super) rules: Arc<RestoreRules>,
}

impl BuiltInAction for ContentAction {
    const NAME: &'static str = "velero.io/csi-volumesnapshotcontent-restorer";
    const RESOURCE: &'static str = CONTENTS;
}

#[async_trait]
impl RestoreItemAction for ContentAction {
    async fn execute(
        &self,
        input: RestoreActionInput<'_>,
    ) -> Result<RestoreActionOutput, ActionError> {
        if leaves_data(input.restore) {
            return Ok(RestoreActionOutput::skipped(NO_DATA_WANTED));
        }
        let classes = self.api.classes().await;
        let classes =
            classes.map_err(|error| Self::failed("listing VolumeSnapshotClasses", &error))?;
        let item = rewritten(input, &classes, &self.rules).map_err(Self::refuse)?;
        let additional = secret(&item, csi::DELETE_SECRET).into_iter().collect();
        Ok(RestoreActionOutput {
            item: Some(item),
            additional,
            ..RestoreActionOutput::default()
        })
    }
}

/// A content with the handle of a content in the backup.
fn rewritten(
    input: RestoreActionInput<'_>,
    classes: &[DynamicObject],
    rules: &RestoreRules,
) -> Result<Object, &'static str> {
    let from = input.from_backup;
    let text = |path: &[&str], key| json::text(from, path, key).filter(|text| !text.is_empty());
    let reference = ["spec", "volumeSnapshotRef"];
    let (Some(namespace), Some(name)) = (text(&reference, "namespace"), text(&reference, "name"))
    else {
        return Err("in the backup it does not say which VolumeSnapshot it belongs to");
    };
    let handle =
        text(&["status"], "snapshotHandle").or_else(|| text(&["spec", "source"], "snapshotHandle"));
    let (Some(handle), Some(driver)) = (handle, text(&["spec"], "driver")) else {
        return Err(
            "in the backup it has no driver, or no name for the snapshot in the storage system",
        );
    };
    let here = name_here(input.restore, namespace, name);
    let mut spec = Map::new();
    let mut set = |key: &str, value: Value| spec.insert(key.to_owned(), value);
    // Deleting it keeps the snapshot, which belongs to the backup.
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
    // Some drivers need parameters of the class to find a snapshot, and the old class may not exist
    // here: any class of the driver is used.
    let of_driver =
        |class: &&DynamicObject| class.data.get("driver").and_then(Value::as_str) == Some(driver);
    if let Some(class) = classes.iter().find(of_driver) {
        set("volumeSnapshotClassName", json!(class.name_any()));
    }
    let mut item = input.item.clone();
    disown(&mut item);
    json::set(&mut item, &["metadata"], "name", Value::from(here));
    item.insert("spec".to_owned(), Value::Object(spec));
    Ok(item)
}

pub(super) struct ClassAction;

impl BuiltInAction for ClassAction {
    const NAME: &'static str = "velero.io/csi-volumesnapshotclass-restorer";
    const RESOURCE: &'static str = CLASSES;
}

#[async_trait]
impl RestoreItemAction for ClassAction {
    async fn execute(
        &self,
        input: RestoreActionInput<'_>,
    ) -> Result<RestoreActionOutput, ActionError> {
        if leaves_data(input.restore) {
            return Ok(RestoreActionOutput::skipped(NO_DATA_WANTED));
        }
        let additional = secret(input.item, csi::LIST_SECRET).into_iter().collect();
        Ok(RestoreActionOutput {
            additional,
            ..RestoreActionOutput::default()
        })
    }
}

/// The Secret that these two annotations name; `None` unless both are set.
fn secret(item: &Object, [name, namespace]: [&str; 2]) -> Option<ItemId> {
    let text = |key| json::text(item, &["metadata", "annotations"], key);
    Some(ItemId::new("secrets", Some(text(namespace)?), text(name)?))
}
