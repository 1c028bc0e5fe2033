//! Removes objects that the backup does not have from the restored namespaces (`spec.prune`), after
//! everything else: type by type, in the reverse order of restoring, and page by page.
//!
//! `decide` has the rules. Each deletion carries uid and version of the object that was decided
//! about. Running it again is idempotent. A plan reads and decides the same, and deletes nothing.

use std::collections::{BTreeSet, HashSet};

use backup_actions::restore::{
    existing::is_going,
    json::{self, Object},
};
use backup_client::path;
use backup_core::{
    api::BackupSpec,
    labels::{IMPORTED_ANNOTATION, annotation},
    resources::{NEVER_SELECTED, ResourceFilter, ResourceType, holds_data, is_never_pruned},
    selection::{IncludesExcludes, LabelFilter, is_glob},
    stored_scope,
    text::{counted, listed},
};
use backup_store::Scope;
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use kube::core::params::Preconditions;
use parking_lot::Mutex;

use super::{MAX_CONCURRENT_ITEMS, RestoreError, Restoring, Selection};
use crate::{
    discovery::ServedTypes,
    job::cancellation::StopReason,
    restore::{about::About, apply::MAX_ATTEMPTS, calls::MetadataPages, left_out::LeftOut},
};
use data_owners::data_owners;
use decide::{Fate, LiveObject, PruneRefusal, PruneRules, RestoreState};
pub(super) use renamed::RenamedItems;

mod data_owners;
mod decide;
mod renamed;

/// Maximum number of types that a message names; the others are counted.
const MAX_NAMED_TYPES: usize = 8;

/// One removal: the rules that are the same in all namespaces.
struct Pruner<'a> {
    restoring: &'a Restoring<'a>,
    served: &'a ServedTypes,
    selection: &'a Selection,
    backup: BackupCoverage,
    /// The types of which objects may be removed, in order.
    types: Vec<&'a ResourceType>,
    /// Objects that are kept, with reasons.
    kept: Mutex<LeftOut>,
}

/// What the backup was asked to hold: other objects are missing from it for that reason.
struct BackupCoverage {
    types: ResourceFilter,
    namespaces: IncludesExcludes,
    labels: LabelFilter,
}

impl BackupCoverage {
    fn new(spec: &BackupSpec, served: &ServedTypes) -> Self {
        Self {
            types: ResourceFilter::for_backup(spec, &|name| served.resolve(name)),
            namespaces: IncludesExcludes::new(&spec.included_namespaces, &spec.excluded_namespaces),
            labels: LabelFilter::of(&spec.label_selector, &spec.or_label_selectors),
        }
    }
}

/// The objects of one type in one namespace.
#[derive(Clone, Copy)]
struct Place<'a> {
    group_resource: &'a str,
    resource: &'a ResourceType,
    /// URL path of the collection.
    collection: &'a str,
    /// The namespace in the backup, and in the cluster.
    source: &'a str,
    target: &'a str,
}

impl Restoring<'_> {
    /// Removes the objects, or in a plan only reports them. The errors so far keep everything; a
    /// cancellation by a user ends it.
    pub(super) async fn prune(&self) -> Result<(), RestoreError> {
        if self.restore.spec.prune != Some(true) {
            return Ok(());
        }
        match decide::refusal(self.prune_state()) {
            None => {}
            Some(why @ PruneRefusal::Errors) => {
                self.report.warn(Scope::Velero, why.message());
                return Ok(());
            }
            Some(why) => {
                self.report.error(Scope::Velero, why.message());
                return Ok(());
            }
        }
        if self.resumed {
            let message =
                "objects that were removed before this restore was taken up again are not listed";
            self.report.warn(Scope::Velero, message.to_owned());
        }
        match self.remove_extra().await {
            Err(RestoreError::Stopped(StopReason::Cancelled)) => {
                let removed = self.report.summary().left.removed;
                let message = format!(
                    "the restore was cancelled by a user while it removed objects that the backup does not have: {} removed, the \
                     others were kept",
                    counted(removed, "object")
                );
                self.report.error(Scope::Velero, message);
                Ok(())
            }
            removed => removed,
        }
    }

    fn prune_state(&self) -> RestoreState {
        let (earlier, unknown) = self.actions.journal.left();
        let has_errors = self.report.counts().1 > 0
            || self.restore.phase().has_failed_so_far()
            || !unknown.is_empty();
        let planned = if self.calls.is_dry_run() {
            self.report.moved_volumes()
        } else {
            0
        };
        RestoreState {
            has_errors,
            operations: self.actions.started.lock().len() + earlier.len() + planned,
            too_many_renamed: self.actions.renamed.is_full(),
        }
    }

    async fn remove_extra(&self) -> Result<(), RestoreError> {
        self.calls.cancellation().check_new_work()?;
        let served = (self.discover)().await.map_err(RestoreError::Discovery)?;
        let selection = self.selection(&served)?;
        if !served.failed.is_empty() {
            let away = served.failed.join(", ");
            let message = format!("nothing was removed of API groups that did not answer: {away}");
            self.report.warn(Scope::Velero, message);
        }
        let backup = BackupCoverage::new(&stored_scope::scope(self.backup), &served);
        let types = self.pruned_types(&served, &selection, &backup);
        let pruner = Pruner {
            restoring: self,
            served: &served,
            selection: &selection,
            backup,
            types,
            kept: Mutex::default(),
        };
        let removed = pruner.namespaces().await;
        for sentence in pruner.kept.lock().sentences() {
            self.report
                .warn(Scope::Velero, format!("not removed: {sentence}"));
        }
        removed
    }

    /// The types of which objects are compared with the backup, those that are restored last first.
    /// Warns of selected types that the backup was not asked for.
    fn pruned_types<'s>(
        &self,
        served: &'s ServedTypes,
        selection: &Selection,
        backup: &BackupCoverage,
    ) -> Vec<&'s ResourceType> {
        let selected = served.types().filter(|resource| {
            let name = resource.group_resource();
            resource.namespaced
                && selection.takes_type(&name)
                && !NEVER_SELECTED.contains(&name.as_str())
                && (holds_data(&name) || !is_never_pruned(&name))
        });
        let (covered, others): (Vec<_>, Vec<_>) =
            selected.partition(|resource| backup.types.includes(resource));
        if !others.is_empty() {
            let names: Vec<String> = others.iter().map(|one| one.group_resource()).collect();
            let first = names.get(..MAX_NAMED_TYPES).unwrap_or(&names);
            let message = format!(
                "nothing was removed of types that the backup was not asked for: {}",
                listed(first, names.len())
            );
            self.report.warn(Scope::Velero, message);
        }
        let mut names: Vec<String> = covered.iter().map(|one| one.group_resource()).collect();
        self.order.sort(&mut names, &|name| served.resolve(name));
        let types = names.iter().rev();
        types
            .filter_map(|name| served.by_group_resource(name))
            .collect()
    }
}

impl Pruner<'_> {
    async fn namespaces(&self) -> Result<(), RestoreError> {
        let names: BTreeSet<&String> = self
            .restoring
            .restore
            .spec
            .included_namespaces
            .iter()
            .collect();
        for source in names {
            if !is_glob(source) && self.selection.takes_namespace(source) {
                self.namespace(source).await?;
            }
        }
        Ok(())
    }

    async fn namespace(&self, source: &str) -> Result<(), RestoreError> {
        let Restoring {
            report,
            calls,
            rules,
            own,
            claimed,
            ..
        } = self.restoring;
        let target = rules.target(source);
        let scope = Scope::Namespace(target);
        let nothing = if target == *own {
            Some("it is the namespace of the installation")
        } else if !claimed.includes(target) {
            Some("it is not in what the restore has claimed")
        } else if !self.backup.namespaces.includes(source) {
            Some("the backup was not asked for its objects")
        } else {
            None
        };
        if let Some(why) = nothing {
            report.warn(
                scope,
                format!("nothing was removed from namespace {target:?}: {why}"),
            );
            return Ok(());
        }
        let data_owners = match data_owners(calls, self.served, target).await {
            Ok(owners) => owners,
            Err(error) => {
                let error = error.unless_stopped()?;
                let message = format!(
                    "nothing was removed from namespace {target:?}: which objects own its claims could not be read: {error}"
                );
                report.error(scope, message);
                return Ok(());
            }
        };
        report.info(&format!(
            "removing from namespace {target:?} what the backup does not have"
        ));
        let rules = self.rules(source, target, &data_owners);
        for resource in self.types.iter().copied() {
            let collection =
                path::collection(&resource.api_version(), &resource.plural, Some(target));
            let place = Place {
                group_resource: &resource.group_resource(),
                resource,
                collection: &collection,
                source,
                target,
            };
            self.objects(place, &rules).await?;
        }
        Ok(())
    }

    fn rules<'r>(
        &'r self,
        source: &str,
        target: &str,
        data_owners: &'r HashSet<String>,
    ) -> PruneRules<'r> {
        let Restoring {
            backup,
            own,
            created,
            ..
        } = self.restoring;
        // A backup knows nothing of objects in another namespace or cluster.
        let is_original = source == target && annotation(*backup, IMPORTED_ANNOTATION).is_none();
        let started = backup.status.start_timestamp.as_ref();
        PruneRules {
            own,
            restore_created: created
                .as_deref()
                .and_then(|at| at.parse::<Timestamp>().ok()),
            backup_started: started.filter(|_| is_original).map(|time| time.0),
            backup_labels: &self.backup.labels,
            data_owners,
        }
    }

    /// Compares the objects of one type in one namespace with the backup. Deletions in flight are
    /// completed before work stops.
    async fn objects(&self, place: Place<'_>, rules: &PruneRules<'_>) -> Result<(), RestoreError> {
        let Restoring { calls, report, .. } = self.restoring;
        let mut pages = MetadataPages::new(calls, place.collection);
        loop {
            calls.cancellation().check_new_work()?;
            let objects = match pages.next_page().await {
                Ok(Some(objects)) => objects,
                Ok(None) => return Ok(()),
                Err(error) => {
                    let error = error.unless_stopped()?;
                    let message = format!(
                        "{} that the backup does not have were not removed: they could not be listed: {error}",
                        place.group_resource
                    );
                    report.error(Scope::Namespace(place.target), message);
                    return Ok(());
                }
            };
            let stopped = Mutex::new(None);
            let reason = &|| stopped.lock();
            stream::iter(objects)
                .for_each_concurrent(MAX_CONCURRENT_ITEMS, |object| async move {
                    if reason().is_some() {
                        return;
                    }
                    if let Err(why) = self.object(place, object, rules).await {
                        reason().get_or_insert(why);
                    }
                })
                .await;
            if let Some(reason) = stopped.into_inner() {
                return Err(reason.into());
            }
        }
    }

    /// Removes an object, unless it is kept. One that changes meanwhile is read and decided about
    /// again.
    async fn object(
        &self,
        place: Place<'_>,
        mut object: Object,
        rules: &PruneRules<'_>,
    ) -> Result<(), StopReason> {
        let Restoring { calls, report, .. } = self.restoring;
        let text = |object: &Object, field: &str| {
            json::text(object, &["metadata"], field).map(str::to_owned)
        };
        let Some(name) = text(&object, "name") else {
            return Ok(());
        };
        let about = About {
            api_version: &place.resource.api_version(),
            kind: &place.resource.kind,
            namespace: Some(place.target),
            name: &name,
        };
        let scope = Scope::Namespace(place.target);
        let failed = |why: String| {
            report.error(
                scope,
                format!("{} {name:?} could not be removed: {why}", about.kind),
            );
        };
        for _ in 0..MAX_ATTEMPTS {
            match self.fate(place, &name, &object, rules) {
                Fate::Keep => return Ok(()),
                Fate::KeepBecause(why) => {
                    self.kept.lock().add(about, why);
                    return Ok(());
                }
                Fate::Remove => {}
            }
            calls.cancellation().check_new_work()?;
            let uid = text(&object, "uid");
            let as_read = Preconditions {
                uid: uid.clone(),
                resource_version: text(&object, "resourceVersion"),
            };
            match calls.delete(place.collection, &name, as_read).await {
                Ok(()) => {
                    report.removed(about);
                    return Ok(());
                }
                Err(error) if error.is_conflict() => {}
                Err(error) => {
                    failed(error.unless_stopped()?.to_string());
                    return Ok(());
                }
            }
            object = match calls.get(place.collection, &name).await {
                Ok(Some(now)) => now,
                Ok(None) => return Ok(()),
                Err(error) => {
                    failed(error.unless_stopped()?.to_string());
                    return Ok(());
                }
            };
            // The answer to its deletion was lost, and finalizers still hold it.
            if is_going(&object) && text(&object, "uid") == uid {
                report.removed(about);
                return Ok(());
            }
        }
        self.kept
            .lock()
            .add(about, "it changed each time it was to be removed");
        Ok(())
    }

    /// The decision about an object in the cluster.
    fn fate(&self, place: Place<'_>, name: &str, object: &Object, rules: &PruneRules<'_>) -> Fate {
        let Place {
            group_resource,
            source,
            target,
            ..
        } = place;
        let Restoring {
            contents, actions, ..
        } = self.restoring;
        let is_in_backup = contents.find(group_resource, Some(source), name).is_some()
            || actions.renamed.contains(group_resource, target, name);
        let is_selected = self
            .selection
            .takes_object(group_resource, source, name, || json::labels(object));
        if is_in_backup || !is_selected {
            return Fate::Keep;
        }
        let live = LiveObject {
            group_resource,
            namespace: target,
            object,
        };
        decide::fate(live, rules)
    }
}
