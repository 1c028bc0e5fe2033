//! Backups and restores that cannot collide, and the control that shows that the test would see it.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use backup_core::{
    api::{Backup, Restore, RestoreSpec},
    labels::{BREAK_GLASS_ANNOTATION, LEDGER_ANNOTATION},
};
use backup_tests::{
    World,
    install::NAMESPACE,
    wait::{eventually, when},
};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};

use crate::main_job::{backups, config_maps, create_backup, of_namespaces, restores};

crate::tests! {
    a_backup_is_refused_while_a_restore_holds_the_scope_and_the_refusal_names_it,
    a_restore_is_refused_while_a_backup_holds_the_scope_and_the_refusal_names_it,
    backups_of_other_namespaces_are_not_in_the_way,
    a_dry_run_gives_the_same_verdict_and_writes_nothing,
    of_two_colliding_creations_at_most_one_is_admitted,
    a_refused_creation_is_never_stored_and_a_freed_scope_is_free_at_once,
    admission_goes_on_when_a_replica_is_killed,
    an_ended_object_can_not_be_brought_back_to_life,
}

/// The same race with the webhook that looks and then allows.
pub const CONTROL: &[crate::Test] = &[("the_naive_webhook_is_caught_letting_a_collision_through", |world| {
    Box::pin(the_naive_webhook_is_caught_letting_a_collision_through(world))
})];

const ROUNDS: usize = 60;

async fn a_backup_is_refused_while_a_restore_holds_the_scope_and_the_refusal_names_it(
    world: &mut World,
) -> anyhow::Result<()> {
    let stopped = Stopped::controllers(world)?;
    create_restore(stopped.0, "holder", "locked-a").await?;
    let error = refusal(create_backup(stopped.0, "collides", of_namespaces(&["locked-a"])).await)?;
    ensure!(error.code == 403 && error.reason == "Forbidden", "{error:?}");
    ensure!(
        error.message.contains("holder") && error.message.contains("kubectl backup"),
        "{}",
        error.message
    );
    ensure!(backups(stopped.0).get_opt("collides").await?.is_none(), "a refused creation was stored");
    clean(stopped.0).await
}

async fn a_restore_is_refused_while_a_backup_holds_the_scope_and_the_refusal_names_it(
    world: &mut World,
) -> anyhow::Result<()> {
    let stopped = Stopped::controllers(world)?;
    create_backup(stopped.0, "holder", of_namespaces(&["locked-b"])).await?;
    let error = refusal(create_restore(stopped.0, "collides", "locked-b").await)?;
    ensure!(error.code == 403 && error.message.contains("holder"), "{error:?}");
    let details = error.details.clone().context("no details")?;
    ensure!(!details.causes.is_empty() && details.retry_after_seconds > 0, "{details:?}");
    clean(stopped.0).await
}

async fn backups_of_other_namespaces_are_not_in_the_way(world: &mut World) -> anyhow::Result<()> {
    let stopped = Stopped::controllers(world)?;
    create_restore(stopped.0, "holder", "locked-c").await?;
    create_backup(stopped.0, "elsewhere", of_namespaces(&["free-c"])).await?;
    clean(stopped.0).await
}

async fn a_dry_run_gives_the_same_verdict_and_writes_nothing(world: &mut World) -> anyhow::Result<()> {
    let stopped = Stopped::controllers(world)?;
    let world = &*stopped.0;
    create_restore(world, "dry-holder", "locked-d").await?;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let denied = backups(world).create(&dry, &Backup::new("dry-run", of_namespaces(&["locked-d"]))).await;
    ensure!(refusal(denied.map_err(Into::into))?.code == 403, "another verdict");
    backups(world)
        .create(&dry, &Backup::new("dry-run", of_namespaces(&["free-d"])))
        .await
        .context("free, but refused")?;
    let apply = PatchParams { dry_run: true, ..PatchParams::apply("a-pipeline") };
    backups(world)
        .patch("dry-run", &apply, &Patch::Apply(Backup::new("dry-run", of_namespaces(&["free-d"]))))
        .await?;
    // The replicas collect claims that are over whenever they like, so only what is in the ledger counts.
    let annotations = ledger(world).await?.metadata.annotations.unwrap_or_default();
    let claims = annotations.get(LEDGER_ANNOTATION).context("no ledger")?;
    ensure!(
        claims.contains("dry-holder") && !claims.contains("dry-run"),
        "a dry run wrote the ledger: {claims}"
    );
    clean(world).await
}

async fn of_two_colliding_creations_at_most_one_is_admitted(world: &mut World) -> anyhow::Result<()> {
    // Ended and not paused: the rounds may take longer than a lease.
    for controller in &mut world.controllers {
        controller.stop(Duration::from_mins(1)).await?;
    }
    let seen = collide(world).await;
    for controller in &mut world.controllers {
        controller.restart().await?;
    }
    let seen = seen?;
    println!("    {seen:?}");
    ensure!(seen.both == 0, "both were admitted in {} of {ROUNDS} rounds", seen.both);
    ensure!(seen.backup > 0 && seen.restore > 0 && seen.neither == 0, "no race: {seen:?}");
    Ok(())
}

async fn the_naive_webhook_is_caught_letting_a_collision_through(world: &mut World) -> anyhow::Result<()> {
    let seen = collide(world).await?;
    println!("    {seen:?}");
    ensure!(seen.both > 0, "the control was not caught: this test proves nothing about ours");
    Ok(())
}

/// A refusal leaves no trace, and the scope is free as soon as the object that held it is gone: the webhook looks again
/// by itself, also while no controller runs.
async fn a_refused_creation_is_never_stored_and_a_freed_scope_is_free_at_once(
    world: &mut World,
) -> anyhow::Result<()> {
    let stopped = Stopped::controllers(world)?;
    let world = &*stopped.0;
    create_restore(world, "ended-by-hand", "locked-e").await?;
    refusal(create_backup(world, "collides", of_namespaces(&["locked-e"])).await)?;
    ensure!(backups(world).get_opt("collides").await?.is_none(), "a refused creation was stored");
    // No controller runs, so a person ends it.
    let end = serde_json::json!({ "metadata": { "annotations": { BREAK_GLASS_ANNOTATION: "a test" } },
        "status": { "phase": "Completed" } });
    restores(world).patch("ended-by-hand", &PatchParams::default(), &Patch::Merge(end)).await?;
    create_backup(world, "follows", of_namespaces(&["locked-e"])).await.context("the restore has ended")?;
    clean(world).await
}

async fn admission_goes_on_when_a_replica_is_killed(world: &mut World) -> anyhow::Result<()> {
    world.webhooks[0].kill().await?;
    let result = async {
        for number in 0..6 {
            create_backup(world, &format!("one-replica-{number}"), of_namespaces(&["nothing-here"])).await?;
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

async fn an_ended_object_can_not_be_brought_back_to_life(world: &mut World) -> anyhow::Result<()> {
    config_maps(world, "ended", 1).await?;
    create_backup(world, "ended", of_namespaces(&["ended"])).await?;
    world.backup_ended("ended").await?;
    for patch in [serde_json::json!({ "status": { "phase": "New" } }), serde_json::json!({ "status": null })]
    {
        let revived = backups(world).patch("ended", &PatchParams::default(), &Patch::Merge(&patch)).await;
        let error = refusal(revived.map_err(Into::into))?;
        ensure!(error.code == 403, "{error:?}");
        // Nor by one who gets past the policy: that is what the webhook is asked about.
        let mut forced = patch;
        forced["metadata"] = serde_json::json!({ "annotations": { BREAK_GLASS_ANNOTATION: "a test" } });
        let revived = backups(world).patch("ended", &PatchParams::default(), &Patch::Merge(forced)).await;
        let error = refusal(revived.map_err(Into::into))?;
        ensure!(error.code == 403 && error.message.contains("admission webhook"), "{error:?}");
    }
    let label = serde_json::json!({ "metadata": { "labels": { "kept": "true" } } });
    backups(world)
        .patch("ended", &PatchParams::default(), &Patch::Merge(label))
        .await
        .context("a label is harmless")?;
    Ok(())
}

/// What was stored in each round.
#[derive(Debug, Default)]
struct Seen {
    both: usize,
    neither: usize,
    backup: usize,
    restore: usize,
}

/// Creates a Backup and a Restore of one namespace at the same moment, again and again.
async fn collide(world: &World) -> anyhow::Result<Seen> {
    let (backups, restores, post) = (backups(world), restores(world), PostParams::default());
    let mut seen = Seen::default();
    for round in 0..ROUNDS {
        let (name, namespace) = (format!("round-{round}"), format!("collide-{round}"));
        let backup = Backup::new(&name, of_namespaces(&[&namespace]));
        let restore = Restore::new(&name, restore_of(&namespace));
        // One starts a little earlier, in turn and by more and more, or one side would always win.
        let early = Duration::from_millis(round as u64 / 4);
        let (backup_waits, restore_waits) =
            if round % 2 == 0 { (Duration::ZERO, early) } else { (early, Duration::ZERO) };
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
        match (backups.get_opt(&name).await?.is_some(), restores.get_opt(&name).await?.is_some()) {
            (true, true) => seen.both += 1,
            (true, false) => seen.backup += 1,
            (false, true) => seen.restore += 1,
            (false, false) => seen.neither += 1,
        }
        clean(world).await?;
    }
    Ok(seen)
}

/// Controllers that stand still, so that nothing ends by itself; they go on when this is dropped.
pub struct Stopped<'w>(pub &'w mut World);

impl<'w> Stopped<'w> {
    pub fn controllers(world: &'w mut World) -> anyhow::Result<Self> {
        world.controllers.iter().try_for_each(backup_tests::process::Process::pause)?;
        Ok(Self(world))
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        for controller in &self.0.controllers {
            let _ = controller.resume();
        }
    }
}

fn restore_of(namespace: &str) -> RestoreSpec {
    RestoreSpec {
        backup_name: Some("there-is-none".into()),
        included_namespaces: vec![namespace.to_owned()],
        ..RestoreSpec::default()
    }
}

pub async fn create_restore(world: &World, name: &str, namespace: &str) -> anyhow::Result<Restore> {
    Ok(restores(world).create(&PostParams::default(), &Restore::new(name, restore_of(namespace))).await?)
}

pub fn refusal<T>(result: anyhow::Result<T>) -> anyhow::Result<kube::core::Status> {
    match result.map(|_| ()) {
        Ok(()) => anyhow::bail!("admitted, and not refused"),
        Err(error) => match error.downcast::<kube::Error>()? {
            kube::Error::Api(status) => Ok(*status),
            other => Err(other.into()),
        },
    }
}

pub async fn ledger(world: &World) -> anyhow::Result<Lease> {
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), NAMESPACE);
    Ok(leases.get("backup-lock-velero").await?)
}

/// Deletes every Backup and Restore that has not ended, and waits until they are gone.
pub async fn clean(world: &World) -> anyhow::Result<()> {
    let (backups, restores, all) = (backups(world), restores(world), kube::api::ListParams::default());
    for backup in backups.list(&all).await?.items.iter().filter(|backup| backup.phase().is_active()) {
        backups.delete(backup.metadata.name.as_deref().unwrap_or_default(), &DeleteParams::default()).await?;
    }
    for restore in restores.list(&all).await?.items.iter().filter(|restore| restore.phase().is_active()) {
        restores
            .delete(restore.metadata.name.as_deref().unwrap_or_default(), &DeleteParams::default())
            .await?;
    }
    eventually("unfinished objects gone", Duration::from_secs(20), async || {
        let left = backups.list(&all).await?.items.iter().filter(|backup| backup.phase().is_active()).count();
        Ok::<_, kube::Error>(when(left == 0, format!("{left} left")))
    })
    .await
}
