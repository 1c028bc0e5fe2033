use backup_core::api::{
    BackupStorageLocationSpec,
    backup_repository::{BackupRepositorySpec, Maintenance},
    backup_storage_location::AccessMode,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rstest::rstest;

use super::*;
use crate::data_mover::repository::check::CHECK_ANNOTATION;

const INPUTS: &str = "inputs";
const PREPARE_TIMEOUT: Duration = Duration::from_mins(30);

fn now() -> Timestamp {
    "2026-11-01T12:00:00Z".parse().unwrap()
}

fn ago(seconds: i64) -> Timestamp {
    let time = jiff::SignedDuration::from_secs(seconds);
    now().checked_sub(time).unwrap()
}

fn present() -> PasswordSecret {
    PasswordSecret::Present {
        version: "u/1".to_owned(),
    }
}

fn location(is_read_only: bool) -> BackupStorageLocation {
    let spec = BackupStorageLocationSpec {
        access_mode: is_read_only.then_some(AccessMode::ReadOnly),
        ..BackupStorageLocationSpec::default()
    };
    BackupStorageLocation::new("default", spec)
}

/// A repository in this phase, maintained an hour ago, without a check.
fn repository(phase: Option<Phase>) -> BackupRepository {
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

fn plan(
    repository: &BackupRepository,
    location: Option<&BackupStorageLocation>,
    pod: Option<PodFacts>,
) -> String {
    let facts = Facts {
        repository,
        location,
        password: &present(),
        inputs: INPUTS.to_owned(),
        pod,
        prepare_timeout: PREPARE_TIMEOUT,
        now: now(),
    };
    match decide(&facts) {
        Plan::Nothing => "nothing".to_owned(),
        Plan::Wait(time) => format!("wait {}", time.as_secs()),
        Plan::Record(end) => format!("record {:?} {:?}", end.work, end.failure),
        Plan::Inspect => "inspect".to_owned(),
        Plan::Publish(verdict) => format!("publish {}", verdict.phase()),
        Plan::Maintain(_) => "maintain".to_owned(),
    }
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
    assert_eq!(plan(&repository, Some(&location), None), expected);
}

#[rstest]
#[case::known(checked(Phase::NotReady, 9999, INPUTS, true), "wait 300")]
#[case::was_ready(checked(Phase::Ready, 1, "other", true), "publish NotReady")]
#[case::new(repository(None), "publish NotReady")]
fn without_its_location_a_repository_is_not_ready(
    #[case] repository: BackupRepository,
    #[case] expected: &str,
) {
    assert_eq!(plan(&repository, None, None), expected);
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
        assert_eq!(plan(&repository, Some(&location), None), "nothing");
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
    repository.status.last_maintenance_time = last.map(|seconds| Time(ago(seconds)));
    repository.status.recent_maintenance = failed
        .map(|seconds| Maintenance {
            result: Some(MaintenanceResult::Failed),
            complete_timestamp: Some(Time(ago(seconds))),
            ..Maintenance::default()
        })
        .into_iter()
        .collect();
    assert_eq!(plan(&repository, Some(&location), None), expected);
}

fn ended(result: MoverResult, reason: Option<&str>) -> PodState {
    PodState::Ended(MoverOutcome {
        result,
        reason: reason.map(str::to_owned),
        message: "why".to_owned(),
        ..MoverOutcome::default()
    })
}

#[rstest]
#[case::waits(Work::Init, PodState::Waiting("pull".to_owned()), 1799, "wait 3")]
#[case::waits_too_long(
    Work::Init,
    PodState::Waiting("pull".to_owned()),
    1800,
    "record Init Some(\"its pod has not started within 1800s: pull\")"
)]
#[case::runs(Work::Init, PodState::Running, 2699, "wait 3")]
#[case::runs_too_long(
    Work::Init,
    PodState::Running,
    2700,
    "record Init Some(\"it has not ended within 2700s, and was stopped\")"
)]
#[case::maintains(Work::Maintenance, PodState::Running, 12_599, "wait 3")]
#[case::maintains_too_long(
    Work::Maintenance,
    PodState::Running,
    12_600,
    "record Maintenance Some(\"it has not ended within 12600s, and was stopped\")"
)]
#[case::made(Work::Init, ended(MoverResult::Complete, None), 5, "record Init None")]
#[case::made_before(
    Work::Init,
    ended(MoverResult::Failed, Some("repository_exists")),
    5,
    "record Init None"
)]
#[case::not_made(
    Work::Init,
    ended(MoverResult::Failed, Some("store")),
    5,
    "record Init Some(\"why\")"
)]
#[case::maintained(
    Work::Maintenance,
    ended(MoverResult::Complete, None),
    5,
    "record Maintenance None"
)]
#[case::cancelled(
    Work::Maintenance,
    ended(MoverResult::Cancelled, Some("cancelled")),
    5,
    "record Maintenance Some(\"why\")"
)]
#[case::lost(
    Work::Maintenance,
    PodState::Lost("evicted".to_owned()),
    5,
    "record Maintenance Some(\"evicted\")"
)]
fn a_pod_is_awaited_and_its_end_recorded(
    #[case] work: Work,
    #[case] state: PodState,
    #[case] age: i64,
    #[case] expected: &str,
) {
    let location = location(false);
    let repository = repository(Some(Phase::New));
    let facts = |is_deleting: bool, state: PodState| PodFacts {
        work,
        state,
        created: Some(ago(age)),
        is_deleting,
    };
    let found = plan(&repository, Some(&location), Some(facts(false, state)));
    assert_eq!(found, expected);
    let deleting = facts(true, PodState::Lost("deleted".to_owned()));
    let found = plan(&repository, Some(&location), Some(deleting));
    assert_eq!(found, "wait 3", "until it is gone");
}

#[rstest]
#[case::all_there(present(), true, false, false, "ready")]
#[case::to_be_made(present(), false, false, false, "init")]
#[case::to_be_made_beside_others(present(), false, true, false, "init")]
#[case::first(PasswordSecret::Absent, false, false, false, "password")]
#[case::without_its_password(PasswordSecret::Absent, true, false, false, "bring the Secret back")]
#[case::others_have_the_password(PasswordSecret::Absent, false, true, false, "bring it back")]
#[case::no_key(
    PasswordSecret::NoKey { version: "u/1".to_owned() },
    false,
    false,
    false,
    "has no key repository-password"
)]
#[case::read_only(present(), true, false, true, "ready")]
#[case::read_only_without_a_repository(present(), false, false, true, "is read-only")]
#[case::read_only_without_anything(PasswordSecret::Absent, false, false, true, "is read-only")]
fn a_password_is_never_made_where_data_needs_another(
    #[case] password: PasswordSecret,
    #[case] exists: bool,
    #[case] has_others: bool,
    #[case] is_read_only: bool,
    #[case] expected: &str,
) {
    let (repository, location) = (repository(None), location(is_read_only));
    let facts = Facts {
        repository: &repository,
        location: Some(&location),
        password: &password,
        inputs: INPUTS.to_owned(),
        pod: None,
        prepare_timeout: PREPARE_TIMEOUT,
        now: now(),
    };
    let bucket = BucketFacts {
        url: "s3://b/restic/shop".to_owned(),
        is_read_only,
        exists,
        has_others,
    };
    match inspected(&facts, &bucket) {
        InspectionPlan::Publish(Verdict { message: None, .. }) => assert_eq!(expected, "ready"),
        InspectionPlan::Publish(Verdict {
            message: Some(message),
            is_final,
        }) => assert!(is_final && message.contains(expected), "{message}"),
        InspectionPlan::MakePassword => assert_eq!(expected, "password"),
        InspectionPlan::Init => assert_eq!(expected, "init"),
    }
}

#[rstest]
#[case("wrong_password", Some("velero-repo-credentials"))]
#[case("unsupported", Some("--mover-image"))]
#[case("store", None)]
#[case("damaged", None)]
fn a_repository_that_no_pod_can_open_is_not_ready(
    #[case] reason: &str,
    #[case] expected: Option<&str>,
) {
    let outcome = MoverOutcome {
        reason: Some(reason.to_owned()),
        message: "why".to_owned(),
        ..MoverOutcome::default()
    };
    let verdict = Verdict::of_outcome(&outcome);
    assert_eq!(verdict.is_some(), expected.is_some());
    if let (Some(verdict), Some(expected)) = (verdict, expected) {
        let message = verdict.message.unwrap();
        assert!(message.starts_with("why: ") && message.contains(expected));
        assert!(verdict.is_final);
    }
    assert_eq!(Verdict::of_outcome(&MoverOutcome::default()), None);
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
