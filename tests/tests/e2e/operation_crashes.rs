//! A controller that is killed around the operations of a backup: it goes on with the same ones, and nothing is cut twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use backup_core::api::{Backup, BackupPhase, BackupSpec};
use backup_store::crash;
use backup_tests::{
    World,
    object_store::S3,
    snapshots::{self, Behaviour, SnapshotController},
    wait::{eventually, when},
};
use kube::{ResourceExt as _, api::ListParams};
use object_store::ObjectStoreExt as _;
use serde_json::Value;

use crate::{
    crash_points::{REACHED, debug_build},
    drills::{location, noise, of, whole},
    main_job::{create_backup, s3},
};

crate::tests! {
    a_controller_that_is_killed_around_operations_goes_on_with_the_same_ones,
}

/// Bucket and location; the namespace for points where little is at stake.
const PLACE: &str = "operation-crashes";
/// The namespace for points where contents of several parts are.
const LARGE: &str = "operation-crashes-large";
/// These points.
const LATER: &[&str] = &["after-renewal", "after-record", "before-metadata"];
/// Claims in each namespace.
const CLAIMS: usize = 3;
/// Contents of more than this are more than one part (bytes).
const PART: u64 = 8 << 20;

async fn a_controller_that_is_killed_around_operations_goes_on_with_the_same_ones(
    world: &mut World,
) -> anyhow::Result<()> {
    debug_build(world)?;
    if !snapshots::available() {
        return Err(crate::Skip("the definitions of snapshots come from a Go module").into());
    }
    snapshots::install_definitions(&world.client).await?;
    snapshots::class(&world.client, "soon", Behaviour::Ready(Duration::from_millis(500)), true).await?;
    snapshots::class(&world.client, "later", Behaviour::Ready(Duration::from_secs(2)), false).await?;
    let driver = SnapshotController::start(&world.client);
    s3(world)?.create_versioned_bucket(PLACE).await?;
    location(world, PLACE, PLACE, &s3(world)?.url()).await?;
    noise(world, LARGE, 22).await?;
    for namespace in [PLACE, LARGE] {
        for (name, class) in [("one", "soon"), ("two", "soon"), ("three", "later")] {
            snapshots::claim(&world.client, namespace, name, class).await?;
        }
    }
    for point in crash::OPERATION_POINTS.iter().filter(|point| !LATER.contains(point)) {
        killed_at(world, &driver, PLACE, point).await.with_context(|| format!("killed at {point}"))?;
    }
    for point in LATER {
        killed_at(world, &driver, LARGE, point).await.with_context(|| format!("killed at {point}"))?;
    }
    Ok(())
}

async fn killed_at(
    world: &mut World,
    driver: &SnapshotController,
    namespace: &str,
    point: &str,
) -> anyhow::Result<()> {
    let name = format!("at-{point}");
    let before = driver.stored();
    world.controllers[0].restart_with("BACKUP_CRASH_AT", point).await?;
    let spec = BackupSpec { included_namespaces: vec![namespace.to_owned()], ..of(PLACE) };
    let created = create_backup(world, &name, spec).await?;
    world.controllers[0].killed(REACHED).await.context("it was not reached")?;
    let cut = driver.stored();
    let begun = begun(world, &created.uid().unwrap_or_default()).await?;
    ensure!(cut.difference(&before).count() == CLAIMS && begun.len() == CLAIMS, "{cut:?}, {begun:?}");
    world.controllers[0].restart().await?;

    let backup = world.backup_ended(&name).await?;
    ensure!(backup.phase() == BackupPhase::Completed, "{:?}", backup.status);
    let s3 = s3(world)?;
    let entries = whole(s3, PLACE, &name, &backup).await?;
    let size = s3.bucket(PLACE)?.head(&format!("backups/{name}/{name}.tar.gz").into()).await?.size;
    ensure!(size > PART || namespace == PLACE, "{size} bytes are one part only");
    ensure!(driver.stored() == cut, "cut {cut:?}, then {:?}", driver.stored());
    let operations = counts_equal_lists(s3, PLACE, &name, &backup, &entries).await?;
    ensure!(operations == begun, "begun as {begun:?}, ended as {operations:?}");
    eventually("no snapshot is left in the cluster", Duration::from_secs(20), async || {
        let left = self::begun(world, &created.uid().unwrap_or_default()).await?;
        anyhow::Ok(when(left.is_empty(), format!("{left:?}")))
    })
    .await
}

/// Ids of the operations that follow the snapshots of a backup, made of what stands in the cluster.
pub async fn begun(world: &World, uid: &str) -> anyhow::Result<BTreeSet<String>> {
    let api = snapshots::api(&world.client, "VolumeSnapshot", None);
    let params = ListParams::default().labels(&format!("velero.io/backup-uid={uid}"));
    let id = |snapshot: &kube::core::DynamicObject| {
        let time = snapshot.creation_timestamp().map(|time| time.0).unwrap_or_default();
        format!("{}/{}/{time}", snapshot.namespace().unwrap_or_default(), snapshot.name_any())
    };
    Ok(api.list(&params).await?.items.iter().map(id).collect())
}

/// Checks every count in the status against the list that it counts, `entries` of the tarball among them; the ids of the
/// operations. All of them must be operations on snapshots.
pub async fn counts_equal_lists(
    s3: &S3,
    bucket: &str,
    name: &str,
    backup: &Backup,
    entries: &[Value],
) -> anyhow::Result<BTreeSet<String>> {
    let file = async |suffix: &str| -> anyhow::Result<Value> {
        let key = format!("backups/{name}/{name}-{suffix}");
        let bytes = s3.bucket(bucket)?.get(&key.as_str().into()).await?.bytes().await?;
        Ok(serde_json::from_reader(flate2::read::MultiGzDecoder::new(bytes.as_ref()))?)
    };
    let status = &backup.status;
    let results = file("results.gz").await?;
    for (kind, count) in [("errors", status.errors), ("warnings", status.warnings)] {
        ensure!(sentences(&results[kind]) == count, "{kind}: {count} counted, listed {results}");
    }
    let operations = file("itemoperations.json.gz").await?;
    let operations = operations.as_array().cloned().unwrap_or_default();
    let ended = |phase: &str| count(operations.iter().filter(|one| one["status"]["phase"] == phase));
    ensure!(
        (
            status.backup_item_operations_attempted,
            status.backup_item_operations_completed,
            status.backup_item_operations_failed
        ) == (count(operations.iter()), ended("Completed"), ended("Failed")),
        "{status:?}, listed {operations:?}"
    );
    let volumes = file("volumeinfo.json.gz").await?;
    let volumes = volumes.as_array().cloned().unwrap_or_default();
    let good = count(volumes.iter().filter(|volume| volume["result"] == "succeeded"));
    ensure!(
        (status.csi_volume_snapshots_attempted, status.csi_volume_snapshots_completed)
            == (count(volumes.iter()), good),
        "{status:?}, listed {volumes:?}"
    );
    let list: BTreeMap<String, Vec<String>> = serde_json::from_value(file("resource-list.json.gz").await?)?;
    let listed: BTreeSet<(&String, &String)> =
        list.iter().flat_map(|(kind, names)| names.iter().map(move |name| (kind, name))).collect();
    let paths = entries.iter().filter_map(|entry| entry["name"].as_str());
    let items: BTreeSet<&str> =
        paths.filter(|path| path.starts_with("resources/") && !path.contains("-preferredversion/")).collect();
    let counted = status.progress.clone().unwrap_or_default();
    ensure!(
        items.len() == listed.len() && counted.items_backed_up == count(items.iter()),
        "counted {counted:?}, listed {listed:?}, stored {items:?}"
    );
    let id = |one: &Value| one["spec"]["operationID"].as_str().map(str::to_owned);
    let ids: BTreeSet<String> = operations.iter().filter_map(id).collect();
    ensure!(ids.len() == operations.len(), "ids are missing or there twice: {operations:?}");
    Ok(ids)
}

/// How many sentences one half of the results holds.
fn sentences(results: &Value) -> i64 {
    match results {
        Value::Array(list) => count(list.iter()),
        Value::Object(fields) => fields.values().map(sentences).sum(),
        _ => 0,
    }
}

fn count<T>(items: impl Iterator<Item = T>) -> i64 {
    items.fold(0, |count, _| count + 1)
}
