//! `velero.io/csi-volumesnapshotclass-restorer`: the Secret that a class names comes along.

use std::future::ready;

use backup_core::labels::csi;
use futures::future::BoxFuture;

use super::{NO_DATA_WANTED, leaves_data};
use crate::{
    backup::{
        action::{ActionError, AppliesTo, ItemId},
        actions::csi::api::CLASSES,
    },
    restore::{
        action::{Executed, Given, RestoreItemAction},
        json::{self, Object},
    },
};

pub(super) const NAME: &str = "velero.io/csi-volumesnapshotclass-restorer";

/// Brings the Secrets of classes along.
pub struct ClassAction(AppliesTo);

impl ClassAction {
    pub fn new() -> Self {
        Self(AppliesTo { included_resources: vec![CLASSES.to_owned()], ..AppliesTo::default() })
    }
}

/// The Secret that these two annotations name; half a name is none.
pub(super) fn secret(item: &Object, [name, namespace]: [&str; 2]) -> Option<ItemId> {
    let text = |key| json::text(item, &["metadata", "annotations"], key).map(str::to_owned);
    let (name, namespace) = (text(name)?, text(namespace)?);
    Some(ItemId { group_resource: "secrets".to_owned(), namespace: Some(namespace), name })
}

fn run(given: Given<'_>) -> Executed {
    if leaves_data(given.restore) {
        return Executed { skip: Some(NO_DATA_WANTED.to_owned()), ..Executed::default() };
    }
    Executed { additional: secret(given.item, csi::LIST_SECRET).into_iter().collect(), ..Executed::default() }
}

impl RestoreItemAction for ClassAction {
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
        Box::pin(ready(Ok(run(given))))
    }
}
