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
        RestoreActionInput, RestoreActionOutput, RestoreItemAction, RestoreRules,
        json::{self, Object},
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
        let from = input.from_backup;
        let Some(content) = json::text(from, &["status"], "boundVolumeSnapshotContentName") else {
            return Err(Self::refuse(
                "in the backup it has no content, so nobody knows what the storage system calls the snapshot",
            ));
        };
        let namespace = json::text(from, &["metadata"], "namespace").unwrap_or_default();
        let name = json::text(from, &["metadata"], "name").unwrap_or_default();
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
    let reference = ["spec", "volumeSnapshotRef"];
    let namespace = non_empty_text(from, &reference, "namespace");
    let name = non_empty_text(from, &reference, "name");
    let (Some(namespace), Some(name)) = (namespace, name) else {
        return Err("in the backup it does not say which VolumeSnapshot it belongs to");
    };
    let handle = non_empty_text(from, &["status"], "snapshotHandle")
        .or_else(|| non_empty_text(from, &["spec", "source"], "snapshotHandle"));
    let driver = non_empty_text(from, &["spec"], "driver");
    let (Some(handle), Some(driver)) = (handle, driver) else {
        return Err(
            "in the backup it has no driver, or no name for the snapshot in the storage system",
        );
    };
    let here = name_here(input.restore, namespace, name);
    let mut spec = Map::new();
    // Deleting it keeps the snapshot, which belongs to the backup.
    spec.insert("deletionPolicy".to_owned(), json!("Retain"));
    spec.insert("driver".to_owned(), json!(driver));
    spec.insert("source".to_owned(), json!({ "snapshotHandle": handle }));
    spec.insert(
        "volumeSnapshotRef".to_owned(),
        json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "namespace": rules.target(namespace), "name": here }),
    );
    if let Some(mode) = non_empty_text(from, &["spec"], "sourceVolumeMode") {
        spec.insert("sourceVolumeMode".to_owned(), json!(mode));
    }
    // Some drivers need parameters of the class to find a snapshot, and the old class may not exist
    // here: any class of the driver is used.
    let class = classes
        .iter()
        .find(|class| class.data.get("driver").and_then(Value::as_str) == Some(driver));
    if let Some(class) = class {
        spec.insert(
            "volumeSnapshotClassName".to_owned(),
            json!(class.name_any()),
        );
    }
    let mut item = input.item.clone();
    disown(&mut item);
    json::set(&mut item, &["metadata"], "name", Value::from(here));
    item.insert("spec".to_owned(), Value::Object(spec));
    Ok(item)
}

fn non_empty_text<'a>(from: &'a Object, path: &[&str], key: &str) -> Option<&'a str> {
    json::text(from, path, key).filter(|text| !text.is_empty())
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
    let namespace = json::text(item, &["metadata", "annotations"], namespace)?;
    let name = json::text(item, &["metadata", "annotations"], name)?;
    Some(ItemId::new("secrets", Some(namespace), name))
}
