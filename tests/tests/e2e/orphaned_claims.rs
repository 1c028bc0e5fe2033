//! Claims whose object is never stored, in every way that can be reproduced here: each is freed in
//! bounded time, and then the other kind can be created.

use std::time::Instant;

use backup_lock::{Ledger, ObjectKind};
use backup_tests::{
    kubectl::with_kind,
    proxy::Fault,
    sibling::{ANNOTATION, Sibling},
};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{Patch, PatchParams};

use crate::prelude::*;

crate::tests! {
    an_orphan_is_freed_when_a_sibling_webhook_denies,
    an_orphan_is_freed_while_no_controller_runs,
    an_orphan_is_freed_when_a_sibling_webhook_times_out,
    an_orphan_is_freed_when_a_quota_is_exceeded,
    a_name_that_exists_takes_no_claim,
    eight_orphans_of_one_generated_name_are_freed,
    an_orphan_is_freed_when_the_object_is_too_big_to_store,
    an_orphan_is_freed_when_an_apply_loses_a_race_and_succeeds,
    an_orphan_is_freed_when_the_client_goes_away,
    an_orphan_is_freed_when_the_clients_timeout_passes,
    an_orphan_is_freed_when_the_answer_is_lost,
    an_orphan_is_freed_when_etcd_stands_still,
    an_orphan_is_freed_when_the_api_server_is_killed,
    a_dry_run_leaves_no_orphan,
}

/// The flag for webhook and controller in the world of these tests.
pub const GRACE: &str = "--orphan-grace=1s";
/// Time limit for freeing an orphan: twice the grace (the controller's own check, and the guard),
/// the pauses between checks, and a slow machine.
const MAX_ORPHAN_TIME: Duration = Duration::from_secs(20);

async fn an_orphan_is_freed_when_a_sibling_webhook_denies(world: &mut World) -> TestResult {
    let sibling = Sibling::start(&world.client, world.folder()).await?;
    let refused = create(world, &wishing("sibling", "403")).await;
    is_an_orphan(world, "sibling", refused, "sibling webhook").await?;
    sibling.remove().await?;
    is_freed(world, "sibling").await
}

/// The webhook replicas free it themselves.
async fn an_orphan_is_freed_while_no_controller_runs(world: &mut World) -> TestResult {
    let world = &*world.pause_controllers()?;
    let sibling = Sibling::start(&world.client, world.folder()).await?;
    let refused = create(world, &wishing("alone", "403")).await;
    is_an_orphan(world, "alone", refused, "sibling webhook").await?;
    sibling.remove().await?;
    is_freed(world, "alone").await
}

/// Ours has answered at once, and the API server waits for the other one.
async fn an_orphan_is_freed_when_a_sibling_webhook_times_out(world: &mut World) -> TestResult {
    let sibling = Sibling::start(&world.client, world.folder()).await?;
    let kubectl = world.kubectl()?;
    let manifest = kubectl.manifest(&with_kind(&wishing("late", "delay-11000")))?;
    let (answer, claimed) = tokio::join!(
        kubectl.client_go(&manifest, "backups", &[]),
        claimed(world, "late")
    );
    claimed?;
    let answer = answer?;
    ensure!(
        answer.error.contains("failed calling webhook"),
        "{answer:?}"
    );
    sibling.remove().await?;
    is_freed(world, "late").await
}

async fn an_orphan_is_freed_when_a_quota_is_exceeded(world: &mut World) -> TestResult {
    let quotas: Api<ResourceQuota> = world.api();
    let hard = json!({ "count/backups.velero.io": "0" });
    quotas
        .create_json(json!({ "metadata": { "name": "no-backups" }, "spec": { "hard": hard } }))
        .await?;
    // The controller of quotas does not run here: its result is written by hand.
    quotas
        .merge_patch_status("no-backups", json!({ "hard": hard, "used": hard }))
        .await?;
    eventually("the quota is looked at", MAX_ORPHAN_TIME, async || {
        let answer = world.backups().create(&dry_run(), &plain("quota")).await;
        let seen = format!("{answer:?}");
        Ok::<_, kube::Error>(when(seen.contains("exceeded quota"), seen))
    })
    .await?;
    let refused = create(world, &plain("quota")).await;
    quotas.delete_object("no-backups").await?;
    is_an_orphan(world, "quota", refused, "exceeded quota").await?;
    is_freed(world, "quota").await
}

async fn a_name_that_exists_takes_no_claim(world: &mut World) -> TestResult {
    world
        .create_backup("exists", of_namespaces(&["orphan-exists"]))
        .await?;
    world.backup_ended("exists").await?;
    unclaimed(world, "exists").await?;
    let status = refusal(create(world, &plain("exists")).await)?;
    ensure!(
        status.code == 409 && status.reason == "AlreadyExists",
        "{status:?}"
    );
    says(
        &status.message,
        &["backups.velero.io \"exists\" already exists"],
    )?;
    ensure!(!has_claim(world, "exists").await?, "it keeps restores out");
    let there = world.backups().get("exists").await?;
    ensure!(
        there.phase().is_terminal(),
        "the one that was there is not as it was"
    );
    Ok(())
}

/// The API server takes a sibling's AlreadyExists for a collision of generated names, and repeats
/// admission: each time with another name, uid and claim.
async fn eight_orphans_of_one_generated_name_are_freed(world: &mut World) -> TestResult {
    let sibling = Sibling::start(&world.client, world.folder()).await?;
    let (asked, admitted) = (sibling.calls(), world.admissions("admitted").await?);
    let mut backup = wishing("generated", "AlreadyExists");
    backup.metadata.name = None;
    backup.metadata.generate_name = Some("generated-".into());
    let refused = world
        .backups()
        .create_object(&backup)
        .await
        .map_err(Into::into);
    is_an_orphan(world, "generated", refused, "sibling webhook").await?;
    let (asked, admitted) = (
        sibling.calls() - asked,
        world.admissions("admitted").await? - admitted,
    );
    ensure!(
        asked == 8 && admitted == 8,
        "{asked} passes, of which {admitted} were admitted by ours"
    );
    sibling.remove().await?;
    is_freed(world, "generated").await
}

/// The API server accepts 3 MiB, etcd 1.5 MiB: this is only detected at the write, which is then
/// retried without managed fields.
async fn an_orphan_is_freed_when_the_object_is_too_big_to_store(world: &mut World) -> TestResult {
    let mut backup = serde_json::to_value(plain("too-big"))?;
    backup["spec"]["hooks"] = json!({ "resources": [{ "name": "big", "pre": [{ "exec": {
        "container": "c", "command": ["x".repeat(1_700_000)] } }] }] });
    let admitted = world.admissions("admitted").await?;
    let refused = create(world, &serde_json::from_value(backup)?).await;
    is_an_orphan(world, "too-big", refused, "too large").await?;
    let admitted = world.admissions("admitted").await? - admitted;
    ensure!(
        admitted == 2,
        "{admitted} passes, and not one more without managed fields"
    );
    is_freed(world, "too-big").await
}

/// Both applies are admitted as creations. The second becomes an update of the object that the
/// first stored, and succeeds; its claim has a uid that is never stored.
async fn an_orphan_is_freed_when_an_apply_loses_a_race_and_succeeds(
    world: &mut World,
) -> TestResult {
    let sibling = Sibling::start(&world.client, world.folder()).await?;
    ensure_namespace(&world.client, "orphan-race").await?;
    let admitted = world.admissions("admitted").await?;
    let object = with_kind(&wishing("race", "delay-500"));
    let apply = async |manager: &str| {
        let parameters = PatchParams::apply(manager).force();
        world
            .backups()
            .patch("race", &parameters, &Patch::Apply(&object))
            .await
    };
    let (one, other) = tokio::join!(apply("one"), apply("other"));
    ensure!(
        one?.metadata.uid == other?.metadata.uid,
        "two objects of one name"
    );
    let admitted = world.admissions("admitted").await? - admitted;
    ensure!(admitted == 2, "no race: {admitted} admitted");
    sibling.remove().await?;
    world.backup_ends("race", BackupPhase::Completed).await?;
    is_freed(world, "race").await
}

async fn an_orphan_is_freed_when_the_client_goes_away(world: &mut World) -> TestResult {
    let sibling = Sibling::start(&world.client, world.folder()).await?;
    leaves_when_claimed(world, "gone-away").await?;
    is_freed(world, "gone-away").await?;
    not_stored(world, "gone-away").await?;
    sibling.remove().await
}

async fn an_orphan_is_freed_when_the_clients_timeout_passes(world: &mut World) -> TestResult {
    let sibling = Sibling::start(&world.client, world.folder()).await?;
    let kubectl = world.kubectl()?;
    let manifest = kubectl.manifest(&with_kind(&wishing("timeout", "delay-3000")))?;
    let flags = ["--timeout", "1s"];
    let (answer, claimed) = tokio::join!(
        kubectl.client_go(&manifest, "backups", &flags),
        claimed(world, "timeout")
    );
    claimed?;
    let answer = answer?;
    ensure!(
        !answer.error.is_empty() && answer.elapsed_seconds < 3.0,
        "{answer:?}"
    );
    println!("    the client saw: {} {}", answer.code, answer.error);
    is_freed(world, "timeout").await?;
    not_stored(world, "timeout").await?;
    sibling.remove().await
}

/// The claim is written, but the webhook's "allowed" never arrives.
async fn an_orphan_is_freed_when_the_answer_is_lost(world: &mut World) -> TestResult {
    let plane = world.plane_front()?;
    let front = world.webhook_front.as_ref().context("no webhook")?;
    // Leaves time between the write and its answer.
    plane.set(Fault::Delay(Duration::from_millis(500)));
    let backup = plain("lost");
    let (refused, claimed) = tokio::join!(create(world, &backup), async {
        // At shorter intervals than in `claimed`.
        let claimed = tokio::time::timeout(MAX_ORPHAN_TIME, async {
            while !has_claim(world, "lost").await? {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            anyhow::Ok(())
        })
        .await;
        front.set(Fault::Refuse);
        claimed.context("no claim")?
    });
    front.set(Fault::None);
    plane.set(Fault::None);
    claimed?;
    let status = refusal(refused)?;
    ensure!(
        status.code == 500 && status.message.contains("failed calling webhook"),
        "{status:?}"
    );
    not_stored(world, "lost").await?;
    is_freed(world, "lost").await
}

/// Whether the object is stored is open when its client gives up: it may appear as soon as etcd
/// continues. Either way the claim ends.
async fn an_orphan_is_freed_when_etcd_stands_still(world: &mut World) -> TestResult {
    world.needs_own_plane()?;
    let sibling = Sibling::start(&world.client, world.folder()).await?;
    let kubectl = world.kubectl()?;
    let (mut late, mut never) = (0, 0);
    for round in 0..2 {
        let name = format!("etcd-{round}");
        let manifest = kubectl.manifest(&with_kind(&wishing(&name, "delay-700")))?;
        let flags = ["--timeout", "3s"];
        let (answer, stood_still) =
            tokio::join!(kubectl.client_go(&manifest, "backups", &flags), async {
                claimed(world, &name).await?;
                let etcd = world.plane.etcd.as_ref().context("no etcd")?;
                etcd.pause()?;
                tokio::time::sleep(Duration::from_secs(5)).await;
                etcd.resume()
            });
        stood_still?;
        let answer = answer?;
        ensure!(
            !answer.error.is_empty() && answer.elapsed_seconds < 5.0,
            "{answer:?}"
        );
        answering(world).await?;
        // Long enough for running requests, and for a controller that could not renew its lease to
        // end.
        tokio::time::sleep(Duration::from_secs(6)).await;
        world.controllers_run().await?;
        if world.backups().get_opt(&name).await?.is_some() {
            late += 1;
            world.backup_ended(&name).await?;
        } else {
            never += 1;
        }
        is_freed(world, &name).await?;
    }
    println!("    appeared after the client had its error: {late}, never stored: {never}");
    sibling.remove().await
}

async fn an_orphan_is_freed_when_the_api_server_is_killed(world: &mut World) -> TestResult {
    world.needs_own_plane()?;
    let sibling = Sibling::start(&world.client, world.folder()).await?;
    leaves_when_claimed(world, "killed").await?;
    // The client has ended too, or it would retry when the server is back.
    world.plane.api_servers[0].restart().await?;
    answering(world).await?;
    not_stored(world, "killed").await?;
    is_freed(world, "killed").await?;
    sibling.remove().await
}

async fn a_dry_run_leaves_no_orphan(world: &mut World) -> TestResult {
    world
        .backups()
        .create(&dry_run(), &plain("rehearsed"))
        .await?;
    let apply = PatchParams {
        dry_run: true,
        ..PatchParams::apply("a-pipeline")
    };
    world
        .backups()
        .patch(
            "rehearsed",
            &apply,
            &Patch::Apply(with_kind(&plain("rehearsed"))),
        )
        .await?;
    ensure!(
        !has_claim(world, "rehearsed").await?,
        "a dry run wrote the ledger"
    );
    let free = world
        .create_claiming_restore("after-rehearsed", "orphan-rehearsed")
        .await;
    free.context("nothing is in the way")?;
    done(world, "after-rehearsed").await
}

/// A Backup of a separate namespace, `orphan-<name>`.
fn plain(name: &str) -> Backup {
    Backup::new(name, of_namespaces(&[&format!("orphan-{name}")]))
}

/// The same Backup, with an instruction for the sibling webhook.
fn wishing(name: &str, wish: &str) -> Backup {
    annotated(plain(name), ANNOTATION, wish)
}

async fn create(world: &World, backup: &Backup) -> anyhow::Result<Backup> {
    Ok(world.backups().create_object(backup).await?)
}

/// The names of the Backups that have a claim in the ledger.
async fn claims(world: &World) -> anyhow::Result<Vec<String>> {
    let claims = Ledger::from_json(&world.claims().await?)?
        .claims
        .into_iter()
        .map(|claim| claim.key);
    Ok(claims
        .filter(|key| key.kind == ObjectKind::Backup)
        .map(|key| key.name)
        .collect())
}

/// Whether a Backup with this name, or a name generated from it, has a claim.
async fn has_claim(world: &World, name: &str) -> anyhow::Result<bool> {
    Ok(claims(world)
        .await?
        .iter()
        .any(|claimed| claimed.starts_with(name)))
}

/// Waits until the ledger has a claim of this name.
async fn claimed(world: &World, name: &str) -> anyhow::Result<()> {
    until(&format!("{name} is claimed"), MAX_ORPHAN_TIME, async || {
        has_claim(world, name).await
    })
    .await
}

/// A client that disconnects once its claim exists, while the sibling webhook has not answered yet.
async fn leaves_when_claimed(world: &World, name: &str) -> anyhow::Result<()> {
    let backup = wishing(name, "delay-3000");
    tokio::select! {
        answer = create(world, &backup) => bail!("answered too early: {answer:?}"),
        claimed = claimed(world, name) => claimed,
    }
}

async fn unclaimed(world: &World, name: &str) -> anyhow::Result<()> {
    eventually(
        &format!("no claim of {name} is left"),
        MAX_ORPHAN_TIME,
        async || {
            anyhow::Ok(when(
                !has_claim(world, name).await?,
                format!("{:?}", claims(world).await?),
            ))
        },
    )
    .await
}

/// Checks that another component refused the creation for this reason, and that the ledger has our
/// claim.
async fn is_an_orphan(
    world: &World,
    name: &str,
    refused: anyhow::Result<Backup>,
    why: &str,
) -> anyhow::Result<()> {
    // Read first: it does not exist for long.
    let claimed = has_claim(world, name).await?;
    let status = refusal(refused)?;
    ensure!(
        status.message.contains(why),
        "refused for another reason than {why}: {status:?}"
    );
    ensure!(claimed, "no orphan was made");
    Ok(())
}

/// Checks that the claim keeps a restore of the same namespace out only for a bounded time, and is
/// then removed from the ledger.
async fn is_freed(world: &World, name: &str) -> anyhow::Result<()> {
    let (after, start) = (format!("after-{name}"), Instant::now());
    let mut refused = 0;
    eventually(
        &format!("a restore where {name} had its claim"),
        MAX_ORPHAN_TIME,
        async || {
            let created = world
                .create_claiming_restore(&after, &format!("orphan-{name}"))
                .await;
            refused += usize::from(created.is_err());
            created.map(Probe::Ready)
        },
    )
    .await?;
    println!(
        "    {name}: free after {:.1} s ({refused} refusals)",
        start.elapsed().as_secs_f64()
    );
    done(world, &after).await?;
    unclaimed(world, name).await
}

/// Deletes a restore and waits until it is gone.
async fn done(world: &World, name: &str) -> anyhow::Result<()> {
    world.restores().delete_object(name).await?;
    world.restores().wait_gone(name, MAX_ORPHAN_TIME).await
}

async fn not_stored(world: &World, name: &str) -> anyhow::Result<()> {
    ensure!(!world.backups().exists(name).await?, "{name} is stored");
    Ok(())
}

/// Waits until the API server answers again.
async fn answering(world: &World) -> anyhow::Result<()> {
    eventually(
        "the API server is back",
        Duration::from_mins(1),
        async || {
            let ready = http::Request::get("/readyz").body(Vec::new())?;
            anyhow::Ok(Probe::Ready(world.client.request_text(ready).await?))
        },
    )
    .await
    .map(drop)
}
