//! Claims without a working object are freed, and no others.

use super::*;
use crate::collect::CollectionOutcome;

fn collector(store: &LedgerStore, grace: Duration) -> Collector {
    Collector::new(
        Times {
            grace,
            ..Times::default()
        },
        store.ends(),
    )
}

async fn pass(collector: &mut Collector, store: &LedgerStore, now: Instant) -> CollectionOutcome {
    collector.collect(store, VELERO_SCOPE, now).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn claims_of_objects_that_ended_or_went_are_freed_at_once() {
    let (api, store) = setup();
    for (name, uid) in [
        ("ended", "1"),
        ("went", "2"),
        ("runs", "3"),
        ("deleting", "4"),
    ] {
        api.put_velero("Backup", name, uid, "New", &all());
        activate(&store, &backup(name), uid).await.unwrap();
    }
    api.put_velero("Backup", "ended", "1", "Failed", &all());
    api.delete_velero("Backup", "went");
    // Its finalizer keeps it until its worker has stopped.
    api.edit(&velero_path("Backup", "deleting"), |object| {
        object["metadata"]["deletionTimestamp"] = json!("2026-11-21T10:00:00Z");
        object["metadata"]["finalizers"] = json!([backup_core::labels::BACKUP_WORK_FINALIZER]);
    });
    let collected = pass(&mut collector(&store, GRACE), &store, Instant::now()).await;
    let freed: Vec<_> = collected
        .freed
        .iter()
        .map(|(key, _, reason)| (key.name.as_str(), *reason))
        .collect();
    assert_eq!(freed, [("ended", Reason::Over), ("went", Reason::Gone)]);
    assert_eq!(ledger(&store).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_reservation_without_an_object_takes_a_grace_a_suspicion_and_another_look() {
    let (api, store) = setup();
    // Another object has the name: the reservation of this uid is still an orphan.
    api.put_velero("Backup", "b", "other", "InProgress", &all());
    store.open(VELERO_SCOPE).await.unwrap();
    admit(&store, &backup("b"), "1").await.unwrap();
    let (mut collector, start, writes) = (collector(&store, GRACE), Instant::now(), api.writes());
    for after in [0, 60, 119] {
        let at = start + Duration::from_secs(after);
        assert!(
            pass(&mut collector, &store, at).await.freed.is_empty(),
            "after {after} s"
        );
    }
    assert_eq!(api.writes(), writes);
    assert!(
        pass(&mut collector, &store, start + GRACE)
            .await
            .freed
            .is_empty(),
        "the first look after the grace"
    );
    assert_eq!(api.writes(), writes + 1, "notes its suspicion");
    assert!(
        ledger(&store)
            .await
            .entry(&backup("b"), "1")
            .unwrap()
            .suspect
    );
    let collected = pass(&mut collector, &store, start + GRACE).await;
    assert_eq!(
        collected.freed,
        [(backup("b"), "1".to_owned(), Reason::Orphan)]
    );
    assert!(
        ledger(&store).await.entry(&backup("b"), "other").is_some(),
        "the other entry of the name stays"
    );
}

#[tokio::test(start_paused = true)]
async fn the_suspicion_of_another_does_not_shorten_ones_own_grace() {
    let (_, store) = setup();
    admit(&store, &restore("r"), "1").await.unwrap();
    let start = Instant::now();
    let (mut early, mut late) = (collector(&store, GRACE), collector(&store, GRACE));
    pass(&mut early, &store, start).await;
    pass(&mut early, &store, start + GRACE).await;
    assert!(
        ledger(&store)
            .await
            .entry(&restore("r"), "1")
            .unwrap()
            .suspect
    );
    // A replica that starts only now, or whose clock is an hour ahead, counts from its first look.
    let ahead = start + Duration::from_hours(1);
    for after in [0, 60, 119] {
        let at = ahead + Duration::from_secs(after);
        assert!(
            pass(&mut late, &store, at).await.freed.is_empty(),
            "after {after} s"
        );
    }
    assert_eq!(
        pass(&mut late, &store, ahead + GRACE).await.freed.len(),
        1,
        "the suspicion is of use, though"
    );
}

#[tokio::test(start_paused = true)]
async fn an_object_that_comes_late_is_suspected_for_nothing() {
    let (api, store) = setup();
    admit(&store, &restore("r"), "1").await.unwrap();
    let (mut collector, start) = (collector(&store, GRACE), Instant::now());
    pass(&mut collector, &store, start).await;
    pass(&mut collector, &store, start + GRACE).await;
    api.put_velero("Restore", "r", "1", "", &all());
    for times in 1..5 {
        assert_eq!(
            pass(&mut collector, &store, start + GRACE * times).await,
            CollectionOutcome::default()
        );
    }
    activate(&store, &restore("r"), "1").await.unwrap();
    assert!(
        !ledger(&store)
            .await
            .entry(&restore("r"), "1")
            .unwrap()
            .suspect
    );
}

#[tokio::test(start_paused = true)]
async fn an_age_begins_anew_when_the_object_was_there_in_between() {
    let (api, store) = setup();
    admit(&store, &restore("r"), "1").await.unwrap();
    let start = Instant::now();
    let looks = crate::collect::look_period(GRACE) * 3;
    let mut times = Collector::new(Times::default(), store.ends());
    let claim = ledger(&store).await.claims[0].clone();
    let there = crate::transition::ObservedState {
        uid: Some("1".to_owned()),
        ..Default::default()
    };
    assert!(
        times
            .judge_entries(&claim, &crate::transition::ObservedState::default(), start)
            .is_empty()
    );
    assert_eq!(
        times.left(&claim.key, &claim.entries[0], start + GRACE / 2),
        GRACE / 2 + looks
    );
    assert!(
        times
            .judge_entries(&claim, &there, start + GRACE)
            .is_empty()
    );
    let left = times.left(&claim.key, &claim.entries[0], start + GRACE);
    assert_eq!(left, GRACE + looks, "it is not even waited for");

    // Nor when its claim was freed and it was admitted again, as a revival.
    let mut times = Collector::new(Times::default(), store.ends());
    assert!(
        times
            .judge_entries(&claim, &crate::transition::ObservedState::default(), start)
            .is_empty()
    );
    let revived = crate::Entry {
        revives: "41".to_owned(),
        ..claim.entries[0].clone()
    };
    assert_eq!(
        times.left(&claim.key, &revived, start + GRACE / 2),
        GRACE + looks
    );
    assert!(api.get(&velero_path("Restore", "r")).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_reservation_whose_object_was_seen_stored_is_freed_as_soon_as_that_is_gone() {
    let (api, store) = setup();
    admit(&store, &restore("r"), "1").await.unwrap();
    api.put_velero("Restore", "r", "1", "", &all());
    let (mut collector, now) = (collector(&store, GRACE), Instant::now());
    assert!(pass(&mut collector, &store, now).await.freed.is_empty());
    api.delete_velero("Restore", "r");
    let collected = pass(&mut collector, &store, now).await;
    assert_eq!(
        collected.freed,
        [(restore("r"), "1".to_owned(), Reason::Gone)]
    );
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_can_not_tell_frees_nothing() {
    let (api, store) = setup();
    admit(&store, &restore("r"), "1").await.unwrap();
    let mut collector = collector(&store, Duration::ZERO);
    // A kind that is not served is "not found" too, but the error names no object.
    api.unserve("velero.io");
    for _ in 0..3 {
        let collected = pass(&mut collector, &store, Instant::now()).await;
        assert_eq!((collected.freed.len(), collected.unknown), (0, 1));
    }
    api.recover();
    api.fail(|request| request.path == velero_path("Restore", "r"));
    for _ in 0..3 {
        assert_eq!(
            pass(&mut collector, &store, Instant::now()).await.unknown,
            1
        );
    }
    let ledger = ledger(&store).await;
    assert_eq!(
        (ledger.len(), ledger.claims[0].entries[0].suspect),
        (1, false)
    );
}

#[tokio::test(start_paused = true)]
async fn the_pass_that_frees_the_last_blocker_lets_in_who_waits() {
    let (api, store) = setup();
    admit(&store, &backup("orphan"), "1").await.unwrap();
    admit_as(&store, VELERO_SCOPE, &restore("r"), "2", queued())
        .await
        .unwrap();
    api.put_velero("Restore", "r", "2", "", &all());
    let mut collector = collector(&store, Duration::ZERO);
    for _ in 0..2 {
        pass(&mut collector, &store, Instant::now()).await;
    }
    let ledger = ledger(&store).await;
    assert_eq!(
        (
            ledger.len(),
            ledger.entry(&restore("r"), "2").unwrap().state
        ),
        (1, State::Reserved)
    );
}

#[tokio::test(start_paused = true)]
async fn one_who_waits_and_never_came_or_went_is_freed_too() {
    let (api, store) = setup();
    api.put_velero("Backup", "b", "1", "InProgress", &all());
    activate(&store, &backup("b"), "1").await.unwrap();
    for (name, uid) in [("orphan", "2"), ("went", "3"), ("ended", "4")] {
        admit_as(&store, VELERO_SCOPE, &restore(name), uid, queued())
            .await
            .unwrap();
    }
    api.put_velero("Restore", "went", "3", "", &all());
    api.put_velero("Restore", "ended", "4", "FailedValidation", &all());
    let (mut collector, start) = (collector(&store, GRACE), Instant::now());
    assert_eq!(
        pass(&mut collector, &store, start).await.freed,
        [(restore("ended"), "4".to_owned(), Reason::Over)]
    );
    api.delete_velero("Restore", "went");
    assert_eq!(
        pass(&mut collector, &store, start).await.freed,
        [(restore("went"), "3".to_owned(), Reason::Gone)]
    );
    pass(&mut collector, &store, start + GRACE).await;
    let last = pass(&mut collector, &store, start + GRACE).await;
    assert_eq!(
        last.freed,
        [(restore("orphan"), "2".to_owned(), Reason::Orphan)]
    );
}

#[tokio::test(start_paused = true)]
async fn who_was_refused_and_does_not_come_is_not_waited_for() {
    let (api, store) = setup();
    api.put_velero("Backup", "b", "1", "InProgress", &all());
    activate(&store, &backup("b"), "1").await.unwrap();
    let refuse = |ledger: &mut Ledger| {
        ledger.leave_intent(
            &restore("r"),
            "2",
            &Footprint::everything(),
            "now",
            &Ask::default(),
        )
    };
    assert!(
        store
            .change(VELERO_SCOPE, deadline(), refuse)
            .await
            .unwrap()
    );
    let (mut collector, start) = (collector(&store, GRACE), Instant::now());
    let at = |seconds| start + Duration::from_secs(seconds);
    for seconds in [0, 60, 110] {
        assert_eq!(
            pass(&mut collector, &store, at(seconds)).await,
            CollectionOutcome::default(),
            "what is in its way works"
        );
    }
    release(&store, &backup("b"), "1").await.unwrap();
    for seconds in [111, 120] {
        pass(&mut collector, &store, at(seconds)).await;
        assert!(
            admit(&store, &backup("b2"), "3").await.is_err(),
            "after {seconds} s"
        );
    }
    pass(&mut collector, &store, at(121)).await;
    admit(&store, &backup("b2"), "3").await.unwrap();
    // The refusal is remembered for a while.
    assert!(
        store
            .change(VELERO_SCOPE, deadline(), refuse)
            .await
            .unwrap()
    );
    for seconds in [122, 241] {
        pass(&mut collector, &store, at(seconds)).await;
        assert!(
            ledger(&store).await.entry(&restore("r"), "2").is_some(),
            "after {seconds} s"
        );
    }
    pass(&mut collector, &store, at(242)).await;
    assert!(ledger(&store).await.entry(&restore("r"), "2").is_none());
}

#[tokio::test(start_paused = true)]
async fn the_word_of_a_refused_restore_lapses_after_its_time() {
    let (_, store) = setup();
    let change = |ledger: &mut Ledger| {
        let ask = Ask {
            insists: true,
            ..Ask::default()
        };
        Ok::<_, Refusal>(ledger.leave_intent(
            &restore("r"),
            "1",
            &Footprint::everything(),
            "now",
            &ask,
        ))
    };
    assert!(
        store
            .update(VELERO_SCOPE, deadline(), change)
            .await
            .unwrap()
            .0
    );
    let times = Times {
        grace: Duration::ZERO,
        intent: GRACE,
        ..Times::default()
    };
    let (mut collector, start) = (Collector::new(times, store.ends()), Instant::now());
    for after in [0, 119] {
        assert!(
            pass(&mut collector, &store, start + Duration::from_secs(after))
                .await
                .freed
                .is_empty()
        );
        assert!(admit(&store, &backup("b"), "2").await.is_err());
    }
    let collected = pass(&mut collector, &store, start + GRACE).await;
    assert_eq!(
        collected.freed,
        [(restore("r"), "1".to_owned(), Reason::Lapsed)]
    );
    admit(&store, &backup("b"), "2").await.unwrap();
}

/// Requests are slow enough that sequential ones would take minutes.
#[tokio::test(start_paused = true)]
async fn a_thousand_orphans_are_collected_within_thirty_seconds() {
    let (api, store) = setup();
    store.open(VELERO_SCOPE).await.unwrap();
    let burst = |ledger: &mut Ledger| {
        for n in 0..1000 {
            let (key, requester) = (backup(&n.to_string()), n.to_string());
            let ask = Ask {
                requester,
                ..Ask::forced("")
            };
            ledger
                .admit(&key, "1", &Footprint::everything(), "now", &ask)
                .unwrap();
        }
    };
    store.change(VELERO_SCOPE, deadline(), burst).await.unwrap();
    api.slow(Duration::from_millis(50));
    let mut collector = collector(&store, GRACE);
    let now = tokio::time::Instant::now;
    let start = now();
    loop {
        pass(&mut collector, &store, now().into_std()).await;
        if ledger(&store).await.is_empty() {
            break;
        }
        tokio::time::sleep(crate::collect::look_period(GRACE)).await;
    }
    let took = now() - (start + GRACE);
    assert!(took <= Duration::from_secs(30), "{took:?} after the grace");
}

#[tokio::test(start_paused = true)]
async fn a_hold_outlives_every_pass() {
    let (_, store) = setup();
    let key = ObjectKey::new(ObjectKind::Hold, "velero", "repairs");
    let change =
        |ledger: &mut Ledger| ledger.hold(&key, "1", &Footprint::everything(), "now", "me");
    store
        .update(VELERO_SCOPE, deadline(), change)
        .await
        .unwrap();
    let (mut collector, start) = (collector(&store, Duration::ZERO), Instant::now());
    for times in 0..4 {
        assert_eq!(
            pass(&mut collector, &store, start + GRACE * times).await,
            CollectionOutcome::default()
        );
    }
    assert!(ledger(&store).await.entry(&key, "1").is_some());
}

#[tokio::test(start_paused = true)]
async fn the_deletion_of_a_backup_is_claimed_until_the_backup_is_gone_or_was_never_deleted() {
    for begun in [true, false] {
        let (api, store) = setup();
        api.put_velero("Backup", "old", "1", "Completed", &all());
        let key = ObjectKey::new(ObjectKind::Deletion, "velero", "old");
        let change = |ledger: &mut Ledger| {
            ledger.admit(
                &key,
                "1",
                &Footprint::of_deletion("velero", "old"),
                "now",
                &Ask::default(),
            )
        };
        store
            .update(VELERO_SCOPE, deadline(), change)
            .await
            .unwrap();
        if begun {
            api.edit(&velero_path("Backup", "old"), |object| {
                object["metadata"]["deletionTimestamp"] = json!("2026-11-21T10:00:00Z");
            });
        }
        let (mut collector, start) = (collector(&store, GRACE), Instant::now());
        assert!(pass(&mut collector, &store, start).await.freed.is_empty());
        assert!(
            pass(&mut collector, &store, start + GRACE)
                .await
                .freed
                .is_empty()
        );
        let third = pass(&mut collector, &store, start + GRACE).await.freed;
        if begun {
            assert!(third.is_empty());
            api.delete_velero("Backup", "old");
            assert_eq!(
                pass(&mut collector, &store, start).await.freed[0].2,
                Reason::Gone
            );
        } else {
            assert_eq!(
                third,
                [(key, "1".to_owned(), Reason::Orphan)],
                "another webhook refused it"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_collected_where_there_is_no_ledger() {
    let (api, store) = setup();
    assert_eq!(
        pass(
            &mut collector(&store, Duration::ZERO),
            &store,
            Instant::now()
        )
        .await,
        CollectionOutcome::default()
    );
    assert!(api.get(LEDGER_PATH).is_none(), "and none is made");
}
