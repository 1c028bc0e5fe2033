//! Claims that a user has released by force, and deleted objects that their worker has released:
//! neither is claimed again.

use super::*;

const NOTE: &str = "ann: stuck";

async fn force_release(store: &LedgerStore, key: &ObjectKey, uid: &str) {
    let change = |ledger: &mut Ledger| ledger.force_release(key, uid, NOTE);
    assert!(
        store
            .change(VELERO_SCOPE, deadline(), change)
            .await
            .unwrap()
    );
}

#[tokio::test(start_paused = true)]
async fn a_worker_sees_that_its_claim_was_released_and_gets_no_other() {
    let (api, store) = setup();
    let r = restore("r");
    api.put_velero("Restore", "r", "1", "", &all());
    let token = activate(&store, &r, "1").await.unwrap();
    assert_eq!(
        token_state(&store, &r, "1", &token).await.unwrap(),
        TokenState::Holds
    );
    api.put_velero("Restore", "r", "1", "InProgress", &all());
    force_release(&store, &r, "1").await;
    let released = TokenState::Released {
        note: NOTE.to_owned(),
    };
    assert_eq!(
        token_state(&store, &r, "1", &token).await.unwrap(),
        released
    );
    assert!(!holds(&store, &r, "1", &token).await.unwrap());
    let error = activate(&store, &r, "1").await.unwrap_err();
    assert_eq!(
        (error.category(), error.is_transient()),
        ("released", false)
    );
    assert_eq!(
        error.to_string(),
        "its claim was released by force by ann: stuck"
    );
    // Another object can then get the place, and the record of the release is removed with the end
    // of its object.
    admit(&store, &backup("b"), "2").await.unwrap();
    let mut collector = Collector::new(Times::default(), store.ends());
    let mut pass = async || {
        collector
            .collect(&store, VELERO_SCOPE, Instant::now())
            .await
            .unwrap()
            .freed
    };
    assert!(pass().await.is_empty(), "it runs still");
    api.put_velero("Restore", "r", "1", "Failed", &all());
    assert_eq!(pass().await, [(r.clone(), "1".to_owned(), Reason::Over)]);
    assert_eq!(ledger(&store).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_of_another_ledger_is_lost_and_not_released() {
    let (api, store) = setup();
    api.put_velero("Backup", "b", "1", "", &all());
    let token = activate(&store, &backup("b"), "1").await.unwrap();
    api.delete(LEDGER_PATH);
    assert_eq!(
        token_state(&store, &backup("b"), "1", &token)
            .await
            .unwrap(),
        TokenState::Lost
    );
}

#[tokio::test(start_paused = true)]
async fn a_release_ends_with_its_object_whether_that_ends_goes_or_never_came() {
    let (api, store) = setup();
    for (name, comes) in [("goes", true), ("never", false)] {
        admit(&store, &backup(name), name).await.unwrap();
        if comes {
            api.put_velero("Backup", name, name, "InProgress", &all());
        }
        force_release(&store, &backup(name), name).await;
    }
    let mut collector = Collector::new(Times::default(), store.ends());
    let start = Instant::now();
    let mut pass = async |after| {
        collector
            .collect(&store, VELERO_SCOPE, start + after)
            .await
            .unwrap()
            .freed
    };
    assert!(pass(Duration::ZERO).await.is_empty());
    api.delete_velero("Backup", "goes");
    assert_eq!(
        pass(Duration::ZERO).await,
        [(backup("goes"), "goes".to_owned(), Reason::Gone)]
    );
    assert!(pass(GRACE / 2).await.is_empty());
    assert_eq!(
        pass(GRACE).await,
        [(backup("never"), "never".to_owned(), Reason::Orphan)]
    );
    assert!(ledger(&store).await.is_empty());
}

/// A deleted object may stay as long as another program's finalizer does.
#[tokio::test(start_paused = true)]
async fn a_deleted_object_is_claimed_until_its_worker_has_let_it_go() {
    for (kind, key, work) in [
        (
            "Backup",
            backup("x"),
            backup_core::labels::BACKUP_WORK_FINALIZER,
        ),
        (
            "Restore",
            restore("x"),
            backup_core::labels::RESTORE_WORK_FINALIZER,
        ),
    ] {
        let (api, store) = setup();
        api.put_velero(kind, "x", "1", "InProgress", &all());
        activate(&store, &key, "1").await.unwrap();
        let finalizers = |finalizers: &[&str]| {
            api.edit(&velero_path(kind, "x"), |object| {
                object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                object["metadata"]["finalizers"] = json!(finalizers);
            });
        };
        let mut collector = Collector::new(Times::default(), store.ends());
        let mut pass = async || {
            collector
                .collect(&store, VELERO_SCOPE, Instant::now())
                .await
                .unwrap()
                .freed
        };
        finalizers(&[work, "somebody/else"]);
        assert!(pass().await.is_empty(), "its worker has not stopped");
        assert_eq!(
            store.objects().running(VELERO_SCOPE).await.unwrap().len(),
            1
        );
        finalizers(&["somebody/else"]);
        assert!(
            store
                .objects()
                .running(VELERO_SCOPE)
                .await
                .unwrap()
                .is_empty(),
            "{kind}: it is not claimed anew"
        );
        assert_eq!(
            pass().await,
            [(key.clone(), "1".to_owned(), Reason::Over)],
            "nor held"
        );
        assert!(matches!(
            activate(&store, &key, "1").await,
            Err(ActivateError::Over { .. })
        ));
    }
}

/// Another operator's handling of a deleted object is unknown.
#[tokio::test(start_paused = true)]
async fn a_deleted_object_of_another_engine_keeps_its_claim() {
    let api = FakeApi::new();
    let guarded = Profile {
        engine: false,
        ..Profile::velero()
    };
    let store = ProtectedProfile::new(api.client(), "velero", guarded, GRACE).store;
    api.put_velero("Restore", "x", "1", "InProgress", &all());
    api.edit(&velero_path("Restore", "x"), |object| {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        object["metadata"]["finalizers"] = json!(["somebody/else"]);
    });
    assert_eq!(
        store.objects().running(VELERO_SCOPE).await.unwrap().len(),
        1
    );
}

/// By break-glass. Its worker may be running, and writes until it has seen the change.
#[tokio::test(start_paused = true)]
async fn a_restore_that_a_person_ends_keeps_its_place_until_its_worker_has_stopped() {
    for stops in [true, false] {
        let (api, store) = setup();
        let velero = ProtectedProfile::new(api.client(), "velero", Profile::velero(), GRACE);
        let (mut collector, start) = (velero.collector(), Instant::now());
        let seconds = |seconds| start + Duration::from_secs(seconds);
        api.put_velero("Restore", "r", "1", "New", &all());
        let token = activate(&store, &restore("r"), "1").await.unwrap();
        let path = velero_path("Restore", "r");
        api.edit(&path, |object| {
            object["metadata"]["finalizers"] = json!([backup_core::labels::RESTORE_WORK_FINALIZER]);
            object["status"]["phase"] = json!("Failed");
        });
        let freed = collector
            .collect(&store, VELERO_SCOPE, start)
            .await
            .unwrap()
            .freed;
        assert_eq!(freed, [(restore("r"), "1".to_owned(), Reason::Over)]);
        assert_eq!(
            token_state(&store, &restore("r"), "1", &token)
                .await
                .unwrap(),
            TokenState::Lost,
            "it stops"
        );
        let mut passes = [0, 9].into_iter();
        for after in &mut passes {
            collector
                .collect(&store, VELERO_SCOPE, seconds(after))
                .await
                .unwrap();
            let refused = admit(&store, &backup("b"), "2").await;
            assert!(
                matches!(refused, Err(UpdateError::Refused(Refusal::Conflict(_)))),
                "{refused:?}"
            );
        }
        if stops {
            api.edit(&path, |object| object["metadata"]["finalizers"] = json!([]));
        }
        let freed = collector
            .collect(&store, VELERO_SCOPE, seconds(if stops { 9 } else { 10 }))
            .await
            .unwrap();
        assert_eq!(
            freed.freed,
            [(restore("r"), "1".to_owned(), Reason::Settled)],
            "stopped: {stops}"
        );
        admit(&store, &backup("b"), "2").await.unwrap();
    }
}
