//! The controllers for the life of backups and restores. Each is a struct with its dependencies; a
//! pure function (`decide`) decides from what was read what it does with an object.

#![warn(unreachable_pub)]

#[cfg(test)]
#[macro_use]
extern crate backup_testkit;

mod args;
mod backup;
mod backup_turns;
mod claims;
mod config_maps;
mod connect;
mod controllers;
mod copies;
mod deletion;
mod discovery;
mod download;
mod drill;
mod error;
mod hooks;
mod job;
mod location;
mod location_requests;
mod location_validation;
mod metrics;
mod notify;
mod recent_deletions;
mod restore;
mod restores_of_backup;
mod retention;
mod schedule;
mod server_status;
mod startup;
mod sync;
#[cfg(test)]
mod testing;
mod verification;
mod volumes;

use std::{future::Future, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use anyhow::Context as _;
use backup_actions::backup::built_in;
use backup_core::profile::Profile;
use backup_lock::{
    Installations, ProtectedProfile,
    protected_profile::{self, GuardedProfiles},
};
use backup_plugins::{Host, Options};
use backup_runtime::{
    Cluster,
    events::Events,
    health::{self, Health},
    leader::{Elector, Leadership},
    signal,
};
use futures::future::BoxFuture;
use kube::Client;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

pub use args::{Args, LogFormat, LogLevel, velero_flags::refusal_of_velero_flag};
use controllers::Parts;
use download::DownloadContext;
use hooks::exec::InCluster;
use job::{
    JobContext,
    operations::{call::Registry, poller::PollConfig},
};
use location::Locations;
use metrics::Metrics;
use restore::{ItemMemory, Planner, Restores};
use startup::LedgerHome;
use volumes::snapshot_locations::SnapshotLocations;

/// Time for controllers to stop after the process was asked to end; the pod's grace period is a
/// little longer.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(25);
/// Time for plugins to stop after the controllers. They are killed then.
const PLUGIN_STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// Runs the controllers until SIGTERM or SIGINT.
///
/// # Errors
/// One sentence with the problem and the remedy: no cluster, a cluster that is too old, kinds that
/// are missing, a Velero server in the same namespace, an address in use, or the loss of
/// leadership.
pub fn run(args: Args) -> BoxFuture<'static, anyhow::Result<()>> {
    // Boxed: a future with a named type is compiled here, and not again in the program.
    Box::pin(start(args))
}

async fn start(args: Args) -> anyhow::Result<()> {
    init_logs(args.log_level, args.log_format);
    warn_of_unknown_features(&args);
    let notify = args.notify()?;
    let (client, silent_client) = connect::clients(args.kubeconfig.as_deref()).await?;
    let GuardedProfiles {
        profiles, unusable, ..
    } = protected_profile::profiles(args.profiles.as_deref(), &args.guard)?;
    let installation = check_cluster(&args, &client, engine(&profiles)).await?;
    let LedgerHome {
        ledgers,
        installations: named,
    } = startup::ledger_home(&client, &args.namespace).await?;
    let grace = args.orphan_grace.as_std();
    let installations = Installations::default();
    installations.update(named);
    let guards: Arc<[ProtectedProfile]> = profiles
        .into_iter()
        .map(|profile| {
            ProtectedProfile::new(client.clone(), &ledgers, profile, grace).only_in(&installations)
        })
        .collect();
    let velero = guards.iter().find(|guard| guard.profile.is_velero());
    let ledger = velero
        .map(|guard| guard.store.clone())
        .context("there is no profile velero")?;

    let health = Health::default();
    let metrics = Arc::new(Metrics::default());
    let stop = CancellationToken::new();
    for profile in &unusable {
        metrics.profile_unusable(&profile.name);
    }
    let listener = listener(args.metrics_address).await?;
    let host = host();
    let elector = args
        .leader_elect
        .then(|| Elector::new(client.clone(), &args.namespace, &host));
    let plugins = plugins(&args);
    let cluster = cluster(&args, &client, elector.as_ref(), &host);
    let scraped = metrics::router(Arc::clone(&metrics), cluster.leadership.clone());
    let server = axum::serve(listener, health::router(health.clone()).merge(scraped));
    let moved = startup::follow(
        client.clone(),
        ledgers.clone(),
        args.namespace.clone(),
        installations,
    );
    let job = JobContext {
        polling: polling(&args, &cluster, &plugins),
        ledger,
        locations: Locations::new(
            client,
            &args.namespace,
            &args.default_backup_storage_location,
            plugins.clone(),
            &args.object_store_plugins,
            args.allowed_places(),
        ),
        metrics,
        resource_timeout: args.resource_timeout.as_std(),
        stop: stop.clone(),
        cluster,
    };
    let download = DownloadContext {
        cluster: job.cluster.clone(),
        locations: job.locations.clone(),
        flush_requests: job.polling.flush_requests.clone(),
        files_address: args.files_address.filter(|_| job.ledger.profile().engine),
        files_service: args.files_service.clone(),
    };
    tracing::info!(
        namespace = args.namespace,
        ledgers,
        version = env!("CARGO_PKG_VERSION"),
        "started"
    );

    let restores = restores(
        &args,
        &job,
        &guards,
        &silent_client,
        &plugins,
        &installation,
    );
    let restores = Arc::new(restores);
    let files = download::files::serve(download.clone(), Planner::new(&job, Arc::clone(&restores)));
    let is_engine = job.ledger.profile().engine;
    let hosted = is_engine.then(|| run_plugins(plugins.clone(), stop.clone()));
    let controllers = controllers::run(Parts {
        args,
        notify,
        silent_client,
        guards,
        installation,
        plugins,
        health,
        job,
        restores,
        download,
    });
    let result = tokio::select! {
        result = work(controllers, elector, stop.clone()) => result,
        result = async { server.await } => result.context("the health server ended"),
        result = files => result.context("the server of files ended"),
        error = moved => Err(error),
    };
    if let Some(hosted) = hosted.filter(|_| result.is_ok()) {
        stop.cancel();
        let _ = tokio::time::timeout(PLUGIN_STOP_TIMEOUT, hosted).await;
    }
    result
}

/// Runs the plugins until `stop`. Not only where this replica leads: each one gives files, whose
/// store may be a plugin's, and makes plans, which name the plugins.
fn run_plugins(plugins: Host, stop: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(async move { plugins.run(stop).await })
}

fn warn_of_unknown_features(args: &Args) {
    for feature in args.unknown_features() {
        tracing::warn!(
            feature,
            "--features names a feature that is not known here; it changes nothing"
        );
    }
}

/// Checks the cluster and the namespace. Returns the unique name of the installation; empty if our
/// controllers do not process Velero's objects.
async fn check_cluster(args: &Args, client: &Client, engine: bool) -> anyhow::Result<String> {
    startup::check(client, &args.namespace, engine).await?;
    if !engine {
        return Ok(String::new());
    }
    if args.mover().is_some() {
        startup::check_transfers(client).await?;
    }
    startup::installation(client, &args.namespace).await
}

/// Listens for requests for the health and the metrics of the process.
async fn listener(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("can not listen on {address}: choose another address with --metrics-address")
    })
}

fn plugins(args: &Args) -> Host {
    Host::new(Options {
        folder: args.plugin_dir.clone(),
        features: args.features.clone(),
        namespace: args.namespace.clone(),
        kubeconfig: args.kubeconfig.clone(),
        limit: args.plugin_timeout.as_std(),
    })
}

fn cluster(args: &Args, client: &Client, elector: Option<&Elector>, host: &str) -> Cluster {
    Cluster {
        client: client.clone(),
        namespace: args.namespace.clone(),
        leadership: elector.map_or_else(Leadership::always, Elector::leadership),
        events: Events::new(client.clone(), host),
        patch_budget: args.resource_timeout.as_std(),
        page_size: args.client_page_size,
    }
}

/// How the operations that actions have started are polled.
fn polling(args: &Args, cluster: &Cluster, plugins: &Host) -> PollConfig {
    let registry = Registry::new(
        built_in(cluster, args.csi(), &Arc::default()),
        backup_actions::restore::operating(cluster),
        plugins.clone(),
    );
    let concurrency = usize::from(args.item_operation_concurrency);
    PollConfig::new(registry, concurrency, args.operation_pace().as_std())
}

fn restores(
    args: &Args,
    job: &JobContext,
    guards: &[ProtectedProfile],
    silent_client: &Client,
    plugins: &Host,
    installation: &str,
) -> Restores {
    let others = guards.iter().filter(|guard| !guard.profile.is_velero());
    Restores {
        has_mover: args.mover().is_some(),
        executor: Arc::new(InCluster::new(
            silent_client.clone(),
            job.cluster.leadership.clone(),
        )),
        plugins: plugins.clone(),
        snapshot_locations: SnapshotLocations {
            cluster: job.cluster.clone(),
            plugins: plugins.clone(),
        },
        installation: installation.to_owned(),
        default_item_operation_timeout: args.default_item_operation_timeout,
        guarded: others.flat_map(|guard| guard.profile.types()).collect(),
        slots: usize::from(args.concurrent_restores),
        order: args.restore_resource_priorities.clone().unwrap_or_default(),
        api_group_versions: args.api_group_versions(),
        limits: args.restore_limits(),
        memory: ItemMemory::new(args.restore_item_memory),
        default_modifier: args.default_modifier().map(str::to_owned),
    }
}

/// Whether our controllers process Velero's objects.
fn engine(profiles: &[Profile]) -> bool {
    profiles
        .iter()
        .any(|profile| profile.is_velero() && profile.engine)
}

/// Acquires leadership, works, and stops cleanly when asked to.
async fn work(
    controllers: impl Future<Output = anyhow::Result<()>>,
    elector: Option<Elector>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let mut controllers = std::pin::pin!(controllers);
    let mut asked = tokio::spawn(signal::asked_to_end());
    let Some(mut elector) = elector else {
        tokio::select! {
            result = &mut controllers => return result,
            signal = &mut asked => tracing::info!(signal = signal??, "ending"),
        }
        stop.cancel();
        return drain(controllers).await;
    };

    tokio::select! {
        () = elector.acquire() => {}
        signal = &mut asked => {
            tracing::info!(signal = signal??, "ending before having led");
            return Ok(());
        }
    }
    tokio::select! {
        result = &mut controllers => return result,
        // Not drained: another replica may work already.
        lost = elector.keep() => return Err(lost.into()),
        signal = &mut asked => tracing::info!(signal = signal??, "ending"),
    }
    stop.cancel();
    let result = tokio::select! {
        result = drain(controllers) => result,
        lost = elector.keep() => return Err(lost.into()),
    };
    elector.release().await;
    result
}

async fn drain(
    controllers: Pin<&mut impl Future<Output = anyhow::Result<()>>>,
) -> anyhow::Result<()> {
    tokio::time::timeout(SHUTDOWN_TIMEOUT, controllers)
        .await
        .unwrap_or_else(|_| {
            tracing::warn!("not everything stopped in time; it is resumed by the next replica");
            Ok(())
        })
}

/// Writes logs as lines to standard error; `RUST_LOG` is the filter, by default the level without
/// kube's logs of failed requests, as the caller reports those.
fn init_logs(level: LogLevel, format: LogFormat) {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| {
        tracing_subscriber::EnvFilter::new(format!(
            "{},kube_client::client::builder=off",
            level.directive()
        ))
    });
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    // Fails only if logs are set up already, as in tests.
    let _ = match format {
        LogFormat::Json => logs.json().try_init(),
        LogFormat::Text => logs.with_ansi(false).try_init(),
    };
}

/// The name of this replica: the pod's.
fn host() -> String {
    ["POD_NAME", "HOSTNAME"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
        .unwrap_or_else(|| "backup-controller".to_owned())
}
