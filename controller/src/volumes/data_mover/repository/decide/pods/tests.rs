use backup_core::repository_records::KeyChange;
use rstest::rstest;
use serde_json::json;

use super::*;
use crate::volumes::data_mover::{
    pod::PodWork,
    repository::decide::{
        decide,
        tests::{ago, facts, location, now, present, repository, shown},
    },
};

fn ended(result: MoverResult, reason: Option<&str>) -> PodState {
    PodState::Ended(MoverOutcome {
        result,
        reason: reason.map(str::to_owned),
        message: "why".to_owned(),
        ..MoverOutcome::default()
    })
}

/// A pod on node `n1` that was created `age` seconds ago.
fn pod(work: Work, state: PodState, age: i64) -> PodFacts {
    PodFacts {
        work,
        state,
        created: Some(ago(age)),
        deleted: None,
        node: Some("n1".to_owned()),
        valid_for: None,
    }
}

fn plan(pod: PodFacts, node: NodeState, message: Option<&str>) -> String {
    let mut repository = repository(Some("New".into()));
    repository.status.message = message.map(str::to_owned);
    let (location, password) = (location(false), present());
    let mut facts = facts(&repository, Some(&location), &password);
    facts.pod = Some(pod);
    facts.node = node;
    shown(&decide(&facts))
}

#[rstest]
#[case::waits(Work::Init, PodState::Waiting("pull".to_owned()), 1799, "wait 3")]
#[case::waits_too_long(
    Work::Init,
    PodState::Waiting("pull".to_owned()),
    1800,
    "record Init Some(\"its pod has not started within 30m0s: pull\")"
)]
#[case::runs(Work::Init, PodState::Running, 2699, "wait 3")]
#[case::runs_too_long(
    Work::Init,
    PodState::Running,
    2700,
    "record Init Some(\"it has not ended within 45m0s, and was stopped\")"
)]
#[case::opens_too_long(
    Work::Open,
    PodState::Running,
    2700,
    "record Open Some(\"it has not ended within 45m0s, and was stopped\")"
)]
#[case::maintains(Work::Maintenance, PodState::Running, 12_599, "wait 3")]
#[case::maintains_too_long(
    Work::Maintenance,
    PodState::Running,
    12_600,
    "record Maintenance Some(\"it has not ended within 3h30m0s, and was stopped\")"
)]
#[case::checks_too_long(
    Work::Check,
    PodState::Running,
    12_600,
    "record Check Some(\"it has not ended within 3h30m0s, and was stopped\")"
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
#[case::damage_was_found(
    Work::Check,
    ended(MoverResult::Incomplete, Some("damaged")),
    5,
    "record Check None"
)]
#[case::not_checked(
    Work::Check,
    ended(MoverResult::Failed, Some("store")),
    5,
    "record Check Some(\"why\")"
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
    let pod = pod(work, state, age);
    assert_eq!(plan(pod.clone(), NodeState::Unknown, None), expected);
    let deleting = PodFacts {
        deleted: Some(now()),
        ..pod
    };
    let found = plan(deleting, NodeState::Unknown, None);
    assert_eq!(found, "wait 3", "until it is gone");
}

#[test]
fn a_pod_that_does_not_end_is_removed_only_if_its_node_is_off() {
    let deleted = |seconds: i64| PodFacts {
        deleted: Some(ago(seconds)),
        ..pod(Work::Maintenance, PodState::Running, 9999)
    };
    for node in [NodeState::Unknown, NodeState::Present, NodeState::Gone] {
        assert_eq!(plan(deleted(119), node, None), "wait 3", "it may end yet");
    }
    let forced = "force Maintenance Some(\"its pod was on node n1, which is off\")";
    assert_eq!(plan(deleted(120), NodeState::Gone, None), forced);
    for node in [NodeState::Unknown, NodeState::Present] {
        let report = plan(deleted(120), node, None);
        let message = report.strip_prefix("report ").unwrap();
        for part in [
            "which maintains the repository",
            "since 2026-11-01T11:58:00Z",
            "node n1 does not confirm",
            "a maintenance that runs beside an upload destroys data",
            "kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
            "Do not delete the pod with --force",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
        let said = plan(deleted(600), node, Some(message));
        assert!(said.starts_with("report"), "another deletion");
        assert_eq!(plan(deleted(120), node, Some(message)), "wait 30");
    }
}

#[test]
fn a_pod_whose_end_is_known_is_removed_wherever_it_was() {
    let ended = PodFacts {
        deleted: Some(ago(120)),
        ..pod(Work::Maintenance, ended(MoverResult::Complete, None), 9999)
    };
    let found = plan(ended, NodeState::Present, None);
    assert_eq!(found, "force Maintenance None");
}

#[test]
fn a_pod_without_a_node_that_does_not_end_has_another_cause() {
    let kept = PodFacts {
        node: None,
        deleted: Some(ago(9999)),
        ..pod(Work::Open, PodState::Running, 9999)
    };
    let report = plan(kept, NodeState::Unknown, None);
    assert!(report.contains("`kubectl describe pod`") && !report.contains("taint"));
}

#[test]
fn a_node_is_off_if_it_is_gone_or_a_user_says_so() {
    let node = |taints: serde_json::Value| -> Node {
        serde_json::from_value(
            json!({ "metadata": { "name": "n1" }, "spec": { "taints": taints } }),
        )
        .unwrap()
    };
    let unreachable = json!([{ "key": "node.kubernetes.io/unreachable", "effect": "NoExecute" }]);
    let off = json!([
        { "key": "node.kubernetes.io/unreachable", "effect": "NoExecute" },
        { "key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute" },
    ]);
    assert_eq!(NodeState::of(None), NodeState::Gone);
    assert_eq!(NodeState::of(Some(&node(json!([])))), NodeState::Present);
    assert_eq!(NodeState::of(Some(&node(unreachable))), NodeState::Present);
    assert_eq!(NodeState::of(Some(&node(off))), NodeState::Gone);
    assert!(!NodeState::Unknown.is_off() && !NodeState::Present.is_off());
}

#[test]
fn an_upload_says_which_pod_it_waits_for_where_and_since_when() {
    let mut maintenance = pod(Work::Maintenance, PodState::Running, 3600);
    let state = |pod: &PodFacts| held_up_by(pod, "repository-shop", now());
    let expected = "it waits for pod repository-shop on node n1 since 2026-11-01T11:00:00Z, which maintains \
                    the repository";
    let busy = |detail: &str| RepositoryState::Busy(format!("{expected}{detail}"));
    assert_eq!(state(&maintenance), busy(""));
    maintenance.state = PodState::Waiting("no image".to_owned());
    assert_eq!(state(&maintenance), busy("; no image"));
    maintenance.deleted = Some(ago(119));
    assert_eq!(state(&maintenance), busy("; no image"));
    // Without an end of the pod the wait has a bound.
    maintenance.deleted = Some(ago(120));
    match state(&maintenance) {
        RepositoryState::Waiting(stuck) => assert!(
            stuck.starts_with(expected) && stuck.contains("BackupRepository"),
            "{stuck}"
        ),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_transfer_says_why_its_repository_is_not_ready() {
    let repository = repository(None);
    let state = |said: Option<&str>, pod: Option<&PodFacts>| {
        awaited(&repository, said.map(str::to_owned), pod, now())
    };
    let waiting = |text: &str| RepositoryState::Waiting(text.to_owned());
    let prepared = "the repository of namespace shop is being prepared";
    assert_eq!(state(None, None), waiting(prepared));
    assert_eq!(state(Some("why"), None), waiting("why"));
    for work in [Work::Init, Work::Open] {
        let running = pod(work, PodState::Running, 60);
        assert_eq!(state(None, Some(&running)), waiting(prepared));
        let pulling = pod(work, PodState::Waiting("no image".to_owned()), 60);
        let expected = format!("{prepared}: no image");
        assert_eq!(state(None, Some(&pulling)), waiting(&expected));
        assert_eq!(state(Some("why"), Some(&pulling)), waiting("why"));
    }
    // A pod with other work has its own deadline.
    for work in [Work::Check, Work::Maintenance] {
        let other = pod(work, PodState::Running, 60);
        let state = state(Some("why"), Some(&other));
        assert!(matches!(state, RepositoryState::Busy(_)), "{state:?}");
    }
}

#[test]
fn events_are_read_of_a_pod_that_does_not_start_for_a_while() {
    let mut waiting = pod(
        Work::Init,
        PodState::Waiting("it is being started".to_owned()),
        15,
    );
    assert!(waiting.is_slow(now()));
    waiting.add_problem("no address for it");
    let expected = "it is being started: no address for it";
    assert_eq!(waiting.state, PodState::Waiting(expected.to_owned()));
    waiting.created = Some(ago(14));
    assert!(!waiting.is_slow(now()));
    assert!(!pod(Work::Init, PodState::Running, 15).is_slow(now()));
}

#[rstest]
#[case::of_one_part("{}", 3, true)]
#[case::of_all_data(r#"{"readData":true}"#, 3, false)]
#[case::of_all_data_for_a_day(r#"{"readData":true}"#, 24, true)]
fn a_check_that_reads_all_data_has_more_time(
    #[case] request: &str,
    #[case] hours: i64,
    #[case] is_stopped: bool,
) {
    let check = PodFacts {
        valid_for: Some(request.to_owned()),
        ..pod(Work::Check, PodState::Running, hours * 3600 + 1800)
    };
    let plan = plan(check, NodeState::Present, None);
    assert_eq!(plan.contains("was stopped"), is_stopped, "{plan}");
}

#[test]
fn the_work_of_a_pod_is_known_by_its_label() {
    let change = |work: KeyWork| KeyChange::requested(work, "u/1");
    let (add, remove) = (change(KeyWork::Add), change(KeyWork::Remove));
    for (made, work) in [
        (PodWork::Init, Work::Init),
        (PodWork::Open { inputs: "i" }, Work::Open),
        (
            PodWork::Check {
                part: Some(1),
                packs: &[],
                request: None,
            },
            Work::Check,
        ),
        (PodWork::Maintain { request: None }, Work::Maintenance),
        (PodWork::ChangeKeys(&add), Work::ChangeKeys(KeyWork::Add)),
        (
            PodWork::ChangeKeys(&remove),
            Work::ChangeKeys(KeyWork::Remove),
        ),
    ] {
        assert_eq!(Work::of_label(made.name()), work);
    }
}
