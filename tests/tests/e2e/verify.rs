//! Whether a backup could be restored, for users who can reach only the API server.

use std::io::Write as _;

use backup_core::{
    api::Schedule,
    labels::{SCHEDULE_NAME, VERIFICATION_ANNOTATION, VERIFIED_ANNOTATION, annotation},
    verification::Verification,
};
use backup_tests::{app::App, plugin_location::PluginLocation};
use flate2::{Compression, write::GzEncoder};
use object_store::ObjectStoreExt as _;

use crate::prelude::*;

crate::tests! {
    a_backup_is_verified_until_somebody_cuts_its_tarball,
    a_backup_in_the_store_of_a_plugin_is_verified,
    a_file_that_was_changed_is_found_by_a_schedule_until_it_is_put_back,
    a_backup_is_compared_with_the_cluster,
}

async fn a_backup_is_verified_until_somebody_cuts_its_tarball(world: &mut World) -> TestResult {
    let name = "verified";
    world.backed_up(name, 3).await?;
    let person = world.reader().await?;
    let seen = person.succeeds(&["verify", name]).await?;
    ensure!(
        seen.stdout.contains("can be read") && seen.stderr.is_empty(),
        "{seen:?}"
    );

    let (key, bucket) = (
        format!("backups/{name}/{name}.tar.gz").into(),
        world.s3()?.bucket(BUCKET)?,
    );
    let whole = bucket.get(&key).await?.bytes().await?;
    bucket
        .put(&key, whole.slice(..whole.len() / 2).into())
        .await?;
    let seen = person.fails(3, &["verify", name, "-o", "json"]).await?;
    let document: Value = serde_json::from_str(&seen.stdout)?;
    let findings = document["findings"].as_array().context("no findings")?;
    ensure!(
        document["good"] == false && findings.len() == 1,
        "{document}"
    );
    let message = findings[0]["message"].as_str().unwrap_or_default();
    ensure!(
        findings[0]["file"] == "BackupContents" && message.contains("cut short"),
        "{document}"
    );
    Ok(())
}

async fn a_backup_in_the_store_of_a_plugin_is_verified(world: &mut World) -> TestResult {
    let name = "verified-plugin";
    let place = PluginLocation::make(world, name).await?;
    world.config_maps(name, 3).await?;
    world.back_up(name, of_place(name)).await?;
    let person = world.reader().await?;
    let seen = person.succeeds(&["verify", name]).await?;
    ensure!(
        seen.stdout.contains("can be read") && seen.stderr.is_empty(),
        "{seen:?}"
    );
    let screen = person.stdout(&["describe", name]).await?;
    ensure!(
        screen.contains("4 ConfigMap") && !screen.contains("unavailable"),
        "{screen}"
    );
    let log = person.stdout(&["logs", name]).await?;
    says(&log, &["collecting items", "collected"])?;
    let file = world
        .folder()
        .join("of-a-plugin.tar.gz")
        .display()
        .to_string();
    person.succeeds(&["download", name, "-o", &file]).await?;
    world.create_restore(name, from_backup(name)).await?;
    world.restore_ended(name).await?;
    let log = person.stdout(&["restore", "logs", name]).await?;
    says(&log, &["restoring"])?;
    place.remove(world).await
}

/// A log that can be read, and is not the one that was written.
fn another_log() -> anyhow::Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(b"level=info msg=\"all is well\"\n")?;
    Ok(packed.finish()?)
}

async fn a_file_that_was_changed_is_found_by_a_schedule_until_it_is_put_back(
    world: &mut World,
) -> TestResult {
    let name = "verified-often";
    world.backed_up(name, 3).await?;
    let label = json!({ "metadata": { "labels": { SCHEDULE_NAME: name } } });
    world.backups().merge_patch(name, label).await?;
    let key = format!("backups/{name}/{name}-logs.gz").into();
    let bucket = world.s3()?.bucket(BUCKET)?;
    let whole = bucket.get(&key).await?.bytes().await?;
    bucket.put(&key, another_log()?.into()).await?;
    let schedules = world.api::<Schedule>();
    let schedule = json!({ "apiVersion": "velero.io/v1", "kind": "Schedule", "metadata": { "name": name },
        "spec": { "schedule": "0 0 1 1 *", "template": {}, "verify": { "every": "1h", "which": "newest" } } });
    schedules.create_json(schedule).await?;

    let note = world
        .wait_for_event("VerificationFailed", |object, _| {
            object.name.as_deref() == Some(name)
        })
        .await?;
    let fault = format!("{name}-logs.gz: it can be read, but its bytes are not those");
    says(&note, &["1 fault", &fault, "Use another backup"])?;
    let person = world.reader().await?;
    let screen = person.stdout(&["describe", name]).await?;
    says(&screen, &["last verified", "not whole", &fault])?;
    // The files agree with one another, and this command has no digests.
    let seen = person.succeeds(&["verify", name]).await?;
    says(&seen.stderr, &["has compared digests", &fault])?;
    let screen = person.stdout(&["schedules", "describe", name]).await?;
    says(
        &screen,
        &["one backup every 1h0m0s", "is not whole (1 fault)"],
    )?;
    let damaged = format!("velero_backup_damaged{{schedule=\"{name}\"}}");
    until("a damaged backup is counted", TIMEOUT, async || {
        anyhow::Ok(world.metric(&damaged).await? == Some(1.0))
    })
    .await?;

    bucket.put(&key, whole.into()).await?;
    let due = json!({ "metadata": { "annotations": { VERIFICATION_ANNOTATION: null } } });
    schedules.merge_patch(name, due).await?;
    let is_whole = |backup: &Backup| {
        let last = Verification::read(annotation(backup, VERIFIED_ANNOTATION));
        last.is_some_and(|last| last.findings == 0 && last.compared)
    };
    let backups = world.backups();
    backups
        .wait_until(name, "is found whole", TIMEOUT, is_whole)
        .await?;
    let screen = person.stdout(&["describe", name]).await?;
    says(&screen, &["last verified", ": whole"])?;
    Ok(schedules.delete_object(name).await?)
}

/// An application with objects made by controllers, unchanged at first, and then with changes.
async fn a_backup_is_compared_with_the_cluster(world: &mut World) -> TestResult {
    let app = App::new("compared", 10);
    app.create(&world.client).await?;
    let namespaces = app.namespaces();
    world
        .back_up(
            "compared",
            of_namespaces(&namespaces.each_ref().map(String::as_str)),
        )
        .await?;
    let person = world.kubectl_backup();
    let seen = person.succeeds(&["diff", "compared"]).await?;
    ensure!(
        seen.stdout.is_empty() && seen.stderr.contains("0 differ, 0 are not"),
        "{seen:?}"
    );

    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &namespaces[0]);
    maps.merge_patch("config-0003", json!({ "data": { "number": "changed" } }))
        .await?;
    maps.delete_object("config-0004").await?;
    let seen = person.fails(1, &["diff", "compared"]).await?;
    says(
        &seen.stdout,
        &["-  number: changed", "+  number: \"3\"", "config-0004"],
    )?;
    says(&seen.stderr, &["1 differs, 1 is not in the cluster"])?;
    world
        .restore(
            "compared",
            RestoreSpec {
                existing_resource_policy: Some("update".to_owned()),
                ..from_backup("compared")
            },
        )
        .await?;
    person.succeeds(&["diff", "compared"]).await?;
    app.destroy(&world.client).await
}
