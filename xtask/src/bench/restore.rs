//! `cargo xtask bench restore`: time and memory of restores, compared with plain connections in the
//! same run.

mod mixed;
mod plugin;

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use backup_core::api::{Restore, RestoreSpec};
use backup_tests::{
    World,
    wait::until,
    world::backups::{from_backup, of_namespaces},
};
use clap::Args as ClapArgs;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
    runtime::wait::await_condition,
};
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::{
    objects::{self, CONNECTIONS},
    table::{Row, Table},
};

const TIMEOUT: Duration = Duration::from_mins(10);
/// Maximum memory of the controller (MiB).
const MAX_MEMORY_MIB: f64 = 128.0;
/// Pause before each measurement. The cluster's own controllers still work on newly created
/// objects: about 3 s on each Deployment.
pub const PAUSE: Duration = Duration::from_secs(4);
/// Name of the backup.
const BACKUP: &str = "bench";

/// What to measure.
#[derive(ClapArgs)]
pub struct Args {
    /// How many objects to back up and restore.
    #[arg(long, default_value_t = 10_000)]
    objects: usize,
    /// Measures instead objects of several kinds, some large, with owners and definitions.
    #[arg(long, conflicts_with = "plugin")]
    mixed: bool,
    /// Measures instead what a plugin that changes every object adds.
    #[arg(long)]
    pub plugin: bool,
    /// How long the bucket takes for each request, with `--plugin` (milliseconds).
    #[arg(long, default_value_t = 0, requires = "plugin")]
    delay: u64,
}

pub async fn measure(world: &mut World, args: &Args, table: &mut Table) -> anyhow::Result<()> {
    if args.mixed {
        return mixed::measure(world, args.objects, table).await;
    }
    if args.plugin {
        let delay = Duration::from_millis(args.delay);
        return plugin::measure(world, args.objects, delay, table).await;
    }
    config_maps(world, args.objects, table).await
}

async fn config_maps(world: &mut World, objects: usize, table: &mut Table) -> anyhow::Result<()> {
    let client = world.client.clone();
    let names = objects::namespaces();
    objects::create(&client, 0..objects).await?;
    back_up(world, &names).await?;

    let what = format!(
        "{objects} ConfigMaps of 1 KiB in {} namespaces",
        names.len()
    );
    let new = beside_creating(
        world,
        table,
        &what,
        async |suffix: &str, names: &[String]| {
            let metadata = json!({ "labels": objects::restored_labels(suffix) });
            objects::create_in(&client, names, &metadata, 0..objects).await
        },
    )
    .await?;
    let targets: Vec<String> = names.iter().map(|name| mapped(name, "first")).collect();
    let count = world.count_config_maps(&targets[0]).await?;
    ensure!(
        count > objects / names.len(),
        "only {count} ConfigMaps came back in {}",
        targets[0]
    );

    world.renew_controller(0).await?;
    let listed = list_and_compare(&client, &targets).await?;
    let again = restored(world, "again", into(BACKUP, &names, "first")).await?;
    table.row(&Row::times(
        "restore of what is there".to_owned(),
        again,
        format!("listing and comparing over one connection {listed:.2} s"),
        listed,
        1.5,
    ));
    table.peak_memory(&world.controllers[0], String::new(), MAX_MEMORY_MIB)?;
    resume(world, objects, new, table).await
}

/// Kills the controller at nine tenths of a restore; `whole` is the duration of the same without
/// that (seconds).
async fn resume(
    world: &mut World,
    objects: usize,
    whole: f64,
    table: &mut Table,
) -> anyhow::Result<()> {
    let names = objects::namespaces();
    world
        .create_restore("killed", into(BACKUP, &names, "second"))
        .await?;
    // The status is updated once a second, so the restore has proceeded further by then.
    let far = i64::try_from(objects * 7 / 10)?;
    let restores = world.restores();
    until("most are restored", TIMEOUT, async || {
        anyhow::Ok(items(&restores.get("killed").await?) >= far)
    })
    .await?;
    world.controllers[0].kill().await?;
    let killed = restores.get("killed").await?;
    ensure!(
        !killed.phase().is_terminal(),
        "it was over before it was killed: restore more objects"
    );
    let mut there = 0;
    for name in &names {
        there += world.count_config_maps(&mapped(name, "second")).await?;
    }
    world.kill_controller(0).await?;
    let resumed = ended(world, "killed").await?;
    // The missing objects have to be created; the rest may take a fifth of the time of a whole
    // restore.
    let missing = objects.saturating_sub(there) * 100 / objects.max(1);
    let most = f64::from(u32::try_from(20 + missing)?) / 100.0;
    table.row(&Row::times(
        format!("resume of a restore that was killed when {there} were there"),
        resumed,
        format!("the whole {whole:.2} s"),
        whole,
        most,
    ));
    Ok(())
}

/// Backs these namespaces up.
async fn back_up(world: &World, names: &[String]) -> anyhow::Result<()> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    world.back_up(BACKUP, of_namespaces(&names)).await.map(drop)
}

/// Restores everything into new namespaces, compared with creating the same over plain connections:
/// `create` gets a suffix, and the namespaces with that suffix. Returns the duration of the restore
/// (seconds).
async fn beside_creating(
    world: &mut World,
    table: &mut Table,
    what: &str,
    create: impl AsyncFn(&str, &[String]) -> anyhow::Result<()>,
) -> anyhow::Result<f64> {
    let created = async |suffix: &str| {
        let names: Vec<String> = objects::namespaces()
            .iter()
            .map(|name| mapped(name, suffix))
            .collect();
        sleep(PAUSE).await;
        let start = Instant::now();
        create(suffix, &names).await?;
        anyhow::Ok(start.elapsed().as_secs_f64())
    };
    // Creating gets slower with the number of objects: the floor is the mean of before and after.
    let before = created("before").await?;
    // A fresh process, so that its peak memory is that of the restore.
    world.renew_controller(0).await?;
    sleep(PAUSE).await;
    let spec = into(BACKUP, &objects::namespaces(), "first");
    let took = restored(world, "new", spec).await?;
    let floor = f64::midpoint(before, created("after").await?);
    table.row(&Row::times(
        format!("restore of {what}"),
        took,
        format!("creating over {CONNECTIONS} connections {floor:.2} s"),
        floor,
        1.1,
    ));
    table.peak_memory(&world.controllers[0], String::new(), MAX_MEMORY_MIB)?;
    Ok(took)
}

fn items(restore: &Restore) -> i64 {
    restore
        .status
        .progress
        .as_ref()
        .map_or(0, |progress| progress.items_restored)
}

/// A restore of everything into other namespaces, with this suffix: in a deleted namespace the API
/// server asks etcd at each creation for half a minute.
pub fn into(backup: &str, names: &[String], suffix: &str) -> RestoreSpec {
    RestoreSpec {
        namespace_mapping: names
            .iter()
            .map(|name| (name.clone(), mapped(name, suffix)))
            .collect(),
        ..from_backup(backup)
    }
}

fn mapped(name: &str, suffix: &str) -> String {
    format!("{name}-{suffix}")
}

/// The duration of a restore (seconds).
pub async fn restored(world: &World, name: &str, spec: RestoreSpec) -> anyhow::Result<f64> {
    world.create_restore(name, spec).await?;
    ended(world, name).await
}

/// The time until a restore is Completed (seconds). Uses a watch: polling would add a pause to
/// short restores.
async fn ended(world: &World, name: &str) -> anyhow::Result<f64> {
    let start = Instant::now();
    let over =
        |restore: Option<&Restore>| restore.is_some_and(|restore| restore.phase().is_terminal());
    let ended = timeout(TIMEOUT, await_condition(world.restores(), name, over)).await;
    let restore = ended.with_context(|| format!("{name} has not ended within {TIMEOUT:?}"))??;
    let time = start.elapsed().as_secs_f64();
    let status = restore.with_context(|| format!("{name} is gone"))?.status;
    ensure!(
        status.errors == 0 && status.warnings == 0,
        "{name}: {status:?}"
    );
    Ok(time)
}

/// The time to list all objects again and compare each with its former state (seconds).
async fn list_and_compare(client: &Client, names: &[String]) -> anyhow::Result<f64> {
    let before = list(client, names).await?;
    let start = Instant::now();
    let now = list(client, names).await?;
    let same = now
        .iter()
        .filter(|(name, object)| before.get(*name).is_some_and(|was| was.data == object.data));
    ensure!(same.count() == before.len(), "something has changed");
    Ok(start.elapsed().as_secs_f64())
}

async fn list(client: &Client, names: &[String]) -> anyhow::Result<HashMap<String, DynamicObject>> {
    let resource = kube::api::ApiResource::erase::<ConfigMap>(&());
    let mut all = HashMap::new();
    for name in names {
        let maps: Api<DynamicObject> = Api::namespaced_with(client.clone(), name, &resource);
        let mut params = ListParams::default().limit(500);
        loop {
            let page = maps.list(&params).await?;
            for object in page.items {
                let key = object
                    .metadata
                    .name
                    .clone()
                    .context("an object without a name")?;
                all.insert(format!("{name}/{key}"), object);
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => break,
            }
        }
    }
    Ok(all)
}
