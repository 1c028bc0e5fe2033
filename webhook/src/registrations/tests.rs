//! Tests of what a replica reads from registrations and writes into them.

use backup_testkit::FakeApi;
use serde_json::{Value, json};

use super::*;

const PATH: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/backup-webhook";
const SECRET: &str = "/api/v1/namespaces/velero/secrets/backup-webhook-tls";

/// As the Secret names an authority.
fn pem(authority: &str) -> String {
    format!("-----BEGIN CERTIFICATE-----\n{authority}\n-----END CERTIFICATE-----\n")
}

fn base64(text: &str) -> Value {
    json!(ByteString(text.as_bytes().to_vec()))
}

/// One that serves what the Secret says.
fn replica(api: &FakeApi, authority: Option<&str>) -> Registrations {
    let authority = authority.map(pem);
    if let Some(authority) = &authority {
        let data = json!({ "tls.crt": "", "tls.key": "", "ca.crt": base64(authority) });
        api.put(
            SECRET,
            json!({ "metadata": { "name": "backup-webhook-tls" }, "data": data }),
        );
    }
    let profiles = [("velero", Vec::new())].into_iter();
    Registrations::new(
        api.client(),
        "velero",
        profiles,
        watch::channel(authority.map(|authority| authority.into_bytes().into())).1,
        Installations::default(),
        SecretPaths::default(),
        Arc::default(),
    )
}

impl Registrations {
    async fn seen(&self, name: &str) -> anyhow::Result<RegistrationState> {
        let authority = self.authority.borrow().clone();
        self.look_at(name, &[], &authority).await
    }
}

fn registered(api: &FakeApi, clients: &[Value]) {
    let webhook = |client: &Value| json!({ "name": "x", "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": client });
    let webhooks: Vec<Value> = clients.iter().map(webhook).collect();
    api.put(
        PATH,
        json!({ "metadata": { "name": "backup-webhook" }, "webhooks": webhooks }),
    );
}

fn client(api: &FakeApi, number: usize) -> Value {
    api.get(PATH).unwrap()["webhooks"][number]["clientConfig"].clone()
}

#[tokio::test]
async fn all_webhooks_are_asked_by_one_path_that_all_replicas_know() {
    let api = FakeApi::new();
    let (one, two) = (replica(&api, Some("ca")), replica(&api, Some("ca")));
    assert_eq!(
        one.seen("backup-webhook").await.unwrap(),
        RegistrationState::Missing,
        "it may be applied later"
    );
    let service =
        json!({ "service": { "name": "backup-webhook", "namespace": "velero", "port": 443 } });
    registered(&api, &[service.clone(), service]);
    for replica in [&one, &two] {
        assert_eq!(
            replica.seen("backup-webhook").await.unwrap(),
            RegistrationState::Written,
            "it starts"
        );
    }
    for replica in [&one, &two] {
        assert_eq!(
            replica.seen("backup-webhook").await.unwrap(),
            RegistrationState::Right
        );
        for number in [0, 1] {
            let client = client(&api, number);
            assert_eq!(client["caBundle"], base64(&pem("ca")));
            let path = client["service"]["path"].as_str().unwrap();
            assert!(
                path.len() > 64 && replica.paths.contain(path, Instant::now()),
                "{path}"
            );
        }
    }
}

#[tokio::test]
async fn a_registration_that_is_missing_is_measured() {
    let api = FakeApi::new();
    let replica = replica(&api, None);
    let shown = |value: u8| {
        let line =
            format!("backup_webhook_registered{{registration=\"backup-webhook\"}} {value}\n");
        replica.metrics.text(true).contains(&line)
    };
    replica.look().await;
    assert!(shown(0), "{}", replica.metrics.text(true));
    registered(&api, &[json!({ "url": "https://127.0.0.1:9/validate" })]);
    replica.look().await;
    assert!(shown(1), "{}", replica.metrics.text(true));
    let with = |policy: &str| {
        let mut changed = api.get(PATH).unwrap();
        changed["webhooks"][0]["failurePolicy"] = json!(policy);
        api.put(PATH, changed);
    };
    with("Ignore");
    replica.look().await;
    assert!(shown(0), "{}", replica.metrics.text(true));
    with("Fail");
    replica.look().await;
    assert!(shown(1), "{}", replica.metrics.text(true));
    api.delete(PATH);
    replica.look().await;
    assert!(shown(0), "{}", replica.metrics.text(true));
}

#[tokio::test(start_paused = true)]
async fn a_path_is_used_for_a_while_and_known_a_minute_longer() {
    let api = FakeApi::new();
    let replica = replica(&api, None);
    registered(&api, &[json!({ "url": "https://127.0.0.1:9/validate" })]);
    replica.look().await;
    let url = client(&api, 0)["url"].as_str().unwrap().to_owned();
    let path = url.strip_prefix("https://127.0.0.1:9").unwrap();
    tokio::time::advance(PATH_LIFETIME).await;
    assert_eq!(
        replica.seen("backup-webhook").await.unwrap(),
        RegistrationState::Written
    );
    assert_ne!(client(&api, 0)["url"], url);
    assert!(
        replica.paths.contain(path, Instant::now()),
        "an API server may not have heard of the new one"
    );
    tokio::time::advance(Duration::from_mins(1)).await;
    assert!(!replica.paths.contain(path, Instant::now()));
}

/// While no replica answers, the API server tells the path to every client that creates a
/// Backup.
#[tokio::test(start_paused = true)]
async fn a_path_that_an_outage_may_have_told_is_replaced_and_forgotten() {
    let api = FakeApi::new();
    registered(&api, &[json!({ "url": "https://127.0.0.1:9/validate" })]);
    let url = |api: &FakeApi| client(api, 0)["url"].as_str().unwrap().to_owned();
    replica(&api, None).look().await;
    let told = url(&api);
    let path = told.strip_prefix("https://127.0.0.1:9").unwrap();
    let restarted = replica(&api, None);
    restarted.look().await;
    assert_ne!(url(&api), told, "a replica has started");
    tokio::time::advance(Duration::from_mins(1)).await;
    assert!(!restarted.paths.contain(path, Instant::now()));

    let told = url(&api);
    restarted.look().await;
    assert_eq!(url(&api), told, "once");
    // The path that it finds when it resumes may have been told to clients during the pause.
    let (_asks, asked) = mpsc::channel(1);
    let following = tokio::spawn(
        restarted
            .looking_every(Duration::from_secs(1))
            .follow(asked),
    );
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(url(&api), told, "it answers");
    tokio::time::advance(Duration::from_secs(20)).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_ne!(url(&api), told, "it stood still");
    following.abort();
}

#[test]
fn the_age_of_a_path_is_counted_in_the_registration() {
    let now: Timestamp = "2026-11-27T12:00:00Z".parse().unwrap();
    for (since, expected) in [
        (Some("2026-11-27T11:50:00Z"), Duration::from_mins(10)),
        (Some("2026-11-27T13:00:00Z"), Duration::ZERO),
        (Some("yesterday"), Duration::MAX),
        (None, Duration::MAX),
    ] {
        let annotations = since.map(|since| json!({ PATH_SINCE_ANNOTATION: since }));
        let object = json!({ "metadata": { "annotations": annotations } });
        assert_eq!(
            annotated_age(&serde_json::from_value(object).unwrap(), now),
            expected,
            "{since:?}"
        );
    }
}

#[tokio::test]
async fn a_new_certificate_brings_a_new_path() {
    let api = FakeApi::new();
    registered(&api, &[json!({ "url": "https://127.0.0.1:9/validate" })]);
    replica(&api, Some("old")).look().await;
    let before = client(&api, 0);
    replica(&api, Some("new")).look().await;
    assert_ne!(client(&api, 0)["url"], before["url"]);
}

/// One that stood still while another one made a certificate would make creations fail until
/// the other one looks.
#[tokio::test]
async fn a_replica_that_has_not_heard_of_a_certificate_takes_no_authority_away() {
    let api = FakeApi::new();
    registered(&api, &[json!({ "url": "https://127.0.0.1:9/validate" })]);
    let slept = replica(&api, Some("old"));
    replica(&api, Some("new")).look().await;
    let named = client(&api, 0);
    assert_eq!(named["caBundle"], base64(&pem("new")));
    assert_eq!(
        slept.seen("backup-webhook").await.unwrap(),
        RegistrationState::Changing
    );
    api.delete(SECRET);
    assert_eq!(
        slept.seen("backup-webhook").await.unwrap(),
        RegistrationState::Changing,
        "it may be made just now"
    );
    assert_eq!(client(&api, 0), named);
}

#[tokio::test(start_paused = true)]
async fn an_authority_is_named_before_a_replica_serves_though_another_one_writes_at_the_same_time()
{
    let api = FakeApi::new();
    registered(&api, &[json!({ "url": "https://127.0.0.1:9/validate" })]);
    let conflicts = std::sync::atomic::AtomicUsize::new(0);
    api.fault(move |_, request| {
        let first = request.is("PUT", PATH)
            && conflicts.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
        first
            .then(|| backup_testkit::Fault::refuse(409, "Conflict", "the object has been modified"))
    });
    replica(&api, Some("ca")).announce().await;
    assert_eq!(client(&api, 0)["caBundle"], base64(&pem("ca")));
}

#[tokio::test]
async fn what_leads_to_another_installation_is_left_alone() {
    let api = FakeApi::new();
    registered(
        &api,
        &[json!({ "service": { "name": "backup-webhook", "namespace": "team-b" } })],
    );
    let replica = replica(&api, Some("ca"));
    assert_eq!(
        replica.seen("backup-webhook").await.unwrap(),
        RegistrationState::Elsewhere
    );
    assert_eq!(client(&api, 0)["caBundle"], Value::Null);
}
