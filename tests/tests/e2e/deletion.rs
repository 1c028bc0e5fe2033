//! A deleted backup is removed with every version in the bucket, as soon as locks end, and without
//! a user's help.

use std::time::Instant;

use backup_core::{
    api::{
        DeleteBackupRequest, DeleteBackupRequestPhase,
        delete_backup_request::DeleteBackupRequestSpec,
    },
    deletion::Waits,
    labels::{BACKUP_UID, DELETION_WAITS_ANNOTATION, annotation},
};
use backup_tests::faulty_s3::{Asked, FaultyS3, Mood};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;

use crate::prelude::*;

crate::tests! {
    a_deletion_removes_every_version_that_a_bucket_keeps,
    a_deletion_killed_while_it_removes_versions_is_finished,
    a_locked_backup_is_deleted_by_itself_when_the_lock_ends,
    a_deletion_behind_a_legal_hold_is_retried_on_request,
    a_deletion_without_the_right_to_list_versions_reports_it,
    files_stored_under_the_name_during_a_lock_are_not_touched,
    thousands_of_versions_go_in_pages_and_with_little_memory,
}

/// Number of versions of one key; a page of a listing has a thousand.
const VERSIONS: usize = 2500;
/// Memory beyond that of the controller before (KiB).
const LITTLE: u64 = 32 * 1024;

/// A backup, and a restore from it, with older versions in the bucket if it keeps any.
async fn stored(world: &World, name: &str) -> anyhow::Result<Backup> {
    world.config_maps(name, 2).await?;
    let backup = world.back_up(name, of_place(name)).await?;
    world.create_restore(name, from_backup(name)).await?;
    world.restore_ended(name).await?;
    for key in [
        format!("backups/{name}/velero-backup.json"),
        format!("restores/{name}/restore-{name}-logs.gz"),
    ] {
        use object_store::ObjectStoreExt as _;
        let bytes = world.s3()?.read(name, &key).await?;
        world
            .s3()?
            .bucket(name)?
            .put(&key.into(), bytes.into())
            .await?;
    }
    Ok(backup)
}

/// Like `stored`, in a location behind a proxy.
async fn stored_behind_proxy(world: &World, name: &str) -> anyhow::Result<(FaultyS3, Backup)> {
    let front = world.faulty_s3().await?;
    world
        .synced_location(name, &front.url(), &json!({}))
        .await?;
    Ok((front, stored(world, name).await?))
}

async fn ask(world: &World, backup: &Backup, request: &str) -> anyhow::Result<()> {
    let spec = DeleteBackupRequestSpec {
        backup_name: backup.name_any(),
        ..Default::default()
    };
    let mut request = DeleteBackupRequest::new(request, spec);
    request
        .labels_mut()
        .insert(BACKUP_UID.to_owned(), backup.uid().unwrap_or_default());
    world
        .api::<DeleteBackupRequest>()
        .create_object(&request)
        .await?;
    Ok(())
}

/// Waits until the backup is gone, with its restore and all requests.
async fn gone(world: &World, name: &str, patience: Duration) -> anyhow::Result<()> {
    eventually(&format!("backup {name} is gone"), patience, async || {
        let backup = world
            .backups()
            .get_opt(name)
            .await?
            .map(|backup| backup.phase().to_string());
        let restore = world
            .restores()
            .get_opt(name)
            .await?
            .map(|restore| restore.phase().to_string());
        let mut requests = world.api::<DeleteBackupRequest>().list_all().await?;
        requests.retain(|one| one.spec.backup_name == name);
        let done = backup.is_none() && restore.is_none() && requests.is_empty();
        Ok::<_, kube::Error>(when(done, format!("{backup:?} {restore:?} {requests:?}")))
    })
    .await
}

/// Versions under the folders of the backup and of its restore.
async fn versions(world: &World, name: &str) -> anyhow::Result<Vec<(String, bool)>> {
    let mut all = world.s3()?.versions(name).await?;
    all.retain(|(key, _)| {
        key.starts_with(&format!("backups/{name}/")) || key.starts_with("restores/")
    });
    Ok(all)
}

fn waits_of(backup: &Backup) -> Option<Waits> {
    Waits::read(annotation(backup, DELETION_WAITS_ANNOTATION))
}

/// Waits until the backup says what its deletion is waiting for.
async fn waits(world: &World, name: &str) -> anyhow::Result<Waits> {
    let waits = |backup: &Backup| waits_of(backup).is_some();
    let backup = world
        .backups()
        .wait_until(name, "waits with its deletion", TIMEOUT, waits)
        .await?;
    waits_of(&backup).context("it waits no more")
}

/// Whether the ledger has an entry of a request.
async fn has_place(world: &World, request: &str) -> anyhow::Result<bool> {
    let claims = world.claims().await?;
    Ok(claims.contains(&format!(
        "[\"DeleteBackupRequest\",\"{NAMESPACE}\",\"{request}\""
    )))
}

/// The backup's keys that readers of the bucket see.
async fn seen(world: &World, name: &str) -> anyhow::Result<Vec<String>> {
    let mut keys = world.s3()?.keys(name).await?;
    keys.retain(|key| key.starts_with(&format!("backups/{name}/")));
    Ok(keys)
}

fn asks_versions(asked: &Asked) -> bool {
    asked
        .query
        .split('&')
        .any(|part| part == "versions=" || part == "versions")
}

/// If a bucket keeps no versions, none are requested.
async fn a_deletion_removes_every_version_that_a_bucket_keeps(world: &mut World) -> TestResult {
    for (name, keeps) in [("all-versions", true), ("no-versions", false)] {
        if keeps {
            world.s3()?.create_versioned_bucket(name).await?;
        } else {
            world.s3()?.create_bucket(name).await?;
        }
        let (front, backup) = stored_behind_proxy(world, name).await?;
        ensure!(!versions(world, name).await?.is_empty());
        let before = front.asked().len();
        ask(world, &backup, name).await?;
        gone(world, name, TIMEOUT).await?;
        ensure!(
            versions(world, name).await?.is_empty(),
            "{:?}",
            versions(world, name).await?
        );
        let asked = front.asked().split_off(before);
        ensure!(
            asked.iter().any(asks_versions) == keeps,
            "{name}: {asked:?}"
        );
        world.remove_location(name).await?;
    }
    Ok(())
}

/// The controller is killed after delete markers have hidden everything; nothing becomes visible
/// again.
async fn a_deletion_killed_while_it_removes_versions_is_finished(world: &mut World) -> TestResult {
    let name = "killed-hidden";
    world.s3()?.create_versioned_bucket(name).await?;
    let (front, backup) = stored_behind_proxy(world, name).await?;
    front.affect(Mood::Held, asks_versions);
    ask(world, &backup, name).await?;
    front
        .wait_for_request("all is hidden", TIMEOUT, asks_versions)
        .await?;
    world.controllers[0].kill().await?;
    let visible = seen(world, name).await?;
    ensure!(visible == [format!("backups/{name}/.private/owner")]);
    world.controllers[0].restart().await?;
    front.calm();
    gone(world, name, Duration::from_mins(1)).await?;
    ensure!(
        versions(world, name).await?.is_empty(),
        "{:?}",
        versions(world, name).await?
    );
    world.remove_location(name).await
}

/// The backup says until when it is locked, and another controller continues to wait.
async fn a_locked_backup_is_deleted_by_itself_when_the_lock_ends(world: &mut World) -> TestResult {
    let name = "locked-away";
    world.s3()?.create_lockable_bucket(name).await?;
    let (front, backup) = stored_behind_proxy(world, name).await?;
    let now = Timestamp::from_second(Timestamp::now().as_second())?;
    let (first, last) = (
        now + SignedDuration::from_secs(20),
        now + SignedDuration::from_secs(40),
    );
    let key = |file: &str| format!("backups/{name}/{file}");
    world
        .s3()?
        .lock(name, &key("velero-backup.json"), first)
        .await?;
    world
        .s3()?
        .lock(name, &key(&format!("{name}.tar.gz")), last)
        .await?;
    world
        .s3()?
        .lock(name, &key(".private/owner"), first)
        .await?;
    world
        .s3()?
        .lock(
            name,
            &format!("restores/{name}/restore-{name}-logs.gz"),
            first,
        )
        .await?;
    ask(world, &backup, name).await?;
    let told = waits(world, name).await?;
    ensure!(
        told.until == Some(last) && told.held == 0 && told.refused.is_none(),
        "{told:?}"
    );
    let before = front.asked().len();

    // Everything is hidden, nothing is undone, and the objects say so.
    let now = world.backups().get(name).await?;
    ensure!(
        now.phase() == BackupPhase::Deleting && now.uid() == backup.uid(),
        "{now:?}"
    );
    let request = world.api::<DeleteBackupRequest>().get(name).await?.status;
    ensure!(
        request.phase == Some(DeleteBackupRequestPhase::InProgress) && request.errors.is_empty(),
        "{request:?}"
    );
    ensure!(seen(world, name).await? == [key(".private/owner")]);
    let described = world
        .kubectl_backup()
        .run(&["describe", name])
        .await?
        .stdout;
    let sentence = format!("its deletion waits until {last} (object lock)");
    says(&described, &[&sentence])?;
    let listed = world.kubectl_backup().run(&["get", name]).await?.stdout;
    let date = last.strftime("%Y-%m-%d %H:%MZ").to_string();
    ensure!(
        listed.contains(&format!("Deleting (locked until {date})")),
        "{listed}"
    );

    // It needs no place in the ledger, which might not hold all such deletions. No restore begins
    // from the backup.
    until("its place is given back", TIMEOUT, async || {
        anyhow::Ok(!has_place(world, name).await?)
    })
    .await?;
    let late = format!("{name}-late");
    world
        .run_restore(&late, from_backup(name), RestorePhase::FailedValidation)
        .await?;
    world.restores().delete_object(&late).await?;

    // Another controller waits, too, without requests to the store meanwhile.
    world.controllers[0].restart().await?;
    let left = last.duration_since(Timestamp::now()) - SignedDuration::from_secs(3);
    tokio::time::sleep(Duration::try_from(left)?).await;
    let asked = front.asked().split_off(before);
    // (Its location is validated and compared with the cluster meanwhile.)
    let of_deletion = |asked: &&Asked| {
        let removes = asked.method == http::Method::DELETE || asked.query.contains("delete");
        removes || asks_versions(asked) || asked.query.contains("retention")
    };
    let touched: Vec<_> = asked.iter().filter(of_deletion).collect();
    ensure!(!asked.is_empty() && touched.is_empty(), "{touched:?}");
    ensure!(
        world.backups().get(name).await?.uid() == backup.uid(),
        "it was made anew"
    );
    ensure!(!has_place(world, name).await?, "it was given a place");

    let began = Instant::now();
    gone(world, name, Duration::from_secs(20)).await?;
    println!(
        "  gone {:.1} s after it was {:.0} s before the date",
        began.elapsed().as_secs_f64(),
        3.0
    );
    ensure!(
        versions(world, name).await?.is_empty(),
        "{:?}",
        versions(world, name).await?
    );
    world.remove_location(name).await
}

async fn a_deletion_behind_a_legal_hold_is_retried_on_request(world: &mut World) -> TestResult {
    let name = "held-back";
    world.s3()?.create_lockable_bucket(name).await?;
    world
        .synced_location(name, &world.s3()?.url(), &json!({}))
        .await?;
    let backup = stored(world, name).await?;
    let key = format!("backups/{name}/{name}-logs.gz");
    let version = world.s3()?.hold(name, &key, None, true).await?;
    ask(world, &backup, name).await?;
    let told = waits(world, name).await?;
    ensure!(
        told.until.is_none() && told.held == 1 && told.kept == 1,
        "{told:?}"
    );
    let pause = told.again.duration_since(Timestamp::now());
    ensure!(
        pause > SignedDuration::from_mins(9),
        "it is looked at too often: {pause}"
    );
    let described = world
        .kubectl_backup()
        .run(&["describe", name])
        .await?
        .stdout;
    says(&described, &["until a legal hold is taken off"])?;
    world.s3()?.hold(name, &key, Some(&version), false).await?;
    world
        .kubectl_backup()
        .succeeds(&["delete", name, "--confirm"])
        .await?;
    gone(world, name, TIMEOUT).await?;
    ensure!(
        versions(world, name).await?.is_empty(),
        "{:?}",
        versions(world, name).await?
    );
    world.remove_location(name).await
}

/// Visible objects are deleted all the same.
async fn a_deletion_without_the_right_to_list_versions_reports_it(world: &mut World) -> TestResult {
    let name = "may-not-list";
    world.s3()?.create_versioned_bucket(name).await?;
    let front = world.faulty_s3().await?;
    front.affect(Mood::Answer(403), asks_versions);
    world
        .synced_location(name, &front.url(), &json!({}))
        .await?;
    let backup = stored(world, name).await?;
    ask(world, &backup, name).await?;
    gone(world, name, TIMEOUT).await?;
    ensure!(
        seen(world, name).await?.is_empty(),
        "{:?}",
        seen(world, name).await?
    );
    ensure!(!versions(world, name).await?.is_empty());
    let location =
        |object: &ObjectReference| object.kind.as_deref() == Some("BackupStorageLocation");
    let refused = |note: &str| note.contains("s3:ListBucketVersions is not granted");
    world
        .wait_for_event("OldVersionsKept", |object, note| {
            location(object) && refused(note)
        })
        .await?;
    world.remove_location(name).await
}

async fn files_stored_under_the_name_during_a_lock_are_not_touched(
    world: &mut World,
) -> TestResult {
    use object_store::ObjectStoreExt as _;
    let name = "name-is-taken";
    world.s3()?.create_lockable_bucket(name).await?;
    world
        .synced_location(
            name,
            &world.s3()?.url(),
            &json!({ "backupSyncPeriod": "0" }),
        )
        .await?;
    let backup = stored(world, name).await?;
    let until =
        Timestamp::from_second(Timestamp::now().as_second())? + SignedDuration::from_secs(15);
    world
        .s3()?
        .lock(name, &format!("backups/{name}/{name}.tar.gz"), until)
        .await?;
    ask(world, &backup, name).await?;
    waits(world, name).await?;
    let theirs = format!("backups/{name}/velero-backup.json");
    world
        .s3()?
        .bucket(name)?
        .put(&theirs.as_str().into(), b"{}".to_vec().into())
        .await?;
    let used_again = |request: &DeleteBackupRequest| {
        request
            .status
            .errors
            .iter()
            .any(|error| error.contains("has been used again"))
    };
    world
        .api()
        .wait_until(name, "is answered", Duration::from_secs(40), used_again)
        .await?;
    ensure!(
        world.s3()?.read(name, &theirs).await?.as_ref() == b"{}",
        "theirs was touched"
    );
    world.remove_location(name).await
}

async fn thousands_of_versions_go_in_pages_and_with_little_memory(world: &mut World) -> TestResult {
    use futures::{StreamExt as _, TryStreamExt as _};
    use object_store::ObjectStoreExt as _;
    let name = "many-versions";
    world.s3()?.create_versioned_bucket(name).await?;
    let (front, backup) = stored_behind_proxy(world, name).await?;
    let bucket = world.s3()?.bucket(name)?;
    let key = object_store::path::Path::from(format!("backups/{name}/{name}-logs.gz"));
    futures::stream::iter(0..VERSIONS)
        .map(|number| bucket.put(&key, number.to_string().into_bytes().into()))
        .buffer_unordered(16)
        .try_collect::<Vec<_>>()
        .await?;
    let (before, asked, began) = (
        world.controllers[0].peak_memory_kib()?,
        front.asked().len(),
        Instant::now(),
    );
    ask(world, &backup, name).await?;
    gone(world, name, Duration::from_mins(2)).await?;
    let grown = world.controllers[0].peak_memory_kib()? - before;
    let requests = front.asked().len() - asked;
    println!(
        "  {VERSIONS} versions in {:?}, {requests} requests, {grown} KiB more",
        began.elapsed()
    );
    ensure!(
        versions(world, name).await?.is_empty(),
        "{:?}",
        versions(world, name).await?.len()
    );
    ensure!(grown < LITTLE, "{grown} KiB");
    world.remove_location(name).await
}
