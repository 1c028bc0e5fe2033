//! The validating admission webhook: an HTTPS server, one thin handler, pure decisions, and a queue
//! that claims places in the ledger. Any number of equal replicas may run; they share only the
//! ledger, by compare-and-swap.
#![warn(unreachable_pub)]

#[cfg(test)]
#[macro_use]
extern crate backup_testkit;

mod absent_namespaces;
mod admission_review;
mod admit;
mod args;
mod authorization;
mod callers;
mod claims;
mod copy_locations;
mod deletion_rights;
mod external_leases;
mod metrics;
mod owner_rights;
mod peers;
mod published;
mod registrations;
mod repair;
mod restore_rights;
mod review;
mod schedules;
mod self_signed;
mod server;
#[cfg(test)]
mod tests;
mod tls;

use std::{pin::Pin, sync::Arc, time::Duration};

use anyhow::Context;
use backup_lock::{
    Installations, ProtectedProfile, connection, protected_profile::GuardedProfiles,
};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
};

pub use args::Args;

/// Initializes the process: logs on stderr, and the TLS provider.
pub fn install() {
    let filter =
        tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt()
        .json()
        .with_writer(std::io::stderr)
        .with_env_filter(filter)
        .init();
    // An error means that one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Serves until SIGTERM or SIGINT, then finishes the requests in progress. The boxed future is
/// compiled here, and not once more in the program.
pub fn run(args: Args) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>> {
    Box::pin(serve(args))
}

async fn serve(args: Args) -> anyhow::Result<()> {
    let client = client(&args).await?;
    let installations = Installations::default();
    installations.update([args.namespace.clone()].into());
    let (
        GuardedProfiles {
            profiles, unusable, ..
        },
        published,
    ) = args.profiles()?;
    let profiles: Vec<ProtectedProfile> = profiles
        .into_iter()
        .map(|profile| {
            ProtectedProfile::new(client.clone(), &args.namespace, profile, args.orphan_grace)
        })
        .map(|protected| protected.only_in(&installations))
        .collect();
    let metrics = Arc::new(metrics::Metrics::default());
    for profile in &unusable {
        metrics.profile_unusable(&profile.name);
    }
    let health = server::Health {
        ready: Arc::default(),
        metrics: Arc::clone(&metrics),
    };

    let paths = callers::SecretPaths::default();
    let (authority, followed) = watch::channel(None);
    let registrations = registrations::Registrations::new(
        client.clone(),
        &args.namespace,
        // Including the unusable ones: the API server has to get the reason.
        args.registered(&profiles, &unusable),
        followed.clone(),
        installations,
        paths.clone(),
        Arc::clone(&metrics),
    );
    let pace = self_signed::Pace::new(args.certificate_lifetime);
    let registrations = registrations.looking_every(pace.poll());
    let tls = match (
        &args.self_signed_service,
        args.tls_cert.clone(),
        args.tls_key.clone(),
    ) {
        (Some(service), ..) => {
            let names = ["svc", "svc.cluster.local"]
                .map(|domain| format!("{service}.{}.{domain}", args.namespace));
            let known = registrations.named();
            let made =
                self_signed::SelfSigned::load(&client, &args.namespace, names.into(), pace, known)
                    .await?;
            authority.send_replace(Some(made.bundle().into()));
            let config = tls::config(&made.pair()).await?;
            let registered = registrations.registered();
            tokio::spawn(made.follow(config.clone(), authority, registered, Arc::clone(&metrics)));
            config
        }
        (None, Some(cert), Some(key)) => tls::load(cert, key, Arc::clone(&metrics)).await?,
        _ => anyhow::bail!("give --tls-cert and --tls-key, or --self-signed-service"),
    };
    if args.self_signed_service.is_some() {
        registrations.announce().await;
    } else {
        registrations.look().await;
    }
    let (look, asked) = mpsc::channel(registrations::MAX_WAITING_CALLERS);
    tokio::spawn(registrations.follow(asked));
    let peers = args.peers(followed)?.map(peers::Peers::start).transpose()?;
    let authorization =
        authorization::Authorization::new(client.clone(), args.check_restore_rights);
    let callers = callers::Callers::new(paths, look);
    let webhook = review::Webhook::new(
        profiles.clone(),
        unusable.into(),
        authorization,
        callers,
        peers,
        Arc::clone(&metrics),
    );
    let webhook = webhook.reading_cron(args.cron_dialect);

    tokio::spawn(published::keep(
        client.clone(),
        args.namespace.clone(),
        published,
    ));
    let handle = axum_server::Handle::new();
    tokio::spawn(server::shut_down_on(
        stop_signal()?,
        health.clone(),
        handle.clone(),
    ));
    tokio::spawn(server::become_ready(profiles.clone(), health.clone()));
    for profile in profiles {
        tokio::spawn(repair::run(profile, Arc::clone(&metrics)));
    }
    let router = server::leaving_when_not_ready(server::router(webhook), &health);
    let health_server = server::serve_health(args.health_listen, health);
    let server = server::serve(args.listen, tls, router, handle);
    tokio::select! {
        result = server => result,
        result = health_server => result,
    }
}

/// A client whose requests time out within the webhook's deadline, and are retried only by our own
/// code.
async fn client(args: &Args) -> anyhow::Result<Client> {
    let mut config = match &args.kubeconfig {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path)
                .with_context(|| format!("could not read kubeconfig {}", path.display()))?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?
        }
        None => Config::infer()
            .await
            .context("found no cluster: set KUBECONFIG, or run in a pod")?,
    };
    config.connect_timeout = Some(Duration::from_secs(3));
    config.read_timeout = Some(Duration::from_secs(5));
    connection::client(config).context("could not make a client from the kubeconfig")
}

fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("could not listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("could not listen for SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
