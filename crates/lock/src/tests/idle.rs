//! Ledgers of profiles are created with the first claim of a scope, and removed after a long time
//! without claims.

use super::*;

const IDLE: Duration = Duration::from_mins(10);

/// The ledger of a database cluster on which one backup was claimed and released.
async fn idle() -> (FakeApi, ProtectedProfile) {
    let api = FakeApi::new();
    let protected = percona(&api);
    use_it(&protected.store).await;
    (api, protected)
}

async fn use_it(store: &LedgerStore) {
    let key = ObjectKey::backup("db", "b");
    admit_as(store, PERCONA_SCOPE, &key, "1", Ask::default())
        .await
        .unwrap();
    let change = |ledger: &mut Ledger| Ok::<_, Refusal>(ledger.release(&key, "1"));
    assert!(
        store
            .update(PERCONA_SCOPE, deadline(), change)
            .await
            .unwrap()
            .0
    );
}

#[tokio::test(start_paused = true)]
async fn an_idle_ledger_is_removed_with_its_marker_and_comes_back_with_the_next_claim() {
    let (api, protected) = idle().await;
    let (lease, marker_at) = paths(PERCONA_SCOPE);
    let (mut repair, now) = (LedgerRepair::new(GRACE, IDLE), Instant::now());
    for seconds in [0, 300, 599] {
        let at = now + Duration::from_secs(seconds);
        assert_eq!(
            repair
                .repair(&protected.store, PERCONA_SCOPE, at)
                .await
                .unwrap(),
            RepairOutcome::Fine,
            "{seconds} s"
        );
    }
    assert_eq!(
        repair
            .repair(&protected.store, PERCONA_SCOPE, now + IDLE)
            .await
            .unwrap(),
        RepairOutcome::Removed
    );
    assert!(api.get(&lease).is_none() && api.get(&marker_at).is_none());
    assert!(protected.store.scopes().await.unwrap().is_empty());
    assert_eq!(
        repair
            .repair(&protected.store, PERCONA_SCOPE, now + IDLE * 2)
            .await
            .unwrap(),
        RepairOutcome::Fine
    );
    use_it(&protected.store).await;
    assert_eq!(marker(&api, &marker_at).unwrap().0, lease_uid(&api, &lease));
}

#[tokio::test(start_paused = true)]
async fn a_ledger_in_use_stays_and_every_write_makes_it_young_again() {
    let (api, protected) = idle().await;
    let (mut repair, now) = (LedgerRepair::new(GRACE, IDLE), Instant::now());
    for times in 0..5 {
        let at = now + IDLE * times;
        assert_eq!(
            repair
                .repair(&protected.store, PERCONA_SCOPE, at)
                .await
                .unwrap(),
            RepairOutcome::Fine,
            "{times}"
        );
        use_it(&protected.store).await;
    }
    admit_as(
        &protected.store,
        PERCONA_SCOPE,
        &ObjectKey::restore("db", "r"),
        "2",
        Ask::default(),
    )
    .await
    .unwrap();
    for times in 5..9 {
        let at = now + IDLE * times;
        assert_eq!(
            repair
                .repair(&protected.store, PERCONA_SCOPE, at)
                .await
                .unwrap(),
            RepairOutcome::Fine,
            "it is not empty"
        );
    }
    assert!(api.get(&paths(PERCONA_SCOPE).0).is_some());
}

#[tokio::test(start_paused = true)]
async fn the_one_ledger_of_velero_stays() {
    let (api, store) = setup();
    store.open(VELERO_SCOPE).await.unwrap();
    let (mut repair, now) = (LedgerRepair::new(GRACE, IDLE), Instant::now());
    for times in 0..4 {
        assert_eq!(
            repair
                .repair(&store, VELERO_SCOPE, now + IDLE * times)
                .await
                .unwrap(),
            RepairOutcome::Fine
        );
    }
    assert!(api.get(LEDGER_PATH).is_some() && api.get(MARKER_PATH).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_comes_while_its_ledger_is_being_closed_wins() {
    let (api, protected) = idle().await;
    let lease = paths(PERCONA_SCOPE).0;
    let (mut repair, now) = (LedgerRepair::new(GRACE, IDLE), Instant::now());
    repair
        .repair(&protected.store, PERCONA_SCOPE, now)
        .await
        .unwrap();
    // Another process has written between the look and the write.
    let path = lease.clone();
    api.before("PUT", &lease, move |api| api.edit(&path, |_| {}));
    let error = repair
        .repair(&protected.store, PERCONA_SCOPE, now + IDLE)
        .await
        .unwrap_err();
    assert!(matches!(error, LedgerError::Changed { .. }), "{error}");
    assert_eq!(
        ledger_of(&protected.store, PERCONA_SCOPE).await.status,
        Status::Open
    );
}

/// An idle ledger whose removal crashed after this many writes; `None` if it took fewer.
async fn half_removed(writes: u64, last: LastWrite) -> Option<(FakeApi, ProtectedProfile)> {
    let (api, protected) = idle().await;
    let (mut repair, now) = (LedgerRepair::new(GRACE, IDLE), Instant::now());
    repair
        .repair(&protected.store, PERCONA_SCOPE, now)
        .await
        .unwrap();
    api.crash_after(writes, last);
    let crashed = repair
        .repair(&protected.store, PERCONA_SCOPE, now + IDLE)
        .await
        .is_err();
    api.recover();
    crashed.then_some((api, protected))
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_crashed_is_finished_by_the_next_claim_or_the_next_look() {
    let mut reached = 0;
    for last in [LastWrite::Lost, LastWrite::Unanswered] {
        for writes in 0..3 {
            let Some((api, protected)) = half_removed(writes, last).await else {
                continue;
            };
            reached += 1;
            let (lease, marker_at) = paths(PERCONA_SCOPE);
            let left = (api.get(&lease), api.get(&marker_at));
            use_it(&protected.store).await;
            let open = ledger_of(&protected.store, PERCONA_SCOPE).await;
            assert_eq!(open.status, Status::Open, "{writes} {last:?}");
            assert_eq!(
                marker(&api, &marker_at).unwrap().0,
                lease_uid(&api, &lease),
                "{writes} {last:?}"
            );
            // The same again, and the repair handles it instead.
            for (path, object) in [(&lease, left.0), (&marker_at, left.1)] {
                api.delete(path);
                if let Some(object) = object {
                    api.put(path, object);
                }
            }
            let (mut repair, now) = (LedgerRepair::new(GRACE, IDLE), Instant::now());
            for times in 0..3 {
                repair
                    .repair(&protected.store, PERCONA_SCOPE, now + IDLE * times)
                    .await
                    .unwrap();
            }
            assert!(
                api.get(&lease).is_none() && api.get(&marker_at).is_none(),
                "{writes} {last:?}"
            );
        }
    }
    assert_eq!(reached, 6, "a removal is three writes");
}

#[tokio::test(start_paused = true)]
async fn many_who_find_a_closed_ledger_remove_it_together_and_make_one_new_one() {
    let (api, protected) = half_removed(1, LastWrite::Lost).await.unwrap();
    assert_eq!(
        ledger_of(&protected.store, PERCONA_SCOPE).await.status,
        Status::Closed
    );
    let closed = lease_uid(&api, &paths(PERCONA_SCOPE).0);
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..4 {
        let protected = percona(&api);
        tasks.spawn(async move {
            let key = ObjectKey::backup("db", &format!("b{n}"));
            admit_as(&protected.store, PERCONA_SCOPE, &key, "1", Ask::default()).await
        });
    }
    for outcome in tasks.join_all().await {
        outcome.unwrap();
    }
    let (lease, marker_at) = paths(PERCONA_SCOPE);
    assert_ne!(lease_uid(&api, &lease), closed);
    assert_eq!(marker(&api, &marker_at).unwrap().0, lease_uid(&api, &lease));
    assert_eq!(ledger_of(&protected.store, PERCONA_SCOPE).await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn one_who_is_late_to_remove_a_closed_ledger_leaves_its_successor_alone() {
    // Just before one of its requests arrives, another process has finished the removal and created
    // a new ledger.
    let (lease, marker_at) = paths(PERCONA_SCOPE);
    for (method, path) in [
        ("GET", &marker_at),
        ("DELETE", &marker_at),
        ("DELETE", &lease),
    ] {
        let (api, protected) = half_removed(1, LastWrite::Lost).await.unwrap();
        let (other_api, _) = idle().await;
        let successor =
            [&lease, &marker_at].map(|path| (path.clone(), other_api.get(path).unwrap()));
        let mut uids = successor.clone();
        uids[0].1["metadata"]["uid"] = json!("successor");
        uids[1].1["metadata"]["uid"] = json!("its-marker");
        uids[1].1["data"]["ledger"] = json!("successor");
        api.before(method, path, move |api| {
            for (path, object) in uids {
                api.put(&path, object);
            }
        });
        // The copy is no valid ledger, and a removal does not touch it.
        protected.store.open(PERCONA_SCOPE).await.unwrap_err();
        assert_eq!(lease_uid(&api, &lease), "successor");
        assert_eq!(marker(&api, &marker_at).unwrap().0, "successor");
    }
}
