//! A self-signed certificate, for clusters without cert-manager. It is kept in one Secret, which
//! all replicas follow: they serve its certificate, and put its authorities into the registration.
//! The first replica to notice replaces it, long before it expires (`rotation`). A deleted Secret
//! is recreated from the served certificate, so nothing changes then.

mod kept;
mod rotation;

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use axum_server::tls_rustls::RustlsConfig;
use backup_client::errors::plain;
use backup_lock::server_time;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, api::PostParams};
use tokio::{sync::watch, time::Instant};

use crate::{
    metrics::Metrics,
    tls::{self, Authority},
};
use kept::SecretContent;
use rotation::{SecretState, Step};

pub(crate) use rotation::Pace;

const SECRET: &str = "backup-webhook-tls";

/// The certificate of this replica, as in the Secret.
pub(crate) struct SelfSigned {
    client: Client,
    secrets: Api<Secret>,
    /// Names in the certificate; the Service first.
    names: Vec<String>,
    pace: Pace,
    kept: SecretContent,
    /// Time since which the Secret has been seen in this state.
    since: Instant,
}

impl SelfSigned {
    /// Loads the certificate from the Secret, or makes one; if two replicas try, the first wins and
    /// both use its certificate. `known` are the authorities in the registration, with which others
    /// may still serve.
    pub(crate) async fn load(
        client: &Client,
        namespace: &str,
        names: Vec<String>,
        pace: Pace,
        known: impl Future<Output = Vec<u8>>,
    ) -> anyhow::Result<Self> {
        let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
        let kept = if let Some(secret) = read(&secrets).await? {
            SecretContent::of(&secret)?
        } else {
            let made = kept::make(&names, time_of_day(client).await?, pace.lifetime())
                .context("could not make a certificate")?;
            create(&secrets, SecretContent::first(made, &known.await)).await?
        };
        Ok(Self {
            client: client.clone(),
            secrets,
            names,
            pace,
            kept,
            since: Instant::now(),
        })
    }

    pub(crate) fn pair(&self) -> tls::Pair {
        self.kept.served.clone()
    }

    pub(crate) fn bundle(&self) -> Vec<u8> {
        self.kept.bundle()
    }

    /// Follows the Secret, and takes the next step of a rotation when it is due.
    pub(crate) async fn follow(
        mut self,
        config: RustlsConfig,
        authority: watch::Sender<Authority>,
        registered: watch::Receiver<Option<(Authority, Instant)>>,
        metrics: std::sync::Arc<Metrics>,
    ) {
        loop {
            tls::report_end(&metrics, &self.kept.served.cert);
            tokio::time::sleep(self.pace.poll()).await;
            let registered = registered.borrow().clone();
            if let Err(error) = self.look(&config, &authority, registered).await {
                tracing::warn!("{error:#}; the certificate in use stays");
            }
        }
    }

    async fn look(
        &mut self,
        config: &RustlsConfig,
        authority: &watch::Sender<Authority>,
        registered: Option<(Authority, Instant)>,
    ) -> anyhow::Result<()> {
        let Some(secret) = read(&self.secrets).await? else {
            let kept = create(&self.secrets, self.kept.clone()).await?;
            return self.take_over(kept, config, authority).await;
        };
        self.take_over(SecretContent::of(&secret)?, config, authority)
            .await?;
        let seen = SecretState {
            end: tls::end(&self.kept.served.cert)?,
            has_next: self.kept.next.is_some(),
            authorities: self.kept.authorities.len(),
            settled: self.settled(registered),
        };
        let mut next = self.kept.clone();
        let now = time_of_day(&self.client).await?;
        match rotation::step(seen, now, self.pace) {
            Step::Stay => return Ok(()),
            Step::Announce => next.announce(kept::make(&self.names, now, self.pace.lifetime())?),
            Step::Switch => next.switch(),
            Step::Retire => next.retire(),
        }
        // With the resourceVersion of the read: of several replicas one takes the step.
        match self
            .secrets
            .replace(SECRET, &PostParams::default(), &next.secret(Some(&secret)))
            .await
        {
            Ok(_) => self.take_over(next, config, authority).await,
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
                Ok(())
            }
            Err(error) => Err(anyhow!(
                "could not write Secret {SECRET}: {}",
                plain(&error)
            )),
        }
    }

    /// Time for which Secret and registration have been seen in their present state.
    fn settled(&self, registered: Option<(Authority, Instant)>) -> Duration {
        let registered =
            registered.filter(|(authority, _)| authority.as_deref() == Some(&*self.kept.bundle()));
        registered.map_or(Duration::ZERO, |(_, since)| since.max(self.since).elapsed())
    }

    /// Serves the Secret's certificate, and has its authorities registered.
    async fn take_over(
        &mut self,
        kept: SecretContent,
        config: &RustlsConfig,
        authority: &watch::Sender<Authority>,
    ) -> anyhow::Result<()> {
        if kept == self.kept {
            return Ok(());
        }
        if kept.served != self.kept.served {
            let reloaded = config
                .reload_from_pem(kept.served.cert.clone(), kept.served.key.clone())
                .await;
            reloaded.with_context(|| {
                format!("the certificate of Secret {SECRET} can't be served; delete the Secret to have it made again")
            })?;
            tracing::info!("serving the certificate that Secret {SECRET} has now");
        }
        self.kept = kept;
        self.since = Instant::now();
        authority.send_replace(Some(self.kept.bundle().into()));
        Ok(())
    }
}

/// The authorities that the Secret names now; empty if there is no Secret.
pub(crate) async fn named_by_secret(
    client: &Client,
    namespace: &str,
) -> anyhow::Result<Option<Vec<u8>>> {
    let secret = read(&Api::namespaced(client.clone(), namespace)).await?;
    secret
        .map(|secret| Ok(SecretContent::of(&secret)?.bundle()))
        .transpose()
}

/// The API server's time: it validates the served certificate.
async fn time_of_day(client: &Client) -> anyhow::Result<Timestamp> {
    let now = server_time::now(client).await;
    now.map_err(|error| {
        anyhow!(
            "could not ask the API server for the time of day: {}",
            plain(&error)
        )
    })
}

async fn read(secrets: &Api<Secret>) -> anyhow::Result<Option<Secret>> {
    let secret = secrets.get_opt(SECRET).await;
    secret.map_err(|error| anyhow!("could not read Secret {SECRET}: {}", plain(&error)))
}

/// Create-only: an existing Secret is never overwritten, but used.
async fn create(secrets: &Api<Secret>, kept: SecretContent) -> anyhow::Result<SecretContent> {
    match secrets
        .create(&PostParams::default(), &kept.secret(None))
        .await
    {
        Ok(_) => Ok(kept),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let secret = read(secrets).await?;
            SecretContent::of(
                &secret.with_context(|| format!("Secret {SECRET} went away while it was read"))?,
            )
        }
        Err(error) => Err(anyhow!(
            "could not create Secret {SECRET}: {}",
            plain(&error)
        )),
    }
}

#[cfg(test)]
mod tests {
    use backup_testkit::FakeApi;
    use serde_json::{Value, json};

    use super::*;

    const PATH: &str = "/api/v1/namespaces/velero/secrets/backup-webhook-tls";

    async fn loaded(api: &FakeApi, lifetime: Duration) -> SelfSigned {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let names = vec!["s.velero.svc".to_owned()];
        SelfSigned::load(&api.client(), "velero", names, Pace::new(lifetime), async {
            Vec::new()
        })
        .await
        .unwrap()
    }

    #[tokio::test]
    async fn replicas_share_one_certificate_that_can_be_served() {
        let api = FakeApi::new();
        let day = Duration::from_hours(24);
        let (one, two) = tokio::join!(loaded(&api, day), loaded(&api, day));
        assert!(one.kept == two.kept);
        assert_eq!(api.writes(), 1);
        tls::config(&one.pair()).await.unwrap();
    }

    #[tokio::test]
    async fn a_secret_that_lacks_a_part_says_what_to_do() {
        let api = FakeApi::new();
        api.put(PATH, json!({"metadata": {}, "data": {"tls.crt": ""}}));
        let names = vec!["s.velero.svc".to_owned()];
        let pace = Pace::new(Duration::from_hours(24));
        let loaded =
            SelfSigned::load(&api.client(), "velero", names, pace, async { Vec::new() }).await;
        let error = loaded.map(|_| ()).unwrap_err().to_string();
        assert_says!(error, "tls.key", "delete it");
    }

    /// Two replicas take turns; the registration names what it should.
    #[tokio::test]
    async fn a_certificate_is_replaced_while_both_authorities_are_named() {
        let api = FakeApi::new();
        let lifetime = Duration::from_mins(1);
        let mut replicas = vec![loaded(&api, lifetime).await, loaded(&api, lifetime).await];
        // Made for a longer lifetime than certificates get now.
        for replica in &mut replicas {
            replica.pace = Pace::new(Duration::from_secs(2));
        }
        let first = replicas[0].kept.clone();
        let config = tls::config(&first.served).await.unwrap();
        let (authority, bundle) = watch::channel::<Authority>(Some(first.bundle().into()));
        let mut seen: Vec<(usize, bool)> = Vec::new();
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(5)
            && replicas.iter().any(|replica| {
                replica.kept.served == first.served || replica.kept.authorities.len() > 1
            })
        {
            for replica in &mut replicas {
                let named = bundle.borrow().clone().unwrap();
                let (registered, served) = (
                    Some((Some(named.clone()), start)),
                    replica.kept.served.clone(),
                );
                replica.look(&config, &authority, registered).await.unwrap();
                let now = (
                    replica.kept.authorities.len(),
                    replica.kept.served == first.served,
                );
                if seen.last() != Some(&now) {
                    seen.push(now);
                }
                if replica.kept.served != served {
                    let [named, newest] = [&named[..], replica.kept.authorities.last().unwrap()]
                        .map(|pem| String::from_utf8_lossy(pem).into_owned());
                    assert!(
                        named.contains(&newest),
                        "its authority was not named before it was served"
                    );
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        seen.dedup();
        assert_eq!(seen.first(), Some(&(2, true)), "{seen:?}");
        assert_eq!(seen.last(), Some(&(1, false)), "{seen:?}");
        assert!(replicas[0].kept == replicas[1].kept);
    }

    #[tokio::test]
    async fn a_secret_that_is_gone_is_made_again_from_what_is_served() {
        let api = FakeApi::new();
        let mut replica = loaded(&api, Duration::from_hours(24)).await;
        let before = replica.kept.clone();
        let config = tls::config(&before.served).await.unwrap();
        let (authority, _) = watch::channel(None);
        api.delete(PATH);
        replica.look(&config, &authority, None).await.unwrap();
        assert!(replica.kept == before);
        let data = |secret: Option<Value>| secret.unwrap()["data"]["tls.crt"].clone();
        assert!(data(api.get(PATH)).is_string());
    }
}
