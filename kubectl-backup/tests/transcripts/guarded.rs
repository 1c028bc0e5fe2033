use backup_lock::{Footprint, Ledger, ObjectKey, State, ledger::Ask};

use crate::prelude::*;

const CLUSTER: &str = "percona-ps/db/cluster1";

fn object(kind: &str, name: &str, state: &str) -> Value {
    json!({
        "apiVersion": "ps.percona.com/v1",
        "kind": kind,
        "metadata": {
            "name": name, "namespace": "db", "uid": format!("uid-of-{name}"), "resourceVersion": "7",
            "creationTimestamp": "2026-11-03T04:14:12Z",
        },
        "spec": {"clusterName": "cluster1"},
        "status": {"state": state},
    })
}

fn backup(name: &str, state: &str) -> Value {
    object("PerconaServerMySQLBackup", name, state)
}

async fn cluster() -> FakeApi {
    let api = FakeApi::start().await;
    let mut ledger = Ledger::default();
    let (restore, everything) = (
        ObjectKey::restore("db", "back-again"),
        Footprint::everything(),
    );
    let since = "2026-11-03T05:10:12Z";
    ledger
        .admit(
            &restore,
            "uid-of-back-again",
            &everything,
            since,
            &Ask::default(),
        )
        .unwrap();
    ledger.adopt(
        &ObjectKey::backup("db", "beside"),
        "uid-of-beside",
        &everything,
        State::Active,
        since,
    );
    let queue = Ask::queued();
    ledger
        .admit(
            &ObjectKey::restore("db", "later"),
            "uid-of-later",
            &everything,
            since,
            &queue,
        )
        .unwrap();
    let nameless = with(
        backup("nameless", ""),
        &json!({"spec": {"clusterName": ""}, "status": null}),
    );
    let elsewhere =
        json!({"metadata": {"namespace": "shop", "deletionTimestamp": "2026-11-03T05:14:00Z"}});
    api.has(lease_of(percona(), CLUSTER, &ledger).await)
        .has(backup("nightly-20261102030000", "Succeeded"))
        .has(backup("nightly-20261103030000", "Error"))
        .has(backup("beside", "Running"))
        .has(backup("newer", "Compact\u{1b}[2Jing"))
        .has(with(backup("elsewhere", "Running"), &elsewhere))
        .has(nameless)
        .has(object(
            "PerconaServerMySQLRestore",
            "back-again",
            "Starting",
        ))
        .has(object("PerconaServerMySQLRestore", "later", ""));
    api
}

/// The names of some parts of a scope, sorted.
fn names(scope: &Value, parts: &str) -> Vec<String> {
    let parts = scope[parts].as_array().into_iter().flatten();
    let mut names: Vec<String> = parts
        .map(|part| part["name"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn another_operators_claims_are_shown_and_what_runs_without_one() {
    let api = cluster().await;
    let list = Person::at(&api).reads("locks -o json").await;
    let (main, elsewhere) = (&list["scopes"][0], &list["scopes"][1]);
    assert_eq!(main["scope"], CLUSTER);
    assert_eq!(names(main, "entries"), ["back-again", "beside", "later"]);
    // A state that the profile does not know counts as running.
    assert_eq!(names(main, "unclaimed"), ["newer"]);
    assert_eq!(main["unclaimed"][0]["phase"], "Compact [2Jing");
    assert_eq!(elsewhere["scope"], "percona-ps/shop/cluster1");
    assert_eq!(names(elsewhere, "unclaimed"), ["elsewhere"]);
    assert!(
        api.seen().iter().all(|request| request.starts_with("GET")),
        "{:?}",
        api.seen()
    );
}
