//! `velero.io/csi-volumesnapshot-restorer`: a VolumeSnapshot is bound to a content that is made by hand.

use async_trait::async_trait;
use backup_core::labels::csi;
use serde_json::{Value, json};

use super::{NO_DATA_WANTED, disown, leaves_data, name_here};
use crate::{
    ActionError, AppliesTo, ItemAction, ItemId,
    csi::api::{CONTENTS, SNAPSHOTS},
    restore::{
        action::{RestoreActionInput, RestoreActionOutput, RestoreItemAction},
        json,
    },
};

pub(super) const NAME: &str = "velero.io/csi-volumesnapshot-restorer";

pub(crate) struct SnapshotAction;

fn run(input: RestoreActionInput<'_>) -> Result<RestoreActionOutput, ActionError> {
    if leaves_data(input.restore) {
        return Ok(RestoreActionOutput {
            skip: Some(NO_DATA_WANTED.to_owned()),
            ..RestoreActionOutput::default()
        });
    }
    let text = |path: &[&str], key| json::text(input.from_backup, path, key).unwrap_or_default();
    let (namespace, name) = (text(&["metadata"], "namespace"), text(&["metadata"], "name"));
    let Some(content) = json::text(input.from_backup, &["status"], "boundVolumeSnapshotContentName") else {
        let reason =
            "in the backup it has no content, so nobody knows what the storage system calls the snapshot";
        return Err(ActionError::Final { action: NAME.to_owned(), reason: reason.to_owned() });
    };
    let here = name_here(input.restore, namespace, name);
    let mut item = input.item.clone();
    disown(&mut item);
    json::set(&mut item, &["metadata"], "name", Value::from(here.as_str()));
    json::set(&mut item, &["metadata", "annotations"], csi::DELETION_POLICY, Value::from("Retain"));
    // No class: it may not exist here, and nothing is to be made.
    item.insert("spec".to_owned(), json!({ "source": { "volumeSnapshotContentName": here } }));
    let content = ItemId::new(CONTENTS, None, content);
    Ok(RestoreActionOutput { item: Some(item), additional: vec![content], ..RestoreActionOutput::default() })
}

impl ItemAction for SnapshotAction {
    fn name(&self) -> &'static str {
        NAME
    }

    fn applies_to(&self) -> AppliesTo {
        AppliesTo::resource(SNAPSHOTS)
    }
}

#[async_trait]
impl RestoreItemAction for SnapshotAction {
    fn may_add_items(&self) -> bool {
        true
    }

    async fn execute(&self, input: RestoreActionInput<'_>) -> Result<RestoreActionOutput, ActionError> {
        run(input)
    }
}
