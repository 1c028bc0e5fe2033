use backup_lock::{Footprint, Ledger, ObjectKey, State, ledger::Ask};

use crate::{forms::events, prelude::*};

const CLUSTER: &str = "percona-ps/db/cluster1";
const VERSION: &str = "ps.percona.com/v1";
const BACKUPS: &str = "perconaservermysqlbackups";
const RESTORES: &str = "perconaservermysqlrestores";

/// Discovery's answer about the kinds of Percona's operator.
fn resources() -> Value {
    let kind = |plural: &str, kind: &str, short: Value| json!({"name": plural, "singularName": kind.to_lowercase(), "kind": kind, "namespaced": true, "shortNames": short, "verbs": ["get", "list", "watch"]});
    json!([
        kind(BACKUPS, "PerconaServerMySQLBackup", json!(["ps-backup", "ps-backups"])),
        {"name": format!("{BACKUPS}/status"), "singularName": "", "kind": "PerconaServerMySQLBackup", "namespaced": true, "verbs": ["get"]},
        kind(RESTORES, "PerconaServerMySQLRestore", json!(["ps-restore"])),
    ])
}

fn object(kind: &str, name: &str, state: &str) -> Value {
    json!({
        "apiVersion": VERSION,
        "kind": kind,
        "metadata": {
            "name": name, "namespace": "db", "uid": format!("uid-of-{name}"), "resourceVersion": "7",
            "creationTimestamp": "2026-11-03T04:14:12Z", "labels": {"night": (state == "Succeeded").to_string()},
        },
        "spec": {"clusterName": "cluster1"},
        "status": {"state": state, "destination": format!("s3://acme/{name}"), "storage": {"type": "s3"}},
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
    api.serves(VERSION, &resources())
        .has(lease_of(percona(), CLUSTER, &ledger).await)
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

#[tokio::test]
async fn another_operators_objects_are_listed_with_their_claims() {
    let api = cluster().await;
    transcript!(
        Person::at(&api),
        "get --kind=ps-backups",
        "get --kind=ps-restore -o wide",
        "get --kind=PerconaServerMySQLBackup -A -l night=true --no-headers",
        "get --kind=ps-backup --in=db --sort-by=.status.state",
        "get --kind=perconaservermysqlrestores.ps.percona.com db/later db/gone",
        "get --kind=ps-backup beside --in=db",
        "get --kind=ps-backup -o name",
        "get --kind=ps-backup db/beside -o jsonpath={.spec.clusterName}{\"\\n\"}",
        "get --kind=ps-backup -o custom-columns=NAME:.metadata.name,WHERE:.status.destination"
    );
    assert!(
        api.seen().iter().all(|request| request.starts_with("GET")),
        "{:?}",
        api.seen()
    );
}

#[tokio::test]
async fn a_kind_that_is_not_clear_is_refused_with_those_there_are() {
    let api = cluster().await;
    let mut all = Person::at(&api)
        .types_all([
            "get --kind=pods",
            "get --kind=ps-backup nightly",
            "get --kind=ps-backup -A --in=db",
            "get --in=db",
            "describe --kind=ps-backup nightly",
            "describe --kind=ps-backup db/nightly -w",
            "describe --kind=ps-backup db/gone",
        ])
        .await;
    all += &Person::at(&FakeApi::start().await)
        .types("get --kind=ps-backup")
        .await;
    assert_snapshot!(all);
}

#[tokio::test]
async fn another_operators_object_is_described_from_its_fields() {
    let api = cluster().await;
    transcript!(
        Person::at(&api),
        "describe --kind=ps-backup db/beside",
        "describe --kind=ps-restore later --in=db",
        "describe --kind=ps-backup db/nightly-20261102030000",
        "describe --kind=ps-backup db/nameless",
        "describe --kind=ps-backup db/newer",
        "describe --kind=ps-backup db/beside -o yaml"
    );
}

#[tokio::test]
async fn a_velero_servers_objects_are_shown_by_the_same_code() {
    let api = FakeApi::start().await;
    let kind = json!([{"name": "backups", "singularName": "backup", "kind": "Backup", "namespaced": true, "verbs": ["list"]}]);
    api.serves("velero.io/v1", &kind)
        .has(completed_backup("nightly"));
    let mut all = Person::at(&api).types("get --kind=backups").await;
    all += &Person::at(&api)
        .types("describe --kind=backups velero/nightly")
        .await;
    assert_snapshot!(all);
}

#[tokio::test]
async fn claims_that_cannot_be_read_hide_no_object() {
    let api = cluster().await;
    let mut all = String::new();
    for line in [
        "get --kind=ps-backup db/beside",
        "describe --kind=ps-backup db/beside",
    ] {
        let no = Fault::forbidden("leases is forbidden: User \"jane\" cannot list resource");
        api.on_get("/leases", no);
        all += &Person::at(&api).types(line).await;
    }
    let mut lease = api.all("leases").remove(0);
    lease["metadata"]["annotations"]["backup-lock/sum"] = json!("0123456789abcdef");
    api.has(lease);
    all += &Person::at(&api)
        .types("get --kind=ps-backup db/beside")
        .await;
    assert_snapshot!(all);
}

#[tokio::test]
async fn following_another_operators_objects_shows_no_old_claims() {
    let api = FakeApi::start().await;
    api.serves(VERSION, &resources())
        .has(backup("nightly", "Starting"));
    let running = with(
        backup("nightly", "Running"),
        &json!({"metadata": {"resourceVersion": "8"}}),
    );
    api.on_get("?watch", events(&[("MODIFIED", running)]));
    let seen = Person::at(&api)
        .watches("get --kind=ps-backup -w", "Running")
        .await;
    assert_snapshot!(seen);
}
