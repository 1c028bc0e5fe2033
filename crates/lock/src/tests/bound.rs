//! The place is free no later than a refusal says.

use tokio::time::{Instant, sleep};

use super::{upkeep::keep, *};
use crate::{claim::Word, collect::Collector};

/// Duration of each request.
const ANSWER: Duration = Duration::from_millis(100);
/// Duration of a creation's admission.
const DECISION: Duration = Duration::from_secs(1);

async fn leave_intent(store: &LedgerStore, insists: bool) {
    let change = |ledger: &mut Ledger| {
        let ask = Ask {
            insists,
            ..Ask::default()
        };
        ledger.leave_intent(&restore("r"), "1", &Footprint::everything(), "now", &ask)
    };
    assert!(
        store
            .change(VELERO_SCOPE, deadline(), change)
            .await
            .unwrap()
    );
}

/// Creates an entry of this kind that keeps an object out; returns the key of that object.
async fn make(kind: &str, store: &LedgerStore) -> ObjectKey {
    match kind {
        "reservation" => {
            admit(store, &backup("b"), "1").await.unwrap();
            return restore("new");
        }
        "insisting" => leave_intent(store, true).await,
        _ => {
            leave_intent(store, false).await;
            // It conflicts with nothing.
            assert_eq!(
                ledger(store).await.entry(&restore("r"), "1").unwrap().word,
                Word::Expected
            );
        }
    }
    backup("new")
}

/// How long an entry of this kind keeps an object out after a refusal, and how long the refusal
/// said.
async fn kept_out(kind: &str, phase: Duration, asked: Duration) -> (Duration, Duration) {
    let api = FakeApi::new();
    api.slow(ANSWER);
    let protected = ProtectedProfile::new(api.client(), "velero", Profile::velero(), GRACE);
    protected.store.open(VELERO_SCOPE).await.unwrap();
    keep(&protected);
    sleep(phase).await;
    let newcomer = make(kind, &protected.store).await;
    sleep(asked).await;
    let mut refusing: Collector = protected.collector();
    let in_the_way = async || {
        ledger(&protected.store)
            .await
            .conflicts(&newcomer, &Footprint::everything())
            .into_iter()
            .next()
    };
    let claim = in_the_way().await.unwrap();
    let (observed, _) = protected
        .store
        .objects()
        .observe(VELERO_SCOPE, &claim)
        .await
        .unwrap();
    let start = Instant::now();
    refusing.judge_entries(&claim, &observed, start.into_std());
    let left = refusing.left(&claim.key, &claim.entries[0], start.into_std());
    while in_the_way().await.is_some() {
        sleep(Duration::from_millis(50)).await;
    }
    (start.elapsed(), left)
}

#[tokio::test(start_paused = true)]
async fn a_place_is_free_by_the_time_that_a_refusal_names() {
    for (kind, least) in [("expected", 10), ("insisting", 120), ("reservation", 120)] {
        let mut longest = Duration::ZERO;
        for phase in 0..11 {
            for asked in [0, 7] {
                let (phase, asked) = (Duration::from_secs(phase), Duration::from_secs(asked));
                let (took, said) = kept_out(kind, phase, asked).await;
                assert!(
                    took <= said + DECISION,
                    "{kind} {phase:?} {asked:?}: {took:?}, said {said:?}"
                );
                longest = longest.max(took);
            }
        }
        assert!(longest >= Duration::from_secs(least), "{kind}: {longest:?}");
        println!("{kind}: {longest:?} at most");
    }
}
