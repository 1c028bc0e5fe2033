//! `cargo xtask bench restore`: time and memory of a restore, beside creating alone in the same run.

use std::time::{Duration, Instant};

use anyhow::ensure;
use backup_core::api::{BackupSpec, RestorePhase};
use backup_tests::{World, api::ApiExt as _, world::backups::from_backup};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;

use super::objects;

const GONE: Duration = Duration::from_mins(2);

/// Measures the restore of so many ConfigMaps of 1 KiB, and prints a table.
pub async fn run(objects: usize) -> anyhow::Result<()> {
    let mut world = World::builder().profile("release").start().await?;
    let result = measure(&mut world, objects).await;
    if result.is_err() {
        eprintln!("{}", world.logs(12));
    }
    result
}

async fn measure(world: &mut World, objects: usize) -> anyhow::Result<()> {
    let client = world.client.clone();
    let names = objects::namespaces();
    let create_floor = timed(objects::create(&client, 0..objects)).await?;

    world
        .back_up("bench", BackupSpec { included_namespaces: names.clone(), ..BackupSpec::default() })
        .await?;

    println!("deleting {} namespaces", names.len());
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for name in &names {
        namespaces.delete_object(name).await?;
    }
    for name in &names {
        namespaces.wait_gone(name, GONE).await?;
    }
    // A fresh process, so that its peak is the restore's.
    world.renew_controller(0).await?;
    let ready = Instant::now();
    world.create_restore("bench", from_backup("bench")).await?;
    let restore = world.restore_ended("bench").await?;
    let restore_time = ready.elapsed();
    ensure!(restore.phase() == RestorePhase::Completed, "the restore ended {}", restore.phase());
    let restore_memory = world.controllers[0].peak_memory_kib()?;
    let count = world.count_config_maps(&names[0]).await?;
    ensure!(count > objects / names.len(), "only {count} ConfigMaps came back in {}", names[0]);

    println!("\n{objects} ConfigMaps of 1 KiB in {} namespaces\n", names.len());
    println!("| what | time | floor | ratio | peak memory of the controller |");
    println!("| --- | --- | --- | --- | --- |");
    row("restore (floor: creating over 32 connections)", restore_time, create_floor, restore_memory);
    Ok(())
}

fn row(what: &str, time: Duration, floor: Duration, memory_kib: u64) {
    let (time, floor) = (time.as_secs_f64(), floor.as_secs_f64());
    println!("| {what} | {time:.2} s | {floor:.2} s | {:.1} | {} MiB |", time / floor, memory_kib / 1024);
}

async fn timed(task: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<Duration> {
    let start = Instant::now();
    task.await?;
    Ok(start.elapsed())
}
