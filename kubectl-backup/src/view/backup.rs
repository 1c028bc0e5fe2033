//! A Backup: the verdict on every phase, and the description.

use backup_core::{
    api::{Backup, BackupPhase, BackupSpec, BackupStorageLocation, DeleteBackupRequest},
    labels,
};
use backup_lock::{Footprint, Ledger, ObjectKey};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Event, apimachinery::pkg::apis::meta::v1::Time};

use super::{
    description::{
        API_VERSION, Attempts, Count, Description, Fact, Moment, Restorable, Verdict, counted, troubles,
    },
    next,
    part::{self, LocationView, LockView, Part},
    stored::{Stored, operations::OperationView},
};
use crate::{
    cli::selector,
    print::{
        age::{human, seconds},
        style::Tone,
        table::plain,
    },
};

/// After this long without a sign of a controller, describe says so. Seconds.
pub const NOT_PICKED_UP: i64 = 30;

/// Everything that was fetched about a backup.
pub struct Facts<'a> {
    /// The backup.
    pub backup: &'a Backup,
    /// Its location; nothing if it names none yet.
    pub location: Part<Option<BackupStorageLocation>>,
    /// Requests to delete it.
    pub deletions: Part<Vec<DeleteBackupRequest>>,
    /// Events about it.
    pub events: Part<Vec<Event>>,
    /// The scope's ledger; nothing if there is none yet.
    pub ledger: Part<Option<Ledger>>,
    /// Other backups of its schedule; none if it has none.
    pub siblings: Part<Vec<Backup>>,
    /// What its files tell.
    pub stored: Stored,
}

/// How the backup stands, from itself alone.
pub fn verdict(backup: &Backup, now: Timestamp) -> Verdict {
    let status = &backup.status;
    let progress = || {
        status.progress.as_ref().map_or_else(String::new, |progress| {
            format!(": {} of {} items", progress.items_backed_up, progress.total_items)
        })
    };
    let with_trouble = |sentence: String| {
        let troubles = troubles(status.errors, status.warnings);
        if troubles.is_empty() { sentence + "." } else { format!("{sentence}, with {troubles} so far.") }
    };
    let blocked = || {
        backup
            .metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(labels::BLOCKED_ANNOTATION))
            .map(|why| plain(why))
    };
    if backup.metadata.deletion_timestamp.is_some() && backup.phase().is_terminal() {
        return Verdict::new(Tone::Busy, "It is being deleted.");
    }
    let phase = backup.phase();
    let storing = matches!(phase, BackupPhase::Finalizing | BackupPhase::FinalizingPartiallyFailed);
    if backup.is_cancelled() && phase.is_active() && !storing {
        return Verdict::new(
            Tone::Busy,
            with_trouble("It was cancelled, and is coming to its end".to_owned()),
        );
    }
    match phase {
        BackupPhase::New => {
            waiting_for_controller(backup.metadata.creation_timestamp.as_ref().map(|time| time.0), now)
        }
        BackupPhase::Queued if status.queue_position > 0 => {
            Verdict::new(Tone::Busy, format!("It is number {} in the queue.", status.queue_position))
        }
        BackupPhase::Queued => Verdict::new(Tone::Busy, "It is in the queue."),
        BackupPhase::ReadyToStart => Verdict::new(Tone::Busy, "It is about to start."),
        BackupPhase::InProgress => {
            Verdict::new(Tone::Busy, with_trouble(format!("Items are being collected{}", progress())))
        }
        BackupPhase::WaitingForPluginOperations | BackupPhase::WaitingForPluginOperationsPartiallyFailed => {
            let (ended, all) = (
                status.backup_item_operations_completed + status.backup_item_operations_failed,
                status.backup_item_operations_attempted,
            );
            Verdict::new(
                Tone::Busy,
                with_trouble(format!(
                    "All items are collected; {ended} of {} have ended",
                    counted(all, "operation")
                )),
            )
        }
        BackupPhase::Finalizing | BackupPhase::FinalizingPartiallyFailed => {
            let blocked = blocked();
            let (tone, sentence) = match blocked {
                Some(_) => (Tone::Warn, "All items are collected, but storing them does not get on"),
                None if backup.is_cancelled() => {
                    (Tone::Busy, "It was cancelled; what was collected is being stored")
                }
                None => (Tone::Busy, "All items are collected and are being stored"),
            };
            Verdict::new(tone, with_trouble(sentence.to_owned())).because(blocked)
        }
        BackupPhase::Completed => Verdict::new(
            Tone::Good,
            match status.warnings {
                ..=0 => "Everything was saved.".to_owned(),
                warnings => format!("Everything was saved, with {}.", counted(warnings, "warning")),
            },
        ),
        BackupPhase::PartiallyFailed => {
            let troubles = troubles(status.errors, status.warnings);
            let troubles = if troubles.is_empty() { String::new() } else { format!(" ({troubles})") };
            let cancelled = if backup.is_cancelled() { "It was cancelled. " } else { "" };
            let sentence = format!("{cancelled}Something was not saved{troubles}; the rest can be restored.");
            Verdict::new(Tone::Bad, sentence).because(status.failure_reason.as_deref().map(plain))
        }
        BackupPhase::Failed => Verdict::new(Tone::Bad, "It failed: there is nothing to restore from.")
            .because(Some(
                status
                    .failure_reason
                    .as_deref()
                    .map_or_else(|| "The server gave no reason.".to_owned(), plain),
            )),
        BackupPhase::FailedValidation => {
            Verdict::new(Tone::Bad, "It never ran: what it asks for is not possible.")
                .because(status.validation_errors.iter().map(|error| plain(error)))
        }
        BackupPhase::Deleting => super::deletion::verdict(backup),
        BackupPhase::Unknown(_) => Verdict::new(
            Tone::Unknown,
            "This phase is not known to this version of kubectl backup: it is shown, not judged.",
        ),
    }
}

/// The verdict on an object that no controller has touched.
pub(super) fn waiting_for_controller(created: Option<Timestamp>, now: Timestamp) -> Verdict {
    let waited = created.map_or(0, |created| seconds(created, now));
    let verdict = Verdict::new(Tone::Busy, "It waits for the controller.");
    if waited < NOT_PICKED_UP {
        return verdict;
    }
    Verdict { tone: Tone::Warn, ..verdict }
        .because(Some(format!("Nobody has picked it up for {}: is the controller running?", human(waited))))
}

/// The whole description.
pub fn describe(facts: Facts<'_>, now: Timestamp) -> Description {
    let Facts { backup, location, deletions, events, ledger, siblings, stored } = facts;
    let (meta, status, phase) = (&backup.metadata, &backup.status, backup.phase());
    let name = meta.name.clone().unwrap_or_default();
    let namespace = meta.namespace.clone().unwrap_or_default();
    let uid = meta.uid.clone().unwrap_or_default();

    let location =
        location.map(|location| location.as_ref().map(|location| LocationView::of(location, &name)));
    let lock = ledger.map(|ledger| {
        part::lock(
            ledger.as_ref(),
            &ObjectKey::backup(&namespace, &name),
            &uid,
            &Footprint::of_backup(&backup.spec),
        )
    });
    let deletions = deletions.map(|requests| part::deletions(&requests, &name));
    let mut verdict = verdict(backup, now);
    if phase.is_active() {
        verdict = waits_for_turn(&lock, phase == BackupPhase::New).unwrap_or(verdict);
        verdict.causes.extend(in_the_way(&lock));
    }
    let place = location.known().and_then(Option::as_ref);
    if phase == BackupPhase::Deleting
        && let Some(failed) =
            deletions.known().and_then(|all| all.last()).filter(|last| !last.errors.is_empty())
    {
        verdict = Verdict::new(Tone::Bad, "Its deletion has failed.").because(failed.errors.iter().cloned());
    }
    let restorable = restorable(&phase, place);
    if let (true, Some(place)) = (verdict.tone == Tone::Good && restorable.answer == "no", place) {
        verdict.tone = Tone::Warn;
        verdict.causes.push(format!("It can not be read now: location {} is Unavailable.", place.name));
    }
    let description = Description {
        api_version: API_VERSION,
        kind: "BackupDescription",
        name,
        namespace,
        uid,
        phase: plain(phase.as_str()),
        tone: verdict.tone,
        verdict: verdict.sentence,
        causes: verdict.causes,
        restorable: Some(restorable),
        created: meta.creation_timestamp.as_ref().map(|time| time.0),
        started: status.start_timestamp.as_ref().map(|time| time.0),
        completed: status.completion_timestamp.as_ref().map(|time| time.0),
        expires: status.expiration.as_ref().map(|time| time.0),
        errors: status.errors,
        warnings: status.warnings,
        items: status
            .progress
            .as_ref()
            .map(|progress| Count { done: progress.items_backed_up, total: progress.total_items }),
        operations: (status.backup_item_operations_attempted > 0).then_some(Attempts {
            attempted: status.backup_item_operations_attempted,
            completed: Some(status.backup_item_operations_completed),
            failed: Some(status.backup_item_operations_failed),
        }),
        hooks: status.hook_status.as_ref().filter(|hooks| hooks.hooks_attempted > 0).map(|hooks| Attempts {
            attempted: hooks.hooks_attempted,
            completed: None,
            failed: Some(hooks.hooks_failed),
        }),
        snapshots: snapshots(backup),
        facts: own_facts(backup),
        timeline: timeline(
            [
                meta.creation_timestamp.as_ref(),
                status.start_timestamp.as_ref(),
                status.completion_timestamp.as_ref(),
            ],
            &stored,
        ),
        previous: siblings.map(|all| part::previous(&all, backup)),
        stored,
        location,
        lock,
        deletions,
        events: events.map(|events| part::events(&events)),
        next: Vec::new(),
    };
    Description { next: next::for_backup(&description, &phase), ..description }
}

/// The verdict on an object that nobody has touched because its turn has not come.
pub(super) fn waits_for_turn(lock: &Part<LockView>, untouched: bool) -> Option<Verdict> {
    let lock = lock.known().filter(|lock| untouched && lock.is_waiting())?;
    let named = |other: &part::HolderView| format!("{} {}/{}", other.kind, other.namespace, other.name);
    let behind: Vec<String> = lock.in_the_way.iter().map(named).collect();
    let behind = if behind.is_empty() { String::new() } else { format!(" behind {}", list(&behind)) };
    Some(Verdict::new(Tone::Busy, format!("It waits for its turn{behind}.")))
}

/// One sentence for each claim that it can't stand beside.
pub(super) fn in_the_way(lock: &Part<LockView>) -> Vec<String> {
    let Some(lock) = lock.known().filter(|lock| !lock.is_active()) else { return Vec::new() };
    lock.in_the_way
        .iter()
        .map(|other| {
            format!(
                "{} {}/{} is in the way ({} since {}).",
                other.kind, other.namespace, other.name, other.state, other.since
            )
        })
        .collect()
}

fn restorable(phase: &BackupPhase, location: Option<&LocationView>) -> Restorable {
    let (answer, why) = match phase {
        BackupPhase::Completed => ("yes", ""),
        BackupPhase::PartiallyFailed => ("partly", "all but the items with errors"),
        BackupPhase::Failed | BackupPhase::FailedValidation | BackupPhase::Deleting => ("no", ""),
        BackupPhase::Unknown(_) => ("unknown", ""),
        _ => ("later", "once it has ended"),
    };
    match location {
        Some(location) if location.is_unavailable() && matches!(answer, "yes" | "partly") => {
            Restorable { answer: "no", why: format!("as long as location {} is Unavailable", location.name) }
        }
        _ => Restorable { answer, why: why.to_owned() },
    }
}

fn snapshots(backup: &Backup) -> Option<Attempts> {
    let status = &backup.status;
    let attempted = status.volume_snapshots_attempted + status.csi_volume_snapshots_attempted;
    let completed = status.volume_snapshots_completed + status.csi_volume_snapshots_completed;
    (attempted > 0).then_some(Attempts { attempted, completed: Some(completed), failed: None })
}

/// Created, started, operations over, ended; the last two as far as they are known.
pub(super) fn timeline(known: [Option<&Time>; 3], stored: &Stored) -> Vec<Moment> {
    let operations = stored.item_operations.known().and_then(Option::as_ref);
    let over = operations
        .filter(|all| all.iter().all(OperationView::has_ended))
        .and_then(|all| all.iter().filter_map(|operation| operation.updated).max());
    let [created, started, ended] = known.map(|time| time.map(|time| time.0));
    // One that came from a bucket was created here long after it ran.
    let created = created.filter(|at| started.is_none_or(|started| *at <= started));
    let moments = [(created, "created"), (started, "started"), (over, "operations over"), (ended, "ended")];
    let mut moments: Vec<Moment> =
        moments.into_iter().filter_map(|(at, what)| Some(Moment { at: at?, what })).collect();
    moments.sort_by_key(|moment| moment.at);
    moments
}

fn own_facts(backup: &Backup) -> Vec<Fact> {
    let mut facts = Vec::new();
    if let Some(schedule) =
        backup.metadata.labels.as_ref().and_then(|labels| labels.get(labels::SCHEDULE_NAME))
    {
        facts.push(Fact { title: "From", text: format!("schedule {}", plain(schedule)) });
    }
    facts.push(Fact { title: "Scope", text: scope(&backup.spec) });
    if let Some(ttl) = backup.spec.ttl.filter(|ttl| !ttl.is_zero() && backup.status.expiration.is_none()) {
        facts.push(Fact { title: "Kept", text: format!("{} from its start", human(ttl.as_secs())) });
    }
    facts
}

/// What the backup is about, defaults left out: "all namespaces", "namespaces shop, db; resources pods; labels app=x".
pub fn scope(spec: &BackupSpec) -> String {
    let mut parts = vec![namespaces(&spec.included_namespaces, &spec.excluded_namespaces)];
    let mut filter = |what: &str, included: &[String], excluded: &[String]| {
        let everything = included.is_empty() || included.iter().any(|one| one == "*");
        match (everything, excluded.is_empty()) {
            (true, true) => {}
            (true, false) => parts.push(format!("all {what} except {}", list(excluded))),
            (false, true) => parts.push(format!("{what} {}", list(included))),
            (false, false) => parts.push(format!("{what} {} except {}", list(included), list(excluded))),
        }
    };
    filter("resources", &spec.included_resources, &spec.excluded_resources);
    filter(
        "cluster-scoped resources",
        &spec.included_cluster_scoped_resources,
        &spec.excluded_cluster_scoped_resources,
    );
    filter(
        "namespaced resources",
        &spec.included_namespace_scoped_resources,
        &spec.excluded_namespace_scoped_resources,
    );
    match spec.include_cluster_resources {
        Some(true) => parts.push("with cluster-scoped resources".to_owned()),
        Some(false) => parts.push("without cluster-scoped resources".to_owned()),
        None => {}
    }
    parts.extend(selectors(spec.label_selector.as_ref(), spec.or_label_selectors.as_deref()));
    parts.join("; ")
}

/// "all namespaces except kube-system".
pub(super) fn namespaces(included: &[String], excluded: &[String]) -> String {
    let everything = included.is_empty() || included.iter().any(|one| one == "*");
    let base = if everything {
        "all namespaces".to_owned()
    } else if let [one] = included {
        format!("namespace {}", plain(one))
    } else {
        format!("namespaces {}", list(included))
    };
    if excluded.is_empty() { base } else { format!("{base} except {}", list(excluded)) }
}

/// "labels app=shop", "labels app=shop or app=db".
pub(super) fn selectors(
    selector: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector>,
    or: Option<&[k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector]>,
) -> Option<String> {
    let all: Vec<String> = selector
        .into_iter()
        .chain(or.into_iter().flatten())
        .map(selector::show)
        .filter(|text| !text.is_empty())
        .collect();
    (!all.is_empty()).then(|| format!("labels {}", plain(&all.join(" or "))))
}

/// The first names, and how many more, so that a screen stays a screen.
pub(super) fn list(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown = names.iter().take(SHOWN).map(|name| plain(name)).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN { format!("{shown} and {} more", names.len() - SHOWN) } else { shown }
}

#[cfg(test)]
mod tests {
    use backup_core::api::BackupStatus;

    use super::*;

    fn backup(phase: &str) -> Backup {
        let phase = Some(BackupPhase::from(phase));
        Backup { status: BackupStatus { phase, ..BackupStatus::default() }, ..Backup::default() }
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
        assert_eq!(expected.map(|(phase, _)| phase), BackupPhase::KNOWN, "a phase without a verdict");
        for (phase, tone) in expected {
            let verdict = verdict(&backup(phase), Timestamp::UNIX_EPOCH);
            assert_eq!(verdict.tone, tone, "{phase}");
            assert!(verdict.sentence.ends_with('.'), "{}", verdict.sentence);
        }
        assert_eq!(verdict(&backup("Compacting"), Timestamp::UNIX_EPOCH).tone, Tone::Unknown);
    }

    #[test]
    fn a_scope_leaves_defaults_out() {
        let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let many: Vec<String> = (0..10).map(|n| format!("n{n}")).collect();
        for (spec, text) in [
            (BackupSpec::default(), "all namespaces"),
            (BackupSpec { included_namespaces: all(&["*"]), ..BackupSpec::default() }, "all namespaces"),
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
                BackupSpec { included_namespaces: many, ..BackupSpec::default() },
                "namespaces n0, n1, n2, n3, n4, n5, n6, n7 and 2 more",
            ),
        ] {
            assert_eq!(scope(&spec), text);
        }
    }
}
