//! Begins slow work of actions and plugins ahead for the next items, so that it runs concurrently:
//! if a driver or a plugin takes two seconds for a snapshot, a thousand claims do not wait for one
//! another.
//!
//! Nothing is begun ahead for claims of pods that have commands: their snapshots are taken between
//! these. The block of a claim names the pods that mount it. Work begun for an item that is not in
//! the backup in the end is undone.

use std::{collections::VecDeque, sync::Arc};

use backup_actions::json::text as text_of;
use backup_core::resources::{CLAIMS, VOLUMES};
use backup_store::Scope;
use serde_json::{Value, value::RawValue};

use super::{
    collector::{CollectError, Collector, ResourceKind, Sink, fetch},
    item::{Belonging, InclusionReason},
    item_block::{MAX_BYTES, is_pod},
    raw_item::RawItem,
};
use crate::backup::volume_snapshots::{VolumeSnapshots, VolumeWithClaim};

impl<S: Sink> Collector<'_, S> {
    /// Includes the items of a page in their order.
    pub(super) async fn include_page(
        &mut self,
        kind: &ResourceKind,
        items: Vec<Box<RawValue>>,
    ) -> Result<(), CollectError> {
        let looks_ahead = is_pod(kind) || [CLAIMS, VOLUMES].contains(&kind.group_resource.as_str());
        let window = if looks_ahead {
            self.request.item_block_workers.max(1)
        } else {
            1
        };
        let mut items = items.into_iter();
        let mut window_items = VecDeque::new();
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
            let Some(item) = window_items.pop_front().or_else(|| items.next()) else {
                return Ok(());
            };
            self.check()?;
            self.include(kind, item.get(), InclusionReason::Listed, 0)
                .await?;
        }
    }

    /// Ends work begun ahead for items that were not included in the end.
    pub(super) async fn end_ahead(&mut self) -> Result<(), CollectError> {
        while self.ahead.tasks.join_next().await.is_some() {}
        for action in self.request.actions.items.iter() {
            for problem in action.end_begun().await {
                self.error(Scope::Velero, problem);
            }
        }
        let Some(volume_snapshots) = &mut self.request.volume_snapshots else {
            return Ok(());
        };
        let log = &self.request.actions.log;
        let report = &mut *self.output.report;
        let problems = log
            .told_during(volume_snapshots.end_begun(), |lines| report.said(lines))
            .await?;
        for problem in problems {
            self.error(Scope::Cluster, problem);
        }
        Ok(())
    }

    async fn begin_ahead(&mut self, kind: &ResourceKind, text: &str) -> Result<(), CollectError> {
        let Ok(item) = RawItem::parse(text) else {
            return Ok(());
        };
        let id = kind.id(&item);
        if self
            .written
            .seen
            .contains(&kind.group_resource, item.namespace(), item.name())
            || self.block_members.contains_key(&id)
            || self.belonging(kind, &item, InclusionReason::Listed) != Belonging::Yes
        {
            return Ok(());
        }
        if kind.group_resource == VOLUMES {
            let volume = self.volume_to_snapshot(kind, &item).await;
            self.begin_snapshots(volume.into_iter().collect());
            return Ok(());
        }
        if kind.group_resource == CLAIMS {
            self.begin_claims(kind, &[text.to_owned()]).await;
            return Ok(());
        }
        let Some(claims) = self
            .kind(CLAIMS)
            .filter(|claims| !claims.actions.is_empty())
        else {
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
            // The block is found again in its turn, or by the pod that has commands.
            for member in &members {
                self.block_members.remove(&member.id);
            }
            return Ok(());
        }
        let members_that_claim = members
            .iter()
            .filter(|member| member.kind.group_resource == CLAIMS);
        let texts: Vec<_> = members_that_claim
            .filter_map(|member| self.block_members.get(&member.id).cloned())
            .collect();
        self.begin_claims(&claims, &texts).await;
        self.ahead.blocks.insert(id, members);
        Ok(())
    }

    /// Begins slow work for the claims of a block.
    async fn begin_claims(&mut self, kind: &ResourceKind, texts: &[String]) {
        let mut volumes = Vec::new();
        for text in texts {
            let Ok(item) = RawItem::parse(text) else {
                continue;
            };
            let Ok(claim) = serde_json::from_str::<Value>(&kind.meta.complete(&item)) else {
                continue;
            };
            for selected in kind.actions_for(&item) {
                let action = Arc::clone(&selected.action);
                let backup = self.request.backup.clone();
                let claim = claim.clone();
                self.ahead
                    .tasks
                    .spawn(async move { action.begin(&claim, &backup).await });
            }
            if self.takes_snapshots() {
                volumes.extend(self.volume_of(&claim).await);
            }
        }
        self.begin_snapshots(volumes);
    }

    fn begin_snapshots(&mut self, volumes: Vec<VolumeWithClaim>) {
        if let Some(volume_snapshots) = &mut self.request.volume_snapshots {
            volume_snapshots.begin(volumes, self.request.backup);
        }
    }

    fn takes_snapshots(&self) -> bool {
        self.request
            .volume_snapshots
            .as_ref()
            .is_some_and(VolumeSnapshots::has_locations)
    }

    /// The volume that a claim brings along. Errors are reported when its turn comes.
    async fn volume_of(&mut self, claim: &Value) -> Option<VolumeWithClaim> {
        let name = text_of(claim, "/spec/volumeName")
            .filter(|_| text_of(claim, "/status/phase") == Some("Bound"))?;
        let kind = self.kind(VOLUMES)?;
        if !self.allows_related(&kind, None) || self.written.seen.contains(VOLUMES, None, name) {
            return None;
        }
        let text = fetch(self.request.client, &kind, None, name).await.ok()??;
        let item = RawItem::parse(&text).ok()?;
        if self.belonging(&kind, &item, InclusionReason::Related) != Belonging::Yes {
            return None;
        }
        self.volume_to_snapshot(&kind, &item).await
    }

    /// A volume, if a plugin may be asked for its snapshot. If an action may put another volume
    /// into the object, it is snapshotted in its turn.
    async fn volume_to_snapshot(
        &mut self,
        kind: &ResourceKind,
        item: &RawItem<'_>,
    ) -> Option<VolumeWithClaim> {
        if kind.actions_for(item).next().is_some() {
            return None;
        }
        let volume: Value = serde_json::from_str(&kind.meta.complete(item)).ok()?;
        if !self.request.volume_snapshots.as_ref()?.can_begin(&volume) {
            return None;
        }
        let claim = self.claim_of(&volume).await.ok()?;
        Some(VolumeWithClaim { volume, claim })
    }
}
