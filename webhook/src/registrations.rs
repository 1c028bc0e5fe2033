//! Follows the webhook's registrations: the namespaces of installations, and the path that the API server uses. Keeps
//! our CA and that path in them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use axum::http::Uri;
use backup_lock::{GuardedRequest, Installations, Registration, errors::plain, registration::Labels};
use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{ValidatingWebhookConfiguration, WebhookClientConfig},
        core::v1::Namespace,
    },
};
use kube::{Api, Client, api::PostParams};
use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep, timeout},
};

use crate::{callers::SecretPaths, metrics::Metrics, self_signed, tls::Authority};

/// Interval between two looks: the maximum delay until a new installation is guarded.
const POLL: Duration = Duration::from_secs(10);
/// The same when callers use unknown paths.
const PAUSE: Duration = Duration::from_millis(500);
/// Maximum number of callers waiting for one look.
pub(crate) const CALLERS: usize = 64;
/// Time for which a path is used. If the webhook does not answer, the API server's message to the client has the
/// path, so it does not stay secret for ever.
const ROTATION: Duration = Duration::from_mins(10);
/// If a second takes this much longer in a replica, it did not answer meanwhile: the API server waits for ten seconds.
const STALL: Duration = Duration::from_secs(5);
/// Maximum number of looks of a starting replica before it serves without a registered authority.
const ANNOUNCEMENTS: usize = 5;
/// Annotation with the time at which the path of a registration was made, RFC 3339. It outlives replicas.
const PATH_SINCE_ANNOTATION: &str = "backup-webhook/path-since";

/// The registrations of an installation.
pub(crate) struct Registrations {
    client: Client,
    api: Api<ValidatingWebhookConfiguration>,
    all_namespaces: Api<Namespace>,
    /// Namespace of this installation.
    own: String,
    /// Names of the registrations, and the requests that each of them must send here.
    names: Vec<(String, Vec<GuardedRequest>)>,
    /// The CA of our certificate, if we made it.
    authority: watch::Receiver<Authority>,
    /// Time since which all registrations have named it.
    registered: watch::Sender<Option<(Authority, Instant)>>,
    poll: Duration,
    installations: Installations,
    paths: SecretPaths,
    /// By registration: the path that it had when this replica started to answer. Before that, the API server may
    /// have told it to clients.
    told: Mutex<HashMap<String, Option<String>>>,
    metrics: Arc<Metrics>,
}

impl Registrations {
    /// The registrations of these profiles.
    pub(crate) fn new<'a>(
        client: Client,
        own: &str,
        profiles: impl Iterator<Item = (&'a str, Vec<GuardedRequest>)>,
        authority: watch::Receiver<Authority>,
        installations: Installations,
        paths: SecretPaths,
        metrics: Arc<Metrics>,
    ) -> Self {
        let name_of = |profile: &str| match profile {
            "velero" => Registration::NAME.to_owned(),
            other => format!("{}-{other}", Registration::NAME),
        };
        let names = profiles.map(|(profile, requests)| (name_of(profile), requests)).collect();
        let (registered, own, poll) = (watch::Sender::new(None), own.to_owned(), POLL);
        let (api, all_namespaces) = (Api::all(client.clone()), Api::all(client.clone()));
        let told = Mutex::default();
        Self {
            client,
            api,
            all_namespaces,
            own,
            names,
            authority,
            registered,
            poll,
            installations,
            paths,
            told,
            metrics,
        }
    }

    /// Sets the interval between looks.
    pub(crate) fn looking_every(self, poll: Duration) -> Self {
        Self { poll, ..self }
    }

    /// The authority in all registrations, and since when this replica has seen that.
    pub(crate) fn registered(&self) -> watch::Receiver<Option<(Authority, Instant)>> {
        self.registered.subscribe()
    }

    /// The authorities that the registrations name now.
    pub(crate) async fn named(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for (name, _) in &self.names {
            let found = self.api.get_opt(name).await.ok().flatten();
            let webhooks = found.and_then(|found| found.webhooks).unwrap_or_default();
            let bundle = webhooks.into_iter().find_map(|webhook| webhook.client_config.ca_bundle);
            all.extend(bundle.map(|bundle| bundle.0).unwrap_or_default());
        }
        all
    }

    /// Looks at intervals, and soon after a request.
    pub(crate) async fn follow(mut self, mut asked: mpsc::Receiver<oneshot::Sender<bool>>) {
        let mut callers = Vec::with_capacity(CALLERS);
        let mut stall = std::pin::pin!(stalled());
        loop {
            // The sender is never dropped while the server runs; without it this just polls.
            tokio::select! {
                _ = timeout(self.poll, asked.recv_many(&mut callers, CALLERS)) => {}
                Ok(()) = self.authority.changed() => {}
                () = &mut stall => {
                    self.told.lock().clear();
                    stall.set(stalled());
                }
            }
            let could_read = self.look().await;
            for caller in callers.drain(..) {
                // An error means that the caller has given up.
                let _ = caller.send(could_read);
            }
            sleep(PAUSE.min(self.poll)).await;
        }
    }

    /// Looks until all registrations name the authority, a limited number of times, and then gives API servers a moment to
    /// read it: creations fail if a certificate is served before that.
    pub(crate) async fn announce(&self) {
        for _ in 0..ANNOUNCEMENTS {
            self.look().await;
            let named = self.registered.borrow().is_some();
            sleep(PAUSE.min(self.poll)).await;
            if named {
                return;
            }
        }
    }

    /// Reads all registrations once; returns whether all could be read. If one cannot be read, what is known of it stays.
    pub(crate) async fn look(&self) -> bool {
        let (authority, at) = (self.authority.borrow().clone(), Instant::now());
        let (mut all_name_it, mut could_read) = (true, true);
        for (name, requests) in &self.names {
            match self.look_at(name, requests, &authority).await {
                Ok(Found::Right | Found::Elsewhere) => continue,
                Ok(Found::Missing) => {
                    tracing::warn!(
                        "there is no ValidatingWebhookConfiguration {name}; its backups and restores are not kept apart; trying again"
                    );
                    continue;
                }
                Ok(Found::Written) => {
                    tracing::info!("put CA and path into ValidatingWebhookConfiguration {name}");
                }
                Ok(Found::Changing) => {}
                Err(error) => {
                    tracing::warn!("{error:#}; trying again");
                    could_read = false;
                }
            }
            all_name_it = false;
        }
        self.registered.send_modify(|registered| match registered {
            _ if !all_name_it => *registered = None,
            Some((known, _)) if *known == authority => {}
            _ => *registered = Some((authority, at)),
        });
        could_read
    }

    /// Measures whether the registration covers every request that it should, and logs the gaps.
    async fn judge(
        &self,
        name: &str,
        configuration: &ValidatingWebhookConfiguration,
        registration: &Registration,
        requests: &[GuardedRequest],
    ) {
        let mut namespaces = BTreeMap::new();
        if Registration::selects_namespaces(configuration) {
            // Other operators' objects may be in any namespace; one without labels represents them.
            let named = registration.installations.iter().cloned().chain([self.own.clone()]);
            let named = named.filter(|_| name == Registration::NAME);
            for namespace in named {
                let labels = self.labels_of(&namespace).await;
                namespaces.insert(namespace, labels);
            }
            if name != Registration::NAME {
                namespaces.insert("without labels".to_owned(), Labels::default());
            }
        }
        let gaps = Registration::gaps(configuration, requests, &namespaces);
        self.metrics.registered(name, gaps.is_empty());
        if !gaps.is_empty() {
            tracing::warn!(
                "ValidatingWebhookConfiguration {name} does not have this webhook asked about everything: {}",
                gaps.join("; ")
            );
        }
    }

    /// Whether the Secret still names this authority.
    async fn secret_names(&self, authority: &Authority) -> anyhow::Result<bool> {
        let named = self_signed::named_by_secret(&self.client, &self.own).await?;
        Ok(named.as_deref() == authority.as_deref())
    }

    /// The labels of a namespace; if it cannot be read, only the one with its name, which each has.
    async fn labels_of(&self, namespace: &str) -> Labels {
        let found = self.all_namespaces.get_opt(namespace).await.ok().flatten();
        let labels = found.and_then(|found| found.metadata.labels);
        labels.unwrap_or_else(|| [("kubernetes.io/metadata.name".to_owned(), namespace.to_owned())].into())
    }

    /// Updates the registration if needed, with the resourceVersion of the read, so that of several replicas one
    /// chooses the path.
    async fn look_at(
        &self,
        name: &str,
        requests: &[GuardedRequest],
        authority: &Authority,
    ) -> anyhow::Result<Found> {
        let ca = authority.as_ref().map(|authority| ByteString(authority.to_vec()));
        let read = self.api.get_opt(name).await;
        let read = read.map_err(|error| anyhow!("could not read the registration: {}", plain(&error)))?;
        let Some(mut configuration) = read else {
            self.metrics.registered(name, false);
            return Ok(Found::Missing);
        };
        let registration = Registration::of(&configuration);
        self.judge(name, &configuration, &registration, requests).await;
        if name == Registration::NAME {
            let mut namespaces = registration.installations;
            namespaces.insert(self.own.clone());
            if self.installations.update(namespaces.clone()) {
                tracing::info!(?namespaces, "objects of these namespaces claim places");
            }
        }
        // It leads to another installation's webhook, and stays so.
        if registration.service_namespace.is_some_and(|namespace| namespace != self.own) {
            return Ok(Found::Elsewhere);
        }
        let now = Instant::now();
        let configs = || configuration.webhooks.iter().flatten().map(|webhook| &webhook.client_config);
        let known: Vec<String> = configs().map(path_of).filter(|path| SecretPaths::is_secret(path)).collect();
        for path in &known {
            self.paths.saw(path, now);
        }
        let other_ca = ca.is_some() && configs().any(|config| config.ca_bundle != ca);
        // A replica that was paused would remove the authority of a certificate that another one has made meanwhile. The Secret
        // is read after the registration, whose resourceVersion detects a later write.
        if other_ca && !self.secret_names(authority).await? {
            return Ok(Found::Changing);
        }
        let told = self.told.lock().entry(name.to_owned()).or_insert_with(|| known.first().cloned()).clone();
        let is_secret = |path: &&String| {
            let age = self.paths.age(path, now).max(annotated_age(&configuration, Timestamp::now()));
            age < ROTATION && told.as_ref() != Some(*path)
        };
        let path = known.first().filter(|path| !other_ca && is_secret(path));
        let path = path.map_or_else(SecretPaths::make, |path| Ok(path.clone()))?;
        if !other_ca && configs().all(|config| path_of(config) == path) {
            return Ok(Found::Right);
        }
        for webhook in configuration.webhooks.iter_mut().flatten() {
            let config = &mut webhook.client_config;
            lead(config, &path)?;
            if let Some(ca) = &ca {
                config.ca_bundle = Some(ca.clone());
            }
        }
        let annotations = configuration.metadata.annotations.get_or_insert_default();
        annotations.insert(PATH_SINCE_ANNOTATION.to_owned(), Timestamp::now().to_string());
        // Before any caller can use it.
        self.paths.saw(&path, now);
        match self.api.replace(name, &PostParams::default(), &configuration).await {
            Ok(_) => Ok(Found::Written),
            // Another replica was first; the next look finds what it wrote.
            Err(kube::Error::Api(status)) if status.is_conflict() => Ok(Found::Changing),
            Err(error) => Err(anyhow!("could not put CA and path into the registration: {}", plain(&error))),
        }
    }
}

/// State of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Right,
    Written,
    /// Another replica is changing it.
    Changing,
    /// It leads to another installation.
    Elsewhere,
    Missing,
}

/// Resolves when this process was paused for longer than [`STALL`].
async fn stalled() {
    const BEAT: Duration = Duration::from_secs(1);
    loop {
        let before = Instant::now();
        sleep(BEAT).await;
        if before.elapsed() > BEAT + STALL {
            return;
        }
    }
}

/// Age of the path of a registration, from its annotation; zero for a time in the future of this clock. Without an
/// annotation the path is too old.
fn annotated_age(configuration: &ValidatingWebhookConfiguration, now: Timestamp) -> Duration {
    let annotations = configuration.metadata.annotations.as_ref();
    let since = annotations.and_then(|all| all.get(PATH_SINCE_ANNOTATION)?.parse::<Timestamp>().ok());
    since.map_or(Duration::MAX, |since| Duration::try_from(now.duration_since(since)).unwrap_or_default())
}

/// The path of a webhook; empty if the configuration names none.
fn path_of(config: &WebhookClientConfig) -> String {
    let of_service = config.service.as_ref().and_then(|service| service.path.clone());
    let of_url = || config.url.as_ref()?.parse::<Uri>().ok().map(|url| url.path().to_owned());
    of_service.or_else(of_url).unwrap_or_default()
}

fn lead(config: &mut WebhookClientConfig, path: &str) -> anyhow::Result<()> {
    if let Some(service) = &mut config.service {
        service.path = Some(path.to_owned());
    }
    if let Some(url) = &mut config.url {
        let parts = url
            .parse::<Uri>()
            .with_context(|| format!("the registration leads to {url}, which is no URL"))?;
        let authority =
            parts.authority().with_context(|| format!("the URL {url} of the registration has no host"))?;
        *url = format!("https://{authority}{path}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use backup_testkit::FakeApi;
    use serde_json::{Value, json};

    use super::*;

    const PATH: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/backup-webhook";
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
            api.put(SECRET, json!({ "metadata": { "name": "backup-webhook-tls" }, "data": data }));
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
        async fn seen(&self, name: &str) -> anyhow::Result<Found> {
            let authority = self.authority.borrow().clone();
            self.look_at(name, &[], &authority).await
        }
    }

    fn registered(api: &FakeApi, clients: &[Value]) {
        let webhook = |client: &Value| json!({ "name": "x", "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": client });
        let webhooks: Vec<Value> = clients.iter().map(webhook).collect();
        api.put(PATH, json!({ "metadata": { "name": "backup-webhook" }, "webhooks": webhooks }));
    }

    fn client(api: &FakeApi, number: usize) -> Value {
        api.get(PATH).unwrap()["webhooks"][number]["clientConfig"].clone()
    }

    #[tokio::test]
    async fn all_webhooks_are_asked_by_one_path_that_all_replicas_know() {
        let api = FakeApi::new();
        let (one, two) = (replica(&api, Some("ca")), replica(&api, Some("ca")));
        assert_eq!(one.seen("backup-webhook").await.unwrap(), Found::Missing, "it may be applied later");
        let service = json!({ "service": { "name": "backup-webhook", "namespace": "velero", "port": 443 } });
        registered(&api, &[service.clone(), service]);
        for replica in [&one, &two] {
            assert_eq!(replica.seen("backup-webhook").await.unwrap(), Found::Written, "it starts");
        }
        for replica in [&one, &two] {
            assert_eq!(replica.seen("backup-webhook").await.unwrap(), Found::Right);
            for number in [0, 1] {
                let client = client(&api, number);
                assert_eq!(client["caBundle"], base64(&pem("ca")));
                let path = client["service"]["path"].as_str().unwrap();
                assert!(path.len() > 64 && replica.paths.contain(path, Instant::now()), "{path}");
            }
        }
    }

    #[tokio::test]
    async fn a_registration_that_is_missing_is_measured() {
        let api = FakeApi::new();
        let replica = replica(&api, None);
        let shown = |value: u8| {
            let line = format!("backup_webhook_registered{{registration=\"backup-webhook\"}} {value}\n");
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
        tokio::time::advance(ROTATION).await;
        assert_eq!(replica.seen("backup-webhook").await.unwrap(), Found::Written);
        assert_ne!(client(&api, 0)["url"], url);
        assert!(
            replica.paths.contain(path, Instant::now()),
            "an API server may not have heard of the new one"
        );
        tokio::time::advance(Duration::from_mins(1)).await;
        assert!(!replica.paths.contain(path, Instant::now()));
    }

    /// While no replica answers, the API server tells the path to every client that creates a Backup.
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
        let following = tokio::spawn(restarted.looking_every(Duration::from_secs(1)).follow(asked));
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
            assert_eq!(annotated_age(&serde_json::from_value(object).unwrap(), now), expected, "{since:?}");
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

    /// One that stood still while another one made a certificate would make creations fail until the other one looks.
    #[tokio::test]
    async fn a_replica_that_has_not_heard_of_a_certificate_takes_no_authority_away() {
        let api = FakeApi::new();
        registered(&api, &[json!({ "url": "https://127.0.0.1:9/validate" })]);
        let slept = replica(&api, Some("old"));
        replica(&api, Some("new")).look().await;
        let named = client(&api, 0);
        assert_eq!(named["caBundle"], base64(&pem("new")));
        assert_eq!(slept.seen("backup-webhook").await.unwrap(), Found::Changing);
        api.delete(SECRET);
        assert_eq!(slept.seen("backup-webhook").await.unwrap(), Found::Changing, "it may be made just now");
        assert_eq!(client(&api, 0), named);
    }

    #[tokio::test(start_paused = true)]
    async fn an_authority_is_named_before_a_replica_serves_though_another_one_writes_at_the_same_time() {
        let api = FakeApi::new();
        registered(&api, &[json!({ "url": "https://127.0.0.1:9/validate" })]);
        let conflicts = std::sync::atomic::AtomicUsize::new(0);
        api.fault(move |_, request| {
            let first =
                request.is("PUT", PATH) && conflicts.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
            first.then(|| backup_testkit::Fault::refuse(409, "Conflict", "the object has been modified"))
        });
        replica(&api, Some("ca")).announce().await;
        assert_eq!(client(&api, 0)["caBundle"], base64(&pem("ca")));
    }

    #[tokio::test]
    async fn what_leads_to_another_installation_is_left_alone() {
        let api = FakeApi::new();
        registered(&api, &[json!({ "service": { "name": "backup-webhook", "namespace": "team-b" } })]);
        let replica = replica(&api, Some("ca"));
        assert_eq!(replica.seen("backup-webhook").await.unwrap(), Found::Elsewhere);
        assert_eq!(client(&api, 0)["caBundle"], Value::Null);
    }
}
