//! Elections on an API server in memory.

use std::time::Duration;

use backup_testkit::{FakeApi, ledger_path};
use kube::Client;
use serde_json::json;
use tokio::time::Instant;

use super::{
    Elector, Leadership, LostLease,
    leadership::{LEASE, LEASE_DURATION, RENEW_PERIOD},
};
use crate::clock::Clock;

/// A replica that leads.
async fn leader() -> (FakeApi, Elector, Leadership) {
    let server = FakeApi::new();
    let mut first = elector(&server.client(), "first");
    let leadership = first.leadership();
    first.acquire().await;
    (server, first, leadership)
}

fn elector(client: &Client, host: &str) -> Elector {
    Elector::with_clock(client.clone(), "velero", host, Clock::Tokio(Instant::now()))
}

#[tokio::test(start_paused = true)]
async fn of_many_replicas_exactly_one_leads() {
    let client = FakeApi::new().client();
    let mut tasks = tokio::task::JoinSet::new();
    let mut leaderships = Vec::new();
    for n in 0..5 {
        let mut elector = elector(&client, &format!("pod-{n}"));
        leaderships.push(elector.leadership());
        tasks.spawn(async move {
            elector.acquire().await;
            elector.keep().await
        });
    }
    for _ in 0..120 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let leaders = leaderships
            .iter()
            .filter(|leadership| leadership.is_leader())
            .count();
        assert!(leaders <= 1, "{leaders} leaders");
    }
    assert_eq!(
        leaderships
            .iter()
            .filter(|leadership| leadership.is_leader())
            .count(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_at_once_and_one_left_behind_after_its_duration() {
    let client = FakeApi::new().client();
    let mut first = elector(&client, "first");
    first.acquire().await;
    first.release().await;
    let mut second = elector(&client, "second");
    let started = Instant::now();
    second.acquire().await;
    assert!(started.elapsed() < Duration::from_secs(1));

    drop(second); // killed
    let mut third = elector(&client, "third");
    let started = Instant::now();
    third.acquire().await;
    assert!(
        started.elapsed() >= LEASE_DURATION,
        "{:?}",
        started.elapsed()
    );
    assert!(
        started.elapsed() < LEASE_DURATION + Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
}

/// NotFound is one possible state of the Lease, and each request has the right namespace and Lease
/// name.
#[tokio::test(start_paused = true)]
async fn table_of_acquisitions() {
    let at = "/apis/coordination.k8s.io/v1/namespaces/velero/leases";
    let (read, create, write) = (
        format!("GET {at}/{LEASE}"),
        format!("POST {at}"),
        format!("PUT {at}/{LEASE}"),
    );
    let held_by = |holder: Option<&str>| {
        json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": LEASE, "namespace": "velero" },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 1, "leaseTransitions": 4 } })
    };
    let created = vec![&read, &create];
    for (what, lease, others, transitions, requests) in [
        ("there is none", None, vec![], 0, created.clone()),
        (
            "it has no holder",
            Some(held_by(None)),
            vec![],
            5,
            vec![&read, &write],
        ),
        (
            "its holder is empty",
            Some(held_by(Some(""))),
            vec![],
            5,
            vec![&read, &write],
        ),
        // A Lease of that name in another namespace, and one named like the namespace, are
        // irrelevant.
        (
            "others are held",
            None,
            vec![("other", LEASE), ("velero", "velero")],
            0,
            created,
        ),
    ] {
        let server = FakeApi::new();
        if let Some(lease) = lease {
            server.put(&ledger_path(LEASE), lease);
        }
        for (namespace, name) in others {
            let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
            server.put(&path, held_by(Some("someone")));
        }
        let mut elector = elector(&server.client(), "first");
        let leadership = elector.leadership();
        tokio::time::timeout(LEASE_DURATION * 2, elector.acquire())
            .await
            .unwrap();
        assert!(leadership.is_leader(), "{what}");
        let mut asked = server.log();
        // A missing Lease is read repeatedly.
        asked.dedup();
        assert!(asked.iter().eq(requests), "{what}: {asked:?}");
        let lease = server.get(&ledger_path(LEASE)).unwrap();
        assert_eq!(lease["spec"]["leaseTransitions"], transitions, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_appears_or_goes_while_it_is_acquired_is_read_again() {
    for (method, path) in [("POST", ledger_path("")), ("PUT", ledger_path(LEASE))] {
        let server = FakeApi::new();
        let mut first = elector(&server.client(), "first");
        first.acquire().await;
        let lease = server.get(&ledger_path(LEASE)).unwrap();
        if method == "POST" {
            server.delete(&ledger_path(LEASE));
        } else {
            server.edit(&ledger_path(LEASE), |lease| {
                lease["spec"]["holderIdentity"] = json!("");
                lease["spec"]["leaseDurationSeconds"] = json!(1);
            });
        }
        server.before(method, path.trim_end_matches('/'), move |server| {
            if method == "POST" {
                server.put(&ledger_path(LEASE), lease);
            } else {
                server.delete(&ledger_path(LEASE));
            }
        });
        let mut second = elector(&server.client(), "second");
        let leadership = second.leadership();
        let waited = LEASE_DURATION + Duration::from_secs(5);
        let acquired = tokio::time::timeout(waited, second.acquire()).await.is_ok();
        assert_eq!(
            (acquired, leadership.is_leader()),
            (method == "PUT", method == "PUT"),
            "{method}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_follower_asks_nothing_while_the_lease_is_renewed() {
    let (server, mut first, _) = leader().await;
    let keeping = tokio::spawn(async move { first.keep().await });
    let mut second = elector(&server.client(), "second");
    let leads = second.leadership();
    let following = tokio::spawn(async move {
        second.acquire().await;
        second
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = server.log().len();
    tokio::time::sleep(Duration::from_mins(1)).await;
    let asked: Vec<String> = server.log().split_off(before);
    assert!(
        asked.iter().all(|request| request.starts_with("PUT ")) && asked.len() <= 20,
        "{asked:?}"
    );
    assert!(!leads.is_leader());

    keeping.abort(); // killed
    let killed = Instant::now();
    following.await.unwrap();
    assert!(
        killed.elapsed() <= LEASE_DURATION + Duration::from_secs(1),
        "{:?}",
        killed.elapsed()
    );
    assert!(leads.is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_follower_takes_a_released_lease_at_once_also_without_a_watch() {
    for (watched, within) in [
        (true, Duration::from_secs(1)),
        (false, Duration::from_secs(3)),
    ] {
        let (server, first, _) = leader().await;
        server.fail(move |request| !watched && request.parameter("watch") == "true");
        let mut second = elector(&server.client(), "second");
        let following = tokio::spawn(async move { second.acquire().await });
        tokio::time::sleep(Duration::from_secs(5)).await;
        first.release().await;
        let released = Instant::now();
        following.await.unwrap();
        assert!(
            released.elapsed() < within,
            "{watched}: {:?}",
            released.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_can_not_renew_stops_before_another_may_take_over() {
    let (server, mut first, leadership) = leader().await;
    let started = Instant::now();
    server.fail(|_| true);
    let lost = first.keep().await;
    assert!(matches!(lost, LostLease::NotRenewed(_)), "{lost}");
    assert!(!leadership.is_leader());
    assert!(
        started.elapsed() < LEASE_DURATION,
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_of_the_api_server_does_not_end_the_leadership() {
    let (server, mut first, leadership) = leader().await;
    let keeping = tokio::spawn(async move { first.keep().await });
    tokio::time::sleep(Duration::from_secs(5)).await;
    server.fail(|_| true);
    tokio::time::sleep(Duration::from_secs(5)).await;
    server.recover();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(leadership.is_leader() && !keeping.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_was_taken_by_hand_stops() {
    let (server, mut first, leadership) = leader().await;
    server.edit(&ledger_path(LEASE), |lease| {
        lease["spec"]["holderIdentity"] = json!("someone");
    });
    let lost = first.keep().await;
    assert!(
        matches!(&lost, LostLease::Taken(holder) if holder == "someone"),
        "{lost}"
    );
    assert!(!leadership.is_leader());
}

/// A replica that keeps its lease, and one that follows it; both are checked every 50 ms for a
/// minute after `event`. Returns when the first stopped leading, and when the second started.
async fn change_of_leader(event: impl FnOnce(&FakeApi)) -> (LostLease, Duration, Duration) {
    let (server, mut first, leads) = leader().await;
    let mut second = elector(&server.client(), "second");
    let follows = second.leadership();
    let keeping = tokio::spawn(async move { first.keep().await });
    let following = tokio::spawn(async move {
        second.acquire().await;
        second.keep().await
    });
    tokio::time::sleep(Duration::from_millis(7100)).await;
    event(&server);
    let started = Instant::now();
    let (mut stopped, mut began) = (None, None);
    while started.elapsed() < Duration::from_mins(1) {
        assert!(
            !(leads.is_leader() && follows.is_leader()),
            "two lead after {:?}",
            started.elapsed()
        );
        if !leads.is_leader() {
            stopped.get_or_insert(started.elapsed());
        }
        if follows.is_leader() {
            began.get_or_insert(started.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!following.is_finished(), "the second leads on");
    (keeping.await.unwrap(), stopped.unwrap(), began.unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_deletes_is_made_again_only_when_its_holder_has_stopped() {
    let (lost, stopped, began) =
        change_of_leader(|server| server.delete(&ledger_path(LEASE))).await;
    assert!(matches!(lost, LostLease::Deleted), "{lost}");
    assert!(
        stopped <= RENEW_PERIOD + Duration::from_millis(100),
        "it made it again: {stopped:?}"
    );
    assert!(
        began >= LEASE_DURATION && began < LEASE_DURATION + Duration::from_secs(3),
        "{began:?}"
    );
    // A leader whose writes fail cannot learn of the deletion from them.
    let (lost, stopped, began) = change_of_leader(|server| {
        let by_first = |request: &backup_testkit::Request| {
            let holder = request.body["spec"]["holderIdentity"]
                .as_str()
                .unwrap_or_default();
            holder.starts_with("first")
        };
        server.fail(by_first);
        server.delete(&ledger_path(LEASE));
    })
    .await;
    assert!(matches!(lost, LostLease::Deleted), "{lost}");
    assert!(
        stopped < began && began >= LEASE_DURATION,
        "{stopped:?} {began:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_holder_somebody_removes_is_taken_only_when_the_holder_has_stopped() {
    let emptied = |server: &FakeApi| {
        server.edit(&ledger_path(LEASE), |lease| {
            lease["spec"]["holderIdentity"] = json!("");
        });
    };
    let (lost, stopped, began) = change_of_leader(emptied).await;
    assert!(
        matches!(&lost, LostLease::Taken(holder) if holder.is_empty()),
        "{lost}"
    );
    assert!(
        stopped <= RENEW_PERIOD + Duration::from_millis(100),
        "{stopped:?}"
    );
    assert!(
        began >= LEASE_DURATION && began < LEASE_DURATION + Duration::from_secs(3),
        "{began:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_starts_while_the_lease_is_gone_waits_for_its_holder_too() {
    let (server, mut first, leads) = leader().await;
    let keeping = tokio::spawn(async move { first.keep().await });
    server.delete(&ledger_path(LEASE));
    let mut second = elector(&server.client(), "second");
    let started = Instant::now();
    second.acquire().await;
    assert!(
        !leads.is_leader() && started.elapsed() >= LEASE_DURATION,
        "{:?}",
        started.elapsed()
    );
    keeping.await.unwrap();
}
