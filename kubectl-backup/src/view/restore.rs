//! Restores: their row, their scope, and the parts that only their description has.

use backup_core::{
    api::{
        Backup, BackupSpec, DataDownload, Restore, RestoreSpec,
        download_request::DownloadTargetKind,
    },
    labels::{LEFT_ITEMS_ANNOTATION, RESTORE_UID, annotation},
    left_items::LeftItems,
    operation::RestoreOperation,
    phase::{Phase as _, Stage},
    resources::NON_RESTORABLE,
    stored_scope,
    text::counted,
};
use backup_lock::{Footprint, ObjectKey};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{
    Attempts, Columns, Count, Description, Fact, TableKind, Verdict, WorkStatus, Workload, drill,
    selection::{edited, filters, is_everything, list, namespaces, selectors},
    table_kind::dash,
    workload::{Files, Words, cells, work_status},
};
use crate::{
    fetched::FetchResult,
    print::{Style, Tone, plain},
};

impl TableKind for Restore {
    const KIND: &'static str = "restore";
    const COLUMNS: Columns = Columns {
        headers: &[
            "NAME", "BACKUP", "STATUS", "ERRORS", "WARNINGS", "AGE", "TOOK", "ITEMS", "SCHEDULE",
            "SELECTOR",
        ],
        narrow: 7,
        status: 2,
    };

    fn row(&self, now: Timestamp, style: Style) -> Vec<String> {
        let spec = stored_scope::scope(self);
        let all = self.left_items().unwrap_or_default();
        let left = [
            items_remark(all.left, "left as they were"),
            items_remark(all.incomplete, "without some of their fields"),
            (all.removed > 0).then(|| format!("{} removed", counted(all.removed, "object"))),
        ];
        let remarks: Vec<String> = drill::remark(self)
            .into_iter()
            .chain(left.into_iter().flatten())
            .chain(self.without_data())
            .collect();
        let remark = if remarks.is_empty() {
            String::new()
        } else {
            format!(" ({})", remarks.join(", "))
        };
        let (progress, items) = cells(self, &remark, now, style);
        let rest = [
            items,
            self.spec.schedule_name.as_deref().map_or_else(dash, plain),
            selectors(
                spec.label_selector.as_ref(),
                spec.or_label_selectors.as_deref(),
            )
            .unwrap_or_else(dash),
        ];
        let of = [
            self.name_any(),
            spec.backup_name.as_deref().map_or_else(dash, plain),
        ];
        of.into_iter().chain(progress).chain(rest).collect()
    }
}

/// "2 items left as they were"; `None` if there are no items.
fn items_remark(count: usize, what: &str) -> Option<String> {
    (count > 0).then(|| format!("{} {what}", counted(count, "item")))
}

impl Workload for Restore {
    const COMMAND: &'static str = "kubectl backup restore";
    const WORDS: Words = Words {
        processed: "restored",
        done: "restored",
        rest: "",
        lacks: "was not restored",
        storing: "All items are restored; the last steps are being done",
        too_late: "everything is restored, and its results are being stored",
        failed: "It failed; what it had restored by then stays.",
        // Its counts cover the last attempt only: an earlier one may have restored items.
        cancelled_early: "It was cancelled; what it had restored by then stays",
    };
    const FILES: Files = Files {
        log: DownloadTargetKind::RestoreLog,
        results: DownloadTargetKind::RestoreResults,
        operations: DownloadTargetKind::RestoreItemOperations,
        resources: DownloadTargetKind::RestoreResourceList,
        volumes: DownloadTargetKind::RestoreVolumeInfo,
        has_results_of_failed: false,
    };
    type Operation = RestoreOperation;
    type Transfer = DataDownload;
    const TRANSFER_UID_LABEL: &'static str = RESTORE_UID;

    fn may_move_data(&self) -> bool {
        let status = &self.status;
        let runs = status.start_timestamp.is_some() && !self.phase().is_terminal();
        runs || status.restore_item_operations_attempted > 0
    }

    fn status(&self) -> WorkStatus<'_> {
        work_status!(
            self,
            items_restored,
            restore_item_operations_attempted,
            restore_item_operations_completed,
            restore_item_operations_failed
        )
    }

    fn ended(&self) -> Option<bool> {
        drill::ended(self, self.status().ended())
    }

    fn own_verdict(&self, status: &WorkStatus<'_>) -> Option<Verdict> {
        if self.metadata.deletion_timestamp.is_some() {
            return Some(Verdict::new(
                Tone::Busy,
                "It is being deleted; what it restored stays.",
            ));
        }
        if let Some(failure) = drill::failure(self).filter(|_| status.stage == Stage::Completed) {
            return Some(Verdict::new(Tone::Bad, "The drill has failed.").because([failure]));
        }
        // The controller refuses a spec that does not match the backup after reading the backup,
        // before it writes anything.
        let reason = status
            .failure_reason
            .filter(|_| status.stage == Stage::Failed)?;
        let why = reason.strip_prefix("nothing was restored: ")?;
        Some(Verdict::new(Tone::Bad, "It failed: nothing was restored.").because([plain(why)]))
    }

    fn left_items(&self) -> Option<LeftItems> {
        LeftItems::read(annotation(self, LEFT_ITEMS_ANNOTATION))
    }

    fn key(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey::restore(namespace, name)
    }

    fn footprint(&self, source: Option<&BackupSpec>) -> Footprint {
        Footprint::of_restore(&self.spec, source)
    }

    fn as_backup(&self) -> Option<&Backup> {
        None
    }

    fn source(&self) -> Option<String> {
        stored_scope::scope(self).backup_name.clone()
    }

    fn facts(&self, source: &FetchResult<Option<Backup>>) -> Vec<Fact> {
        let spec = stored_scope::scope(self);
        let from = match (&spec.backup_name, &spec.schedule_name) {
            (Some(name), _) => {
                let state = match source {
                    FetchResult::Known(Some(backup)) => format!("  {}", backup.status().phase),
                    FetchResult::Known(None) => "  not found".to_owned(),
                    FetchResult::Missing { unavailable } => {
                        format!("  state unavailable: {unavailable}")
                    }
                };
                format!("backup {}{state}", plain(name))
            }
            (None, Some(schedule)) => format!(
                "the newest completed backup of schedule {}",
                plain(schedule)
            ),
            (None, None) => "nothing: it names no backup".to_owned(),
        };
        let mut facts = vec![
            Fact {
                title: "From",
                text: from,
            },
            Fact {
                title: "Scope",
                text: scope(&spec),
            },
        ];
        facts.extend(mapped(&spec).map(|text| Fact {
            title: "Mapped",
            text,
        }));
        facts.extend(existing(&spec).map(|text| Fact {
            title: "Existing",
            text,
        }));
        let removed = self.left_items().map_or(0, |items| items.removed);
        facts.extend((removed > 0).then(|| Fact {
            title: "Removed",
            text: format!(
                "{} that the backup does not have",
                counted(removed, "object")
            ),
        }));
        facts.extend(drill::stage(self).map(|text| Fact {
            title: "Drill",
            text,
        }));
        facts.extend(edited(
            self,
            "it began, which changed nothing of what it restores",
            |asked| {
                let from = asked
                    .backup_name
                    .as_deref()
                    .map(|name| format!("backup {}", plain(name)));
                let mapped = mapped(asked).map(|pairs| format!("mapped {pairs}"));
                let parts = from
                    .into_iter()
                    .chain([scope(asked)])
                    .chain(mapped)
                    .chain(existing(asked));
                parts.collect::<Vec<_>>().join("; ")
            },
        ));
        facts
    }

    fn complete(&self, description: &mut Description, source: &FetchResult<Option<Backup>>) {
        let is_active = !self.phase().is_terminal();
        if is_active
            && let Some(wanted) = self.source()
            && matches!(source, FetchResult::Known(None))
        {
            description
                .causes
                .push(format!("Backup {} does not exist.", plain(&wanted)));
        }
    }

    fn own_next(&self, Description { name, .. }: &Description) -> Vec<String> {
        match self.phase().stage() {
            Stage::PartiallyFailed => vec![format!("kubectl backup restore logs {name}")],
            Stage::Completed if drill::failure(self).is_some() => {
                let source = self.source();
                let again = source.map(|backup| format!("kubectl backup drill {backup} --wait"));
                std::iter::once(format!("kubectl backup restore logs {name}"))
                    .chain(again)
                    .collect()
            }
            Stage::FailedValidation => {
                let source = self
                    .source()
                    .map(|backup| format!("kubectl backup describe {backup}"));
                source
                    .into_iter()
                    .chain([format!("kubectl backup restore delete {name}")])
                    .collect()
            }
            _ => Vec::new(),
        }
    }
}

/// The namespaces that are restored under different names.
fn mapped(spec: &RestoreSpec) -> Option<String> {
    let pairs: Vec<String> = spec
        .namespace_mapping
        .iter()
        .map(|(from, to)| format!("{from} → {to}"))
        .collect();
    (!pairs.is_empty()).then(|| list(&pairs))
}

/// What is done with existing objects, if it is not the default.
fn existing(spec: &RestoreSpec) -> Option<String> {
    let policy = spec
        .existing_resource_policy
        .as_deref()
        .filter(|policy| !matches!(*policy, "" | "none"));
    let prunes = spec.prune == Some(true);
    let parts = policy
        .map(|policy| format!("policy {}", plain(policy)))
        .into_iter()
        .chain(prunes.then(|| "those that the backup does not have are removed".to_owned()));
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// The scope of the restore, without defaults.
fn scope(spec: &RestoreSpec) -> String {
    if !spec.included_objects.is_empty() {
        return format!("only {}", list(&spec.included_objects));
    }
    let mut parts = vec![namespaces(
        &spec.included_namespaces,
        &spec.excluded_namespaces,
    )];
    if !is_everything(&spec.included_resources) {
        parts.push(format!("resources {}", list(&spec.included_resources)));
    }
    // The server appends types that are never restored (Velero
    // `pkg/controller/restore_controller.go`): not chosen by the user.
    let chosen = spec
        .excluded_resources
        .iter()
        .filter(|one| !NON_RESTORABLE.contains(&one.as_str()));
    let chosen: Vec<String> = chosen.cloned().collect();
    if !chosen.is_empty() {
        parts.push(format!("except resources {}", list(&chosen)));
    }
    parts.extend(filters(
        spec.include_cluster_resources,
        spec.label_selector.as_ref(),
        spec.or_label_selectors.as_deref(),
    ));
    parts.join("; ")
}
