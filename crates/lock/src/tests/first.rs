//! A scope's first ledger: marker, Lease, marker again, open.

use super::*;

/// Number of writes from nothing to an open ledger.
const WRITES: u64 = 4;
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/velero/leases";
const MARKERS: &str = "/api/v1/namespaces/velero/configmaps";

#[tokio::test(start_paused = true)]
async fn a_first_ledger_holds_what_runs_already() {
    let (api, store) = setup();
    api.put_velero("Backup", "running", "1", "InProgress", &all());
    api.put_velero("Backup", "new", "2", "", &all());
    api.put_velero("Backup", "done", "3", "Completed", &all());
    api.put_velero(
        "Backup",
        "future",
        "4",
        "SomePhaseOfTomorrow",
        &json!({"ttl": 7}),
    );
    let refused = admit(&store, &restore("r"), "5").await.unwrap_err();
    assert_says!(refused, "Backup velero/future");
    // The refused change was not written, but the ledger was created.
    let ledger = ledger(&store).await;
    assert_eq!((ledger.len(), ledger.status), (3, Status::Open));
    assert_eq!(
        ledger.entry(&backup("running"), "1").unwrap().state,
        State::Active
    );
    assert_eq!(
        ledger.entry(&backup("new"), "2").unwrap().state,
        State::Reserved
    );
}

#[tokio::test(start_paused = true)]
async fn no_ledger_is_made_while_nobody_can_tell_what_runs() {
    let (api, store) = setup();
    api.unserve("velero.io");
    store.open(VELERO_SCOPE).await.unwrap_err();
    assert!(api.get(LEDGER_PATH).is_none());
    api.recover();
    store.open(VELERO_SCOPE).await.unwrap();
}

/// Opens a first ledger and crashes after this many writes. Returns what is left: the ledger named
/// in the marker, and the Lease's status.
async fn crashed(writes: u64, last: LastWrite) -> (FakeApi, Option<String>, Option<Status>) {
    let (api, store) = setup();
    api.put_velero("Restore", "running", "1", "InProgress", &all());
    api.crash_after(writes, last);
    store.open(VELERO_SCOPE).await.unwrap_err();
    assert!(api.recover(), "the crash did not happen");
    let named = marker(&api, MARKER_PATH).map(|(uid, _)| uid);
    let status = store
        .read(VELERO_SCOPE)
        .await
        .unwrap()
        .map(|stored| stored.ledger.status);
    (api, named, status)
}

#[tokio::test(start_paused = true)]
async fn the_marker_is_made_before_the_ledger_and_names_it_before_it_opens() {
    let last = LastWrite::Lost;
    let (_, named, status) = crashed(0, last).await;
    assert_eq!((named, status), (None, None));
    let (_, named, status) = crashed(1, last).await;
    assert_eq!((named.as_deref(), status), (Some(""), None));
    let (_, named, status) = crashed(2, last).await;
    assert_eq!(
        (named.as_deref(), status),
        (Some(""), Some(Status::Opening))
    );
    let (api, named, status) = crashed(3, last).await;
    assert_eq!(
        (named, status),
        (Some(lease_uid(&api, LEDGER_PATH)), Some(Status::Opening))
    );
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_step_leaves_what_the_next_one_can_finish() {
    for last in [LastWrite::Lost, LastWrite::Unanswered] {
        for writes in 0..WRITES {
            let (api, ..) = crashed(writes, last).await;
            let store = LedgerStore::new(api.client(), "velero");
            let refused = admit(&store, &backup("b"), "2").await.unwrap_err();
            assert!(
                refused.to_string().contains("Restore velero/running"),
                "{writes} {last:?}: {refused}"
            );
            let ledger = ledger(&store).await;
            assert_eq!(
                (ledger.status, ledger.len()),
                (Status::Open, 1),
                "{writes} {last:?}"
            );
            let (named, bound) = marker(&api, MARKER_PATH).unwrap();
            assert_eq!(named, lease_uid(&api, LEDGER_PATH), "{writes} {last:?}");
            assert!(bound >= ledger.epoch, "{writes} {last:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_step_is_finished_by_who_looks_after_ledgers_too() {
    for writes in 2..WRITES {
        let (api, ..) = crashed(writes, LastWrite::Lost).await;
        let store = LedgerStore::new(api.client(), "velero");
        let mut repair = LedgerRepair::new(GRACE, GRACE);
        assert_eq!(
            repair
                .repair(&store, VELERO_SCOPE, Instant::now())
                .await
                .unwrap(),
            RepairOutcome::Fine
        );
        assert_eq!(ledger(&store).await.status, Status::Open);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unfinished_ledger_is_read_but_grants_nothing() {
    let (api, ..) = crashed(2, LastWrite::Lost).await;
    let store = LedgerStore::new(api.client(), "velero");
    let mut unfinished = ledger(&store).await;
    let refused = unfinished.admit(
        &backup("b"),
        "2",
        &Footprint::namespaces(["z"]),
        "now",
        &Ask::default(),
    );
    assert_eq!(refused, Err(Refusal::NotOpen(Status::Opening)));
}

#[tokio::test(start_paused = true)]
async fn replicas_that_make_a_first_ledger_at_the_same_time_make_one() {
    let (api, store) = setup();
    api.put_velero("Backup", "running", "1", "InProgress", &all());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let store = LedgerStore::new(api.client(), "velero");
        tasks.spawn(async move {
            store
                .update(VELERO_SCOPE, deadline(), |l| Ok::<_, Refusal>(l.len()))
                .await
        });
    }
    let uid = |outcome: Result<(usize, crate::lease::StoredLedger), _>| {
        let (claims, stored) =
            outcome.unwrap_or_else(|error: UpdateError<Refusal>| panic!("{error}"));
        (claims, stored.lease_uid().to_owned())
    };
    let opened: Vec<(usize, String)> = tasks.join_all().await.into_iter().map(uid).collect();
    assert!(
        opened.iter().all(|one| *one == opened[0] && one.0 == 1),
        "{opened:?}"
    );
    assert_eq!(marker(&api, MARKER_PATH).unwrap().0, opened[0].1);
    assert!(api.conflicts() > 0, "nobody met anybody");
    assert_eq!(ledger(&store).await.status, Status::Open);
}

#[tokio::test(start_paused = true)]
async fn one_who_slept_before_the_lease_while_a_ledger_came_and_was_lost_opens_nothing() {
    let (api, store) = setup();
    // Between its marker and its Lease: another process opened a ledger, granted up to epoch 7, and
    // that ledger was lost.
    api.before("POST", LEASES, |api| {
        api.edit(MARKER_PATH, |marker| {
            marker["data"]["ledger"] = json!("another");
        });
        api.edit(MARKER_PATH, |marker| marker["data"]["epoch"] = json!("7"));
        api.put_velero("Backup", "late", "1", "InProgress", &all());
    });
    let error = store.open(VELERO_SCOPE).await.unwrap_err();
    assert_eq!(error.category(), "rebuilding", "{error}");
    let made = ledger(&store).await;
    assert_eq!(
        (made.status, made.len()),
        (Status::Rebuilding, 0),
        "its lists were old"
    );
    assert!(made.epoch > 7);
    assert_eq!(trouble(&store).await, Some("rebuilding"));
    let (mut repair, now) = (LedgerRepair::new(GRACE, GRACE), Instant::now());
    assert_eq!(
        repair.repair(&store, VELERO_SCOPE, now).await.unwrap(),
        RepairOutcome::Lost
    );
    assert_eq!(
        repair
            .repair(&store, VELERO_SCOPE, now + GRACE)
            .await
            .unwrap(),
        RepairOutcome::Rebuilt
    );
    assert!(ledger(&store).await.entry(&backup("late"), "1").is_some());
}

#[tokio::test(start_paused = true)]
async fn one_who_slept_before_the_lease_uses_the_ledger_that_was_made_meanwhile() {
    let (other, ..) = crashed(WRITES - 1, LastWrite::Unanswered).await;
    let (made, named) = (
        other.get(LEDGER_PATH).unwrap(),
        other.get(MARKER_PATH).unwrap(),
    );
    let (api, sleeper) = setup();
    let uid = made["metadata"]["uid"].clone();
    api.before("POST", LEASES, move |api| {
        api.put(LEDGER_PATH, made);
        api.put(MARKER_PATH, named);
    });
    let opened = sleeper.open(VELERO_SCOPE).await.unwrap();
    assert_eq!((json!(opened.lease_uid()), opened.ledger.len()), (uid, 1));
}

#[tokio::test(start_paused = true)]
async fn a_ledger_opens_only_under_a_marker_that_names_it() {
    // A Lease without a marker, and another process starts a first ledger just before the marker is
    // created.
    let (api, ..) = crashed(2, LastWrite::Lost).await;
    let begun = api.get(MARKER_PATH).unwrap();
    api.delete(MARKER_PATH);
    api.before("POST", MARKERS, move |api| api.put(MARKER_PATH, begun));
    let store = LedgerStore::new(api.client(), "velero");
    store.open(VELERO_SCOPE).await.unwrap();
    assert_eq!(
        marker(&api, MARKER_PATH).unwrap().0,
        lease_uid(&api, LEDGER_PATH)
    );
}

#[tokio::test(start_paused = true)]
async fn a_marker_that_vanishes_while_it_is_written_is_no_refusal() {
    let (api, ..) = crashed(2, LastWrite::Lost).await;
    api.before("PUT", MARKER_PATH, |api| api.delete(MARKER_PATH));
    let store = LedgerStore::new(api.client(), "velero");
    store.open(VELERO_SCOPE).await.unwrap();
    assert_eq!(
        marker(&api, MARKER_PATH).unwrap().0,
        lease_uid(&api, LEDGER_PATH)
    );
}

/// Whether a preview writes nothing and predicts the result of opening; returns the error category,
/// or `None`.
async fn previewed(api: &FakeApi) -> Option<&'static str> {
    let store = LedgerStore::new(api.client(), "velero");
    let writes = api.writes();
    let seen = store.preview(VELERO_SCOPE).await;
    assert_eq!(api.writes(), writes);
    match (seen, store.open(VELERO_SCOPE).await) {
        (Ok(seen), Ok(opened)) => {
            assert_eq!(
                (seen.status, &seen.claims),
                (Status::Open, &opened.ledger.claims)
            );
            None
        }
        (Err(seen), Err(opened)) => {
            assert_eq!(seen.category(), opened.category());
            Some(seen.category())
        }
        (seen, opened) => panic!("seen {seen:?}, opened {opened:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_preview_writes_nothing_and_tells_what_would_be_opened() {
    for last in [LastWrite::Lost, LastWrite::Unanswered] {
        for writes in 0..WRITES {
            let (api, ..) = crashed(writes, last).await;
            assert_eq!(previewed(&api).await, None, "{writes} {last:?}");
            assert_eq!(previewed(&api).await, None, "it is open");
        }
    }
    let (api, ..) = crashed(2, LastWrite::Lost).await;
    api.edit(MARKER_PATH, |marker| {
        marker["data"]["ledger"] = json!("another");
    });
    assert_eq!(
        previewed(&api).await,
        Some("rebuilding"),
        "made by one who slept"
    );
    assert_eq!(previewed(&api).await, Some("rebuilding"));
    for names_another in [false, true] {
        let (api, store) = setup();
        api.put_velero("Backup", "running", "1", "InProgress", &all());
        let open = store.open(VELERO_SCOPE).await.unwrap();
        store
            .write(
                &open,
                Ledger {
                    status: Status::Closed,
                    ..Ledger::default()
                },
            )
            .await
            .unwrap();
        if names_another {
            api.edit(MARKER_PATH, |marker| {
                marker["data"]["ledger"] = json!("another");
            });
        }
        assert_eq!(
            previewed(&api).await,
            names_another.then_some("rebuilding"),
            "closed"
        );
    }
    let (api, store) = setup();
    store.open(VELERO_SCOPE).await.unwrap();
    api.delete(LEDGER_PATH);
    assert_eq!(previewed(&api).await, Some("rebuilding"), "lost");
}
