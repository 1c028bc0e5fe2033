use proptest::prelude::*;

use super::*;

const TIMEOUT: Duration = Duration::from_mins(10);
const INTERVAL: Duration = Duration::from_secs(10);

fn pace() -> Pace {
    Pace::of(INTERVAL)
}

fn wall() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn fresh() -> OperationState {
    let status = OperationStatus {
        created: Some(wall()),
        ..OperationStatus::default()
    };
    OperationState::new(status, TIMEOUT, Duration::ZERO, wall())
}

fn running() -> Answer {
    Answer::Progress(OperationProgress::default())
}

fn ended(error: &str) -> Answer {
    Answer::Progress(OperationProgress {
        completed: true,
        error: error.to_owned(),
        ..OperationProgress::default()
    })
}

fn passing() -> Answer {
    Answer::Passing("no answer".to_owned())
}

/// Calls and answers until the operation has ended; each call takes `latency`. Returns the time of
/// the end, and the calls.
fn follow(
    mut operation: OperationState,
    latency: Duration,
    mut answer: impl FnMut(usize, Call) -> Answer,
) -> (OperationState, Duration, Vec<(Duration, Call)>) {
    let (mut now, mut calls) = (Duration::ZERO, Vec::new());
    loop {
        match operation.call(now) {
            Call::Nothing => return (operation, now, calls),
            Call::Wait(until) => {
                assert!(until > now, "waits for what is past");
                now = until;
            }
            call => {
                let asked = now;
                let answer = answer(calls.len(), call);
                calls.push((now, call));
                assert!(calls.len() < 10_000, "no end");
                now += latency;
                operation.answered(asked, answer, now, pace(), 0.5);
            }
        }
    }
}

#[test]
fn it_is_asked_at_its_pace_until_it_has_ended() {
    let (operation, at, calls) = follow(fresh(), Duration::ZERO, |n, _| {
        if n < 3 { running() } else { ended("") }
    });
    assert_eq!(operation.status.phase, OperationPhase::Completed);
    assert_eq!(at, INTERVAL * 3);
    assert!(calls.iter().all(|(_, call)| *call == Call::Progress));
}

#[test]
fn done_and_failed_is_failed_with_the_text() {
    let (operation, ..) = follow(fresh(), Duration::ZERO, |_, _| ended("disk on fire"));
    assert_eq!(operation.status.phase, OperationPhase::Failed);
    assert_eq!(operation.status.error, "disk on fire");
}

#[test]
fn what_will_not_pass_ends_it_with_its_text() {
    let (operation, at, _) = follow(fresh(), Duration::ZERO, |_, _| {
        Answer::Final("no such plugin".into())
    });
    assert_eq!(
        (operation.status.phase.as_str(), at),
        ("Failed", Duration::ZERO)
    );
    assert_eq!(operation.status.error, "no such plugin");
}

#[test]
fn errors_that_may_pass_end_nothing_and_stretch_the_pace() {
    let (operation, at, calls) = follow(fresh(), Duration::ZERO, |n, _| {
        if n < 5 { passing() } else { ended("") }
    });
    assert_eq!(operation.status.phase, OperationPhase::Completed);
    assert_eq!(operation.status.error, "", "what is over is over");
    let waits: Vec<_> = calls
        .windows(2)
        .map(|pair| pair[1].0.saturating_sub(pair[0].0))
        .collect();
    assert!(
        waits.is_sorted() && waits[0] > INTERVAL && at < TIMEOUT,
        "{waits:?}"
    );
    assert!(waits.iter().all(|wait| *wait <= pace().cap), "{waits:?}");
}

#[test]
fn hours_of_errors_end_nothing_before_the_deadline() {
    let timeout = Duration::from_hours(4);
    let status = OperationStatus {
        created: Some(wall()),
        ..OperationStatus::default()
    };
    let operation = OperationState::new(status, timeout, Duration::ZERO, wall());
    let (operation, at, calls) = follow(operation, Duration::from_secs(1), |_, _| passing());
    assert!(
        operation
            .status
            .error
            .starts_with("Asynchronous action timed out"),
        "{}",
        operation.status.error
    );
    assert!(
        at >= timeout && calls.len() > 100,
        "{at:?}, {} calls",
        calls.len()
    );
}

#[test]
fn past_its_time_it_is_told_to_stop_and_says_what_is_known() {
    for (name, after, words) in [
        ("it stops", ended("stopped"), "it has ended: stopped"),
        ("it had completed", ended(""), "it completed all the same"),
        (
            "it goes on",
            running(),
            "it has not confirmed that it has stopped",
        ),
        (
            "it is silent",
            passing(),
            "it has not confirmed that it has stopped",
        ),
        (
            "it is gone",
            Answer::Final("no such operation".into()),
            "is not known: no such operation",
        ),
    ] {
        let mut told = false;
        let (operation, at, calls) = follow(fresh(), Duration::ZERO, |_, call| match call {
            Call::Cancel => {
                told = true;
                Answer::Told
            }
            _ if told => after.clone(),
            _ => running(),
        });
        assert_eq!(operation.status.phase, OperationPhase::Failed, "{name}");
        let error = &operation.status.error;
        assert!(
            error.starts_with("Asynchronous action timed out") && error.ends_with(words),
            "{name}: {error}"
        );
        assert_says!(error, "10m0s");
        assert!(at <= TIMEOUT + pace().confirm, "{name}: {at:?}");
        assert_eq!(
            calls
                .iter()
                .filter(|(_, call)| *call == Call::Cancel)
                .count(),
            1,
            "{name}"
        );
        let cancelled = calls
            .iter()
            .position(|(_, call)| *call == Call::Cancel)
            .unwrap();
        assert_eq!(
            calls[cancelled].0, TIMEOUT,
            "{name}: told when its time is over"
        );
        assert_eq!(
            calls[cancelled - 1],
            (TIMEOUT, Call::Progress),
            "{name}: asked once more before"
        );
    }
}

#[test]
fn one_that_ended_while_nobody_looked_has_completed() {
    let status = OperationStatus {
        created: Some(wall() - jiff::SignedDuration::from_hours(10)),
        ..OperationStatus::default()
    };
    let late = OperationState::new(status, TIMEOUT, Duration::ZERO, wall());
    let (operation, _, calls) = follow(late, Duration::ZERO, |_, _| ended(""));
    assert_eq!(
        (operation.status.phase.as_str(), calls.len()),
        ("Completed", 1)
    );
}

#[test]
fn one_that_can_not_be_told_to_stop_says_so() {
    for refusal in [
        Answer::Final("not implemented".into()),
        Answer::Passing("not implemented".into()),
    ] {
        let (operation, at, _) = follow(fresh(), Duration::ZERO, |_, call| match call {
            Call::Cancel => refusal.clone(),
            _ => running(),
        });
        let error = &operation.status.error;
        assert_says!(error, "it could not be told to stop: not implemented");
        assert!(at <= TIMEOUT + pace().confirm * 2, "{at:?}");
    }
}

#[test]
fn a_person_can_stop_it() {
    let mut operation = fresh();
    operation.stop(INTERVAL, pace());
    assert_eq!(operation.call(INTERVAL), Call::Cancel);
    operation.answered(INTERVAL, Answer::Told, INTERVAL, pace(), 0.0);
    assert_eq!(operation.call(INTERVAL), Call::Progress);
    operation.answered(INTERVAL, ended("aborted"), INTERVAL, pace(), 0.0);
    let error = &operation.status.error;
    assert!(
        error.starts_with("cancelled: ") && error.ends_with("it has ended: aborted"),
        "{error}"
    );
}

#[test]
fn one_without_a_time_or_from_the_future_counts_from_now() {
    for created in [None, Some(wall() + jiff::SignedDuration::from_hours(1000))] {
        let status = OperationStatus {
            created,
            ..OperationStatus::default()
        };
        let operation = OperationState::new(status, TIMEOUT, Duration::ZERO, wall());
        assert_eq!(operation.status.created, Some(wall()));
        let (_, at, _) = follow(operation, Duration::ZERO, |_, _| running());
        assert!(at <= TIMEOUT + pace().confirm, "{at:?}");
    }
}

fn any_answer() -> impl Strategy<Value = Answer> {
    let progress = (any::<i64>(), any::<i64>(), ".{0,4}", any::<bool>()).prop_map(
        |(done, total, text, began)| {
            Answer::Progress(OperationProgress {
                done,
                total,
                description: text.clone(),
                error: text,
                started: began.then(Timestamp::now),
                ..OperationProgress::default()
            })
        },
    );
    prop_oneof![
        4 => progress,
        4 => ".{0,4}".prop_map(Answer::Passing),
        1 => Just(Answer::Told),
    ]
}

proptest! {
    /// Promise P8: whatever the answers, and however late, an operation ends by its deadline, plus
    /// the time to confirm, plus the calls in flight.
    #[test]
    fn every_operation_ends_by_its_deadline(
        answers in prop::collection::vec(any_answer(), 1..40),
        latency in 0_u64..30,
        age in 0_i64..2_000,
    ) {
        let status = OperationStatus {
            created: Some(wall() - jiff::SignedDuration::from_secs(age)),
            ..OperationStatus::default()
        };
        let operation = OperationState::new(status, TIMEOUT, Duration::ZERO, wall());
        let left = TIMEOUT.saturating_sub(Duration::from_secs(age.unsigned_abs()));
        let latency = Duration::from_secs(latency);
        let (operation, at, _) = follow(operation, latency, |n, _| answers[n % answers.len()].clone());
        prop_assert!(operation.has_ended());
        prop_assert!(at <= left + pace().confirm + latency * 5, "{at:?}");
    }

    /// Only its own end, a permanent error, or the deadline ends an operation.
    #[test]
    fn nothing_that_may_pass_ends_an_operation_before_its_deadline(
        answers in prop::collection::vec(any_answer(), 1..40),
        latency in 0_u64..30,
    ) {
        let latency = Duration::from_secs(latency);
        let (operation, at, calls) = follow(fresh(), latency, |n, _| answers[n % answers.len()].clone());
        prop_assert!(at >= TIMEOUT, "{at:?}: {:?}", operation.status);
        prop_assert_eq!(operation.status.phase, OperationPhase::Failed);
        let early = calls.iter().find(|(at, call)| *call == Call::Cancel && *at < TIMEOUT);
        prop_assert!(early.is_none(), "{early:?}");
    }

    /// An operation that was asked to stop never becomes a success, and its text keeps the reason
    /// of the stop.
    #[test]
    fn what_was_stopped_only_gets_a_more_exact_end(
        answers in prop::collection::vec(prop_oneof![any_answer(), Just(ended("")), Just(ended("x"))], 1..10),
    ) {
        let mut operation = fresh();
        operation.stop(Duration::ZERO, pace());
        let (operation, ..) = follow(operation, Duration::ZERO, |n, _| answers[n % answers.len()].clone());
        prop_assert_eq!(operation.status.phase, OperationPhase::Failed);
        prop_assert!(operation.status.error.starts_with("cancelled"), "{}", operation.status.error);
    }
}

#[test]
fn the_pace_of_errors_and_of_ends_follows_that_of_questions() {
    let millis = Duration::from_millis;
    for (every, expected) in [
        (INTERVAL, (INTERVAL, INTERVAL * 12, INTERVAL * 2)),
        (millis(500), (millis(500), millis(6000), millis(1000))),
        (Duration::ZERO, (millis(100), millis(1200), millis(200))),
    ] {
        let pace = Pace::of(every);
        assert_eq!((pace.every, pace.cap, pace.confirm), expected);
    }
}

#[test]
fn one_that_was_told_to_stop_or_is_over_is_not_told_again() {
    let mut over = fresh();
    over.answered(Duration::ZERO, ended(""), Duration::ZERO, pace(), 0.0);
    let mut stopping = fresh();
    stopping.stop(INTERVAL, pace());
    let mut confirming = stopping.clone();
    confirming.answered(INTERVAL, Answer::Told, INTERVAL, pace(), 0.0);
    for operation in [over, stopping, confirming] {
        let mut again = operation.clone();
        again.stop(INTERVAL * 2, pace());
        assert_eq!(
            (&again.stage, &again.status),
            (&operation.stage, &operation.status)
        );
        assert_eq!(again.next, operation.next);
    }
}

#[test]
fn one_that_cannot_be_told_for_a_moment_is_told_again() {
    let mut tries = 0;
    let (operation, _, calls) = follow(fresh(), Duration::ZERO, |_, call| match call {
        Call::Cancel => {
            tries += 1;
            if tries == 1 { passing() } else { Answer::Told }
        }
        _ if tries > 0 => ended("stopped"),
        _ => running(),
    });
    let told: Vec<Duration> = calls
        .iter()
        .filter(|(_, call)| *call == Call::Cancel)
        .map(|(at, _)| *at)
        .collect();
    assert_eq!(told, [TIMEOUT, TIMEOUT + INTERVAL]);
    assert!(
        operation.status.error.ends_with("it has ended: stopped"),
        "{}",
        operation.status.error
    );
    assert!(
        !operation.status.error.contains("could not be told"),
        "{}",
        operation.status.error
    );
}

#[test]
fn one_that_was_told_to_stop_has_time_to_do_so() {
    let mut stopping = fresh();
    stopping.stop(INTERVAL, pace());
    stopping.answered(INTERVAL, Answer::Told, INTERVAL, pace(), 0.0);
    stopping.answered(INTERVAL, running(), INTERVAL, pace(), 0.0);
    assert_eq!(
        stopping.call(INTERVAL),
        Call::Wait(INTERVAL * 2),
        "it is asked again"
    );
    stopping.answered(INTERVAL * 2, ended("stopped"), INTERVAL * 2, pace(), 0.0);
    assert!(
        stopping.status.error.ends_with("it has ended: stopped"),
        "{}",
        stopping.status.error
    );
}

#[test]
fn errors_double_the_time_and_spread_it_over_its_second_half() {
    for (jitter, wait) in [
        (0.0, INTERVAL),
        (0.5, INTERVAL * 3 / 2),
        (1.0, INTERVAL * 2),
        (9.0, INTERVAL * 2),
    ] {
        let mut operation = fresh();
        operation.answered(Duration::ZERO, passing(), Duration::ZERO, pace(), jitter);
        assert_eq!(operation.call(Duration::ZERO), Call::Wait(wait), "{jitter}");
    }
}

#[test]
fn what_is_said_is_shown_and_stays_until_something_else_is_said() {
    let mut operation = fresh();
    operation.answered(Duration::ZERO, running(), Duration::ZERO, pace(), 0.0);
    assert_eq!(
        operation.status.phase,
        OperationPhase::New,
        "it has not started"
    );
    let said = OperationProgress {
        done: 3,
        total: 9,
        units: "blocks".to_owned(),
        description: "copying".to_owned(),
        started: Some(wall()),
        updated: Some(wall()),
        ..OperationProgress::default()
    };
    operation.answered(INTERVAL, Answer::Progress(said), INTERVAL, pace(), 0.0);
    let status = &operation.status;
    assert_eq!((status.n_completed, status.n_total), (3, 9));
    assert_eq!(
        (status.operation_units.as_str(), status.description.as_str()),
        ("blocks", "copying")
    );
    operation.answered(INTERVAL * 2, running(), INTERVAL * 2, pace(), 0.0);
    let status = &operation.status;
    assert_eq!(
        (status.phase.as_str(), status.started, status.updated),
        ("InProgress", Some(wall()), Some(wall()))
    );
    assert_eq!(
        (
            status.n_completed,
            status.n_total,
            status.description.as_str()
        ),
        (0, 0, "")
    );
}
