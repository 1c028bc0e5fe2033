//! Effects of the policy and of an object's own annotation on a conflict.

use super::*;

#[tokio::test]
async fn a_restore_that_may_wait_is_admitted_with_a_warning_and_has_the_next_turn() {
    let (api, replica) = one_replica();
    replica.run(&api, "Backup", "b1", "1", backup_spec()).await;
    activate(&replica.store, &ObjectKey::backup("velero", "b1"), "1")
        .await
        .unwrap();
    let mut request = creation("Restore", "r1", "2", restore_spec());
    request["object"]["metadata"]["annotations"] = json!({"backup-lock/on-conflict": "queue"});
    let answer = replica.review(request).await;
    assert!(allowed(&answer));
    let warning = answer["warnings"][0].as_str().unwrap();
    assert_says!(warning, "Backup velero/b1 is running");
    api.put_velero("Restore", "r1", "2", "", &restore_spec());
    let refused = replica.create("Backup", "b2", "3", backup_spec()).await;
    assert_says!(message(&refused), "Restore velero/r1 waits for its turn");
    api.put_velero("Backup", "b1", "1", "Completed", &backup_spec());
    // The request that frees the last conflicting claim grants the queued one its turn in the same
    // write.
    let late = replica.create("Backup", "b3", "4", backup_spec()).await;
    assert!(!allowed(&late));
    backup_lock::release(&replica.store, &ObjectKey::backup("velero", "b1"), "1")
        .await
        .unwrap();
    let ledger = replica.ledger().await;
    assert_eq!(
        ledger
            .entry(&ObjectKey::restore("velero", "r1"), "2")
            .unwrap()
            .state,
        State::Reserved
    );
}

#[tokio::test]
async fn a_restore_that_may_wait_goes_before_a_backup_that_has_not_begun_where_our_controller_works()
 {
    for engine in [true, false] {
        let api = FakeApi::new();
        let replica = Replica::of(&api, |velero| velero.engine = engine);
        assert!(allowed(
            &replica.create("Backup", "b1", "1", backup_spec()).await
        ));
        api.put_velero("Backup", "b1", "1", "Queued", &backup_spec());
        let refused = replica
            .create("Restore", "denied", "2", restore_spec())
            .await;
        assert_eq!(
            message(&refused).contains("backup-lock/on-conflict: queue"),
            engine,
            "{refused}"
        );
        let mut request = creation("Restore", "r1", "3", restore_spec());
        request["object"]["metadata"]["annotations"] = json!({"backup-lock/on-conflict": "queue"});
        let answer = replica.review(request).await;
        // Other operators' objects cannot be queued.
        assert_eq!(
            (allowed(&answer), answer.get("warnings")),
            (engine, None),
            "{answer}"
        );
        let ledger = replica.ledger().await;
        let state = ledger
            .entry(&ObjectKey::backup("velero", "b1"), "1")
            .unwrap()
            .state;
        assert_eq!(
            state,
            if engine {
                State::Waiting
            } else {
                State::Reserved
            }
        );
    }
}

#[tokio::test]
async fn a_client_that_wants_to_wait_is_told_to_come_again_by_itself() {
    let api = FakeApi::new();
    let replica = Replica::of(&api, |velero| {
        velero.policy.on_conflict_backup = OnConflict::Wait;
    });
    assert!(allowed(
        &replica.create("Restore", "r1", "1", restore_spec()).await
    ));
    let refused = replica.create("Backup", "b1", "2", backup_spec()).await;
    let status = &refused["status"];
    assert_eq!(
        (&status["code"], &status["reason"]),
        (&json!(429), &json!("TooManyRequests"))
    );
    assert_eq!(status["details"]["retryAfterSeconds"], 10);
    let mut wish = creation("Backup", "b2", "3", backup_spec());
    wish["object"]["metadata"]["annotations"] = json!({"backup-lock/on-conflict": "queue"});
    let refused = replica.review(wish).await;
    assert!(
        message(&refused).contains("deny or wait"),
        "only restores can wait in the ledger: {refused}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_refused_restore_keeps_new_backups_out_for_a_while_and_finds_its_way_free() {
    let (api, replica) = one_replica();
    replica.run(&api, "Backup", "b1", "1", backup_spec()).await;
    assert!(!allowed(
        &replica.create("Restore", "r1", "2", restore_spec()).await
    ));
    api.put_velero("Backup", "b1", "1", "Completed", &backup_spec());
    backup_lock::release(&replica.store, &ObjectKey::backup("velero", "b1"), "1")
        .await
        .unwrap();
    let refused = replica.create("Backup", "b2", "3", backup_spec()).await;
    assert_says!(message(&refused), "Restore velero/r1 was refused at ");
    assert_says!(
        message(&refused),
        "`kubectl backup locks release restore/velero/r1 "
    );
    let elsewhere = json!({"includedNamespaces": ["elsewhere"]});
    assert!(allowed(
        &replica.create("Backup", "b3", "4", elsewhere).await
    ));
    tokio::time::sleep(Duration::from_secs(20)).await;
    let answer = replica.create("Backup", "b4", "5", backup_spec()).await;
    assert!(allowed(&answer), "it has given up: {answer}");
    // The client had not given up: it retries, and the intent is recorded again.
    assert!(!allowed(
        &replica.create("Restore", "r1", "6", restore_spec()).await
    ));
    api.put_velero("Backup", "b4", "5", "Completed", &backup_spec());
    for seconds in [0, 60, 59] {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let refused = replica.create("Backup", "b5", "7", backup_spec()).await;
        let said = message(&refused);
        assert!(
            said.contains("Restore velero/r1 was refused at ")
                && said.contains(", and comes again"),
            "{refused}"
        );
    }
    assert!(allowed(
        &replica.create("Restore", "r1", "8", restore_spec()).await
    ));
}

/// A client that is asked to retry does so by itself.
#[tokio::test(start_paused = true)]
async fn a_restore_whose_client_waits_keeps_new_backups_out_for_longer() {
    let (api, replica) = one_replica();
    replica.run(&api, "Backup", "b1", "1", backup_spec()).await;
    let mut waits = creation("Restore", "r1", "2", restore_spec());
    waits["object"]["metadata"]["annotations"] = json!({"backup-lock/on-conflict": "wait"});
    assert_eq!(replica.review(waits).await["status"]["code"], 429);
    api.put_velero("Backup", "b1", "1", "Completed", &backup_spec());
    for (seconds, admitted) in [(0, false), (119, false), (1, true)] {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        assert_eq!(
            allowed(&replica.create("Backup", "b2", "3", backup_spec()).await),
            admitted,
            "{seconds} s"
        );
    }
}

#[tokio::test]
async fn mode_warn_admits_warns_and_counts() {
    let api = FakeApi::new();
    let replica = Replica::of(&api, |velero| {
        velero.policy.mode = Mode::Warn;
        velero.engine = false;
    });
    assert!(allowed(
        &replica.create("Restore", "r1", "1", restore_spec()).await
    ));
    let answer = replica.create("Backup", "b1", "2", backup_spec()).await;
    assert!(allowed(&answer));
    assert_says!(answer["warnings"][0].as_str().unwrap(), "mode warn");
    assert_says!(replica.metrics.text(true), "decision=\"warned\"} 1");
}

#[tokio::test]
async fn nobody_breaks_the_glass_who_may_not() {
    let (_, replica) = one_replica();
    let mut request = creation("Backup", "b1", "1", backup_spec());
    request["object"]["metadata"]["annotations"] =
        json!({"backup-lock/break-glass": "I am in a hurry"});
    let refused = replica.review(request).await;
    assert_says!(message(&refused), "\"alice\" may not use");
    assert_says!(message(&refused), "backup-break-glass");
}

#[tokio::test]
async fn what_runs_can_not_come_to_touch_more_but_may_be_normalised() {
    let (_, replica) = one_replica();
    let update = |old: Value, new: Value| {
        let mut request = creation("Backup", "b1", "1", new);
        request["operation"] = json!("UPDATE");
        request["oldObject"] = request["object"].clone();
        request["oldObject"]["spec"] = old;
        replica.review(request)
    };
    let refused = update(
        backup_spec(),
        json!({"includedNamespaces": ["shop", "bank"]}),
    )
    .await;
    assert_says!(
        message(&refused),
        "can't be changed to touch namespaces bank, shop"
    );
    for (old, new) in [
        (
            json!({}),
            json!({"includedNamespaces": ["*"], "excludedNamespaces": ["no"], "ttl": "720h0m0s"}),
        ),
        (
            json!({"includedNamespaces": ["shop", "bank"]}),
            backup_spec(),
        ),
        (
            backup_spec(),
            json!({"includedNamespaces": ["shop"], "excludedResources": ["pods"]}),
        ),
    ] {
        assert!(allowed(&update(old, new).await));
    }
    let refused = update(
        backup_spec(),
        json!({"includedNamespaces": ["shop"], "ttl": "soon"}),
    )
    .await;
    assert_says!(message(&refused), "spec.ttl");
}
