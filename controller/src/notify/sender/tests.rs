use backup_core::api::Backup;
use backup_testkit::FakeApi;
use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::notify::{decide::due, tests::Receiver};

const SECRET_PATH: &str = "/api/v1/namespaces/velero/secrets/hook";

/// Fast retries, within this time.
fn pace(milliseconds: u64) -> Pace {
    Pace {
        backoff: Backoff {
            first: Duration::from_millis(10),
            cap: Duration::from_millis(40),
        },
        budget: Duration::from_millis(milliseconds),
    }
}

fn notification() -> Notification {
    let object = json!({ "metadata": { "name": "b", "namespace": "velero", "uid": "u" }, "spec": {},
        "status": { "phase": "Failed", "completionTimestamp": "2026-11-03T03:14:12Z" } });
    let backup: Backup = serde_json::from_value(object).unwrap();
    let now: Timestamp = "2026-11-03T04:00:00Z".parse().unwrap();
    due(&backup, now).remove(0)
}

fn sender(fake: &FakeApi, url: &Url, secret: Option<&str>, pace: Pace) -> Sender {
    let secrets = Api::namespaced(fake.client(), "velero");
    let source = "/backup-controller/c/velero".to_owned();
    let secret = secret.map(str::to_owned);
    Sender::new(url.clone(), source, secrets, secret, pace).unwrap()
}

/// Delivers without a Secret, with fast retries for up to five seconds.
async fn deliver(url: &Url) -> Result<(), DeliveryError> {
    let sender = sender(&FakeApi::new(), url, None, pace(5000));
    sender.deliver(&notification()).await
}

#[tokio::test]
async fn a_notification_is_a_cloud_event_with_a_json_body() {
    let (receiver, url) = Receiver::start(&[200]).await;
    deliver(&url).await.unwrap();
    for (header, expected) in [
        ("content-type", "application/json"),
        ("ce-specversion", "1.0"),
        ("ce-id", "u/ended/2026-11-03T03:14:12Z"),
        ("ce-source", "/backup-controller/c/velero"),
        ("ce-type", "backup-controller.backup.ended"),
        ("ce-subject", "backups/b"),
        ("ce-time", "2026-11-03T03:14:12Z"),
        ("authorization", ""),
    ] {
        assert_eq!(receiver.header(header), [expected], "{header}");
    }
    let (_, body) = &receiver.requests()[0];
    assert_eq!(body, &serde_json::to_value(notification().data).unwrap());
}

#[tokio::test]
async fn what_may_pass_is_tried_again_with_the_same_id() {
    let (receiver, url) = Receiver::start(&[500, 503, 429, 408, 425, 202]).await;
    deliver(&url).await.unwrap();
    let ids = receiver.header("ce-id");
    assert_eq!(ids.len(), 6);
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[tokio::test]
async fn a_final_answer_is_not_tried_again_and_no_redirect_is_followed() {
    for answer in [302, 307, 400, 401, 404, 410] {
        let (receiver, url) = Receiver::start(&[answer]).await;
        let error = deliver(&url).await.unwrap_err();
        assert!(error.is_final, "{error}");
        assert_says!(error, answer.to_string().as_str(), "attempt 1");
        assert_eq!(receiver.requests().len(), 1, "{answer}");
    }
}

#[tokio::test]
async fn retries_end_with_the_budget() {
    let (receiver, url) = Receiver::start(&[503; 1000]).await;
    let sender = sender(&FakeApi::new(), &url, None, pace(300));
    let started = Instant::now();
    let error = sender.deliver(&notification()).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_says!(error, "503");
    let tries = receiver.requests().len();
    assert!((3..100).contains(&tries), "{tries}");
}

#[tokio::test]
async fn no_message_has_the_path_of_the_url() {
    let (_, url) = Receiver::start(&[]).await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut closed = url;
    closed
        .set_port(Some(listener.local_addr().unwrap().port()))
        .unwrap();
    drop(listener);
    let sender = sender(&FakeApi::new(), &closed, None, pace(50));
    let error = sender.deliver(&notification()).await.unwrap_err();
    assert_says!(error, "no answer");
    assert!(!error.to_string().contains("s3cr3t"), "{error}");
}

#[tokio::test]
async fn the_authorization_is_read_for_each_attempt() {
    let (receiver, url) = Receiver::start(&[]).await;
    let fake = FakeApi::new();
    let sender = sender(&fake, &url, Some("hook"), pace(10_000));
    let notification = notification();
    let created = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let data = json!({ "authorization": "QmVhcmVyIHgK" });
        fake.put(
            SECRET_PATH,
            json!({ "metadata": { "name": "hook" }, "data": data }),
        );
    };
    let (delivered, ()) = tokio::join!(sender.deliver(&notification), created);
    delivered.unwrap();
    assert_eq!(receiver.header("authorization"), ["Bearer x"]);
    let replaced = json!({ "authorization": "QmVhcmVyIHk=" });
    fake.edit(SECRET_PATH, |secret| secret["data"] = replaced);
    sender.deliver(&notification).await.unwrap();
    assert_eq!(receiver.header("authorization"), ["Bearer x", "Bearer y"]);
}

#[tokio::test]
async fn a_secret_that_cannot_be_used_is_named_and_its_content_is_not() {
    let (receiver, url) = Receiver::start(&[]).await;
    // The last value is "s3\ncr3t".
    for (data, problem) in [
        (None, "does not exist"),
        (Some(json!({})), "has no key authorization"),
        (
            Some(json!({ "authorization": "czMKY3IzdA==" })),
            "cannot be the value of a header",
        ),
    ] {
        let fake = FakeApi::new();
        if let Some(data) = data {
            fake.put(
                SECRET_PATH,
                json!({ "metadata": { "name": "hook" }, "data": data }),
            );
        }
        let sender = sender(&fake, &url, Some("hook"), pace(50));
        let error = sender.deliver(&notification()).await.unwrap_err();
        assert_says!(error, "Secret hook of --notify-secret", problem);
        assert!(!error.to_string().contains("cr3t"), "{error}");
    }
    assert_eq!(receiver.requests().len(), 0);
}

#[tokio::test]
async fn an_empty_authorization_sends_nothing() {
    let (receiver, url) = Receiver::start(&[]).await;
    let fake = FakeApi::new();
    let secret = json!({ "metadata": { "name": "hook" }, "data": { "authorization": "Cg==" } });
    fake.put(SECRET_PATH, secret);
    let sender = sender(&fake, &url, Some("hook"), pace(50));
    let error = sender.deliver(&notification()).await.unwrap_err();
    assert_says!(
        error,
        "Secret hook of --notify-secret has an empty key authorization"
    );
    assert!(receiver.requests().is_empty());
}
