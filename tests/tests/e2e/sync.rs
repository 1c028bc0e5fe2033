//! Backups that are found in a bucket come into the cluster, ended and able to do nothing by themselves; what is no such backup
//! is told and harms no other.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Context as _, ensure};
use backup_core::{
    api::{
        Backup, BackupPhase, BackupStorageLocation, DeleteBackupRequest, PodVolumeBackup, RestorePhase,
        RestoreSpec, Schedule, delete_backup_request::DeleteBackupRequestSpec,
    },
    labels::{BACKUP_UID, SYNC_ANNOTATION, SYNC_PENDING_ANNOTATION, SYNC_REQUEST_ANNOTATION},
    sync::Summary,
};
use backup_tests::{
    World,
    archive::tarball,
    faulty_s3::{FaultyS3, Mood},
    install::NAMESPACE,
    snapshots::{self, SnapshotController},
    wait::{Probe, eventually, when},
    world::BUCKET,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    main_job::{backups, config_maps, create_backup, delete_namespace, of_namespaces, restore, s3},
    requests,
};

crate::tests! {
    a_backup_of_another_cluster_arrives_is_restored_and_deleted_with_its_files,
    what_arrives_has_ended_and_what_can_not_be_used_is_told_and_stops_nobody,
    a_backup_whose_deletion_was_asked_for_does_not_come_back,
    of_two_locations_with_one_name_the_second_is_told,
    objects_of_a_backup_arrive_with_it_and_its_snapshots_go_with_it,
    credentials_that_expire_in_the_middle_end_the_pass_and_the_next_one_goes_on,
    a_store_that_stands_still_holds_up_no_other_location_and_no_url,
}

pub const SOON: Duration = Duration::from_secs(30);

/// The folder of a backup, on the S3 server's disk.
pub fn folder(world: &World, bucket: &str, name: &str) -> anyhow::Result<PathBuf> {
    Ok(s3(world)?.files(bucket).join("backups").join(name))
}

/// Metadata as another cluster has written it.
pub fn metadata(name: &str, phase: &str) -> Value {
    json!({
        "apiVersion": "velero.io/v1", "kind": "Backup",
        "metadata": { "name": name, "namespace": "old", "uid": format!("old-{name}"), "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": { "velero.io/storage-location": "old" } },
        "spec": { "storageLocation": "old", "ttl": "720h0m0s", "includedNamespaces": ["nowhere"],
            "hooks": { "resources": [{ "name": "h", "pre": [{ "exec": { "command": ["/bin/false"] } }] }] } },
        "status": { "version": 1, "formatVersion": "1.1.0", "phase": phase, "startTimestamp": "2026-01-01T00:00:00Z",
            "completionTimestamp": "2026-01-01T00:01:00Z", "expiration": "2126-01-01T00:00:00Z" },
    })
}

/// Puts a backup into a bucket, as another cluster would have.
pub fn put(world: &World, bucket: &str, name: &str, metadata: &Value) -> anyhow::Result<()> {
    let folder = folder(world, bucket, name)?;
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join(format!("{name}.tar.gz")), tarball(&[("metadata/version", b"1.1.0\n")])?)?;
    std::fs::write(folder.join("velero-backup.json"), serde_json::to_vec_pretty(metadata)?)?;
    Ok(())
}

/// A location that is compared every second, with a bucket of its name.
pub async fn location(world: &World, name: &str, url: &str, more: &Value) -> anyhow::Result<()> {
    let mut spec = json!({
        "provider": "aws", "objectStorage": { "bucket": name }, "backupSyncPeriod": "1s",
        "config": { "region": "us-east-1", "s3ForcePathStyle": "true", "s3Url": url },
        "credential": { "name": "cloud-credentials", "key": "cloud" },
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    world.apply_location(name, spec).await?;
    world.location_available(name).await
}

pub fn locations(world: &World) -> Api<BackupStorageLocation> {
    Api::namespaced(world.client.clone(), NAMESPACE)
}

/// What the last pass over a location has told.
pub async fn summary(world: &World, location: &str) -> anyhow::Result<Summary> {
    let location = locations(world).get(location).await?;
    let text = location.annotations().get(SYNC_ANNOTATION).context("no pass was made")?;
    Ok(serde_json::from_str(text)?)
}

/// Asks for a pass, and gives what it has told.
pub async fn pass(world: &World, location: &str, remove: Option<u64>) -> anyhow::Result<Summary> {
    let id = format!("{:?}", std::time::SystemTime::now());
    let request = json!({ "id": id, "remove": remove }).to_string();
    let patch = json!({ "metadata": { "annotations": { SYNC_REQUEST_ANNOTATION: request } } });
    locations(world).patch(location, &PatchParams::default(), &Patch::Merge(patch)).await?;
    eventually("the pass was made", SOON, async || {
        let summary = summary(world, location).await?;
        anyhow::Ok(if summary.request.as_ref() == Some(&id) {
            Probe::Ready(summary)
        } else {
            Probe::NotYet(format!("{summary:?}"))
        })
    })
    .await
}

pub async fn arrives(world: &World, name: &str) -> anyhow::Result<Backup> {
    eventually(&format!("backup {name} is in the cluster"), SOON, async || {
        Ok::<_, kube::Error>(match backups(world).get_opt(name).await? {
            Some(backup) => Probe::Ready(backup),
            None => Probe::NotYet("it is not".to_owned()),
        })
    })
    .await
}

pub async fn leaves(world: &World, name: &str) -> anyhow::Result<()> {
    eventually(&format!("backup {name} is not in the cluster"), SOON, async || {
        Ok::<_, kube::Error>(when(backups(world).get_opt(name).await?.is_none(), "it is"))
    })
    .await
}

/// Takes a location and its Backups away, as a test that ends does.
pub async fn end(world: &World, location: &str) -> anyhow::Result<()> {
    locations(world).delete(location, &DeleteParams::default()).await?;
    for backup in backups(world).list(&ListParams::default()).await? {
        if backup.spec.storage_location.as_deref() == Some(location) {
            backups(world).delete(&backup.name_any(), &DeleteParams::default()).await?;
        }
    }
    Ok(())
}

async fn a_backup_of_another_cluster_arrives_is_restored_and_deleted_with_its_files(
    world: &mut World,
) -> anyhow::Result<()> {
    config_maps(world, "travels", 5).await?;
    create_backup(world, "travels", of_namespaces(&["travels"])).await?;
    let before = world.backup_ended("travels").await?;
    // Another cluster: the Backup is not here, and the same bucket is a location of another name, which may only be read.
    backups(world).delete("travels", &DeleteParams::default()).await?;
    delete_namespace(world, "travels").await?;
    let url = s3(world)?.url();
    let spec = json!({ "objectStorage": { "bucket": BUCKET }, "accessMode": "ReadOnly" });
    location(world, "shared", &url, &spec).await?;
    let arrived = arrives(world, "travels").await?;
    ensure!(arrived.phase() == BackupPhase::Completed && arrived.uid() != before.uid(), "{arrived:?}");
    ensure!(arrived.labels()["velero.io/storage-location"] == "shared", "{:?}", arrived.metadata);
    ensure!(arrived.spec.storage_location.as_deref() == Some("shared"), "{:?}", arrived.spec);
    ensure!(arrived.status == before.status, "{:?}", arrived.status);

    let spec = RestoreSpec { backup_name: Some("travels".to_owned()), ..RestoreSpec::default() };
    let restored = restore(world, "travels", spec).await?;
    ensure!(restored.phase() == RestorePhase::Completed, "{:?}", restored.status);
    ensure!(crate::main_job::count_config_maps(world, "travels").await? >= 5, "not all are there");
    ensure!(summary(world, "shared").await?.removed == 0, "a pass has removed something");

    let patch = json!({ "spec": { "accessMode": "ReadWrite" } });
    locations(world).patch("shared", &PatchParams::default(), &Patch::Merge(patch)).await?;
    let spec = DeleteBackupRequestSpec { backup_name: "travels".to_owned(), ..Default::default() };
    requests(world).create(&PostParams::default(), &DeleteBackupRequest::new("travels", spec)).await?;
    leaves(world, "travels").await?;
    let keys = s3(world)?.keys(BUCKET).await?;
    ensure!(!keys.iter().any(|key| key.starts_with("backups/travels/")), "{keys:?}");
    // And it does not come back.
    pass(world, "shared", None).await?;
    ensure!(backups(world).get_opt("travels").await?.is_none(), "it came back");
    end(world, "shared").await
}

fn requests(world: &World) -> Api<DeleteBackupRequest> {
    Api::namespaced(world.client.clone(), NAMESPACE)
}

async fn what_arrives_has_ended_and_what_can_not_be_used_is_told_and_stops_nobody(
    world: &mut World,
) -> anyhow::Result<()> {
    let bucket = "mixed";
    s3(world)?.create_bucket(bucket).await?;
    let mut expected: BTreeMap<&str, &str> = BTreeMap::new();
    for (phase, what) in [
        ("New", "unfinished"),
        ("Queued", "unfinished"),
        ("InProgress", "unfinished"),
        ("WaitingForPluginOperations", "unfinished"),
        ("FinalizingPartiallyFailed", "unfinished"),
        ("Deleting", "deleting"),
        ("FailedValidation", "never_ran"),
        ("Resting", "unknown_phase"),
    ] {
        let name: &'static str = Box::leak(format!("is-{}", phase.to_lowercase()).into_boxed_str());
        put(world, bucket, name, &metadata(name, phase))?;
        expected.insert(name, what);
    }
    for phase in ["Completed", "PartiallyFailed", "Failed"] {
        let name = format!("is-{}", phase.to_lowercase());
        put(world, bucket, &name, &metadata(&name, phase))?;
    }
    let mut expired = metadata("expired", "Finalizing");
    expired["status"]["expiration"] = json!("2026-02-01T00:00:00Z");
    put(world, bucket, "expired", &expired)?;
    let mut bare = metadata("bare", "");
    bare["status"] = Value::Null;
    put(world, bucket, "bare", &bare)?;
    expected.insert("bare", "unfinished");
    put(world, bucket, "renamed", &metadata("another", "Completed"))?;
    put(
        world,
        bucket,
        "a-restore",
        &json!({ "apiVersion": "velero.io/v1", "kind": "Restore", "metadata": {} }),
    )?;
    let mut newer = metadata("newer", "Completed");
    newer["status"]["formatVersion"] = json!("2.0.0");
    put(world, bucket, "newer", &newer)?;
    put(world, bucket, "no-json", &Value::Null)?;
    std::fs::write(
        folder(world, bucket, "no-json")?.join("velero-backup.json"),
        b"\x1f\x8b\x08 this is no JSON",
    )?;
    put(world, bucket, "huge", &Value::Null)?;
    std::fs::File::create(folder(world, bucket, "huge")?.join("velero-backup.json"))?.set_len(200 << 20)?;
    put(world, bucket, "half", &metadata("half", "Completed"))?;
    std::fs::remove_file(folder(world, bucket, "half")?.join("half.tar.gz"))?;
    std::fs::create_dir_all(folder(world, bucket, "photos")?)?;
    std::fs::write(folder(world, bucket, "photos")?.join("1.jpg"), b"x")?;
    put(world, bucket, "Upper Case", &metadata("Upper Case", "Completed"))?;
    let mut refused = metadata("refused", "Completed");
    refused["spec"]["snapshotVolumes"] = json!(true);
    refused["spec"]["labelSelector"] = json!({ "matchLabels": { "a": "b" } });
    refused["spec"]["uploaderConfig"] = json!({ "parallelFilesUpload": -1 });
    refused["metadata"]["labels"]["bad label"] = json!("x");
    put(world, bucket, "refused", &refused)?;
    expected.extend([
        ("renamed", "unreadable"),
        ("a-restore", "unreadable"),
        ("newer", "newer_format"),
        ("no-json", "unreadable"),
        ("huge", "unreadable"),
        ("half", "deleting"),
        ("photos", "unfinished"),
        ("Upper Case", "not_a_name"),
        ("refused", "refused"),
    ]);
    // What has expired stays to be looked at: nothing can be deleted there.
    location(world, bucket, &s3(world)?.url(), &json!({ "accessMode": "ReadOnly" })).await?;

    let told = pass(world, bucket, None).await?;
    ensure!(told.error.is_none(), "{told:?}");
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for what in expected.values() {
        *counts.entry((*what).to_owned()).or_default() += 1;
    }
    ensure!(told.skipped == counts, "{:?}, expected {counts:?}: {:?}", told.skipped, told.notes);
    for note in &told.notes {
        ensure!(expected.get(note.name.as_str()) == Some(&note.what.as_str()), "{note:?}");
    }
    for (name, phase) in [
        ("is-completed", BackupPhase::Completed),
        ("is-partiallyfailed", BackupPhase::PartiallyFailed),
        ("is-failed", BackupPhase::Failed),
        ("expired", BackupPhase::PartiallyFailed),
    ] {
        let arrived = arrives(world, name).await?;
        ensure!(arrived.phase() == phase && arrived.spec.hooks.is_none(), "{arrived:?}");
        ensure!(arrived.namespace().as_deref() == Some(NAMESPACE), "{arrived:?}");
    }
    for backup in backups(world).list(&ListParams::default()).await? {
        let name = backup.name_any();
        ensure!(name != "another" && !expected.contains_key(name.as_str()), "{name} is in the cluster");
    }
    // One that ends later arrives then.
    put(world, bucket, "photos", &metadata("photos", "Completed"))?;
    arrives(world, "photos").await?;
    end(world, bucket).await
}

async fn a_backup_whose_deletion_was_asked_for_does_not_come_back(world: &mut World) -> anyhow::Result<()> {
    let bucket = "deleted";
    s3(world)?.create_bucket(bucket).await?;
    put(world, bucket, "stuck", &metadata("stuck", "Completed"))?;
    put(world, bucket, "refused-once", &metadata("refused-once", "Completed"))?;
    // Of "stuck" the deletion had begun, and ended with errors; then somebody took the Backup away. Of the other it was refused.
    for (name, labels) in [("stuck", json!({ BACKUP_UID: "u" })), ("refused-once", json!({}))] {
        let request = json!({
            "apiVersion": "velero.io/v1", "kind": "DeleteBackupRequest",
            "metadata": { "name": name, "labels": labels }, "spec": { "backupName": name },
            "status": { "phase": "Processed", "errors": ["the array is on fire"] },
        });
        requests(world).create(&PostParams::default(), &serde_json::from_value(request)?).await?;
    }
    location(world, bucket, &s3(world)?.url(), &json!({})).await?;
    arrives(world, "refused-once").await?;
    let told = pass(world, bucket, None).await?;
    ensure!(told.skipped.get("deleting") == Some(&1), "{told:?}");
    ensure!(backups(world).get_opt("stuck").await?.is_none(), "it came back");
    requests(world).delete("stuck", &DeleteParams::default()).await?;
    arrives(world, "stuck").await?;
    requests(world).delete("refused-once", &DeleteParams::default()).await?;
    end(world, bucket).await
}

async fn of_two_locations_with_one_name_the_second_is_told(world: &mut World) -> anyhow::Result<()> {
    let url = s3(world)?.url();
    let schedules: Api<Schedule> = Api::namespaced(world.client.clone(), NAMESPACE);
    let schedule = json!({ "apiVersion": "velero.io/v1", "kind": "Schedule", "metadata": { "name": "nightly" },
        "spec": { "schedule": "0 3 * * *", "paused": true, "template": {} } });
    let schedule = schedules.create(&PostParams::default(), &serde_json::from_value(schedule)?).await?;
    let owner = |uid: &str| json!([{ "apiVersion": "velero.io/v1", "kind": "Schedule", "name": "nightly", "uid": uid }]);
    for bucket in ["first", "second"] {
        s3(world)?.create_bucket(bucket).await?;
        let mut twice = metadata("twice", "Completed");
        twice["metadata"]["ownerReferences"] = owner(&schedule.uid().unwrap_or_default());
        put(world, bucket, "twice", &twice)?;
        let mut foreign = metadata(bucket, "Completed");
        foreign["metadata"]["ownerReferences"] = owner("another-uid");
        put(world, bucket, bucket, &foreign)?;
        location(world, bucket, &url, &json!({})).await?;
        arrives(world, bucket).await?;
    }
    let twice = arrives(world, "twice").await?;
    ensure!(twice.spec.storage_location.as_deref() == Some("first"), "{:?}", twice.spec);
    ensure!(twice.owner_references().len() == 1, "{:?}", twice.metadata);
    ensure!(arrives(world, "first").await?.owner_references().is_empty(), "the owner is another Schedule");
    let told = pass(world, "second", None).await?;
    let note = told.notes.iter().find(|note| note.name == "twice").context("not told")?;
    ensure!(note.what == "conflict" && note.reason.contains("first"), "{note:?}");
    ensure!(pass(world, "first", None).await?.skipped.is_empty(), "the first has no conflict");
    schedules.delete("nightly", &DeleteParams::default()).await?;
    end(world, "second").await?;
    end(world, "first").await
}

async fn objects_of_a_backup_arrive_with_it_and_its_snapshots_go_with_it(
    world: &mut World,
) -> anyhow::Result<()> {
    if !snapshots::available() {
        return Err(crate::Skip("the definitions of snapshots come from a Go module").into());
    }
    snapshots::install_definitions(&world.client).await?;
    let driver = SnapshotController::start(&world.client);
    let bucket = "carries";
    s3(world)?.create_bucket(bucket).await?;
    for name in ["goes", "fades"] {
        driver.store(&format!("handle-{name}"));
        put(world, bucket, name, &metadata(name, "Completed"))?;
        let content = |content: &str, status: Value| {
            json!({ "metadata": { "name": content, "uid": format!("u-{content}") }, "status": status,
                "spec": { "driver": snapshots::DRIVER, "deletionPolicy": "Delete", "source": { "volumeHandle": "v" },
                    "volumeSnapshotClassName": "old-class", "volumeSnapshotRef": { "name": "x", "namespace": "y" } } })
        };
        let good = content(
            &format!("content-{name}"),
            json!({ "snapshotHandle": format!("handle-{name}"), "readyToUse": true }),
        );
        let class = json!({ "metadata": { "name": "old-class" }, "driver": snapshots::DRIVER, "deletionPolicy": "Delete" });
        let volume = json!({ "metadata": { "name": format!("{name}-x7z"), "namespace": "old",
                "labels": { "velero.io/backup-uid": "old" } },
            "spec": { "node": "n", "pod": { "name": "p" }, "volume": "v", "backupStorageLocation": "old", "repoIdentifier": "r",
                "uploaderType": "kopia" }, "status": { "phase": "Completed", "snapshotID": "s" } });
        for (file, list) in [
            (
                "csi-volumesnapshotcontents",
                json!([content(&format!("unfinished-{name}"), Value::Null), good]),
            ),
            ("csi-volumesnapshotclasses", json!([class])),
            ("podvolumebackups", json!([volume])),
        ] {
            let file = folder(world, bucket, name)?.join(format!("{name}-{file}.json.gz"));
            std::fs::write(file, gzip(&list)?)?;
        }
    }
    location(world, bucket, &s3(world)?.url(), &json!({})).await?;
    let contents = snapshots::api(&world.client, "VolumeSnapshotContent", None);
    for name in ["goes", "fades"] {
        let arrived = eventually("everything of it has arrived", SOON, async || {
            let backup = arrives(world, name).await?;
            let pending = backup.annotations().contains_key(SYNC_PENDING_ANNOTATION);
            anyhow::Ok(if pending { Probe::NotYet("pending".to_owned()) } else { Probe::Ready(backup) })
        })
        .await?;
        let volumes: Api<PodVolumeBackup> = Api::namespaced(world.client.clone(), NAMESPACE);
        let volume = volumes.get(&format!("{name}-x7z")).await?;
        ensure!(volume.owner_references()[0].uid == arrived.uid().unwrap_or_default(), "{volume:?}");
        ensure!(volume.spec.backup_storage_location == bucket, "{volume:?}");
        let content = contents.get(&format!("content-{name}")).await?;
        ensure!(content.data["spec"]["deletionPolicy"] == "Retain", "{content:?}");
        ensure!(contents.get_opt(&format!("unfinished-{name}")).await?.is_none(), "it stands for nothing");
    }
    snapshots::api(&world.client, "VolumeSnapshotClass", None).get("old-class").await?;

    // Who deletes the backup deletes its snapshots; who finds it gone leaves them.
    let spec = DeleteBackupRequestSpec { backup_name: "goes".to_owned(), ..Default::default() };
    requests(world).create(&PostParams::default(), &DeleteBackupRequest::new("goes", spec)).await?;
    leaves(world, "goes").await?;
    ensure!(driver.stored() == ["handle-fades".to_owned()].into(), "{:?}", driver.stored());
    put(world, bucket, "stays", &metadata("stays", "Completed"))?;
    std::fs::remove_dir_all(folder(world, bucket, "fades")?)?;
    leaves(world, "fades").await?;
    eventually("no content is left", SOON, async || {
        let left = contents.list(&ListParams::default()).await?.items.len();
        Ok::<_, kube::Error>(when(left == 0, left.to_string()))
    })
    .await?;
    ensure!(driver.stored() == ["handle-fades".to_owned()].into(), "the removal has destroyed a snapshot");
    end(world, bucket).await
}

pub fn gzip(list: &Value) -> anyhow::Result<Vec<u8>> {
    use std::io::Write as _;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(list.to_string().as_bytes())?;
    Ok(gzip.finish()?)
}

async fn credentials_that_expire_in_the_middle_end_the_pass_and_the_next_one_goes_on(
    world: &mut World,
) -> anyhow::Result<()> {
    let bucket = "expires";
    s3(world)?.create_bucket(bucket).await?;
    for number in 0..120 {
        let name = format!("many-{number:03}");
        put(world, bucket, &name, &metadata(&name, "Completed"))?;
    }
    let store = FaultyS3::start(s3(world)?.address()).await?;
    let looked = std::sync::atomic::AtomicUsize::new(0);
    store.rule(move |asked| {
        let one = asked.key.starts_with("backups/many-") || asked.query.contains("many-");
        let refused = one && looked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) > 60;
        if refused { Mood::Answer(403) } else { Mood::Pass }
    });
    location(world, bucket, &store.url(), &json!({})).await?;
    let told = eventually("a pass was broken off", SOON, async || {
        let summary = summary(world, bucket).await?;
        let seen = format!("{summary:?}");
        anyhow::Ok(if summary.error.is_some() { Probe::Ready(summary) } else { Probe::NotYet(seen) })
    })
    .await?;
    let error = told.error.unwrap_or_default();
    ensure!(error.contains("broken off") && error.contains("403"), "{error}");
    ensure!(locations(world).get(bucket).await?.status.last_synced_time.is_none(), "it counts as synced");
    let asked = store.asked().len();
    ensure!(asked < 400, "{asked} requests with credentials that are refused");
    store.calm();
    eventually("all have arrived", SOON, async || {
        let summary = summary(world, bucket).await?;
        let all = backups(world).list_metadata(&ListParams::default()).await?.items;
        let there = all.iter().filter(|backup| backup.name_any().starts_with("many-")).count();
        anyhow::Ok(when(there == 120 && summary.error.is_none(), format!("{there} {summary:?}")))
    })
    .await?;
    end(world, bucket).await
}

async fn a_store_that_stands_still_holds_up_no_other_location_and_no_url(
    world: &mut World,
) -> anyhow::Result<()> {
    let (still, moving) = ("stands-still", "goes-on");
    let store = FaultyS3::start(s3(world)?.address()).await?;
    for (bucket, url) in [(still, store.url()), (moving, s3(world)?.url())] {
        s3(world)?.create_bucket(bucket).await?;
        put(world, bucket, bucket, &metadata(bucket, "Completed"))?;
        location(world, bucket, &url, &json!({})).await?;
        arrives(world, bucket).await?;
    }
    store.rule(|_| Mood::Held);
    let asked = store.asked().len();
    eventually("a pass stands still", SOON, async || {
        let lists = store.asked()[asked..].iter().any(|asked| asked.query.contains("list-type"));
        anyhow::Ok(when(lists, "not yet"))
    })
    .await?;
    for (bucket, late) in [(still, "late-there"), (moving, "late-here")] {
        put(world, bucket, late, &metadata(late, "Completed"))?;
    }
    let begun = std::time::Instant::now();
    arrives(world, "late-here").await?;
    // A URL is made without the store.
    for bucket in [still, moving] {
        requests::url_of(world, "BackupLog", bucket).await?;
    }
    let took = begun.elapsed();
    ensure!(took < Duration::from_secs(10), "{took:?}");
    ensure!(backups(world).get_opt("late-there").await?.is_none(), "the store did not stand still");
    store.calm();
    arrives(world, "late-there").await?;
    for bucket in [still, moving] {
        end(world, bucket).await?;
    }
    Ok(())
}
