//! Two controllers. The one that leads is paused in the middle of everything, the other takes over, and then the first one
//! wakes up: it must not do anything more that counts.

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

/// One backup for each, with namespace, bucket and location of its own: what the leader is paused in. Those of the second half
/// have not ended yet when it wakes up.
const ROLES: [&str; 6] = ["finishing", "uploading", "frozen", "collecting", "freezing", "waiting"];
/// How many of them have.
const ENDED: usize = 3;
/// How long requests of the leader are held up: they come after the other one has taken over.
const HELD: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_mins(1);

async fn a_leader_that_is_paused_and_wakes_up_changes_nothing(world: &mut World) -> anyhow::Result<()> {
    let play = Play::begin(world).await?;
    let paused = world.leader().await?;
    world.controllers[paused].pause()?;
    std::fs::remove_file(play.gate("freezing"))?;
    play.store_recovers();
    for pod in ["frozen", "freezing"] {
        play.frozen_again(pod).await?;
    }
    // What the first one waits for comes true; the second one still holds a pod frozen.
    play.cut(world).await?;
    let mut ended = Vec::new();
    for role in &ROLES[..ENDED] {
        ended.push(play.ended(world, role).await?);
    }
    for role in &ROLES[ENDED..] {
        let phase = world.backups().get(&of_role(role)).await?.phase();
        ensure!(phase.is_active(), "{role} is {phase}: nothing is in the middle any more");
    }
    world.controllers[paused].resume()?;
    ends_by_itself(world, paused).await?;
    let story = play.commands("freezing")?;
    ensure!(story == ["wait", "say", "wait"], "thawed by the one that woke up: {story:?}");

    play.front("collecting")?.rule(|_| Mood::Pass);
    std::fs::write(play.gate("freezing"), "")?;
    snapshots::class(&world.client, &of_role("waiting"), Behaviour::Ready(Duration::ZERO), false).await?;
    for role in &ROLES[ENDED..] {
        ended.push(play.ended(world, role).await?);
    }
    for (role, before) in ROLES.iter().zip(&ended) {
        let now = world.backups().get(&of_role(role)).await?;
        ensure!(now == *before, "{role} was changed after its end: {now:?}");
    }
    Ok(())
}

/// What the first one and then the other one have restored is deleted before the first one wakes up: whatever it writes then
/// is seen.
async fn a_restore_is_finished_by_the_one_that_takes_over(world: &mut World) -> anyhow::Result<()> {
    const OBJECTS: usize = 800;
    /// Items that a restore has on their way at a time.
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
    world.create_restore(name, into_namespace(name, target)).await?;
    until("some are restored", SOON, async || restored().await.map(|count| count > 0)).await?;
    world.controllers[paused].pause()?;
    let (phase, count) = (world.restores().get(name).await?.phase(), restored().await?);
    ensure!(phase == RestorePhase::InProgress && count < OBJECTS, "{phase} with {count}: nothing is left");

    world.restore_ends(name, RestorePhase::Completed).await?;
    ensure!(restored().await? == OBJECTS, "{} of {OBJECTS} with {count} by the first", restored().await?);
    maps.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    until("they are deleted", SOON, async || restored().await.map(|count| count == 0)).await?;
    let ended = world.restores().get(name).await?;
    // It does not hear of the end of its lease, or of its claim, before it could go on.
    world.plane_front()?.set(Fault::Delay(Duration::from_millis(500)));
    world.controllers[paused].resume()?;
    ends_by_itself(world, paused).await?;
    world.plane_front()?.set(Fault::None);
    // What it had sent would come by then.
    tokio::time::sleep(Duration::from_secs(2)).await;
    // What had passed its last check when the process was stopped is sent when it wakes up: the exception of P1. Nothing new is.
    let late = restored().await?;
    ensure!(late <= IN_FLIGHT, "the one that woke up has restored {late} more");
    let now = world.restores().get(name).await?;
    ensure!(now == ended, "changed after its end: {now:?}");
    Ok(())
}

/// Backups that the leader has in hand.
struct Play {
    kubelet: Kubelet,
    driver: SnapshotController,
    /// In front of the buckets, as of the roles.
    fronts: Vec<FaultyS3>,
    folder: PathBuf,
}

/// Name of what belongs to a role.
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

    /// The command before the backup of a pod lasts until this file is there.
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

    /// One of its last files is on its way.
    async fn is_finishing(&self, world: &World) -> anyhow::Result<()> {
        let (name, front) = (of_role("finishing"), self.front("finishing")?);
        front.rule(|asked| if results(asked) { Mood::Slow(HELD) } else { Mood::Pass });
        world.config_maps(&name, 5).await?;
        world.create_backup(&name, of_place(&name)).await?;
        front.wait_for_request("its results are on their way", SOON, results).await
    }

    /// The command before has run, the one after has not: a snapshot is being cut.
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
        self.kubelet.pod(world, &name, "db", &annotations, &["data"]).await?;
        world.create_backup(&name, of_place(&name)).await?;
        let made = snapshots::api(&world.client, "VolumeSnapshot", Some(&name));
        let one_is_made = async || made.list_all().await.map(|made| made.len() == 1);
        until("its snapshot is asked for", SOON, one_is_made).await?;
        let story = self.kubelet.story(&format!("{name}/db"))?;
        ensure!(story == ["wait began", "wait ended with 0"], "{story:?}");
        Ok(())
    }

    /// A part is on its way, and more items than fit into the next ones are to come.
    async fn is_collecting(&self, world: &World, role: &str) -> anyhow::Result<()> {
        let (name, front) = (of_role(role), self.front(role)?);
        front.rule(|asked| if part(asked) { Mood::Slow(HELD) } else { Mood::Pass });
        world.noise(&name, 30).await?;
        world.create_backup(&name, of_place(&name)).await?;
        front.wait_for_request("a part is on its way", SOON, part).await
    }

    /// From now on requests are passed on, but for the parts of the backup that is to be collected still when the first one wakes
    /// up. Those that are held up come when their time is over.
    fn store_recovers(&self) {
        for (role, front) in ROLES.iter().zip(&self.fronts) {
            let parts = if *role == "collecting" { Mood::Held } else { Mood::Pass };
            front.rule(move |asked| if part(asked) { parts } else { Mood::Pass });
        }
    }

    /// Commands that were begun in a pod.
    fn commands(&self, pod: &str) -> anyhow::Result<Vec<String>> {
        let story = self.kubelet.story(&format!("{}/db", of_role(pod)))?;
        Ok(story.iter().filter_map(|line| Some(line.strip_suffix(" began")?.to_owned())).collect())
    }

    /// Waits until the other one has taken over, thawed what was frozen, and begun to freeze it again.
    async fn frozen_again(&self, pod: &str) -> anyhow::Result<()> {
        eventually("the other one has thawed the pod and freezes it again", SOON, async || {
            let story = self.commands(pod)?;
            anyhow::Ok(when(story == ["wait", "say", "wait"], format!("{story:?}")))
        })
        .await
    }

    /// The snapshots of the pods' claims are cut, and ready.
    async fn cut(&self, world: &World) -> anyhow::Result<()> {
        for pod in ["frozen", "freezing"] {
            let class = of_role(pod);
            snapshots::class(&world.client, &class, Behaviour::Ready(Duration::ZERO), false).await?;
        }
        eventually("they are cut", SOON, async || {
            let stored = self.driver.stored();
            anyhow::Ok(when(stored.len() == 3, format!("{stored:?}")))
        })
        .await
    }

    /// Waits until a backup has ended, and checks that all of it is true, and there once.
    async fn ended(&self, world: &World, role: &str) -> anyhow::Result<Backup> {
        let (s3, name) = (world.s3()?, of_role(role));
        let backup = world.backup_ended(&name).await?;
        let with_pod = ["frozen", "freezing"].contains(&role);
        // What came of the commands that were under way is not known: that is told.
        let (phase, errors) =
            if with_pod { (BackupPhase::PartiallyFailed, 1) } else { (BackupPhase::Completed, 0) };
        ensure!(backup.phase() == phase && backup.status.errors == errors, "{role}: {:?}", backup.status);
        let entries = is_whole(s3, &name, &name, &backup).await.context(name.clone())?;
        counts_equal_lists(s3, &name, &name, &backup, &entries).await.context(name.clone())?;
        let reason = backup.phase().to_string();
        let told_once = async || world.count_events(&name, &reason).await.map(|count| count == 1);
        until("its end was told once", Duration::from_secs(5), told_once).await?;
        if with_pod {
            let story = self.commands(role)?;
            ensure!(story == ["wait", "say", "wait", "say"], "{role}: {story:?}");
        }
        ensure!(self.driver.stored().len() == 3, "a claim was cut twice: {:?}", self.driver.stored());
        Ok(backup)
    }
}

/// Waits until a controller that has lost its lease has ended, and starts it again, as a Deployment does.
async fn ends_by_itself(world: &mut World, number: usize) -> anyhow::Result<()> {
    let process = &mut world.controllers[number];
    let ended = async || anyhow::Ok(!process.is_running());
    until("the one that woke up ends", Duration::from_secs(15), ended).await?;
    process.restart().await
}
