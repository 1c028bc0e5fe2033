//! An operator that we only guard: it starts on sight, and its data has to settle.

use super::*;

const RESTORES: &str = "/apis/ps.percona.com/v1/namespaces/db/perconaservermysqlrestores";
const BACKUPS: &str = "/apis/ps.percona.com/v1/namespaces/db/perconaservermysqlbackups";
const CLUSTER: &str = "/apis/ps.percona.com/v1/namespaces/db/perconaservermysqls/cluster1";
const FOREIGN: &str = "/apis/coordination.k8s.io/v1/namespaces/db/leases/restore-lock-cluster1";

fn put(api: &FakeApi, at: &str, name: &str, uid: &str, state: &str) {
    let object = json!({
        "apiVersion": "ps.percona.com/v1", "kind": "PerconaServerMySQLRestore",
        "metadata": {"name": name, "namespace": "db", "uid": uid},
        "spec": {"clusterName": "cluster1"}, "status": {"state": state},
    });
    api.put(&format!("{at}/{name}"), object);
}

fn put_cluster(api: &FakeApi, state: &str) {
    let cluster = json!({
        "apiVersion": "ps.percona.com/v1", "kind": "PerconaServerMySQL",
        "metadata": {"name": "cluster1", "namespace": "db", "uid": "c"}, "status": {"state": state},
    });
    api.put(CLUSTER, cluster);
}

fn db_restore(name: &str) -> ObjectKey {
    ObjectKey::restore("db", name)
}

fn db_backup(name: &str) -> ObjectKey {
    ObjectKey::backup("db", name)
}

async fn claim(
    protected: &ProtectedProfile,
    key: &ObjectKey,
    uid: &str,
) -> Result<Grant, UpdateError<Refusal>> {
    admit_as(&protected.store, PERCONA_SCOPE, key, uid, Ask::default()).await
}

async fn pass(
    protected: &ProtectedProfile,
    collector: &mut Collector,
    now: Instant,
) -> Vec<(ObjectKey, String, Reason)> {
    collector
        .collect(&protected.store, PERCONA_SCOPE, now)
        .await
        .unwrap()
        .freed
}

async fn state_of(protected: &ProtectedProfile, key: &ObjectKey, uid: &str) -> Option<State> {
    ledger_of(&protected.store, PERCONA_SCOPE)
        .await
        .entry(key, uid)
        .map(|entry| entry.state)
}

/// A restore that was admitted and is running.
async fn running() -> (FakeApi, ProtectedProfile) {
    let api = FakeApi::new();
    let protected = percona(&api);
    put_cluster(&api, "initializing");
    claim(&protected, &db_restore("r"), "1").await.unwrap();
    put(&api, RESTORES, "r", "1", "Running");
    (api, protected)
}

#[tokio::test(start_paused = true)]
async fn a_restore_keeps_its_place_until_its_cluster_is_ready() {
    let (api, protected) = running().await;
    let (mut collector, now) = (protected.collector(), Instant::now());
    assert!(pass(&protected, &mut collector, now).await.is_empty());
    put(&api, RESTORES, "r", "1", "Succeeded");
    assert_eq!(
        pass(&protected, &mut collector, now).await,
        [(db_restore("r"), "1".to_owned(), Reason::Over)]
    );
    assert_eq!(
        state_of(&protected, &db_restore("r"), "1").await,
        Some(State::Settling)
    );
    for seconds in [0, 60, 1700] {
        assert!(
            pass(
                &protected,
                &mut collector,
                now + Duration::from_secs(seconds)
            )
            .await
            .is_empty(),
            "{seconds} s"
        );
        assert!(claim(&protected, &db_backup("b"), "2").await.is_err());
    }
    put_cluster(&api, "ready");
    let freed = pass(&protected, &mut collector, now + Duration::from_secs(1701)).await;
    assert_eq!(freed, [(db_restore("r"), "1".to_owned(), Reason::Settled)]);
    claim(&protected, &db_backup("b"), "2").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_never_becomes_ready_keeps_nobody_out_for_ever() {
    let (api, protected) = running().await;
    put(&api, RESTORES, "r", "1", "Failed");
    let (mut collector, now) = (protected.collector(), Instant::now());
    assert_eq!(pass(&protected, &mut collector, now).await.len(), 1);
    assert!(
        pass(&protected, &mut collector, now).await.is_empty(),
        "from here on it is counted"
    );
    assert!(
        pass(&protected, &mut collector, now + Duration::from_mins(29))
            .await
            .is_empty()
    );
    let freed = pass(&protected, &mut collector, now + Duration::from_mins(30)).await;
    assert_eq!(freed, [(db_restore("r"), "1".to_owned(), Reason::Settled)]);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_ready_or_gone_needs_no_time_to_settle() {
    for gone in [false, true] {
        let (api, protected) = running().await;
        put(&api, RESTORES, "r", "1", "Succeeded");
        if gone {
            api.delete(CLUSTER);
        } else {
            put_cluster(&api, "ready");
        }
        assert_eq!(
            pass(&protected, &mut protected.collector(), Instant::now()).await[0].2,
            Reason::Over
        );
        assert_eq!(state_of(&protected, &db_restore("r"), "1").await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_restore_settles_too_and_a_backup_never_does() {
    let (api, protected) = running().await;
    let (mut collector, now) = (protected.collector(), Instant::now());
    pass(&protected, &mut collector, now).await;
    api.delete(&format!("{RESTORES}/r"));
    assert_eq!(
        pass(&protected, &mut collector, now).await[0].2,
        Reason::Gone
    );
    assert_eq!(
        state_of(&protected, &db_restore("r"), "1").await,
        Some(State::Settling)
    );

    let api = FakeApi::new();
    let protected = percona(&api);
    put_cluster(&api, "initializing");
    claim(&protected, &db_backup("b"), "1").await.unwrap();
    put(&api, BACKUPS, "b", "1", "Succeeded");
    pass(&protected, &mut protected.collector(), now).await;
    assert_eq!(state_of(&protected, &db_backup("b"), "1").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_can_not_be_read_is_not_taken_for_settled() {
    let (api, protected) = running().await;
    put_cluster(&api, "ready");
    put(&api, RESTORES, "r", "1", "Succeeded");
    api.fail(|request| request.path == CLUSTER);
    let collected = protected
        .collector()
        .collect(&protected.store, PERCONA_SCOPE, Instant::now())
        .await
        .unwrap();
    assert_eq!((collected.freed.len(), collected.unknown), (0, 1));
    assert_eq!(
        state_of(&protected, &db_restore("r"), "1").await,
        Some(State::Reserved)
    );
}

/// A tombstone: the reservation of a backup that was collected.
async fn tombstoned() -> (FakeApi, ProtectedProfile, Collector, Instant) {
    let api = FakeApi::new();
    let protected = percona(&api);
    claim(&protected, &db_backup("b"), "1").await.unwrap();
    let (mut collector, start) = (protected.collector(), Instant::now());
    assert!(pass(&protected, &mut collector, start).await.is_empty());
    let now = start + GRACE;
    assert!(pass(&protected, &mut collector, now).await.is_empty());
    assert_eq!(
        pass(&protected, &mut collector, now).await,
        [(db_backup("b"), "1".to_owned(), Reason::Orphan)]
    );
    assert_eq!(
        state_of(&protected, &db_backup("b"), "1").await,
        Some(State::Collected)
    );
    (api, protected, collector, now)
}

#[tokio::test(start_paused = true)]
async fn a_collected_reservation_keeps_restores_out_for_one_more_grace_and_backups_not_at_all() {
    let (_, protected, mut collector, now) = tombstoned().await;
    claim(&protected, &db_backup("another"), "2").await.unwrap();
    let change = |ledger: &mut Ledger| Ok::<_, Refusal>(ledger.release(&db_backup("another"), "2"));
    protected
        .store
        .update(PERCONA_SCOPE, deadline(), change)
        .await
        .unwrap();
    for seconds in [0, 60, 119] {
        assert!(
            pass(
                &protected,
                &mut collector,
                now + Duration::from_secs(seconds)
            )
            .await
            .is_empty(),
            "{seconds} s"
        );
        assert!(claim(&protected, &db_restore("r"), "3").await.is_err());
    }
    assert_eq!(
        pass(&protected, &mut collector, now + GRACE).await[0].2,
        Reason::Orphan
    );
    claim(&protected, &db_restore("r"), "3").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_object_that_comes_after_its_collection_is_claimed_anew() {
    let (api, protected, mut collector, now) = tombstoned().await;
    put(&api, BACKUPS, "b", "1", "Running");
    let collected = collector
        .collect(&protected.store, PERCONA_SCOPE, now)
        .await
        .unwrap();
    assert!(collected.late.is_empty() && collected.freed.is_empty());
    assert_eq!(
        state_of(&protected, &db_backup("b"), "1").await,
        Some(State::Reserved)
    );
    put(&api, BACKUPS, "b", "1", "Succeeded");
    assert_eq!(
        pass(&protected, &mut collector, now).await[0].2,
        Reason::Over
    );
}

#[tokio::test(start_paused = true)]
async fn an_object_that_comes_after_its_collection_and_meets_another_is_reported() {
    let (api, protected, mut collector, now) = tombstoned().await;
    // A user forced a restore.
    admit_as(
        &protected.store,
        PERCONA_SCOPE,
        &db_restore("r"),
        "2",
        forced(),
    )
    .await
    .unwrap();
    put(&api, RESTORES, "r", "2", "Running");
    put(&api, BACKUPS, "b", "1", "Running");
    for _ in 0..2 {
        let collected = collector
            .collect(&protected.store, PERCONA_SCOPE, now)
            .await
            .unwrap();
        assert_eq!(collected.late, [db_backup("b")], "as long as it is so");
        assert_eq!(
            state_of(&protected, &db_backup("b"), "1").await,
            Some(State::Collected)
        );
    }
    put(&api, RESTORES, "r", "2", "Succeeded");
    put_cluster(&api, "ready");
    pass(&protected, &mut collector, now).await;
    assert!(
        collector
            .collect(&protected.store, PERCONA_SCOPE, now)
            .await
            .unwrap()
            .late
            .is_empty()
    );
    assert_eq!(
        state_of(&protected, &db_backup("b"), "1").await,
        Some(State::Reserved)
    );
}

#[tokio::test(start_paused = true)]
async fn a_first_ledger_of_a_cluster_holds_what_runs_on_it_and_on_no_other() {
    let api = FakeApi::new();
    let protected = percona(&api);
    put(&api, BACKUPS, "runs", "1", "Running");
    put(&api, BACKUPS, "done", "2", "Succeeded");
    put(&api, RESTORES, "new", "3", "");
    api.edit(&format!("{RESTORES}/new"), |object| {
        object["spec"]["clusterName"] = json!("cluster2");
    });
    protected.store.open(PERCONA_SCOPE).await.unwrap();
    let ledger = ledger_of(&protected.store, PERCONA_SCOPE).await;
    assert_eq!(
        (
            ledger.len(),
            state_of(&protected, &db_backup("runs"), "1").await
        ),
        (1, Some(State::Active))
    );
}

#[tokio::test(start_paused = true)]
async fn the_operators_own_lock_is_honoured_while_its_holder_runs_and_never_written() {
    let api = FakeApi::new();
    let protected = percona(&api);
    let holder = || protected.store.objects().external_holder(PERCONA_SCOPE);
    assert_eq!(holder().await.unwrap(), None);
    for (identity, state, holds) in [
        ("r|1", "Running", true),
        ("r|1", "", true),
        ("r|1", "Succeeded", false),
        ("r|another", "Running", false),
        ("gone|1", "Running", false),
        ("me", "Running", false),
    ] {
        api.put(
            FOREIGN,
            json!({"metadata": {"name": "restore-lock-cluster1"}, "spec": {"holderIdentity": identity}}),
        );
        put(&api, RESTORES, "r", "1", state);
        let found = holder().await.unwrap().map(|object| object.key);
        assert_eq!(found, holds.then(|| db_restore("r")), "{identity} {state}");
    }
    assert_eq!(api.writes(), 0);
    api.fail(|request| request.path == FOREIGN);
    assert!(holder().await.is_err(), "unknown is not absent");
}
