//! Time and memory of the main job, beside a floor measured in the same run.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use backup_core::api::{Backup, BackupPhase, BackupSpec, Restore, RestorePhase, RestoreSpec};
use backup_tests::{
    World,
    app::{create_all, gone},
    install::{NAMESPACE, ensure_namespace},
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
    core::ApiResource,
};
use serde_json::{Value, json};

const NAMESPACES: usize = 20;

/// Measures backup and restore of so many ConfigMaps of 1 KiB, and prints a table.
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
    let names: Vec<String> = (0..NAMESPACES).map(|number| format!("bench-{number:02}")).collect();
    for name in &names {
        ensure_namespace(&client, name).await?;
    }
    let create_floor = timed(create_all(&client, config_maps(&names, objects))).await?;
    // The second of two: the first fills the API server's caches for whoever comes next.
    list_pages(&client).await?;
    let list_floor = timed(list_pages(&client)).await?;

    let backups: Api<Backup> = Api::namespaced(client.clone(), NAMESPACE);
    let spec = BackupSpec { included_namespaces: names.clone(), ..BackupSpec::default() };
    let backup_time = timed(async {
        backups.create(&PostParams::default(), &Backup::new("bench", spec)).await?;
        let phase = world.backup_ended("bench").await?.phase();
        ensure!(phase == BackupPhase::Completed, "the backup ended {phase}");
        Ok(())
    })
    .await?;
    let backup_memory = world.controllers[0].peak_memory_kib()?;

    println!("deleting {NAMESPACES} namespaces");
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for name in &names {
        namespaces.delete(name, &DeleteParams::background()).await?;
    }
    for name in &names {
        gone(&namespaces, name).await?;
    }
    // A fresh process, so that its peak is the restore's.
    world.renew_controller(0).await?;
    let restores: Api<Restore> = Api::namespaced(client.clone(), NAMESPACE);
    let spec = RestoreSpec { backup_name: Some("bench".into()), ..RestoreSpec::default() };
    let ready = Instant::now();
    restores.create(&PostParams::default(), &Restore::new("bench", spec)).await?;
    let restore = world.restore_ended("bench").await?;
    let restore_time = ready.elapsed();
    ensure!(restore.phase() == RestorePhase::Completed, "the restore ended {}", restore.phase());
    let restore_memory = world.controllers[0].peak_memory_kib()?;
    let items: Api<ConfigMap> = Api::namespaced(client.clone(), &names[0]);
    let count = items.list_metadata(&kube::api::ListParams::default()).await?.items.len();
    ensure!(count > objects / NAMESPACES, "only {count} ConfigMaps came back in {}", names[0]);

    println!("\n{objects} ConfigMaps of 1 KiB in {NAMESPACES} namespaces\n");
    println!("| what | time | floor | ratio | peak memory of the controller |");
    println!("| --- | --- | --- | --- | --- |");
    row("backup (floor: listing in pages of 500)", backup_time, list_floor, backup_memory);
    row("restore (floor: creating over 16 connections)", restore_time, create_floor, restore_memory);
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

fn config_maps(namespaces: &[String], count: usize) -> Vec<(ApiResource, Value)> {
    let resource = ApiResource::erase::<ConfigMap>(&());
    (0..count)
        .map(|number| {
            // Not the same letter over and over: that would flatter the compression.
            let text: String = (0..32).map(|part| format!("{:032x}", (number * 1_000_003 + part).wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect();
            let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "text": text },
                "metadata": { "name": format!("item-{number:06}"), "namespace": namespaces[number % namespaces.len()] } });
            (resource.clone(), object)
        })
        .collect()
}

async fn list_pages(client: &kube::Client) -> anyhow::Result<()> {
    let mut token = String::new();
    loop {
        let uri = format!("/api/v1/configmaps?limit=500&continue={token}");
        let text = client.request_text(http::Request::get(uri).body(Vec::new())?).await?;
        let page: Value = serde_json::from_str(&text).context("a page of ConfigMaps")?;
        match page["metadata"]["continue"].as_str().filter(|next| !next.is_empty()) {
            Some(next) => next.clone_into(&mut token),
            None => return Ok(()),
        }
    }
}
