use backup_core::{
    api::transfer::DataUploadSpec,
    data_movement::{MoverFailure, MoverFailures},
};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rstest::rstest;

use super::*;
use crate::volumes::data_mover::repository_wait::WAIT_ANNOTATION;

const ACTIVE: [MovePhase; 3] = [
    MovePhase::Accepted,
    MovePhase::Prepared,
    MovePhase::InProgress,
];
const ENDED: [MovePhase; 3] = [MovePhase::Completed, MovePhase::Failed, MovePhase::Canceled];

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn minutes_ago(minutes: i64) -> Timestamp {
    now()
        .checked_sub(SignedDuration::from_mins(minutes))
        .unwrap()
}

/// Made and accepted a minute ago.
fn upload(phase: Option<MovePhase>) -> DataUpload {
    let mut upload = DataUpload::new("upload-data-1", DataUploadSpec::default());
    upload.spec.mover.datamover = Some(DATA_MOVER.to_owned());
    upload.metadata.creation_timestamp = Some(Time(minutes_ago(1)));
    if phase.is_some() && phase != Some(MovePhase::New) {
        upload.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
        upload.status.transfer.accepted_timestamp = Some(Time(minutes_ago(1)));
    }
    upload.status.transfer.phase = phase;
    upload
}

fn cancelled(phase: Option<MovePhase>) -> DataUpload {
    let mut upload = upload(phase);
    upload.spec.mover.cancel = true;
    upload
}

fn deleted(phase: Option<MovePhase>) -> DataUpload {
    let mut upload = upload(phase);
    upload.metadata.deletion_timestamp = Some(Time(now()));
    upload
}

fn annotated(mut upload: DataUpload, key: &str, value: &str) -> DataUpload {
    let annotations = upload.metadata.annotations.get_or_insert_default();
    annotations.insert(key.to_owned(), value.to_owned());
    upload
}

fn source() -> SourceSnapshot {
    SourceSnapshot {
        handle: "snap-1".to_owned(),
        driver: "disk.example.com".to_owned(),
        bytes: 1 << 30,
        ..SourceSnapshot::default()
    }
}

fn facts() -> Facts {
    Facts {
        source: Source::Ready(source()),
        repository: RepositoryState::Ready,
        has_room: true,
        pod: None,
        claim_problem: None,
        progress: None,
        prepare_timeout: Duration::from_mins(30),
    }
}

fn pod(state: PodState) -> SeenPod {
    SeenPod {
        uid: "uid-of-pod".to_owned(),
        state,
        node: Some("node-1".to_owned()),
        deleted: None,
        problem: None,
    }
}

fn with(state: PodState) -> Facts {
    Facts {
        pod: Some(pod(state)),
        ..facts()
    }
}

fn stuck(state: PodState) -> Facts {
    let mut pod = pod(state);
    pod.deleted = Some(minutes_ago(10));
    Facts {
        pod: Some(pod),
        ..facts()
    }
}

fn waiting() -> PodState {
    PodState::Waiting("its pod is being started".to_owned())
}

fn lost_state() -> PodState {
    PodState::Lost("it was killed".to_owned())
}

fn outcome(result: MoverResult, snapshot: Option<&str>) -> MoverOutcome {
    MoverOutcome {
        operation: "backup".to_owned(),
        result,
        message: "the store does not answer".to_owned(),
        snapshot: snapshot.map(str::to_owned),
        files: 3,
        bytes: 70,
        new_bytes: 50,
        ..MoverOutcome::default()
    }
}

fn complete() -> PodState {
    PodState::Ended(outcome(MoverResult::Complete, Some("abc")))
}

fn saved() -> SavedData {
    SavedData {
        snapshot: "abc".to_owned(),
        files: 3,
        bytes: 70,
        new_bytes: 50,
    }
}

fn completed() -> Step {
    Step::End(Ending {
        phase: MovePhase::Completed,
        message: None,
        saved: Some(saved()),
    })
}

fn canceled() -> Step {
    Step::End(Ending::canceled(None))
}

fn step(upload: &DataUpload, facts: &Facts) -> Step {
    decide(upload, facts, now())
}

/// The message of a failure.
fn failure(step: Step) -> String {
    match step {
        Step::End(Ending {
            phase: MovePhase::Failed,
            message: Some(message),
            saved: None,
        }) => message,
        other => panic!("{other:?}"),
    }
}

#[rstest]
#[case::nothing_set(None)]
#[case::new(Some(MovePhase::New))]
fn a_new_upload_is_accepted_once_snapshot_place_and_repository_are_there(
    #[case] phase: Option<MovePhase>,
) {
    let upload = upload(phase);
    assert_eq!(step(&upload, &facts()), Step::Accept);
    let why = || "why".to_owned();
    let source = Facts {
        source: Source::Waiting(why()),
        ..facts()
    };
    assert_eq!(step(&upload, &source), Step::AwaitSource(why()));
    for (repository, expected) in [
        (RepositoryState::Busy(why()), Step::AwaitSource(why())),
        (
            RepositoryState::Waiting(why()),
            Step::AwaitRepository(why()),
        ),
        (
            RepositoryState::Unusable(why()),
            Step::AwaitRepository(why()),
        ),
    ] {
        let facts = Facts {
            repository,
            ..facts()
        };
        assert_eq!(step(&upload, &facts), expected);
    }
    let full = Facts {
        has_room: false,
        ..facts()
    };
    assert!(matches!(step(&upload, &full), Step::Queue(_)));
}

#[test]
fn a_snapshot_that_can_never_be_read_fails_the_upload_at_any_time_before_its_pod() {
    let facts = Facts {
        source: Source::Unusable("it was deleted".to_owned()),
        ..facts()
    };
    for phase in [
        None,
        Some(MovePhase::New),
        Some(MovePhase::Accepted),
        Some(MovePhase::Prepared),
    ] {
        assert_eq!(failure(step(&upload(phase), &facts)), "it was deleted");
    }
}

/// An upload that was made long ago, and has waited for its repository for this time.
fn awaiting_repository(minutes: i64) -> DataUpload {
    let mut upload = annotated(
        upload(None),
        WAIT_ANNOTATION,
        &minutes_ago(minutes).to_string(),
    );
    upload.metadata.creation_timestamp = Some(Time(minutes_ago(300)));
    upload
}

#[test]
fn a_repository_that_is_not_ready_in_time_fails_the_upload_with_the_reason() {
    let pull = "its pod does not start (ImagePullBackOff)".to_owned();
    let facts = Facts {
        repository: RepositoryState::Waiting(pull.clone()),
        ..facts()
    };
    let awaited = Step::AwaitRepository(pull.clone());
    assert_eq!(step(&awaiting_repository(29), &facts), awaited);
    assert_eq!(
        failure(step(&awaiting_repository(30), &facts)),
        format!("its repository was not ready within 30m0s (--data-mover-prepare-timeout): {pull}")
    );
    let mut queued = upload(None);
    queued.metadata.creation_timestamp = Some(Time(minutes_ago(300)));
    assert_eq!(step(&queued, &facts), awaited, "other waits do not count");
}

#[test]
fn a_repository_that_stays_unusable_fails_the_upload() {
    let facts = Facts {
        repository: RepositoryState::Unusable("bring back the Secret".to_owned()),
        ..facts()
    };
    let awaited = Step::AwaitRepository("bring back the Secret".to_owned());
    assert_eq!(step(&awaiting_repository(29), &facts), awaited);
    let message = failure(step(&awaiting_repository(30), &facts));
    assert_eq!(message, "bring back the Secret");
}

#[test]
fn a_repository_in_maintenance_is_awaited_as_long_as_it_takes() {
    let facts = Facts {
        repository: RepositoryState::Busy("maintenance".to_owned()),
        ..facts()
    };
    let expected = Step::AwaitSource("maintenance".to_owned());
    assert_eq!(step(&awaiting_repository(300), &facts), expected);
}

#[rstest]
#[case(MovePhase::Accepted)]
#[case(MovePhase::Prepared)]
fn what_is_missing_is_made(#[case] phase: MovePhase) {
    let upload = upload(Some(phase));
    assert_eq!(step(&upload, &facts()), Step::Prepare(source()));
    let not_ready = Facts {
        source: Source::Waiting("not ready".to_owned()),
        ..facts()
    };
    assert_eq!(
        step(&upload, &not_ready),
        Step::AwaitPod("not ready".to_owned())
    );
}

#[test]
fn a_pod_that_exists_makes_an_accepted_upload_prepared_and_is_awaited_then() {
    let facts = with(waiting());
    let accepted = upload(Some(MovePhase::Accepted));
    assert_eq!(step(&accepted, &facts), Step::Prepare(source()));
    let prepared = upload(Some(MovePhase::Prepared));
    let expected = Step::AwaitPod("its pod is being started".to_owned());
    assert_eq!(step(&prepared, &facts), expected);
}

#[rstest]
#[case(MovePhase::Accepted, Step::Start { node: Some("node-1".to_owned()) })]
#[case(MovePhase::Prepared, Step::Start { node: Some("node-1".to_owned()) })]
#[case(MovePhase::InProgress, Step::Follow)]
fn a_running_pod_is_published_and_followed(#[case] phase: MovePhase, #[case] expected: Step) {
    let mut upload = upload(Some(phase));
    assert_eq!(step(&upload, &with(PodState::Running)), expected);
    // Only the start has a deadline.
    upload.status.transfer.accepted_timestamp = Some(Time(minutes_ago(300)));
    assert_eq!(step(&upload, &with(PodState::Running)), expected);
}

#[test]
fn the_outcome_of_a_pod_is_the_end_in_every_phase() {
    for phase in ACTIVE {
        assert_eq!(
            step(&upload(Some(phase.clone())), &with(complete())),
            completed()
        );
        let failed = PodState::Ended(outcome(MoverResult::Failed, None));
        let message = failure(step(&upload(Some(phase)), &with(failed)));
        assert_eq!(message, "its data was not saved: the store does not answer");
    }
}

#[test]
fn a_complete_outcome_without_a_snapshot_is_a_failure() {
    let upload = upload(Some(MovePhase::InProgress));
    for snapshot in [None, Some("")] {
        let ended = PodState::Ended(outcome(MoverResult::Complete, snapshot));
        let message = failure(step(&upload, &with(ended)));
        assert!(message.contains("without naming a snapshot"), "{message}");
    }
}

#[rstest]
#[case(
    1,
    1,
    "1 file or folder could not be saved: a/0 (gone); all others were, and can be restored"
)]
#[case(
    2,
    2,
    "2 files or folders could not be saved: a/0 (gone), a/1 (gone); all others were, and can be restored"
)]
#[case(
    900,
    20,
    "900 files or folders could not be saved: a/0 (gone), a/1 (gone), a/2 (gone), a/3 (gone), a/4 (gone) \
    and 895 more; all others were, and can be restored"
)]
fn what_an_incomplete_snapshot_lacks_is_counted_and_named(
    #[case] count: u64,
    #[case] named: usize,
    #[case] expected: &str,
) {
    let first = (0..named).map(|number| MoverFailure {
        path: format!("a/{number}"),
        reason: "gone".to_owned(),
    });
    let outcome = MoverOutcome {
        failures: MoverFailures {
            count,
            first: first.collect(),
        },
        ..outcome(MoverResult::Incomplete, Some("abc"))
    };
    let upload = upload(Some(MovePhase::InProgress));
    let ending = Ending {
        phase: MovePhase::Failed,
        message: Some(expected.to_owned()),
        saved: Some(saved()),
    };
    assert_eq!(
        step(&upload, &with(PodState::Ended(outcome))),
        Step::End(ending)
    );
}

#[test]
fn a_pod_that_does_not_run_in_time_fails_with_the_best_reason() {
    let text = |text: &str| Some(text.to_owned());
    for phase in [MovePhase::Accepted, MovePhase::Prepared] {
        let mut upload = upload(Some(phase));
        upload.status.transfer.accepted_timestamp = Some(Time(minutes_ago(30)));
        let mut late = with(waiting());
        let said = |late: &Facts| failure(step(&upload, late));
        let message = said(&late);
        assert!(
            message.starts_with("its pod did not run within 30m0s (--data-mover-prepare-timeout)")
                && message.ends_with("its pod is being started"),
            "{message}"
        );
        late.pod.as_mut().unwrap().problem = text("FailedMount");
        assert!(said(&late).ends_with("its pod is being started: FailedMount"));
        late.claim_problem = text("no such class");
        assert!(said(&late).ends_with("its volume is not made: no such class"));
        late.pod = None;
        assert!(said(&late).ends_with("no such class"));
        late.claim_problem = None;
        assert!(said(&late).ends_with("its pod was not made"));
        let mut told = upload.clone();
        told.status.transfer.message = text("exceeded quota");
        assert!(failure(step(&told, &late)).ends_with("exceeded quota"));
    }
}

#[test]
fn a_timeout_below_a_minute_is_named_in_seconds() {
    let mut upload = upload(Some(MovePhase::Prepared));
    upload.status.transfer.accepted_timestamp = Some(Time(minutes_ago(1)));
    let mut late = with(waiting());
    late.prepare_timeout = Duration::from_secs(20);
    let message = failure(step(&upload, &late));
    assert!(message.contains("within 20s (--data"), "{message}");
}

#[test]
fn a_lost_pod_is_counted_and_replaced_once() {
    let expected = |why: &str| Step::Retry {
        pod: "uid-of-pod".to_owned(),
        attempt: 2,
        why: why.to_owned(),
    };
    let drained = PodState::Ended(outcome(MoverResult::Cancelled, None));
    for phase in ACTIVE {
        let first = upload(Some(phase));
        assert_eq!(step(&first, &with(lost_state())), expected("it was killed"));
        match step(&first, &with(drained.clone())) {
            Step::Retry { why, .. } => assert!(why.contains("draining"), "{why}"),
            other => panic!("{other:?}"),
        }
        let second = annotated(
            annotated(first, ATTEMPTS_ANNOTATION, "2"),
            LOST_POD,
            "uid-of-another",
        );
        let message = failure(step(&second, &with(lost_state())));
        assert!(
            message.contains("2 attempts") && message.ends_with("it was killed"),
            "{message}"
        );
    }
}

#[test]
fn the_end_of_an_upload_whose_pods_were_lost_names_both_reasons() {
    let first = "it needed more memory than its limit (OOMKilled)";
    let upload = upload(Some(MovePhase::InProgress));
    let upload = annotated(upload, ATTEMPTS_ANNOTATION, "2");
    let upload = annotated(upload, FIRST_LOSS_ANNOTATION, first);
    assert_eq!(
        failure(step(&upload, &with(lost_state()))),
        "its data was not saved in 2 attempts: in the first one it needed more memory than its limit \
         (OOMKilled); in the last one, with fewer threads and smaller buffers, it was killed"
    );
}

#[test]
fn a_pod_that_was_counted_is_removed_and_not_counted_again() {
    let counted = |minutes: i64| {
        let upload = upload(Some(MovePhase::Accepted));
        let mut upload = annotated(
            annotated(upload, ATTEMPTS_ANNOTATION, "2"),
            LOST_POD,
            "uid-of-pod",
        );
        upload.status.transfer.accepted_timestamp = Some(Time(minutes_ago(minutes)));
        upload
    };
    for state in [lost_state(), PodState::Running, complete()] {
        assert_eq!(step(&counted(1), &with(state)), Step::RemovePod);
    }
    let message = failure(step(&counted(30), &with(lost_state())));
    assert!(message.contains("--force"), "{message}");
    assert_eq!(
        step(&counted(1), &facts()),
        Step::Prepare(source()),
        "once it is gone"
    );
}

#[test]
fn a_pod_that_has_disappeared_counts_as_lost_once_it_ran() {
    let expected = Step::Retry {
        pod: String::new(),
        attempt: 2,
        why: "its pod has disappeared".to_owned(),
    };
    let running = upload(Some(MovePhase::InProgress));
    assert_eq!(step(&running, &facts()), expected);
    let again = annotated(running, ATTEMPTS_ANNOTATION, "2");
    assert!(failure(step(&again, &facts())).ends_with("has disappeared"));
}

#[test]
fn a_pod_on_a_node_that_does_not_answer_counts_as_lost() {
    let running = upload(Some(MovePhase::InProgress));
    let mut facts = stuck(PodState::Running);
    match step(&running, &facts) {
        Step::Retry { why, .. } => assert!(why.contains("does not answer"), "{why}"),
        other => panic!("{other:?}"),
    }
    facts.pod.as_mut().unwrap().deleted = Some(minutes_ago(9));
    assert_eq!(step(&running, &facts), Step::Follow, "it may still end");
}

#[rstest]
#[case(cancelled)]
#[case(deleted)]
fn a_cancelled_upload_ends_when_its_pod_is_gone(
    #[case] stopped: fn(Option<MovePhase>) -> DataUpload,
) {
    for phase in [None, Some(MovePhase::New)] {
        assert_eq!(step(&stopped(phase), &facts()), canceled());
    }
    for phase in ACTIVE.into_iter().chain([MovePhase::Canceling]) {
        let upload = stopped(Some(phase));
        assert_eq!(step(&upload, &facts()), canceled());
        for state in [waiting(), PodState::Running, lost_state()] {
            assert_eq!(step(&upload, &with(state)), Step::RemovePod);
        }
        for result in [MoverResult::Cancelled, MoverResult::Failed] {
            let ended = PodState::Ended(outcome(result, None));
            assert_eq!(step(&upload, &with(ended)), canceled());
        }
        assert_eq!(
            step(&upload, &with(complete())),
            completed(),
            "it was complete already"
        );
        match step(&upload, &stuck(PodState::Running)) {
            Step::End(ending) => {
                assert_eq!(ending.phase, MovePhase::Canceled);
                assert!(ending.message.unwrap().contains("--force"));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn another_program_may_ask_for_the_end_by_the_phase() {
    let upload = upload(Some(MovePhase::Canceling));
    assert_eq!(step(&upload, &with(PodState::Running)), Step::RemovePod);
    assert_eq!(step(&upload, &facts()), canceled());
}

#[test]
fn an_ended_upload_is_cleaned_up_until_its_finalizer_is_gone() {
    for phase in ENDED {
        for make in [upload, cancelled, deleted] {
            let mut upload = make(Some(phase.clone()));
            assert_eq!(step(&upload, &with(PodState::Running)), Step::Clean);
            assert!(!is_settled(&upload));
            upload.metadata.finalizers = None;
            assert_eq!(step(&upload, &facts()), Step::Nothing);
            assert!(is_settled(&upload));
        }
    }
}

#[test]
fn the_phase_of_a_newer_version_is_left_alone() {
    let upload = upload(Some(MovePhase::from("Exposing")));
    assert_eq!(step(&upload, &with(PodState::Running)), Step::Nothing);
}

#[test]
fn only_uploads_of_our_data_mover_are_worked_on() {
    let mut upload = upload(None);
    assert!(!is_settled(&upload));
    for other in [None, Some("velero"), Some("other.example.com/mover")] {
        upload.spec.mover.datamover = other.map(str::to_owned);
        assert!(is_settled(&upload), "{other:?}");
    }
}

#[test]
fn only_a_new_upload_that_is_not_stopped_may_be_accepted() {
    assert!(may_be_accepted(&upload(None)));
    assert!(may_be_accepted(&upload(Some(MovePhase::New))));
    assert!(!may_be_accepted(&cancelled(None)));
    assert!(!may_be_accepted(&deleted(None)));
    for phase in ACTIVE.into_iter().chain(ENDED) {
        assert!(!may_be_accepted(&upload(Some(phase))));
    }
}
