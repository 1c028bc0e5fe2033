//! Elections on an API server in memory.

use std::time::Duration;

use backup_testkit::{FakeApi, ledger_path};
use kube::Client;
use serde_json::json;
use tokio::time::Instant;

use super::{
    Elector, Leadership, LostLease,
    leadership::{LEASE, LEASE_DURATION},
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
        let leaders = leaderships.iter().filter(|leadership| leadership.is_leader()).count();
        assert!(leaders <= 1, "{leaders} leaders");
    }
    assert_eq!(leaderships.iter().filter(|leadership| leadership.is_leader()).count(), 1);
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
    assert!(started.elapsed() >= LEASE_DURATION, "{:?}", started.elapsed());
    assert!(started.elapsed() < LEASE_DURATION + Duration::from_secs(5), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_can_not_renew_stops_before_another_may_take_over() {
    let (server, mut first, leadership) = leader().await;
    let started = Instant::now();
    server.fail(|_| true);
    let lost = first.keep().await;
    assert!(matches!(lost, LostLease::NotRenewed(_)), "{lost}");
    assert!(!leadership.is_leader());
    assert!(started.elapsed() < LEASE_DURATION, "{:?}", started.elapsed());
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
    server.edit(&ledger_path(LEASE), |lease| lease["spec"]["holderIdentity"] = json!("someone"));
    let lost = first.keep().await;
    assert!(matches!(&lost, LostLease::Taken(holder) if holder == "someone"), "{lost}");
    assert!(!leadership.is_leader());
}
