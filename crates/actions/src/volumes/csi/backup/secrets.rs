//! `velero.io/csi-volumesnapshotcontent-backupper` and
//! `velero.io/csi-volumesnapshotclass-backupper`: the Secrets that these objects name are added,
//! regardless of filters (Velero `pkg/backup/actions/csi`, v1.18).

use async_trait::async_trait;
use backup_core::{
    api::Backup,
    labels::{MUST_INCLUDE_ADDITIONAL_ITEMS, csi},
};
use serde_json::Value;

use crate::{
    ActionError, AppliesTo, ItemAction, ItemId,
    backup::{BackupActionOutput, BackupItemAction},
    csi::api::{CLASSES, CONTENTS, is_finalizing},
    json::entries,
};

pub(crate) struct SecretAction {
    name: &'static str,
    applies: AppliesTo,
    keys: [&'static str; 2],
}

impl SecretAction {
    pub(crate) fn of_contents() -> Self {
        Self::new(
            "velero.io/csi-volumesnapshotcontent-backupper",
            CONTENTS,
            csi::DELETE_SECRET,
        )
    }

    pub(crate) fn of_classes() -> Self {
        Self::new(
            "velero.io/csi-volumesnapshotclass-backupper",
            CLASSES,
            csi::LIST_SECRET,
        )
    }

    fn new(name: &'static str, resource: &str, keys: [&'static str; 2]) -> Self {
        let applies = AppliesTo::resource(resource);
        Self {
            name,
            applies,
            keys,
        }
    }

    fn run(&self, item: &Value, backup: &Backup) -> BackupActionOutput {
        let name = annotation(item, self.keys[0]);
        let namespace = annotation(item, self.keys[1]);
        let (Some(name), Some(namespace)) = (name, namespace) else {
            return BackupActionOutput::default();
        };
        if is_finalizing(backup) {
            return BackupActionOutput::default();
        }
        let secret = ItemId::new("secrets", Some(namespace), name);
        let mut item = item.clone();
        entries(
            &mut item,
            "annotations",
            [(MUST_INCLUDE_ADDITIONAL_ITEMS, "true")],
        );
        BackupActionOutput {
            item: Some(item),
            additional: vec![secret],
            ..BackupActionOutput::default()
        }
    }
}

fn annotation<'a>(item: &'a Value, key: &str) -> Option<&'a str> {
    item.pointer("/metadata/annotations")?.get(key)?.as_str()
}

impl ItemAction for SecretAction {
    fn name(&self) -> &str {
        self.name
    }

    fn applies_to(&self) -> AppliesTo {
        self.applies.clone()
    }
}

#[async_trait]
impl BackupItemAction for SecretAction {
    async fn execute(
        &self,
        item: &Value,
        backup: &Backup,
    ) -> Result<BackupActionOutput, ActionError> {
        Ok(self.run(item, backup))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_that_is_named_comes_along_and_half_a_name_is_none() {
        let backup = Backup::default();
        let [name, namespace] = csi::DELETE_SECRET;
        let content =
            |annotations: Value| json!({ "metadata": { "name": "c", "annotations": annotations } });
        let executed = SecretAction::of_contents().run(
            &content(json!({ name: "key", namespace: "storage" })),
            &backup,
        );
        assert_eq!(executed.additional[0].name, "key");
        assert_eq!(executed.additional[0].namespace.as_deref(), Some("storage"));
        let item = executed.item.unwrap();
        assert_eq!(
            item["metadata"]["annotations"][MUST_INCLUDE_ADDITIONAL_ITEMS],
            "true"
        );
        for other in [json!({ name: "key" }), json!({}), Value::Null] {
            assert_eq!(
                SecretAction::of_contents().run(&content(other), &backup),
                BackupActionOutput::default()
            );
        }
    }
}
