//! A claim is activated once, for a stored object with a place.

use super::*;
use crate::{
    activate::{give_back, take_right},
    transition::EndRules,
};

#[tokio::test(start_paused = true)]
async fn work_may_start_only_with_an_activated_claim() {
    let (api, store) = setup();
    let (b, r) = (backup("b"), restore("r"));
    assert!(matches!(
        activate(&store, &b, "1").await,
        Err(ActivateError::Gone { .. })
    ));
    api.put_velero("Backup", "b", "1", "", &all());
    assert!(matches!(
        activate(&store, &b, "other-uid").await,
        Err(ActivateError::Gone { .. })
    ));
    // Created while the webhook was off: it gets its claim now.
    let token = activate(&store, &b, "1").await.unwrap();
    assert_eq!(
        activate(&store, &b, "1").await.unwrap(),
        token,
        "a successor gets the same token"
    );
    assert!(holds(&store, &b, "1", &token).await.unwrap());
    // This one was created then too, but it conflicts.
    api.put_velero("Restore", "r", "2", "", &all());
    match activate(&store, &r, "2").await {
        Err(ActivateError::Conflict(conflict)) => assert_eq!(conflict.holders[0].key, b),
        other => panic!("{other:?}"),
    }
    api.put_velero("Backup", "b", "1", "Completed", &all());
    assert!(release(&store, &b, "1").await.unwrap());
    assert!(
        !release(&store, &b, "1").await.unwrap(),
        "a second release is fine"
    );
    assert!(!holds(&store, &b, "1", &token).await.unwrap());
    assert!(matches!(
        activate(&store, &b, "1").await,
        Err(ActivateError::Over { .. })
    ));
    let second = activate(&store, &r, "2").await.unwrap();
    assert!(second.epoch > token.epoch);
}

#[tokio::test(start_paused = true)]
async fn work_that_has_begun_is_resumed_even_if_its_footprint_looks_different_now() {
    let (api, store) = setup();
    api.put_velero(
        "Backup",
        "source",
        "0",
        "Completed",
        &json!({"includedNamespaces": ["a"]}),
    );
    api.put_velero(
        "Restore",
        "r",
        "1",
        "InProgress",
        &json!({"backupName": "source"}),
    );
    api.put_velero(
        "Backup",
        "other",
        "2",
        "InProgress",
        &json!({"includedNamespaces": ["b"]}),
    );
    let token = activate(&store, &restore("r"), "1").await.unwrap();
    activate(&store, &backup("other"), "2").await.unwrap();
    api.delete_velero("Backup", "source");
    assert_eq!(activate(&store, &restore("r"), "1").await.unwrap(), token);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_kept_from_work_by_a_claim_whose_work_is_over() {
    let (api, store) = setup();
    for (name, uid) in [("ended", "1"), ("went", "2")] {
        api.put_velero("Backup", name, uid, "New", &all());
        activate(&store, &backup(name), uid).await.unwrap();
    }
    // Both are over, and not released yet. The restore is created while the webhook is off.
    api.put_velero("Backup", "ended", "1", "Completed", &all());
    api.delete_velero("Backup", "went");
    api.put_velero("Restore", "r", "3", "", &all());
    activate(&store, &restore("r"), "3").await.unwrap();
    assert_eq!(ledger(&store).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_blocker_that_can_not_be_read_is_trouble_and_no_conflict() {
    let (api, store) = setup();
    admit(&store, &backup("b"), "1").await.unwrap();
    api.put_velero("Restore", "r", "2", "", &all());
    api.fail(|request| request.path == velero_path("Backup", "b"));
    let error = activate(&store, &restore("r"), "2").await.unwrap_err();
    assert!(error.is_transient(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_edit_between_admission_and_start_is_claimed_or_refused() {
    let (api, store) = setup();
    let only = |namespace: &str| json!({"includedNamespaces": [namespace]});
    api.put_velero("Restore", "r", "1", "", &only("a"));
    activate(&store, &restore("r"), "1").await.unwrap();
    api.put_velero("Restore", "r", "1", "", &only("b"));
    assert!(
        activate(&store, &restore("r"), "1")
            .await
            .unwrap()
            .footprint
            .includes("b")
    );
    api.put_velero("Backup", "busy", "2", "InProgress", &only("c"));
    activate(&store, &backup("busy"), "2").await.unwrap();
    api.put_velero("Restore", "r", "1", "", &only("c"));
    assert!(matches!(
        activate(&store, &restore("r"), "1").await,
        Err(ActivateError::Conflict(_))
    ));
    // Once it is Active, an edit adds nothing to its footprint.
    api.put_velero("Restore", "r", "1", "InProgress", &only("d"));
    assert!(
        !activate(&store, &restore("r"), "1")
            .await
            .unwrap()
            .footprint
            .includes("d")
    );
}

#[tokio::test(start_paused = true)]
async fn a_restore_that_names_its_backup_and_its_schedule_touches_what_the_backup_holds() {
    let (api, store) = setup();
    api.put_velero(
        "Backup",
        "source",
        "0",
        "Completed",
        &json!({"includedNamespaces": ["a"]}),
    );
    for schedule in [Value::Null, json!(""), json!("nightly")] {
        let spec = json!({"backupName": "source", "scheduleName": schedule});
        let footprint = store
            .objects()
            .footprint(&restore("r"), &spec)
            .await
            .unwrap();
        assert_eq!(
            footprint,
            Footprint::namespaces(["a"]).from_backup("velero", Some("source")),
            "{spec}"
        );
    }
}

/// A restore that waits for a running backup.
async fn waiting() -> (FakeApi, LedgerStore) {
    let (api, store) = setup();
    api.put_velero("Backup", "b", "1", "InProgress", &all());
    activate(&store, &backup("b"), "1").await.unwrap();
    let grant = admit_as(&store, VELERO_SCOPE, &restore("r"), "2", queued())
        .await
        .unwrap();
    assert!(matches!(grant, Grant::Waiting(_)));
    api.put_velero("Restore", "r", "2", "", &all());
    (api, store)
}

#[tokio::test(start_paused = true)]
async fn who_waits_may_not_work_and_is_no_failure() {
    let (_, store) = waiting().await;
    for _ in 0..2 {
        match activate(&store, &restore("r"), "2").await {
            Err(error @ ActivateError::Waiting(_)) => {
                assert_says!(error, "Backup velero/b");
                assert_eq!((error.category(), error.is_transient()), ("waiting", false));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        ledger(&store)
            .await
            .entry(&restore("r"), "2")
            .unwrap()
            .state,
        State::Waiting
    );
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_one_that_is_over_gets_its_place_and_works() {
    for gone in [false, true] {
        let (api, store) = waiting().await;
        // Over but not released: its controller is down.
        if gone {
            api.delete_velero("Backup", "b");
        } else {
            api.put_velero("Backup", "b", "1", "Completed", &all());
        }
        let token = activate(&store, &restore("r"), "2").await.unwrap();
        assert!(holds(&store, &restore("r"), "2", &token).await.unwrap());
        assert_eq!(ledger(&store).await.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_release_of_the_last_blocker_lets_the_first_who_waits_work_and_no_other() {
    let (api, store) = waiting().await;
    admit_as(&store, VELERO_SCOPE, &restore("second"), "3", queued())
        .await
        .unwrap();
    api.put_velero("Restore", "second", "3", "", &all());
    api.put_velero("Backup", "b", "1", "Completed", &all());
    assert!(release(&store, &backup("b"), "1").await.unwrap());
    let writes = api.writes();
    assert_eq!(
        ledger(&store)
            .await
            .entry(&restore("r"), "2")
            .unwrap()
            .state,
        State::Reserved,
        "in the same write"
    );
    assert!(matches!(
        activate(&store, &restore("second"), "3").await,
        Err(ActivateError::Waiting(_))
    ));
    assert_eq!(api.writes(), writes);
    activate(&store, &restore("r"), "2").await.unwrap();
    // Its holder runs: its claim is not freed.
    assert!(matches!(
        activate(&store, &restore("second"), "3").await,
        Err(ActivateError::Waiting(_))
    ));
    api.put_velero("Restore", "r", "2", "Failed", &all());
    assert!(activate(&store, &restore("second"), "3").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn who_broke_the_glass_works_beside_the_others_and_keeps_new_ones_out() {
    let (api, store) = setup();
    api.put_velero("Backup", "b", "1", "InProgress", &all());
    let first = activate(&store, &backup("b"), "1").await.unwrap();
    let grant = admit_as(&store, VELERO_SCOPE, &restore("r"), "2", forced())
        .await
        .unwrap();
    assert!(matches!(grant, Grant::Forced(_)));
    api.put_velero("Restore", "r", "2", "", &all());
    let token = activate(&store, &restore("r"), "2").await.unwrap();
    assert!(holds(&store, &backup("b"), "1", &first).await.unwrap());
    assert!(holds(&store, &restore("r"), "2", &token).await.unwrap());
    assert!(admit(&store, &backup("new"), "3").await.is_err());
    assert!(
        ledger(&store)
            .await
            .entry(&restore("r"), "2")
            .unwrap()
            .forced,
        "and it can be seen afterwards"
    );
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_is_rebuilt_gives_no_right_to_work_for_now() {
    let (api, store) = setup();
    api.put_velero("Backup", "b", "1", "", &all());
    activate(&store, &backup("b"), "1").await.unwrap();
    api.delete(LEDGER_PATH);
    let token_holder = activate(&store, &backup("b"), "1").await.unwrap_err();
    assert_eq!(
        (token_holder.category(), token_holder.is_transient()),
        ("rebuilding", true)
    );
    assert!(
        matches!(token_holder, ActivateError::Ledger(_)),
        "and no conflict: nobody is to be failed for it"
    );
    let (mut repair, now) = (LedgerRepair::new(GRACE, GRACE), Instant::now());
    for times in 0..2 {
        repair
            .repair(&store, VELERO_SCOPE, now + GRACE * times)
            .await
            .unwrap();
        assert!(
            activate(&store, &backup("b"), "1")
                .await
                .unwrap_err()
                .is_transient()
        );
        assert!(
            release(&store, &backup("b"), "1").await.is_err(),
            "nor is anything given back: it is not known"
        );
    }
    assert_eq!(
        repair
            .repair(&store, VELERO_SCOPE, now + GRACE * 2)
            .await
            .unwrap(),
        RepairOutcome::Rebuilt
    );
    activate(&store, &backup("b"), "1").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_of_several_in_the_way_who_is_there_keeps_the_others_places_too() {
    let (api, store) = setup();
    for (name, uid) in [("over", "1"), ("works", "2")] {
        api.put_velero("Backup", name, uid, "InProgress", &all());
        activate(&store, &backup(name), uid).await.unwrap();
    }
    api.put_velero("Backup", "over", "1", "Completed", &all());
    api.put_velero("Restore", "r", "3", "", &all());
    assert!(matches!(
        activate(&store, &restore("r"), "3").await,
        Err(ActivateError::Conflict(_))
    ));
    api.put_velero("Backup", "works", "2", "Failed", &all());
    activate(&store, &restore("r"), "3").await.unwrap();
    assert_eq!(ledger(&store).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_person_holds_is_not_cleared_away() {
    let (api, store) = setup();
    let key = ObjectKey::new(ObjectKind::Hold, "velero", "repairs");
    let change = |ledger: &mut Ledger| {
        ledger.hold(&key, "1", &Footprint::everything(), "now", "me: repairs")
    };
    store
        .update(VELERO_SCOPE, deadline(), change)
        .await
        .unwrap();
    api.put_velero("Backup", "b", "2", "", &all());
    assert!(matches!(
        activate(&store, &backup("b"), "2").await,
        Err(ActivateError::Conflict(_))
    ));
    assert!(ledger(&store).await.entry(&key, "1").is_some());
}

#[tokio::test(start_paused = true)]
async fn an_activation_and_a_collection_of_the_same_reservation_are_ordered() {
    // The collector has judged, and just before its write the object is stored and activated.
    let (api, store) = setup();
    admit(&store, &restore("r"), "1").await.unwrap();
    let mut collector = Collector::new(
        Times {
            grace: Duration::ZERO,
            ..Times::default()
        },
        store.ends(),
    );
    let now = Instant::now();
    collector.collect(&store, VELERO_SCOPE, now).await.unwrap();
    let before = ledger(&store).await;
    assert!(before.entry(&restore("r"), "1").unwrap().suspect);
    let stored = store.read(VELERO_SCOPE).await.unwrap().unwrap();
    let judged = collector.judge_entries(
        &before.claims[0],
        &crate::transition::ObservedState::default(),
        now,
    );
    assert_eq!(judged.len(), 1, "it is to end");
    api.put_velero("Restore", "r", "1", "", &all());
    let token = activate(&store, &restore("r"), "1").await.unwrap();
    let done = crate::collect::apply(&store, VELERO_SCOPE, &judged, deadline())
        .await
        .unwrap();
    assert!(done.freed.is_empty());
    assert!(holds(&store, &restore("r"), "1", &token).await.unwrap());
    assert!(store.write(&stored, Ledger::default()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_place_that_has_to_settle_is_given_back_and_cleared_no_sooner() {
    let api = FakeApi::new();
    let mut profile = Profile::velero();
    profile.policy.settle = Duration::from_secs(30);
    let protected = ProtectedProfile::new(api.client(), "velero", profile, GRACE);
    let store = &protected.store;
    api.put_velero("Restore", "r", "1", "", &all());
    activate(store, &restore("r"), "1").await.unwrap();
    api.put_velero("Restore", "r", "1", "Completed", &all());
    api.put_velero("Backup", "b", "2", "", &all());
    // Over but not released yet: its claim is not simply freed.
    assert!(matches!(
        activate(store, &backup("b"), "2").await,
        Err(ActivateError::Conflict(_))
    ));
    assert!(release(store, &restore("r"), "1").await.unwrap());
    assert_eq!(
        ledger(store).await.entry(&restore("r"), "1").unwrap().state,
        State::Settling
    );
    assert!(matches!(
        activate(store, &backup("b"), "2").await,
        Err(ActivateError::Conflict(_))
    ));
    let (mut collector, now) = (protected.collector(), Instant::now());
    for (seconds, freed) in [(0, 0), (29, 0), (30, 1)] {
        let at = now + Duration::from_secs(seconds);
        assert_eq!(
            collector
                .collect(store, VELERO_SCOPE, at)
                .await
                .unwrap()
                .freed
                .len(),
            freed,
            "{seconds} s"
        );
    }
    activate(store, &backup("b"), "2").await.unwrap();
    // A backup has changed nothing, and neither has a restore that never started.
    assert!(release(store, &backup("b"), "2").await.unwrap());
    admit(store, &restore("idle"), "3").await.unwrap();
    assert!(release(store, &restore("idle"), "3").await.unwrap());
    assert!(ledger(store).await.is_empty());
}

#[test]
fn who_waits_keeps_its_place_in_the_queue_even_if_its_footprint_looks_larger_now() {
    let (b, r) = (backup("b"), restore("r"));
    let (a, ab) = (
        Footprint::namespaces(["a"]),
        Footprint::namespaces(["a", "b"]),
    );
    let mut ledger = Ledger::default();
    ledger.admit(&b, "1", &a, "", &Ask::default()).unwrap();
    ledger.admit(&r, "2", &a, "", &Ask::queued()).unwrap();
    let refused = take_right(&mut ledger, &r, "2", &ab, "", true);
    assert!(matches!(refused, Err(Refusal::Waiting(_))), "{refused:?}");
    assert!(give_back(&mut ledger, &b, "1", EndRules::default()));
    assert_eq!(
        ledger.entry(&r, "2").unwrap().state,
        State::Reserved,
        "its turn has come"
    );
}
