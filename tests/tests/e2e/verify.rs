//! Whether a backup could be restored, for people who reach the API server and nothing else.

use anyhow::{Context as _, ensure};
use backup_tests::{
    World,
    plugin_location::PluginLocation,
    world::{
        BUCKET,
        backups::{from_backup, of_namespaces, of_place},
    },
};
use object_store::ObjectStoreExt as _;
use serde_json::Value;

crate::tests! {
    a_backup_is_verified_until_somebody_cuts_its_tarball,
    a_backup_in_the_store_of_a_plugin_is_verified,
}

async fn a_backup_is_verified_until_somebody_cuts_its_tarball(world: &mut World) -> anyhow::Result<()> {
    let name = "verified";
    world.config_maps(name, 3).await?;
    world.back_up(name, of_namespaces(&[name])).await?;
    let person = world.plugin_as("reader", Some("backup-reader")).await?;
    let seen = person.run(&["verify", name]).await?.expect_code(0)?;
    ensure!(seen.stdout.contains("can be read") && seen.stderr.is_empty(), "{seen:?}");

    let (key, bucket) = (format!("backups/{name}/{name}.tar.gz").into(), world.s3()?.bucket(BUCKET)?);
    let whole = bucket.get(&key).await?.bytes().await?;
    bucket.put(&key, whole.slice(..whole.len() / 2).into()).await?;
    let seen = person.run(&["verify", name, "-o", "json"]).await?.expect_code(1)?;
    let document: Value = serde_json::from_str(&seen.stdout)?;
    let findings = document["findings"].as_array().context("no findings")?;
    ensure!(document["good"] == false && findings.len() == 1, "{document}");
    let message = findings[0]["message"].as_str().unwrap_or_default();
    ensure!(findings[0]["file"] == "BackupContents" && message.contains("cut short"), "{document}");
    Ok(())
}

async fn a_backup_in_the_store_of_a_plugin_is_verified(world: &mut World) -> anyhow::Result<()> {
    let name = "verified-plugin";
    let place = PluginLocation::make(world, name).await?;
    world.config_maps(name, 3).await?;
    world.back_up(name, of_place(name)).await?;
    let person = world.plugin_as("reader", Some("backup-reader")).await?;
    let seen = person.run(&["verify", name]).await?.expect_code(0)?;
    ensure!(seen.stdout.contains("can be read") && seen.stderr.is_empty(), "{seen:?}");
    let screen = person.run(&["describe", name]).await?.expect_code(0)?.stdout;
    ensure!(screen.contains("4 ConfigMap") && !screen.contains("unavailable"), "{screen}");
    let log = person.run(&["logs", name]).await?.expect_code(0)?.stdout;
    ensure!(log.contains("collecting items") && log.contains("collected"), "{log}");
    let file = world.folder().join("of-a-plugin.tar.gz").display().to_string();
    person.run(&["download", name, "-o", &file]).await?.expect_code(0)?;
    let spec = from_backup(name);
    world.create_restore(name, spec).await?;
    world.restore_ended(name).await?;
    let log = person.run(&["restore", "logs", name]).await?.expect_code(0)?.stdout;
    ensure!(log.contains("restoring"), "{log}");
    place.remove(world).await
}
