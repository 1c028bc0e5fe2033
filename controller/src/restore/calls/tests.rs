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

/// As while etcd elects a leader: each write fails, and reads may succeed.
#[tokio::test]
async fn a_server_that_fails_at_every_write_is_waited_for() {
    let fake = fake::faulty(|request| {
        let fails = request.is_write() && request.earlier < 20;
        fails.then(|| Fault::refuse(500, "ServerTimeout", "etcdserver: leader changed"))
    });
    let calls = fake::calls(&fake);
    let others = async {
        for _ in 0..20 {
            calls.get(AT, "y").await.unwrap();
        }
    };
    let object = object();
    let ((result, _), ()) = futures::join!(calls.create(AT, &object), others);
    assert!(result.is_ok(), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_always_fails_costs_the_restore_its_patience_once() {
    let broken = "/apis/example.com/v1/widgets";
    let fake = fake::faulty(move |request| {
        (request.path == broken).then(|| Fault::refuse(500, "InternalError", "webhook failed"))
    });
    let (calls, begin) = (fake::calls(&fake), Instant::now());
    let fails = async || {
        let before = fake.count(&format!("POST {broken}"));
        let (result, _) = calls.create(broken, &object()).await;
        assert_eq!(result.unwrap_err().to_string(), "webhook failed");
        fake.count(&format!("POST {broken}")) - before
    };
    assert!(fails().await > 100, "all may fail");
    assert!(begin.elapsed() > Duration::from_secs(4));
    for _ in 0..10 {
        assert_eq!(fails().await, 3, "this fails");
    }
    assert!(begin.elapsed() < Duration::from_secs(6), "{:?}", begin.elapsed());
    assert!(calls.create(AT, &object()).await.0.is_ok());
    assert!(fails().await > 100, "the server may fail once more");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_restore_does_not_try_again() {
    let fake = fake::faulty(|_| Some(Fault::refuse(503, "", "overloaded")));
    let cancellation = Cancellation::new(Leadership::always(), CancellationToken::new());
    let calls = fake::calls_of(&fake, cancellation.clone());
    cancellation.cancel();
    let (result, _) = calls.create(AT, &object()).await;
    assert!(matches!(result, Err(CallError::Refused(_))), "{result:?}");
    assert_eq!(fake.log().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn objects_that_never_go_are_waited_for_only_until_many_stayed() {
    let fake = fake::server();
    let going = |_: &Object| true;
    let (calls, begin) = (fake::calls(&fake), Instant::now());
    let name = |at: usize| format!("x{at}");
    for at in 0..3 * VAIN_WAITS {
        fake.put(&format!("{AT}/{}", name(at)), json!({"metadata": {"name": name(at)}}));
    }
    assert!(calls.until_gone(AT, "gone", going).await.unwrap().is_none());
    for at in 0..3 * VAIN_WAITS {
        assert!(calls.until_gone(AT, &name(at), going).await.unwrap().is_some());
    }
    let waited = begin.elapsed().as_secs() / calls.patience().as_secs();
    assert!((16..24).contains(&waited), "{waited}");
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
