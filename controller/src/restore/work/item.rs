//! Restores items one by one: reads them, rewrites them by actions, and creates them (Velero
//! `pkg/restore/restore.go`, `restoreItem`, v1.18).

use backup_actions::{
    ActionSet, ItemId,
    restore::{
        RestoreActionInput, RestoreActionOutput, RestoreItemAction,
        json::{self, Object},
        modifiers::ModifierOutcome,
        transform,
    },
};
use backup_client::path;
use backup_core::{
    labels::MUST_INCLUDE_IN_RESTORE,
    resources::{CLAIMS, PODS, ResourceType, group_resource},
};
use backup_store::{ItemRef, Scope};
use futures::{StreamExt as _, future::BoxFuture, stream};
use parking_lot::Mutex;

use super::{
    MAX_CONCURRENT_ITEMS, MAX_CONCURRENT_JOURNALED_ITEMS, RestoreError, Restoring,
    item_coordinator::{BeginResult, ItemCoordinator},
    item_versions::ItemVersions,
    stored_item::{LoadedItem, misplaced},
};
use crate::{
    discovery::ServedTypes,
    job::action_journal::{Done, Execution},
    restore::{
        about::About,
        apply::{self, ItemResult, Outcome, Target},
        guard,
        hooks::HookPlanner,
        namespaces::Namespaces,
        select::Selection,
    },
};

/// Possible causes of another name or type of an item, in messages.
const CHANGED: &str = "actions, or the resource modifier,";

/// Restores items of the types that are served now.
pub(super) struct ItemRestorer<'a> {
    pub(super) restoring: &'a Restoring<'a>,
    pub(super) served: &'a ServedTypes,
    pub(super) versions: ItemVersions,
    pub(super) selection: &'a Selection,
    pub(super) actions: ActionSet<dyn RestoreItemAction>,
    pub(super) namespaces: &'a Namespaces,
    /// Set if items may ask for one another.
    pub(super) coordinator: Option<&'a ItemCoordinator>,
    pub(super) hooks: &'a HookPlanner<'a>,
}

/// A type of items, with its name in the backup.
#[derive(Clone, Copy)]
pub(super) struct ResourceKind<'a> {
    pub(super) group_resource: &'a str,
    pub(super) resource: &'a ResourceType,
}

#[derive(Clone, Copy)]
pub(super) enum InclusionReason {
    Selected,
    /// An action on another item asks for it.
    Related {
        by: ItemRef,
        /// Number of items in the chain of requests before it.
        depth: u8,
    },
}

/// The item that actions are run on.
pub(super) struct CurrentItem<'a> {
    pub(super) kind: ResourceKind<'a>,
    pub(super) about: About<'a>,
    pub(super) item: ItemRef,
    /// Its name in the backup.
    pub(super) id: ItemId,
    pub(super) depth: u8,
}

/// Result of the actions on an item.
enum ActionResult {
    Changed(Object),
    /// It is not created; the report says why.
    Dropped,
}

impl ItemRestorer<'_> {
    /// Whether actions on items of a type are noted in the journal.
    pub(super) fn writes_journal(&self, group_resource: &str) -> bool {
        self.actions
            .for_type(group_resource)
            .any(|selected| selected.action.is_executed_once())
    }

    /// Restores items of one type concurrently, each with the object seen under its name. When work
    /// has to stop, items in flight are completed: no running request or action is left without an
    /// answer.
    pub(super) async fn items(
        &self,
        kind: ResourceKind<'_>,
        items: impl IntoIterator<Item = (ItemRef, Option<Object>)>,
    ) -> Result<(), RestoreError> {
        let failed = Mutex::new(None);
        let error = &|| failed.lock();
        let in_flight = if self.writes_journal(kind.group_resource) {
            MAX_CONCURRENT_JOURNALED_ITEMS
        } else {
            MAX_CONCURRENT_ITEMS
        };
        stream::iter(items)
            .for_each_concurrent(in_flight, |(item, seen)| async move {
                if error().is_some() {
                    return;
                }
                let done = async {
                    self.restoring.calls.cancellation().check_new_work()?;
                    self.item(kind, item, InclusionReason::Selected, seen).await
                };
                if let Err(why) = done.await {
                    error().get_or_insert(why);
                }
            })
            .await;
        failed.into_inner().map_or(Ok(()), Err)
    }

    /// Restores an item, unless that is done already; true if it is in the cluster then. `seen` is
    /// the object under its name.
    pub(super) fn item<'s>(
        &'s self,
        kind: ResourceKind<'s>,
        item: ItemRef,
        reason: InclusionReason,
        seen: Option<Object>,
    ) -> BoxFuture<'s, Result<bool, RestoreError>> {
        Box::pin(async move {
            let Some(coordinator) = self.coordinator else {
                return self.restore(kind, item, 0, seen).await;
            };
            let (by, depth) = match reason {
                InclusionReason::Selected => match coordinator.begin(item) {
                    BeginResult::Begun => (None, 0),
                    BeginResult::Other { restored } => {
                        // It was already counted as a related item.
                        self.restoring.report.expected_twice();
                        return Ok(restored);
                    }
                },
                InclusionReason::Related { by, depth } => {
                    match coordinator.begin_for(item, by).await {
                        BeginResult::Begun => {
                            self.restoring.report.expect(1);
                            (Some(by), depth)
                        }
                        BeginResult::Other { restored } => return Ok(restored),
                    }
                }
            };
            let restored = self.restore(kind, item, depth, seen).await;
            // Also when work has to stop, so that nothing waits for it.
            coordinator.end(item, *restored.as_ref().unwrap_or(&false), by);
            restored
        })
    }

    async fn restore(
        &self,
        kind: ResourceKind<'_>,
        item: ItemRef,
        depth: u8,
        seen: Option<Object>,
    ) -> Result<bool, RestoreError> {
        let Restoring {
            contents,
            report,
            rules,
            calls,
            ..
        } = self.restoring;
        calls.cancellation().check()?;
        let source = contents.namespace_of(&item);
        let namespace = source.map(|source| rules.target(source));
        // The room is held until the item is restored.
        let Some(LoadedItem {
            object: from_backup,
            room: _room,
        }) = self.read(kind, item, namespace, depth).await?
        else {
            return Ok(false);
        };
        let name = json::text(&from_backup, &["metadata"], "name").unwrap_or_default();
        let about = About {
            api_version: json::text(&from_backup, &[], "apiVersion").unwrap_or_default(),
            kind: &kind.resource.kind,
            namespace,
            name,
        };
        if self.is_left_out(kind, about, &from_backup)
            || self.is_left_out_of_volumes(kind, about, source)
        {
            return Ok(false);
        }
        let Some(object) = self.prepared(kind, about, &from_backup).await? else {
            return Ok(false);
        };
        let current = CurrentItem {
            kind,
            about,
            item,
            id: ItemId {
                group_resource: kind.group_resource.to_owned(),
                namespace: source.map(str::to_owned),
                name: name.to_owned(),
            },
            depth,
        };
        let mut object = match self.run_actions(&current, &from_backup, object).await? {
            ActionResult::Dropped => {
                self.restoring.stop_download(&current.id).await;
                return Ok(false);
            }
            ActionResult::Changed(object) => object,
        };
        if kind.group_resource == CLAIMS {
            self.restoring.snapshots.follow(&mut object);
        }
        let applied = self.create(&current, object, &from_backup, seen).await?;
        if kind.group_resource == CLAIMS {
            self.follow_claim(&current, applied.outcome).await;
        }
        let restored = applied.outcome != Outcome::Failed;
        report.item(about, applied);
        Ok(restored)
    }

    /// Expects the volume of a created claim; stops the download of data for a claim that does not
    /// get them.
    async fn follow_claim(&self, current: &CurrentItem<'_>, outcome: Outcome) {
        let CurrentItem { about, id, .. } = current;
        if outcome == Outcome::Created {
            self.restoring
                .expect_provisioned(id.namespace.as_deref(), *about);
        } else if outcome == Outcome::Failed || !self.restoring.is_in_place(*about) {
            self.restoring.stop_download(id).await;
        }
    }

    /// Runs the actions on an item one after the other, each on the result of the one before. Items
    /// that they ask for are restored first.
    async fn run_actions(
        &self,
        current: &CurrentItem<'_>,
        from_backup: &Object,
        mut object: Object,
    ) -> Result<ActionResult, RestoreError> {
        let Restoring {
            restore, report, ..
        } = self.restoring;
        let CurrentItem {
            kind, about, id, ..
        } = current;
        let left_to_controller = self.left_to_controller(current, from_backup)?;
        for selected in self.actions.for_type(kind.group_resource) {
            if !selected.applies_to(about.namespace, || json::labels(&object)) {
                continue;
            }
            self.restoring.calls.cancellation().check_new_work()?;
            let action = &*selected.action;
            let input = RestoreActionInput {
                item: &object,
                from_backup,
                restore,
                left_to_controller,
            };
            let Done { executed, at } = match self.run_action(action, id, input).await? {
                Ok(done) => done,
                Err(error) => {
                    report.item(*about, not_restored(*about, &error.to_string()));
                    return Ok(ActionResult::Dropped);
                }
            };
            if executed.operation.is_some() {
                let execution = Execution {
                    action: action.name().to_owned(),
                    item: id.clone(),
                };
                let done = Done {
                    executed: executed.clone(),
                    at,
                };
                self.restoring
                    .actions
                    .started
                    .lock()
                    .push((execution, done));
            }
            let RestoreActionOutput {
                item: made,
                additional,
                skip,
                operation: _,
                wait,
            } = executed;
            if let Some(why) = skip {
                report.left_out(*about, &why);
                return Ok(ActionResult::Dropped);
            }
            if let Some(made) = made {
                object = made;
            }
            let must_include = take_must_include(&mut object);
            let mut restored = Vec::new();
            for related in additional {
                if self
                    .include_related(&related, action.name(), current, must_include)
                    .await?
                {
                    restored.push(related);
                }
            }
            if let Some(wait) = wait
                && let Err(why) = self.wait(action, wait, &restored).await?
            {
                // As with Velero, the item is restored nevertheless.
                let scope = about.namespace.map_or(Scope::Cluster, Scope::Namespace);
                let message = format!(
                    "{} {:?} was restored before what it needs: {why}",
                    about.kind, about.name
                );
                report.error(scope, message);
            }
        }
        Ok(ActionResult::Changed(object))
    }

    /// Applies the resource modifiers to the result of the actions; `None` if nothing changes.
    fn modify(&self, current: &CurrentItem<'_>, object: &Object) -> Option<Object> {
        let CurrentItem {
            kind, about, id, ..
        } = current;
        let modifiers = self.restoring.configuration.modifiers.as_ref()?;
        let ModifierOutcome { item, problems } =
            modifiers.apply(object, kind.group_resource, id.namespace.as_deref());
        for problem in problems {
            // As with Velero, the item is restored nevertheless.
            let scope = about.namespace.map_or(Scope::Cluster, Scope::Namespace);
            let message = format!(
                "{} {:?} was restored without a modification: {problem}",
                about.kind, about.name
            );
            self.restoring.report.error(scope, message);
        }
        item
    }

    /// Creates the result of actions and modifiers, which may have another name and type than the
    /// item.
    async fn create(
        &self,
        current: &CurrentItem<'_>,
        mut object: Object,
        from_backup: &Object,
        seen: Option<Object>,
    ) -> Result<ItemResult, RestoreError> {
        let Restoring {
            calls, rules, own, ..
        } = self.restoring;
        let CurrentItem {
            kind: of, about, ..
        } = current;
        let namespace = about.namespace;
        let mut unmodified = None;
        if let Some(modified) = self.modify(current, &object) {
            transform::place(&mut object, namespace, rules);
            unmodified = Some(std::mem::replace(&mut object, modified));
        }
        transform::place(&mut object, namespace, rules);
        let drill = self.restoring.drill();
        if let Some(drill) = drill {
            let claims = self
                .restoring
                .claims_of_drill(current.id.namespace.as_deref());
            drill.isolate(&mut object, &claims, own);
            if let Some(unmodified) = &mut unmodified {
                drill.isolate(unmodified, &claims, own);
            }
        }
        let api_version = json::text(&object, &[], "apiVersion").unwrap_or_default();
        let kind = json::text(&object, &[], "kind").unwrap_or_default();
        let name = json::text(&object, &["metadata"], "name").unwrap_or_default();
        let found;
        let mut plural = of.group_resource;
        let mut resource = of.resource;
        let group = group_of(api_version);
        if kind != resource.kind || group != resource.group {
            let Some(served) = self.find_kind(kind, group) else {
                let why = format!(
                    "{CHANGED} made a {api_version} {kind} of it, which the cluster does not serve"
                );
                return Ok(not_restored(*about, &why));
            };
            found = (served.group_resource(), served);
            plural = &found.0;
            resource = &found.1;
        }
        if let Some(why) = misplaced(&object, resource, namespace, api_version, name) {
            return Ok(not_restored(*about, &why));
        }
        if self.selection.keeps_type(plural) {
            let why = format!("{CHANGED} made a {kind} of it, which a restore does not write");
            return Ok(not_restored(*about, &why));
        }
        if let Some(why) = guard::keeps_object(plural, namespace, &object, own) {
            return Ok(not_restored(
                *about,
                &format!("{CHANGED} made {name:?} of it, and {why}"),
            ));
        }
        if let Some(why) = drill.and_then(|drill| drill.left_out(plural, namespace)) {
            let why = format!("{CHANGED} made a {kind} of it, and {why}");
            return Ok(not_restored(*about, &why));
        }
        if self.restoring.restore.spec.prune == Some(true)
            && let Some(namespace) = namespace
            && (plural != of.group_resource || name != about.name)
        {
            self.restoring.actions.renamed.add(plural, namespace, name);
        }
        let collection = path::collection(api_version, &resource.plural, namespace);
        // It was listed in the version that the cluster prefers.
        let as_listed = plural == of.group_resource
            && name == about.name
            && api_version == of.resource.api_version();
        let seen = seen.filter(|_| as_listed);
        let target = Target {
            group_resource: plural,
            kind: &resource.kind,
            collection: &collection,
            namespace,
            name,
            unmodified: unmodified.as_ref(),
            controller: None,
        };
        if let Some(why) = self.refused_by_drill(target, &object).await? {
            return Ok(not_restored(*about, &why));
        }
        if let Some(why) = self.volume_refused(target, &object).await? {
            return Ok(ItemResult::failed(why));
        }
        let controller = self.controller_link(current, from_backup, plural).await?;
        let target = Target {
            controller: controller.reference.as_ref(),
            ..target
        };
        let mut applied =
            apply::item(calls, target, &object, self.restoring.policy(), seen).await?;
        if let (Outcome::Created, Some(lost)) = (applied.outcome, controller.lost) {
            self.restoring
                .report
                .warn(namespace.map_or(Scope::Cluster, Scope::Namespace), lost);
        }
        self.status(target, resource, from_backup, &mut applied)
            .await?;
        self.report_left_links(target, from_backup, &object, applied.outcome);
        let may_have_hooks = plural == PODS && self.restoring.runs_hooks();
        if may_have_hooks && applied.outcome != Outcome::Failed {
            self.hooks.restored(&object);
        }
        if may_have_hooks && applied.outcome == Outcome::Created && !calls.is_dry_run() {
            self.hooks.created(&object).await;
        }
        Ok(applied)
    }

    pub(super) fn find_kind(&self, kind: &str, group: &str) -> Option<ResourceType> {
        let full = self.served.resolve(&group_resource(kind, group))?;
        let served = self.served.by_group_resource(&full)?;
        (served.kind == kind && served.group == group).then(|| served.clone())
    }
}

/// Whether an action has marked its item so that related items are restored regardless of the
/// filters (Velero `pkg/restore/restore.go`, after 1.18). Removes the mark, so that it never gets
/// into the cluster.
fn take_must_include(object: &mut Object) -> bool {
    let annotations = ["metadata", "annotations"];
    let Some(value) = json::text(object, &annotations, MUST_INCLUDE_IN_RESTORE) else {
        return false;
    };
    let must_include = value == "true";
    json::remove(object, &annotations, &[MUST_INCLUDE_IN_RESTORE]);
    must_include
}

pub(super) fn group_of(api_version: &str) -> &str {
    api_version.rsplit_once('/').map_or("", |(group, _)| group)
}

pub(super) fn not_restored(about: About<'_>, why: &str) -> ItemResult {
    ItemResult::failed(format!(
        "{} {:?} was not restored: {why}",
        about.kind, about.name
    ))
}
