use backup_runtime::{clock::Clock, leader::Leadership};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::restore::tests::fake::{self, Fault};

const AT: &str = "/api/v1/namespaces/a/configmaps";

fn object() -> Object {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}})
        .as_object()
        .unwrap()
        .clone()
}

#[tokio::test]
async fn a_server_that_is_away_for_a_while_is_waited_for() {
    for code in [429, 502, 503, 504] {
        let fake = fake::faulty(move |request| {
            if request.earlier < 6 {
                Some(Fault::refuse(code, "", "overloaded"))
            } else {
                None
            }
        });
        let (result, uncertain) = fake::calls(&fake).create(AT, &object(), None).await;
        assert!(result.is_ok(), "{code}: {result:?}");
        assert!(uncertain, "an earlier try may have gone through");
    }
}

#[tokio::test]
async fn a_quota_without_a_status_yet_is_waited_for() {
    let fake = fake::faulty(|request| {
        let is_early = request.earlier < 2;
        is_early.then(|| Fault::refuse(403, "Forbidden", "status unknown for quota: drill"))
    });
    let (result, _) = fake::calls(&fake).create(AT, &object(), None).await;
    assert!(result.is_ok(), "{result:?}");
    let denied = fake::faulty(|_| Some(Fault::refuse(403, "Forbidden", "exceeded quota: drill")));
    let (result, _) = fake::calls(&denied).create(AT, &object(), None).await;
    assert!(result.is_err());
    assert_eq!(denied.log().len(), 1);
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
    let ((result, _), ()) = futures::join!(calls.create(AT, &object, None), others);
    assert!(result.is_ok(), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_always_fails_costs_the_restore_its_patience_once() {
    let broken = WIDGETS;
    let fake = fake::faulty(move |request| {
        (request.path == broken).then(|| Fault::refuse(500, "InternalError", "webhook failed"))
    });
    let (calls, begin) = (fake::calls(&fake), Instant::now());
    let fails = async || {
        let before = fake.count(&format!("POST {broken}"));
        let (result, _) = calls.create(broken, &object(), None).await;
        assert_eq!(result.unwrap_err().to_string(), "webhook failed");
        fake.count(&format!("POST {broken}")) - before
    };
    assert!(fails().await > 100, "all may fail");
    assert!(begin.elapsed() > Duration::from_secs(4));
    for _ in 0..10 {
        assert_eq!(fails().await, 1, "this fails");
        assert!(
            calls.create(AT, &object(), None).await.0.is_ok(),
            "others do not"
        );
        fake.delete(&format!("{AT}/x"));
    }
    assert!(
        begin.elapsed() < Duration::from_secs(6),
        "{:?}",
        begin.elapsed()
    );
}

const WIDGETS: &str = "/apis/example.com/v1/widgets";

/// Other requests, which always succeed.
async fn others(fake: &fake::FakeApi, calls: &Calls) {
    loop {
        assert!(calls.create(AT, &object(), None).await.0.is_ok());
        fake.delete(&format!("{AT}/x"));
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
}

fn failing(path: &'static str, code: u16, message: &'static str) -> fake::FakeApi {
    fake::faulty(move |request| {
        let fails = request.path.starts_with(path);
        fails.then(|| Fault::refuse(code, "InternalError", message))
    })
}

/// The others are writes of the restore, or renewals of the lease.
#[tokio::test(start_paused = true)]
async fn a_request_that_fails_while_others_succeed_is_tried_a_few_times() {
    let fake = failing(WIDGETS, 500, "etcdserver: request is too large");
    let (calls, object) = (fake::calls(&fake), object());
    tokio::select! {
        () = others(&fake, &calls) => {}
        (result, _) = calls.create(WIDGETS, &object, None) => assert!(result.is_err()),
    }
    let tries = fake.count(&format!("POST {WIDGETS}"));
    assert!((3..9).contains(&tries), "{tries}");

    let fake = failing(AT, 500, "etcdserver: request is too large");
    let clock = Clock::Tokio(Instant::now());
    let leadership = Leadership::renewed_once(clock);
    let calls = fake::calls_of(
        &fake,
        Cancellation::new(leadership.clone(), CancellationToken::new()),
    );
    let renewals = async {
        loop {
            leadership.renew(clock.now());
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
    };
    tokio::select! {
        () = renewals => {}
        (result, _) = calls.create(AT, &object, None) => assert!(result.is_err()),
    }
    let tries = fake.log().len();
    assert!((3..9).contains(&tries), "{tries}");
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_is_dead_is_waited_for_once_and_named_by_each_error() {
    let dead = "failed calling webhook \"mutate.example.com\": connection refused";
    let fake = failing(WIDGETS, 500, dead);
    let (calls, begin) = (fake::calls(&fake), Instant::now());
    for number in 0..20 {
        let before = fake.count(&format!("POST {WIDGETS}"));
        let error = calls
            .create(WIDGETS, &object(), None)
            .await
            .0
            .unwrap_err()
            .to_string();
        let says = format!("{dead}; webhook \"mutate.example.com\" does not work: repair it");
        assert!(error.starts_with(&says), "{error}");
        let tries = fake.count(&format!("POST {WIDGETS}")) - before;
        assert!(
            if number == 0 { tries > 100 } else { tries == 1 },
            "{number}: {tries}"
        );
        assert!(
            calls.create(AT, &object(), None).await.0.is_ok(),
            "others succeed"
        );
        fake.delete(&format!("{AT}/x"));
    }
    assert!(
        begin.elapsed() < Duration::from_secs(2),
        "{:?}",
        begin.elapsed()
    );
}

/// A webhook that is replaced from time to time fails no item.
#[tokio::test(start_paused = true)]
async fn a_webhook_that_comes_back_has_its_time_again() {
    let fake = fake::faulty(|request| {
        let fails = request.earlier % 20 != 19;
        fails.then(|| {
            Fault::refuse(
                500,
                "InternalError",
                "failed calling webhook \"w\": refused",
            )
        })
    });
    let calls = fake::calls(&fake);
    for _ in 0..10 {
        assert!(calls.create(AT, &object(), None).await.0.is_ok());
        fake.delete(&format!("{AT}/x"));
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}

/// As with an aggregated API server that is unavailable.
#[tokio::test(start_paused = true)]
async fn a_group_whose_server_is_away_does_not_hold_the_others() {
    let fake = failing(
        "/apis/metrics.example.com/",
        503,
        "error trying to reach service",
    );
    let (calls, begin, object) = (fake::calls(&fake), Instant::now(), object());
    let away = async {
        for number in 0..50 {
            let collection = format!("/apis/metrics.example.com/v1/namespaces/n-{number}/gauges");
            assert!(calls.create(&collection, &object, None).await.0.is_err());
        }
    };
    tokio::select! {
        () = others(&fake, &calls) => {}
        () = away => {}
    }
    assert!(
        begin.elapsed() < Duration::from_secs(3),
        "{:?}",
        begin.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_waited_for_says_why() {
    let fake = fake::faulty(|request| {
        (request.method == "POST").then(|| Fault::refuse(503, "ServiceUnavailable", "overloaded"))
    });
    let cancellation = Cancellation::new(Leadership::always(), CancellationToken::new());
    let mut calls = fake::calls_of(&fake, cancellation.clone());
    (calls.pace.patience, calls.pace.pause.1) = (Duration::from_mins(1), Duration::from_secs(1));
    let mut going = json!({"metadata": {"name": "g", "finalizers": ["example.com/hold"]}});
    fake.put(&format!("{AT}/g"), going.clone());
    let object = object();
    let shown = async || {
        tokio::time::sleep(Duration::from_secs(11)).await;
        cancellation.waits().shown().unwrap().sentence()
    };
    let text = tokio::select! {
        _ = calls.create(AT, &object, None) => panic!("it is waited for"),
        text = shown() => text,
    };
    let says = "for the API server to create configmaps \"x\" in namespace \"a\": overloaded";
    assert!(text.ends_with(says), "{text}");
    let text = tokio::select! {
        _ = calls.until_gone(AT, "g", |_| true) => panic!("it is waited for"),
        text = shown() => text,
    };
    let says = "configmaps \"g\" of namespace \"a\" to be gone, which is being deleted: it has finalizers: \
                example.com/hold";
    assert_says!(text, says);
    going["status"] =
        json!({"conditions": [{"status": "True", "message": "pods. has 1 resource instances"}]});
    fake.put("/api/v1/namespaces/g", going);
    let text = tokio::select! {
        _ = calls.until_gone("/api/v1/namespaces", "g", |_| true) => panic!("it is waited for"),
        text = shown() => text,
    };
    let says =
        "namespaces \"g\" to be gone, which is being deleted: pods. has 1 resource instances";
    assert!(text.ends_with(says), "{text}");
    assert_eq!(cancellation.waits().shown(), None);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_restore_does_not_try_again() {
    let fake = fake::faulty(|_| Some(Fault::refuse(503, "", "overloaded")));
    let cancellation = Cancellation::new(Leadership::always(), CancellationToken::new());
    let calls = fake::calls_of(&fake, cancellation.clone());
    cancellation.cancel();
    let (result, _) = calls.create(AT, &object(), None).await;
    assert!(matches!(result, Err(CallError::Refused(_))), "{result:?}");
    assert_eq!(fake.log().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn objects_that_never_go_are_waited_for_only_until_many_stayed() {
    let fake = fake::server();
    let going = |_: &Object| true;
    let (calls, begin) = (fake::calls(&fake), Instant::now());
    let name = |at: usize| format!("x{at}");
    for at in 0..3 * MAX_TIMED_OUT_WAITS {
        fake.put(
            &format!("{AT}/{}", name(at)),
            json!({"metadata": {"name": name(at)}}),
        );
    }
    assert!(calls.until_gone(AT, "gone", going).await.unwrap().is_none());
    for at in 0..3 * MAX_TIMED_OUT_WAITS {
        assert!(
            calls
                .until_gone(AT, &name(at), going)
                .await
                .unwrap()
                .is_some()
        );
    }
    let waited = begin.elapsed().as_secs() / calls.patience().as_secs();
    assert!((16..24).contains(&waited), "{waited}");
}

#[tokio::test]
async fn an_answer_that_will_not_change_is_not_asked_for_again() {
    for code in [400, 403, 413, 422] {
        let fake = fake::faulty(move |_| Some(Fault::refuse(code, "Invalid", "no")));
        assert!(
            fake::calls(&fake)
                .create(AT, &object(), None)
                .await
                .0
                .is_err()
        );
        assert_eq!(fake.log().len(), 1, "{code}");
    }
}

#[tokio::test]
async fn nothing_is_written_once_the_work_has_to_stop() {
    let (fake, stop) = (fake::server(), CancellationToken::new());
    let calls = fake::calls_until(&fake, stop.clone());
    stop.cancel();
    assert!(matches!(
        calls.create(AT, &object(), None).await.0,
        Err(CallError::Stopped(StopReason::ShuttingDown))
    ));
    assert!(matches!(
        calls.patch(AT, "x", &Object::new(), None).await,
        Err(CallError::Stopped(StopReason::ShuttingDown))
    ));
    assert!(fake.log().is_empty());
}

/// A suspended restore resumes after the end of the lease: its next write is neither sent nor
/// retried.
#[tokio::test(start_paused = true)]
async fn nothing_is_written_after_the_end_of_the_lease() {
    let leased = |fake: &fake::FakeApi| {
        let leadership = Leadership::renewed_once(Clock::Tokio(Instant::now()));
        fake::calls_of(
            fake,
            Cancellation::new(leadership, CancellationToken::new()),
        )
    };
    let lost = |error: &CallError| matches!(error, CallError::Stopped(StopReason::NotLeader(_)));
    let fake = fake::server();
    let calls = leased(&fake);
    assert!(calls.create(AT, &object(), None).await.0.is_ok());
    let written = fake.writes();
    tokio::time::advance(Duration::from_secs(10)).await;
    assert!(lost(
        &calls.create(AT, &object(), None).await.0.unwrap_err()
    ));
    assert!(lost(
        &calls
            .patch(AT, "x", &Object::new(), None)
            .await
            .unwrap_err()
    ));
    assert!(
        calls.get(AT, "x").await.unwrap().is_some(),
        "reads change nothing"
    );
    assert_eq!(fake.writes(), written);

    // The answer to the first try is an error, and the lease ends before the second.
    let fake = fake::faulty(|request| {
        (request.earlier == 0).then(|| Fault::refuse(503, "", "overloaded"))
    });
    let mut calls = leased(&fake);
    (calls.pace.patience, calls.pace.pause) = (
        Duration::from_mins(1),
        (Duration::from_secs(10), Duration::from_secs(20)),
    );
    assert!(lost(
        &calls.create(AT, &object(), None).await.0.unwrap_err()
    ));
    assert_eq!((fake.log().len(), fake.writes()), (1, 0));
}

#[tokio::test]
async fn what_is_not_there_is_none() {
    assert!(
        fake::calls(&fake::server())
            .get(AT, "x")
            .await
            .unwrap()
            .is_none()
    );
}
