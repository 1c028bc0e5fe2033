//! Backs up items that belong together, with the commands in pods around them: first all pre
//! commands run, then all items and their related items are written, then all post commands run. So
//! all pods are frozen at the same time, and no longer than needed (Velero `pkg/backup/backup.go`,
//! `executeItemBlockActions`, v1.18).

use std::collections::VecDeque;

use backup_actions::ItemId;
use backup_client::errors::plain;
use backup_store::Scope;

use super::{
    collector::{CollectError, Collector, Member, ResourceKind, Sink, fetch},
    item::InclusionReason,
    raw_item::RawItem,
};
use crate::{
    backup::{
        hooks::{Hooks, PodHooks},
        report::scope_of,
    },
    hooks::{Hook, Pod, exec::ExecError},
    job::waits::WaitGuard,
};

/// A block is in memory while it is written, so it has a limit.
const MAX_MEMBERS: usize = 1_000;
pub(super) const MAX_BYTES: usize = 32 << 20;
/// When commands in pods run, for messages.
const BEFORE: &str = "before the backup";
const AFTER: &str = "after the backup";

/// An action says that an item belongs to the block of another one.
struct Relation {
    item: ItemId,
    belongs_to: ItemId,
    action: String,
}

impl<S: Sink> Collector<'_, S> {
    /// Runs commands, and writes an item with the rest of its block; true if the item itself was
    /// written.
    pub(super) async fn include_block(
        &mut self,
        kind: &ResourceKind,
        item: &RawItem<'_>,
        depth: u8,
        hooks: &Hooks,
    ) -> Result<bool, CollectError> {
        let members = match self.ahead.blocks.remove(&kind.id(item)) {
            Some(members) => members,
            None => self.find_members(kind, item).await?,
        };
        let mut pods = Vec::new();
        let included = self.run_pre_hooks(kind, item, hooks, &mut pods).await?;
        for member in members.iter().filter(|member| is_pod(&member.kind)) {
            let Some(text) = self.block_members.get(&member.id).cloned() else {
                continue;
            };
            // It was parsed successfully before.
            let Ok(pod) = RawItem::parse(&text) else {
                continue;
            };
            if !self
                .run_pre_hooks(&member.kind, &pod, hooks, &mut pods)
                .await?
            {
                self.block_members.remove(&member.id);
                self.written
                    .seen
                    .insert(&member.kind.group_resource, pod.namespace(), pod.name());
            }
        }
        // If this ends the collection, the post commands stay pending: the worker runs them.
        let written = included && self.store(kind, item, depth).await?;
        for member in &members {
            if let Some(text) = self.block_members.remove(&member.id) {
                self.include_member(&member.kind, &text, depth).await?;
            }
        }
        for (pod, pod_hooks) in &pods {
            for hook in &pod_hooks.post {
                let _wait = self.waits_for_hook(AFTER, pod, hook);
                let result = hooks.run_post(pod, hook).await;
                self.report_hook(AFTER, pod, hook, &result);
            }
            hooks.complete(pod).await?;
        }
        Ok(written)
    }

    /// The commands around the backup of an item; `None` if it is not a pod, or has none.
    pub(super) fn hooks_of(
        &self,
        kind: &ResourceKind,
        item: &RawItem<'_>,
    ) -> Option<(Pod, PodHooks)> {
        if !is_pod(kind) {
            return None;
        }
        self.request
            .plan
            .hooks
            .of_text(item.text(), item.raw_annotations())
    }

    /// Runs the pre commands if the item is a pod with commands, and adds it to `pods`. True if it
    /// may be backed up.
    async fn run_pre_hooks(
        &mut self,
        kind: &ResourceKind,
        item: &RawItem<'_>,
        hooks: &Hooks,
        pods: &mut Vec<(Pod, PodHooks)>,
    ) -> Result<bool, CollectError> {
        let Some((pod, pod_hooks)) = self.hooks_of(kind, item) else {
            return Ok(true);
        };
        let name = item.full_name();
        let scope = Scope::Namespace(&pod.namespace);
        for problem in &pod_hooks.problems {
            self.warn(scope, format!("pod {name}: {problem}"));
        }
        if pod_hooks.is_empty() {
            return Ok(true);
        }
        match hooks.is_running(&pod).await {
            Ok(true) => {}
            Ok(false) => {
                self.report_not_running(&pod);
                return Ok(true);
            }
            Err(error) => {
                let message = format!(
                    "pod {name} is not in this backup: its commands could not be run: {}",
                    plain(&error)
                );
                self.error(scope, message);
                return Ok(false);
            }
        }
        self.check()?;
        if !pod_hooks.pre.is_empty() {
            hooks.begin(&pod, &pod_hooks.post).await?;
        }
        let mut included = true;
        for hook in &pod_hooks.pre {
            let _wait = self.waits_for_hook(BEFORE, &pod, hook);
            let result = hooks.run_pre(&pod, hook).await;
            self.report_hook(BEFORE, &pod, hook, &result);
            if result.is_err() && hook.fails {
                let message = format!(
                    "pod {name} is not in this backup: the command before its backup failed"
                );
                self.error(scope, message);
                included = false;
                break;
            }
        }
        pods.push((pod, pod_hooks));
        Ok(included)
    }

    fn waits_for_hook(&self, when: &str, pod: &Pod, hook: &Hook) -> WaitGuard {
        let subject = hook.subject(when, &pod.namespace, &pod.name);
        self.request
            .cancellation
            .waits()
            .begin(format!("the end of {}", subject.trim_end_matches(',')))
    }

    fn report_hook(
        &mut self,
        when: &str,
        pod: &Pod,
        hook: &Hook,
        result: &Result<String, ExecError>,
    ) {
        let what = hook.subject(when, &pod.namespace, &pod.name);
        match result {
            Ok(output) => {
                let message = if output.is_empty() {
                    format!("{what} has run")
                } else {
                    format!("{what} has run and printed: {output}")
                };
                self.output.report.info(&message);
            }
            Err(error) => {
                self.error(
                    Scope::Namespace(&pod.namespace),
                    format!("{what} failed: {error}"),
                );
                if !error.output().is_empty() {
                    self.output
                        .report
                        .info(&format!("{what} printed: {}", error.output()));
                }
            }
        }
    }

    fn report_not_running(&mut self, pod: &Pod) {
        let Pod {
            namespace,
            name,
            phase,
            ..
        } = pod;
        let message =
            format!("the commands around the backup of pod {namespace}/{name} are not run: ");
        if matches!(phase.as_str(), "Succeeded" | "Failed") {
            self.output.report.info(&format!("{message}it has ended"));
        } else {
            self.warn(
                Scope::Namespace(namespace),
                format!("{message}it does not run ({phase})"),
            );
        }
    }

    /// Finds the members of the block of an item, and their members, and so on, in the order in
    /// which actions name them. Leaves out items that filters exclude, that were written before, or
    /// that are members of an outer block.
    pub(super) async fn find_members(
        &mut self,
        kind: &ResourceKind,
        item: &RawItem<'_>,
    ) -> Result<Vec<Member>, CollectError> {
        let root = kind.id(item);
        let mut members = Vec::new();
        let mut bytes = 0;
        let mut relations = VecDeque::new();
        self.find_relations(kind, item, &mut relations).await?;
        while let Some(relation) = relations.pop_front() {
            let Some(Member { kind, id }) = self.new_member(&relation) else {
                continue;
            };
            if members.len() >= MAX_MEMBERS || bytes >= MAX_BYTES {
                let message = format!(
                    "the block of {root} is larger than is kept together ({MAX_MEMBERS} items, {} MiB): the rest is backed up \
                     by itself",
                    MAX_BYTES >> 20
                );
                self.warn(scope_of(item.namespace()), message);
                break;
            }
            self.check()?;
            let Some(text) = self.fetch_member(&kind, &id, &relation).await else {
                continue;
            };
            // An unreadable item is reported when it is included.
            let Ok(found) = RawItem::parse(&text) else {
                continue;
            };
            if !self.belongs(&kind, &found, InclusionReason::Related) {
                continue;
            }
            self.find_relations(&kind, &found, &mut relations).await?;
            bytes += text.len();
            self.block_members.insert(id.clone(), text);
            members.push(Member { kind, id });
        }
        Ok(members)
    }

    /// Asks the block actions which items belong to an item.
    async fn find_relations(
        &mut self,
        kind: &ResourceKind,
        item: &RawItem<'_>,
        relations: &mut VecDeque<Relation>,
    ) -> Result<(), CollectError> {
        let blocks: Vec<_> = kind
            .blocks
            .iter()
            .filter(|block| block.applies_to(item.namespace(), || item.labels()))
            .collect();
        if blocks.is_empty() {
            return Ok(());
        }
        // An unreadable item is reported when it is written.
        let Ok(value) = serde_json::from_str(&kind.meta.complete(item)) else {
            return Ok(());
        };
        let id = kind.id(item);
        for block in blocks {
            self.check()?;
            let related = block.action.related(&value, self.request.backup);
            let report = &mut *self.output.report;
            match self
                .request
                .actions
                .log
                .told_during(related, |lines| report.said(lines))
                .await
            {
                Ok(related) => relations.extend(related.into_iter().map(|item| Relation {
                    item,
                    belongs_to: id.clone(),
                    action: block.action.name().to_owned(),
                })),
                Err(error) => {
                    let message = format!(
                        "what belongs to {id} is not known, so it is not backed up together with it: {error}"
                    );
                    self.error(scope_of(item.namespace()), message);
                }
            }
        }
        Ok(())
    }

    /// The named item, if it belongs into this backup and was not included yet.
    fn new_member(&mut self, relation: &Relation) -> Option<Member> {
        let Some(kind) = self.kind(&relation.item.group_resource) else {
            self.report_unread(
                relation,
                "the cluster serves no such type that can be backed up",
            );
            return None;
        };
        let id = kind.normalize(&relation.item);
        let namespace = id.namespace.as_deref();
        let wanted = self.allows_related(&kind, namespace)
            && !self
                .written
                .seen
                .contains(&kind.group_resource, namespace, &id.name)
            && !self.block_members.contains_key(&id);
        wanted.then_some(Member { kind, id })
    }

    async fn fetch_member(
        &mut self,
        kind: &ResourceKind,
        id: &ItemId,
        relation: &Relation,
    ) -> Option<String> {
        match fetch(self.request.client, kind, id.namespace.as_deref(), &id.name).await {
            Ok(Some(text)) => Some(text),
            Ok(None) => {
                // Built-in block actions name the items that item actions ask for, which report
                // them if missing.
                if !relation.action.starts_with("velero.io/") {
                    let message = format!(
                        "{} says that {id} belongs to {}, and it does not exist",
                        relation.action, relation.belongs_to
                    );
                    self.warn(scope_of(relation.belongs_to.namespace.as_deref()), message);
                }
                None
            }
            Err(reason) => {
                self.report_unread(relation, &reason);
                None
            }
        }
    }

    fn report_unread(&mut self, relation: &Relation, reason: &str) {
        let Relation {
            item,
            belongs_to,
            action,
        } = relation;
        let message = format!(
            "{item}, of which {action} says that it belongs to {belongs_to}, could not be read, so they are not backed up \
             together: {reason}"
        );
        self.error(scope_of(belongs_to.namespace.as_deref()), message);
    }
}

pub(super) fn is_pod(kind: &ResourceKind) -> bool {
    kind.group_resource == "pods"
}
