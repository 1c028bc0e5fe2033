//! Locations that a plugin serves: the one of `tests/plugins/folder.go`, which keeps objects as
//! files, writes them in place, and injects the fault that the file `do` beside them names.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use backup_core::api::LocationPhase;
use backup_tests::{
    plugin_location::{PROVIDER, PluginLocation},
    world::stored::is_whole_in_folder,
};

use crate::prelude::*;

crate::tests! {
    a_location_that_a_plugin_serves_does_the_main_job,
    locations_of_one_plugin_do_not_get_in_each_others_way,
    a_crash_at_the_end_is_finished_through_the_store_plugin,
    a_store_plugin_that_misbehaves_at_the_end_is_named,
    a_tarball_that_a_plugin_cuts_short_is_not_restored,
    a_plugin_that_answers_nonsense_is_named_and_asked_again,
    an_unknown_provider_is_reported_with_those_there_are,
}

fn files_below(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

async fn a_location_that_a_plugin_serves_does_the_main_job(world: &mut World) -> TestResult {
    let name = "served";
    let plugins = world.plugins()?;
    let place = PluginLocation::make(world, name).await?;
    world.noise(name, 22).await?;
    world.back_up(name, of_place(name)).await?;
    is_whole_in_folder(&place.store(), name).await?;
    let size = std::fs::metadata(place.file(name, "served.tar.gz"))?.len();
    ensure!(size > 8 << 20, "only {size} bytes: less than a part");
    for key in ["served/served.tar.gz", "served/velero-backup.json"] {
        ensure!(
            place.writers(key).len() == 1,
            "{key} was written {} times",
            place.writers(key).len()
        );
    }
    ensure!(
        !plugins.processes("credentials", name).is_empty(),
        "it was given no credentials"
    );

    world.delete_namespace(name).await?;
    world.restore(name, from_backup(name)).await?;
    // Including the one that every namespace gets.
    ensure!(
        world.count_config_maps(name).await? == 23,
        "not all came back"
    );
    let results = place
        .store()
        .join("restores")
        .join(name)
        .join(format!("restore-{name}-results.gz"));
    ensure!(results.exists(), "the restore has left no results");

    world.request_deletion(name).await?;
    world.backup_gone(name).await?;
    let left = files_below(place.folder())?;
    ensure!(left.is_empty(), "{left:?}");
    place.remove(world).await
}

async fn locations_of_one_plugin_do_not_get_in_each_others_way(world: &mut World) -> TestResult {
    let places = [
        PluginLocation::make(world, "served-one").await?,
        PluginLocation::make(world, "served-two").await?,
    ];
    world.config_maps("served-both", 5).await?;
    for place in &places {
        world
            .create_backup(place.name(), into_location(place.name(), &["served-both"]))
            .await?;
    }
    let mut writers = BTreeSet::new();
    for place in places {
        world
            .backup_ends(place.name(), BackupPhase::Completed)
            .await?;
        is_whole_in_folder(&place.store(), place.name()).await?;
        writers.extend(place.writers(&format!("{}/velero-backup.json", place.name())));
        place.remove(world).await?;
    }
    ensure!(
        writers.len() == 2,
        "a plugin has room for the settings of one: {writers:?}"
    );
    Ok(())
}

async fn a_crash_at_the_end_is_finished_through_the_store_plugin(world: &mut World) -> TestResult {
    world.needs_debug_build()?;
    let location = "served-killed";
    let place = PluginLocation::make(world, location).await?;
    world.noise(location, 22).await?;
    for point in [
        "mid-collection",
        "after-record",
        "after-contents",
        "before-metadata",
        "after-metadata",
    ] {
        let name = format!("{location}-{point}");
        world.crash_at(point).await?;
        world.create_backup(&name, of_place(location)).await?;
        world.crashed(point).await?;
        world.backup_ends(&name, BackupPhase::Completed).await?;
        // A controller that adopts an end removes the rest once it is published.
        eventually(
            &format!("the store of {name} is whole and tidy"),
            POINT_TIMEOUT,
            async || {
                is_whole_in_folder(&place.store(), &name)
                    .await
                    .map(Probe::Ready)
            },
        )
        .await?;
    }

    // In the middle of the single write of the contents: the partial file is our own, and is
    // written again.
    let name = format!("{location}-half");
    place.misbehave(&format!("PutObject {name}.tar.gz hang"))?;
    world.create_backup(&name, of_place(location)).await?;
    let contents = place.file(&name, &format!("{name}.tar.gz"));
    let half = async || std::fs::metadata(&contents).map(|metadata| metadata.len() > 0);
    until("the contents are half written", POINT_TIMEOUT, half).await?;
    world.controllers[0].kill().await?;
    place.misbehave("")?;
    world.controllers[0].restart().await?;
    world.backup_ends(&name, BackupPhase::Completed).await?;
    is_whole_in_folder(&place.store(), &name).await?;
    place.remove(world).await
}

async fn a_store_plugin_that_misbehaves_at_the_end_is_named(world: &mut World) -> TestResult {
    let location = "served-badly";
    let place = PluginLocation::make(world, location).await?;
    world.noise(location, 22).await?;
    let contents = ".tar.gz";
    for (call, what, file, words) in [
        (
            "PutObject",
            "hang",
            contents,
            "has not answered PutObject of example.io/folder within 15s",
        ),
        (
            "PutObject",
            "exit",
            contents,
            "in the middle of PutObject of example.io/folder: it ended with exit status: 7",
        ),
        (
            "PutObject",
            "fail",
            "-results.gz",
            "answers PutObject of example.io/folder with an error: told to fail",
        ),
        (
            "PutObject",
            "exit",
            "velero-backup.json",
            "in the middle of PutObject",
        ),
        // Reading a part ends too early, while it is copied to its place.
        (
            "GetObject",
            "cut",
            contents,
            "the plugin gave 1000 bytes of",
        ),
    ] {
        let name = format!("{location}-{what}{}", file.replace('.', "-"));
        let key = if file.starts_with("velero") {
            file.to_owned()
        } else {
            format!("{name}{file}")
        };
        let of_key = if call == "GetObject" {
            ".private/parts-"
        } else {
            &key
        };
        place.misbehave(&format!("{call} {name}/{of_key} {what}"))?;
        world.create_backup(&name, of_place(location)).await?;
        let reason = world
            .backup_blocked(&name, &BackupPhase::Finalizing)
            .await?;
        let binary = if call == "PutObject" {
            "plugins/plugins"
        } else {
            ""
        };
        says(&reason, &[words, &key, PROVIDER, binary])?;
        let stored = place.stored(&format!("{name}/{key}"));
        ensure!(
            stored.is_empty(),
            "{what} {file}: a piece was taken for the whole"
        );
        let available = world.locations().get(location).await?.status;
        ensure!(
            available.phase == Some(LocationPhase::Available),
            "{available:?}"
        );
        place.misbehave("")?;
        let backup = world.backup_ends(&name, BackupPhase::Completed).await?;
        ensure!(
            blocked_reason(&backup).is_empty(),
            "the reason still stands there"
        );
        is_whole_in_folder(&place.store(), &name)
            .await
            .with_context(|| format!("{what} {file}"))?;
    }
    place.remove(world).await
}

async fn a_tarball_that_a_plugin_cuts_short_is_not_restored(world: &mut World) -> TestResult {
    let name = "served-cut";
    let plugins = world.plugins()?;
    let place = PluginLocation::make(world, name).await?;
    world.config_maps(name, 50).await?;
    world.back_up(name, of_place(name)).await?;
    world.delete_namespace(name).await?;
    place.misbehave(&format!("GetObject {name}.tar.gz cut"))?;
    world
        .run_restore("served-cut-short", from_backup(name), RestorePhase::Failed)
        .await?;
    ensure!(
        world.count_config_maps(name).await? == 0,
        "something was restored"
    );

    // An error in the middle may be temporary.
    place.misbehave(&format!("GetObject {name}.tar.gz exit"))?;
    world
        .create_restore("served-cut-off", from_backup(name))
        .await?;
    eventually("it was read in vain", POINT_TIMEOUT, async || {
        let read = plugins.processes(
            "GetObject",
            &format!("deep/down/backups/{name}/{name}.tar.gz"),
        );
        anyhow::Ok(when(read.len() >= 3, read.len().to_string()))
    })
    .await?;
    place.misbehave("")?;
    world
        .restore_ends("served-cut-off", RestorePhase::Completed)
        .await?;
    ensure!(
        world.count_config_maps(name).await? == 51,
        "not all came back"
    );
    place.remove(world).await
}

async fn a_plugin_that_answers_nonsense_is_named_and_asked_again(world: &mut World) -> TestResult {
    let name = "served-nonsense";
    let place = PluginLocation::make(world, name).await?;
    world.config_maps(name, 5).await?;
    place.misbehave("ListObjects backups nonsense")?;
    world.create_backup(name, of_place(name)).await?;
    let blocked = |backup: &Backup| !blocked_reason(backup).is_empty();
    let backup = world
        .backups()
        .wait_until(name, "is blocked", POINT_TIMEOUT, blocked)
        .await?;
    ensure!(
        blocked_reason(&backup).contains("somewhere/else"),
        "{}",
        blocked_reason(&backup)
    );
    place.misbehave("")?;
    world.backup_ends(name, BackupPhase::Completed).await?;
    is_whole_in_folder(&place.store(), name).await?;
    place.remove(world).await
}

async fn an_unknown_provider_is_reported_with_those_there_are(world: &mut World) -> TestResult {
    world.plugins()?;
    for (provider, config, words) in [
        (
            "nobody",
            json!({}),
            [
                "no plugin offers an object store velero.io/nobody",
                "example.io/folder",
                "aws, azure, gcp, local",
            ],
        ),
        (
            PROVIDER,
            json!({}),
            [
                "Init of example.io/folder",
                "config has no folder",
                "plugins/plugins",
            ],
        ),
        (
            PROVIDER,
            json!({ "odd": "x" }),
            ["Init of example.io/folder", "invalid keys", "odd"],
        ),
        (
            PROVIDER,
            json!({ "folder": "/nowhere" }),
            ["ListCommonPrefixes", "no such file", "example.io/folder"],
        ),
    ] {
        let spec = json!({ "provider": provider, "objectStorage": { "bucket": "unserved" }, "config": config });
        world.remove_location("unserved").await.ok();
        world.apply_location("unserved", spec).await?;
        let location = world
            .location_in("unserved", LocationPhase::Unavailable, POINT_TIMEOUT)
            .await?;
        let message = location.status.message.context("no message")?;
        for word in words {
            ensure!(message.contains(word), "nothing of {word}: {message}");
        }
    }
    world.remove_location("unserved").await
}
