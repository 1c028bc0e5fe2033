//! The clock of a machine is set forward or back by a year while our programs run on it.

use std::time::Instant;

use backup_core::api::{DeleteBackupRequest, Schedule};
use backup_tests::{
    control_plane::client_without_retries,
    moved_clock::MovedClock,
    replica,
    sibling::{ANNOTATION, Sibling},
    world::backups::claiming,
};

use crate::prelude::*;

crate::tests! {
    a_replica_with_a_wrong_clock_keeps_nobody_out_and_frees_nothing,
    a_controller_with_a_wrong_clock_deletes_nothing_and_works_on,
}

const YEAR: Duration = Duration::from_hours(365 * 24);
/// Longer than these replicas use a certificate.
const ROTATION: Duration = Duration::from_secs(6);

type Move = fn(&MovedClock) -> anyhow::Result<()>;
const MOVES: [(&str, Move); 3] = [
    ("a year later", |clock| clock.forward(YEAR)),
    ("a year earlier", |clock| clock.back(YEAR)),
    ("right again", |clock| clock.forward(Duration::ZERO)),
];

async fn a_replica_with_a_wrong_clock_keeps_nobody_out_and_frees_nothing(
    world: &mut World,
) -> TestResult {
    let clock = MovedClock::new(world.folder())?;
    world.webhooks[0].restart_with(&clock.variables()).await?;
    replica::answers(&mut world.webhooks[0], world.webhook_health[0], "/readyz").await?;
    let sibling = Sibling::start(&world.client, world.folder()).await?;
    let orphan = annotated(
        Backup::new("never-stored", of_namespaces(&["by-clock"])),
        ANNOTATION,
        "403",
    );
    refusal(world.backups().create_object(&orphan).await)?;
    sibling.remove().await?;
    let client = client_without_retries(world.plane.admin_kubeconfig()).await?;
    let (backups, restores): (Api<Backup>, Api<Restore>) = (
        Api::namespaced(client.clone(), NAMESPACE),
        Api::namespaced(client, NAMESPACE),
    );
    let backup = Backup::new("by-clock", of_namespaces(&["elsewhere"]));
    until("the sibling is not asked any more", TIMEOUT, async || {
        anyhow::Ok(backups.create(&dry_run(), &backup).await.is_ok())
    })
    .await?;
    for (what, set) in MOVES {
        set(&clock)?;
        let (start, mut creations) = (Instant::now(), 0);
        while start.elapsed() < ROTATION {
            let created = backups.create(&dry_run(), &backup).await;
            created.with_context(|| {
                format!("{what}: creation {creations}, after {:?}", start.elapsed())
            })?;
            creations += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let beside = Restore::new("beside-it", claiming("by-clock"));
        let refused = refusal(restores.create(&dry_run(), &beside).await).context(what)?;
        ensure!(
            refused.code == 403 && refused.message.contains("never-stored"),
            "{what}: {refused:?}"
        );
    }
    // The next tests need an unmoved clock.
    world.restart_webhook(0).await
}

/// Its store refuses requests with a wrong time, so nothing is backed up meanwhile.
async fn a_controller_with_a_wrong_clock_deletes_nothing_and_works_on(
    world: &mut World,
) -> TestResult {
    let clock = MovedClock::new(world.folder())?;
    world.controllers[0].stop(TIMEOUT).await?;
    world.controllers[0]
        .restart_with(&clock.variables())
        .await?;
    world.config_maps("by-wrong-clock", 3).await?;
    world
        .back_up("kept-by-clock", of_namespaces(&["by-wrong-clock"]))
        .await?;
    let schedule = json!({ "apiVersion": "velero.io/v1", "kind": "Schedule", "metadata": { "name": "by-clock" },
        "spec": { "schedule": "@every 3s", "template": { "includedNamespaces": ["by-wrong-clock"] } } });
    let schedules = world.api::<Schedule>();
    let (here, noted) = (jiff::Timestamp::now(), async || {
        let last = schedules.get("by-clock").await?.status.last_backup;
        Ok::<_, kube::Error>(last.map(|time| time.0))
    });
    for (what, set) in &MOVES[..2] {
        set(&clock)?;
        // The watch reports it once more, and it seems to be expired.
        let label = json!({ "metadata": { "labels": { "now": what.replace(' ', "-") } } });
        world.backups().merge_patch("kept-by-clock", label).await?;
        if schedules.get_opt("by-clock").await?.is_none() {
            schedules.create_json(schedule.clone()).await?;
            eventually("a slot of next year is noted", TIMEOUT, async || {
                let last = noted().await?;
                anyhow::Ok(when(last > Some(here + YEAR / 2), format!("{last:?}")))
            })
            .await?;
        }
        tokio::time::sleep(Duration::from_secs(4)).await;
        let requests = world.api::<DeleteBackupRequest>().list_all().await?;
        ensure!(requests.is_empty(), "{what}: {requests:?}");
        world.backups().get("kept-by-clock").await.context(*what)?;
    }
    clock.forward(Duration::ZERO)?;
    world.location_available("default").await?;
    world
        .back_up("after-by-clock", of_namespaces(&["by-wrong-clock"]))
        .await?;
    world
        .create_restore("by-clock", from_backup("kept-by-clock"))
        .await?;
    world
        .restore_ends("by-clock", RestorePhase::Completed)
        .await?;
    eventually(
        "the schedule goes on from now",
        Duration::from_mins(1),
        async || {
            let last = noted().await?;
            anyhow::Ok(when(
                last > Some(here) && last < Some(here + YEAR / 2),
                format!("{last:?}"),
            ))
        },
    )
    .await?;
    schedules.delete_object("by-clock").await?;
    ensure!(
        world.controllers[0].is_running(),
        "it has ended:\n{}",
        world.controllers[0].tail(5)
    );
    world.controllers[0].stop(TIMEOUT).await?;
    world.controllers[0].restart().await
}
