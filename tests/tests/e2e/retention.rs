//! Backups that expire, and those that stay all the same.

use backup_core::{api::DeleteBackupRequest, labels, retention::RetentionRecord};
use backup_tests::{proxy::Fault, world::other_cluster::metadata};

use crate::{
    prelude::*,
    schedules::{create, remove, seconds_ago},
};

crate::tests! {
    expired_backups_go_by_one_request_and_unfinished_ones_stay,
    expired_backups_in_read_only_locations_are_labelled,
    the_last_good_backup_stays_and_generations_are_kept,
    retention_stops_where_too_many_expire_at_once,
}

/// Makes a backup expire now.
async fn expire(world: &World, name: &str) -> anyhow::Result<()> {
    world
        .backups()
        .merge_patch(name, json!({ "status": { "expiration": seconds_ago(1) } }))
        .await?;
    Ok(())
}

async fn expired_backups_go_by_one_request_and_unfinished_ones_stay(
    world: &mut World,
) -> TestResult {
    let (name, s3) = ("expired", world.s3()?);
    world.config_maps(name, 1).await?;
    let mut spec = of_namespaces(&[name]);
    spec.ttl = Some("6s".parse()?);
    world.create_backup(name, spec.clone()).await?;
    world.backup_ended(name).await?;
    // The last good one would stay.
    world.back_up("expired-not", of_namespaces(&[name])).await?;
    world.backups().wait_gone(name, TIMEOUT).await?;
    let left: Vec<String> = s3
        .keys(BUCKET)
        .await?
        .into_iter()
        .filter(|key| key.starts_with("backups/expired/"))
        .collect();
    ensure!(left.is_empty(), "{left:?}");
    eventually("its request is gone", TIMEOUT, async || {
        let all = world.api::<DeleteBackupRequest>().list_all().await?;
        Ok::<_, kube::Error>(when(all.is_empty(), format!("{all:?}")))
    })
    .await?;

    // A backup whose end cannot be written expires before it has ended.
    let name = "expired-early";
    s3.front.set(Fault::Stall);
    spec.ttl = Some("1s".parse()?);
    world.create_backup(name, spec).await?;
    tokio::time::sleep(Duration::from_secs(7)).await;
    let backup = world.backups().get(name).await?;
    ensure!(backup.phase().is_active(), "{:?}", backup.status);
    ensure!(
        world
            .api::<DeleteBackupRequest>()
            .list_all()
            .await?
            .is_empty(),
        "its deletion was asked for"
    );
    s3.front.set(Fault::None);
    world.backup_ended(name).await?;
    let newer = of_namespaces(&["expired"]);
    world.back_up("expired-not-either", newer).await?;
    world.backups().wait_gone(name, TIMEOUT).await
}

/// Puts a backup of a day of February 2020 into a bucket, of the namespace with the bucket's name.
fn store(world: &World, bucket: &str, name: &str, day: usize, patch: &Value) -> anyhow::Result<()> {
    let mut stored = metadata(name, "Completed");
    let began = format!("2020-02-{day:02}T03:00:00Z");
    let of_bucket = json!({ "spec": { "includedNamespaces": [bucket] }, "status": { "startTimestamp": began } });
    json_patch::merge(&mut stored, &of_bucket);
    json_patch::merge(&mut stored, patch);
    world.store_backup(bucket, name, &stored)
}

async fn the_last_good_backup_stays_and_generations_are_kept(world: &mut World) -> TestResult {
    let bucket = "generations";
    world.s3()?.create_bucket(bucket).await?;
    let over = json!({ "status": { "expiration": "2020-03-01T00:00:00Z" } });
    let mut scheduled = over.clone();
    scheduled["metadata"]["labels"][labels::SCHEDULE_NAME] = json!(bucket);
    let names = [
        "generation-1",
        "generation-2",
        "generation-3",
        "generation-4",
    ];
    for (number, name) in names.iter().enumerate() {
        store(world, bucket, name, number + 1, &scheduled)?;
    }
    let mut alone = over.clone();
    alone["spec"]["includedNamespaces"] = json!(["alone"]);
    store(world, bucket, "alone-before", 1, &alone)?;
    store(world, bucket, "alone", 2, &alone)?;
    // The Schedule first: without its rules all but the last one go.
    let spec = json!({ "schedule": "0 3 * * *", "paused": true, "keep": { "daily": 2 },
        "template": { "storageLocation": bucket, "includedNamespaces": [bucket] } });
    create(world, bucket, json!({ "spec": spec })).await?;
    world
        .synced_location(bucket, &world.s3()?.url(), &json!({}))
        .await?;
    let stays = ["generation-3", "generation-4", "alone"];
    world.all_arrive(&stays).await?;
    for name in ["generation-1", "generation-2", "alone-before"] {
        eventually(
            &format!("{name} was in the bucket and goes"),
            TIMEOUT,
            async || {
                let folder = world.stored_folder(bucket, name)?;
                let is_gone = !folder.join("velero-backup.json").exists();
                let is_here = world.backups().get_opt(name).await?.is_some();
                anyhow::Ok(when(is_gone && !is_here, format!("{is_gone} {is_here}")))
            },
        )
        .await?;
    }
    // Several periods of retention.
    tokio::time::sleep(Duration::from_secs(6)).await;
    world.all_arrive(&stays).await?;
    let user = world.kubectl_backup();
    let plan = user
        .stdout(&["schedules", "keep", bucket, "--dry-run"])
        .await?;
    says(&plan, &["Rules of generations: daily 2 (UTC). 0 backups"])?;
    let described = user.stdout(&["describe", "alone"]).await?;
    says(&described, &["it is the last one of namespace alone"])?;

    // Without its rules only the last one stays. (These backups record none.)
    remove(world, bucket).await?;
    world.backup_gone("generation-3").await?;
    tokio::time::sleep(Duration::from_secs(6)).await;
    world.all_arrive(&["generation-4", "alone"]).await?;
    // A user may delete it, and is told.
    let deleted = user.run(&["delete", "alone", "--yes"]).await?;
    says(
        &deleted.stderr,
        &["alone is the last good backup of what it protects"],
    )?;
    world.backup_gone("alone").await?;
    world.forget_location(bucket).await
}

async fn retention_stops_where_too_many_expire_at_once(world: &mut World) -> TestResult {
    let bucket = "brake";
    world.s3()?.create_bucket(bucket).await?;
    let names: Vec<String> = (0..12).map(|number| format!("brake-{number:02}")).collect();
    for (number, name) in names.iter().enumerate() {
        store(world, bucket, name, number + 1, &json!({}))?;
    }
    world
        .synced_location(bucket, &world.s3()?.url(), &json!({}))
        .await?;
    for name in &names {
        world.backup_arrives(name).await?;
    }
    // All at once.
    world.controllers[0].stop(TIMEOUT).await?;
    for name in &names {
        expire(world, name).await?;
    }
    world.controllers[0].restart().await?;
    let record = async || -> anyhow::Result<RetentionRecord> {
        let location = world.locations().get(bucket).await?;
        let text = labels::annotation(&location, labels::RETENTION_ANNOTATION);
        Ok(RetentionRecord::read(text))
    };
    eventually("retention has stopped", TIMEOUT, async || {
        let record = record().await?;
        anyhow::Ok(when(record.refused == 11, format!("{record:?}")))
    })
    .await?;
    world
        .wait_for_event("RetentionStopped", |_, note| note.contains("lost 11 of 12"))
        .await?;
    let refused = "velero_backup_retention_refused{backup_location_name=\"brake\"}";
    ensure!(
        world.metric(refused).await? == Some(11.0),
        "{refused} is not 11"
    );
    let user = world.kubectl_backup();
    for command in ["doctor", "status"] {
        let seen = user.run(&[command]).await?.stdout;
        says(&seen, &["retention has stopped"])?;
    }
    tokio::time::sleep(Duration::from_secs(6)).await;
    for name in &names {
        world.backups().get(name).await?;
    }
    let too_few = ["locations", "retention", bucket, "--accept-removals=10"];
    user.fails(1, &too_few).await?;
    let enough = ["locations", "retention", bucket, "--accept-removals=11"];
    user.succeeds(&enough).await?;
    for name in &names[..11] {
        world.backup_gone(name).await?;
    }
    let last = record().await?;
    ensure!(last.refused == 0, "{last:?}");
    world.backups().get(&names[11]).await?;
    world.forget_location(bucket).await
}

async fn expired_backups_in_read_only_locations_are_labelled(world: &mut World) -> TestResult {
    world.config_maps("kept", 1).await?;
    let folder = world.folder().join("kept");
    let location = |mode: &str| json!({ "provider": "local", "accessMode": mode, "objectStorage": { "bucket": folder } });
    world.apply_location("kept", location("ReadWrite")).await?;
    world.location_available("kept").await?;
    for name in ["kept", "kept-alone"] {
        world
            .back_up(name, into_location("kept", &["kept"]))
            .await?;
    }
    let labelled = async |name: &str, value: &str| {
        let is_so = |backup: &Backup| {
            backup
                .labels()
                .get(labels::GC_FAILURE)
                .is_some_and(|label| label == value)
        };
        world
            .backups()
            .wait_until(name, &format!("is labelled {value}"), TIMEOUT, is_so)
            .await
    };
    world.apply_location("kept", location("ReadOnly")).await?;
    expire(world, "kept").await?;
    labelled("kept", "BSLReadOnly").await?;
    ensure!(
        folder.join("backups/kept/velero-backup.json").exists(),
        "it was deleted all the same"
    );
    ensure!(
        world
            .api::<DeleteBackupRequest>()
            .list_all()
            .await?
            .is_empty(),
        "its deletion was asked for"
    );

    world.remove_location("kept").await?;
    labelled("kept", "BSLNotFound").await?;
    world.apply_location("kept", location("ReadWrite")).await?;
    world.location_available("kept").await?;
    world.backups().wait_gone("kept", TIMEOUT).await?;
    ensure!(!folder.join("backups/kept").exists(), "its files stay");
    let other = world.backups().get("kept-alone").await?;
    ensure!(
        other.phase() == BackupPhase::Completed,
        "one that had time left is {}",
        other.phase()
    );
    Ok(())
}
