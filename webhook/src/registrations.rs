//! Follows the webhook's registrations: the namespaces of installations, and the path that the API
//! server uses. Keeps our CA and that path in them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use axum::http::Uri;
use backup_client::errors::plain;
use backup_lock::{GuardedRequest, Installations, Registration, registration::Labels};
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
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// The same when callers use unknown paths.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of callers waiting for one look.
pub(crate) const MAX_WAITING_CALLERS: usize = 64;
/// Time for which a path is used. If the webhook does not answer, the API server's message to the
/// client has the path, so it does not stay secret for ever.
const PATH_LIFETIME: Duration = Duration::from_mins(10);
/// If a second takes this much longer in a replica, it did not answer meanwhile: the API server
/// waits for ten seconds.
const MIN_STALL: Duration = Duration::from_secs(5);
/// Maximum number of looks of a starting replica before it serves without a registered authority.
const MAX_ANNOUNCEMENTS: usize = 5;
/// Annotation with the time at which the path of a registration was made, RFC 3339. It outlives
/// replicas.
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
    /// By registration: the path that it had when this replica started to answer. Before that, the
    /// API server may have told it to clients.
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
        let names = profiles
            .map(|(profile, requests)| (registration_name(profile), requests))
            .collect();
        let api = Api::all(client.clone());
        let all_namespaces = Api::all(client.clone());
        Self {
            client,
            api,
            all_namespaces,
            own: own.to_owned(),
            names,
            authority,
            registered: watch::Sender::new(None),
            poll: POLL_INTERVAL,
            installations,
            paths,
            told: Mutex::default(),
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
            let bundle = webhooks
                .into_iter()
                .find_map(|webhook| webhook.client_config.ca_bundle);
            all.extend(bundle.map(|bundle| bundle.0).unwrap_or_default());
        }
        all
    }

    /// Looks at intervals, and soon after a request.
    pub(crate) async fn follow(mut self, mut asked: mpsc::Receiver<oneshot::Sender<bool>>) {
        let mut callers = Vec::with_capacity(MAX_WAITING_CALLERS);
        let mut stall = std::pin::pin!(stalled());
        loop {
            // The sender is never dropped while the server runs; without it this just polls.
            tokio::select! {
                _ = timeout(self.poll, asked.recv_many(&mut callers, MAX_WAITING_CALLERS)) => {}
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
            sleep(MIN_POLL_INTERVAL.min(self.poll)).await;
        }
    }

    /// Looks until all registrations name the authority, a limited number of times, and then gives
    /// API servers a moment to read it: creations fail if a certificate is served before that.
    pub(crate) async fn announce(&self) {
        for _ in 0..MAX_ANNOUNCEMENTS {
            self.look().await;
            let named = self.registered.borrow().is_some();
            sleep(MIN_POLL_INTERVAL.min(self.poll)).await;
            if named {
                return;
            }
        }
    }

    /// Reads all registrations once; returns whether all could be read. If one cannot be read, what
    /// is known of it stays.
    pub(crate) async fn look(&self) -> bool {
        let authority = self.authority.borrow().clone();
        let at = Instant::now();
        let mut all_name_it = true;
        let mut could_read = true;
        for (name, requests) in &self.names {
            match self.look_at(name, requests, &authority).await {
                Ok(RegistrationState::Right | RegistrationState::Elsewhere) => continue,
                Ok(RegistrationState::Missing) => {
                    tracing::warn!(
                        "there is no ValidatingWebhookConfiguration {name}; its backups and restores are not kept apart; trying again"
                    );
                    continue;
                }
                Ok(RegistrationState::Written) => {
                    tracing::info!("put CA and path into ValidatingWebhookConfiguration {name}");
                }
                Ok(RegistrationState::Changing) => {}
                Err(error) => {
                    tracing::warn!("{error:#}; trying again");
                    could_read = false;
                }
            }
            all_name_it = false;
        }
        self.registered.send_modify(|registered| {
            if !all_name_it {
                *registered = None;
                return;
            }
            let is_new = registered
                .as_ref()
                .is_none_or(|(known, _)| *known != authority);
            if is_new {
                *registered = Some((authority, at));
            }
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
            let named = registration
                .installations
                .iter()
                .cloned()
                .chain([self.own.clone()]);
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
        labels.unwrap_or_else(|| {
            [(
                "kubernetes.io/metadata.name".to_owned(),
                namespace.to_owned(),
            )]
            .into()
        })
    }

    /// Updates the registration if needed, with the resourceVersion of the read, so that of several
    /// replicas one chooses the path.
    async fn look_at(
        &self,
        name: &str,
        requests: &[GuardedRequest],
        authority: &Authority,
    ) -> anyhow::Result<RegistrationState> {
        let ca = authority
            .as_ref()
            .map(|authority| ByteString(authority.to_vec()));
        let read = self.api.get_opt(name).await;
        let read =
            read.map_err(|error| anyhow!("could not read the registration: {}", plain(&error)))?;
        let Some(mut configuration) = read else {
            self.metrics.registered(name, false);
            return Ok(RegistrationState::Missing);
        };
        let registration = Registration::of(&configuration);
        self.judge(name, &configuration, &registration, requests)
            .await;
        if name == Registration::NAME {
            let mut namespaces = registration.installations;
            namespaces.insert(self.own.clone());
            if self.installations.update(namespaces.clone()) {
                tracing::info!(?namespaces, "objects of these namespaces claim places");
            }
        }
        // It leads to another installation's webhook, and stays so.
        if registration
            .service_namespace
            .is_some_and(|namespace| namespace != self.own)
        {
            return Ok(RegistrationState::Elsewhere);
        }
        let now = Instant::now();
        let known: Vec<String> = client_configs(&configuration)
            .map(path_of)
            .filter(|path| SecretPaths::is_secret(path))
            .collect();
        for path in &known {
            self.paths.saw(path, now);
        }
        let other_ca =
            ca.is_some() && client_configs(&configuration).any(|config| config.ca_bundle != ca);
        // A replica that was paused would remove the authority of a certificate that another one
        // has made meanwhile. The Secret is read after the registration, whose resourceVersion
        // detects a later write.
        if other_ca && !self.secret_names(authority).await? {
            return Ok(RegistrationState::Changing);
        }
        let told = self
            .told
            .lock()
            .entry(name.to_owned())
            .or_insert_with(|| known.first().cloned())
            .clone();
        let path = known.first().filter(|path| {
            let age = self
                .paths
                .age(path, now)
                .max(annotated_age(&configuration, Timestamp::now()));
            !other_ca && age < PATH_LIFETIME && told.as_ref() != Some(*path)
        });
        let path = path.map_or_else(SecretPaths::make, |path| Ok(path.clone()))?;
        if !other_ca && client_configs(&configuration).all(|config| path_of(config) == path) {
            return Ok(RegistrationState::Right);
        }
        for webhook in configuration.webhooks.iter_mut().flatten() {
            let config = &mut webhook.client_config;
            lead(config, &path)?;
            if let Some(ca) = &ca {
                config.ca_bundle = Some(ca.clone());
            }
        }
        let annotations = configuration.metadata.annotations.get_or_insert_default();
        annotations.insert(
            PATH_SINCE_ANNOTATION.to_owned(),
            Timestamp::now().to_string(),
        );
        // Before any caller can use it.
        self.paths.saw(&path, now);
        match self
            .api
            .replace(name, &PostParams::default(), &configuration)
            .await
        {
            Ok(_) => Ok(RegistrationState::Written),
            // Another replica was first; the next look finds what it wrote.
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                Ok(RegistrationState::Changing)
            }
            Err(error) => Err(anyhow!(
                "could not put CA and path into the registration: {}",
                plain(&error)
            )),
        }
    }
}

/// The name of the registration of a profile.
fn registration_name(profile: &str) -> String {
    match profile {
        "velero" => Registration::NAME.to_owned(),
        other => format!("{}-{other}", Registration::NAME),
    }
}

/// State of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RegistrationState {
    Right,
    Written,
    /// Another replica is changing it.
    Changing,
    /// It leads to another installation.
    Elsewhere,
    Missing,
}

/// Resolves when this process was paused for longer than [`MIN_STALL`].
async fn stalled() {
    const BEAT: Duration = Duration::from_secs(1);
    loop {
        let before = Instant::now();
        sleep(BEAT).await;
        if before.elapsed() > BEAT + MIN_STALL {
            return;
        }
    }
}

/// Age of the path of a registration, from its annotation; zero for a time in the future of this
/// clock. Without an annotation the path is too old.
fn annotated_age(configuration: &ValidatingWebhookConfiguration, now: Timestamp) -> Duration {
    let annotations = configuration.metadata.annotations.as_ref();
    let since =
        annotations.and_then(|all| all.get(PATH_SINCE_ANNOTATION)?.parse::<Timestamp>().ok());
    since.map_or(Duration::MAX, |since| {
        Duration::try_from(now.duration_since(since)).unwrap_or_default()
    })
}

fn client_configs(
    configuration: &ValidatingWebhookConfiguration,
) -> impl Iterator<Item = &WebhookClientConfig> {
    configuration
        .webhooks
        .iter()
        .flatten()
        .map(|webhook| &webhook.client_config)
}

/// The path of a webhook; empty if the configuration names none.
fn path_of(config: &WebhookClientConfig) -> String {
    let of_service = config
        .service
        .as_ref()
        .and_then(|service| service.path.clone());
    of_service
        .or_else(|| path_of_url(config))
        .unwrap_or_default()
}

fn path_of_url(config: &WebhookClientConfig) -> Option<String> {
    let url = config.url.as_ref()?.parse::<Uri>().ok()?;
    Some(url.path().to_owned())
}

fn lead(config: &mut WebhookClientConfig, path: &str) -> anyhow::Result<()> {
    if let Some(service) = &mut config.service {
        service.path = Some(path.to_owned());
    }
    if let Some(url) = &mut config.url {
        let parts = url
            .parse::<Uri>()
            .with_context(|| format!("the registration leads to {url}, which is no URL"))?;
        let authority = parts
            .authority()
            .with_context(|| format!("the URL {url} of the registration has no host"))?;
        *url = format!("https://{authority}{path}");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
