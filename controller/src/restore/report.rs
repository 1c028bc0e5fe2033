//! Collects the results of a restore in one place: messages, the list of resources, the log and the
//! counts.

use std::collections::BTreeSet;

use backup_core::{
    api::{common::HookStatus, restore::RestoreProgress},
    left_items::LeftItems,
    volume_info::VolumeInfo,
};
use backup_store::{JobFiles, LogFile, ResourceList, Scope};
use parking_lot::Mutex;

use super::{
    about::About,
    apply::{ItemResult, Outcome},
    kind::Summary,
    left_out::LeftOut,
    volume_outcomes::{NamedVolume, VolumeOutcomes},
};
use crate::job::{report, worker::WorkerError};
use backup_plugins::log_line::{Level, LogLine};

/// Maximum number of removed objects in the list of resources; the others are counted.
const MAX_LISTED_REMOVALS: usize = 10_000;
/// The word for a removed object in the list of resources.
const REMOVED: &str = "removed";

/// Shared by everything that works on one restore.
#[derive(Debug)]
pub(crate) struct Report {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    report: report::Report,
    list: ResourceList,
    volumes: Vec<VolumeInfo>,
    volume_outcomes: VolumeOutcomes,
    left: LeftItems,
    left_out: LeftOut,
    total: i64,
    done: i64,
    hooks: HookStatus,
}

impl Report {
    /// An empty report.
    pub(crate) fn new() -> Result<Self, WorkerError> {
        let inner = Inner {
            report: report::Report::new(None)?,
            list: ResourceList::default(),
            volumes: Vec::new(),
            volume_outcomes: VolumeOutcomes::default(),
            left: LeftItems::default(),
            left_out: LeftOut::default(),
            total: 0,
            done: 0,
            hooks: HookStatus::default(),
        };
        Ok(Self {
            inner: Mutex::new(inner),
        })
    }

    fn with<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        change(&mut self.inner.lock())
    }

    /// Adds to the number of items to restore.
    pub(crate) fn expect(&self, items: usize) {
        self.with(|inner| inner.total += i64::try_from(items).unwrap_or(i64::MAX));
    }

    /// Corrects the number of items for one that was expected twice.
    pub(crate) fn expected_twice(&self) {
        self.with(|inner| inner.total -= 1);
    }

    pub(crate) fn info(&self, message: &str) {
        self.with(|inner| inner.report.info(message));
    }

    pub(crate) fn said(&self, lines: Vec<LogLine>) {
        self.with(|inner| inner.report.said(lines));
    }

    /// Adds a warning that is not about a single item.
    pub(crate) fn warn(&self, scope: Scope<'_>, message: String) {
        self.with(|inner| inner.report.warn(scope, message));
    }

    pub(crate) fn error(&self, scope: Scope<'_>, message: String) {
        self.with(|inner| inner.report.error(scope, message));
    }

    /// Reports that a user cancelled the work; `resumed`: an earlier attempt may have done some of
    /// it.
    pub(crate) fn cancelled(&self, resumed: bool) {
        let RestoreProgress {
            total_items,
            items_restored,
            ..
        } = self.progress();
        let earlier = if resumed {
            ", besides those that were restored before it was taken up again, which are not listed"
        } else {
            ""
        };
        let message = format!(
            "the restore was cancelled by a user: {items_restored} of at least {total_items} items were handled{earlier}; \
             what is restored stays"
        );
        self.error(Scope::Velero, message);
    }

    /// Reports that a user released the claim by force; `by` says who and why, as far as known.
    /// Returns the message for the end.
    pub(crate) fn released(&self, by: &str, resumed: bool) -> String {
        let RestoreProgress {
            total_items,
            items_restored,
            ..
        } = self.progress();
        let earlier = if resumed {
            ", besides those that were restored before it was taken up again, which are not listed"
        } else {
            ""
        };
        let message = format!(
            "its claim was released by force{}: {items_restored} of at least {total_items} items were handled{earlier}; nothing \
             more was written, and what was written stays",
            backup_lock::ledger::by(by)
        );
        self.error(Scope::Velero, message.clone());
        message
    }

    pub(crate) fn item(&self, about: About<'_>, applied: ItemResult) {
        self.with(|inner| {
            inner.volume_outcomes.add(about, &applied);
            if applied.outcome == Outcome::Skipped && applied.warning.is_some() {
                inner.left.add(about.kind, about.namespace, about.name);
            }
            if applied.incomplete {
                inner
                    .left
                    .add_incomplete(about.kind, about.namespace, about.name);
            }
        });
        self.list(about, applied);
    }

    fn list(&self, about: About<'_>, applied: ItemResult) {
        let scope = about.namespace.map_or(Scope::Cluster, Scope::Namespace);
        self.with(|inner| {
            inner.done += 1;
            inner.left.failed += usize::from(applied.outcome == Outcome::Failed);
            let suffix = applied.outcome.as_str();
            inner.list.add(
                about.api_version,
                about.kind,
                about.namespace,
                about.name,
                Some(suffix),
            );
            let fields = [
                ("kind", about.kind),
                ("namespace", about.namespace.unwrap_or_default()),
                ("name", about.name),
            ];
            if let Some(error) = applied.error {
                inner.report.item(Level::Error, scope, error, &fields);
            }
            if let Some(warning) = applied.warning {
                inner.report.item(Level::Warning, scope, warning, &fields);
            } else if applied.outcome != Outcome::Failed {
                inner
                    .report
                    .item(Level::Info, scope, suffix.to_owned(), &fields);
            }
        });
    }

    /// Records an item that was left out on purpose; log, plan and the annotation of the Restore
    /// say why.
    pub(crate) fn left_out(&self, about: About<'_>, why: &str) {
        self.with(|inner| {
            inner.volume_outcomes.left_out(about);
            inner.left_out.add(about, why);
        });
        self.list(about, ItemResult::quiet(Outcome::Skipped));
        self.info(&format!("left out {} {:?}: {why}", about.kind, about.name));
    }

    /// Records an object that was removed because the backup does not have it, or in a plan would
    /// be. The first ones are in the list; the log has all.
    pub(crate) fn removed(&self, about: About<'_>) {
        let scope = about.namespace.map_or(Scope::Cluster, Scope::Namespace);
        let fields = [
            ("kind", about.kind),
            ("namespace", about.namespace.unwrap_or_default()),
            ("name", about.name),
        ];
        self.with(|inner| {
            inner.left.removed += 1;
            if inner.left.removed <= MAX_LISTED_REMOVALS {
                inner.list.add(
                    about.api_version,
                    about.kind,
                    about.namespace,
                    about.name,
                    Some(REMOVED),
                );
            }
            inner
                .report
                .item(Level::Info, scope, REMOVED.to_owned(), &fields);
        });
    }

    /// Number of claims whose data comes from a repository, once the sources of volumes are set.
    pub(crate) fn moved_volumes(&self) -> usize {
        self.with(|inner| {
            let volumes = inner.volumes.iter();
            volumes
                .filter(|volume| volume.snapshot_data_moved == Some(true))
                .count()
        })
    }

    /// Messages about items that were left out on purpose.
    pub(crate) fn left_out_sentences(&self) -> Vec<String> {
        self.with(|inner| inner.left_out.sentences())
    }

    /// Sets the pods (namespace in the cluster, name) whose outcome matters for their volumes.
    pub(crate) fn watch_pods(&self, pods: BTreeSet<(String, String)>) {
        self.with(|inner| inner.volume_outcomes.watch_pods(pods));
    }

    /// Records the state of the volume that a claim names.
    pub(crate) fn claim_names(&self, namespace: &str, claim: &str, volume: NamedVolume) {
        self.with(|inner| inner.volume_outcomes.names(namespace, claim, volume));
    }

    /// Sets the entries of `-volumeinfo.json.gz`: the sources of volumes.
    pub(crate) fn volumes(&self, entries: Vec<VolumeInfo>) {
        self.with(|inner| inner.volumes = entries);
    }

    /// Outcomes of volumes and their claims so far.
    pub(crate) fn volume_outcomes(&self) -> VolumeOutcomes {
        self.with(|inner| inner.volume_outcomes.clone())
    }

    /// Adds to the number of commands to run in pods.
    pub(crate) fn hooks_attempted(&self, hooks: usize) {
        self.with(|inner| inner.hooks.hooks_attempted += i64::try_from(hooks).unwrap_or(i64::MAX));
    }

    pub(crate) fn hook_failed(&self) {
        self.with(|inner| inner.hooks.hooks_failed += 1);
    }

    pub(crate) fn summary(&self) -> Summary {
        let (hooks, left) = self.with(|inner| {
            let mut left = inner.left.clone();
            inner.left_out.count_in(&mut left);
            (inner.hooks.clone(), left)
        });
        let hooks = Some(hooks).filter(|hooks| hooks.hooks_attempted > 0);
        Summary {
            progress: self.progress(),
            hooks,
            left,
        }
    }

    pub(crate) fn progress(&self) -> RestoreProgress {
        self.with(|inner| RestoreProgress {
            total_items: inner.total,
            items_restored: inner.done,
            ..RestoreProgress::default()
        })
    }

    /// Number of warnings and errors.
    pub(crate) fn counts(&self) -> (i64, i64) {
        self.with(|inner| (inner.report.warnings(), inner.report.errors()))
    }

    pub(crate) fn log(&self) -> LogFile {
        self.with(|inner| inner.report.log())
    }

    pub(crate) fn into_files(self) -> JobFiles {
        let inner = self.inner.into_inner();
        let (results, log) = inner.report.into_parts();
        JobFiles {
            results,
            resource_list: inner.list,
            volume_info: inner.volumes,
            ..JobFiles::new(log)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_objects_are_all_counted_and_the_first_ones_listed() {
        let report = Report::new().unwrap();
        for number in 0..MAX_LISTED_REMOVALS + 2 {
            report.removed(About {
                api_version: "v1",
                kind: "ConfigMap",
                namespace: Some("shop"),
                name: &format!("extra-{number}"),
            });
        }
        assert_eq!(report.summary().left.removed, MAX_LISTED_REMOVALS + 2);
        assert_eq!(report.progress().items_restored, 0, "they are no items");
        assert_eq!(report.into_files().resource_list.len(), MAX_LISTED_REMOVALS);
    }

    #[test]
    fn claims_whose_data_comes_from_a_repository_are_counted() {
        let report = Report::new().unwrap();
        let moved = VolumeInfo {
            snapshot_data_moved: Some(true),
            ..VolumeInfo::default()
        };
        report.volumes(vec![moved, VolumeInfo::default()]);
        assert_eq!(report.moved_volumes(), 1);
    }
}
