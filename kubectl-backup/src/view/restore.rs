//! A Restore: the verdict on every phase, and the description.

use backup_core::{
    api::{Backup, BackupStorageLocation, Restore, RestorePhase, RestoreSpec},
    resources::NON_RESTORABLE,
};
use backup_lock::{Footprint, Ledger, ObjectKey};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;

use super::{
    backup::{in_the_way, list, namespaces, selectors, timeline, waiting_for_controller, waits_for_turn},
    description::{API_VERSION, Attempts, Count, Description, Fact, Verdict, counted, troubles},
    next,
    part::{self, LocationView, Part},
    stored::Stored,
};
use crate::print::{style::Tone, table::plain};

/// Everything that was fetched about a restore.
pub struct Facts<'a> {
    /// The restore.
    pub restore: &'a Restore,
    /// The backup that it reads; nothing if it names none, or there is none of that name.
    pub backup: Part<Option<Backup>>,
    /// The location of that backup.
    pub location: Part<Option<BackupStorageLocation>>,
    /// Events about it.
    pub events: Part<Vec<Event>>,
    /// The scope's ledger; nothing if there is none yet.
    pub ledger: Part<Option<Ledger>>,
    /// What its files tell.
    pub stored: Stored,
}

/// How the restore stands, from itself alone.
pub fn verdict(restore: &Restore, now: Timestamp) -> Verdict {
    let status = &restore.status;
    let with_trouble = |sentence: String| {
        let troubles = troubles(status.errors, status.warnings);
        if troubles.is_empty() { sentence + "." } else { format!("{sentence}, with {troubles} so far.") }
    };
    if restore.metadata.deletion_timestamp.is_some() {
        return Verdict::new(Tone::Busy, "It is being deleted; what it restored stays.");
    }
    let phase = restore.phase();
    let storing = matches!(phase, RestorePhase::Finalizing | RestorePhase::FinalizingPartiallyFailed);
    if restore.is_cancelled() && phase.is_active() && !storing {
        return Verdict::new(
            Tone::Busy,
            with_trouble("It was cancelled, and is coming to its end".to_owned()),
        );
    }
    match phase {
        RestorePhase::New => {
            waiting_for_controller(restore.metadata.creation_timestamp.as_ref().map(|time| time.0), now)
        }
        RestorePhase::InProgress => {
            let progress = status.progress.as_ref().map_or_else(String::new, |progress| {
                format!(": {} of {} items", progress.items_restored, progress.total_items)
            });
            Verdict::new(Tone::Busy, with_trouble(format!("Items are being restored{progress}")))
        }
        RestorePhase::WaitingForPluginOperations
        | RestorePhase::WaitingForPluginOperationsPartiallyFailed => {
            let ended = status.restore_item_operations_completed + status.restore_item_operations_failed;
            let all = counted(status.restore_item_operations_attempted, "operation");
            Verdict::new(
                Tone::Busy,
                with_trouble(format!("All items are restored; {ended} of {all} have ended")),
            )
        }
        RestorePhase::Finalizing | RestorePhase::FinalizingPartiallyFailed => Verdict::new(
            Tone::Busy,
            with_trouble("All items are restored; the last steps are being done".to_owned()),
        ),
        RestorePhase::Completed => Verdict::new(
            Tone::Good,
            match status.warnings {
                ..=0 => "Everything was restored.".to_owned(),
                warnings => format!("Everything was restored, with {}.", counted(warnings, "warning")),
            },
        ),
        RestorePhase::PartiallyFailed => {
            let troubles = troubles(status.errors, status.warnings);
            let troubles = if troubles.is_empty() { String::new() } else { format!(" ({troubles})") };
            let cancelled = if restore.is_cancelled() { "It was cancelled. " } else { "" };
            Verdict::new(Tone::Bad, format!("{cancelled}Something was not restored{troubles}."))
                .because(status.failure_reason.as_deref().map(plain))
        }
        RestorePhase::Failed => Verdict::new(Tone::Bad, "It failed; what it had restored by then stays.")
            .because(Some(
                status
                    .failure_reason
                    .as_deref()
                    .map_or_else(|| "The server gave no reason.".to_owned(), plain),
            )),
        RestorePhase::FailedValidation => {
            Verdict::new(Tone::Bad, "It never ran: what it asks for is not possible.")
                .because(status.validation_errors.iter().map(|error| plain(error)))
        }
        RestorePhase::Unknown(_) => Verdict::new(
            Tone::Unknown,
            "This phase is not known to this version of kubectl backup: it is shown, not judged.",
        ),
    }
}

/// The whole description.
pub fn describe(facts: Facts<'_>, now: Timestamp) -> Description {
    let Facts { restore, backup, location, events, ledger, stored } = facts;
    let (meta, status, spec, phase) = (&restore.metadata, &restore.status, &restore.spec, restore.phase());
    let name = meta.name.clone().unwrap_or_default();
    let namespace = meta.namespace.clone().unwrap_or_default();
    let uid = meta.uid.clone().unwrap_or_default();

    let backup_spec = backup.known().and_then(Option::as_ref).map(|backup| &backup.spec);
    let lock = ledger.map(|ledger| {
        let footprint = Footprint::of_restore(spec, backup_spec);
        part::lock(ledger.as_ref(), &ObjectKey::restore(&namespace, &name), &uid, &footprint)
    });
    let mut verdict = verdict(restore, now);
    if phase.is_active() {
        verdict = waits_for_turn(&lock, phase == RestorePhase::New).unwrap_or(verdict);
        verdict.causes.extend(in_the_way(&lock));
        if let (Some(wanted), Part::Known(None)) = (&spec.backup_name, &backup) {
            verdict.causes.push(format!("Backup {} does not exist.", plain(wanted)));
        }
    }
    let backup_name = spec.backup_name.clone().unwrap_or_default();
    let description = Description {
        api_version: API_VERSION,
        kind: "RestoreDescription",
        name,
        namespace,
        uid,
        phase: plain(phase.as_str()),
        tone: verdict.tone,
        verdict: verdict.sentence,
        causes: verdict.causes,
        restorable: None,
        created: meta.creation_timestamp.as_ref().map(|time| time.0),
        started: status.start_timestamp.as_ref().map(|time| time.0),
        completed: status.completion_timestamp.as_ref().map(|time| time.0),
        expires: None,
        errors: status.errors,
        warnings: status.warnings,
        items: status
            .progress
            .as_ref()
            .map(|progress| Count { done: progress.items_restored, total: progress.total_items }),
        operations: (status.restore_item_operations_attempted > 0).then_some(Attempts {
            attempted: status.restore_item_operations_attempted,
            completed: Some(status.restore_item_operations_completed),
            failed: Some(status.restore_item_operations_failed),
        }),
        hooks: status.hook_status.as_ref().filter(|hooks| hooks.hooks_attempted > 0).map(|hooks| Attempts {
            attempted: hooks.hooks_attempted,
            completed: None,
            failed: Some(hooks.hooks_failed),
        }),
        snapshots: None,
        facts: own_facts(spec, &backup),
        timeline: timeline(
            [
                meta.creation_timestamp.as_ref(),
                status.start_timestamp.as_ref(),
                status.completion_timestamp.as_ref(),
            ],
            &stored,
        ),
        previous: Part::Known(None),
        stored,
        location: location
            .map(|location| location.as_ref().map(|location| LocationView::of(location, &backup_name))),
        lock,
        deletions: Part::Known(Vec::new()),
        events: events.map(|events| part::events(&events)),
        next: Vec::new(),
    };
    Description { next: next::for_restore(&description, &phase, spec.backup_name.as_deref()), ..description }
}

fn own_facts(spec: &RestoreSpec, backup: &Part<Option<Backup>>) -> Vec<Fact> {
    let from = match (&spec.backup_name, &spec.schedule_name) {
        (Some(name), _) => {
            let state = match backup {
                Part::Known(Some(backup)) => format!("  {}", plain(backup.phase().as_str())),
                Part::Known(None) => "  not found".to_owned(),
                Part::Missing { unavailable } => format!("  state unavailable: {unavailable}"),
            };
            format!("backup {}{state}", plain(name))
        }
        (None, Some(schedule)) => format!("the newest completed backup of schedule {}", plain(schedule)),
        (None, None) => "nothing: it names no backup".to_owned(),
    };
    let mut facts = vec![Fact { title: "From", text: from }, Fact { title: "Scope", text: scope(spec) }];
    if !spec.namespace_mapping.is_empty() {
        let pairs: Vec<String> =
            spec.namespace_mapping.iter().map(|(from, to)| format!("{from} → {to}")).collect();
        facts.push(Fact { title: "Mapped", text: list(&pairs) });
    }
    if let Some(policy) =
        spec.existing_resource_policy.as_deref().filter(|policy| !matches!(*policy, "" | "none"))
    {
        facts.push(Fact { title: "Existing", text: format!("policy {}", plain(policy)) });
    }
    facts
}

/// What the restore is about, defaults left out.
pub fn scope(spec: &RestoreSpec) -> String {
    let mut parts = vec![namespaces(&spec.included_namespaces, &spec.excluded_namespaces)];
    let everything =
        spec.included_resources.is_empty() || spec.included_resources.iter().any(|one| one == "*");
    if !everything {
        parts.push(format!("resources {}", list(&spec.included_resources)));
    }
    // The server appends what is never restored (Velero `pkg/controller/restore_controller.go`): no choice of a person.
    let chosen: Vec<String> = spec
        .excluded_resources
        .iter()
        .filter(|one| !NON_RESTORABLE.contains(&one.as_str()))
        .cloned()
        .collect();
    if !chosen.is_empty() {
        parts.push(format!("except resources {}", list(&chosen)));
    }
    match spec.include_cluster_resources {
        Some(true) => parts.push("with cluster-scoped resources".to_owned()),
        Some(false) => parts.push("without cluster-scoped resources".to_owned()),
        None => {}
    }
    parts.extend(selectors(spec.label_selector.as_ref(), spec.or_label_selectors.as_deref()));
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use backup_core::api::RestoreStatus;

    use super::*;

    #[test]
    fn every_phase_has_its_verdict() {
        let of = |phase: &str| {
            let phase = Some(RestorePhase::from(phase));
            verdict(
                &Restore {
                    status: RestoreStatus { phase, ..RestoreStatus::default() },
                    ..Restore::default()
                },
                Timestamp::UNIX_EPOCH,
            )
        };
        for phase in RestorePhase::KNOWN {
            let tone = match *phase {
                "Completed" => Tone::Good,
                "PartiallyFailed" | "Failed" | "FailedValidation" => Tone::Bad,
                _ => Tone::Busy,
            };
            assert_eq!(of(phase).tone, tone, "{phase}");
            assert!(of(phase).sentence.ends_with('.'), "{phase}");
        }
        assert_eq!(of("Compacting").tone, Tone::Unknown);
    }
}
