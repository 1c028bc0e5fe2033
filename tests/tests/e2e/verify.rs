//! Whether a backup could be restored, for people who reach the API server and nothing else.

use backup_tests::plugin_location::PluginLocation;
use object_store::ObjectStoreExt as _;

use crate::prelude::*;

crate::tests! {
    a_backup_is_verified_until_somebody_cuts_its_tarball,
    a_backup_in_the_store_of_a_plugin_is_verified,
}

async fn a_backup_is_verified_until_somebody_cuts_its_tarball(world: &mut World) -> anyhow::Result<()> {
    let name = "verified";
    world.backed_up(name, 3).await?;
    let person = world.reader().await?;
    let seen = person.succeeds(&["verify", name]).await?;
    ensure!(seen.stdout.contains("can be read") && seen.stderr.is_empty(), "{seen:?}");

    let (key, bucket) = (format!("backups/{name}/{name}.tar.gz").into(), world.s3()?.bucket(BUCKET)?);
    let whole = bucket.get(&key).await?.bytes().await?;
    bucket.put(&key, whole.slice(..whole.len() / 2).into()).await?;
    let seen = person.fails(1, &["verify", name, "-o", "json"]).await?;
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
    let person = world.reader().await?;
    let seen = person.succeeds(&["verify", name]).await?;
    ensure!(seen.stdout.contains("can be read") && seen.stderr.is_empty(), "{seen:?}");
    let screen = person.succeeds(&["describe", name]).await?.stdout;
    ensure!(screen.contains("4 ConfigMap") && !screen.contains("unavailable"), "{screen}");
    let log = person.succeeds(&["logs", name]).await?.stdout;
    ensure!(log.contains("collecting items") && log.contains("collected"), "{log}");
    let file = world.folder().join("of-a-plugin.tar.gz").display().to_string();
    person.succeeds(&["download", name, "-o", &file]).await?;
    world.create_restore(name, from_backup(name)).await?;
    world.restore_ended(name).await?;
    let log = person.succeeds(&["restore", "logs", name]).await?.stdout;
    ensure!(log.contains("restoring"), "{log}");
    place.remove(world).await
}
