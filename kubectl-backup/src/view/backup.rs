//! Backups: their row, their scope, and the parts that only their description has.

use backup_core::{
    api::{Backup, BackupSpec, DataUpload, download_request::DownloadTargetKind},
    deletion::Waits,
    drill::DrillResult,
    labels::{self, COPY_OF_ANNOTATION, DATA_ELSEWHERE_ANNOTATION, DRILLED_ANNOTATION, annotation},
    operation::BackupOperation,
    phase::{Phase as _, Stage},
    restorability::{Answer, Evidence, Place, Places, Restorability},
    stored_scope,
    volume_data::MissingData,
};
use backup_lock::{Footprint, ObjectKey};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{
    Attempts, Columns, Count, Description, Fact, LocationSummary, Restorable, RunView, TableKind,
    Verdict, WorkStatus, Workload,
    related::began,
    selection::{edited, filters, is_everything, list, namespaces, selectors},
    stored::FilesState,
    table_kind::dash,
    workload::{Files, Words, cells, controller_log, work_status},
};
use crate::{
    fetched::FetchResult,
    print::{Style, Tone, human, minute, plain, until},
};

impl TableKind for Backup {
    const KIND: &'static str = "backup";
    const COLUMNS: Columns = Columns {
        headers: &[
            "NAME", "STATUS", "ERRORS", "WARNINGS", "AGE", "TOOK", "EXPIRES", "LOCATION", "ITEMS",
            "SCHEDULE", "SELECTOR",
        ],
        narrow: 8,
        status: 1,
    };

    const HAS_LOCATION: bool = true;

    fn row(&self, now: Timestamp, style: Style) -> Vec<String> {
        self.row_among(None, now, style)
    }

    fn row_among(&self, places: Option<&Places>, now: Timestamp, style: Style) -> Vec<String> {
        let spec = &self.spec;
        let stored = stored_scope::scope(self);
        let remark = match self.phase().stage() {
            Stage::Deleting => locked(self),
            Stage::Completed | Stage::PartiallyFailed
                if self.metadata.deletion_timestamp.is_none() =>
            {
                remark(self, places)
            }
            _ => None,
        };
        let remark = remark.map_or_else(String::new, |remark| format!(" ({remark})"));
        let (progress, items) = cells(self, &remark, now, style);
        let rest = [
            self.status
                .expiration
                .as_ref()
                .map_or_else(dash, |at| until(at.0, now)),
            spec.storage_location.as_deref().map_or_else(dash, plain),
            items,
            self.schedule().map_or_else(dash, plain),
            selectors(
                stored.label_selector.as_ref(),
                stored.or_label_selectors.as_deref(),
            )
            .unwrap_or_else(dash),
        ];
        std::iter::once(self.name_any())
            .chain(progress)
            .chain(rest)
            .collect()
    }
}

impl Workload for Backup {
    const COMMAND: &'static str = "kubectl backup";
    const WORDS: Words = Words {
        processed: "collected",
        done: "saved",
        rest: "; the rest can be restored",
        lacks: "is not in it",
        storing: "All items are collected and are being stored",
        too_late: "everything is collected, and it is being stored",
        failed: "It failed: there is nothing to restore from.",
        cancelled_early: "It was cancelled before anything was saved",
    };
    const FILES: Files = Files {
        log: DownloadTargetKind::BackupLog,
        results: DownloadTargetKind::BackupResults,
        operations: DownloadTargetKind::BackupItemOperations,
        resources: DownloadTargetKind::BackupResourceList,
        volumes: DownloadTargetKind::BackupVolumeInfos,
        has_results_of_failed: true,
    };
    type Operation = BackupOperation;
    type Transfer = DataUpload;
    const TRANSFER_UID_LABEL: &'static str = labels::BACKUP_UID;

    fn may_move_data(&self) -> bool {
        self.spec.snapshot_move_data == Some(true)
    }

    fn status(&self) -> WorkStatus<'_> {
        let status = work_status!(
            self,
            items_backed_up,
            backup_item_operations_attempted,
            backup_item_operations_completed,
            backup_item_operations_failed
        );
        WorkStatus {
            queue_position: self.status.queue_position,
            ..status
        }
    }

    fn own_verdict(&self, status: &WorkStatus<'_>) -> Option<Verdict> {
        if status.stage.is_terminal() && self.metadata.deletion_timestamp.is_some() {
            return Some(Verdict::new(Tone::Busy, "It is being deleted."));
        }
        match status.stage {
            Stage::Deleting => Some(deletion(self)),
            Stage::Finalizing { .. } => storing(self, status),
            _ => None,
        }
    }

    fn key(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey::backup(namespace, name)
    }

    fn footprint(&self, _: Option<&BackupSpec>) -> Footprint {
        Footprint::of_backup(&self.spec)
    }

    fn as_backup(&self) -> Option<&Backup> {
        Some(self)
    }

    fn data_elsewhere(&self) -> Option<MissingData> {
        MissingData::read(annotation(self, DATA_ELSEWHERE_ANNOTATION))
    }

    fn source(&self) -> Option<String> {
        None
    }

    fn facts(&self, _: &FetchResult<Option<Backup>>) -> Vec<Fact> {
        let mut facts = Vec::new();
        facts.extend(self.schedule().map(|name| Fact {
            title: "From",
            text: format!("schedule {}", plain(name)),
        }));
        facts.extend(annotation(self, COPY_OF_ANNOTATION).map(|source| Fact {
            title: "Copy of",
            text: format!("a backup in {}", plain(source)),
        }));
        facts.push(Fact {
            title: "Scope",
            text: scope(&stored_scope::scope(self)),
        });
        facts.extend(edited(
            self,
            "it was stored, which changed nothing in it",
            scope,
        ));
        if let Some(name) = self.annotations().get(labels::GLOBAL_VOLUME_POLICY) {
            let text = format!(
                "those of ConfigMap {}, which are for all backups, after its own",
                plain(name)
            );
            facts.push(Fact {
                title: "Policies",
                text,
            });
        }
        if let Some(ttl) = self
            .spec
            .ttl
            .filter(|ttl| !ttl.is_zero() && self.status.expiration.is_none())
        {
            facts.push(Fact {
                title: "Kept",
                text: format!("{} from its start", human(ttl.as_secs())),
            });
        }
        facts
    }

    fn complete(&self, description: &mut Description, _: &FetchResult<Option<Backup>>) {
        let status = &self.status;
        let stage = self.phase().stage();
        let deletion = description.deletions.known().and_then(|all| all.last());
        if stage == Stage::Deleting
            && let Some(failed) = deletion.filter(|last| !last.errors.is_empty())
        {
            "Its deletion has failed.".clone_into(&mut description.verdict);
            description.tone = Tone::Bad;
            description.causes.clone_from(&failed.errors);
        }
        let damage = description.damage.iter().map(|text| Fact {
            title: "Damage",
            text: text.clone(),
        });
        description.facts.extend(damage);
        let mut evidence = Evidence::of(self);
        evidence.missing.clone_from(&description.missing_data);
        if !description.damage.is_empty() {
            evidence.finds_damaged_data();
        }
        match description.stored.files {
            FilesState::Unread => {}
            FilesState::Found => evidence.finds_files(),
            FilesState::Missing => evidence.finds_no_files(),
            FilesState::Bad => {
                let why = description
                    .stored
                    .contents
                    .shown(|_| None)
                    .unwrap_or_default();
                evidence.finds_bad_files(format!("its list of items is {why}"));
            }
        }
        let judged = evidence.judge(Some(&description.place));
        // For an empty backup the verdict already says so.
        if matches!(stage, Stage::Completed | Stage::PartiallyFailed) && !evidence.is_empty {
            // A location that the user may not read is no doubt about a backup of which a file was
            // just read.
            let doubts = if lacks_only_location(description) {
                evidence.judge(None)
            } else {
                judged.clone()
            };
            doubt(description, &doubts, &evidence);
        }
        description.restorable = Some(Restorable {
            answer: judged.answer,
            why: judged.reasons.join("; "),
            verified: evidence.verified,
        });
        description.drilled = DrillResult::read(annotation(self, DRILLED_ANNOTATION));
        description.expires = status.expiration.as_ref().map(|at| at.0);
        if description.last_good && description.expires.is_some() {
            let scope = scope(&stored_scope::scope(self));
            description.facts.push(Fact {
                title: "Kept",
                text: format!(
                    "also beyond its time, until there is a newer good backup: it is the last one of {scope}"
                ),
            });
        }
        let attempted = status.volume_snapshots_attempted + status.csi_volume_snapshots_attempted;
        let completed = status.volume_snapshots_completed + status.csi_volume_snapshots_completed;
        description.snapshots = (attempted > 0).then_some(Attempts {
            attempted,
            completed: Some(completed),
            failed: None,
        });
    }

    fn own_next(&self, description: &Description) -> Vec<String> {
        let Description {
            name,
            namespace,
            tone,
            location,
            ..
        } = description;
        if self.status().is_empty() {
            return vec![format!("kubectl backup logs {name}")];
        }
        let stage = self.phase().stage();
        let location = location.value();
        // Also if the location is gone, or the state of its files is unknown.
        let unavailable = location.is_some_and(LocationSummary::is_unavailable)
            || description.restorable.as_ref().is_some_and(|judged| {
                matches!(judged.answer, Answer::No | Answer::Unknown)
                    && self.status().is_whole()
                    && judged.verified.is_none()
                    && !lacks_only_location(description)
            });
        // The plan of a restore comes before the restore.
        let restore = format!("kubectl backup restore {name} --plan");
        let failed = description.drilled.as_ref();
        let failed = failed.filter(|last| last.has_failed() && !last.restore.is_empty());
        let drill =
            failed.map(|last| format!("kubectl backup restore describe {}", plain(&last.restore)));
        let mut next: Vec<String> = drill.into_iter().collect();
        if unavailable || matches!(stage, Stage::Finalizing { .. }) && *tone == Tone::Warn {
            let one = location
                .map(|location| format!("kubectl backup locations describe {}", location.name));
            next.push(one.unwrap_or_else(|| "kubectl backup locations".to_owned()));
        }
        match stage {
            Stage::Completed if !unavailable => next.push(restore),
            Stage::PartiallyFailed => {
                if unavailable {
                    next.push(controller_log(namespace, name));
                } else {
                    next.extend([format!("kubectl backup logs {name}"), restore]);
                }
                let transfers = description.transfers.known();
                if transfers.is_some_and(|all| all.iter().any(|one| one.tone == Tone::Bad)) {
                    next.push(format!("kubectl backup volumes {name}"));
                }
            }
            Stage::FailedValidation => next.push(format!("kubectl backup delete {name}")),
            Stage::Deleting if *tone == Tone::Bad => {
                next.push(format!("kubectl backup delete {name} --wait"));
            }
            _ => {}
        }
        next
    }
}

/// Whether a file of the backup was just read, and its location could not be.
fn lacks_only_location(description: &Description) -> bool {
    description.stored.files == FilesState::Found && matches!(description.place, Place::Unread(_))
}

/// The remark next to the phase of a stored backup in a list: why it cannot be restored completely,
/// or at all.
fn remark(backup: &Backup, places: Option<&Places>) -> Option<String> {
    let evidence = Evidence::of(backup);
    let place = places.map(|places| places.of_backup(&evidence));
    // If the user may not read locations, they are ignored.
    let place = place
        .as_ref()
        .filter(|place| !matches!(place, Place::Unread(_)));
    let Restorability {
        answer, reasons, ..
    } = evidence.judge(place);
    match answer {
        Answer::Yes | Answer::Later => None,
        Answer::Partly => backup.without_data(),
        Answer::Unknown | Answer::No => reasons.first().map(|reason| plain(reason)),
    }
}

/// The locked objects in the store for which the deletion of a backup waits.
fn waits(backup: &Backup) -> Option<Waits> {
    Waits::read(annotation(backup, labels::DELETION_WAITS_ANNOTATION))
}

/// The verdict on a deletion: it runs, or waits for locked objects.
fn deletion(backup: &Backup) -> Verdict {
    let verdict = Verdict::new(
        Tone::Busy,
        "It is being deleted, with all that is stored of it.",
    );
    let Some(waits) = waits(backup) else {
        return verdict;
    };
    let again = minute(waits.again);
    verdict.because([
        plain(&format!("{waits}.")),
        format!("It ends by itself; it is checked again at {again}."),
    ])
}

/// The verdict on a backup that is being stored, if storing it is blocked or it was cancelled.
fn storing(backup: &Backup, status: &WorkStatus<'_>) -> Option<Verdict> {
    let blocked = backup.blocked();
    let (tone, sentence) = if blocked.is_some() {
        (
            Tone::Warn,
            "All items are collected, but storing them does not get on",
        )
    } else if status.is_cancelled {
        (
            Tone::Busy,
            "It was cancelled; what was collected is being stored",
        )
    } else {
        return None;
    };
    Some(Verdict::new(tone, status.with_troubles(sentence)).because(blocked))
}

/// The end of the lock in the store, for a list.
fn locked(backup: &Backup) -> Option<String> {
    let end = waits(backup)?.until;
    Some(end.map_or_else(
        || "legal hold".to_owned(),
        |at| format!("locked until {}", minute(at)),
    ))
}

/// Adds the doubts about a backup that is stored, by its phase, but cannot be restored as far as is
/// known.
fn doubt(description: &mut Description, judged: &Restorability, evidence: &Evidence) {
    let why = judged.reasons.join("; ");
    let is_unavailable = description
        .location
        .value()
        .is_some_and(LocationSummary::is_unavailable);
    let cause = match judged.answer {
        Answer::No => {
            if !is_unavailable {
                "Nothing can be restored from it.".clone_into(&mut description.verdict);
                description.tone = Tone::Bad;
                description
                    .causes
                    .push(format!("It is marked as {}, but {why}.", description.phase));
                return;
            }
            format!("It cannot be restored now: {why}.")
        }
        Answer::Unknown => {
            if evidence
                .verified
                .as_ref()
                .is_some_and(|last| last.findings > 0)
            {
                format!(
                    "When its files were verified, they were not all that they should be: `kubectl backup verify {}` says more.",
                    description.name
                )
            } else {
                format!("Whether it can be restored is not known: {why}.")
            }
        }
        Answer::Partly if !description.damage.is_empty() => {
            "The data of its volumes may rely on data that is damaged; the line Damage says more."
                .to_owned()
        }
        Answer::Yes | Answer::Partly | Answer::Later => return,
    };
    if description.tone == Tone::Good {
        description.tone = Tone::Warn;
    }
    description.causes.push(cause);
}

/// The latest backup that began before this one.
pub(crate) fn previous(backups: &[Backup], this: &Backup) -> Option<RunView> {
    let before = backups
        .iter()
        .filter(|one| one.metadata.uid != this.metadata.uid && began(one) < began(this));
    let last = before.max_by_key(|one| began(one))?;
    let WorkStatus {
        phase,
        started,
        completed,
        ..
    } = last.status();
    Some(RunView {
        name: last.name_any(),
        phase,
        started,
        completed,
    })
}

/// The scope of a backup, without defaults: "all namespaces", "namespaces shop, db; resources pods;
/// labels app=x".
pub(crate) fn scope(spec: &BackupSpec) -> String {
    let resources = [
        type_filter(
            "resources",
            &spec.included_resources,
            &spec.excluded_resources,
        ),
        type_filter(
            "cluster-scoped resources",
            &spec.included_cluster_scoped_resources,
            &spec.excluded_cluster_scoped_resources,
        ),
        type_filter(
            "namespaced resources",
            &spec.included_namespace_scoped_resources,
            &spec.excluded_namespace_scoped_resources,
        ),
    ];
    let mut parts = vec![namespaces(
        &spec.included_namespaces,
        &spec.excluded_namespaces,
    )];
    parts.extend(resources.into_iter().flatten());
    parts.extend(filters(
        spec.include_cluster_resources,
        spec.label_selector.as_ref(),
        spec.or_label_selectors.as_deref(),
    ));
    parts.join("; ")
}

/// "resources pods except secrets"; `None` if all are included.
fn type_filter(what: &str, included: &[String], excluded: &[String]) -> Option<String> {
    match (is_everything(included), excluded.is_empty()) {
        (true, true) => None,
        (true, false) => Some(format!("all {what} except {}", list(excluded))),
        (false, true) => Some(format!("{what} {}", list(included))),
        (false, false) => Some(format!(
            "{what} {} except {}",
            list(included),
            list(excluded)
        )),
    }
}

#[cfg(test)]
mod tests {
    use backup_core::api::{BackupPhase, BackupStatus, Restore, RestorePhase};

    use super::*;
    use crate::view::workload::verdict;

    fn backup(phase: &str) -> Backup {
        let phase = Some(BackupPhase::from(phase));
        Backup {
            status: BackupStatus {
                phase,
                ..BackupStatus::default()
            },
            ..Backup::default()
        }
    }

    #[test]
    fn every_phase_has_its_verdict() {
        let expected = [
            ("New", Tone::Busy),
            ("Queued", Tone::Busy),
            ("ReadyToStart", Tone::Busy),
            ("FailedValidation", Tone::Bad),
            ("InProgress", Tone::Busy),
            ("WaitingForPluginOperations", Tone::Busy),
            ("WaitingForPluginOperationsPartiallyFailed", Tone::Busy),
            ("Finalizing", Tone::Busy),
            ("FinalizingPartiallyFailed", Tone::Busy),
            ("Completed", Tone::Good),
            ("PartiallyFailed", Tone::Bad),
            ("Failed", Tone::Bad),
            ("Deleting", Tone::Busy),
        ];
        assert_eq!(
            expected.map(|(phase, _)| phase),
            BackupPhase::KNOWN,
            "a phase without a verdict"
        );
        let of_backup = |phase: &str| verdict(&backup(phase), Timestamp::UNIX_EPOCH);
        let of_restore = |phase: &str| {
            let mut restore = Restore::default();
            restore.status.phase = Some(RestorePhase::from(phase));
            verdict(&restore, Timestamp::UNIX_EPOCH)
        };
        for (phase, tone) in expected {
            let restored = RestorePhase::KNOWN
                .contains(&phase)
                .then(|| of_restore(phase));
            for verdict in std::iter::once(of_backup(phase)).chain(restored) {
                assert_eq!(verdict.tone, tone, "{phase}");
                assert!(verdict.sentence.ends_with('.'), "{}", verdict.sentence);
            }
        }
        assert!(
            RestorePhase::KNOWN
                .iter()
                .all(|phase| BackupPhase::KNOWN.contains(phase))
        );
        assert_eq!(
            [of_backup("Compacting").tone, of_restore("Compacting").tone],
            [Tone::Unknown; 2]
        );
    }

    #[test]
    fn a_scope_leaves_defaults_out() {
        let all = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        let many: Vec<String> = (0..10).map(|n| format!("n{n}")).collect();
        for (spec, text) in [
            (BackupSpec::default(), "all namespaces"),
            (
                BackupSpec {
                    included_namespaces: all(&["*"]),
                    ..BackupSpec::default()
                },
                "all namespaces",
            ),
            (
                BackupSpec {
                    included_namespaces: all(&["a"]),
                    included_resources: all(&["pods"]),
                    ..BackupSpec::default()
                },
                "namespace a; resources pods",
            ),
            (
                BackupSpec {
                    excluded_resources: all(&["secrets"]),
                    include_cluster_resources: Some(false),
                    ..BackupSpec::default()
                },
                "all namespaces; all resources except secrets; without cluster-scoped resources",
            ),
            (
                BackupSpec {
                    included_namespaces: many,
                    ..BackupSpec::default()
                },
                "namespaces n0, n1, n2, n3, n4, n5, n6, n7 and 2 more",
            ),
        ] {
            assert_eq!(scope(&spec), text);
        }
    }
}
