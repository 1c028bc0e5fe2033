//! An API server that is stopped, or ended and restarted, while backups are in every phase: for
//! moments, for longer than `--resource-timeout`, and for longer than the lease. Every outcome is
//! published soon after, once.

use backup_tests::{
    faulty_s3::{Asked, FaultyS3, Mood},
    proxy::Fault,
    snapshots::{self, Behaviour, SnapshotController},
    world::{controllers::EndsEarly, stored::counts_equal_lists},
};
use tokio::time::Instant;

use crate::prelude::*;

crate::tests! {
    an_outage_longer_than_the_write_budget_loses_no_outcome,
    an_outage_longer_than_the_lease_loses_no_outcome,
    a_refusal_and_a_failure_are_published_after_an_outage,
    kubectl_backup_wait_outlives_a_stopped_api_server,
}

/// Timeout for a write in this world.
pub const BUDGET: &str = "--resource-timeout=3s";
/// Longer than that timeout; with the last two renewals around it, shorter than the lease.
const OUTAGE: Duration = Duration::from_secs(4);
const MOMENT: Duration = Duration::from_millis(1500);
/// The holder of the lease ends if it could not renew it for ten seconds.
const LEASE_IS_LOST: Duration = Duration::from_secs(12);
/// Timeout for an outcome to be published that was waiting for the API server.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(15);
/// The same for a new process, which first waits for the end of the old one's lease.
const TIMEOUT_AFTER_LEASE: Duration = Duration::from_secs(40);

async fn an_outage_longer_than_the_write_budget_loses_no_outcome(world: &mut World) -> TestResult {
    // The reason for blocking was logged a moment ago, so later repetitions are only at debug
    // level.
    world.controllers[0].stop(TIMEOUT).await?;
    world.controllers[0]
        .restart_with(&[("RUST_LOG", "info,backup_controller=debug")])
        .await?;
    let cast = Cast::begin(world, "stop").await?;
    let server = world.plane.api_servers.first().ok_or(NO_SERVER)?;
    let front = world.plane.front.as_ref().ok_or(NO_SERVER)?;
    cast.store_holds_metadata().await?;
    server.pause()?;
    cast.store_recovers();
    tokio::time::sleep(MOMENT).await;
    // Requests sent during the stop are done, but their answers are lost; then connections are
    // refused.
    front.set(Fault::Refuse);
    server.resume()?;
    let controller = &world.controllers[0];
    let used_up = eventually(
        "a write has used up its budget",
        LEASE_IS_LOST,
        async || {
            let log = controller.log();
            let used_up = log
                .lines()
                .any(|line| line.contains("blocked") && line.contains("times within 3"));
            anyhow::Ok(when(used_up, "no such line in its log"))
        },
    )
    .await;
    front.set(Fault::None);
    used_up.with_context(|| world.controllers[0].log())?;
    cast.ended(world, PUBLISH_TIMEOUT).await
}

async fn an_outage_longer_than_the_lease_loses_no_outcome(world: &mut World) -> TestResult {
    let cast = Cast::begin(world, "end").await?;
    world
        .plane
        .api_servers
        .first_mut()
        .ok_or(NO_SERVER)?
        .kill()
        .await?;
    cast.store_recovers();
    let controller = &mut world.controllers[0];
    let ends = async || anyhow::Ok(!controller.is_running());
    until(
        "the controller without a lease ends",
        LEASE_IS_LOST + Duration::from_secs(10),
        ends,
    )
    .await?;
    world
        .plane
        .api_servers
        .first_mut()
        .ok_or(NO_SERVER)?
        .restart()
        .await?;
    let answers = async || world.client.apiserver_version().await.map(|_| true);
    until("the API server is back", TIMEOUT, answers).await?;
    cast.ended(world, PUBLISH_TIMEOUT).await
}

/// Skips the tests on an existing cluster, whose API server cannot be stopped.
const NO_SERVER: crate::Skip = Skip("there is no API server of our own");

/// Backups in every phase, all at once; each has its own namespace, bucket and location.
struct Cast {
    round: &'static str,
    driver: SnapshotController,
    /// Proxy in front of all buckets.
    front: FaultyS3,
}

/// Names of the backups, the phase of each when the outage comes, and its final phase.
const ROLES: [(&str, BackupPhase, BackupPhase); 6] = [
    (
        "completing",
        BackupPhase::Finalizing,
        BackupPhase::Completed,
    ),
    (
        "failing",
        BackupPhase::FinalizingPartiallyFailed,
        BackupPhase::PartiallyFailed,
    ),
    (
        "waiting",
        BackupPhase::WaitingForPluginOperations,
        BackupPhase::Completed,
    ),
    (
        "collecting",
        BackupPhase::InProgress,
        BackupPhase::Completed,
    ),
    ("queued", BackupPhase::Queued, BackupPhase::Completed),
    ("new", BackupPhase::New, BackupPhase::Completed),
];

impl Cast {
    async fn begin(world: &World, round: &'static str) -> anyhow::Result<Self> {
        world.needs_own_plane()?;
        let s3 = world.s3()?;
        let cast = Self {
            round,
            driver: SnapshotController::start(&world.client).await?,
            front: world.faulty_s3().await?,
        };
        for (role, ..) in &ROLES {
            let name = cast.name(role);
            s3.create_versioned_bucket(&name).await?;
            world.s3_location(&name, &cast.front.url()).await?;
        }
        // The metadata of two backups cannot be written until the store recovers, and the parts of
        // a third are slow.
        let part = |asked: &Asked| asked.query.contains("partNumber=");
        cast.front.rule(move |asked| match asked {
            asked if metadata(asked) => Mood::Answer(503),
            asked if part(asked) => Mood::Slow(Duration::from_secs(4)),
            _ => Mood::Pass,
        });

        let name = cast.name("waiting");
        snapshots::class(&world.client, &name, Behaviour::NeverReady, false).await?;
        snapshots::claim(&world.client, &name, "data", &name).await?;
        let name = cast.name("failing");
        snapshots::class(&world.client, &name, Behaviour::Errs("no space"), false).await?;
        snapshots::claim(&world.client, &name, "data", &name).await?;
        world.config_maps(&cast.name("completing"), 5).await?;
        world.noise(&cast.name("collecting"), 30).await?;
        for role in ["completing", "failing", "waiting"] {
            world
                .create_backup(&cast.name(role), of_place(&cast.name(role)))
                .await?;
        }
        world.backup_waits(&cast.name("waiting")).await?;
        for role in ["completing", "failing"] {
            let key = format!("backups/{0}/velero-backup.json", cast.name(role));
            let published = |asked: &Asked| asked.writes() && asked.key == key;
            cast.front
                .wait_for_request("the metadata is to be published", TIMEOUT, published)
                .await?;
        }
        world
            .create_backup(&cast.name("collecting"), of_place(&cast.name("collecting")))
            .await?;
        cast.front
            .wait_for_request("a part is on its way", TIMEOUT, part)
            .await?;
        // They overlap with the backup that is being collected.
        let few = |role: &str| BackupSpec {
            included_namespaces: vec![cast.name("collecting")],
            excluded_resources: vec!["configmaps".to_owned()],
            ..of_place(&cast.name(role))
        };
        world
            .create_backup(&cast.name("queued"), few("queued"))
            .await?;
        world
            .backup_reaches(&cast.name("queued"), BackupPhase::Queued)
            .await?;
        world.create_backup(&cast.name("new"), few("new")).await?;
        for (role, phase, _) in &ROLES {
            let now = world.backups().get(&cast.name(role)).await?.phase();
            ensure!(
                now == *phase || (*role == "new" && now == BackupPhase::Queued),
                "{role} is {now}"
            );
        }
        Ok(cast)
    }

    fn name(&self, role: &str) -> String {
        format!("outage-{role}-{}", self.round)
    }

    fn store_recovers(&self) {
        self.front.calm();
    }

    /// The completing backup is being stored until the store recovers, and is then published. (The
    /// failing one has snapshots to remove in between, and the timeout for those requests is a
    /// different one.)
    async fn store_holds_metadata(&self) -> anyhow::Result<()> {
        let name = self.name("completing");
        let is_its = |asked: &&Asked| metadata(asked) && asked.key.contains(&name);
        let written = || self.front.asked().iter().filter(is_its).count();
        self.front.affect(Mood::Held, metadata);
        // Counted after the rule is set: an earlier request was answered, and is not under way.
        let before = written();
        until("metadata is on its way", TIMEOUT, async || {
            anyhow::Ok(written() > before)
        })
        .await
    }

    /// Waits until all have ended, and checks their phases. Restarts a controller that ends
    /// meanwhile, as a Deployment does.
    async fn ended(&self, world: &mut World, soon: Duration) -> anyhow::Result<()> {
        let (mut until, class) = (Instant::now() + soon, self.name("waiting"));
        snapshots::class(
            &world.client,
            &class,
            Behaviour::Ready(Duration::ZERO),
            false,
        )
        .await?;
        let mut ended: Vec<Backup> = Vec::new();
        for (role, _, phase) in &ROLES {
            let backup = loop {
                // On a machine that stalls for a moment, even the short outage is longer than the
                // lease.
                if world.controllers[0].has_ended() {
                    world.controllers_run().await?;
                    until += TIMEOUT_AFTER_LEASE;
                }
                let backup = world.backups().get(&self.name(role)).await?;
                if backup.phase().is_terminal() {
                    break backup;
                }
                // Backups that only begin after the outage need more time.
                let late = if matches!(*role, "queued" | "new") {
                    soon
                } else {
                    Duration::ZERO
                };
                ensure!(
                    Instant::now() < until + late,
                    "{role} is {} so long after it",
                    backup.phase()
                );
                tokio::time::sleep(Duration::from_millis(200)).await;
            };
            ensure!(backup.phase() == *phase, "{role}: {:?}", backup.status);
            ended.push(backup);
        }
        let s3 = world.s3()?;
        for ((role, ..), backup) in ROLES.iter().zip(&ended) {
            let name = self.name(role);
            let entries = is_whole(s3, &name, &name, backup).await.context(*role)?;
            counts_equal_lists(s3, &name, &name, backup, &entries)
                .await
                .context(*role)?;
            told_once(world, backup).await?;
        }
        ensure!(
            self.driver.stored().len() == 1,
            "one good snapshot, not {:?}",
            self.driver.stored()
        );
        Ok(())
    }
}

fn metadata(asked: &Asked) -> bool {
    asked.writes() && asked.key.ends_with("/velero-backup.json")
}

/// Events about an end may be lost in an outage; they are not repeated.
async fn told_once(world: &World, backup: &Backup) -> anyhow::Result<()> {
    let name = backup.metadata.name.clone().unwrap_or_default();
    let told = world
        .count_events(&name, &backup.phase().to_string())
        .await?;
    ensure!(told <= 1, "the end of {name} was told {told} times");
    Ok(())
}

async fn a_refusal_and_a_failure_are_published_after_an_outage(world: &mut World) -> TestResult {
    world.needs_debug_build()?;
    for EndsEarly {
        point,
        name,
        spec,
        phase,
    } in world.refused_and_failed("outage").await?
    {
        let name = &name;
        world.controllers[0].stop(TIMEOUT).await?;
        world.controllers[0]
            .restart_with(&[("BACKUP_PAUSE_AT", point)])
            .await?;
        world.create_backup(name, spec).await?;
        world.controllers[0]
            .paused(TIMEOUT)
            .await
            .with_context(|| format!("{point} was not reached"))?;
        let server = world.plane.api_servers.first().ok_or(NO_SERVER)?;
        server.pause()?;
        world.controllers[0].resume()?;
        tokio::time::sleep(OUTAGE).await;
        server.resume()?;
        let back = Instant::now();
        let backup = world.backup_ended(name).await?;
        ensure!(
            back.elapsed() < PUBLISH_TIMEOUT,
            "{name} was published after {:?}",
            back.elapsed()
        );
        ensure!(backup.phase() == phase, "{name}: {:?}", backup.status);
        told_once(world, &backup).await?;
    }
    Ok(())
}

/// `kubectl backup create --wait` and `wait`, with the API server stopped twice meanwhile: first
/// paused, then ended and restarted.
async fn kubectl_backup_wait_outlives_a_stopped_api_server(world: &mut World) -> TestResult {
    world.config_maps("waits", 3).await?;
    let (plugin, all) = (world.kubectl_backup(), world.backups());
    // The backup cannot end before the API server is stopped.
    world.controllers[0].stop(TIMEOUT).await?;
    let create = [
        "create",
        "waits",
        "--include-namespaces=waits",
        "--wait",
        "--timeout=2m",
        "--request-timeout=1s",
    ];
    let wait = ["wait", "waits", "--timeout=2m", "--request-timeout=1s"];
    let World {
        plane, controllers, ..
    } = world;
    let server = plane.api_servers.first_mut().ok_or(NO_SERVER)?;
    let trouble = async {
        until("the Backup is stored", TIMEOUT, async || {
            all.exists("waits").await
        })
        .await?;
        let waiting = plugin.run(&wait);
        let stops = async {
            tokio::time::sleep(MOMENT).await;
            server.pause()?;
            tokio::time::sleep(OUTAGE).await;
            server.resume()?;
            tokio::time::sleep(MOMENT).await;
            server.kill().await?;
            tokio::time::sleep(MOMENT).await;
            server.restart().await?;
            controllers[0].restart().await
        };
        let (waited, stopped) = futures::future::join(waiting, stops).await;
        stopped?;
        waited
    };
    let (created, waited) = futures::future::join(plugin.run(&create), trouble).await;
    for ran in [created?, waited?] {
        says(
            &ran.expect_code(0)?.stderr,
            &["still waiting", "answers again"],
        )?;
    }
    Ok(())
}
