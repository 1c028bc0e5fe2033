//! Built-in actions on blocks: pods that mount the same claims, claims that are snapshotted together (Velero
//! `pkg/itemblock/actions`, v1.18).
//!
//! Velero has a third one, on service accounts. What it names is what the action on items (`velero.io/service-account`)
//! brings along in any case, so nobody can tell the difference.

use std::sync::Arc;

use kube::Client;

use super::Wish;
use crate::backup::block_action::ItemBlockAction;

mod claim;
mod pod;

/// All of them. Made for one use: they may remember what they have read.
pub fn all(client: &Client) -> Vec<Arc<dyn ItemBlockAction>> {
    vec![Arc::new(claim::ClaimBlock::new(client.clone())), Arc::new(pod::PodBlock::default())]
}

/// An action on blocks, with what it wants to see.
#[derive(Clone)]
pub struct ResolvedBlock {
    /// The action.
    pub action: Arc<dyn ItemBlockAction>,
    /// Which items.
    pub wish: Wish,
}
