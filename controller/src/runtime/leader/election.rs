//! Elections on a fake API server that stores one Lease and, like the real one, compares resourceVersions.

use std::sync::Mutex;

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;

#[derive(Default)]
struct Server {
    lease: Mutex<Option<Value>>,
    down: std::sync::atomic::AtomicBool,
}

type Shared = State<Arc<Server>>;

fn status(code: StatusCode, reason: &str) -> Response {
    let details = json!({"name": LEASE, "kind": "leases"});
    let body = json!({"kind": "Status", "status": "Failure", "code": code.as_u16(), "reason": reason,
        "message": reason, "details": details});
    (code, Json(body)).into_response()
}

impl Server {
    fn refusal(&self) -> Option<Response> {
        let down = self.down.load(Ordering::SeqCst);
        down.then(|| status(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"))
    }
}

async fn read(State(server): Shared) -> Response {
    if let Some(refusal) = server.refusal() {
        return refusal;
    }
    let lease = server.lease.lock().unwrap().clone();
    lease.map_or_else(|| status(StatusCode::NOT_FOUND, "NotFound"), |lease| Json(lease).into_response())
}

async fn create(State(server): Shared, Json(mut lease): Json<Value>) -> Response {
    if let Some(refusal) = server.refusal() {
        return refusal;
    }
    let mut stored = server.lease.lock().unwrap();
    if stored.is_some() {
        return status(StatusCode::CONFLICT, "AlreadyExists");
    }
    lease["metadata"]["resourceVersion"] = json!("1");
    Json(stored.insert(lease).clone()).into_response()
}

async fn replace(State(server): Shared, Json(mut lease): Json<Value>) -> Response {
    if let Some(refusal) = server.refusal() {
        return refusal;
    }
    let mut stored = server.lease.lock().unwrap();
    let Some(before) = stored.as_ref() else { return status(StatusCode::NOT_FOUND, "NotFound") };
    if before["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"] {
        return status(StatusCode::CONFLICT, "Conflict");
    }
    let version: u64 = before["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    lease["metadata"]["resourceVersion"] = json!((version + 1).to_string());
    Json(stored.insert(lease).clone()).into_response()
}

fn server() -> (Arc<Server>, Client) {
    let server = Arc::new(Server::default());
    let leases = "/apis/coordination.k8s.io/v1/namespaces/velero/leases";
    let router = Router::new()
        .route(leases, post(create))
        .route(&format!("{leases}/{LEASE}"), get(read).put(replace))
        .with_state(Arc::clone(&server));
    (server, Client::new(router, "velero"))
}

fn elector(client: &Client, host: &str) -> Elector {
    Elector::with_clock(client.clone(), "velero", host, Clock::Tokio(Instant::now()))
}

#[tokio::test(start_paused = true)]
async fn of_many_replicas_exactly_one_leads() {
    let (_, client) = server();
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
    let (_, client) = server();
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
    let (server, client) = server();
    let mut first = elector(&client, "first");
    let leadership = first.leadership();
    first.acquire().await;
    let started = Instant::now();
    server.down.store(true, Ordering::SeqCst);
    let lost = first.keep().await;
    assert!(matches!(lost, LostLease::NotRenewed(_)), "{lost}");
    assert!(!leadership.is_leader());
    assert!(started.elapsed() < LEASE_DURATION, "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_of_the_api_server_does_not_end_the_leadership() {
    let (server, client) = server();
    let mut first = elector(&client, "first");
    let leadership = first.leadership();
    first.acquire().await;
    let keeping = tokio::spawn(async move { first.keep().await });
    tokio::time::sleep(Duration::from_secs(5)).await;
    server.down.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(5)).await;
    server.down.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(leadership.is_leader() && !keeping.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_was_taken_by_hand_stops() {
    let (server, client) = server();
    let mut first = elector(&client, "first");
    let leadership = first.leadership();
    first.acquire().await;
    {
        let mut stored = server.lease.lock().unwrap();
        let lease = stored.as_mut().unwrap();
        lease["spec"]["holderIdentity"] = json!("someone");
        lease["metadata"]["resourceVersion"] = json!("99");
    }
    let lost = first.keep().await;
    assert!(matches!(&lost, LostLease::Taken(holder) if holder == "someone"), "{lost}");
    assert!(!leadership.is_leader());
}
