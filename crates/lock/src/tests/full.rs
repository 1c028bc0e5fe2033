//! More objects run than a ledger has room for: it opens anyway, first or after a loss, and stays
//! safe.

use rstest::rstest;

use super::*;

fn name(n: usize, long: usize) -> String {
    format!("{n:0>long$}")
}

/// Creates running objects, each with a footprint of its own.
fn run(api: &FakeApi, phase: &str, objects: usize, long: usize) {
    for n in 0..objects {
        let names: Vec<String> = (0..30).map(|i| format!("{n:020}-{i:020}")).collect();
        api.put_velero(
            "Backup",
            &name(n, long),
            &n.to_string(),
            phase,
            &json!({"includedNamespaces": names}),
        );
    }
}

async fn open(store: &LedgerStore, api: &FakeApi, lost: bool) {
    if lost {
        api.put(
            MARKER_PATH,
            json!({"metadata": {"name": "m"}, "data": {"scope": "velero.io", "ledger": "x", "epoch": "7"}}),
        );
    }
    let (mut repair, now) = (LedgerRepair::new(GRACE, GRACE), Instant::now());
    for times in 0..3 {
        repair
            .repair(store, VELERO_SCOPE, now + GRACE * times)
            .await
            .unwrap();
    }
    store.open(VELERO_SCOPE).await.unwrap();
}

async fn tend(store: &LedgerStore) {
    LedgerRepair::new(GRACE, GRACE)
        .repair(store, VELERO_SCOPE, Instant::now())
        .await
        .unwrap();
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn a_ledger_opens_whatever_runs(#[values(false, true)] lost: bool) {
    let (api, store) = setup();
    run(&api, "InProgress", 600, 253);
    open(&store, &api, lost).await;
    let full = ledger(&store).await;
    assert!(
        full.overflows() && full.len() > 300,
        "{} entries",
        full.len()
    );
    // A running object without an entry conflicts with everything.
    let refused = admit(&store, &backup("b"), "b")
        .await
        .unwrap_err()
        .to_string();
    assert_says!(refused, "overflow");
    assert!(admit(&store, &restore("r"), "r").await.is_err());
    tend(&store).await;
    assert!(ledger(&store).await.overflows(), "still");
    // Running objects continue.
    activate(&store, &backup(&name(0, 253)), "0").await.unwrap();
    for n in 0..300 {
        api.put_velero(
            "Backup",
            &name(n, 253),
            &n.to_string(),
            "Completed",
            &json!({}),
        );
    }
    let mut collector = Collector::new(Times::default(), store.ends());
    collector
        .collect(&store, VELERO_SCOPE, Instant::now())
        .await
        .unwrap();
    tend(&store).await;
    let spread = ledger(&store).await;
    assert_eq!((spread.overflows(), spread.len()), (false, 300));
    for n in 300..600 {
        assert!(
            spread
                .entry(&backup(&name(n, 253)), &n.to_string())
                .is_some(),
            "{n} has an entry of its own"
        );
    }
    admit(&store, &backup("b"), "b").await.unwrap();
    assert!(admit(&store, &restore("r"), "r").await.is_err());
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn who_has_not_begun_may_wait_without_an_entry(#[values(false, true)] lost: bool) {
    let (api, store) = setup();
    run(&api, "New", 600, 253);
    open(&store, &api, lost).await;
    let full = ledger(&store).await;
    assert!(
        !full.overflows() && full.len() < 600,
        "{} entries",
        full.len()
    );
    assert!(admit(&store, &restore("r"), "r").await.is_err());
    let last = name(599, 253);
    assert!(full.entry(&backup(&last), "599").is_none());
    assert!(matches!(
        activate(&store, &backup(&last), "599").await,
        Err(ActivateError::Full(_))
    ));
    for n in 0..300 {
        release(&store, &backup(&name(n, 253)), &n.to_string())
            .await
            .unwrap();
    }
    activate(&store, &backup(&last), "599").await.unwrap();
}

/// Another operator starts on sight.
#[tokio::test(start_paused = true)]
async fn what_another_operator_is_about_to_start_is_never_left_out() {
    let api = FakeApi::new();
    let protected = percona(&api);
    for n in 0..700 {
        let name = name(n, 253);
        let object = json!({
            "apiVersion": "ps.percona.com/v1", "kind": "PerconaServerMySQLBackup",
            "metadata": {"name": name, "namespace": "db", "uid": n.to_string()}, "spec": {"clusterName": "cluster1"},
        });
        api.put(
            &format!("/apis/ps.percona.com/v1/namespaces/db/perconaservermysqlbackups/{name}"),
            object,
        );
    }
    protected.store.open(PERCONA_SCOPE).await.unwrap();
    assert!(ledger_of(&protected.store, PERCONA_SCOPE).await.overflows());
}
