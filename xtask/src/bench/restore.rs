//! `cargo xtask bench restore`: time and memory of a restore, beside creating alone in the same run.

use std::time::{Duration, Instant};

use anyhow::ensure;
use backup_core::api::{BackupSpec, RestorePhase};
use backup_tests::{World, api::ApiExt as _, world::backups::from_backup};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;

use super::{
    objects,
    table::{Row, Table},
};

const GONE: Duration = Duration::from_mins(2);

pub async fn run(objects: usize) -> anyhow::Result<()> {
    super::in_world(World::builder(), async |world, table| measure(world, objects, table).await).await
}

async fn measure(world: &mut World, objects: usize, table: &mut Table) -> anyhow::Result<()> {
    let client = world.client.clone();
    let names = objects::namespaces();
    let start = Instant::now();
    objects::create(&client, 0..objects).await?;
    let floor = start.elapsed().as_secs_f64();

    world
        .back_up("bench", BackupSpec { included_namespaces: names.clone(), ..BackupSpec::default() })
        .await?;

    eprintln!("deleting {} namespaces", names.len());
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for name in &names {
        namespaces.delete_object(name).await?;
    }
    for name in &names {
        namespaces.wait_gone(name, GONE).await?;
    }
    // A fresh process, so that its peak is the restore's.
    world.renew_controller(0).await?;
    let start = Instant::now();
    world.create_restore("bench", from_backup("bench")).await?;
    world.restore_ended("bench").await?;
    let time = start.elapsed().as_secs_f64();
    world.restore_ends("bench", RestorePhase::Completed).await?;
    let memory = world.controllers[0].peak_memory_kib()?;
    let count = world.count_config_maps(&names[0]).await?;
    ensure!(count > objects / names.len(), "only {count} ConfigMaps came back in {}", names[0]);

    table.row(&Row {
        what: format!("restore of {objects} ConfigMaps of 1 KiB in {} namespaces", names.len()),
        found: format!("{time:.2} s, {:.1} times; the controller took {} MiB", time / floor, memory / 1024),
        beside: format!("creating over 32 connections {floor:.2} s"),
        asked: String::new(),
        met: None,
    });
    Ok(())
}
