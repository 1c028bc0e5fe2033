//! Folders in a bucket without a finished backup are reported, and removed if they are old, hold
//! nothing of value, and have no owner.

use backup_core::sync::NoteKind;
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::SystemTime,
};

use backup_core::sync::Summary;
use backup_tests::faulty_s3::{Asked, Mood};

use crate::prelude::*;

crate::tests! {
    incomplete_backups_are_reported_and_only_old_ones_removed,
    a_folder_in_use_is_not_removed,
}

const DAY: Duration = Duration::from_hours(24);

/// Puts files of this age into a backup's folder.
fn leave(
    world: &World,
    bucket: &str,
    name: &str,
    files: &[&str],
    age: Duration,
) -> anyhow::Result<()> {
    for file in files {
        let path = world
            .stored_folder(bucket, name)?
            .join(file.replace("NAME", name));
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        std::fs::write(&path, b"somebody\n")?;
        grow_old(&path, age)?;
    }
    Ok(())
}

fn grow_old(path: &Path, age: Duration) -> anyhow::Result<()> {
    let file = std::fs::File::options().append(true).open(path)?;
    Ok(file.set_modified(SystemTime::now() - age)?)
}

fn there(world: &World, bucket: &str, name: &str) -> anyhow::Result<bool> {
    Ok(world.stored_folder(bucket, name)?.exists())
}

fn told<'s>(summary: &'s Summary, name: &str, what: &str) -> &'s str {
    let note = summary
        .notes
        .iter()
        .find(|note| note.name == name && note.what.as_str() == what);
    note.map_or("", |note| note.reason.as_str())
}

async fn incomplete_backups_are_reported_and_only_old_ones_removed(
    world: &mut World,
) -> TestResult {
    const OWNER: &str = ".private/owner";
    let bucket = "strays";
    world.s3()?.create_bucket(bucket).await?;
    let scrap = [OWNER, ".private/upload-7", "NAME-logs.gz"];
    let (old, week) = (31 * DAY, 7 * DAY);
    leave(world, bucket, "old-scrap", &scrap, old)?;
    leave(world, bucket, "week-scrap", &scrap, week)?;
    leave(world, bucket, "young-scrap", &scrap, Duration::ZERO)?;
    leave(world, bucket, "old-and-new", &[OWNER], old)?;
    leave(
        world,
        bucket,
        "old-and-new",
        &["NAME-logs.gz"],
        Duration::ZERO,
    )?;
    let stay = [
        ("old-contents", "NAME.tar.gz", "its contents are there"),
        ("old-journal", ".private/journal-1", "snapshots"),
        ("old-record", ".private/record-1", "is decided"),
        ("old-photos", "1.jpg", "no part of a backup"),
    ];
    for (name, file, _) in stay {
        leave(world, bucket, name, &[OWNER, file], old)?;
    }
    world.store_completed(bucket, "old-backup")?;
    for file in ["old-backup.tar.gz", "velero-backup.json"] {
        grow_old(&world.stored_folder(bucket, "old-backup")?.join(file), old)?;
    }
    // Of another location, which does not even exist.
    leave(world, bucket, "old-named", &scrap, old)?;
    world
        .create_backup("old-named", into_location("nowhere", &[]))
        .await?;

    let front = world.faulty_s3().await?;
    let mode = json!({ "accessMode": "ReadOnly", "backupSyncPeriod": "0" });
    world.synced_location(bucket, &front.url(), &mode).await?;
    let seen = world.sync(bucket, None).await?;
    ensure!(
        seen.pruned == 0 && told(&seen, "old-scrap", "stray").contains("ReadOnly"),
        "{seen:?}"
    );
    ensure!(
        front.asked().iter().all(|asked| !asked.writes()),
        "a location that may only be read was written to"
    );

    // Without the right to delete, the report says so.
    let mode = json!({ "accessMode": "ReadWrite", "backupSyncPeriod": "0" });
    world.synced_location(bucket, &front.url(), &mode).await?;
    front.affect(Mood::Answer(403), |asked| asked.query.contains("delete"));
    let seen = world.sync(bucket, None).await?;
    let refused = told(&seen, "old-scrap", "stray");
    ensure!(
        seen.pruned == 0
            && refused.contains("could not be removed")
            && refused.contains("AccessDenied"),
        "{seen:?}"
    );
    front.calm();

    let seen = world.sync(bucket, None).await?;
    ensure!(
        seen.pruned == 1 && told(&seen, "old-scrap", "pruned").contains("held no backup"),
        "{seen:?}"
    );
    ensure!(!there(world, bucket, "old-scrap")?, "it is still there");
    ensure!(
        told(&seen, "week-scrap", "stray").contains("it is removed after"),
        "{seen:?}"
    );
    ensure!(
        told(&seen, "week-scrap", "stray").contains("uid somebody"),
        "{seen:?}"
    );
    for name in ["young-scrap", "old-and-new"] {
        ensure!(
            !told(&seen, name, "unfinished").is_empty(),
            "{name}: {seen:?}"
        );
    }
    for (name, _, reason) in stay {
        ensure!(
            told(&seen, name, "stray").contains(reason),
            "{name}: {seen:?}"
        );
    }
    ensure!(
        seen.skipped_as(&NoteKind::Stray) == 5 && seen.removed == 0,
        "{seen:?}"
    );
    world.backup_arrives("old-backup").await?;
    let seen = world.sync(bucket, None).await?;
    ensure!(
        seen.pruned == 0 && seen.skipped_as(&NoteKind::Stray) == 5,
        "{seen:?}"
    );
    for name in stay.map(|(name, ..)| name).iter().chain(&[
        "week-scrap",
        "young-scrap",
        "old-and-new",
        "old-backup",
        "old-named",
    ]) {
        ensure!(there(world, bucket, name)?, "{name} was removed");
    }
    for (series, value) in [("sync_stray", 5.0), ("sync_pruned_total", 1.0)] {
        let series = format!("velero_backup_{series}{{backup_location_name=\"strays\"}}");
        ensure!(
            world.metric(&series).await? == Some(value),
            "{series} is not {value}"
        );
    }
    world.backups().delete_object("old-named").await?;
    world.forget_location(bucket).await
}

/// Whether a request lists the folder of a backup.
fn lists(asked: &Asked, name: &str) -> bool {
    asked.query.contains("list-type=2") && asked.query.contains(&format!("backups%2F{name}%2F"))
}

async fn a_folder_in_use_is_not_removed(world: &mut World) -> TestResult {
    let bucket = "second-look";
    world.s3()?.create_bucket(bucket).await?;
    for name in ["written", "named", "nobodys"] {
        leave(
            world,
            bucket,
            name,
            &[".private/owner", "NAME-logs.gz"],
            31 * DAY,
        )?;
    }
    let front = world.faulty_s3().await?;
    // Another cluster writes right after the first check.
    let log = world
        .stored_folder(bucket, "written")?
        .join("written-logs.gz");
    let looks = AtomicUsize::new(0);
    let is_held = Arc::new(AtomicBool::new(true));
    let held = Arc::clone(&is_held);
    front.rule(move |asked| {
        if lists(asked, "written") && looks.fetch_add(1, Ordering::SeqCst) == 1 {
            // A rule is asked at most twice about a request; the first write counts.
            let _ = std::fs::write(&log, b"more\n");
        }
        if lists(asked, "named") && held.load(Ordering::SeqCst) {
            Mood::Held
        } else {
            Mood::Pass
        }
    });
    world
        .synced_location(bucket, &front.url(), &json!({ "backupSyncPeriod": "1s" }))
        .await?;
    // A Backup is created while the folder is checked.
    front
        .wait_for_request("the folder is looked at", TIMEOUT, |asked| {
            lists(asked, "named")
        })
        .await?;
    world
        .create_backup("named", into_location("nowhere", &[]))
        .await?;
    is_held.store(false, Ordering::SeqCst);
    eventually(
        "the folder that is nobody's is removed",
        TIMEOUT,
        async || {
            let gone = !there(world, bucket, "nobodys")?;
            anyhow::Ok(when(
                gone,
                format!("{:?}", world.sync_summary(bucket).await),
            ))
        },
    )
    .await?;
    for _ in 0..2 {
        let seen = world.sync(bucket, None).await?;
        ensure!(seen.error.is_none() && seen.found >= 2, "{seen:?}");
    }
    let mut removed = Vec::new();
    for name in ["written", "named"] {
        if !there(world, bucket, name)? {
            removed.push(name);
        }
    }
    ensure!(removed.is_empty(), "{removed:?} were removed");
    world.backups().delete_object("named").await?;
    world.forget_location(bucket).await
}
