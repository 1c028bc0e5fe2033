//! `cargo xtask bench sync`: a bucket with many backups that the cluster does not know, behind a
//! delay.

use std::time::{Duration, Instant};

use anyhow::ensure;
use backup_tests::{
    World,
    faulty_s3::{Asked, FaultyS3, Mood},
    proxy::Fault,
};
use kube::{ResourceExt as _, api::ListParams};
use serde_json::{Value, json};

use super::table::{Row, Table, Target};

/// Delay between the controller and the store, in each direction.
const DELAY: Duration = Duration::from_millis(20);
/// Maximum time for the first synchronisation of 10,000 backups (seconds).
const MAX_FIRST_SECONDS: f64 = 60.0;
/// Maximum memory (MiB).
const MAX_MEMORY_MIB: f64 = 128.0;
/// Names per page of a listing.
const PAGE_SIZE: usize = 1000;
const TIMEOUT: Duration = Duration::from_mins(15);
const LOCATION: &str = "many";

pub async fn measure(world: &mut World, backups: usize, table: &mut Table) -> anyhow::Result<()> {
    world.plane.stop_controller_manager().await?;
    world.renew_controller(0).await?;
    let s3 = world.s3()?;
    s3.create_bucket(LOCATION).await?;
    eprintln!("writing {backups} backups of nine files each");
    for number in 0..backups {
        write(world, &format!("nightly-{number:06}"))?;
    }
    apply(world, &s3.url()).await?;
    s3.front.set(Fault::Delay(DELAY));
    let start = Instant::now();
    let pass = world.sync_within(LOCATION, None, TIMEOUT).await?;
    let first = start.elapsed().as_secs_f64();
    ensure!(
        pass.error.is_none() && pass.created == backups as u64,
        "{pass:?}"
    );
    table.row(&Row {
        what: format!("first comparison of {backups} backups"),
        found: format!(
            "{first:.1} s, {:.0} a second",
            f64::from(u32::try_from(backups)?) / first
        ),
        beside: format!("{} ms to the store and {0} ms back", DELAY.as_millis()),
        target: Target::at_most(first, MAX_FIRST_SECONDS, " s"),
    });
    table.peak_memory(
        &world.controllers[0],
        format!("{backups} backups"),
        MAX_MEMORY_MIB,
    )?;

    let counted = FaultyS3::start(s3.address()).await?;
    counted.rule(|_| Mood::Slow(DELAY));
    apply(world, &counted.url()).await?;
    world.sync_within(LOCATION, None, TIMEOUT).await?;
    let before = versions(world).await?;
    let asked = counted.asked().len();
    let pass = world.sync_within(LOCATION, None, TIMEOUT).await?;
    let requests = counted.asked().split_off(asked);
    let pages = backups.div_ceil(PAGE_SIZE);
    table.row(&Row {
        what: "requests when nothing has changed".to_owned(),
        found: format!(
            "{}, {} of them a page of one listing",
            requests.len(),
            listings(&requests)
        ),
        beside: format!("{} ms", pass.millis),
        target: Target::new(
            format!("one for each {PAGE_SIZE} backups: {pages}"),
            requests.len() == pages && listings(&requests) == pages,
        ),
    });
    let written = versions(world)
        .await?
        .iter()
        .zip(&before)
        .filter(|(now, then)| now != then)
        .count();
    table.row(&Row {
        what: "writes of Backups when nothing has changed".to_owned(),
        found: written.to_string(),
        beside: "the location is written once".to_owned(),
        target: Target::zero(written),
    });
    write(world, "one-more")?;
    let asked = counted.asked().len();
    let pass = world.sync_within(LOCATION, None, TIMEOUT).await?;
    ensure!(pass.created == 1, "{pass:?}");
    let more = counted.asked().len() - asked - (backups + 1).div_ceil(PAGE_SIZE);
    table.row(&Row {
        what: "requests for one new backup, beside the listing".to_owned(),
        found: more.to_string(),
        beside: format!("{} ms with the listing", pass.millis),
        target: Target::new("2", more <= 2),
    });
    Ok(())
}

/// Number of requests that list names of backups.
fn listings(requests: &[Asked]) -> usize {
    requests
        .iter()
        .filter(|asked| asked.query.contains("delimiter="))
        .count()
}

/// Writes the files of a small backup directly into the bucket.
fn write(world: &World, name: &str) -> anyhow::Result<()> {
    let metadata = json!({
        "apiVersion": "velero.io/v1", "kind": "Backup",
        "metadata": { "name": name, "namespace": "velero", "uid": format!("uid-of-{name}"), "resourceVersion": "12345",
            "generation": 7, "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": { "velero.io/schedule-name": "nightly", "velero.io/storage-location": "default" },
            "annotations": { "velero.io/source-cluster-k8s-gitversion": "v1.33.1",
                "velero.io/source-cluster-k8s-major-version": "1", "velero.io/source-cluster-k8s-minor-version": "33" },
            "managedFields": [{ "apiVersion": "velero.io/v1", "fieldsType": "FieldsV1", "manager": "velero-server",
                "operation": "Update", "time": "2026-01-01T00:01:00Z", "fieldsV1": { "f:metadata": { "f:annotations": {
                ".": {}, "f:velero.io/source-cluster-k8s-gitversion": {} } }, "f:spec": { ".": {}, "f:ttl": {} },
                "f:status": { ".": {}, "f:phase": {}, "f:progress": { ".": {}, "f:itemsBackedUp": {} } } } }] },
        "spec": { "storageLocation": "default", "ttl": "720h0m0s", "includedNamespaces": ["*"], "hooks": {},
            "csiSnapshotTimeout": "10m0s", "itemOperationTimeout": "4h0m0s", "snapshotMoveData": false },
        "status": { "version": 1, "formatVersion": "1.1.0", "phase": "Completed", "startTimestamp": "2026-01-01T00:00:00Z",
            "completionTimestamp": "2026-01-01T00:01:00Z", "expiration": "2126-01-01T00:00:00Z",
            "progress": { "totalItems": 120, "itemsBackedUp": 120 }, "hookStatus": {} },
    });
    world.store_backup(LOCATION, name, &metadata)?;
    for suffix in [
        "logs.gz",
        "podvolumebackups.json.gz",
        "volumesnapshots.json.gz",
        "itemoperations.json.gz",
        "resource-list.json.gz",
        "results.gz",
        "volumeinfo.json.gz",
    ] {
        world.store_file(LOCATION, name, suffix, &Value::Null)?;
    }
    Ok(())
}

/// Applies the location; it is synchronised only on request, and validated once.
async fn apply(world: &World, url: &str) -> anyhow::Result<()> {
    let rarely = json!({ "backupSyncPeriod": "0", "validationFrequency": "0" });
    world.apply_s3_location(LOCATION, url, &rarely).await?;
    world.location_available(LOCATION).await
}

async fn versions(world: &World) -> anyhow::Result<Vec<Value>> {
    let all = world
        .backups()
        .list_metadata(&ListParams::default())
        .await?
        .items;
    Ok(all
        .iter()
        .map(|backup| json!([backup.name_any(), backup.resource_version()]))
        .collect())
}
