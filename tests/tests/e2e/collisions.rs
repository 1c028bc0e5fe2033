//! Backups and restores that must not collide, and the control that shows that the test would
//! detect a collision.

use backup_core::labels::BREAK_GLASS_ANNOTATION;
use backup_tests::world::backups::claiming;
use kube::api::{Patch, PatchParams, PostParams};

use crate::prelude::*;

crate::tests! {
    a_backup_is_refused_while_a_restore_runs_and_names_it,
    a_restore_is_refused_while_a_backup_runs_and_names_it,
    backups_of_other_namespaces_are_not_in_the_way,
    a_dry_run_gives_the_same_verdict_and_writes_nothing,
    of_two_colliding_creations_at_most_one_is_admitted,
    a_refused_creation_is_never_stored,
    admission_goes_on_when_a_replica_is_killed,
    an_ended_object_cannot_be_started_again,
}

// The same race with the webhook that looks and then allows.
crate::tests! { CONTROL: the_naive_webhook_is_caught_letting_a_collision_through }

const ROUNDS: usize = 60;

async fn a_backup_is_refused_while_a_restore_runs_and_names_it(world: &mut World) -> TestResult {
    let paused = world.pause_controllers()?;
    paused.create_claiming_restore("holder", "locked-a").await?;
    let error = paused.refused_backup("collides", "locked-a").await?;
    ensure!(
        error.code == 403 && error.reason == "Forbidden",
        "{error:?}"
    );
    says(&error.message, &["holder", "kubectl backup"])?;
    ensure!(
        paused.backups().get_opt("collides").await?.is_none(),
        "a refused creation was stored"
    );
    paused.delete_unfinished().await
}

async fn a_restore_is_refused_while_a_backup_runs_and_names_it(world: &mut World) -> TestResult {
    let paused = world.pause_controllers()?;
    paused
        .create_backup("holder", of_namespaces(&["locked-b"]))
        .await?;
    let error = refusal(paused.create_claiming_restore("collides", "locked-b").await)?;
    ensure!(
        error.code == 403 && error.message.contains("holder"),
        "{error:?}"
    );
    let details = error.details.clone().context("no details")?;
    ensure!(
        !details.causes.is_empty() && details.retry_after_seconds > 0,
        "{details:?}"
    );
    paused.delete_unfinished().await
}

async fn backups_of_other_namespaces_are_not_in_the_way(world: &mut World) -> TestResult {
    let paused = world.pause_controllers()?;
    paused.create_claiming_restore("holder", "locked-c").await?;
    paused
        .create_backup("elsewhere", of_namespaces(&["free-c"]))
        .await?;
    paused.delete_unfinished().await
}

async fn a_dry_run_gives_the_same_verdict_and_writes_nothing(world: &mut World) -> TestResult {
    let world = &*world.pause_controllers()?;
    world
        .create_claiming_restore("dry-holder", "locked-d")
        .await?;
    let dry = dry_run();
    let denied = world
        .backups()
        .create(&dry, &Backup::new("dry-run", of_namespaces(&["locked-d"])))
        .await;
    ensure!(refusal(denied)?.code == 403, "another verdict");
    world
        .backups()
        .create(&dry, &Backup::new("dry-run", of_namespaces(&["free-d"])))
        .await
        .context("free, but refused")?;
    let apply = PatchParams {
        dry_run: true,
        ..PatchParams::apply("a-pipeline")
    };
    world
        .backups()
        .patch(
            "dry-run",
            &apply,
            &Patch::Apply(Backup::new("dry-run", of_namespaces(&["free-d"]))),
        )
        .await?;
    // The replicas collect ended claims at any time, so only the contents of the ledger count.
    let claims = world.claims().await?;
    ensure!(
        claims.contains("dry-holder") && !claims.contains("dry-run"),
        "a dry run wrote the ledger: {claims}"
    );
    world.delete_unfinished().await
}

async fn of_two_colliding_creations_at_most_one_is_admitted(world: &mut World) -> TestResult {
    // Stopped and not paused: the rounds may take longer than a lease.
    for controller in &mut world.controllers {
        controller.stop(Duration::from_mins(1)).await?;
    }
    let seen = collide(world).await;
    for controller in &mut world.controllers {
        controller.restart().await?;
    }
    let seen = seen?;
    println!("    {seen:?}");
    ensure!(
        seen.both == 0,
        "both were admitted in {} of {ROUNDS} rounds",
        seen.both
    );
    ensure!(
        seen.backup > 0 && seen.restore > 0 && seen.neither == 0,
        "no race: {seen:?}"
    );
    Ok(())
}

async fn the_naive_webhook_is_caught_letting_a_collision_through(world: &mut World) -> TestResult {
    let seen = collide(world).await?;
    println!("    {seen:?}");
    ensure!(
        seen.both > 0,
        "the control was not caught: this test proves nothing about ours"
    );
    Ok(())
}

/// A refusal leaves no trace, and the scope is free as soon as the holding object is gone: the
/// webhook checks again by itself, even without a controller.
async fn a_refused_creation_is_never_stored(world: &mut World) -> TestResult {
    let world = &*world.pause_controllers()?;
    world
        .create_claiming_restore("ended-by-hand", "locked-e")
        .await?;
    world.refused_backup("collides", "locked-e").await?;
    ensure!(
        world.backups().get_opt("collides").await?.is_none(),
        "a refused creation was stored"
    );
    // No controller runs, so a user ends it.
    let end = json!({ "metadata": { "annotations": { BREAK_GLASS_ANNOTATION: "a test" } },
        "status": { "phase": "Completed" } });
    world.restores().merge_patch("ended-by-hand", end).await?;
    world
        .create_backup("follows", of_namespaces(&["locked-e"]))
        .await
        .context("the restore has ended")?;
    world.delete_unfinished().await
}

/// The API server uses HTTP/1.1 for webhooks and keeps idle connections. A review on a connection
/// whose end it has not yet seen is lost with the replica: that creation fails closed at once, and
/// that connection is not used again.
async fn admission_goes_on_when_a_replica_is_killed(world: &mut World) -> TestResult {
    /// Maximum number of idle connections from the API server to one host.
    const IDLE_CONNECTIONS: usize = 25;
    world.webhooks[0].kill().await?;
    let result = async {
        let mut lost = 0;
        for number in 0..6 {
            let name = format!("one-replica-{number}");
            while let Err(error) = world
                .create_backup(&name, of_namespaces(&["nothing-here"]))
                .await
            {
                let error = format!("{error:#}");
                ensure!(
                    error.contains("failed calling webhook")
                        && !error.contains("deadline exceeded"),
                    "{name}: {error}"
                );
                ensure!(
                    world.backups().get_opt(&name).await?.is_none(),
                    "{name} was stored without a review"
                );
                lost += 1;
                ensure!(
                    lost <= IDLE_CONNECTIONS,
                    "{lost} reviews were lost, the last for {name}: {error}"
                );
            }
        }
        anyhow::Ok(())
    }
    .await;
    world.webhooks[0].restart().await?;
    result?;
    for number in 0..6 {
        world.backup_ended(&format!("one-replica-{number}")).await?;
    }
    Ok(())
}

async fn an_ended_object_cannot_be_started_again(world: &mut World) -> TestResult {
    world.backed_up("ended", 1).await?;
    for patch in [
        json!({ "status": { "phase": "New" } }),
        json!({ "status": null }),
    ] {
        let revived = world
            .backups()
            .patch("ended", &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        let error = refusal(revived)?;
        ensure!(error.code == 403, "{error:?}");
        // A user who passes the policy cannot do so either: the webhook is called then.
        let mut forced = patch;
        forced["metadata"] = json!({ "annotations": { BREAK_GLASS_ANNOTATION: "a test" } });
        let revived = world.backups().merge_patch("ended", forced).await;
        let error = refusal(revived)?;
        ensure!(
            error.code == 403 && error.message.contains("admission webhook"),
            "{error:?}"
        );
    }
    let label = json!({ "metadata": { "labels": { "kept": "true" } } });
    world
        .backups()
        .merge_patch("ended", label)
        .await
        .context("a label is harmless")?;
    Ok(())
}

/// Which objects were stored in each round.
#[derive(Debug, Default)]
struct Seen {
    both: usize,
    neither: usize,
    backup: usize,
    restore: usize,
}

/// Creates a Backup and a Restore of one namespace at the same moment, repeatedly.
async fn collide(world: &World) -> anyhow::Result<Seen> {
    let (backups, restores, post) = (world.backups(), world.restores(), PostParams::default());
    let mut seen = Seen::default();
    for round in 0..ROUNDS {
        let (name, namespace) = (format!("round-{round}"), format!("collide-{round}"));
        let backup = Backup::new(&name, of_namespaces(&[&namespace]));
        let restore = Restore::new(&name, claiming(&namespace));
        // One starts a little earlier, alternately and by a growing time, or one side would always
        // win.
        let early = Duration::from_millis(round as u64 / 4);
        let (backup_waits, restore_waits) = if round % 2 == 0 {
            (Duration::ZERO, early)
        } else {
            (early, Duration::ZERO)
        };
        tokio::join!(
            async {
                tokio::time::sleep(backup_waits).await;
                backups.create(&post, &backup).await.ok()
            },
            async {
                tokio::time::sleep(restore_waits).await;
                restores.create(&post, &restore).await.ok()
            },
        );
        match (
            backups.get_opt(&name).await?.is_some(),
            restores.get_opt(&name).await?.is_some(),
        ) {
            (true, true) => seen.both += 1,
            (true, false) => seen.backup += 1,
            (false, true) => seen.restore += 1,
            (false, false) => seen.neither += 1,
        }
        world.delete_unfinished().await?;
    }
    Ok(seen)
}
