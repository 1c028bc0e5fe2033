//! The common parts of Backups and Restores: work that begins, goes through the same stages, and
//! ends.

mod turn;

use backup_core::{
    api::{Backup, BackupSpec, download_request::DownloadTargetKind},
    labels::{BLOCKED_ANNOTATION, CANCELLED, MISSING_DATA_ANNOTATION},
    left_items::LeftItems,
    operation::Operation,
    phase::Stage,
    restorability::{Place, Places},
    text::counted,
    volume_data::MissingData,
};
use backup_lock::{Footprint, ObjectKey};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use serde::de::DeserializeOwned;

pub(crate) use turn::{has_not_begun, turn};

use turn::{in_the_way, waits_for_turn};

use super::{
    Attempts, Count, DeletionView, Description, Fact, FileContents, HolderView, LocationSummary,
    LockView, Moment, RunView, TableKind, Verdict, copies,
    related::{self},
    selection::list,
    stored::{FilesState, operations::OperationView, volumes::VolumeView},
    table_kind::{age, dash},
    transfer::{Transfer, TransferView},
    troubles,
};
use crate::{
    fetched::FetchResult,
    print::{Style, Tone, human, moment, plain, seconds, took},
};

/// Time without an action by a controller after which describe says so (seconds).
const PICK_UP_LIMIT_SECONDS: i64 = 30;

/// A kind of work that commands handle: a Backup or a Restore.
pub(crate) trait Workload: TableKind + Sync {
    /// Prefix of the commands for this kind.
    const COMMAND: &'static str;
    const WORDS: Words;
    const FILES: Files;
    /// Stored form of an asynchronous operation.
    type Operation: Operation + DeserializeOwned;
    /// The objects that record its transfers of volume data.
    type Transfer: Transfer;
    /// Label of these objects: uid of the backup or restore.
    const TRANSFER_UID_LABEL: &'static str;

    /// Whether it may have transfers.
    fn may_move_data(&self) -> bool;

    fn status(&self) -> WorkStatus<'_>;

    /// `None` while it runs (or in an unknown phase), else whether it has ended well. A drill ends
    /// with its result.
    fn ended(&self) -> Option<bool> {
        self.status().ended()
    }

    /// A verdict that only this kind has.
    fn own_verdict(&self, status: &WorkStatus<'_>) -> Option<Verdict>;

    /// Volumes whose data is not in the backup, or was not restored, as recorded by the controller.
    fn missing_data(&self) -> Option<MissingData> {
        MissingData::read(
            self.meta()
                .annotations
                .as_ref()?
                .get(MISSING_DATA_ANNOTATION)
                .map(String::as_str),
        )
    }

    /// Volumes of an imported backup whose data only another server can read.
    fn data_elsewhere(&self) -> Option<MissingData> {
        None
    }

    /// A remark about both, for a list.
    fn without_data(&self) -> Option<String> {
        let missing = self.missing_data().map_or(0, |data| data.missing);
        let without = missing + self.data_elsewhere().map_or(0, |data| data.missing);
        (without > 0).then(|| format!("{} without data", counted(without, "volume")))
    }

    /// What the work waits for, as recorded by the controller; `None` once the work has ended.
    fn blocked(&self) -> Option<String> {
        let annotations = self.meta().annotations.as_ref()?;
        let blocked = annotations
            .get(BLOCKED_ANNOTATION)
            .filter(|_| !self.status().stage.is_terminal())?;
        Some(plain(blocked))
    }

    /// Items that a restore left unchanged, although they differ, and those that it left out.
    fn left_items(&self) -> Option<LeftItems> {
        None
    }

    fn key(namespace: &str, name: &str) -> ObjectKey;

    /// The footprint; for a restore it depends on the backup that is read.
    fn footprint(&self, source: Option<&BackupSpec>) -> Footprint;

    /// The object as a backup; `None` for a restore.
    fn as_backup(&self) -> Option<&Backup>;

    /// Name of the backup that it reads; `None` for a backup.
    fn source(&self) -> Option<String>;

    /// Facts that differ from the defaults.
    fn facts(&self, source: &FetchResult<Option<Backup>>) -> Vec<Fact>;

    /// Adds the parts that only this kind has to a description.
    fn complete(&self, description: &mut Description, source: &FetchResult<Option<Backup>>);

    /// Suggested next commands that only this kind has, the most likely first.
    fn own_next(&self, description: &Description) -> Vec<String>;
}

/// Words for the work of a kind.
pub(crate) struct Words {
    /// Progress of items: "collected".
    pub(crate) processed: &'static str,
    /// Final state of items: "saved".
    pub(crate) done: &'static str,
    /// Text about the rest, after the parts that failed.
    pub(crate) rest: &'static str,
    /// Sentence part for missing data.
    pub(crate) lacks: &'static str,
    /// Sentence while results are being stored.
    pub(crate) storing: &'static str,
    /// Why the work cannot be cancelled while results are being stored.
    pub(crate) too_late: &'static str,
    /// Sentence after a fatal error.
    pub(crate) failed: &'static str,
    /// Sentence part, for work that was cancelled before it counted its first item.
    pub(crate) cancelled_early: &'static str,
}

/// The kinds of a workload's files, as in DownloadRequests.
pub(crate) struct Files {
    pub(crate) log: DownloadTargetKind,
    pub(crate) results: DownloadTargetKind,
    pub(crate) operations: DownloadTargetKind,
    pub(crate) resources: DownloadTargetKind,
    pub(crate) volumes: DownloadTargetKind,
    /// Whether results are stored even after a fatal error.
    pub(crate) has_results_of_failed: bool,
}

pub(crate) struct WorkStatus<'a> {
    pub(crate) stage: Stage,
    /// The phase as the server wrote it, safe for a terminal.
    pub(crate) phase: String,
    pub(crate) is_cancelled: bool,
    /// Position in the queue; 0 if it has none.
    pub(crate) queue_position: i64,
    pub(crate) errors: i64,
    pub(crate) warnings: i64,
    pub(crate) started: Option<Timestamp>,
    pub(crate) completed: Option<Timestamp>,
    pub(crate) items: Option<Count>,
    pub(crate) operations: Attempts,
    pub(crate) hooks: Option<Attempts>,
    pub(crate) failure_reason: Option<&'a str>,
    pub(crate) validation_errors: &'a [String],
}

/// Builds the status of a kind; only the names of the fields for items and operations differ.
macro_rules! work_status {
    ($work:expr, $items:ident, $attempted:ident, $completed:ident, $failed:ident) => {{
        let phase = $work.phase();
        let status = &$work.status;
        WorkStatus {
            stage: phase.stage(),
            phase: plain(phase.as_str()),
            is_cancelled: $work.is_cancelled(),
            queue_position: 0,
            errors: status.errors,
            warnings: status.warnings,
            started: status.start_timestamp.as_ref().map(|at| at.0),
            completed: status.completion_timestamp.as_ref().map(|at| at.0),
            items: status.progress.as_ref().map(|all| Count {
                done: all.$items,
                total: all.total_items,
            }),
            operations: Attempts {
                attempted: status.$attempted,
                completed: Some(status.$completed),
                failed: Some(status.$failed),
            },
            hooks: status.hook_status.as_ref().map(Attempts::from),
            failure_reason: status.failure_reason.as_deref(),
            validation_errors: &status.validation_errors,
        }
    }};
}
pub(super) use work_status;

impl WorkStatus<'_> {
    /// `None` while it runs (or in an unknown phase), else whether it is Completed and not empty.
    pub(crate) fn ended(&self) -> Option<bool> {
        self.stage
            .is_terminal()
            .then_some(self.stage == Stage::Completed && !self.is_empty())
    }

    /// Whether it has ended without any item, by its progress.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_whole()
            && self
                .items
                .as_ref()
                .is_some_and(|items| items.done == 0 && items.total == 0)
    }

    pub(crate) fn is_storing(&self) -> bool {
        matches!(self.stage, Stage::Finalizing { .. })
    }

    /// Whether it has failed because the user cancelled it before its first item, by the
    /// controller's reason.
    fn has_failed_by_cancellation(&self) -> bool {
        let reason = self.failure_reason.filter(|_| self.stage == Stage::Failed);
        reason.is_some_and(|reason| reason.contains(CANCELLED))
    }

    /// Whether all files are stored, and it can be restored from.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.stage, Stage::Completed | Stage::PartiallyFailed)
    }

    pub(crate) fn with_troubles(&self, sentence: &str) -> String {
        match troubles(self.errors, self.warnings) {
            none if none.is_empty() => format!("{sentence}."),
            troubles => format!("{sentence}, with {troubles} so far."),
        }
    }

    fn busy(&self, sentence: &str) -> Verdict {
        Verdict::new(Tone::Busy, self.with_troubles(sentence))
    }
}

/// The verdict on a workload, without related objects.
pub(crate) fn verdict<W: Workload>(work: &W, now: Timestamp) -> Verdict {
    verdict_with(work, work.missing_data().as_ref(), now)
}

fn verdict_with<W: Workload>(work: &W, missing: Option<&MissingData>, now: Timestamp) -> Verdict {
    let status = work.status();
    if let Some(own) = work.own_verdict(&status) {
        return own;
    }
    let verdict = judged(work, &status, missing, now);
    match work.blocked() {
        Some(blocked) => Verdict {
            tone: Tone::Warn,
            ..verdict
        }
        .because([sentence(&blocked)]),
        None => verdict,
    }
}

/// Turns a text into a sentence.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars
        .next()
        .map(|first| first.to_uppercase().to_string())
        .unwrap_or_default();
    format!("{first}{}.", chars.as_str().trim_end_matches('.'))
}

fn judged<W: Workload>(
    work: &W,
    status: &WorkStatus<'_>,
    missing: Option<&MissingData>,
    now: Timestamp,
) -> Verdict {
    let Words {
        processed,
        done,
        rest,
        lacks,
        storing,
        failed,
        cancelled_early,
        ..
    } = W::WORDS;
    let left = work.left_items().filter(LeftItems::differs);
    let elsewhere = work
        .data_elsewhere()
        .map(|data| data.sentence("cannot be restored here"));
    let gaps = [
        left.as_ref().map(ToString::to_string),
        missing.map(|data| data.sentence(lacks)),
        elsewhere,
    ];
    let gaps: Vec<String> = gaps.into_iter().flatten().map(|gap| plain(&gap)).collect();
    if status.is_cancelled && !status.stage.is_terminal() && !status.is_storing() {
        return status.busy("It was cancelled, and is coming to its end");
    }
    match status.stage {
        Stage::New => {
            waiting_for_controller(work.meta().creation_timestamp.as_ref().map(|at| at.0), now)
        }
        Stage::Queued => {
            let sentence = if status.queue_position > 0 {
                format!("It is number {} in the queue.", status.queue_position)
            } else {
                "It is in the queue.".to_owned()
            };
            Verdict::new(Tone::Busy, sentence)
        }
        Stage::ReadyToStart => Verdict::new(Tone::Busy, "It is about to start."),
        Stage::InProgress => {
            let progress = status
                .items
                .map_or_else(String::new, |Count { done, total }| {
                    format!(": {done} of {}", counted(total, "item"))
                });
            status.busy(&format!("Items are being {processed}{progress}"))
        }
        Stage::WaitingForOperations { .. } => {
            let all = counted(status.operations.attempted, "operation");
            let ended = status.operations.ended();
            status.busy(&format!(
                "All items are {processed}; {ended} of {all} have ended"
            ))
        }
        Stage::Finalizing { .. } => status.busy(storing),
        Stage::Completed => {
            let with = match status.warnings {
                ..=0 => String::new(),
                warnings => format!(", with {}", counted(warnings, "warning")),
            };
            if status.is_empty() {
                return Verdict::new(
                    Tone::Warn,
                    format!("Nothing was {done}{with}: no item was selected."),
                );
            }
            if gaps.is_empty() {
                return Verdict::new(Tone::Good, format!("Everything was {done}{with}."));
            }
            let items = if left.is_some() {
                "The other items"
            } else {
                "All items"
            };
            let sentence = format!("{items} were {done}{with}, but {}.", gaps.join(", and "));
            Verdict::new(Tone::Warn, sentence)
        }
        Stage::PartiallyFailed => {
            let troubles = troubles(status.errors, status.warnings);
            let troubles = if troubles.is_empty() {
                troubles
            } else {
                format!(" ({troubles})")
            };
            let cancelled = if status.is_cancelled {
                "It was cancelled. "
            } else {
                ""
            };
            let sentence = if status.is_cancelled && status.items.is_some_and(|all| all.done == 0) {
                format!("{cancelled_early}{troubles}.")
            } else if status.is_empty() {
                format!("{cancelled}Nothing was {done}{troubles}.")
            } else {
                format!("{cancelled}Something was not {done}{troubles}{rest}.")
            };
            Verdict::new(Tone::Bad, sentence)
                .because(status.failure_reason.map(plain))
                .because(gaps.iter().map(|gap| format!("Besides, {gap}.")))
        }
        Stage::Failed => {
            if status.has_failed_by_cancellation() {
                let sentence = if status.started.is_none() {
                    format!("It was cancelled before it began; nothing was {done}.")
                } else {
                    format!("It was cancelled before anything was {done}.")
                };
                return Verdict::new(Tone::Bad, sentence);
            }
            let reason = status
                .failure_reason
                .map_or_else(|| "The server gave no reason.".to_owned(), plain);
            Verdict::new(Tone::Bad, failed).because([reason])
        }
        Stage::FailedValidation => {
            Verdict::new(Tone::Bad, "It never ran: what it asks for is not possible.")
                .because(status.validation_errors.iter().map(|error| plain(error)))
        }
        Stage::Deleting | Stage::Unknown => Verdict::new(
            Tone::Unknown,
            "This phase is not known to this version of kubectl backup: it is shown, not judged.",
        ),
    }
}

fn waiting_for_controller(created: Option<Timestamp>, now: Timestamp) -> Verdict {
    let waited = created.map_or(0, |created| seconds(created, now));
    let verdict = Verdict::new(Tone::Busy, "It waits for the controller.");
    if waited < PICK_UP_LIMIT_SECONDS {
        return verdict;
    }
    Verdict {
        tone: Tone::Warn,
        ..verdict
    }
    .because(Some(format!(
        "No controller has picked it up for {}: is one running?",
        human(waited)
    )))
}

/// Parts that are shown with a workload, each fetched independently.
#[derive(Clone)]
pub(crate) struct WorkloadParts {
    /// The backup that a restore reads; `None` if the restore names none, or it does not exist.
    pub(crate) source: FetchResult<Option<Backup>>,
    /// The location of the backup; `None` if the backup names no location yet.
    pub(crate) location: FetchResult<Option<LocationSummary>>,
    /// The same location, in the form for the verdict.
    pub(crate) place: Place,
    /// The locations of complete copies.
    pub(crate) copies: Places,
    pub(crate) deletions: FetchResult<Vec<DeletionView>>,
    pub(crate) previous: FetchResult<Option<RunView>>,
    /// Whether a backup is the last good one of what it protects.
    pub(crate) last_good: FetchResult<bool>,
    pub(crate) events: FetchResult<Vec<Event>>,
    /// The scope's ledger; `None` if it does not exist yet.
    pub(crate) ledger: FetchResult<Option<backup_lock::Ledger>>,
    pub(crate) transfers: FetchResult<Vec<TransferView>>,
    /// What is known of damage of the repositories that have data of a backup, as sentences.
    pub(crate) damage: Vec<String>,
    pub(crate) stored: FileContents,
}

impl WorkloadParts {
    /// No part was fetched yet.
    pub(crate) fn unread() -> Self {
        const WHY: &str = "not read yet";
        Self {
            source: FetchResult::missing(WHY),
            location: FetchResult::missing(WHY),
            place: Place::Unread(WHY.to_owned()),
            copies: Places(Err(WHY.to_owned())),
            deletions: FetchResult::missing(WHY),
            previous: FetchResult::missing(WHY),
            last_good: FetchResult::missing(WHY),
            events: FetchResult::missing(WHY),
            ledger: FetchResult::missing(WHY),
            transfers: FetchResult::missing(WHY),
            damage: Vec::new(),
            stored: FileContents {
                messages: FetchResult::missing(WHY),
                item_operations: FetchResult::missing(WHY),
                contents: FetchResult::missing(WHY),
                volumes: FetchResult::missing(WHY),
                files: FilesState::Unread,
            },
        }
    }
}

pub(crate) fn describe<W: Workload>(work: &W, parts: WorkloadParts, now: Timestamp) -> Description {
    let WorkloadParts {
        source,
        location,
        place,
        copies,
        deletions,
        previous,
        last_good,
        events,
        ledger,
        transfers,
        damage,
        stored,
    } = parts;
    let copies = work.as_backup().map(|backup| copies::of(backup, &copies));
    let meta = work.meta();
    let status = work.status();
    let name = meta.name.clone().unwrap_or_default();
    let namespace = meta.namespace.clone().unwrap_or_default();
    let uid = meta.uid.clone().unwrap_or_default();
    let created = meta.creation_timestamp.as_ref().map(|at| at.0);
    let lock = ledger.map(|ledger| {
        let footprint = work.footprint(source.value().map(|backup| &backup.spec));
        related::lock(
            ledger.as_ref(),
            &W::key(&namespace, &name),
            &uid,
            &footprint,
        )
    });
    // Older servers record it only in the file.
    let missing_data = work.missing_data().or_else(|| {
        let volumes = stored.volumes.value()?;
        let partly = volumes.iter().filter(|volume| volume.is_incomplete());
        Some(MissingData {
            partly: partly.count(),
            ..MissingData::among(volumes.iter().map(VolumeView::missing_data))?
        })
    });
    let unsaid = missing_data.clone().map(|data| without_said(data, &stored));
    let mut verdict = verdict_with(work, unsaid.as_ref(), now);
    if !status.stage.is_terminal() {
        let lock = lock.known();
        verdict = waits_for_turn(lock, status.stage).unwrap_or(verdict);
        verdict.causes.extend(in_the_way(lock));
    }
    let mut description = Description {
        kind: if work.as_backup().is_some() {
            "BackupDescription"
        } else {
            "RestoreDescription"
        },
        name,
        namespace,
        uid,
        tone: verdict.tone,
        verdict: verdict.sentence,
        causes: verdict.causes,
        restorable: None,
        drilled: None,
        last_good: last_good.known().copied().unwrap_or_default(),
        created,
        started: status.started,
        completed: status.completed,
        expires: None,
        errors: status.errors,
        warnings: status.warnings,
        items: status.items,
        operations: Some(status.operations).filter(|operations| operations.attempted > 0),
        hooks: status.hooks.filter(|hooks| hooks.attempted > 0),
        snapshots: None,
        missing_data,
        data_elsewhere: work.data_elsewhere(),
        left_items: work.left_items(),
        damage,
        copies: copies.unwrap_or_default(),
        facts: work.facts(&source),
        timeline: timeline(created, &status, &stored),
        phase: status.phase,
        previous,
        stored,
        transfers,
        location,
        place,
        lock,
        deletions,
        events: events.map(|events| related::events(&events)),
        next: Vec::new(),
    };
    work.complete(&mut description, &source);
    description.next = next(work, status.stage, &description);
    description
}

/// The volumes without the reasons that an error on the same screen says.
fn without_said(mut data: MissingData, stored: &FileContents) -> MissingData {
    if let Some(messages) = stored.messages.value() {
        for why in data.volumes.values_mut() {
            if messages.say(why) {
                why.clear();
            }
        }
    }
    data
}

/// Creation, start, end of operations, and end; the last two as far as they are known.
fn timeline(
    created: Option<Timestamp>,
    status: &WorkStatus<'_>,
    stored: &FileContents,
) -> Vec<Moment> {
    let operations = stored.item_operations.value();
    let over = operations
        .filter(|all| all.iter().all(OperationView::has_ended))
        .and_then(|all| all.iter().filter_map(|operation| operation.updated).max());
    // An imported backup was created in this cluster long after it ran.
    let created = created.filter(|at| status.started.is_none_or(|started| *at <= started));
    let moments = [
        (created, "created"),
        (status.started, "started"),
        (over, "operations over"),
        (status.completed, "ended"),
    ];
    let mut moments: Vec<Moment> = moments
        .into_iter()
        .filter_map(|(at, what)| Some(Moment { at: at?, what }))
        .collect();
    moments.sort_by_key(|moment| moment.at);
    moments
}

/// Suggested next commands in this state, the most likely first.
fn next<W: Workload>(work: &W, stage: Stage, description: &Description) -> Vec<String> {
    let Description {
        name,
        namespace,
        tone,
        ..
    } = description;
    let mut next = work.own_next(description);
    if stage == Stage::Failed && !work.status().has_failed_by_cancellation() {
        next.push(controller_log(namespace, name));
    }
    if stage == Stage::New && *tone == Tone::Warn {
        next.push(format!("kubectl -n {namespace} get deployments,pods"));
    }
    if !stage.is_terminal() {
        next.extend(blockers(description));
    }
    next
}

pub(super) fn controller_log(namespace: &str, name: &str) -> String {
    format!("kubectl -n {namespace} logs deployment/backup-controller | grep {name}")
}

fn blockers(description: &Description) -> Vec<String> {
    let Some(lock) = description.lock.known().filter(|lock| !lock.is_active()) else {
        return Vec::new();
    };
    let mut all: Vec<String> = lock
        .in_the_way
        .iter()
        .take(2)
        .map(describe_command)
        .collect();
    all.dedup();
    all
}

/// The command that shows a holder of the lock.
fn describe_command(holder: &HolderView) -> String {
    match holder.kind.as_str() {
        "Restore" => format!("kubectl backup restore describe {}", holder.name),
        "Backup" => format!("kubectl backup describe {}", holder.name),
        _ => "kubectl backup locks".to_owned(),
    }
}

/// Cells that both kinds have in a row: status, errors, warnings, age and duration; and the items.
/// `remark` follows the phase.
pub(super) fn cells<W: Workload>(
    work: &W,
    remark: &str,
    now: Timestamp,
    style: Style,
) -> ([String; 5], String) {
    let meta = work.meta();
    let status = work.status();
    let (tone, phase) = match &meta.deletion_timestamp {
        Some(_) => (Tone::Busy, "Deleting"),
        None => (verdict(work, now).tone, status.phase.as_str()),
    };
    let WorkStatus {
        started, completed, ..
    } = status;
    let items = status.items.map_or_else(dash, |Count { done, total }| {
        if done == total {
            done.to_string()
        } else {
            format!("{done}/{total}")
        }
    });
    let progress = [
        style.tone(tone, &format!("{phase}{remark}")),
        status.errors.to_string(),
        status.warnings.to_string(),
        age(
            started.or(meta.creation_timestamp.as_ref().map(|at| at.0)),
            now,
        ),
        started
            .zip(completed)
            .map_or_else(dash, |(start, end)| took(seconds(start, end))),
    ];
    (progress, items)
}
