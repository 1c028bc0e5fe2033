use std::time::Instant;

use rstest::rstest;
use stateright::{Checker, HasDiscoveries, Model};

use super::*;

/// Steps that no exploration may reach: one that does is not complete.
const CAP: usize = 4_000_000;
/// What has to be seen for the exploration to show anything.
const SEEN: [&str; 4] =
    ["it completes", "it partially fails", "a decision is lost", "contents are gone on with twice"];

#[rstest]
#[case::without_operations(2, false)]
#[case::with_operations(1, true)]
fn whatever_happens_a_backup_ends_once_and_as_it_is_stored(#[case] faults: u8, #[case] operations: bool) {
    let start = Instant::now();
    let checker = Life { faults, operations, mistake: None }
        .checker()
        .threads(2)
        .target_state_count(CAP)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let (unique, steps) = (checker.unique_state_count(), checker.state_count());
    println!("{unique} states, {steps} steps, {:.1?}", start.elapsed());
    for (property, path) in checker.discoveries() {
        assert!(SEEN.contains(&property), "{property}, broken by {:#?}", path.clone().into_actions());
    }
    assert!(steps < CAP, "not explored completely");
    for seen in SEEN {
        assert!(checker.discovery(seen).is_some(), "never seen that {seen}");
    }
}

#[rstest]
#[case::announces_always(Mistake::AnnouncesAlways)]
#[case::no_record(Mistake::NoRecord)]
#[case::ends_first(Mistake::EndsFirst)]
#[case::metadata_early(Mistake::MetadataEarly)]
#[case::keeps_hand(Mistake::KeepsHand)]
#[case::forgets_operations(Mistake::ForgetsOperations)]
#[case::fails_when_late(Mistake::FailsWhenLate)]
fn a_plausible_mistake_is_caught(#[case] mistake: Mistake) {
    let checker = Life { faults: 2, operations: true, mistake: Some(mistake) }
        .checker()
        .target_state_count(CAP)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let found = checker.discoveries();
    let broken: Vec<_> = found.iter().filter(|(property, _)| !SEEN.contains(property)).collect();
    assert!(!broken.is_empty(), "{mistake:?} does no harm");
    for (property, path) in broken {
        println!("{mistake:?} breaks \"{property}\" ({:?})", path.last_state().wrong);
    }
}
