//! What actions would be waited for is begun ahead for the items that come next, so that it goes on side by side: a driver that
//! takes two seconds for a snapshot does not make a thousand claims wait for one another.
//!
//! Nothing is begun ahead for claims of pods that have commands: their snapshots are taken between these. Which pods mount a claim
//! is what its block says.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use backup_actions::ItemId;
use backup_store::Scope;
use serde_json::value::RawValue;
use tokio::task::JoinSet;

use super::{
    collector::{CollectError, Collector, ResourceKind, Sink},
    item::InclusionReason,
    item_block::{MAX_BYTES, Member, is_pod},
    raw_item::RawItem,
};

const CLAIMS: &str = "persistentvolumeclaims";

#[derive(Default)]
pub(super) struct Ahead {
    /// What was begun and is going on.
    tasks: JoinSet<()>,
    /// The members of blocks that were looked at ahead, by their first item.
    pub(super) blocks: HashMap<ItemId, Vec<Member>>,
}

impl<S: Sink> Collector<'_, S> {
    /// Includes the items of a page in their order.
    pub(super) async fn include_page(
        &mut self,
        kind: &ResourceKind,
        items: Vec<Box<RawValue>>,
    ) -> Result<(), CollectError> {
        let looks_ahead = is_pod(kind) || kind.group_resource == CLAIMS;
        let window = if looks_ahead { self.request.item_block_workers.max(1) } else { 1 };
        let (mut items, mut window_items) = (items.into_iter(), VecDeque::new());
        loop {
            while window_items.len() < window
                && self.block_members.values().map(String::len).sum::<usize>() < MAX_BYTES
                && let Some(item) = items.next()
            {
                if window > 1 {
                    self.begin_ahead(kind, item.get()).await?;
                }
                window_items.push_back(item);
            }
            let Some(item) = window_items.pop_front().or_else(|| items.next()) else { return Ok(()) };
            self.check()?;
            self.include(kind, item.get(), InclusionReason::Listed, 0).await?;
        }
    }

    /// Ends what was begun ahead of an item that was not included in the end.
    pub(super) async fn end_ahead(&mut self) {
        while self.ahead.tasks.join_next().await.is_some() {}
        for action in self.request.actions.items.iter() {
            for problem in action.end_begun().await {
                self.error(Scope::Velero, problem);
            }
        }
    }

    async fn begin_ahead(&mut self, kind: &ResourceKind, text: &str) -> Result<(), CollectError> {
        let Ok(item) = RawItem::parse(text) else { return Ok(()) };
        let id = kind.id(&item);
        if self.written.seen.contains(&kind.group_resource, item.namespace(), item.name())
            || self.block_members.contains_key(&id)
            || item.is_being_deleted()
            || item.is_excluded()
            || item.namespace().is_some_and(|namespace| !self.request.plan.namespaces.includes(namespace))
        {
            return Ok(());
        }
        if kind.group_resource == CLAIMS {
            self.spawn(kind, &item);
            return Ok(());
        }
        let Some(claims) = self.kind(CLAIMS).filter(|claims| !claims.actions.is_empty()) else {
            return Ok(());
        };
        if self.request.hooks.is_none() || self.hooks_of(kind, &item).is_some() {
            return Ok(());
        }
        let members = self.find_members(kind, &item).await?;
        let has_commands = members.iter().any(|member| {
            let text = self.block_members.get(&member.id);
            is_pod(&member.kind)
                && text
                    .and_then(|text| RawItem::parse(text).ok())
                    .is_some_and(|pod| self.hooks_of(&member.kind, &pod).is_some())
        });
        if has_commands {
            // Found again in its turn, or by the pod that has them.
            for member in &members {
                self.block_members.remove(&member.id);
            }
            return Ok(());
        }
        for member in members.iter().filter(|member| member.kind.group_resource == CLAIMS) {
            let Some(text) = self.block_members.get(&member.id).cloned() else { continue };
            if let Ok(claim) = RawItem::parse(&text) {
                self.spawn(&claims, &claim);
            }
        }
        self.ahead.blocks.insert(id, members);
        Ok(())
    }

    fn spawn(&mut self, kind: &ResourceKind, item: &RawItem<'_>) {
        for selected in kind.actions_for(item) {
            let Ok(value) = serde_json::from_str(&kind.meta.complete(item)) else { return };
            let (action, backup) = (Arc::clone(&selected.action), self.request.backup.clone());
            self.ahead.tasks.spawn(async move { action.begin(&value, &backup).await });
        }
    }
}
