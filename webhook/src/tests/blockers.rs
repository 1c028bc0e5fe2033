//! Many conflicting objects: they are read concurrently, once each, and the findings are kept.

use backup_lock::Footprint;
use backup_testkit::velero_path;

use super::*;

/// Number of ended backups whose claims are not released yet.
const ENDED_BACKUPS: usize = 900;

async fn with_ended_backups() -> (FakeApi, Replica) {
    let (api, replica) = one_replica();
    replica.store.open(VELERO_SCOPE).await.unwrap();
    let claims = |ledger: &mut Ledger| {
        for n in 0..ENDED_BACKUPS {
            let key = ObjectKey::backup("velero", &format!("b{n}"));
            ledger.adopt(
                &key,
                &n.to_string(),
                &Footprint::namespaces(["shop"]),
                State::Active,
                "",
            );
        }
    };
    let deadline = Instant::now() + Duration::from_secs(5);
    replica
        .store
        .change(VELERO_SCOPE, deadline, claims)
        .await
        .unwrap();
    for n in 0..ENDED_BACKUPS {
        api.put_velero(
            "Backup",
            &format!("b{n}"),
            &n.to_string(),
            "Completed",
            &backup_spec(),
        );
    }
    (api, replica)
}

#[tokio::test(start_paused = true)]
async fn many_ended_backups_are_looked_at_side_by_side_and_once() {
    let (api, replica) = with_ended_backups().await;
    api.slow(Duration::from_millis(20));
    let start = Instant::now();
    let create = |name: &'static str| replica.create("Restore", name, name, restore_spec());
    let answers = tokio::join!(create("r1"), create("r2"), create("r3"));
    let admitted = [&answers.0, &answers.1, &answers.2]
        .into_iter()
        .filter(|answer| allowed(answer))
        .count();
    assert_eq!(admitted, 1, "{answers:?}");
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "{:?}",
        start.elapsed()
    );
    let mut reads = std::collections::BTreeMap::<String, usize>::new();
    for line in api.log() {
        *reads.entry(line).or_default() += 1;
    }
    for n in 0..ENDED_BACKUPS {
        let line = format!("GET {}", velero_path("Backup", &format!("b{n}")));
        assert_eq!(reads.get(&line), Some(&1), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_found_until_the_time_was_up_is_kept() {
    let (api, replica) = with_ended_backups().await;
    api.slow(Duration::from_millis(200));
    let mut left = ENDED_BACKUPS;
    for tries in 0.. {
        let answer = replica.create("Restore", "r", "r", restore_spec()).await;
        let now = replica.ledger().await.len();
        if allowed(&answer) {
            assert_eq!((now, tries > 0), (1, true));
            return;
        }
        assert_eq!(answer["status"]["code"], 503, "{answer}");
        assert!(
            now < left && tries < 6,
            "{now} of {left} are left after {tries} tries"
        );
        left = now;
    }
}
