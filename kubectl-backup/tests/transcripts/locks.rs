use backup_lock::{
    Footprint, Ledger, ObjectKey, ObjectKind,
    ledger::{Ask, Status},
};

use crate::prelude::*;

const LEASE: &str = "backup-lock-velero";
const CLUSTER: &str = "percona-ps/db/cluster1";

fn hold(name: &str) -> ObjectKey {
    ObjectKey::new(ObjectKind::Hold, "velero", name)
}

/// A ledger with a running restore of `shop`, and one of every other kind of entry.
fn busy() -> Ledger {
    let mut ledger = Ledger::default();
    let (shop, db) = (
        Footprint::namespaces(["shop"]),
        Footprint::namespaces(["db"]),
    );
    let restore = ObjectKey::restore("velero", "back-again");
    let admit =
        |ledger: &mut Ledger, key: &ObjectKey, footprint: &Footprint, since: &str, ask: &Ask| {
            ledger
                .admit(key, &format!("uid-of-{}", key.name), footprint, since, ask)
                .unwrap();
        };
    admit(
        &mut ledger,
        &restore,
        &shop,
        "2026-11-03T05:10:12Z",
        &Ask::default(),
    );
    ledger.activate(&restore, "uid-of-back-again").unwrap();
    let lost = ObjectKey::backup("velero", "lost");
    admit(
        &mut ledger,
        &lost,
        &db,
        "2026-11-03T05:08:12Z",
        &Ask::default(),
    );
    ledger.suspect(&lost, "uid-of-lost");
    let forced = Ask::forced("production is\ndown");
    admit(
        &mut ledger,
        &ObjectKey::backup("velero", "urgent"),
        &shop,
        "2026-11-03T05:11:12Z",
        &forced,
    );
    let queue = Ask::queued();
    admit(
        &mut ledger,
        &ObjectKey::restore("velero", "second"),
        &shop,
        "2026-11-03T05:12:12Z",
        &queue,
    );
    let by = "alice: moving disks";
    ledger
        .hold(
            &hold("disks"),
            "h",
            &Footprint::everything(),
            "2026-11-03T05:13:12Z",
            by,
        )
        .unwrap();
    let third = ObjectKey::restore("velero", "third");
    ledger.leave_intent(
        &third,
        "uid-of-third",
        &shop,
        "2026-11-03T05:14:02Z",
        &Ask::default(),
    );
    ledger
}

fn running(name: &str) -> Value {
    let over = json!({"spec": {"includedNamespaces": ["shop"]}, "status": {"phase": "InProgress", "completionTimestamp": null}});
    with(new_backup(name), &over)
}

async fn cluster() -> FakeApi {
    let api = FakeApi::start().await;
    let restoring =
        json!({"spec": {"includedNamespaces": ["shop"]}, "status": {"phase": "InProgress"}});
    api.has(lease(&busy()).await)
        .has(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "backup-controller", "namespace": "velero"}}))
        .has(with(completed_restore("back-again", "nightly"), &restoring))
        .has(running("urgent"))
        .has(completed_backup("nightly"));
    api
}

async fn two_scopes() -> FakeApi {
    let api = cluster().await;
    let mut ledger = Ledger::default();
    let everything = Footprint::everything();
    let key = ObjectKey::backup("db", "nightly");
    ledger
        .admit(
            &key,
            "one",
            &everything,
            "2026-11-03T01:14:12Z",
            &Ask::default(),
        )
        .unwrap();
    ledger
        .admit(
            &key,
            "two",
            &everything,
            "2026-11-03T01:14:12Z",
            &Ask::default(),
        )
        .unwrap();
    api.has(lease_of(percona(), CLUSTER, &ledger).await);
    api.has(lease_of(percona(), "percona-ps/db/idle", &Ledger::default()).await);
    api
}

#[tokio::test]
async fn locks_are_listed_in_the_order_of_the_queue() {
    let api = two_scopes().await;
    api.has(running("stray"));
    let person = Person::at(&api);
    transcript!("locks" => person, "locks");
    transcript!("locks wide" => person, "locks -o wide");
    transcript!("locks name" => person, "locks -o name");
    transcript!("locks yaml" => person, &format!("locks {CLUSTER} -o yaml"));
    let list = person.reads("locks -o json").await;
    assert_eq!(list["apiVersion"], "kubectl-backup/v1");
    assert_eq!(list["scopes"][0]["unclaimed"][0]["name"], "stray");
    assert_eq!(
        list["scopes"][0]["entries"][3]["waitsFor"],
        json!(["Restore velero/back-again", "Backup velero/urgent"])
    );
    assert!(
        api.seen().iter().all(|request| request.starts_with("GET")),
        "{:?}",
        api.seen()
    );
}

#[tokio::test]
async fn where_nobody_is_nothing_holds_or_waits() {
    let api = FakeApi::start().await;
    let mut all = Person::at(&api).types("locks").await;
    all += &Person::at(&api).types("locks percona-ps/db/other").await;
    api.has(lease(&Ledger::default()).await);
    all += &Person::at(&api).types("locks").await;
    all += &Person::at(&api).types("locks -o name").await;
    assert_snapshot!(all);
}

#[tokio::test]
async fn a_ledger_that_cannot_be_read_hides_no_other() {
    let api = two_scopes().await;
    let edited = |annotation: &str, text: &str| {
        let mut lease = api.stored("leases", LEASE).unwrap();
        lease["metadata"]["annotations"][annotation] = json!(text);
        if annotation == "backup-lock/ledger" {
            of_a_newer_format(lease)
        } else {
            lease
        }
    };
    let mut all = String::new();
    for (annotation, text) in [
        ("backup-lock/sum", "0123456789abcdef"),
        // A format of a later version.
        ("backup-lock/ledger", "{\"v\":99}"),
        ("backup-lock/scope", "an\u{1b}[2Jother"),
    ] {
        let fresh = api.stored("leases", LEASE).unwrap();
        api.has(edited(annotation, text));
        all += &Person::at(&api).types("locks").await;
        api.has(fresh);
    }
    let line = "locks release restore/back-again --reason=stuck --yes";
    api.has(edited("backup-lock/sum", "0"));
    all += &Person::at(&api).types(line).await;
    all += &Person::at(&api)
        .types("locks hold disks --reason=moving")
        .await;
    assert_snapshot!(all);
}

/// The marker that proves that a ledger existed.
pub(crate) fn marker() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": LEASE, "namespace": "velero", "labels": {"app.kubernetes.io/part-of": "backup"}}, "data": {"scope": "velero.io", "ledger": "gone", "epoch": "7"}})
}

#[tokio::test]
async fn a_lost_ledger_is_found_among_however_many_markers() {
    let api = FakeApi::start().await;
    for n in 0..500 {
        let name = format!("a-{n}");
        api.has(with(
            marker(),
            &json!({"metadata": {"name": name}, "data": {"scope": name}}),
        ));
    }
    let seen = Person::at(api.has(marker())).types("locks").await;
    assert_says!(seen, "velero.io   Lost");
}

#[tokio::test]
async fn a_ledger_that_was_lost_or_is_rebuilt_is_shown_as_such() {
    let api = FakeApi::with([marker()]).await;
    let mut all = Person::at(&api).types("locks").await;
    api.has(
        lease(&Ledger {
            status: Status::Rebuilding,
            epoch: 8,
            ..Ledger::default()
        })
        .await,
    );
    all += &Person::at(&api).types("locks").await;
    all += &Person::at(&api)
        .types("locks hold disks --reason=moving")
        .await;
    assert_snapshot!(all);
}

#[tokio::test]
async fn who_may_not_is_told_which_role_it_takes() {
    let api = cluster().await;
    let mut all = String::new();
    api.on_get("/leases", Fault::forbidden("leases.coordination.k8s.io is forbidden: User \"jane\" cannot list resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"velero\""));
    all += &Person::at(&api).types("locks").await;
    let update = "leases.coordination.k8s.io \"backup-lock-velero\" is forbidden: User \"jane\" cannot update resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"velero\"";
    let policy = "leases.coordination.k8s.io \"backup-lock-velero\" is forbidden: ValidatingAdmissionPolicy 'backup-lock-writers' with binding 'backup-lock-writers' denied request: backup-lock-velero belongs to the lock";
    for (refusal, line) in [
        (update, "release restore/back-again --reason=stuck --yes"),
        (update, "hold upgrade --reason=moving"),
        (policy, "hold upgrade --reason=moving"),
    ] {
        api.next(Method::PUT, LEASE, Fault::forbidden(refusal));
        all += &Person::at(&api).types(&format!("locks {line}")).await;
    }
    // The lists of all namespaces, then that of one.
    for list in ["/v1/restores", "/v1/backups", "/velero/restores"] {
        api.on_get(list, Fault::forbidden("User \"jane\" cannot list it"));
    }
    all += &Person::at(&api).types("locks").await;
    assert!(api.all("events").is_empty());
    assert_snapshot!(all);
}

#[tokio::test]
async fn nothing_is_released_without_a_yes() {
    let api = cluster().await;
    let line = "locks release restore/back-again --reason=stuck";
    let mut all = Person::at(&api).types(line).await;
    all += &Person::at(&api).at_terminal("n\n").types(line).await;
    all += &Person::at(&api).at_terminal("y\n").types(line).await;
    assert_snapshot!(all);
}

#[tokio::test]
async fn a_release_says_what_it_does_and_leaves_an_event() {
    let api = cluster().await;
    let mut all = String::new();
    for what in [
        "backup/urgent",
        "restore/velero/back-again",
        "hold/disks",
        "backup/lost",
        "restore/back-again",
    ] {
        let line = format!("locks release {what} --reason=stuck --yes");
        all += &Person::at(&api).types(&line).await;
    }
    all += &Person::at(&api).types("locks").await;
    assert_snapshot!(all);
    let events = api.all("events");
    assert_eq!(events.len(), 4, "{events:?}");
    let about = |kind: &str| {
        events
            .iter()
            .find(|event| event["regarding"]["kind"] == kind)
            .unwrap()
            .clone()
    };
    assert_snapshot!("event of a forced release", pretty(&about("Restore")));
    assert_eq!(about("Lease")["regarding"]["name"], LEASE);
}

#[tokio::test]
async fn the_word_of_who_has_given_up_can_be_released() {
    let api = cluster().await;
    let seen = Person::at(&api)
        .types("locks release restore/third --reason=gave-up --yes")
        .await;
    assert_says!(seen, "restore/velero/third released");
    let seen = Person::at(&api).types("locks").await;
    assert!(!seen.contains("velero/third"), "{seen}");
}

#[tokio::test]
async fn a_name_that_may_mean_several_is_asked_about() {
    let api = two_scopes().await;
    let (mut ledger, key) = (Ledger::default(), ObjectKey::backup("velero", "nightly"));
    ledger
        .admit(
            &key,
            "b",
            &Footprint::namespaces(["x"]),
            "",
            &Ask::default(),
        )
        .unwrap();
    api.has(lease(&ledger).await);
    let mut all = String::new();
    for what in [
        "backup/nightly",
        "backup/db/nightly",
        "backup/db/nightly --uid=two",
        "backup/nightly --scope=velero.io",
        "backup/elsewhere/nightly",
    ] {
        let line = format!("locks release {what} --reason=stuck --yes");
        all += &Person::at(&api).types(&line).await;
    }
    assert_snapshot!(all);
}

#[tokio::test]
async fn a_release_that_somebody_else_was_faster_with_decides_again() {
    let api = cluster().await;
    // The claim is activated between the read and the write: the version is no longer the one that
    // was read.
    let mut other = busy();
    other.release(
        &ObjectKey::restore("velero", "back-again"),
        "uid-of-back-again",
    );
    let mut newer = lease(&other).await;
    newer["metadata"]["resourceVersion"] = json!("77");
    api.next(Method::PUT, LEASE, Fault::Becomes(newer));
    let line = "locks release backup/urgent --reason=stuck --yes";
    transcript!(Person::at(&api), line);
    // The user was asked about another state.
    let api = cluster().await;
    let mut other = busy();
    other
        .activate(&ObjectKey::backup("velero", "urgent"), "uid-of-urgent")
        .unwrap();
    api.on_get(LEASE, Fault::Becomes(lease(&other).await));
    let line = "locks release backup/urgent --reason=stuck";
    transcript!(Person::at(&api).at_terminal("y\n"), line);
    // The write succeeds but its answer is lost: the retry finds the entry released.
    api.next(
        Method::PUT,
        LEASE,
        Fault::unavailable("the server is starting").but_done(),
    );
    let line = "locks release backup/lost --reason=stuck --yes";
    transcript!(Person::at(&api), line);
}

#[tokio::test]
async fn a_hold_keeps_others_out_and_its_name_is_taken() {
    let api = FakeApi::with([lease(&Ledger::default()).await]).await;
    transcript!(
        Person::at(&api),
        "locks hold upgrade --namespaces=shop,db --reason=maintenance",
        "locks hold upgrade --reason=again",
        "locks hold other --namespaces=shop --scope=percona-ps/db/cluster1 --reason=maintenance",
        "locks hold other --scope=shop --reason=maintenance",
        "locks hold other --scope=acme/db/cluster1 --reason=maintenance",
        "locks",
        "locks release hold/upgrade --reason=done --yes",
        "locks"
    );
}

#[tokio::test]
async fn a_hold_waits_for_those_who_are_there() {
    let api = cluster().await;
    let mut all = Person::at(&api)
        .types("locks hold upgrade --namespaces=shop --reason=moving")
        .await;
    all += &Person::at(&api)
        .types("locks hold upgrade2 --namespaces=shop --reason=moving --wait=300ms")
        .await;
    assert_snapshot!(all);
}

#[tokio::test]
async fn a_person_who_may_write_ledgers_needs_no_markers() {
    let api = FakeApi::start().await;
    let mut ledger = Ledger {
        epoch: 900,
        bound: 1000,
        ..Ledger::default()
    };
    ledger.rules = backup_lock::conflict::Rules::default();
    api.has(lease(&ledger).await);
    api.on_get("/configmaps", Fault::forbidden("no"));
    api.on_get(
        &format!("/configmaps/{LEASE}"),
        Fault::forbidden("configmaps is forbidden"),
    );
    let seen = Person::at(&api)
        .types("locks hold upgrade --reason=moving")
        .await;
    assert!(seen.ends_with("--- exit 0\n"), "{seen}");
}

#[tokio::test]
async fn locks_of_all_installations_are_listed_and_sorted() {
    let api = cluster().await;
    let elsewhere = json!({"metadata": {"namespace": "elsewhere"}});
    api.has(with(
        lease_of(percona(), CLUSTER, &Ledger::default()).await,
        &elsewhere,
    ));
    // One has a claim in the ledger of its own installation; the other has none.
    for name in ["urgent", "stray"] {
        api.has(backup_in("InProgress", name));
    }
    let person = Person::at(&api);
    let mut all = person
        .types_all(
            ["-A", "-A percona-ps/db/cluster1 -o name", "--no-headers"]
                .map(|line| format!("locks {line}")),
        )
        .await;
    all += &Person::at(&FakeApi::start().await).types("locks -A").await;
    assert_snapshot!(all);
    let list = person.reads("locks -A -o json").await;
    let places: Vec<&Value> = list["scopes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|scope| &scope["namespace"])
        .collect();
    assert_eq!(places, ["elsewhere", "velero"]);
}

#[tokio::test]
async fn following_locks_appends_a_line_for_each_change() {
    let api = cluster().await;
    let seen_twice = async || {
        let lists = || {
            api.seen()
                .iter()
                .filter(|one| one.contains("/leases"))
                .count()
        };
        let before = lists();
        while lists() < before + 2 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let person = Person::at(&api);
    let (seen, ()) = tokio::join!(person.watches("locks -w", "Settling"), async {
        seen_twice().await;
        let mut ledger = busy();
        ledger.release(&ObjectKey::backup("velero", "lost"), "uid-of-lost");
        api.has(lease(&ledger).await);
        seen_twice().await;
        ledger.settle(
            &ObjectKey::restore("velero", "back-again"),
            "uid-of-back-again",
        );
        api.has(lease(&ledger).await);
    });
    assert_snapshot!(seen);
    let seen = person.watches("locks -w -o json", "urgent").await;
    assert_says!(seen, "\"kind\": \"LockChange\"", "\"gone\": false");
    assert_says!(seen, "\"status\": \"Open\"", "\"state\": \"Settling\"");
    let names: Vec<&str> = seen
        .lines()
        .filter_map(|line| {
            line.trim()
                .strip_prefix("\"name\": \"")?
                .strip_suffix("\",")
        })
        .collect();
    assert_eq!(names, ["back-again", "urgent", "second", "disks", "third"]);
}
