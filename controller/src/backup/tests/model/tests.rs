use std::time::Instant;

use rstest::rstest;
use stateright::{Checker, HasDiscoveries, Model};

use super::*;

/// Maximum number of steps: an exploration that reaches it is incomplete.
const MAX_STATES: usize = 4_000_000;
/// Properties that an exploration must reach to be meaningful.
const SEEN: [&str; 8] = [
    "it completes",
    "it partially fails",
    "a decision is lost",
    "contents are gone on with twice",
    "it is deleted and nothing of it is stored",
    "it is deleted and stays stored",
    "it is let go without a store",
    "a restore begins during a collection",
];
const PLAIN: Life = Life {
    faults: 2,
    operations: false,
    deletion: false,
    restores: false,
    mistake: None,
};

#[rstest]
#[case::without_operations(PLAIN)]
#[case::with_operations(Life { faults: 1, operations: true, ..PLAIN })]
#[case::with_deletion(Life { faults: 1, deletion: true, ..PLAIN })]
#[case::with_deletion_and_operations(Life { faults: 1, operations: true, deletion: true, ..PLAIN })]
#[case::with_restores(Life { faults: 1, restores: true, ..PLAIN })]
fn whatever_happens_a_backup_ends_once_and_as_it_is_stored(#[case] life: Life) {
    let start = Instant::now();
    let checker = life
        .checker()
        .threads(2)
        .target_state_count(MAX_STATES)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let (unique, steps) = (checker.unique_state_count(), checker.state_count());
    println!("{unique} states, {steps} steps, {:.1?}", start.elapsed());
    for (property, path) in checker.discoveries() {
        assert!(
            SEEN.contains(&property),
            "{property}, broken by {:#?}",
            path.clone().into_actions()
        );
    }
    assert!(steps < MAX_STATES, "not explored completely");
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
    is_caught(
        Life {
            operations: true,
            ..PLAIN
        },
        mistake,
    );
}

#[rstest]
#[case::deletes_blindly(Mistake::DeletesBlindly)]
#[case::abandons_silently(Mistake::AbandonsSilently)]
#[case::announces_deleted(Mistake::AnnouncesDeleted)]
fn a_plausible_mistake_with_deletions_is_caught(#[case] mistake: Mistake) {
    is_caught(
        Life {
            deletion: true,
            ..PLAIN
        },
        mistake,
    );
}

#[rstest]
#[case::collects_unclaimed(Mistake::CollectsUnclaimed)]
#[case::trusts_claim(Mistake::TrustsClaim)]
fn a_plausible_mistake_beside_restores_is_caught(#[case] mistake: Mistake) {
    is_caught(
        Life {
            restores: true,
            ..PLAIN
        },
        mistake,
    );
}

fn is_caught(life: Life, mistake: Mistake) {
    let checker = Life {
        mistake: Some(mistake),
        ..life
    }
    .checker()
    .target_state_count(MAX_STATES)
    .finish_when(HasDiscoveries::AnyFailures)
    .spawn_bfs()
    .join();
    let found = checker.discoveries();
    let broken: Vec<_> = found
        .iter()
        .filter(|(property, _)| !SEEN.contains(property))
        .collect();
    assert!(!broken.is_empty(), "{mistake:?} does no harm");
    for (property, path) in broken {
        println!(
            "{mistake:?} breaks \"{property}\" ({:?})",
            path.last_state().wrong
        );
    }
}
