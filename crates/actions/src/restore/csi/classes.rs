//! `velero.io/csi-volumesnapshotclass-restorer`: the Secret that a class names comes along.

use async_trait::async_trait;
use backup_core::labels::csi;

use super::{NO_DATA_WANTED, leaves_data};
use crate::{
    ActionError, AppliesTo, ItemAction, ItemId,
    csi::api::CLASSES,
    restore::{
        action::{RestoreActionInput, RestoreActionOutput, RestoreItemAction},
        json::{self, Object},
    },
};

pub(super) const NAME: &str = "velero.io/csi-volumesnapshotclass-restorer";

pub(crate) struct ClassAction;

/// The Secret that these two annotations name; half a name is none.
pub(super) fn secret(item: &Object, [name, namespace]: [&str; 2]) -> Option<ItemId> {
    let text = |key| json::text(item, &["metadata", "annotations"], key).map(str::to_owned);
    let (name, namespace) = (text(name)?, text(namespace)?);
    Some(ItemId { group_resource: "secrets".to_owned(), namespace: Some(namespace), name })
}

fn run(input: RestoreActionInput<'_>) -> RestoreActionOutput {
    if leaves_data(input.restore) {
        return RestoreActionOutput {
            skip: Some(NO_DATA_WANTED.to_owned()),
            ..RestoreActionOutput::default()
        };
    }
    RestoreActionOutput {
        additional: secret(input.item, csi::LIST_SECRET).into_iter().collect(),
        ..RestoreActionOutput::default()
    }
}

impl ItemAction for ClassAction {
    fn name(&self) -> &'static str {
        NAME
    }

    fn applies_to(&self) -> AppliesTo {
        AppliesTo::resource(CLASSES)
    }
}

#[async_trait]
impl RestoreItemAction for ClassAction {
    fn may_add_items(&self) -> bool {
        true
    }

    async fn execute(&self, input: RestoreActionInput<'_>) -> Result<RestoreActionOutput, ActionError> {
        Ok(run(input))
    }
}
