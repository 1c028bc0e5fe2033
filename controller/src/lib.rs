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

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

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
    clock::Clock,
    events::Events,
    health::{self, Health},
    leader::{Elector, Leadership},
    signal,
};
use backup_store::Throttle;
use futures::{
    FutureExt as _,
    future::{BoxFuture, try_join_all},
};
use jiff::tz::TimeZone;
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub use args::{Args, LogFormat, LogLevel, velero_flags::refusal_of_velero_flag};
use backup::{Backups, prepare::Settings};
use claims::ClaimsController;
use copies::{CopyController, RunningCopies};
use deletion::DeletionController;
use discovery::KnownGroups;
use download::DownloadContext;
use drill::DrillController;
use hooks::exec::InCluster;
use job::{
    JobContext, dispatcher,
    operations::{call::Registry, poller::PollConfig},
};
use location::Locations;
use location_validation::{LocationController, SecretVersions};
use metrics::Metrics;
use notify::{NotificationController, NotifySettings};
use recent_deletions::RecentDeletions;
use restore::{ItemMemory, Planner, Restores};
use retention::RetentionController;
use schedule::ScheduleController;
use server_status::ServerStatusController;
use startup::LedgerHome;
use sync::{SkipCache, SyncController, WatchedBackups};
use verification::VerificationController;
use volumes::{data_mover::DataMover, snapshot_locations::SnapshotLocations};

/// Time for controllers to stop after the process was asked to end; the pod's grace period is a
/// little longer.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(25);

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
    for feature in args.unknown_features() {
        tracing::warn!(
            feature,
            "--features names a feature that is not known here; it changes nothing"
        );
    }
    let notify = args.notify()?;
    let (client, silent_client) = connect::clients(args.kubeconfig.as_deref()).await?;
    let GuardedProfiles {
        profiles, unusable, ..
    } = protected_profile::profiles(args.profiles.as_deref(), &args.guard)?;
    startup::check(&client, &args.namespace, engine(&profiles)).await?;
    if engine(&profiles) && args.mover().is_some() {
        startup::check_transfers(&client).await?;
    }
    let installation = if engine(&profiles) {
        startup::installation(&client, &args.namespace).await?
    } else {
        String::new()
    };
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
    let listener = tokio::net::TcpListener::bind(args.metrics_address)
        .await
        .with_context(|| {
            format!(
                "can not listen on {}: choose another address with --metrics-address",
                args.metrics_address
            )
        })?;
    let host = host();
    let elector = args
        .leader_elect
        .then(|| Elector::new(client.clone(), &args.namespace, &host));
    let plugins = Host::new(Options {
        folder: args.plugin_dir.clone(),
        features: args.features.clone(),
        namespace: args.namespace.clone(),
        kubeconfig: args.kubeconfig.clone(),
        limit: args.plugin_timeout.as_std(),
    });
    let cluster = Cluster {
        client: client.clone(),
        namespace: args.namespace.clone(),
        leadership: elector
            .as_ref()
            .map_or_else(Leadership::always, Elector::leadership),
        events: Events::new(client.clone(), &host),
        patch_budget: args.resource_timeout.as_std(),
        page_size: args.client_page_size,
    };
    let scraped = metrics::router(Arc::clone(&metrics), cluster.leadership.clone());
    let server = axum::serve(listener, health::router(health.clone()).merge(scraped));
    let moved = startup::follow(
        client.clone(),
        ledgers.clone(),
        args.namespace.clone(),
        installations,
    );
    let locations = Locations::new(
        client,
        &args.namespace,
        &args.default_backup_storage_location,
        plugins.clone(),
        &args.object_store_plugins,
        args.allowed_places(),
    );
    let registry = Registry::new(
        built_in(&cluster, args.csi(), &Arc::default()),
        backup_actions::restore::operating(&cluster),
        plugins.clone(),
    );
    let concurrency = usize::from(args.item_operation_concurrency);
    let job = JobContext {
        cluster: cluster.clone(),
        ledger,
        locations: locations.clone(),
        metrics,
        polling: PollConfig::new(registry, concurrency, args.operation_pace().as_std()),
        resource_timeout: args.resource_timeout.as_std(),
        stop: stop.clone(),
    };
    let download = DownloadContext {
        cluster,
        locations,
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

    let others = guards.iter().filter(|guard| !guard.profile.is_velero());
    let restores = Arc::new(Restores {
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
        installation: installation.clone(),
        default_item_operation_timeout: args.default_item_operation_timeout,
        guarded: others.flat_map(|guard| guard.profile.types()).collect(),
        slots: usize::from(args.concurrent_restores),
        order: args.restore_resource_priorities.clone().unwrap_or_default(),
        api_group_versions: args.api_group_versions(),
        limits: args.restore_limits(),
        memory: ItemMemory::new(args.restore_item_memory),
        default_modifier: args.default_modifier().map(str::to_owned),
    });
    let files = download::files::serve(download.clone(), Planner::new(&job, Arc::clone(&restores)));
    let controllers = controllers(Parts {
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
    tokio::select! {
        result = work(controllers, elector, stop) => result,
        result = async { server.await } => result.context("the health server ended"),
        result = files => result.context("the server of files ended"),
        error = moved => Err(error),
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

/// The parts of which the controllers are built.
struct Parts {
    args: Args,
    /// Where notifications are sent.
    notify: Option<NotifySettings>,
    /// A client for connections that may be silent for hours.
    silent_client: Client,
    /// All profiles that are guarded, with their ledgers.
    guards: Arc<[ProtectedProfile]>,
    installation: String,
    plugins: Host,
    health: Health,
    job: JobContext,
    restores: Arc<Restores>,
    download: DownloadContext,
}

/// Runs all controllers until they are asked to end or one fails. They begin at the first poll.
async fn controllers(parts: Parts) -> anyhow::Result<()> {
    let Parts {
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
    } = parts;
    let JobContext {
        cluster,
        ledger,
        locations,
        metrics,
        stop,
        ..
    } = job.clone();
    let claims = ClaimsController {
        cluster: cluster.clone(),
        metrics: Arc::clone(&metrics),
        protected: guards,
    };
    let mut all: Vec<(&str, BoxFuture<'static, anyhow::Result<()>>)> =
        vec![("claims", claims.run(stop.clone()).map(Ok).boxed())];
    if ledger.profile().engine {
        let snapshot_locations = SnapshotLocations {
            cluster: cluster.clone(),
            plugins: plugins.clone(),
        };
        let deletions = RecentDeletions::default();
        let running_copies = RunningCopies::default();
        let backups = Backups {
            silent_client: silent_client.clone(),
            plugins: plugins.clone(),
            snapshot_locations: snapshot_locations.clone(),
            settings: Settings::of(&args),
            slots: usize::from(args.concurrent_backups).max(1),
            installation: installation.clone(),
            only_related_cluster_resources: args.only_related_cluster_resources,
            groups: KnownGroups::new(args.groups_without_items.clone()),
            item_block_workers: usize::from(args.item_block_worker_count),
        };
        let location = LocationController {
            cluster: cluster.clone(),
            locations: locations.clone(),
            metrics: Arc::clone(&metrics),
            frequency: args.store_validation_frequency,
            secrets: SecretVersions::default(),
            validations: Mutex::default(),
        };
        let retention = RetentionController::new(
            cluster.clone(),
            locations.clone(),
            Arc::clone(&metrics),
            args.retention_pace().as_std(),
            retention::brake(args.retention_max_share),
        );
        let schedule = ScheduleController {
            cluster: cluster.clone(),
            metrics: Arc::clone(&metrics),
            dialect: args.cron_dialect,
            skip_immediately: args.schedule_skip_immediately,
            zone: TimeZone::system(),
            refused_slots: Mutex::default(),
        };
        let verification = VerificationController {
            cluster: cluster.clone(),
            locations: locations.clone(),
            metrics: Arc::clone(&metrics),
            limits: args.restore_limits(),
            throttle: Arc::new(Throttle::new(Some(args.verify_read_limit))),
            stop: stop.clone(),
        };
        let drill = DrillController {
            cluster: cluster.clone(),
            locations: locations.clone(),
            metrics: Arc::clone(&metrics),
            limits: args.restore_limits(),
            sweep_due: Notify::default(),
        };
        let server_status = ServerStatusController {
            cluster: cluster.clone(),
            plugins: plugins.clone(),
            csi: args.csi(),
            object_store_plugins: args.object_store_plugins.clone(),
        };
        let deletion = DeletionController {
            cluster: cluster.clone(),
            locations: locations.clone(),
            snapshot_locations,
            plugins: plugins.clone(),
            ledger,
            metrics: Arc::clone(&metrics),
            recent: deletions.clone(),
            copies: running_copies.clone(),
            limits: args.restore_limits(),
        };
        let copies = CopyController {
            cluster: cluster.clone(),
            locations: locations.clone(),
            metrics: Arc::clone(&metrics),
            installation: installation.clone(),
            running: running_copies,
            stop: stop.clone(),
        };
        let sync = SyncController {
            cluster: cluster.clone(),
            locations: locations.clone(),
            metrics: Arc::clone(&metrics),
            deletions,
            period: args.backup_sync_period,
            default_location: args.default_backup_storage_location.clone(),
            leftovers: backups.leftovers(&job),
            incomplete_ttl: args.stray_folder_ttl.as_std(),
            started: Clock::Boot.now(),
            skip_cache: SkipCache::default(),
            watched: WatchedBackups::default(),
            stop: stop.clone(),
        };
        let backups = dispatcher::run(job.clone(), backups, health.clone(), "backups");
        let restores = dispatcher::run::<Restores>(job, restores, health.clone(), "restores");
        all.push(("backup", backups.map(Ok).boxed()));
        all.push(("restore", restores.map(Ok).boxed()));
        all.push((
            "location",
            location.run(health.clone(), stop.clone()).map(Ok).boxed(),
        ));
        all.push((
            "deletion",
            deletion.run(health.clone(), stop.clone()).map(Ok).boxed(),
        ));
        all.push(("sync", sync.run(health.clone()).map(Ok).boxed()));
        all.push(("copies", copies.run(health.clone()).map(Ok).boxed()));
        all.push((
            "retention",
            retention.run(health.clone(), stop.clone()).map(Ok).boxed(),
        ));
        all.push((
            "schedule",
            schedule.run(health.clone(), stop.clone()).map(Ok).boxed(),
        ));
        all.push((
            "verification",
            verification.run(health.clone()).map(Ok).boxed(),
        ));
        all.push((
            "drill",
            drill.run(health.clone(), stop.clone()).map(Ok).boxed(),
        ));
        if let Some(settings) = notify {
            let notifications = NotificationController {
                cluster: cluster.clone(),
                metrics: Arc::clone(&metrics),
                settings,
                installation,
            };
            all.push(("notifications", notifications.run(stop.clone()).boxed()));
        }
        if let Some(settings) = args.mover() {
            let mover = DataMover::new(cluster.clone(), locations.clone(), settings);
            all.push((
                "data mover",
                mover.run(health.clone(), stop.clone()).map(Ok).boxed(),
            ));
            let measured =
                metrics::stored::volume_data::run(cluster.clone(), metrics, stop.clone());
            all.push(("volume data metrics", measured.map(Ok).boxed()));
        }
        all.push((
            "download",
            download::run(download, health.clone(), stop.clone())
                .map(Ok)
                .boxed(),
        ));
        all.push((
            "server status",
            server_status.run(health, stop.clone()).map(Ok).boxed(),
        ));
        all.push((
            "plugins",
            async move { plugins.run(stop).await }.map(Ok).boxed(),
        ));
    } else {
        tracing::info!("a Velero server does the work here; looking after the lock only");
    }
    all.retain(|(name, _)| args.runs(name));
    // Each runs in its own task, so that one that computes does not block the others.
    let tasks = all.into_iter().map(|(name, controller)| {
        let task = AbortOnDrop(tokio::spawn(controller));
        async move {
            task.join()
                .await
                .with_context(|| format!("the {name} controller ended"))
        }
    });
    try_join_all(tasks).await.map(|_| ())
}

/// A task that does not outlive its handle.
struct AbortOnDrop(tokio::task::JoinHandle<anyhow::Result<()>>);

impl AbortOnDrop {
    async fn join(mut self) -> anyhow::Result<()> {
        (&mut self.0).await?
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
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
