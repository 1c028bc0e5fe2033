//! `velero.io/csi-volumesnapshot-restorer`: a VolumeSnapshot is bound to a content that is made by hand.

use std::future::ready;

use backup_core::labels::csi;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{NO_DATA_WANTED, disown, leaves_data, name_here};
use crate::{
    backup::{
        action::{ActionError, AppliesTo, ItemId},
        actions::csi::api::{CONTENTS, SNAPSHOTS},
    },
    restore::{
        action::{Executed, Given, RestoreItemAction},
        json,
    },
};

pub(super) const NAME: &str = "velero.io/csi-volumesnapshot-restorer";

/// Rewrites VolumeSnapshots.
pub struct SnapshotAction(AppliesTo);

impl SnapshotAction {
    pub fn new() -> Self {
        Self(AppliesTo { included_resources: vec![SNAPSHOTS.to_owned()], ..AppliesTo::default() })
    }
}

fn run(given: Given<'_>) -> Result<Executed, ActionError> {
    if leaves_data(given.restore) {
        return Ok(Executed { skip: Some(NO_DATA_WANTED.to_owned()), ..Executed::default() });
    }
    let text = |path: &[&str], key| json::text(given.from_backup, path, key).unwrap_or_default();
    let (namespace, name) = (text(&["metadata"], "namespace"), text(&["metadata"], "name"));
    let Some(content) = json::text(given.from_backup, &["status"], "boundVolumeSnapshotContentName") else {
        let reason =
            "in the backup it has no content, so nobody knows what the storage system calls the snapshot";
        return Err(ActionError::Final { action: NAME.to_owned(), reason: reason.to_owned() });
    };
    let here = name_here(given.restore, namespace, name);
    let mut item = given.item.clone();
    disown(&mut item);
    json::set(&mut item, &["metadata"], "name", Value::from(here.as_str()));
    json::set(&mut item, &["metadata", "annotations"], csi::DELETION_POLICY, Value::from("Retain"));
    // No class: it may not exist here, and nothing is to be made.
    item.insert("spec".to_owned(), json!({ "source": { "volumeSnapshotContentName": here } }));
    let content = ItemId { group_resource: CONTENTS.to_owned(), namespace: None, name: content.to_owned() };
    Ok(Executed { item: Some(item), additional: vec![content], ..Executed::default() })
}

impl RestoreItemAction for SnapshotAction {
    fn name(&self) -> &'static str {
        NAME
    }

    fn applies_to(&self) -> &AppliesTo {
        &self.0
    }

    fn may_bring(&self) -> bool {
        true
    }

    fn execute<'a>(&'a self, given: Given<'a>) -> BoxFuture<'a, Result<Executed, ActionError>> {
        Box::pin(ready(run(given)))
    }
}
