//! Kinds of another operator.

use super::*;

/// A review of an object of Percona's operator.
fn percona(
    operation: &str,
    kind: &str,
    name: &str,
    uid: &str,
    state: &str,
    old_state: Option<&str>,
) -> Value {
    let object = |state: &str| {
        json!({
            "apiVersion": "ps.percona.com/v1", "kind": kind, "status": {"state": state},
            "spec": {"clusterName": "cluster1"},
            "metadata": {"name": name, "namespace": "db", "uid": uid, "creationTimestamp": "2026-11-21T09:30:00Z"},
        })
    };
    let mut request = json!({
        "uid": "request", "operation": operation, "name": name, "namespace": "db", "dryRun": false,
        "kind": {"group": "ps.percona.com", "version": "v1", "kind": kind},
        "resource": {"group": "ps.percona.com", "version": "v1", "resource": format!("{}s", kind.to_lowercase())},
        "userInfo": {"username": "alice"},
        "object": object(state),
    });
    if let Some(old) = old_state {
        request["oldObject"] = object(old);
        request["oldObject"]["metadata"]["resourceVersion"] = json!("41");
        request["subResource"] = json!("status");
    }
    request
}

const PS_BACKUP: &str = "PerconaServerMySQLBackup";
const PS_RESTORE: &str = "PerconaServerMySQLRestore";

#[tokio::test]
async fn another_operators_backups_and_restores_of_one_database_are_kept_apart() {
    let (_, replica) = one_replica();
    assert!(allowed(
        &replica
            .review(percona("CREATE", PS_RESTORE, "r", "1", "", None))
            .await
    ));
    let refused = replica
        .review(percona("CREATE", PS_BACKUP, "b", "2", "", None))
        .await;
    assert!(!allowed(&refused));
    assert_says!(message(&refused), "Restore db/r");
    let mut other = percona("CREATE", PS_BACKUP, "b", "3", "", None);
    other["object"]["spec"]["clusterName"] = json!("cluster2");
    assert!(allowed(&replica.review(other).await), "another database");
    assert!(
        allowed(&replica.create("Backup", "b", "4", backup_spec()).await),
        "another operator"
    );
    let mut unnamed = percona("CREATE", PS_BACKUP, "b", "5", "", None);
    unnamed["object"]["spec"] = json!({});
    let refused = replica.review(unnamed).await;
    assert_says!(message(&refused), "spec.clusterName");
}

#[tokio::test]
async fn a_restore_that_failed_and_comes_back_to_life_claims_again_or_stays() {
    let (_, replica) = one_replica();
    let revive = || percona("UPDATE", PS_RESTORE, "r", "1", "", Some("Error"));
    assert!(allowed(&replica.review(revive()).await));
    let refused = replica
        .review(percona("CREATE", PS_BACKUP, "b", "2", "", None))
        .await;
    assert_says!(message(&refused), "Restore db/r");
    let dead = replica
        .review(percona("UPDATE", PS_RESTORE, "r", "1", "", Some("Failed")))
        .await;
    assert!(
        message(&dead).contains("has ended"),
        "only what the operator does itself: {dead}"
    );

    let (_, replica) = one_replica();
    assert!(allowed(
        &replica
            .review(percona("CREATE", PS_BACKUP, "b", "2", "", None))
            .await
    ));
    let refused = replica.review(revive()).await;
    assert_says!(message(&refused), "Backup db/b");
}

/// Between the answer of the webhook and the write of the API server the object still has its last
/// final state.
#[tokio::test(start_paused = true)]
async fn a_revival_is_not_ended_by_what_it_revives() {
    let at = "/apis/ps.percona.com/v1/namespaces/db/perconaservermysqlrestores/r";
    let put = |api: &FakeApi, state: &str| {
        api.put(
            at,
            json!({"apiVersion": "ps.percona.com/v1", "kind": PS_RESTORE, "spec": {"clusterName": "cluster1"},
                "metadata": {"name": "r", "namespace": "db", "uid": "1"}, "status": {"state": state}}),
        );
    };
    for lands in [true, false] {
        let (api, replica) = one_replica();
        put(&api, "Error");
        let mut revival = percona("UPDATE", PS_RESTORE, "r", "1", "", Some("Error"));
        revival["oldObject"]["metadata"]["resourceVersion"] =
            api.get(at).unwrap()["metadata"]["resourceVersion"].clone();
        assert!(allowed(&replica.review(revival).await));
        let backup = |uid: &str| replica.review(percona("CREATE", PS_BACKUP, "b", uid, "", None));
        let refused = backup("2").await;
        assert_says!(message(&refused), "Restore db/r was requested at");
        if lands {
            put(&api, "Running");
            assert_says!(message(&backup("3").await), "is running");
            put(&api, "Error");
            assert!(
                allowed(&backup("4").await),
                "what it was revived for has ended"
            );
        } else {
            tokio::time::sleep(GRACE).await;
            assert!(
                !allowed(&backup("3").await),
                "the suspicion is written down first"
            );
            assert!(allowed(&backup("4").await), "it never came");
        }
    }
}

#[tokio::test]
async fn the_operators_own_lease_is_honoured_while_its_holder_runs() {
    let lease = |holder: &str| json!({"metadata": {"name": "restore-lock-cluster1", "namespace": "db"}, "spec": {"holderIdentity": holder}});
    let restore = |state: &str| {
        json!({"apiVersion": "ps.percona.com/v1", "kind": PS_RESTORE, "spec": {"clusterName": "cluster1"},
            "metadata": {"name": "r", "namespace": "db", "uid": "7"}, "status": {"state": state}})
    };
    let at = "/apis/ps.percona.com/v1/namespaces/db/perconaservermysqlrestores/r";
    let lease_at = "/apis/coordination.k8s.io/v1/namespaces/db/leases/restore-lock-cluster1";
    // The holder was created while the webhook was off: it has no claim.
    for (holder, state, admitted) in [
        ("r|7", "Running", false),
        ("r|6", "Running", true),
        ("r|7", "Succeeded", true),
        ("", "Running", true),
    ] {
        let (api, replica) = one_replica();
        replica.store.open(VELERO_SCOPE).await.unwrap();
        // It does not run when the ledger is created.
        let first = replica
            .review(percona("CREATE", PS_RESTORE, "first", "0", "", None))
            .await;
        assert!(allowed(&first));
        api.put(
            "/apis/ps.percona.com/v1/namespaces/db/perconaservermysqlrestores/first",
            {
                let mut over = restore("Succeeded");
                over["metadata"]["name"] = json!("first");
                over["metadata"]["uid"] = json!("0");
                over
            },
        );
        api.put(at, restore(state));
        api.put(lease_at, lease(holder));
        // The first request has just read the Lease without a holder.
        let replica = Replica::over(&api);
        let answer = replica
            .review(percona("CREATE", PS_BACKUP, "b", "2", "", None))
            .await;
        assert_eq!(allowed(&answer), admitted, "{holder} {state}: {answer}");
    }
}

/// Objects of an unusable profile are refused with the reason; all others pass.
#[tokio::test]
async fn a_profile_that_cannot_be_used_refuses_its_kinds_and_no_others() {
    let why = "acme.yaml: not a profile: missing field `group`".to_owned();
    let unusable = vec![UnusableProfile {
        name: "percona-ps".to_owned(),
        why,
    }];
    let replica = Replica::without(&FakeApi::new(), unusable, |_| {});
    let refused = replica
        .review(percona("CREATE", PS_BACKUP, "b", "1", "", None))
        .await;
    assert!(!allowed(&refused));
    assert_eq!(refused["status"]["code"], 503);
    for said in [
        "cannot judge PerconaServerMySQLBackup",
        "missing field `group`",
        "profiles check",
    ] {
        assert_says!(message(&refused), said);
    }
    assert!(allowed(
        &replica.create("Backup", "b", "2", backup_spec()).await
    ));
}
