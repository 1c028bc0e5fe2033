//! Builds the controllers from their dependencies, and runs each in a task.

use std::sync::Arc;

use anyhow::Context as _;
use backup_lock::ProtectedProfile;
use backup_plugins::Host;
use backup_runtime::{clock::Clock, health::Health};
use backup_store::Throttle;
use futures::{
    FutureExt as _,
    future::{BoxFuture, try_join_all},
};
use jiff::tz::TimeZone;
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    args::Args,
    backup::{Backups, Leftovers, prepare::Settings},
    claims::ClaimsController,
    copies::{CopyController, RunningCopies},
    deletion::DeletionController,
    discovery::KnownGroups,
    download::{self, DownloadContext},
    drill::DrillController,
    job::{JobContext, dispatcher},
    location_validation::{LocationController, SecretVersions},
    metrics::stored::volume_data,
    notify::{NotificationController, NotifySettings},
    recent_deletions::RecentDeletions,
    restore::Restores,
    retention::{self, RetentionController},
    schedule::ScheduleController,
    server_status::ServerStatusController,
    sync::{SkipCache, SyncController, WatchedBackups},
    verification::VerificationController,
    volumes::data_mover::{DataMover, MoverSettings},
};

/// The parts of which the controllers are built.
pub(crate) struct Parts {
    pub(crate) args: Args,
    /// Where notifications are sent.
    pub(crate) notify: Option<NotifySettings>,
    /// A client for connections that may be silent for hours.
    pub(crate) silent_client: Client,
    /// All profiles that are guarded, with their ledgers.
    pub(crate) guards: Arc<[ProtectedProfile]>,
    pub(crate) installation: String,
    pub(crate) plugins: Host,
    pub(crate) health: Health,
    pub(crate) job: JobContext,
    pub(crate) restores: Arc<Restores>,
    pub(crate) download: DownloadContext,
}

/// A controller that runs until the process is asked to end, or fails.
type Controller = BoxFuture<'static, anyhow::Result<()>>;

/// Runs all controllers until they are asked to end or one fails. They begin at the first poll.
pub(crate) async fn run(parts: Parts) -> anyhow::Result<()> {
    // Each runs in its own task, so that one that computes does not block the others.
    let tasks = parts.controllers().into_iter().map(|(name, controller)| {
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

impl Parts {
    /// The controllers that run here, by their names.
    fn controllers(self) -> Vec<(&'static str, Controller)> {
        let mut all = vec![("claims", self.claims())];
        if self.job.ledger.profile().engine {
            all.extend(self.controllers_of_engine());
        } else {
            tracing::info!("a Velero server does the work here; looking after the lock only");
        }
        all.retain(|(name, _)| self.args.runs(name));
        all
    }

    /// The controllers that process Velero's objects.
    fn controllers_of_engine(&self) -> Vec<(&'static str, Controller)> {
        let backups = self.backups();
        let deletions = RecentDeletions::default();
        let running_copies = RunningCopies::default();
        let sync = self.sync(backups.leftovers(&self.job), deletions.clone());
        let mut all = vec![
            ("backup", self.backup(backups)),
            ("restore", self.restore()),
            ("location", self.location()),
            ("deletion", self.deletion(deletions, running_copies.clone())),
            ("sync", sync),
            ("copies", self.copies(running_copies)),
            ("retention", self.retention()),
            ("schedule", self.schedule()),
            ("verification", self.verification()),
            ("drill", self.drill()),
        ];
        if let Some(settings) = self.notify.clone() {
            all.push(("notifications", self.notifications(settings)));
        }
        if let Some(settings) = self.args.mover() {
            all.push(("data mover", self.data_mover(settings)));
            all.push(("volume data metrics", self.volume_data_metrics()));
        }
        all.extend([
            ("download", self.download()),
            ("server status", self.server_status()),
        ]);
        all
    }

    fn claims(&self) -> Controller {
        let claims = ClaimsController {
            cluster: self.job.cluster.clone(),
            metrics: Arc::clone(&self.job.metrics),
            protected: Arc::clone(&self.guards),
        };
        claims.run(self.job.stop.clone()).map(Ok).boxed()
    }

    fn backups(&self) -> Backups {
        Backups {
            silent_client: self.silent_client.clone(),
            plugins: self.plugins.clone(),
            snapshot_locations: self.restores.snapshot_locations.clone(),
            settings: Settings::of(&self.args),
            slots: usize::from(self.args.concurrent_backups).max(1),
            installation: self.installation.clone(),
            only_related_cluster_resources: self.args.only_related_cluster_resources,
            groups: KnownGroups::new(self.args.groups_without_items.clone()),
            item_block_workers: usize::from(self.args.item_block_worker_count),
        }
    }

    fn backup(&self, backups: Backups) -> Controller {
        dispatcher::run(self.job.clone(), backups, self.health.clone(), "backups")
            .map(Ok)
            .boxed()
    }

    fn restore(&self) -> Controller {
        let restores = Arc::clone(&self.restores);
        let health = self.health.clone();
        dispatcher::run::<Restores>(self.job.clone(), restores, health, "restores")
            .map(Ok)
            .boxed()
    }

    fn location(&self) -> Controller {
        let location = LocationController {
            cluster: self.job.cluster.clone(),
            locations: self.job.locations.clone(),
            metrics: Arc::clone(&self.job.metrics),
            frequency: self.args.store_validation_frequency,
            secrets: SecretVersions::default(),
            validations: Mutex::default(),
        };
        location
            .run(self.health.clone(), self.job.stop.clone())
            .map(Ok)
            .boxed()
    }

    fn deletion(&self, recent: RecentDeletions, copies: RunningCopies) -> Controller {
        let deletion = DeletionController {
            cluster: self.job.cluster.clone(),
            locations: self.job.locations.clone(),
            snapshot_locations: self.restores.snapshot_locations.clone(),
            plugins: self.plugins.clone(),
            ledger: self.job.ledger.clone(),
            metrics: Arc::clone(&self.job.metrics),
            recent,
            copies,
            limits: self.args.restore_limits(),
        };
        deletion
            .run(self.health.clone(), self.job.stop.clone())
            .map(Ok)
            .boxed()
    }

    fn sync(&self, leftovers: Leftovers, deletions: RecentDeletions) -> Controller {
        let sync = SyncController {
            cluster: self.job.cluster.clone(),
            locations: self.job.locations.clone(),
            metrics: Arc::clone(&self.job.metrics),
            deletions,
            period: self.args.backup_sync_period,
            default_location: self.args.default_backup_storage_location.clone(),
            leftovers,
            incomplete_ttl: self.args.stray_folder_ttl.as_std(),
            started: Clock::Boot.now(),
            skip_cache: SkipCache::default(),
            watched: WatchedBackups::default(),
            stop: self.job.stop.clone(),
        };
        sync.run(self.health.clone()).map(Ok).boxed()
    }

    fn copies(&self, running: RunningCopies) -> Controller {
        let copies = CopyController {
            cluster: self.job.cluster.clone(),
            locations: self.job.locations.clone(),
            metrics: Arc::clone(&self.job.metrics),
            installation: self.installation.clone(),
            running,
            stop: self.job.stop.clone(),
        };
        copies.run(self.health.clone()).map(Ok).boxed()
    }

    fn retention(&self) -> Controller {
        let retention = RetentionController::new(
            self.job.cluster.clone(),
            self.job.locations.clone(),
            Arc::clone(&self.job.metrics),
            self.args.retention_pace().as_std(),
            retention::brake(self.args.retention_max_share),
        );
        retention
            .run(self.health.clone(), self.job.stop.clone())
            .map(Ok)
            .boxed()
    }

    fn schedule(&self) -> Controller {
        let schedule = ScheduleController {
            cluster: self.job.cluster.clone(),
            metrics: Arc::clone(&self.job.metrics),
            dialect: self.args.cron_dialect,
            skip_immediately: self.args.schedule_skip_immediately,
            zone: TimeZone::system(),
            refused_slots: Mutex::default(),
        };
        schedule
            .run(self.health.clone(), self.job.stop.clone())
            .map(Ok)
            .boxed()
    }

    fn verification(&self) -> Controller {
        let verification = VerificationController {
            cluster: self.job.cluster.clone(),
            locations: self.job.locations.clone(),
            metrics: Arc::clone(&self.job.metrics),
            limits: self.args.restore_limits(),
            throttle: Arc::new(Throttle::new(Some(self.args.verify_read_limit))),
            stop: self.job.stop.clone(),
        };
        verification.run(self.health.clone()).map(Ok).boxed()
    }

    fn drill(&self) -> Controller {
        let drill = DrillController {
            cluster: self.job.cluster.clone(),
            locations: self.job.locations.clone(),
            metrics: Arc::clone(&self.job.metrics),
            limits: self.args.restore_limits(),
            sweep_due: Notify::default(),
        };
        drill
            .run(self.health.clone(), self.job.stop.clone())
            .map(Ok)
            .boxed()
    }

    fn notifications(&self, settings: NotifySettings) -> Controller {
        let notifications = NotificationController {
            cluster: self.job.cluster.clone(),
            metrics: Arc::clone(&self.job.metrics),
            settings,
            installation: self.installation.clone(),
        };
        notifications.run(self.job.stop.clone()).boxed()
    }

    fn data_mover(&self, settings: MoverSettings) -> Controller {
        let JobContext {
            cluster, locations, ..
        } = &self.job;
        DataMover::new(cluster.clone(), locations.clone(), settings)
            .run(self.health.clone(), self.job.stop.clone())
            .map(Ok)
            .boxed()
    }

    fn volume_data_metrics(&self) -> Controller {
        let JobContext {
            cluster,
            metrics,
            stop,
            ..
        } = &self.job;
        volume_data::run(cluster.clone(), Arc::clone(metrics), stop.clone())
            .map(Ok)
            .boxed()
    }

    fn download(&self) -> Controller {
        let health = self.health.clone();
        download::run(self.download.clone(), health, self.job.stop.clone())
            .map(Ok)
            .boxed()
    }

    fn server_status(&self) -> Controller {
        let server_status = ServerStatusController {
            cluster: self.job.cluster.clone(),
            plugins: self.plugins.clone(),
            csi: self.args.csi(),
            object_store_plugins: self.args.object_store_plugins.clone(),
        };
        server_status
            .run(self.health.clone(), self.job.stop.clone())
            .map(Ok)
            .boxed()
    }
}
