//! Backups found in a bucket are imported into the cluster, ended and without any effect; folders
//! that are no such backup are reported, and affect no other.

use backup_core::sync::NoteKind;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

use backup_core::{
    api::{DeleteBackupRequest, PodVolumeBackup, Schedule},
    labels::BACKUP_UID,
};
use backup_tests::{
    archive::tarball,
    faulty_s3::Mood,
    people::CONTROLLER,
    snapshots::{self, SnapshotController},
    world::other_cluster::metadata,
};
use kube::api::ListParams;

use crate::prelude::*;

crate::tests! {
    a_backup_of_another_cluster_is_restored_and_deleted,
    synced_backups_have_ended_and_unusable_ones_are_reported,
    a_backup_whose_deletion_was_asked_for_does_not_come_back,
    of_two_backups_with_one_name_the_second_is_reported,
    objects_of_a_backup_arrive_with_it_and_are_deleted_with_it,
    credentials_that_expire_end_the_pass_and_the_next_goes_on,
    a_store_that_hangs_holds_up_no_other_location,
    a_tarball_that_is_stored_again_is_waited_for,
}

async fn a_backup_of_another_cluster_is_restored_and_deleted(world: &mut World) -> TestResult {
    let before = world.backed_up("travels", 5).await?;
    // Simulates another cluster: the Backup is missing here, and the same bucket is a read-only
    // location of another name.
    world.backups().delete_object("travels").await?;
    world.delete_namespace("travels").await?;
    let url = world.s3()?.url();
    let spec = json!({ "objectStorage": { "bucket": BUCKET }, "accessMode": "ReadOnly" });
    world.synced_location("shared", &url, &spec).await?;
    let arrived = world.backup_arrives("travels").await?;
    ensure!(
        arrived.phase() == BackupPhase::Completed && arrived.uid() != before.uid(),
        "{arrived:?}"
    );
    ensure!(
        arrived.labels()["velero.io/storage-location"] == "shared",
        "{:?}",
        arrived.metadata
    );
    ensure!(
        arrived.spec.storage_location.as_deref() == Some("shared"),
        "{:?}",
        arrived.spec
    );
    ensure!(arrived.status == before.status, "{:?}", arrived.status);

    world.restore("travels", from_backup("travels")).await?;
    ensure!(
        world.count_config_maps("travels").await? >= 5,
        "not all are there"
    );
    ensure!(
        world.sync_summary("shared").await?.removed == 0,
        "a pass has removed something"
    );

    world
        .locations()
        .merge_patch("shared", json!({ "spec": { "accessMode": "ReadWrite" } }))
        .await?;
    world.request_deletion("travels").await?;
    world.backup_gone("travels").await?;
    let keys = world.s3()?.keys(BUCKET).await?;
    ensure!(
        !keys.iter().any(|key| key.starts_with("backups/travels/")),
        "{keys:?}"
    );
    // It is not imported again.
    world.sync("shared", None).await?;
    ensure!(
        world.backups().get_opt("travels").await?.is_none(),
        "it came back"
    );
    world.forget_location("shared").await
}

/// As Velero leaves a bucket between the metadata of a backup and its last tarball, and if that is
/// never stored.
async fn a_tarball_that_is_stored_again_is_waited_for(world: &mut World) -> TestResult {
    let (bucket, [waits, never]) = ("again", ["again-waits", "again-never"]);
    world.s3()?.create_bucket(bucket).await?;
    let written = |name: &str, file: &str, minutes_ago: u64| -> anyhow::Result<()> {
        let file = std::fs::File::options()
            .append(true)
            .open(world.stored_folder(bucket, name)?.join(file))?;
        Ok(file.set_modified(std::time::SystemTime::now() - Duration::from_mins(minutes_ago))?)
    };
    let file = |name: &str| format!("{name}.tar.gz");
    for (name, [tarball_written, metadata_written]) in [(waits, [20, 10]), (never, [200, 190])] {
        let mut metadata = metadata(name, "Completed");
        metadata["status"]["backupItemOperationsAttempted"] = json!(1);
        metadata["status"]["backupItemOperationsCompleted"] = json!(1);
        world.store_backup(bucket, name, &metadata)?;
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m", "namespace": "nowhere" } });
        let items = [(
            "resources/configmaps/namespaces/nowhere/m.json",
            map.to_string(),
        )];
        let items = items
            .each_ref()
            .map(|(path, item)| (*path, item.as_bytes()));
        std::fs::write(
            world.stored_folder(bucket, name)?.join(file(name)),
            tarball(&items)?,
        )?;
        written(name, &file(name), tarball_written)?;
        written(name, "velero-backup.json", metadata_written)?;
    }
    world
        .synced_location(bucket, &world.s3()?.url(), &json!({}))
        .await?;
    world.backup_arrives(never).await?;
    let told = world.sync(bucket, None).await?;
    ensure!(told.skipped_as(&NoteKind::Unfinished) == 1, "{told:?}");
    ensure!(
        world.backups().get_opt(waits).await?.is_none(),
        "it came before its tarball"
    );
    written(waits, &file(waits), 5)?;
    world.backup_arrives(waits).await?;
    // Each restore reports that the last tarball was never stored.
    world.restore(never, from_backup(never)).await?;
    let results = format!("restores/{never}/restore-{never}-results.gz");
    let results = world.s3()?.document(bucket, &results).await?;
    says(
        &results["warnings"].to_string(),
        &["is older than its metadata"],
    )?;
    world.delete_namespace("nowhere").await?;
    world.forget_location(bucket).await
}

async fn synced_backups_have_ended_and_unusable_ones_are_reported(world: &mut World) -> TestResult {
    let bucket = "mixed";
    world.s3()?.create_bucket(bucket).await?;
    let mut expected: BTreeMap<&str, &str> = BTreeMap::new();
    for (phase, what) in [
        ("New", "unfinished"),
        ("Queued", "unfinished"),
        ("InProgress", "unfinished"),
        ("WaitingForPluginOperations", "unfinished"),
        ("FinalizingPartiallyFailed", "unfinished"),
        ("Deleting", "deleting"),
        ("FailedValidation", "failed_validation"),
        ("Resting", "unknown_phase"),
    ] {
        let name: &'static str = Box::leak(format!("is-{}", phase.to_lowercase()).into_boxed_str());
        world.store_backup(bucket, name, &metadata(name, phase))?;
        expected.insert(name, what);
    }
    for phase in ["Completed", "PartiallyFailed", "Failed"] {
        let name = format!("is-{}", phase.to_lowercase());
        world.store_backup(bucket, &name, &metadata(&name, phase))?;
    }
    let mut expired = metadata("expired", "Finalizing");
    expired["status"]["expiration"] = json!("2026-02-01T00:00:00Z");
    world.store_backup(bucket, "expired", &expired)?;
    let mut bare = metadata("bare", "");
    bare["status"] = Value::Null;
    world.store_backup(bucket, "bare", &bare)?;
    expected.insert("bare", "unfinished");
    world.store_backup(bucket, "renamed", &metadata("another", "Completed"))?;
    world.store_backup(
        bucket,
        "a-restore",
        &json!({ "apiVersion": "velero.io/v1", "kind": "Restore", "metadata": {} }),
    )?;
    let mut newer = metadata("newer", "Completed");
    newer["status"]["formatVersion"] = json!("2.0.0");
    world.store_backup(bucket, "newer", &newer)?;
    world.store_backup(bucket, "no-json", &Value::Null)?;
    std::fs::write(
        world
            .stored_folder(bucket, "no-json")?
            .join("velero-backup.json"),
        b"\x1f\x8b\x08 this is no JSON",
    )?;
    world.store_backup(bucket, "huge", &Value::Null)?;
    std::fs::File::create(
        world
            .stored_folder(bucket, "huge")?
            .join("velero-backup.json"),
    )?
    .set_len(200 << 20)?;
    world.store_completed(bucket, "half")?;
    std::fs::remove_file(world.stored_folder(bucket, "half")?.join("half.tar.gz"))?;
    std::fs::create_dir_all(world.stored_folder(bucket, "photos")?)?;
    std::fs::write(world.stored_folder(bucket, "photos")?.join("1.jpg"), b"x")?;
    world.store_completed(bucket, "Upper Case")?;
    let mut refused = metadata("refused", "Completed");
    refused["spec"]["snapshotVolumes"] = json!(true);
    refused["spec"]["labelSelector"] = json!({ "matchLabels": { "a": "b" } });
    refused["spec"]["uploaderConfig"] = json!({ "parallelFilesUpload": -1 });
    refused["metadata"]["labels"]["bad label"] = json!("x");
    world.store_backup(bucket, "refused", &refused)?;
    expected.extend([
        ("renamed", "unreadable"),
        ("a-restore", "unreadable"),
        ("newer", "newer_format"),
        ("no-json", "unreadable"),
        ("huge", "unreadable"),
        ("half", "deleting"),
        ("photos", "unfinished"),
        ("Upper Case", "invalid_name"),
        ("refused", "refused"),
    ]);
    // Expired backups are kept: nothing can be deleted there.
    world
        .synced_location(
            bucket,
            &world.s3()?.url(),
            &json!({ "accessMode": "ReadOnly" }),
        )
        .await?;

    let told = world.sync(bucket, None).await?;
    ensure!(told.error.is_none(), "{told:?}");
    let mut counts: BTreeMap<NoteKind, u64> = BTreeMap::new();
    for what in expected.values() {
        *counts.entry(NoteKind::from(*what)).or_default() += 1;
    }
    ensure!(
        told.skipped == counts,
        "{:?}, expected {counts:?}: {:?}",
        told.skipped,
        told.notes
    );
    for note in &told.notes {
        ensure!(
            expected.get(note.name.as_str()) == Some(&note.what.as_str()),
            "{note:?}"
        );
    }
    for (name, phase) in [
        ("is-completed", BackupPhase::Completed),
        ("is-partiallyfailed", BackupPhase::PartiallyFailed),
        ("is-failed", BackupPhase::Failed),
        ("expired", BackupPhase::PartiallyFailed),
    ] {
        let arrived = world.backup_arrives(name).await?;
        ensure!(
            arrived.phase() == phase && arrived.spec.hooks.is_none(),
            "{arrived:?}"
        );
        ensure!(
            arrived.namespace().as_deref() == Some(NAMESPACE),
            "{arrived:?}"
        );
    }
    for backup in world.backups().list_all().await? {
        let name = backup.name_any();
        ensure!(
            name != "another" && !expected.contains_key(name.as_str()),
            "{name} is in the cluster"
        );
    }
    // A backup that ends later is imported then.
    world.store_completed(bucket, "photos")?;
    world.backup_arrives("photos").await?;
    world.forget_location(bucket).await
}

async fn a_backup_whose_deletion_was_asked_for_does_not_come_back(world: &mut World) -> TestResult {
    let bucket = "deleted";
    world.s3()?.create_bucket(bucket).await?;
    world.store_completed(bucket, "stuck")?;
    world.store_completed(bucket, "refused-once")?;
    // The deletion of "stuck" had begun, and ended with errors; then a user removed the Backup.
    // That of the other was refused.
    let controller = world.plane.impersonate(CONTROLLER).await?;
    let requests: Api<DeleteBackupRequest> = Api::namespaced(controller, NAMESPACE);
    for (name, labels) in [
        ("stuck", json!({ BACKUP_UID: "u" })),
        ("refused-once", json!({})),
    ] {
        let request = json!({
            "apiVersion": "velero.io/v1", "kind": "DeleteBackupRequest",
            "metadata": { "name": name, "labels": labels }, "spec": { "backupName": name },
            "status": { "phase": "Processed", "errors": ["the array is on fire"] },
        });
        requests.create_json(request).await?;
    }
    world
        .synced_location(bucket, &world.s3()?.url(), &json!({}))
        .await?;
    world.backup_arrives("refused-once").await?;
    let told = world.sync(bucket, None).await?;
    ensure!(told.skipped_as(&NoteKind::Deleting) == 1, "{told:?}");
    ensure!(
        world.backups().get_opt("stuck").await?.is_none(),
        "it came back"
    );
    world
        .api::<DeleteBackupRequest>()
        .delete_object("stuck")
        .await?;
    world.backup_arrives("stuck").await?;
    world
        .api::<DeleteBackupRequest>()
        .delete_object("refused-once")
        .await?;
    world.forget_location(bucket).await
}

async fn of_two_backups_with_one_name_the_second_is_reported(world: &mut World) -> TestResult {
    let url = world.s3()?.url();
    let schedules: Api<Schedule> = world.api();
    let schedule = json!({ "apiVersion": "velero.io/v1", "kind": "Schedule", "metadata": { "name": "nightly" },
        "spec": { "schedule": "0 3 * * *", "paused": true, "template": {} } });
    let schedule = schedules.create_json(schedule).await?;
    let owner = |uid: &str| json!([{ "apiVersion": "velero.io/v1", "kind": "Schedule", "name": "nightly", "uid": uid }]);
    for bucket in ["first", "second"] {
        world.s3()?.create_bucket(bucket).await?;
        let mut twice = metadata("twice", "Completed");
        twice["metadata"]["ownerReferences"] = owner(&schedule.uid().unwrap_or_default());
        world.store_backup(bucket, "twice", &twice)?;
        let mut foreign = metadata(bucket, "Completed");
        foreign["metadata"]["ownerReferences"] = owner("another-uid");
        world.store_backup(bucket, bucket, &foreign)?;
        world.synced_location(bucket, &url, &json!({})).await?;
        world.backup_arrives(bucket).await?;
    }
    let twice = world.backup_arrives("twice").await?;
    ensure!(
        twice.spec.storage_location.as_deref() == Some("first"),
        "{:?}",
        twice.spec
    );
    ensure!(twice.owner_references().len() == 1, "{:?}", twice.metadata);
    ensure!(
        world
            .backup_arrives("first")
            .await?
            .owner_references()
            .is_empty(),
        "the owner is another Schedule"
    );
    let told = world.sync("second", None).await?;
    let note = told
        .notes
        .iter()
        .find(|note| note.name == "twice")
        .context("not told")?;
    ensure!(
        note.what == NoteKind::Conflict && note.reason.contains("first"),
        "{note:?}"
    );
    ensure!(
        world.sync("first", None).await?.skipped.is_empty(),
        "the first has no conflict"
    );
    world.forget_location("second").await?;
    world.forget_location("first").await?;
    // Last, as the garbage collector deletes its Backup.
    schedules.delete_object("nightly").await?;
    Ok(())
}

async fn objects_of_a_backup_arrive_with_it_and_are_deleted_with_it(
    world: &mut World,
) -> TestResult {
    let driver = SnapshotController::start(&world.client).await?;
    let bucket = "carries";
    world.s3()?.create_bucket(bucket).await?;
    for name in ["goes", "fades"] {
        driver.store(&format!("handle-{name}"));
        world.store_completed(bucket, name)?;
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
                "csi-volumesnapshotcontents.json.gz",
                json!([content(&format!("unfinished-{name}"), Value::Null), good]),
            ),
            ("csi-volumesnapshotclasses.json.gz", json!([class])),
            ("podvolumebackups.json.gz", json!([volume])),
        ] {
            world.store_file(bucket, name, file, &list)?;
        }
    }
    world
        .synced_location(bucket, &world.s3()?.url(), &json!({}))
        .await?;
    let contents = snapshots::api(&world.client, "VolumeSnapshotContent", None);
    for name in ["goes", "fades"] {
        let arrived = world.backup_synced(name).await?;
        let volumes: Api<PodVolumeBackup> = world.api();
        let volume = volumes.get(&format!("{name}-x7z")).await?;
        ensure!(
            volume.owner_references()[0].uid == arrived.uid().unwrap_or_default(),
            "{volume:?}"
        );
        ensure!(
            volume.spec.volume.backup_storage_location == bucket,
            "{volume:?}"
        );
        let content = contents.get(&format!("content-{name}")).await?;
        ensure!(
            content.data["spec"]["deletionPolicy"] == "Retain",
            "{content:?}"
        );
        ensure!(
            contents
                .get_opt(&format!("unfinished-{name}"))
                .await?
                .is_none(),
            "it stands for nothing"
        );
    }
    snapshots::api(&world.client, "VolumeSnapshotClass", None)
        .get("old-class")
        .await?;

    // Deleting a backup deletes its snapshots; snapshots of a backup missing from the bucket are
    // kept.
    world.request_deletion("goes").await?;
    world.backup_gone("goes").await?;
    ensure!(
        driver.stored() == ["handle-fades".to_owned()].into(),
        "{:?}",
        driver.stored()
    );
    world.store_completed(bucket, "stays")?;
    std::fs::remove_dir_all(world.stored_folder(bucket, "fades")?)?;
    world.backup_gone("fades").await?;
    let none_left = async || contents.list_all().await.map(|left| left.is_empty());
    until("no content is left", TIMEOUT, none_left).await?;
    ensure!(
        driver.stored() == ["handle-fades".to_owned()].into(),
        "the removal has destroyed a snapshot"
    );
    world.forget_location(bucket).await
}

async fn credentials_that_expire_end_the_pass_and_the_next_goes_on(
    world: &mut World,
) -> TestResult {
    let bucket = "expires";
    world.s3()?.create_bucket(bucket).await?;
    for number in 0..120 {
        let name = format!("many-{number:03}");
        world.store_completed(bucket, &name)?;
    }
    let store = world.faulty_s3().await?;
    let looked = AtomicUsize::new(0);
    store.rule(move |asked| {
        let one = asked.key.starts_with("backups/many-") || asked.query.contains("many-");
        let refused = one && looked.fetch_add(1, Ordering::SeqCst) > 60;
        if refused {
            Mood::Answer(403)
        } else {
            Mood::Pass
        }
    });
    world
        .synced_location(bucket, &store.url(), &json!({}))
        .await?;
    let told = eventually("a pass was broken off", TIMEOUT, async || {
        let summary = world.sync_summary(bucket).await?;
        let seen = format!("{summary:?}");
        anyhow::Ok(if summary.error.is_some() {
            Probe::Ready(summary)
        } else {
            Probe::NotYet(seen)
        })
    })
    .await?;
    let error = told.error.unwrap_or_default();
    says(&error, &["broken off", "403"])?;
    ensure!(
        world
            .locations()
            .get(bucket)
            .await?
            .status
            .last_synced_time
            .is_none(),
        "it counts as synced"
    );
    let asked = store.asked().len();
    ensure!(
        asked < 400,
        "{asked} requests with credentials that are refused"
    );
    store.calm();
    eventually("all have arrived", TIMEOUT, async || {
        let summary = world.sync_summary(bucket).await?;
        let all = world
            .backups()
            .list_metadata(&ListParams::default())
            .await?
            .items;
        let there = all
            .iter()
            .filter(|backup| backup.name_any().starts_with("many-"))
            .count();
        anyhow::Ok(when(
            there == 120 && summary.error.is_none(),
            format!("{there} {summary:?}"),
        ))
    })
    .await?;
    world.forget_location(bucket).await
}

async fn a_store_that_hangs_holds_up_no_other_location(world: &mut World) -> TestResult {
    let (still, moving) = ("stands-still", "goes-on");
    let store = world.faulty_s3().await?;
    for (bucket, url) in [(still, store.url()), (moving, world.s3()?.url())] {
        world.synced_bucket(bucket, &url, &[bucket]).await?;
    }
    store.rule(|_| Mood::Held);
    let asked = store.asked().len();
    let lists = || {
        store.asked()[asked..]
            .iter()
            .any(|asked| asked.query.contains("list-type"))
    };
    until("a pass stands still", TIMEOUT, async || anyhow::Ok(lists())).await?;
    for (bucket, late) in [(still, "late-there"), (moving, "late-here")] {
        world.store_completed(bucket, late)?;
    }
    let begun = Instant::now();
    world.backup_arrives("late-here").await?;
    // A URL is created without access to the store.
    for bucket in [still, moving] {
        world.url_of("BackupLog", bucket).await?;
    }
    let took = begun.elapsed();
    ensure!(took < Duration::from_secs(10), "{took:?}");
    ensure!(
        world.backups().get_opt("late-there").await?.is_none(),
        "the store did not stand still"
    );
    store.calm();
    world.backup_arrives("late-there").await?;
    for bucket in [still, moving] {
        world.forget_location(bucket).await?;
    }
    Ok(())
}
