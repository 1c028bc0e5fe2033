//! A small tarball in the bucket that would be large in memory: its restore ends with the reason,
//! and other restores are unaffected.

use backup_tests::archive::{tarball, tarball_with_long_path};
use object_store::{ObjectStoreExt as _, path::Path as Key};

use crate::prelude::*;

crate::tests! {
    a_hostile_tarball_ends_its_restore_and_no_other,
    an_item_that_would_fill_the_memory_is_named_and_the_others_are_restored,
}

/// Half of a controller's memory limit in `deploy/`.
const LIMIT_KIB: u64 = 1 << 20;
/// Items of another restore that runs meanwhile.
const ITEMS: usize = 300;

async fn a_hostile_tarball_ends_its_restore_and_no_other(world: &mut World) -> TestResult {
    let (name, beside) = ("long-path", "beside-long-path");
    world.backed_up(name, 3).await?;
    world.backed_up(beside, ITEMS).await?;
    world.delete_namespace(name).await?;
    world.delete_namespace(beside).await?;
    replace_tarball(world, name, tarball_with_long_path(2 << 30)?).await?;

    world.create_restore(beside, from_backup(beside)).await?;
    world.create_restore(name, from_backup(name)).await?;
    let failed = world.restore_ends(name, RestorePhase::Failed).await?;
    let reason = failed.status.failure_reason.context("no reason")?;
    says(
        &reason,
        &[
            "long-path.tar.gz",
            "has 2147483648 bytes, at most 65536 are expected",
            "nothing was restored",
            "use another one",
        ],
    )?;
    world.restore_ends(beside, RestorePhase::Completed).await?;
    ensure!(
        world.count_config_maps(beside).await? >= ITEMS,
        "the other restore is not whole"
    );
    is_within_the_limit(world)
}

async fn an_item_that_would_fill_the_memory_is_named_and_the_others_are_restored(
    world: &mut World,
) -> TestResult {
    let name = "bomb";
    world.backed_up(name, 3).await?;
    world.delete_namespace(name).await?;
    let item = |item: &str, data: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{item}","namespace":"{name}"}},"data":{data}}}"#
        )
    };
    // 16 MiB of text, and 1.6 GiB when decoded.
    let bomb = item(
        "bomb",
        &format!("[{}0]", r#"{"":0},"#.repeat(16 << 20 >> 3)),
    );
    let good = item("good", r#"{"k":"v"}"#);
    let path = |item: &str| format!("resources/configmaps/namespaces/{name}/{item}.json");
    let entries = [(path("bomb"), bomb), (path("good"), good)];
    let entries = entries
        .each_ref()
        .map(|(path, json)| (path.as_str(), json.as_bytes()));
    replace_tarball(world, name, tarball(&entries)?).await?;

    world
        .run_restore(name, from_backup(name), RestorePhase::PartiallyFailed)
        .await?;
    let errors = world.restore_errors(name).await?;
    says(
        &errors,
        &[
            "resources/configmaps/namespaces/bomb/bomb.json",
            "--restore-item-memory",
        ],
    )?;
    objects_in(&world.client, name, "v1", "ConfigMap")
        .get("good")
        .await?;
    is_within_the_limit(world)
}

async fn replace_tarball(world: &World, name: &str, bytes: Vec<u8>) -> anyhow::Result<()> {
    let key = Key::from(format!("backups/{name}/{name}.tar.gz"));
    world.s3()?.bucket(BUCKET)?.put(&key, bytes.into()).await?;
    Ok(())
}

fn is_within_the_limit(world: &World) -> anyhow::Result<()> {
    for controller in &world.controllers {
        let peak = controller.peak_memory_kib()?;
        println!("{}: {} MiB at most", controller.name(), peak >> 10);
        ensure!(peak < LIMIT_KIB, "{} had {peak} KiB", controller.name());
    }
    Ok(())
}
