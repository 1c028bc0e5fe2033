//! A pod, and what it brings along.

use backup_core::api::Backup;
use futures::future::BoxFuture;
use serde_json::Value;

use crate::backup::{
    action::{ActionError, AppliesTo, ItemId},
    actions::pod,
    block_action::ItemBlockAction,
};

/// `velero.io/pod`, on Pods (Velero `pkg/itemblock/actions/pod_action.go`, v1.18).
pub struct PodBlock(AppliesTo);

impl Default for PodBlock {
    fn default() -> Self {
        Self(AppliesTo { included_resources: vec!["pods".to_owned()], ..AppliesTo::default() })
    }
}

impl ItemBlockAction for PodBlock {
    fn name(&self) -> &'static str {
        "velero.io/pod"
    }

    fn applies_to(&self) -> &AppliesTo {
        &self.0
    }

    fn related<'a>(
        &'a self,
        item: &'a Value,
        _: &'a Backup,
    ) -> BoxFuture<'a, Result<Vec<ItemId>, ActionError>> {
        Box::pin(std::future::ready(Ok(pod::along(item))))
    }
}
