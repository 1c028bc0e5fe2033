//! The work of one restore: definitions, namespaces, then every type in its order.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use backup_actions::csi::SNAPSHOTS;
use backup_actions::restore::{
    self, AddClaimsOfPods, PRIORITY_CLASSES, RestoreActionOutput, RestoreItemAction, RestoreRules,
    json, modifiers::ResourceModifiers,
};
use backup_core::{
    api::{Backup, Restore},
    labels,
    resources::{NAMESPACES, PODS, RestoreOrder, VersionPriorities},
    text::{counted, shortened},
    validate::Finding,
};
use backup_lock::Footprint;
use backup_store::{Contents, ItemRef, SavedVolumes, Scope, StoreError};
use kube::ResourceExt as _;
use tokio::sync::mpsc;

use super::{
    about::About,
    apply::{ItemResult, Outcome, Policy},
    calls::Calls,
    drill::Isolation,
    hooks::{HookContext, HookPlanner, HookRunner},
    item_memory::ItemMemory,
    names,
    namespaces::Namespaces,
    report::Report,
    select::{Batch, Selection},
    type_names::TypeNames,
    validate::Configuration,
    volume_snapshots::Snapshots,
};
use crate::{
    discovery::{ReadError, ServedTypes},
    job::{
        action_journal::{Done, Execution},
        cancellation::StopReason,
    },
};
pub(super) use action_context::ActionContext;
use item::{ItemRestorer, ResourceKind};
use item_versions::ItemVersions;
use served_types::Discover;
pub(super) use served_types::discover;
pub(super) use volume_plan::VolumePlan;

mod action_calls;
mod action_context;
mod definitions;
mod drill_volumes;
mod existing;
mod item;
mod item_coordinator;
mod item_versions;
mod links;
mod namespaces;
mod plugin_turns;
mod provisioned;
mod prune;
mod related_items;
mod served_types;
mod status;
mod stored_item;
#[cfg(test)]
mod tests;
mod volume_plan;
mod volumes;

/// Maximum length of an API version or kind (characters): a subdomain of DNS, a slash, and a label.
const MAX_KIND_LENGTH: usize = 253 + 1 + 63;
/// Maximum number of concurrent items of a type.
const MAX_CONCURRENT_ITEMS: usize = 16;
/// Maximum number of items in the journal of actions without an end.
const MAX_OPEN_ITEMS: usize = 64;
/// Maximum number of concurrent items where actions are noted in the journal: while
/// `MAX_OPEN_ITEMS` items are noted, earlier ones wait for the write with their ends, or are being
/// created.
const MAX_CONCURRENT_JOURNALED_ITEMS: usize = 3 * MAX_OPEN_ITEMS;
/// Capacity of the channel of pods to the hook runner, which receives them at once.
const POD_CHANNEL_CAPACITY: usize = 16;

/// The result of an action on an item, if it has started an operation.
pub(super) type StartedOperation = (Execution, Done<RestoreActionOutput>);

/// Why a restore ended before it was done.
#[derive(Debug, thiserror::Error)]
pub(super) enum RestoreError {
    /// The restore has to stop; it is resumed later.
    #[error(transparent)]
    Stopped(#[from] StopReason),
    #[error(transparent)]
    Discovery(ReadError),
    /// The local copy of the backup could not be read.
    #[error(transparent)]
    Contents(#[from] StoreError),
    /// The spec does not fit the backup. Nothing was written by this attempt.
    #[error("{0}")]
    Refused(String),
    /// The journal could not record an action, the creation of a volume, or a hook.
    #[error("what may be started could not be noted: {0}")]
    Journal(#[source] StoreError),
}

/// Our data mover, which restores the data of volumes from a repository.
#[derive(Clone, Copy)]
pub(super) struct BackupMover<'a> {
    /// Whether this controller runs it.
    pub(super) is_running: bool,
    /// BackupStorageLocation of the backup, which has the repository.
    pub(super) location: &'a str,
}

/// One restore: what it restores, how, and where the results go. A run and a plan build it once;
/// every step borrows it.
pub(super) struct Restoring<'a> {
    pub(super) restore: &'a Restore,
    pub(super) backup: &'a Backup,
    pub(super) contents: &'a Contents,
    /// The footprint of the claim: nothing is written into other namespaces.
    pub(super) claimed: &'a Footprint,
    /// Types whose objects start work of other operators.
    pub(super) guarded: &'a [String],
    pub(super) order: &'a RestoreOrder,
    /// Preferred versions of types; `None`: the versions stored at the plain paths, where the
    /// cluster serves them.
    pub(super) versions: Option<&'a VersionPriorities>,
    pub(super) memory: &'a ItemMemory,
    /// Whether an earlier run of the same Restore may have created items.
    pub(super) resumed: bool,
    /// When the Restore was created: older objects are not its own. `None` in a plan.
    pub(super) created: Option<String>,
    /// The namespace of the installation.
    pub(super) own: &'a str,
    /// Maximum wait for a definition, or for an object that is being deleted.
    pub(super) patience: Duration,
    /// How items are rewritten; the kept volumes are added here.
    pub(super) rules: RestoreRules,
    pub(super) configuration: Configuration,
    pub(super) actions: ActionContext<'a>,
    pub(super) hooks: HookContext<'a>,
    pub(super) snapshots: Snapshots,
    pub(super) saved: SavedVolumes,
    pub(super) mover: BackupMover<'a>,
    /// How the data of each volume is restored; decided once, before any item.
    pub(super) plan: VolumePlan,
    pub(super) discover: Discover<'a>,
    pub(super) calls: &'a Calls,
    pub(super) report: &'a Report,
}

/// How a restore rewrites the items of this backup, before its volumes are planned.
pub(super) fn rules(restore: &Restore, backup: &Backup) -> RestoreRules {
    RestoreRules {
        backup_label: labels::valid_value(&backup.name_any()),
        restore_label: labels::valid_value(&restore.name_any()),
        namespaces: Arc::new(restore.spec.namespace_mapping.clone()),
        preserve_node_ports: restore.spec.preserve_node_ports == Some(true),
        kept_volumes: Arc::default(),
    }
}

impl Restoring<'_> {
    /// Restores all selected items, runs the hooks of their pods, and then removes what the backup
    /// does not have if the spec says so, until done or cancelled by a user. Returns the operations
    /// that actions have started. Running it again is idempotent.
    pub(super) async fn run(mut self) -> Result<Vec<StartedOperation>, RestoreError> {
        let (pods, restored) = mpsc::channel(POD_CHANNEL_CAPACITY);
        let label = self.rules.restore_label.clone();
        let Self {
            hooks,
            calls,
            report,
            patience,
            restore,
            ..
        } = self;
        let runner = HookRunner::new(hooks, calls, report, patience, label);
        let planner = HookPlanner::new(restore, patience, report, pods);
        let everything = async {
            let done = self.everything(planner).await;
            let stopped = [StopReason::Cancelled, StopReason::ClaimLost];
            if matches!(&done, Err(error) if !matches!(error, RestoreError::Stopped(why) if stopped.contains(why)))
            {
                runner.fail();
            }
            done
        };
        let (done, hooked) = tokio::join!(everything, runner.run(restored));
        let done = match (done, hooked) {
            (Ok(()) | Err(RestoreError::Stopped(StopReason::Cancelled)), Err(error)) => {
                Err(RestoreError::Journal(error))
            }
            (done, _) => done,
        };
        let done = match done {
            Err(RestoreError::Stopped(StopReason::Cancelled)) => {
                self.report.cancelled(self.resumed);
                Ok(())
            }
            // The end may report what was done.
            done @ (Ok(()) | Err(RestoreError::Stopped(StopReason::ClaimLost))) => done,
            Err(error) => return Err(error),
        };
        runner.report_left();
        self.actions
            .log
            .settle(|lines| self.report.said(lines))
            .await;
        self.report_volumes();
        self.report_used_claims().await;
        done?;
        self.prune().await?;
        Ok(self.actions.started.into_inner())
    }

    async fn everything(&mut self, hooks: HookPlanner<'_>) -> Result<(), RestoreError> {
        self.calls.cancellation().check_new_work()?;
        let served = (self.discover)().await.map_err(RestoreError::Discovery)?;
        let selection = self.selection(&served)?;
        self.check_names(&served, &selection)?;
        self.plan_volumes();
        let namespaces = self.namespaces(&selection)?;
        let definitions = selection.definitions(self.contents, &served)?;
        let selected = namespaces.selected();
        if selected.is_empty() && definitions.is_empty() && !selection.selects_any(self.contents)? {
            return Err(RestoreError::Refused(self.selects_nothing(&selection)?));
        }
        self.report.expect(definitions.len());
        let again = if definitions.is_empty() {
            None
        } else {
            Some(
                self.restorer(&namespaces, &hooks, &served, &selection)
                    .definitions(definitions)
                    .await?,
            )
        };
        let served = again.unwrap_or(served);
        // Names are completed again: some types are served only now.
        let selection = self.selection(&served)?;
        for problem in &selection.problems {
            self.report
                .warn(Scope::Velero, format!("the resource policy: {problem}"));
        }
        let batches = selection.batches(self.contents, &served, self.order)?;
        self.report
            .expect(batches.iter().map(|batch| batch.items.len()).sum());
        self.report_guarded(&selection)?;
        self.ensure_all(&namespaces, selected).await?;
        let restorer = self.restorer(&namespaces, &hooks, &served, &selection);
        for why in &restorer.actions.unusable {
            self.report.error(Scope::Velero, why.clone());
        }
        let noted = batches
            .iter()
            .filter(|batch| restorer.writes_journal(&batch.group_resource));
        self.actions
            .turns
            .expect(noted.map(|batch| batch.items.len()).sum());
        let (served_now, others): (Vec<_>, Vec<_>) = batches
            .into_iter()
            .partition(|batch| batch.resource.is_some());
        for batch in &served_now {
            self.batch(batch, &restorer).await?;
        }
        self.restore_served_later(others, &namespaces, &hooks)
            .await?;
        let modifiers = self
            .configuration
            .modifiers
            .iter()
            .flat_map(ResourceModifiers::idle);
        for idle in modifiers.chain(hooks.idle()) {
            self.report.warn(Scope::Velero, idle);
        }
        Ok(self.complete_provisioned().await?)
    }

    fn selection(&self, served: &ServedTypes) -> Result<Selection, StoreError> {
        Selection::new(
            &self.restore.spec,
            served,
            self.contents,
            self.guarded,
            &self.configuration.filters,
        )
    }

    /// Refuses names that are not in the backup, before anything is written.
    fn check_names(&self, served: &ServedTypes, selection: &Selection) -> Result<(), RestoreError> {
        let spec = &self.restore.spec;
        let contents = self.contents;
        if contents.is_empty() {
            return Ok(());
        }
        let types = TypeNames::read(spec, served, contents, false)?;
        let mut namespaces = contents.namespaces();
        for item in contents.items(NAMESPACES) {
            namespaces.insert(contents.name_of(item)?);
        }
        let backup = spec.backup_name.as_deref().unwrap_or_default();
        let held = names::BackupNames {
            backup,
            namespaces: &namespaces,
            types: &types.held,
        };
        let mut found = names::check(spec, &held, &|name| types.resolve(name));
        for object in selection.unselected_objects(contents)? {
            let why =
                format!("{object} is not in the backup, or left out by another filter of the spec");
            found.errors.push(Finding::new("spec.includedObjects", why));
        }
        if !found.errors.is_empty() {
            let all: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
            return Err(RestoreError::Refused(all.join("; ")));
        }
        for warning in found.warnings {
            self.report.warn(Scope::Velero, warning.to_string());
        }
        Ok(())
    }

    /// Why a restore that selects nothing does not begin.
    fn selects_nothing(&self, selection: &Selection) -> Result<String, StoreError> {
        let backup = self.restore.spec.backup_name.as_deref().unwrap_or_default();
        if self.contents.is_empty() {
            return Ok(format!("backup {backup:?} holds no items"));
        }
        let nothing = format!(
            "the filters of the spec select no item of backup {backup:?}; `kubectl backup ls {backup}` lists what it holds"
        );
        let left_out = selection.left_out(self.contents)?;
        let left_out: Vec<&str> = left_out.into_iter().map(|(of_type, _)| of_type).collect();
        if left_out.is_empty() {
            return Ok(nothing);
        }
        let left_out = left_out.join(", ");
        Ok(format!(
            "{nothing}; {left_out} would start work and have to be named in spec.includedResources"
        ))
    }

    fn restorer<'p>(
        &'p self,
        namespaces: &'p Namespaces,
        hooks: &'p HookPlanner<'_>,
        served: &'p ServedTypes,
        selection: &'p Selection,
    ) -> ItemRestorer<'p> {
        let rules = Arc::new(self.rules.clone());
        let mut built_in = restore::built_in(&rules);
        if !self.runs_hooks() {
            built_in.retain(|action| action.name() != restore::INIT_HOOKS);
        }
        built_in.extend(self.actions.configured.iter().cloned());
        if !self.contents.items(SNAPSHOTS).is_empty() {
            built_in.extend(restore::csi_actions(
                &self.actions.csi,
                &rules,
                self.snapshots.restored(),
            ));
        }
        if let Some(moved) = self.moved(&rules) {
            let ActionContext { csi, downloads, .. } = &self.actions;
            built_in.push(restore::moved_action(csi, downloads.as_ref(), moved));
        }
        if !self.contents.items(PODS).is_empty() {
            built_in.push(Arc::new(AddClaimsOfPods {
                priority_classes: self.priority_classes(),
            }));
        }
        let actions = restore::ordered(built_in, &self.actions.plugins, &|name| {
            served.resolve(name)
        });
        let coordinator = actions
            .iter()
            .any(RestoreItemAction::may_add_items)
            .then_some(&self.actions.coordinator);
        let versions = ItemVersions::new(self.contents, served, self.versions);
        ItemRestorer {
            restoring: self,
            served,
            versions,
            selection,
            actions,
            namespaces,
            coordinator,
            hooks,
        }
    }

    /// The names of the priority classes that the backup holds.
    fn priority_classes(&self) -> BTreeSet<String> {
        let items = self.contents.items(PRIORITY_CLASSES).iter();
        items
            .filter_map(|item| self.contents.name_of(item).ok())
            .collect()
    }

    /// Whether hooks run in restored pods.
    fn runs_hooks(&self) -> bool {
        self.drill().is_none_or(|drill| drill.settings().hooks)
    }

    /// The rules for items if the restore is a drill.
    fn drill(&self) -> Option<Isolation<'_>> {
        Isolation::of(self.restore)
    }

    fn policy(&self) -> Policy<'_> {
        Policy {
            rules: &self.rules,
            update: self.restore.spec.existing_resource_policy.as_deref() == Some("update"),
            own: self.own,
            restore_created: self.created.as_deref(),
            resumed: self.resumed,
        }
    }

    async fn batch(&self, batch: &Batch, restorer: &ItemRestorer<'_>) -> Result<(), RestoreError> {
        let Some(resource) = &batch.resource else {
            self.not_served(batch);
            return Ok(());
        };
        if resource.namespaced {
            let sources: BTreeSet<&str> = batch
                .items
                .iter()
                .filter_map(|item| self.contents.namespace_of(item))
                .collect();
            let targets = sources
                .into_iter()
                .map(|source| self.rules.target(source).to_owned())
                .collect();
            self.ensure_all(restorer.namespaces, targets).await?;
        }
        self.report.info(&format!(
            "restoring {} of {}",
            counted(batch.items.len(), "item"),
            batch.group_resource
        ));
        restorer
            .versions
            .report_version(&batch.group_resource, self.report);
        let kind = ResourceKind {
            group_resource: &batch.group_resource,
            resource,
        };
        let others = restorer.existing(kind, &batch.items).await?;
        let done = restorer
            .items(kind, others.into_iter().map(|item| (item, None)))
            .await;
        for warning in self.calls.new_warnings() {
            self.report.info(&warning);
        }
        done
    }

    /// Reports items that are left out because an operator would run them again.
    fn report_guarded(&self, selection: &Selection) -> Result<(), StoreError> {
        for (group_resource, items) in selection.left_out(self.contents)? {
            self.report.expect(items.len());
            self.list(&items, Outcome::Skipped);
            self.report.warn(
                Scope::Velero,
                format!(
                    "left out: {} of {group_resource}, which the operator would run once more; to restore all the same, name the type in \
                     spec.includedResources of a restore of its own",
                    counted(items.len(), "item")
                ),
            );
        }
        Ok(())
    }

    /// Reports an error for the type; its items are only listed.
    fn not_served(&self, batch: &Batch) {
        self.report.error(
            Scope::Velero,
            format!(
                "the cluster does not serve {}: {} not restored; install what serves it, see that it answers \
                 (`kubectl api-resources`), and restore again",
                batch.group_resource,
                counted(batch.items.len(), "item")
            ),
        );
        self.list(&batch.items, Outcome::Failed);
    }

    /// Lists items that are not processed further.
    fn list(&self, items: &[ItemRef], outcome: Outcome) {
        for item in items {
            let object = self.contents.object(item).unwrap_or_default();
            let api_version = json::text(&object, &[], "apiVersion").unwrap_or_default();
            let kind = json::text(&object, &[], "kind").unwrap_or_default();
            // The list keeps them, whatever text they hold.
            let about = About {
                api_version: &shortened(api_version, MAX_KIND_LENGTH),
                kind: &shortened(kind, MAX_KIND_LENGTH),
                namespace: self
                    .contents
                    .namespace_of(item)
                    .map(|source| self.rules.target(source)),
                name: &self.contents.name_of(item).unwrap_or_default(),
            };
            self.report.item(about, ItemResult::quiet(outcome));
        }
    }
}
