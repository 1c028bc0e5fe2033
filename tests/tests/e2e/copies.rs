//! Copies of backups in a second location: made, read, kept by their own time, and deleted.

use std::collections::BTreeMap;

use backup_core::{
    api::{
        GoDuration, LocationPhase,
        backup::{BackupCopy, BackupCopyStatus},
    },
    labels::{COPY_OF_ANNOTATION, READ_FROM_ANNOTATION},
    sync::NoteKind,
};
use backup_store::crash;
use backup_tests::object_store::S3;
use bytes::Bytes;

use crate::prelude::*;

crate::tests! {
    a_backup_is_copied_within_a_server_and_to_another_and_read_from_there,
    the_copy_of_a_backup_that_expires_becomes_a_backup,
}

crate::tests! {
    KILLED:
    a_copy_is_completed_wherever_the_controller_dies,
}

/// The files of a backup that are not private, by name.
async fn files(s3: &S3, bucket: &str, backup: &str) -> anyhow::Result<BTreeMap<String, Bytes>> {
    let folder = format!("backups/{backup}/");
    let mut files = BTreeMap::new();
    for key in s3.keys(bucket).await? {
        if let Some(name) = key.strip_prefix(&folder)
            && !name.starts_with(".private/")
        {
            files.insert(name.to_owned(), s3.read(bucket, &key).await?);
        }
    }
    Ok(files)
}

async fn nothing_is_left(s3: &S3, bucket: &str, backup: &str) -> TestResult {
    let keys = s3.keys(bucket).await?;
    let folder = format!("backups/{backup}/");
    ensure!(
        !keys.iter().any(|key| key.starts_with(&folder)),
        "{bucket}: {keys:?}"
    );
    Ok(())
}

/// Waits until all copies of a backup are complete.
async fn copied(world: &World, name: &str) -> anyhow::Result<Backup> {
    world
        .backups()
        .wait_until(name, "is copied", TIMEOUT, |backup| {
            let copies = &backup.status.copies;
            !copies.is_empty() && copies.iter().all(BackupCopyStatus::is_complete)
        })
        .await
}

fn to(location: &str) -> Vec<BackupCopy> {
    vec![BackupCopy {
        location: location.to_owned(),
        ttl: Some(GoDuration::from_secs(3600)),
        ..BackupCopy::default()
    }]
}

async fn a_backup_is_copied_within_a_server_and_to_another_and_read_from_there(
    world: &mut World,
) -> TestResult {
    let (name, first, second, third) = ("copied", "copies-1", "copies-2", "copies-3");
    let s3 = world.s3()?;
    let other = S3::start(&world.folder().join("other-server")).await?;
    for (location, server) in [(first, s3), (second, s3), (third, &other)] {
        server.create_bucket(location).await?;
        world
            .synced_location(location, &server.url(), &json!({}))
            .await?;
    }
    world.config_maps(name, 5).await?;
    world.back_up(name, into_location(first, &[name])).await?;
    let person = world.kubectl_backup();
    for location in [second, third] {
        let seen = person
            .succeeds(&["copy", name, "--to", location, "--ttl=1h", "--wait"])
            .await?;
        says(&seen.stdout, &["requested"])?;
    }
    let backup = copied(world, name).await?;
    ensure!(backup.status.copies.len() == 2, "{:?}", backup.status);
    let original = files(s3, first, name).await?;
    ensure!(original.contains_key("velero-backup.json"), "{original:?}");
    for (location, server) in [(second, s3), (third, &other)] {
        ensure!(
            files(server, location, name).await? == original,
            "{location}: other files"
        );
        // The Backup of the name is the original, so this is no conflict.
        let told = world.sync(location, None).await?;
        ensure!(told.skipped_as(&NoteKind::Conflict) == 0, "{told:?}");
    }
    let screen = person.stdout(&["describe", name]).await?;
    says(&screen, &["Copies", second, third])?;
    let seen = person.succeeds(&["copy", name, "--to", second]).await?;
    says(&seen.stdout, &["was copied to", "before"])?;

    // In another cluster, or after the Backup was lost, the original is imported, and its copies
    // are found.
    world.backups().delete_object(name).await?;
    let arrived = copied(world, name).await?;
    ensure!(
        arrived.uid() != backup.uid() && arrived.spec.storage_location.as_deref() == Some(first),
        "{arrived:?}"
    );
    world
        .backups()
        .wait_until(name, "has both copies", TIMEOUT, |backup| {
            backup.status.copies.len() == 2
        })
        .await?;

    // The own location is away: a copy is read.
    let away = json!({ "spec": { "objectStorage": { "bucket": "copies-gone" } } });
    world.locations().merge_patch(first, away).await?;
    world
        .location_in(first, LocationPhase::Unavailable, TIMEOUT)
        .await?;
    world.delete_namespace(name).await?;
    let restored = world.restore(name, from_backup(name)).await?;
    let read_from = &restored.annotations()[READ_FROM_ANNOTATION];
    ensure!(
        [second, third].contains(&read_from.as_str()),
        "{:?}",
        restored.metadata
    );
    ensure!(
        world.count_config_maps(name).await? >= 5,
        "not all are there"
    );
    let back = json!({ "spec": { "objectStorage": { "bucket": first } } });
    world.locations().merge_patch(first, back).await?;
    world.location_available(first).await?;

    world.request_deletion(name).await?;
    world.backup_gone(name).await?;
    for (location, server) in [(first, s3), (second, s3), (third, &other)] {
        nothing_is_left(server, location, name).await?;
        world.sync(location, None).await?;
    }
    ensure!(
        world.backups().get_opt(name).await?.is_none(),
        "it came back"
    );
    for location in [first, second, third] {
        world.forget_location(location).await?;
    }
    Ok(())
}

async fn the_copy_of_a_backup_that_expires_becomes_a_backup(world: &mut World) -> TestResult {
    let (name, second) = ("copy-stays", "copies-stay");
    world.s3()?.create_bucket(second).await?;
    world
        .synced_location(second, &world.s3()?.url(), &json!({}))
        .await?;
    world.config_maps(name, 3).await?;
    let spec = BackupSpec {
        ttl: Some(GoDuration::from_secs(20)),
        copies: to(second),
        ..of_namespaces(&[name])
    };
    let before = world.back_up(name, spec).await?;
    copied(world, name).await?;
    // The last good one would stay.
    world
        .back_up("copy-stays-newer", of_namespaces(&[name]))
        .await?;
    let arrived = world
        .backups()
        .wait_until(name, "is in the second location", TIMEOUT, |backup| {
            backup.spec.storage_location.as_deref() == Some(second)
        })
        .await?;
    ensure!(
        arrived.uid() != before.uid()
            && arrived.annotations().contains_key(COPY_OF_ANNOTATION)
            && arrived.spec.copies.is_empty()
            && arrived.status.copies.is_empty(),
        "{arrived:?}"
    );
    let expires = |backup: &Backup| backup.status.expiration.as_ref().map(|at| at.0);
    ensure!(expires(&arrived) > expires(&before), "{arrived:?}");
    let s3 = world.s3()?;
    nothing_is_left(s3, BUCKET, name).await?;
    world.delete_namespace(name).await?;
    world.restore(name, from_backup(name)).await?;
    world.request_deletion(name).await?;
    world.backup_gone(name).await?;
    nothing_is_left(s3, second, name).await?;
    world.forget_location(second).await
}

async fn a_copy_is_completed_wherever_the_controller_dies(world: &mut World) -> TestResult {
    world.needs_debug_build()?;
    let second = "copies-killed";
    world.s3()?.create_bucket(second).await?;
    world
        .synced_location(second, &world.s3()?.url(), &json!({}))
        .await?;
    for point in crash::COPY_POINTS {
        let name = format!("copy-{point}");
        world.backed_up(&name, 2).await?;
        world.crash_at(point).await?;
        let wanted = json!({ "spec": { "copies": to(second) } });
        world.backups().merge_patch(&name, wanted).await?;
        world.crashed(point).await?;
        copied(world, &name).await?;
        let s3 = world.s3()?;
        ensure!(
            files(s3, second, &name).await? == files(s3, BUCKET, &name).await?,
            "{point}: other files"
        );
    }
    world.forget_location(second).await
}
