use backup_runtime::{clock::Clock, leader::Leadership};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::restore::fake::{self, Fault};

const AT: &str = "/api/v1/namespaces/a/configmaps";

fn object() -> Object {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}).as_object().unwrap().clone()
}

#[tokio::test]
async fn a_server_that_is_away_for_a_while_is_waited_for() {
    for code in [429, 502, 503, 504] {
        let fake = fake::faulty(move |request| {
            if request.earlier < 6 { Some(Fault::refuse(code, "", "overloaded")) } else { None }
        });
        let (result, uncertain) = fake::calls(&fake).create(AT, &object()).await;
        assert!(result.is_ok(), "{code}: {result:?}");
        assert!(uncertain, "an earlier try may have gone through");
    }
}

#[tokio::test]
async fn a_server_that_fails_on_the_request_is_asked_a_few_times_only() {
    let fake = fake::faulty(|_| Some(Fault::refuse(500, "InternalError", "webhook failed")));
    let (result, _) = fake::calls(&fake).create(AT, &object()).await;
    assert_eq!(result.unwrap_err().to_string(), "webhook failed");
    assert_eq!(fake.log().len(), 3);
}

#[tokio::test]
async fn an_answer_that_will_not_change_is_not_asked_for_again() {
    for code in [400, 403, 413, 422] {
        let fake = fake::faulty(move |_| Some(Fault::refuse(code, "Invalid", "no")));
        assert!(fake::calls(&fake).create(AT, &object()).await.0.is_err());
        assert_eq!(fake.log().len(), 1, "{code}");
    }
}

#[tokio::test]
async fn nothing_is_written_once_the_work_has_to_stop() {
    let (fake, stop) = (fake::server(), CancellationToken::new());
    let calls = fake::calls_until(&fake, stop.clone());
    stop.cancel();
    assert!(matches!(calls.create(AT, &object()).await.0, Err(CallError::Stopped(StopReason::ShuttingDown))));
    assert!(matches!(
        calls.patch(AT, "x", &json!({})).await,
        Err(CallError::Stopped(StopReason::ShuttingDown))
    ));
    assert!(fake.log().is_empty());
}

/// A restore that was suspended wakes up after the lease: what it was about to write is not sent, nor tried again.
#[tokio::test(start_paused = true)]
async fn nothing_is_written_after_the_end_of_the_lease() {
    let leased = |fake: &fake::FakeApi| {
        let leadership = Leadership::renewed_once(Clock::Tokio(Instant::now()));
        fake::calls_of(fake, Cancellation::new(leadership, CancellationToken::new()))
    };
    let lost = |error: &CallError| matches!(error, CallError::Stopped(StopReason::NotLeader(_)));
    let fake = fake::server();
    let calls = leased(&fake);
    assert!(calls.create(AT, &object()).await.0.is_ok());
    let written = fake.writes();
    tokio::time::advance(Duration::from_secs(10)).await;
    assert!(lost(&calls.create(AT, &object()).await.0.unwrap_err()));
    assert!(lost(&calls.patch(AT, "x", &json!({"data": {"a": "b"}})).await.unwrap_err()));
    assert!(calls.get(AT, "x").await.unwrap().is_some(), "reads change nothing");
    assert_eq!(fake.writes(), written);

    // The answer to the first try is an error, and the lease ends before the second.
    let fake = fake::faulty(|request| (request.earlier == 0).then(|| Fault::refuse(503, "", "overloaded")));
    let mut calls = leased(&fake);
    (calls.pace.patience, calls.pace.pause) =
        (Duration::from_mins(1), (Duration::from_secs(10), Duration::from_secs(20)));
    assert!(lost(&calls.create(AT, &object()).await.0.unwrap_err()));
    assert_eq!((fake.log().len(), fake.writes()), (1, 0));
}

#[tokio::test]
async fn what_is_not_there_is_none() {
    assert!(fake::calls(&fake::server()).get(AT, "x").await.unwrap().is_none());
}
