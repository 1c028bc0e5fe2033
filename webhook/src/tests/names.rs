//! A creation under a stored name can never be stored: it is refused with the API server's own
//! answer, and takes no place.

use super::*;

fn exists(answer: &Value, what: &str) -> bool {
    let status = &answer["status"];
    !allowed(answer)
        && status["code"] == 409
        && status["reason"] == "AlreadyExists"
        && message(answer) == format!("{what} already exists")
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_stored_takes_no_place_however_often_it_is_created() {
    for engine in [true, false] {
        let api = FakeApi::new();
        let replica = Replica::of(&api, |velero| velero.engine = engine);
        api.put_velero("Backup", "nightly", "1", "Completed", &backup_spec());
        for uid in ["2", "3"] {
            let mut request = creation("Backup", "nightly", uid, backup_spec());
            for dry_run in [true, false] {
                request["dryRun"] = json!(dry_run);
                let refused = replica.review(request.clone()).await;
                assert!(
                    exists(&refused, "backups.velero.io \"nightly\""),
                    "{engine} {dry_run} {refused}"
                );
            }
        }
        assert_eq!(
            ledger_version(&api),
            Value::Null,
            "no claim, whatever becomes of that Backup"
        );
        assert!(allowed(
            &replica.create("Restore", "r", "4", restore_spec()).await
        ));
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_stored_leaves_no_word_of_a_refused_restore() {
    let (api, replica) = one_replica();
    replica.run(&api, "Restore", "r", "1", restore_spec()).await;
    let elsewhere = json!({"backupName": "old", "includedNamespaces": ["shop", "db"]});
    let refused = replica.create("Restore", "r", "2", elsewhere).await;
    assert!(exists(&refused, "restores.velero.io \"r\""), "{refused}");
    let spec = json!({"includedNamespaces": ["db"]});
    assert!(allowed(&replica.create("Backup", "db", "3", spec).await));
}

#[tokio::test(start_paused = true)]
async fn a_request_to_delete_whose_name_is_stored_keeps_no_restore_out() {
    let (api, replica) = one_replica();
    let spec = json!({"backupName": "old"});
    api.put_velero("DeleteBackupRequest", "d", "1", "Processed", &spec);
    let refused = replica.create("DeleteBackupRequest", "d", "2", spec).await;
    assert!(
        exists(&refused, "deletebackuprequests.velero.io \"d\""),
        "{refused}"
    );
    assert!(allowed(
        &replica.create("Restore", "r", "3", restore_spec()).await
    ));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_stored_by_now_is_not_in_its_own_way() {
    let (api, replica) = one_replica();
    assert!(allowed(
        &replica.create("Backup", "b", "1", backup_spec()).await
    ));
    api.put_velero("Backup", "b", "1", "New", &backup_spec());
    assert!(allowed(
        &replica.create("Backup", "b", "1", backup_spec()).await
    ));
}

/// A place taken for a name that is stored would stay for minutes.
#[tokio::test(start_paused = true)]
async fn a_name_that_cannot_be_read_now_takes_no_place_and_may_come_again() {
    for (code, reason, text) in [
        (500, "InternalError", "etcdserver: leader changed"),
        // An API server that has just started does not know the rights of the webhook yet.
        (403, "Forbidden", "backups.velero.io is forbidden"),
        (401, "Unauthorized", "Unauthorized"),
    ] {
        let (api, replica) = one_replica();
        api.put_velero("Backup", "b", "1", "Completed", &backup_spec());
        api.fault(move |_, request| {
            let reads = request.path == backup_testkit::velero_path("Backup", "b");
            reads.then(|| Fault::refuse(code, reason, text))
        });
        let refused = replica.create("Backup", "b", "2", backup_spec()).await;
        assert!(
            !allowed(&refused) && refused["status"]["code"] == 503,
            "{refused}"
        );
        assert_says!(message(&refused), text);
        assert_eq!(ledger_version(&api), Value::Null, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_the_api_server_does_not_accept_is_free() {
    let (api, replica) = one_replica();
    api.fault(|_, request| {
        let reads = request.path == backup_testkit::velero_path("Backup", "b");
        reads.then(|| Fault::refuse(400, "BadRequest", "the name is not valid"))
    });
    assert!(allowed(
        &replica.create("Backup", "b", "2", backup_spec()).await
    ));
}
