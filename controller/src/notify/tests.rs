use std::collections::VecDeque;

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use backup_testkit::{FakeApi, velero_path};
use parking_lot::Mutex;
use serde_json::Value;

use super::*;
use crate::testing;

/// A receiver of notifications. It gives its answers in turn, and then 204.
#[derive(Clone, Default)]
pub(super) struct Receiver {
    answers: Arc<Mutex<VecDeque<u16>>>,
    requests: Arc<Mutex<Vec<(HeaderMap, Value)>>>,
}

impl Receiver {
    /// Starts a receiver; returns it with its URL.
    pub(super) async fn start(answers: &[u16]) -> (Self, Url) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let receiver = Self::default();
        receiver.answers.lock().extend(answers);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(receive).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let url = format!("http://{address}/hooks/s3cr3t");
        (receiver, url.parse().unwrap())
    }

    pub(super) fn requests(&self) -> Vec<(HeaderMap, Value)> {
        self.requests.lock().clone()
    }

    /// A header of each request; empty where it is missing.
    pub(super) fn header(&self, name: &str) -> Vec<String> {
        let requests = self.requests();
        let values = requests.iter().map(|(headers, _)| headers.get(name));
        values
            .map(|value| value.map_or_else(String::new, |value| value.to_str().unwrap().to_owned()))
            .collect()
    }
}

async fn receive(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> Response {
    let body = serde_json::from_slice(&body).unwrap();
    receiver.requests.lock().push((headers, body));
    let answer = receiver.answers.lock().pop_front().unwrap_or(204);
    let location = [(header::LOCATION, "/elsewhere")];
    (StatusCode::from_u16(answer).unwrap(), location).into_response()
}

/// An API server with these ended objects.
fn cluster_with(objects: &[(&str, &str, &str)]) -> FakeApi {
    let fake = FakeApi::new();
    let ended = Timestamp::now();
    for (kind, name, phase) in objects {
        let status = json!({ "phase": phase, "completionTimestamp": ended, "errors": 1 });
        let object = testing::velero(kind, name, json!({}), status);
        fake.put(&velero_path(kind, name), object);
    }
    fake
}

/// Runs a controller until the condition holds.
async fn run_until(fake: &FakeApi, url: &Url, condition: impl Fn() -> bool) {
    let controller = NotificationController {
        cluster: testing::cluster(fake.client()),
        metrics: Arc::default(),
        settings: NotifySettings {
            url: url.clone(),
            secret: None,
        },
        installation: "cluster-uid/velero".to_owned(),
    };
    let holds = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        ended = Box::pin(controller.run(CancellationToken::new())) => panic!("{ended:?}"),
        held = tokio::time::timeout(Duration::from_secs(20), holds) => held.unwrap(),
    }
}

fn is_recorded(fake: &FakeApi, kind: &str, name: &str) -> bool {
    let object = fake.get(&velero_path(kind, name)).unwrap();
    object["metadata"]["annotations"][NOTIFIED_ANNOTATION].is_string()
}

#[tokio::test]
async fn what_has_not_ended_well_is_sent_once_also_after_a_restart() {
    let (receiver, url) = Receiver::start(&[]).await;
    let fake = cluster_with(&[
        ("Backup", "failed", "Failed"),
        ("Backup", "good", "Completed"),
        ("Restore", "partial", "PartiallyFailed"),
    ]);
    run_until(&fake, &url, || {
        is_recorded(&fake, "Backup", "failed") && is_recorded(&fake, "Restore", "partial")
    })
    .await;
    let mut types = receiver.header("ce-type");
    types.sort_unstable();
    let expected = [
        "backup-controller.backup.ended",
        "backup-controller.restore.ended",
    ];
    assert_eq!(types, expected);
    assert!(!is_recorded(&fake, "Backup", "good"));
    // Another failed one shows that all objects were seen.
    let status = json!({ "phase": "Failed", "completionTimestamp": Timestamp::now() });
    let next = testing::velero("Backup", "next", json!({}), status);
    fake.put(&velero_path("Backup", "next"), next);
    run_until(&fake, &url, || is_recorded(&fake, "Backup", "next")).await;
    assert_eq!(receiver.requests().len(), 3);
}

#[tokio::test]
async fn a_delivery_that_was_not_recorded_is_sent_again_with_the_same_id() {
    let (receiver, url) = Receiver::start(&[]).await;
    let fake = cluster_with(&[("Backup", "failed", "Failed")]);
    let path = velero_path("Backup", "failed");
    fake.fail(move |request| request.is("PATCH", &path));
    run_until(&fake, &url, || !receiver.requests().is_empty()).await;
    assert!(!is_recorded(&fake, "Backup", "failed"));
    fake.recover();
    run_until(&fake, &url, || is_recorded(&fake, "Backup", "failed")).await;
    let ids = receiver.header("ce-id");
    assert!(ids.len() == 2 && ids[0] == ids[1], "{ids:?}");
    assert!(ids[0].starts_with("uid-failed/ended/"), "{ids:?}");
}

#[tokio::test]
async fn a_receiver_that_refuses_is_asked_once_and_nothing_is_recorded() {
    let (receiver, url) = Receiver::start(&[403]).await;
    let fake = cluster_with(&[("Backup", "a", "Failed")]);
    run_until(&fake, &url, || !receiver.requests().is_empty()).await;
    // A restart tries it again.
    run_until(&fake, &url, || is_recorded(&fake, "Backup", "a")).await;
    assert_eq!(receiver.requests().len(), 2);
}

#[tokio::test]
async fn a_notification_that_is_tried_again_does_not_hold_up_the_next() {
    let (receiver, url) = Receiver::start(&[503]).await;
    let fake = cluster_with(&[("Backup", "a", "Failed"), ("Backup", "b", "Failed")]);
    run_until(&fake, &url, || {
        is_recorded(&fake, "Backup", "a") && is_recorded(&fake, "Backup", "b")
    })
    .await;
    let subjects = receiver.header("ce-subject");
    let [first, second, third] = subjects.as_slice() else {
        panic!("{subjects:?}")
    };
    assert_eq!(first, third, "the refused one is sent again");
    assert_ne!(first, second, "the other one did not wait for it");
}
