//! Two controllers. The leader is paused in the middle of its work, the other one takes over, and
//! then the first is continued: it must have no further effect.

use std::path::PathBuf;

use backup_tests::{
    faulty_s3::{Asked, FaultyS3, Mood},
    kubelet::{Kubelet, POST_HOOK, PRE_HOOK, PRE_HOOK_TIMEOUT},
    proxy::Fault,
    snapshots::{self, Behaviour, SnapshotController},
    world::stored::counts_equal_lists,
};

use kube::api::{DeleteParams, ListParams};

use crate::prelude::*;

crate::tests! {
    a_leader_that_is_paused_and_wakes_up_changes_nothing,
    a_restore_is_finished_by_the_one_that_takes_over,
}

/// One backup for each state in which the leader is paused, with its own namespace, bucket and
/// location. The second half has not ended yet when the leader is continued.
const ROLES: [&str; 6] = [
    "finishing",
    "uploading",
    "frozen",
    "collecting",
    "freezing",
    "waiting",
];
/// Number of backups that have ended.
const ENDED: usize = 3;
/// Delay of the leader's requests: they arrive after the other one has taken over.
const REQUEST_DELAY: Duration = Duration::from_secs(20);

async fn a_leader_that_is_paused_and_wakes_up_changes_nothing(world: &mut World) -> TestResult {
    let play = Play::begin(world).await?;
    let paused = world.leader().await?;
    world.controllers[paused].pause()?;
    std::fs::remove_file(play.gate("freezing"))?;
    play.store_recovers();
    for pod in ["frozen", "freezing"] {
        play.frozen_again(pod).await?;
    }
    // The condition that the first one waits for is fulfilled; the second one still keeps a pod
    // frozen.
    play.cut(world).await?;
    let mut ended = Vec::new();
    for role in &ROLES[..ENDED] {
        ended.push(play.ended(world, role).await?);
    }
    for role in &ROLES[ENDED..] {
        let phase = world.backups().get(&of_role(role)).await?.phase();
        ensure!(
            phase.is_active(),
            "{role} is {phase}: nothing is in the middle any more"
        );
    }
    world.controllers[paused].resume()?;
    ends_by_itself(world, paused).await?;
    let story = play.commands("freezing")?;
    ensure!(
        story == ["wait", "say", "wait"],
        "thawed by the one that woke up: {story:?}"
    );

    play.front("collecting")?.rule(|_| Mood::Pass);
    std::fs::write(play.gate("freezing"), "")?;
    snapshots::class(
        &world.client,
        &of_role("waiting"),
        Behaviour::Ready(Duration::ZERO),
        false,
    )
    .await?;
    for role in &ROLES[ENDED..] {
        ended.push(play.ended(world, role).await?);
    }
    for (role, before) in ROLES.iter().zip(&ended) {
        let now = world.backups().get(&of_role(role)).await?;
        ensure!(now == *before, "{role} was changed after its end: {now:?}");
    }
    Ok(())
}

/// The objects restored by both are deleted before the first one is continued: any later write of
/// it is visible.
async fn a_restore_is_finished_by_the_one_that_takes_over(world: &mut World) -> TestResult {
    const OBJECTS: usize = 800;
    /// Number of items that a restore writes at a time.
    const IN_FLIGHT: usize = 16;
    let (name, target) = ("takeover-restored", "takeover-target");
    world.backed_up(name, OBJECTS).await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), target);
    let restored = async || {
        let all = maps.list_metadata(&ListParams::default()).await?.items;
        let ours = all.iter().filter(|map| map.name_any().starts_with("item-"));
        Ok::<_, kube::Error>(ours.count())
    };
    let paused = world.leader().await?;
    world
        .create_restore(name, into_namespace(name, target))
        .await?;
    until("some are restored", TIMEOUT, async || {
        restored().await.map(|count| count > 0)
    })
    .await?;
    world.controllers[paused].pause()?;
    let (phase, count) = (world.restores().get(name).await?.phase(), restored().await?);
    ensure!(
        phase == RestorePhase::InProgress && count < OBJECTS,
        "{phase} with {count}: nothing is left"
    );

    world.restore_ends(name, RestorePhase::Completed).await?;
    ensure!(
        restored().await? == OBJECTS,
        "{} of {OBJECTS} with {count} by the first",
        restored().await?
    );
    maps.delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    until("they are deleted", TIMEOUT, async || {
        restored().await.map(|count| count == 0)
    })
    .await?;
    let ended = world.restores().get(name).await?;
    // It does not learn of the end of its lease, or of its claim, before it could continue.
    world
        .plane_front()?
        .set(Fault::Delay(Duration::from_millis(500)));
    world.controllers[paused].resume()?;
    ends_by_itself(world, paused).await?;
    world.plane_front()?.set(Fault::None);
    // Requests that it had sent would arrive by then.
    tokio::time::sleep(Duration::from_secs(2)).await;
    // Items that had passed their last check when the process was paused are sent when it is
    // continued: the exception of P1. No others are.
    let late = restored().await?;
    ensure!(
        late <= IN_FLIGHT,
        "the one that woke up has restored {late} more"
    );
    let now = world.restores().get(name).await?;
    ensure!(now == ended, "changed after its end: {now:?}");
    Ok(())
}

/// Backups that the leader is working on.
struct Play {
    kubelet: Kubelet,
    driver: SnapshotController,
    /// Proxies in front of the buckets, in the order of the roles.
    fronts: Vec<FaultyS3>,
    folder: PathBuf,
}

/// Name of the objects of a role.
fn of_role(role: &str) -> String {
    format!("takeover-{role}")
}

fn part(asked: &Asked) -> bool {
    asked.query.contains("partNumber=")
}

fn results(asked: &Asked) -> bool {
    asked.makes_final() && asked.key.ends_with("-results.gz")
}

impl Play {
    async fn begin(world: &World) -> anyhow::Result<Self> {
        let mut play = Self {
            kubelet: Kubelet::start(world).await?,
            driver: SnapshotController::start(&world.client).await?,
            fronts: Vec::new(),
            folder: world.folder().to_owned(),
        };
        let s3 = world.s3()?;
        for role in ROLES {
            let (name, front) = (of_role(role), world.faulty_s3().await?);
            s3.create_versioned_bucket(&name).await?;
            world.s3_location(&name, &front.url()).await?;
            play.fronts.push(front);
        }
        play.is_waiting(world).await?;
        play.is_finishing(world).await?;
        for pod in ["frozen", "freezing"] {
            play.is_frozen(world, pod).await?;
        }
        for role in ["uploading", "collecting"] {
            play.is_collecting(world, role).await?;
        }
        Ok(play)
    }

    fn front(&self, role: &str) -> anyhow::Result<&FaultyS3> {
        ROLES
            .iter()
            .zip(&self.fronts)
            .find(|(of, _)| **of == role)
            .map(|(_, front)| front)
            .context("no front")
    }

    /// The pre hook of a pod lasts until this file exists.
    fn gate(&self, pod: &str) -> PathBuf {
        self.folder.join(format!("gate-{pod}"))
    }

    async fn is_waiting(&self, world: &World) -> anyhow::Result<()> {
        let name = of_role("waiting");
        snapshots::class(&world.client, &name, Behaviour::NeverReady, false).await?;
        snapshots::claim(&world.client, &name, "data", &name).await?;
        world.create_backup(&name, of_place(&name)).await?;
        world.backup_waits(&name).await.map(drop)
    }

    /// One of its last files is being uploaded.
    async fn is_finishing(&self, world: &World) -> anyhow::Result<()> {
        let (name, front) = (of_role("finishing"), self.front("finishing")?);
        front.affect(Mood::Slow(REQUEST_DELAY), results);
        world.config_maps(&name, 5).await?;
        world.create_backup(&name, of_place(&name)).await?;
        front
            .wait_for_request("its results are on their way", TIMEOUT, results)
            .await
    }

    /// The pre hook has run, the post hook has not: a snapshot is being taken.
    async fn is_frozen(&self, world: &World, pod: &str) -> anyhow::Result<()> {
        let name = of_role(pod);
        std::fs::write(self.gate(pod), "")?;
        snapshots::class(&world.client, &name, Behaviour::Held, false).await?;
        snapshots::claim(&world.client, &name, "data", &name).await?;
        let annotations = json!({
            PRE_HOOK: json!(["wait", self.gate(pod)]).to_string(),
            PRE_HOOK_TIMEOUT: "2m",
            POST_HOOK: r#"["say", "thawed"]"#,
        });
        self.kubelet
            .pod(world, &name, "db", &annotations, &["data"])
            .await?;
        world.create_backup(&name, of_place(&name)).await?;
        let made = snapshots::api(&world.client, "VolumeSnapshot", Some(&name));
        let one_is_made = async || made.list_all().await.map(|made| made.len() == 1);
        until("its snapshot is asked for", TIMEOUT, one_is_made).await?;
        let story = self.kubelet.story(&format!("{name}/db"))?;
        ensure!(story == ["wait began", "wait ended with 0"], "{story:?}");
        Ok(())
    }

    /// A part is being uploaded, and more items than fit into the next parts follow.
    async fn is_collecting(&self, world: &World, role: &str) -> anyhow::Result<()> {
        let (name, front) = (of_role(role), self.front(role)?);
        front.affect(Mood::Slow(REQUEST_DELAY), part);
        world.noise(&name, 30).await?;
        world.create_backup(&name, of_place(&name)).await?;
        front
            .wait_for_request("a part is on its way", TIMEOUT, part)
            .await
    }

    /// From now on requests are passed on, except the parts of the backup that must still be
    /// collecting when the first one is continued. Delayed requests arrive after their delay.
    fn store_recovers(&self) {
        for (role, front) in ROLES.iter().zip(&self.fronts) {
            let parts = if *role == "collecting" {
                Mood::Held
            } else {
                Mood::Pass
            };
            front.rule(move |asked| if part(asked) { parts } else { Mood::Pass });
        }
    }

    /// Commands that have begun in a pod.
    fn commands(&self, pod: &str) -> anyhow::Result<Vec<String>> {
        let story = self.kubelet.story(&format!("{}/db", of_role(pod)))?;
        Ok(story
            .iter()
            .filter_map(|line| Some(line.strip_suffix(" began")?.to_owned()))
            .collect())
    }

    /// Waits until the other one has taken over, thawed the frozen pod, and begun to freeze it
    /// again.
    async fn frozen_again(&self, pod: &str) -> anyhow::Result<()> {
        eventually(
            "the other one has thawed the pod and freezes it again",
            TIMEOUT,
            async || {
                let story = self.commands(pod)?;
                anyhow::Ok(when(story == ["wait", "say", "wait"], format!("{story:?}")))
            },
        )
        .await
    }

    /// The snapshots of the pods' claims are taken and ready.
    async fn cut(&self, world: &World) -> anyhow::Result<()> {
        for pod in ["frozen", "freezing"] {
            let class = of_role(pod);
            snapshots::class(
                &world.client,
                &class,
                Behaviour::Ready(Duration::ZERO),
                false,
            )
            .await?;
        }
        eventually("they are cut", TIMEOUT, async || {
            let stored = self.driver.stored();
            anyhow::Ok(when(stored.len() == 3, format!("{stored:?}")))
        })
        .await
    }

    /// Waits until a backup has ended, and checks that its status is true and all files exist once.
    async fn ended(&self, world: &World, role: &str) -> anyhow::Result<Backup> {
        let (s3, name) = (world.s3()?, of_role(role));
        let backup = world.backup_ended(&name).await?;
        let with_pod = ["frozen", "freezing"].contains(&role);
        // The outcomes of running commands are unknown, which is reported.
        let (phase, errors) = if with_pod {
            (BackupPhase::PartiallyFailed, 1)
        } else {
            (BackupPhase::Completed, 0)
        };
        ensure!(
            backup.phase() == phase && backup.status.errors == errors,
            "{role}: {:?}",
            backup.status
        );
        let entries = is_whole(s3, &name, &name, &backup)
            .await
            .context(name.clone())?;
        counts_equal_lists(s3, &name, &name, &backup, &entries)
            .await
            .context(name.clone())?;
        let reason = backup.phase().to_string();
        let told_once = async || {
            world
                .count_events(&name, &reason)
                .await
                .map(|count| count == 1)
        };
        until("its end was told once", Duration::from_secs(5), told_once).await?;
        if with_pod {
            let story = self.commands(role)?;
            ensure!(story == ["wait", "say", "wait", "say"], "{role}: {story:?}");
        }
        ensure!(
            self.driver.stored().len() == 3,
            "a claim was cut twice: {:?}",
            self.driver.stored()
        );
        Ok(backup)
    }
}

/// Waits until a controller that has lost its lease has ended, and restarts it, as a Deployment
/// does.
async fn ends_by_itself(world: &mut World, number: usize) -> anyhow::Result<()> {
    let process = &mut world.controllers[number];
    let ended = async || anyhow::Ok(!process.is_running());
    until("the one that woke up ends", Duration::from_secs(15), ended).await?;
    process.restart().await
}
