//! `cargo xtask bench sync`: a bucket with many backups that the cluster does not know, behind a delay.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use backup_core::{
    api::{Backup, BackupStorageLocation},
    labels::{SYNC_ANNOTATION, SYNC_REQUEST_ANNOTATION},
    sync::Summary,
};
use backup_tests::{
    World,
    binaries::PlanePrograms,
    faulty_s3::{Asked, FaultyS3, Mood},
    install::NAMESPACE,
    proxy::Fault,
    wait::{Probe, eventually},
};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::table::{Row, Table};

/// What lies between the controller and the store, each way.
const DELAY: Duration = Duration::from_millis(20);
/// The first comparison of 10,000 backups takes at most so long (seconds) …
const FIRST: f64 = 60.0;
/// … and so much memory (MiB).
const MEMORY: u32 = 128;
/// Names in one page of a listing.
const PAGE: usize = 1000;
const PATIENCE: Duration = Duration::from_mins(15);
const LOCATION: &str = "many";

/// Measures, and prints a table.
pub async fn run(backups: usize) -> anyhow::Result<()> {
    if cfg!(debug_assertions) {
        return super::released(&["sync".to_owned(), format!("--backups={backups}")]).await;
    }
    // Built before the clock starts.
    PlanePrograms::find()?;
    let mut world = World::builder().profile("release").start().await?;
    // Nothing here needs it, and it would look at every object that is created.
    if let Some(manager) = &mut world.plane.controller_manager {
        manager.kill().await?;
    }
    let mut table = Table::default();
    let result = measure(&mut world, backups, &mut table).await;
    if result.is_err() {
        eprintln!("{}", world.logs(12));
    }
    // What was measured before an error is worth showing, too.
    table.print();
    result
}

async fn measure(world: &mut World, backups: usize, table: &mut Table) -> anyhow::Result<()> {
    world.renew_controller(0).await?;
    let s3 = world.s3.as_ref().context("the S3 server is built with Go: install it")?;
    s3.create_bucket(LOCATION).await?;
    eprintln!("writing {backups} backups of nine files each");
    for number in 0..backups {
        write(&s3.files(LOCATION), &format!("nightly-{number:06}"))?;
    }
    apply(world, &s3.url()).await?;
    s3.front.set(Fault::Delay(DELAY));
    let start = Instant::now();
    let pass = compare(world).await?;
    let first = start.elapsed().as_secs_f64();
    ensure!(pass.error.is_none() && pass.created == backups as u64, "{pass:?}");
    table.row(&Row {
        what: format!("first comparison of {backups} backups"),
        found: format!("{first:.1} s, {:.0} a second", f64::from(u32::try_from(backups)?) / first),
        beside: format!("{} ms to the store and {0} ms back", DELAY.as_millis()),
        asked: format!("{FIRST} s"),
        met: first <= FIRST,
    });
    let kib = u32::try_from(world.controllers[0].peak_memory_kib()?)?;
    table.row(&Row {
        what: "peak memory of the controller".to_owned(),
        found: format!("{:.1} MiB", f64::from(kib) / 1024.0),
        beside: format!("{backups} backups"),
        asked: format!("{MEMORY} MiB"),
        met: kib <= MEMORY * 1024,
    });

    let counted = FaultyS3::start(s3.address()).await?;
    counted.rule(|_| Mood::Slow(DELAY));
    apply(world, &counted.url()).await?;
    compare(world).await?;
    let before = versions(world).await?;
    let asked = counted.asked().len();
    let pass = compare(world).await?;
    let requests = counted.asked().split_off(asked);
    let pages = backups.div_ceil(PAGE);
    table.row(&Row {
        what: "requests when nothing has changed".to_owned(),
        found: format!("{}, {} of them a page of one listing", requests.len(), listings(&requests)),
        beside: format!("{} ms", pass.millis),
        asked: format!("one for each {PAGE} backups: {pages}"),
        met: requests.len() == pages && listings(&requests) == pages,
    });
    let written = versions(world).await?.iter().zip(&before).filter(|(now, then)| now != then).count();
    table.row(&Row {
        what: "writes of Backups when nothing has changed".to_owned(),
        found: written.to_string(),
        beside: "the location is written once".to_owned(),
        asked: "none".to_owned(),
        met: written == 0,
    });
    write(&s3.files(LOCATION), "one-more")?;
    let asked = counted.asked().len();
    let pass = compare(world).await?;
    ensure!(pass.created == 1, "{pass:?}");
    let more = counted.asked().len() - asked - (backups + 1).div_ceil(PAGE);
    table.row(&Row {
        what: "requests for one new backup, beside the listing".to_owned(),
        found: more.to_string(),
        beside: format!("{} ms with the listing", pass.millis),
        asked: "2".to_owned(),
        met: more <= 2,
    });
    Ok(())
}

/// Those that ask for names of backups.
fn listings(requests: &[Asked]) -> usize {
    requests.iter().filter(|asked| asked.query.contains("delimiter=")).count()
}

/// Writes what a backup consists of, as large as that of a small one, past the server.
fn write(bucket: &Path, name: &str) -> anyhow::Result<()> {
    let folder = bucket.join("backups").join(name);
    fs::create_dir_all(&folder)?;
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
    fs::write(folder.join("velero-backup.json"), serde_json::to_vec_pretty(&metadata)?)?;
    // A gzipped `null`.
    let nothing = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\xca\x2b\xcd\xc9\xe1\x02\x04\x00\x00\xff\xff\x3b\xdf\xa4\x9b\x05\x00\x00\x00";
    for file in [
        "-logs.gz",
        ".tar.gz",
        "-podvolumebackups.json.gz",
        "-volumesnapshots.json.gz",
        "-itemoperations.json.gz",
        "-resource-list.json.gz",
        "-results.gz",
        "-volumeinfo.json.gz",
    ] {
        fs::write(folder.join(format!("{name}{file}")), nothing)?;
    }
    Ok(())
}

/// The location, compared only when it is asked for, and validated once.
async fn apply(world: &World, url: &str) -> anyhow::Result<()> {
    let spec = json!({
        "provider": "aws", "objectStorage": { "bucket": LOCATION }, "backupSyncPeriod": "0", "validationFrequency": "0",
        "config": { "region": "us-east-1", "s3ForcePathStyle": "true", "s3Url": url },
        "credential": { "name": "cloud-credentials", "key": "cloud" },
    });
    world.apply_location(LOCATION, spec).await?;
    world.location_available(LOCATION).await
}

/// Asks for a comparison, and waits for what comes of it.
async fn compare(world: &World) -> anyhow::Result<Summary> {
    let api: Api<BackupStorageLocation> = Api::namespaced(world.client.clone(), NAMESPACE);
    let id = format!("{:?}", std::time::SystemTime::now());
    let request = json!({ "id": id }).to_string();
    let patch = json!({ "metadata": { "annotations": { SYNC_REQUEST_ANNOTATION: request } } });
    api.patch(LOCATION, &PatchParams::default(), &Patch::Merge(patch)).await?;
    eventually("the comparison has ended", PATIENCE, async || {
        let location = api.get(LOCATION).await?;
        let text = location.annotations().get(SYNC_ANNOTATION).cloned().unwrap_or_default();
        let summary: Option<Summary> = serde_json::from_str(&text).ok();
        Ok::<_, kube::Error>(match summary.filter(|summary| summary.request.as_ref() == Some(&id)) {
            Some(summary) => Probe::Ready(summary),
            None => Probe::NotYet(text),
        })
    })
    .await
}

/// Names and versions of all Backups.
async fn versions(world: &World) -> anyhow::Result<Vec<Value>> {
    let api: Api<Backup> = Api::namespaced(world.client.clone(), NAMESPACE);
    let all = api.list_metadata(&ListParams::default()).await?.items;
    Ok(all.iter().map(|backup| json!([backup.name_any(), backup.resource_version()])).collect())
}
