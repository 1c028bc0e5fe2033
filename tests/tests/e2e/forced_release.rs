//! A forced release of a claim: its worker stops before it can conflict with an object admitted
//! afterwards, and nothing claims it again.

use std::time::Instant;

use kube::api::ListParams;

use backup_core::labels::{BREAK_GLASS_ANNOTATION, RESTORE_WORK_FINALIZER};
use backup_tests::percona::{BACKUP, RESTORE};

use crate::{guarded_operators::PS, percona, prelude::*};

crate::tests! {
    a_released_restore_writes_nothing_two_seconds_later,
    a_restore_that_is_ended_by_hand_writes_nothing_beside_a_backup,
    a_released_object_of_another_operator_stays_released,
    a_deleted_object_is_not_claimed_for_a_foreign_finalizer,
}

const ITEMS: usize = 6000;
/// Number of items, of which a restore has written some.
const MIN_RESTORED: usize = 200;
/// Longest time for which a worker may write after a release.
const MAX_WRITE_DELAY: Duration = Duration::from_secs(2);
/// The controller checks for objects without a claim every ten seconds.
const CHECK_TIME: Duration = Duration::from_secs(16);
const FOREIGN: &str = "example.com/keeps-it";

async fn a_released_restore_writes_nothing_two_seconds_later(world: &mut World) -> TestResult {
    world.backed_up("forced", ITEMS).await?;
    world
        .create_restore("forced", into_namespace("forced", "forced-copy"))
        .await?;
    is_in_the_middle(world, "forced-copy").await?;
    world.refused_backup("forced-copy", "forced-copy").await?;
    let plugin = world.kubectl_backup();
    let release = [
        "locks",
        "release",
        "restore/forced",
        "--reason=the node is gone",
        "--yes",
    ];
    let counted = async {
        until("it is released", TIMEOUT, async || {
            anyhow::Ok(world.claims().await?.contains(r#""Released""#))
        })
        .await?;
        let released = Instant::now();
        tokio::time::sleep(MAX_WRITE_DELAY).await;
        let then = written(world, "forced-copy").await?;
        println!(
            "    {} of {ITEMS} items {:?} after the release",
            then.len(),
            released.elapsed()
        );
        anyhow::Ok(then)
    };
    let (ran, then) = tokio::join!(plugin.succeeds(&release), counted);
    let (ran, then) = (ran?, then?);
    says(&ran.stderr, &["Its worker has stopped: it is Failed"])?;
    ensure!(ran.stdout == "restore/velero/forced released\n", "{ran:?}");
    ensure!(
        then.len() < ITEMS,
        "it was done before it could be stopped: this proves nothing"
    );
    // A backup admitted now does not overlap with any write of the restore.
    let backup = world
        .back_up("forced-copy", of_namespaces(&["forced-copy"]))
        .await?;
    let later = written(world, "forced-copy").await?;
    ensure!(
        later == then,
        "{} items were written later",
        later.len().abs_diff(then.len())
    );
    let items = is_whole(world.s3()?, BUCKET, "forced-copy", &backup).await?;
    let stored = items
        .iter()
        .filter(|item| item.to_string().contains("configmaps"))
        .count();
    ensure!(
        stored >= then.len(),
        "the backup has {stored} of {} ConfigMaps",
        then.len()
    );

    let restore = world.restores().get("forced").await?;
    ensure!(
        restore.phase() == RestorePhase::Failed,
        "{:?}",
        restore.status
    );
    let reason = restore.status.failure_reason.unwrap_or_default();
    says(
        &reason,
        &[
            "released by force by",
            "the node is gone",
            "what was written stays",
        ],
    )?;
    let shown = plugin
        .run(&["restore", "describe", "forced", "--details"])
        .await?;
    says(&shown.stdout, &["the node is gone"])?;
    ensure!(
        !world.claims().await?.contains("forced"),
        "{}",
        world.claims().await?
    );
    Ok(())
}

/// The docs name this break-glass for a worker that is gone; here the worker is alive.
async fn a_restore_that_is_ended_by_hand_writes_nothing_beside_a_backup(
    world: &mut World,
) -> TestResult {
    world.backed_up("ended", ITEMS).await?;
    world
        .create_restore("ended", into_namespace("ended", "ended-copy"))
        .await?;
    is_in_the_middle(world, "ended-copy").await?;
    let end = json!({ "status": { "phase": "Failed" },
        "metadata": { "annotations": { BREAK_GLASS_ANNOTATION: "the node is lost" } } });
    world.restores().merge_patch("ended", end).await?;
    let ended = Instant::now();
    let spec = of_namespaces(&["ended-copy"]);
    until("a backup is admitted", TIMEOUT, async || {
        match world.create_backup("ended-copy", spec.clone()).await {
            Ok(_) => anyhow::Ok(true),
            Err(error) => says(&error.to_string(), &["Restore velero/ended"]).map(|()| false),
        }
    })
    .await?;
    let then = written(world, "ended-copy").await?;
    println!(
        "    {} of {ITEMS} items, a backup admitted {:?} after the end",
        then.len(),
        ended.elapsed()
    );
    ensure!(
        then.len() < ITEMS,
        "it was done before it could be stopped: this proves nothing"
    );
    world
        .wait_for_event("ForcedEnd", |object, _| {
            object.name.as_deref() == Some("ended")
        })
        .await?;
    tokio::time::sleep(MAX_WRITE_DELAY * 2).await;
    let later = written(world, "ended-copy").await?;
    ensure!(
        later == then,
        "{} items were written later",
        later.len().abs_diff(then.len())
    );
    let held = world
        .restores()
        .get("ended")
        .await?
        .finalizers()
        .iter()
        .any(|one| one == RESTORE_WORK_FINALIZER);
    ensure!(!held, "it is still held");
    Ok(())
}

async fn a_released_object_of_another_operator_stays_released(world: &mut World) -> TestResult {
    percona::guard(world).await?;
    PS.create(world, RESTORE, "ghost", "ghost").await?;
    PS.set_state(world, RESTORE, "ghost", "Running").await?;
    let error = refusal(PS.create(world, BACKUP, "ghost-refused", "ghost").await)?;
    ensure!(error.message.contains("ghost"), "{error:?}");
    let plugin = world.kubectl_backup();
    let scope = "--scope=percona-ps/db/ghost";
    let release = [
        "locks",
        "release",
        "restore/db/ghost",
        scope,
        "--reason=its operator was removed",
        "--yes",
    ];
    let ran = plugin.succeeds(&release).await?;
    says(&ran.stderr, &["cannot be known", "another operator"])?;
    let released = Instant::now();
    for number in 0.. {
        let list = plugin
            .stdout(&["locks", "percona-ps/db/ghost", "-o", "json"])
            .await?;
        let list: Value = serde_json::from_str(&list)?;
        let entries = list["scopes"][0]["entries"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let ghost = entries
            .iter()
            .find(|entry| entry["name"] == "ghost")
            .context("it is forgotten")?;
        ensure!(
            ghost["state"] == "Released",
            "claimed again {:?} later: {ghost}",
            released.elapsed()
        );
        let name = format!("ghost-{number}");
        PS.create(world, BACKUP, &name, "ghost")
            .await
            .context("it is in the way")?;
        PS.set_state(world, BACKUP, &name, "Succeeded").await?;
        if released.elapsed() > CHECK_TIME {
            break;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    // The release is removed when the object ends.
    PS.set_state(world, RESTORE, "ghost", "Succeeded").await?;
    eventually("the release has ended", TIMEOUT, async || {
        let list = plugin
            .stdout(&["locks", "percona-ps/db/ghost", "-o", "json"])
            .await?;
        anyhow::Ok(when(!list.contains("Released"), list))
    })
    .await
}

async fn a_deleted_object_is_not_claimed_for_a_foreign_finalizer(world: &mut World) -> TestResult {
    world.backed_up("kept", ITEMS).await?;
    let mut restore = Restore::new("kept", into_namespace("kept", "kept-copy"));
    restore.metadata.finalizers = Some(vec![FOREIGN.to_owned()]);
    let uid = world
        .restores()
        .create_object(&restore)
        .await?
        .metadata
        .uid
        .context("no uid")?;
    is_in_the_middle(world, "kept-copy").await?;
    ensure!(
        world.claims().await?.contains(&uid),
        "it works without a claim"
    );
    world.restores().delete_object("kept").await?;
    let only_foreign = |restore: &Restore| restore.finalizers() == [FOREIGN];
    world
        .restores()
        .wait_until("kept", "was let go", TIMEOUT, only_foreign)
        .await?;
    let phase = world.restores().get("kept").await?.phase();
    ensure!(
        phase.is_active(),
        "it is {phase}: it had ended before it was deleted"
    );
    let let_go = Instant::now();
    world
        .back_up("kept-copy", of_namespaces(&["kept-copy"]))
        .await
        .context("it is held still")?;
    while let_go.elapsed() < CHECK_TIME {
        let claims = world.claims().await?;
        ensure!(
            !claims.contains(&uid),
            "claimed anew {:?} after it was let go: {claims}",
            let_go.elapsed()
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    world
        .restores()
        .merge_patch("kept", json!({ "metadata": { "finalizers": null } }))
        .await?;
    world.restores().wait_gone("kept", TIMEOUT).await
}

async fn is_in_the_middle(world: &World, namespace: &str) -> anyhow::Result<()> {
    until("it writes items", TIMEOUT, async || {
        let few = ListParams::default().limit(u32::try_from(MIN_RESTORED)?);
        let some = config_maps(world, namespace).list_metadata(&few).await?;
        anyhow::Ok(some.items.len() == MIN_RESTORED)
    })
    .await
}

/// Names of the ConfigMaps that a restore has written, with their resourceVersions.
async fn written(world: &World, namespace: &str) -> anyhow::Result<Vec<(String, String)>> {
    let all = config_maps(world, namespace)
        .list_metadata(&ListParams::default())
        .await?;
    let named = |map: &kube::core::PartialObjectMeta<ConfigMap>| {
        (map.name_any(), map.resource_version().unwrap_or_default())
    };
    Ok(all
        .items
        .iter()
        .map(named)
        .filter(|(name, _)| !name.starts_with("kube-root-ca"))
        .collect())
}

fn config_maps(world: &World, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(world.client.clone(), namespace)
}
