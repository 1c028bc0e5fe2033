use backup_core::{
    api::{
        BackupStorageLocationSpec,
        backup_repository::{BackupRepositorySpec, Maintenance},
        backup_storage_location::AccessMode,
    },
    repository_records::{DATA_CHECK_ANNOTATION, KEY_CHANGE_ANNOTATION, KeyWork},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rstest::rstest;

use super::*;
use crate::volumes::data_mover::repository::{
    check::CHECK_ANNOTATION,
    verdict::{KnownState, known},
};

pub(super) const INPUTS: &str = "inputs";

pub(super) fn now() -> Timestamp {
    "2026-11-01T12:00:00Z".parse().unwrap()
}

pub(super) fn ago(seconds: i64) -> Timestamp {
    let time = jiff::SignedDuration::from_secs(seconds);
    now().checked_sub(time).unwrap()
}

pub(super) fn present() -> PasswordSecret {
    PasswordSecret::Present {
        version: "u/1".to_owned(),
    }
}

pub(super) fn location(is_read_only: bool) -> BackupStorageLocation {
    let spec = BackupStorageLocationSpec {
        access_mode: is_read_only.then_some(AccessMode::ReadOnly),
        ..BackupStorageLocationSpec::default()
    };
    BackupStorageLocation::new("default", spec)
}

/// A repository in this phase, maintained an hour ago, without a check.
pub(super) fn repository(phase: Option<Phase>) -> BackupRepository {
    let spec = BackupRepositorySpec {
        volume_namespace: "shop".to_owned(),
        backup_storage_location: "default".to_owned(),
        repository_type: UploaderType::Restic,
        maintenance_frequency: DEFAULT_FREQUENCY,
        ..BackupRepositorySpec::default()
    };
    let mut repository = BackupRepository::new(&repository_name("shop", "default"), spec);
    repository.status.phase = phase;
    repository.status.last_maintenance_time = Some(Time(ago(3600)));
    repository
}

/// The same, checked `seconds` ago.
fn checked(phase: Phase, seconds: i64, inputs: &str, is_final: bool) -> BackupRepository {
    let mut repository = repository(Some(phase));
    let check = Check {
        inputs: inputs.to_owned(),
        at: ago(seconds),
        is_final,
    };
    repository.metadata.annotations =
        Some([(CHECK_ANNOTATION.to_owned(), check.annotation())].into());
    repository
}

/// Facts without a pod.
pub(super) fn facts<'a>(
    repository: &'a BackupRepository,
    location: Option<&'a BackupStorageLocation>,
    password: &'a PasswordSecret,
) -> Facts<'a> {
    Facts {
        repository,
        location,
        password,
        inputs: INPUTS.to_owned(),
        pod: None,
        node: NodeState::Unknown,
        has_check_slot: false,
        prepare_timeout: Duration::from_mins(30),
        now: now(),
    }
}

pub(super) fn shown(plan: &Plan<'_>) -> String {
    match plan {
        Plan::Nothing => "nothing".to_owned(),
        Plan::Wait(time) => format!("wait {}", time.as_secs()),
        Plan::Record(end) if end.is_forced => format!("force {:?} {:?}", end.work, end.failure),
        Plan::Record(end) => format!("record {:?} {:?}", end.work, end.failure),
        Plan::ReportStuck { message, .. } => format!("report {message}"),
        Plan::Inspect => "inspect".to_owned(),
        Plan::Publish(verdict) => format!("publish {}", verdict.phase()),
        Plan::Remark(remark) => format!("remark {remark:?}"),
        Plan::ChangeKeys(_, change) => format!("keys {:?}", change.work),
        Plan::Maintain(_) => "maintain".to_owned(),
        Plan::Check(_) => "check".to_owned(),
    }
}

fn plan(repository: &BackupRepository, location: Option<&BackupStorageLocation>) -> String {
    shown(&decide(&facts(repository, location, &present())))
}

#[rstest]
#[case::new(repository(None), "inspect")]
#[case::new_with_a_phase(repository(Some(Phase::New)), "inspect")]
#[case::ready_without_a_check(repository(Some(Phase::Ready)), "inspect")]
#[case::ready(checked(Phase::Ready, 9999, INPUTS, true), "wait 300")]
#[case::ready_and_something_has_changed(checked(Phase::Ready, 1, "other", true), "inspect")]
#[case::failed(checked(Phase::NotReady, 10, INPUTS, false), "wait 290")]
#[case::failed_five_minutes_ago(checked(Phase::NotReady, 300, INPUTS, false), "inspect")]
#[case::failed_in_the_future(checked(Phase::NotReady, -99, INPUTS, false), "wait 300")]
#[case::unusable(checked(Phase::NotReady, 600, INPUTS, true), "wait 300")]
#[case::unusable_for_an_hour(checked(Phase::NotReady, 3600, INPUTS, true), "inspect")]
#[case::unusable_and_something_has_changed(checked(Phase::NotReady, 1, "other", true), "inspect")]
#[case::a_newer_phase(checked("Tomorrow".into(), 1, INPUTS, true), "inspect")]
fn a_repository_is_looked_for_when_that_may_give_another_result(
    #[case] repository: BackupRepository,
    #[case] expected: &str,
) {
    let location = location(false);
    assert_eq!(plan(&repository, Some(&location)), expected);
}

#[rstest]
#[case(9, "wait 1")]
#[case(10, "inspect")]
fn a_repository_is_looked_for_several_times_while_a_transfer_waits(
    #[case] age: i64,
    #[case] expected: &str,
) {
    let repository = checked(Phase::NotReady, age, INPUTS, false);
    let (location, password) = (location(false), present());
    let mut facts = facts(&repository, Some(&location), &password);
    facts.prepare_timeout = Duration::from_secs(30);
    assert_eq!(shown(&decide(&facts)), expected);
}

#[rstest]
#[case::known(checked(Phase::NotReady, 9999, INPUTS, true), "wait 300")]
#[case::was_ready(checked(Phase::Ready, 1, "other", true), "publish NotReady")]
#[case::new(repository(None), "publish NotReady")]
fn without_its_location_a_repository_is_not_ready(
    #[case] repository: BackupRepository,
    #[case] expected: &str,
) {
    assert_eq!(plan(&repository, None), expected);
}

#[test]
fn repositories_of_others_are_left_alone() {
    let location = location(false);
    let mut kopia = repository(None);
    kopia.spec.repository_type = UploaderType::Kopia;
    let mut of_velero = repository(None);
    of_velero.metadata.name = Some("shop-default-restic-x7k2p".to_owned());
    let mut deleted = repository(None);
    deleted.metadata.deletion_timestamp = Some(Time(now()));
    for repository in [kopia, of_velero, deleted] {
        assert_eq!(plan(&repository, Some(&location)), "nothing");
    }
}

#[rstest]
#[case::an_hour_ago("24h", Some(3600), None, false, "wait 300")]
#[case::soon("24h", Some(86_390), None, false, "wait 10")]
#[case::a_day_ago("24h", Some(86_400), None, false, "maintain")]
#[case::more_often("1h", Some(3600), None, false, "maintain")]
#[case::no_frequency("0s", Some(3600), None, false, "wait 300")]
#[case::a_negative_one("-1s", Some(86_400), None, false, "maintain")]
#[case::never("24h", None, None, false, "maintain")]
#[case::failed_just_now("24h", Some(99_999), Some(10), false, "wait 300")]
#[case::failed_an_hour_ago("24h", Some(99_999), Some(3600), false, "maintain")]
#[case::read_only("24h", Some(99_999), None, true, "wait 300")]
fn a_repository_is_maintained_when_it_is_due(
    #[case] frequency: &str,
    #[case] last: Option<i64>,
    #[case] failed: Option<i64>,
    #[case] is_read_only: bool,
    #[case] expected: &str,
) {
    let location = location(is_read_only);
    let mut repository = checked(Phase::Ready, 1, INPUTS, true);
    repository.spec.maintenance_frequency = frequency.parse().unwrap();
    repository.status.message = remark(&repository, &location, &present());
    repository.status.last_maintenance_time = last.map(|seconds| Time(ago(seconds)));
    repository.status.recent_maintenance = failed
        .map(|seconds| Maintenance {
            result: Some(MaintenanceResult::Failed),
            complete_timestamp: Some(Time(ago(seconds))),
            ..Maintenance::default()
        })
        .into_iter()
        .collect();
    assert_eq!(plan(&repository, Some(&location)), expected);
}

#[test]
fn what_is_known_holds_until_something_changes() {
    let known_at = |repository: &BackupRepository| known(repository, INPUTS);
    let mut failed = checked(Phase::NotReady, 1, INPUTS, false);
    failed.status.message = Some("why".to_owned());
    assert_eq!(known_at(&failed), KnownState::Waiting("why".to_owned()));
    let mut unusable = checked(Phase::NotReady, 1, INPUTS, true);
    unusable.status.message = Some("why".to_owned());
    assert_eq!(known_at(&unusable), KnownState::Unusable("why".to_owned()));
    let ready = checked(Phase::Ready, 99_999, INPUTS, true);
    assert_eq!(known_at(&ready), KnownState::Ready);
    for stale in [
        repository(None),
        repository(Some(Phase::Ready)),
        checked(Phase::Ready, 1, "other", true),
        checked(Phase::New, 1, INPUTS, true),
    ] {
        assert_eq!(known_at(&stale), KnownState::Stale);
    }
}

#[test]
fn location_password_and_image_are_inputs() {
    let mut moved = location(false);
    moved.spec.object_storage.bucket = "other".to_owned();
    let (here, read_only) = (location(false), location(true));
    let other = PasswordSecret::Present {
        version: "u/2".to_owned(),
    };
    let all = [
        inputs(Some(&here), &present(), "i"),
        inputs(Some(&moved), &present(), "i"),
        inputs(Some(&read_only), &present(), "i"),
        inputs(None, &present(), "i"),
        inputs(Some(&here), &other, "i"),
        inputs(Some(&here), &PasswordSecret::Absent, "i"),
        inputs(Some(&here), &present(), "j"),
    ];
    let different: std::collections::BTreeSet<&String> = all.iter().collect();
    assert_eq!(different.len(), all.len());
    let mut seen_later = location(false);
    seen_later.status.message = Some("available".to_owned());
    assert_eq!(inputs(Some(&seen_later), &present(), "i"), all[0]);
}

/// The same repository with this annotation.
fn annotated(mut repository: BackupRepository, name: &str, text: String) -> BackupRepository {
    let annotations = repository.metadata.annotations.get_or_insert_default();
    annotations.insert(name.to_owned(), text);
    repository
}

#[rstest]
#[case::never(None, None, "check")]
#[case::an_hour_ago(Some(3600), None, "wait 300")]
#[case::soon(Some(86_390), None, "wait 10")]
#[case::a_day_ago(Some(86_400), None, "check")]
#[case::failed_just_now(Some(99_999), Some(10), "wait 300")]
#[case::failed_an_hour_ago(Some(99_999), Some(3600), "check")]
fn the_data_of_a_repository_is_checked_each_day(
    #[case] checked_before: Option<i64>,
    #[case] failed_before: Option<i64>,
    #[case] expected: &str,
) {
    let check = DataCheck {
        checked: checked_before.map(ago),
        failed: failed_before.map(ago),
        ..DataCheck::default()
    };
    let repository = checked(Phase::Ready, 1, INPUTS, true);
    let repository = annotated(repository, DATA_CHECK_ANNOTATION, check.annotation());
    let (read_only, password) = (location(true), present());
    let mut facts = facts(&repository, Some(&read_only), &password);
    facts.has_check_slot = true;
    assert_eq!(shown(&decide(&facts)), expected, "in any location");
    facts.has_check_slot = false;
    assert_ne!(shown(&decide(&facts)), "check", "others run");
}

#[rstest]
#[case::none(None, false, "wait 300")]
#[case::requested(Some("now"), false, "maintain")]
#[case::read_only(Some("now"), true, "remark")]
fn a_requested_maintenance_begins_at_once_also_after_one_that_failed(
    #[case] request: Option<&str>,
    #[case] is_read_only: bool,
    #[case] expected: &str,
) {
    let location = location(is_read_only);
    let mut repository = checked(Phase::Ready, 1, INPUTS, true);
    repository.status.recent_maintenance = vec![Maintenance {
        result: Some(MaintenanceResult::Failed),
        complete_timestamp: Some(Time(ago(10))),
        ..Maintenance::default()
    }];
    if let Some(request) = request {
        repository = annotated(
            repository,
            MAINTENANCE_REQUEST_ANNOTATION,
            request.to_owned(),
        );
    }
    let plan = plan(&repository, Some(&location));
    assert!(plan.starts_with(expected), "{plan}");
}

#[rstest]
#[case::neither("", None, "wait 300")]
#[case::requested("", Some("now"), "check")]
#[case::met("met", None, "wait 300")]
#[case::met_and_failed_an_hour_ago("met", None, "check")]
fn a_check_begins_at_once_where_it_was_requested_or_damage_was_met(
    #[case] suspicion: &str,
    #[case] request: Option<&str>,
    #[case] expected: &str,
) {
    let failed = if expected == "check" { 3600 } else { 10 };
    let check = DataCheck {
        checked: Some(ago(7200)),
        failed: Some(ago(if request.is_some() { 10 } else { failed })),
        suspicion: suspicion.to_owned(),
        ..DataCheck::default()
    };
    let mut repository = checked(Phase::Ready, 1, INPUTS, true);
    repository = annotated(repository, DATA_CHECK_ANNOTATION, check.annotation());
    if let Some(request) = request {
        repository = annotated(repository, CHECK_REQUEST_ANNOTATION, request.to_owned());
    }
    let (location, password) = (location(false), present());
    repository.status.message = remark(&repository, &location, &password);
    assert_eq!(repository.status.message.is_some(), !suspicion.is_empty());
    let mut facts = facts(&repository, Some(&location), &password);
    facts.has_check_slot = true;
    assert_eq!(shown(&decide(&facts)), expected);
    facts.has_check_slot = false;
    let waits = if request.is_some() {
        "wait 60"
    } else {
        "wait 300"
    };
    assert_eq!(shown(&decide(&facts)), waits, "others run");
}

#[test]
fn a_maintenance_comes_before_a_check() {
    let mut repository = checked(Phase::Ready, 1, INPUTS, true);
    repository.status.last_maintenance_time = None;
    let (location, password) = (location(false), present());
    let mut facts = facts(&repository, Some(&location), &password);
    facts.has_check_slot = true;
    assert_eq!(shown(&decide(&facts)), "maintain");
    assert!(may_be_checked(&facts), "while uploads hold it up");
}

#[rstest]
#[case::requested("u/1", false, None, "keys Add")]
#[case::done("u/1", true, None, "wait 300")]
#[case::of_another_secret("u/0", false, None, "wait 300")]
#[case::failed_just_now("u/1", false, Some(10), "remark")]
#[case::failed_five_minutes_ago("u/1", false, Some(300), "keys Add")]
fn keys_are_changed_when_that_is_requested_for_this_secret(
    #[case] secret: &str,
    #[case] is_done: bool,
    #[case] failed_before: Option<i64>,
    #[case] expected: &str,
) {
    let change = KeyChange {
        is_done,
        failed: failed_before.map(ago),
        failure: "why".to_owned(),
        ..KeyChange::requested(KeyWork::Add, secret)
    };
    let ready = checked(Phase::Ready, 1, INPUTS, true);
    let repository = annotated(ready, KEY_CHANGE_ANNOTATION, change.annotation());
    let location = location(false);
    let found = plan(&repository, Some(&location));
    assert!(found.starts_with(expected), "{found}");
    let unusable = checked(Phase::NotReady, 1, "other", true);
    let repository = annotated(unusable, KEY_CHANGE_ANNOTATION, change.annotation());
    let found = plan(&repository, Some(&location));
    let is_changed = expected.starts_with("keys");
    assert_eq!(found.starts_with("keys"), is_changed, "not ready: {found}");
}

#[rstest]
#[case::none("0s")]
#[case::negative("-1h0m0s")]
fn a_frequency_that_is_not_above_zero_is_published_until_it_is_corrected(#[case] frequency: &str) {
    let location = location(false);
    let mut repository = checked(Phase::Ready, 1, INPUTS, true);
    repository.spec.maintenance_frequency = frequency.parse().unwrap();
    let published = plan(&repository, Some(&location));
    assert!(
        published.starts_with("remark")
            && published.contains(&format!("is {frequency}, and"))
            && published.contains("every 24h0m0s"),
        "{published}"
    );
    repository.status.message = remark(&repository, &location, &present());
    assert_eq!(plan(&repository, Some(&location)), "wait 300");
    repository.spec.maintenance_frequency = DEFAULT_FREQUENCY;
    assert_eq!(plan(&repository, Some(&location)), "remark None");
}

#[test]
fn damage_and_keys_that_could_not_be_changed_are_published_until_they_are_gone() {
    let check = DataCheck {
        checked: Some(ago(1)),
        damage: "it is damaged".to_owned(),
        ..DataCheck::default()
    };
    let change = KeyChange {
        failed: Some(ago(1)),
        failure: "why".to_owned(),
        ..KeyChange::requested(KeyWork::Remove, "u/1")
    };
    let ready = checked(Phase::Ready, 1, INPUTS, true);
    let damaged = annotated(ready.clone(), DATA_CHECK_ANNOTATION, check.annotation());
    let mut both = annotated(damaged, KEY_CHANGE_ANNOTATION, change.annotation());
    let location = location(false);
    let message =
        "it is damaged; its keys could not be changed for the rotation of the password: why";
    let published = plan(&both, Some(&location));
    assert_eq!(published, format!("remark Some({message:?})"));
    both.status.message = Some(message.to_owned());
    assert_eq!(plan(&both, Some(&location)), "wait 300");
    let mut mended = ready;
    mended.status.message = Some(message.to_owned());
    assert_eq!(plan(&mended, Some(&location)), "remark None");
    mended.status.message = Some(String::new());
    assert_eq!(plan(&mended, Some(&location)), "wait 300");
}
