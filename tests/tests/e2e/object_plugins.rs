//! Locations that a plugin serves: the one of `tests/plugins/folder.go`, which keeps objects as files, writes them in place,
//! and misbehaves as the file `do` beside them says.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use backup_core::{
    api::{
        BackupPhase, BackupStorageLocation, DeleteBackupRequest, LocationPhase, RestorePhase, RestoreSpec,
        delete_backup_request::DeleteBackupRequestSpec,
    },
    labels::BLOCKED_ANNOTATION,
};
use backup_tests::{
    World,
    install::NAMESPACE,
    plugins::Plugins,
    wait::{Probe, eventually, when},
};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use crate::{
    crash_points::{REACHED, debug_build},
    drills::{blocked, noise, of, whole_folder},
    main_job::{
        backups, config_maps, count_config_maps, create_backup, delete_namespace, of_namespaces, restore,
        restores,
    },
};

crate::tests! {
    a_location_that_a_plugin_serves_does_the_main_job,
    locations_of_one_plugin_do_not_get_in_each_others_way,
    a_controller_that_is_killed_at_the_end_finishes_through_the_plugin,
    a_plugin_that_misbehaves_at_the_end_is_named_and_the_end_comes_later,
    what_a_plugin_does_not_give_back_as_a_whole_is_not_restored,
    a_plugin_that_answers_nonsense_is_named_and_asked_again,
    a_provider_that_nobody_serves_is_told_with_those_there_are,
}

const PROVIDER: &str = "example.io/folder";

/// A location's place.
pub struct Place {
    folder: PathBuf,
    name: String,
    plugins: Plugins,
}

impl Place {
    /// A location with a bucket of its name, in a folder of its own.
    pub async fn make(world: &World, name: &str) -> anyhow::Result<Self> {
        let plugins = crate::velero_plugins::plugins(world)?;
        let folder = world.folder().join("objects").join(name);
        std::fs::create_dir_all(folder.join(name))?;
        let spec = json!({
            "provider": PROVIDER, "objectStorage": { "bucket": name, "prefix": "deep/down" },
            "config": { "folder": folder }, "credential": { "name": "cloud-credentials", "key": "cloud" },
        });
        world.apply_location(name, spec).await?;
        world.location_available(name).await?;
        Ok(Self { folder, name: name.to_owned(), plugins })
    }

    fn store(&self) -> PathBuf {
        self.folder.join(&self.name).join("deep/down")
    }

    fn file(&self, backup: &str, file: &str) -> PathBuf {
        self.store().join("backups").join(backup).join(file)
    }

    /// How the plugin misbehaves from now on; in no way if nothing is said.
    fn misbehave(&self, line: &str) -> anyhow::Result<()> {
        Ok(std::fs::write(self.folder.join("do"), line)?)
    }

    /// The processes that were asked to write a key, one for each time.
    fn writers(&self, key: &str) -> Vec<u32> {
        self.plugins.processes("PutObject", &format!("deep/down/backups/{key}"))
    }

    /// Those that took what they were given for the whole object.
    fn stored(&self, key: &str) -> Vec<u32> {
        self.plugins.processes("stored", &format!("deep/down/backups/{key}"))
    }

    /// Nobody has to ask for it any more.
    pub async fn drop(self, world: &World) -> anyhow::Result<()> {
        locations(world).delete(&self.name, &DeleteParams::default()).await?;
        Ok(())
    }
}

fn locations(world: &World) -> Api<BackupStorageLocation> {
    Api::namespaced(world.client.clone(), NAMESPACE)
}

fn files_below(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { files.extend(files_below(&path)?) } else { files.push(path) }
    }
    Ok(files)
}

async fn a_location_that_a_plugin_serves_does_the_main_job(world: &mut World) -> anyhow::Result<()> {
    let name = "served";
    let place = Place::make(world, name).await?;
    noise(world, name, 22).await?;
    create_backup(world, name, of(name)).await?;
    let backup = world.backup_ended(name).await?;
    ensure!(backup.phase() == BackupPhase::Completed, "{:?}", backup.status);
    whole_folder(&place.store(), name).await?;
    let size = std::fs::metadata(place.file(name, "served.tar.gz"))?.len();
    ensure!(size > 8 << 20, "only {size} bytes: less than a part");
    for key in ["served/served.tar.gz", "served/velero-backup.json"] {
        ensure!(place.writers(key).len() == 1, "{key} was written {} times", place.writers(key).len());
    }
    ensure!(!place.plugins.processes("credentials", name).is_empty(), "it was given no credentials");

    delete_namespace(world, name).await?;
    let spec = RestoreSpec { backup_name: Some(name.to_owned()), ..RestoreSpec::default() };
    let restored = restore(world, name, spec).await?;
    ensure!(restored.phase() == RestorePhase::Completed, "{:?}", restored.status);
    // With the one that every namespace gets.
    ensure!(count_config_maps(world, name).await? == 23, "not all came back");
    let results = place.store().join("restores").join(name).join(format!("restore-{name}-results.gz"));
    ensure!(results.exists(), "the restore has left no results");

    let requests: Api<DeleteBackupRequest> = Api::namespaced(world.client.clone(), NAMESPACE);
    let spec = DeleteBackupRequestSpec { backup_name: name.to_owned(), ..Default::default() };
    requests.create(&PostParams::default(), &DeleteBackupRequest::new(name, spec)).await?;
    eventually("the backup is gone", REACHED, async || {
        let left = backups(world).get_opt(name).await?;
        Ok::<_, kube::Error>(when(left.is_none(), "it is still there"))
    })
    .await?;
    let left = files_below(&place.folder)?;
    ensure!(left.is_empty(), "{left:?}");
    place.drop(world).await
}

async fn locations_of_one_plugin_do_not_get_in_each_others_way(world: &mut World) -> anyhow::Result<()> {
    let places = [Place::make(world, "served-one").await?, Place::make(world, "served-two").await?];
    config_maps(world, "served-both", 5).await?;
    for place in &places {
        let mut spec = of_namespaces(&["served-both"]);
        spec.storage_location = Some(place.name.clone());
        create_backup(world, &place.name, spec).await?;
    }
    let mut writers = BTreeSet::new();
    for place in places {
        let backup = world.backup_ended(&place.name).await?;
        ensure!(backup.phase() == BackupPhase::Completed, "{:?}", backup.status);
        whole_folder(&place.store(), &place.name).await?;
        writers.extend(place.writers(&format!("{}/velero-backup.json", place.name)));
        place.drop(world).await?;
    }
    ensure!(writers.len() == 2, "a plugin has room for the settings of one: {writers:?}");
    Ok(())
}

async fn a_controller_that_is_killed_at_the_end_finishes_through_the_plugin(
    world: &mut World,
) -> anyhow::Result<()> {
    debug_build(world)?;
    let location = "served-killed";
    let place = Place::make(world, location).await?;
    noise(world, location, 22).await?;
    for point in ["mid-collection", "after-record", "after-contents", "before-metadata", "after-metadata"] {
        let name = format!("{location}-{point}");
        world.controllers[0].restart_with("BACKUP_CRASH_AT", point).await?;
        create_backup(world, &name, of(location)).await?;
        world.controllers[0].killed(REACHED).await.with_context(|| format!("{point} was not reached"))?;
        world.controllers[0].restart().await?;
        let backup = world.backup_ended(&name).await?;
        ensure!(backup.phase() == BackupPhase::Completed, "killed at {point}: {:?}", backup.status);
        // Who adopts an end tidies up once it is published.
        let what = format!("the store of {name} is whole and tidy");
        eventually(&what, REACHED, async || {
            anyhow::Ok(match whole_folder(&place.store(), &name).await {
                Ok(()) => Probe::Ready(()),
                Err(error) => Probe::NotYet(error.to_string()),
            })
        })
        .await?;
    }

    // In the middle of the one write of the contents: what is there of them is our own, and is written again.
    let name = format!("{location}-half");
    place.misbehave(&format!("PutObject {name}.tar.gz hang"))?;
    create_backup(world, &name, of(location)).await?;
    let contents = place.file(&name, &format!("{name}.tar.gz"));
    eventually("the contents are half written", REACHED, async || {
        let size = std::fs::metadata(&contents).map(|metadata| metadata.len()).unwrap_or_default();
        anyhow::Ok(when(size > 0, "not yet"))
    })
    .await?;
    world.controllers[0].kill().await?;
    place.misbehave("")?;
    world.controllers[0].restart().await?;
    let backup = world.backup_ended(&name).await?;
    ensure!(backup.phase() == BackupPhase::Completed, "{:?}", backup.status);
    whole_folder(&place.store(), &name).await?;
    place.drop(world).await
}

async fn a_plugin_that_misbehaves_at_the_end_is_named_and_the_end_comes_later(
    world: &mut World,
) -> anyhow::Result<()> {
    let location = "served-badly";
    let place = Place::make(world, location).await?;
    noise(world, location, 22).await?;
    let contents = ".tar.gz";
    for (call, what, file, words) in [
        ("PutObject", "hang", contents, "has not answered PutObject of example.io/folder within 15s"),
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
        ("PutObject", "exit", "velero-backup.json", "in the middle of PutObject"),
        // What is read of a part ends too early, while it is written to its place.
        ("GetObject", "cut", contents, "the plugin gave 1000 bytes of"),
    ] {
        let name = format!("{location}-{what}{}", file.replace('.', "-"));
        let key = if file.starts_with("velero") { file.to_owned() } else { format!("{name}{file}") };
        let of_key = if call == "GetObject" { ".private/parts-" } else { &key };
        place.misbehave(&format!("{call} {name}/{of_key} {what}"))?;
        create_backup(world, &name, of(location)).await?;
        let reason = blocked(world, &name, &BackupPhase::Finalizing).await?;
        let binary = if call == "PutObject" { "plugins/plugins" } else { "" };
        for word in [words, &key, PROVIDER, binary] {
            ensure!(reason.contains(word), "nothing of {word}: {reason}");
        }
        let stored = place.stored(&format!("{name}/{key}"));
        ensure!(stored.is_empty(), "{what} {file}: a piece was taken for the whole");
        let available = locations(world).get(location).await?.status;
        ensure!(available.phase == Some(LocationPhase::Available), "{available:?}");
        place.misbehave("")?;
        let backup = world.backup_ended(&name).await?;
        ensure!(backup.phase() == BackupPhase::Completed, "{what} {file}: {:?}", backup.status);
        let annotations = backup.metadata.annotations.unwrap_or_default();
        ensure!(!annotations.contains_key(BLOCKED_ANNOTATION), "the reason still stands there");
        whole_folder(&place.store(), &name).await.with_context(|| format!("{what} {file}"))?;
    }
    place.drop(world).await
}

async fn what_a_plugin_does_not_give_back_as_a_whole_is_not_restored(
    world: &mut World,
) -> anyhow::Result<()> {
    let name = "served-cut";
    let place = Place::make(world, name).await?;
    config_maps(world, name, 50).await?;
    create_backup(world, name, of(name)).await?;
    let backup = world.backup_ended(name).await?;
    ensure!(backup.phase() == BackupPhase::Completed, "{:?}", backup.status);
    delete_namespace(world, name).await?;
    place.misbehave(&format!("GetObject {name}.tar.gz cut"))?;
    let spec = || RestoreSpec { backup_name: Some(name.to_owned()), ..RestoreSpec::default() };
    let cut = restore(world, "served-cut-short", spec()).await?;
    ensure!(cut.phase() == RestorePhase::Failed, "{:?}", cut.status);
    ensure!(count_config_maps(world, name).await? == 0, "something was restored");

    // An error in the middle may pass.
    place.misbehave(&format!("GetObject {name}.tar.gz exit"))?;
    restores(world)
        .create(&PostParams::default(), &backup_core::api::Restore::new("served-cut-off", spec()))
        .await?;
    eventually("it was read in vain", REACHED, async || {
        let read = place.plugins.processes("GetObject", &format!("deep/down/backups/{name}/{name}.tar.gz"));
        anyhow::Ok(when(read.len() >= 3, read.len().to_string()))
    })
    .await?;
    place.misbehave("")?;
    let whole = world.restore_ended("served-cut-off").await?;
    ensure!(whole.phase() == RestorePhase::Completed, "{:?}", whole.status);
    ensure!(count_config_maps(world, name).await? == 51, "not all came back");
    place.drop(world).await
}

async fn a_plugin_that_answers_nonsense_is_named_and_asked_again(world: &mut World) -> anyhow::Result<()> {
    let name = "served-nonsense";
    let place = Place::make(world, name).await?;
    config_maps(world, name, 5).await?;
    place.misbehave("ListObjects backups nonsense")?;
    create_backup(world, name, of(name)).await?;
    let reason = eventually("the backup says why it does not go on", REACHED, async || {
        let backup = backups(world).get(name).await?;
        let reason = backup.metadata.annotations.as_ref().and_then(|all| all.get(BLOCKED_ANNOTATION));
        let seen = Probe::NotYet(format!("{:?}", backup.status));
        Ok::<_, kube::Error>(reason.map_or(seen, |reason| Probe::Ready(reason.clone())))
    })
    .await?;
    ensure!(reason.contains("somewhere/else"), "{reason}");
    place.misbehave("")?;
    let backup = world.backup_ended(name).await?;
    ensure!(backup.phase() == BackupPhase::Completed, "{:?}", backup.status);
    whole_folder(&place.store(), name).await?;
    place.drop(world).await
}

async fn a_provider_that_nobody_serves_is_told_with_those_there_are(world: &mut World) -> anyhow::Result<()> {
    crate::velero_plugins::plugins(world)?;
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
        (PROVIDER, json!({}), ["Init of example.io/folder", "config has no folder", "plugins/plugins"]),
        (PROVIDER, json!({ "odd": "x" }), ["Init of example.io/folder", "invalid keys", "odd"]),
        (
            PROVIDER,
            json!({ "folder": "/nowhere" }),
            ["ListCommonPrefixes", "no such file", "example.io/folder"],
        ),
    ] {
        let spec =
            json!({ "provider": provider, "objectStorage": { "bucket": "unserved" }, "config": config });
        locations(world).delete("unserved", &DeleteParams::default()).await.ok();
        world.apply_location("unserved", spec).await?;
        let message = eventually("the location is unavailable", REACHED, async || {
            let status = locations(world).get("unserved").await?.status;
            let message = status.message.clone().unwrap_or_default();
            let there = status.phase == Some(LocationPhase::Unavailable) && !message.is_empty();
            let seen = format!("{status:?}");
            Ok::<_, kube::Error>(if there { Probe::Ready(message) } else { Probe::NotYet(seen) })
        })
        .await?;
        for word in words {
            ensure!(message.contains(word), "nothing of {word}: {message}");
        }
    }
    locations(world).delete("unserved", &DeleteParams::default()).await?;
    Ok(())
}
