//! The scheduled check of a repository: a pod compares the sizes of all packs with the index, walks
//! through all folders, and reads one part of the data, so that all of it is read within a month.
//! Uploads and restores go on meanwhile; a maintenance waits. A check begins at once if a user
//! requests it, or a transfer has met damage.

use std::collections::BTreeSet;

use backup_core::{
    api::{BackupRepository, BackupStorageLocation},
    data_movement::{AffectedSnapshot, CheckReport, MoverOutcome, failure_reason},
    event_reason::EventReason,
    repository_records::{
        CHECK_REQUEST_ANNOTATION, CheckRequest, DATA_CHECK_ANNOTATION, DATA_PARTS, DataCheck,
    },
    text::{counted, listed},
};
use backup_runtime::{
    queue::Action,
    retry::{self, PatchOutcome},
};
use backup_store::is_snapshot_id;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt as _, api::ListParams};
use serde_json::{Value, json};

use super::{
    decide::{Facts, PodEnd},
    patches,
};
use crate::{
    error::ReconcileError,
    volumes::data_mover::{
        DataMover,
        pod::{PodWork, WORK_LABEL},
    },
};

/// Maximum number of checks that run at a time, about: each reads much from its bucket.
const MAX_CHECKS: usize = 2;
/// Maximum number of damaged packs that the next check reads as well.
const MAX_DAMAGED_PACKS: usize = 20;
/// Maximum number of volumes that a message names.
const MAX_NAMED_VOLUMES: usize = 10;

impl DataMover {
    pub(super) async fn has_check_slot(&self) -> Result<bool, ReconcileError> {
        let params = ListParams::default().labels(&format!("{WORK_LABEL}=check"));
        let pods = self.cluster.api::<Pod>().list(&params).await?;
        Ok(pods.items.len() < MAX_CHECKS)
    }

    pub(super) async fn begin_check(
        &self,
        facts: &Facts<'_>,
        location: &BackupStorageLocation,
    ) -> Result<Action, ReconcileError> {
        let last = DataCheck::of(facts.repository.annotations());
        let request = patches::request(facts.repository, CHECK_REQUEST_ANNOTATION);
        let work = PodWork::Check {
            part: (!reads_all_data(request)).then(|| last.next_part()),
            packs: &last.damaged_packs,
            request,
        };
        self.begin_pod(facts, location, work).await
    }

    /// Requests a check, which also reads the packs that a pod could not read. Idempotent.
    pub(super) async fn suspect_damage(
        &self,
        repository: &BackupRepository,
        outcome: &MoverOutcome,
    ) -> Result<(), ReconcileError> {
        let request = CheckRequest::new(Timestamp::now(), false).annotation();
        let patched = retry::status_patch(&self.cluster, repository, |current| {
            let check = suspected(current, outcome)?;
            let annotations = json!({
                DATA_CHECK_ANNOTATION: check.annotation(),
                CHECK_REQUEST_ANNOTATION: request,
            });
            Some(json!({"metadata": {"annotations": annotations}}))
        })
        .await?;
        if let PatchOutcome::Written(written) = patched {
            let name = written.name_any();
            let suspicion = DataCheck::of(written.annotations()).suspicion;
            tracing::error!(repository = name, suspicion, "a transfer has met damage");
            let events = &self.cluster.events;
            events.warning(&written, EventReason::Damaged, &suspicion);
        }
        Ok(())
    }

    /// Records how a check ended. Idempotent.
    pub(super) async fn record_check(
        &self,
        repository: &BackupRepository,
        end: &PodEnd,
    ) -> Result<(), ReconcileError> {
        let now = Timestamp::now();
        let outcome = retry::status_patch(&self.cluster, repository, |current| {
            recorded(current, end, now)
        })
        .await?;
        let PatchOutcome::Written(written) = outcome else {
            return Ok(());
        };
        let name = written.name_any();
        let check = DataCheck::of(written.annotations());
        if check.failed == Some(now) {
            let failure = check.failure;
            tracing::warn!(repository = name, failure, "the check of its data failed");
        } else if check.damage.is_empty() {
            tracing::info!(repository = name, part = check.part, "its data was checked");
        } else {
            let damage = check.damage;
            tracing::error!(repository = name, damage, "its data is damaged");
            let events = &self.cluster.events;
            events.warning(&written, EventReason::Damaged, &damage);
        }
        Ok(())
    }
}

fn reads_all_data(request: Option<&str>) -> bool {
    request.is_some_and(|request| CheckRequest::of(request).reads_all_data)
}

/// The patch after a check, which removes the request that it was for; `None` if that is written
/// already.
fn recorded(current: &BackupRepository, end: &PodEnd, now: Timestamp) -> Option<Value> {
    let next = after(current, end, now)?;
    let mut patch = patches::annotated(DATA_CHECK_ANNOTATION, &next.annotation());
    let served = end.valid_for.as_deref();
    patches::remove_request(current, CHECK_REQUEST_ANNOTATION, served, &mut patch);
    Some(patch)
}

/// The record after a check; `None` if that is written already.
fn after(repository: &BackupRepository, end: &PodEnd, now: Timestamp) -> Option<DataCheck> {
    let last = DataCheck::of(repository.annotations());
    // The next check begins after this one was recorded.
    let recorded = last.checked.max(last.failed);
    if recorded.is_some_and(|at| end.started.is_some_and(|started| at >= started)) {
        return None;
    }
    let outcome = end.outcome.as_ref().filter(|_| end.failure.is_none());
    let report = outcome.and_then(|outcome| Some((outcome, outcome.check.as_deref()?)));
    let Some((outcome, report)) = report else {
        let failure = end.failure.clone();
        return Some(DataCheck {
            failed: Some(now),
            failure: failure.unwrap_or_else(|| "backup-mover left no report".to_owned()),
            ..last
        });
    };
    let served = end.valid_for.as_deref();
    let request = patches::request(repository, CHECK_REQUEST_ANNOTATION);
    let part = if reads_all_data(served) {
        DATA_PARTS
    } else {
        last.next_part()
    };
    let mut next = DataCheck {
        checked: Some(now),
        part,
        damage: damage(&repository.spec.volume_namespace, outcome, report),
        damaged_packs: damaged_packs(outcome),
        ..DataCheck::default()
    };
    // Damage that was met while this check ran is left for the next one.
    if request.is_some() && request != served {
        next.suspicion = last.suspicion;
        add_packs(&mut next, &last.damaged_packs);
    }
    Some(next)
}

/// The record after a pod has met damage; `None` if that is known, or is about to be checked.
fn suspected(repository: &BackupRepository, outcome: &MoverOutcome) -> Option<DataCheck> {
    let mut check = DataCheck::of(repository.annotations());
    let is_first = check.known_damage().is_none();
    let has_new = add_packs(&mut check, &damaged_packs(outcome));
    let example = outcome.failures.first.first();
    let example = example.map_or_else(
        || outcome.message.clone(),
        |first| format!("{}: {}", first.path, first.reason),
    );
    check.suspicion = format!(
        "damage was found in the repository of namespace {} ({example}), and a check is under way: the volumes that it \
         concerns are named when the check has ended",
        repository.spec.volume_namespace
    );
    (is_first || has_new).then_some(check)
}

/// Adds packs for the next check to read. Returns whether there are new ones among them.
fn add_packs(check: &mut DataCheck, packs: &[String]) -> bool {
    let known = check.damaged_packs.len();
    for pack in packs {
        if !check.damaged_packs.contains(pack) && check.damaged_packs.len() < MAX_DAMAGED_PACKS {
            check.damaged_packs.push(pack.clone());
        }
    }
    check.damaged_packs.len() > known
}

/// Describes the damage and the volumes that it concerns; empty if there is none.
fn damage(namespace: &str, outcome: &MoverOutcome, report: &CheckReport) -> String {
    let places = outcome.failures.count;
    if places == 0 {
        return String::new();
    }
    let volumes: BTreeSet<String> = report.affected.iter().map(volume).collect();
    let named: Vec<String> = volumes.into_iter().take(MAX_NAMED_VOLUMES).collect();
    let affected = usize::try_from(report.affected_count).unwrap_or(usize::MAX);
    let consequence = match affected {
        0 => "no backup needs what is damaged".to_owned(),
        _ => format!(
            "these volumes cannot be restored whole: {}",
            listed(&named, affected)
        ),
    };
    let first = outcome.failures.first.first();
    let example = first.map_or_else(String::new, |first| {
        format!(" (such as {}: {})", first.path, first.reason)
    });
    format!(
        "the repository of namespace {namespace} is damaged at {}{example}; {consequence}. docs/use/volumes.md#repositories says what to do",
        counted(places, "place")
    )
}

/// A volume in a backup, by the tags of its snapshot.
fn volume(snapshot: &AffectedSnapshot) -> String {
    let tag = |name: &str| {
        let mut tags = snapshot.tags.split(',');
        tags.find_map(|tag| tag.strip_prefix(name)?.strip_prefix('='))
    };
    match (tag("backup"), tag("claim")) {
        (Some(backup), Some(claim)) => format!("{claim} of backup {backup}"),
        _ => format!("snapshot {}", snapshot.id),
    }
}

/// Whether a pod has ended as the repository is damaged. A check records by itself what it has found.
pub(super) fn has_met_damage(outcome: &MoverOutcome) -> bool {
    outcome.reason.as_deref() == Some(failure_reason::DAMAGED)
        && outcome.operation != "check"
        && outcome.check.is_none()
}

fn damaged_packs(outcome: &MoverOutcome) -> Vec<String> {
    let keys = outcome.failures.first.iter().map(|failure| &failure.path);
    // The id of a pack has the form of any other id.
    let ids = keys.filter_map(|key| key.rsplit('/').next().filter(|id| is_snapshot_id(id)));
    ids.take(MAX_DAMAGED_PACKS).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use backup_core::{
        api::backup_repository::BackupRepositorySpec,
        data_movement::{MoverFailure, MoverFailures, MoverResult},
    };

    use super::*;
    use crate::volumes::data_mover::repository::decide::Work;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn repository(check: &DataCheck) -> BackupRepository {
        let spec = BackupRepositorySpec {
            volume_namespace: "shop".to_owned(),
            ..BackupRepositorySpec::default()
        };
        let mut repository = BackupRepository::new("r", spec);
        let annotations = [(DATA_CHECK_ANNOTATION.to_owned(), check.annotation())];
        repository.metadata.annotations = Some(annotations.into());
        repository
    }

    fn end(failure: Option<&str>, outcome: Option<MoverOutcome>) -> PodEnd {
        PodEnd {
            work: Work::Check,
            failure: failure.map(str::to_owned),
            started: Some(at("2026-11-01T12:00:00Z")),
            outcome,
            valid_for: None,
            is_forced: false,
        }
    }

    fn whole() -> MoverOutcome {
        MoverOutcome {
            operation: "check".to_owned(),
            result: MoverResult::Complete,
            check: Some(Box::default()),
            ..MoverOutcome::default()
        }
    }

    fn damaged() -> MoverOutcome {
        let id = "4f".repeat(32);
        let failure = |path: String, reason: &str| MoverFailure {
            path,
            reason: reason.to_owned(),
        };
        let affected = |tags: &str| AffectedSnapshot {
            id: "5f".repeat(32),
            tags: tags.to_owned(),
            ..AffectedSnapshot::default()
        };
        let report = CheckReport {
            affected_count: 4,
            affected: vec![
                affected("backup=nightly,backup-uid=u,claim=data,upload=x"),
                affected("backup=nightly,backup-uid=u,claim=data,upload=y"),
                affected(""),
            ],
            ..CheckReport::default()
        };
        MoverOutcome {
            result: MoverResult::Incomplete,
            reason: Some("damaged".to_owned()),
            failures: MoverFailures {
                count: 7,
                first: vec![
                    failure(format!("data/4f/{id}"), "it is missing"),
                    failure("index".to_owned(), "a folder is missing"),
                ],
            },
            check: Some(Box::new(report)),
            ..whole()
        }
    }

    #[test]
    fn damage_names_the_volumes_of_the_backups_and_its_packs_are_read_again() {
        let now = at("2026-11-01T13:00:00Z");
        let before = DataCheck {
            checked: Some(at("2026-10-31T12:00:00Z")),
            part: 30,
            ..DataCheck::default()
        };
        let known = repository(&before);
        let check = after(&known, &end(None, Some(damaged())), now).unwrap();
        assert_eq!((check.checked, check.part), (Some(now), 1));
        assert_eq!(check.damaged_packs, ["4f".repeat(32)]);
        let snapshot = format!("snapshot {}", "5f".repeat(32));
        for part in [
            "of namespace shop is damaged at 7 places",
            "it is missing",
            "data of backup nightly",
            &snapshot,
            "and 2 more",
        ] {
            assert!(check.damage.contains(part), "{part}: {}", check.damage);
        }
        let mended = repository(&check);
        let later = PodEnd {
            started: Some(at("2026-11-02T13:00:00Z")),
            ..end(None, Some(whole()))
        };
        let check = after(&mended, &later, at("2026-11-02T13:10:00Z")).unwrap();
        assert!(check.damage.is_empty() && check.damaged_packs.is_empty());
        assert_eq!(check.part, 2);
    }

    #[test]
    fn a_check_that_failed_does_not_hide_damage_and_its_part_is_read_again() {
        let now = at("2026-11-01T13:00:00Z");
        let before = DataCheck {
            checked: Some(at("2026-10-31T12:00:00Z")),
            part: 3,
            damage: "damaged".to_owned(),
            ..DataCheck::default()
        };
        let known = repository(&before);
        for (failure, outcome) in [(Some("the store is away"), None), (None, None)] {
            let check = after(&known, &end(failure, outcome), now).unwrap();
            assert_eq!((check.part, &check.damage[..]), (3, "damaged"));
            assert_eq!(check.checked, before.checked);
            assert_eq!(check.failed, Some(now));
            assert!(!check.failure.is_empty());
        }
    }

    #[test]
    fn a_check_is_recorded_once() {
        let known = repository(&DataCheck::default());
        let now = at("2026-11-01T13:00:00Z");
        for end in [end(None, Some(whole())), end(Some("why"), None)] {
            let check = after(&known, &end, now).unwrap();
            let later = at("2026-11-01T13:01:00Z");
            assert_eq!(after(&repository(&check), &end, later), None);
        }
    }

    #[test]
    fn damage_that_a_restore_has_met_is_checked_at_once_and_known_damage_is_not_checked_again() {
        let restored = MoverOutcome {
            operation: "restore".to_owned(),
            result: MoverResult::Failed,
            check: None,
            ..damaged()
        };
        assert!(has_met_damage(&restored));
        assert!(!has_met_damage(&damaged()), "a check");
        let other = MoverOutcome {
            reason: Some("store".to_owned()),
            ..restored.clone()
        };
        assert!(!has_met_damage(&other));
        let before = DataCheck {
            part: 3,
            damage: "damaged".to_owned(),
            ..DataCheck::default()
        };
        let check = suspected(&repository(&before), &restored).unwrap();
        assert_eq!((check.part, &check.damage[..]), (3, "damaged"));
        assert_eq!(check.damaged_packs, ["4f".repeat(32)]);
        for part in ["namespace shop", "it is missing", "a check is under way"] {
            assert!(check.suspicion.contains(part), "{}", check.suspicion);
        }
        assert_eq!(suspected(&repository(&check), &restored), None);
        // Damage without a pack, such as of the index.
        let of_index = MoverOutcome {
            failures: MoverFailures::default(),
            ..restored
        };
        assert_eq!(suspected(&repository(&before), &of_index), None, "known");
        let first = suspected(&repository(&DataCheck::default()), &of_index);
        assert!(first.is_some_and(|check| !check.suspicion.is_empty()));
    }

    #[test]
    fn damage_that_was_met_during_a_check_is_left_for_the_next_one() {
        let suspicious = DataCheck {
            suspicion: "met".to_owned(),
            damaged_packs: vec!["6f".repeat(32)],
            ..DataCheck::default()
        };
        let mut known = repository(&suspicious);
        let annotations = known.metadata.annotations.get_or_insert_default();
        annotations.insert(CHECK_REQUEST_ANNOTATION.to_owned(), "two".to_owned());
        let now = at("2026-11-01T13:00:00Z");
        for (served, is_over) in [(None, false), (Some("one"), false), (Some("two"), true)] {
            let end = PodEnd {
                valid_for: served.map(str::to_owned),
                ..end(None, Some(whole()))
            };
            let check = after(&known, &end, now).unwrap();
            assert_eq!(check.suspicion.is_empty(), is_over, "{served:?}");
            assert_eq!(check.damaged_packs.is_empty(), is_over, "{served:?}");
            let patch = recorded(&known, &end, now).unwrap();
            let annotations = patch["metadata"]["annotations"].as_object().unwrap();
            let removed = annotations.get(CHECK_REQUEST_ANNOTATION);
            assert_eq!(removed, is_over.then_some(&Value::Null), "{served:?}");
        }
        // A check that was not completed has said nothing.
        let failed = PodEnd {
            valid_for: Some("two".to_owned()),
            ..end(Some("why"), None)
        };
        let check = after(&known, &failed, now).unwrap();
        assert_eq!(check.suspicion, "met");
    }

    #[test]
    fn a_check_that_has_read_all_data_begins_again_with_the_first_part() {
        let last = DataCheck {
            part: 7,
            ..DataCheck::default()
        };
        let now = at("2026-11-01T13:00:00Z");
        let end = PodEnd {
            valid_for: Some(CheckRequest::new(now, true).annotation()),
            ..end(None, Some(whole()))
        };
        let check = after(&repository(&last), &end, now).unwrap();
        assert_eq!((check.part, check.next_part()), (DATA_PARTS, 1));
    }

    #[test]
    fn damage_that_no_backup_needs_is_said_as_such() {
        let outcome = damaged();
        let text = damage("shop", &outcome, &CheckReport::default());
        assert!(text.contains("no backup needs what is damaged"), "{text}");
    }
}
