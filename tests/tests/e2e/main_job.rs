//! The main job: what is backed up, lost and restored is there again, and Completed means completed.

use std::{collections::BTreeSet, time::Duration};

use anyhow::ensure;
use backup_core::api::{Backup, BackupPhase, BackupSpec, Restore, RestorePhase, RestoreSpec};
use backup_tests::{
    World,
    app::App,
    install::NAMESPACE,
    listing::{differences, list},
    object_store::S3,
    proxy::Fault,
    wait::{eventually, when},
    world::BUCKET,
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use object_store::ObjectStoreExt as _;

crate::tests! {
    what_came_back_is_what_was_there,
    completed_means_contents_and_metadata_are_in_the_bucket,
    a_restore_goes_into_mapped_namespaces,
    a_killed_controller_finishes_what_it_had_begun,
    an_outage_of_the_bucket_delays_the_end_and_loses_nothing,
    an_outage_of_the_api_server_delays_the_end_and_loses_nothing,
}

async fn what_came_back_is_what_was_there(world: &mut World) -> anyhow::Result<()> {
    let app = App::new("main", 60);
    app.create(&world.client).await?;
    let namespaces = app.namespaces();
    let names = namespaces.each_ref().map(String::as_str);
    let before = list(&world.client, &names, &["main"]).await?;
    ensure!(before.len() > 300, "the application has only {} objects", before.len());

    create_backup(world, "main-job", BackupSpec::default()).await?;
    let backup = world.backup_ended("main-job").await?;
    ensure!(
        backup.phase() == BackupPhase::Completed,
        "the backup ended {}: {:?}",
        backup.phase(),
        backup.status
    );
    app.destroy(&world.client).await?;
    ensure!(
        list(&world.client, &names, &["main"]).await?.is_empty(),
        "something is left after the destruction"
    );

    let spec = RestoreSpec {
        backup_name: Some("main-job".into()),
        included_namespaces: namespaces.to_vec(),
        include_cluster_resources: Some(true),
        ..RestoreSpec::default()
    };
    let restore = restore(world, "main-job", spec).await?;
    ensure!(
        restore.phase() == RestorePhase::Completed,
        "the restore ended {}: {:?}",
        restore.phase(),
        restore.status
    );
    // The cluster's controllers adopt what came back in their own time.
    eventually("what came back is what was there", Duration::from_secs(30), async || {
        let different = differences(&before, &list(&world.client, &names, &["main"]).await?);
        anyhow::Ok(when(different.is_empty(), different.join("\n")))
    })
    .await
}

async fn completed_means_contents_and_metadata_are_in_the_bucket(world: &mut World) -> anyhow::Result<()> {
    config_maps(world, "stored", 30).await?;
    create_backup(world, "stored", of_namespaces(&["stored"])).await?;
    let backup = world.backup_ended("stored").await?;
    let s3 = s3(world)?;

    let keys: BTreeSet<String> = s3
        .keys(BUCKET)
        .await?
        .into_iter()
        .filter_map(|key| Some(key.strip_prefix("backups/stored/")?.to_owned()))
        .collect();
    for file in [
        "velero-backup.json",
        "stored.tar.gz",
        "stored-logs.gz",
        "stored-results.gz",
        "stored-resource-list.json.gz",
        "stored-volumeinfo.json.gz",
        "stored-itemoperations.json.gz",
        "stored-volumesnapshots.json.gz",
        "stored-podvolumebackups.json.gz",
    ] {
        ensure!(keys.contains(file), "{file} is not in the bucket; there are {keys:?}");
    }
    let bytes = s3.bucket(BUCKET)?.get(&"backups/stored/velero-backup.json".into()).await?.bytes().await?;
    let stored: Backup = serde_json::from_slice(&bytes)?;
    ensure!(
        stored.phase() == BackupPhase::Completed && backup.phase() == BackupPhase::Completed,
        "{:?}",
        stored.status
    );
    ensure!(stored.status.completion_timestamp == backup.status.completion_timestamp, "two completion times");
    ensure!(stored.metadata.uid == backup.metadata.uid, "the stored backup is another one");
    ensure!(
        stored.status.start_timestamp.is_some() && stored.status.expiration.is_some(),
        "{:?}",
        stored.status
    );

    let entries = s3.inspect_tarball(BUCKET, "backups/stored/stored.tar.gz").await?;
    let names: Vec<&str> = entries.iter().filter_map(|entry| entry["name"].as_str()).collect();
    ensure!(names.first() == Some(&"metadata/version"), "the first entry is {:?}", names.first());
    for number in 0..30 {
        for folder in ["", "v1-preferredversion/"] {
            let path = format!("resources/configmaps/{folder}namespaces/stored/item-{number}.json");
            ensure!(names.iter().filter(|name| **name == path).count() == 1, "{path} is not there once");
        }
    }
    ensure!(names.contains(&"resources/namespaces/cluster/stored.json"), "the namespace itself is missing");
    Ok(())
}

async fn a_restore_goes_into_mapped_namespaces(world: &mut World) -> anyhow::Result<()> {
    config_maps(world, "here", 5).await?;
    create_backup(world, "mapped", of_namespaces(&["here"])).await?;
    world.backup_ended("mapped").await?;
    let spec = RestoreSpec {
        backup_name: Some("mapped".into()),
        namespace_mapping: [("here".to_owned(), "there".to_owned())].into(),
        ..RestoreSpec::default()
    };
    let restore = restore(world, "mapped", spec).await?;
    ensure!(restore.phase() == RestorePhase::Completed, "{:?}", restore.status);
    let there: Api<ConfigMap> = Api::namespaced(world.client.clone(), "there");
    let item = there.get("item-3").await?;
    let labels = item.metadata.labels.unwrap_or_default();
    ensure!(labels.get("velero.io/restore-name").is_some_and(|name| name == "mapped"), "{labels:?}");
    ensure!(item.data.is_some_and(|data| data["number"] == "3"), "other data");
    Ok(())
}

async fn a_killed_controller_finishes_what_it_had_begun(world: &mut World) -> anyhow::Result<()> {
    config_maps(world, "killed", 400).await?;
    s3(world)?.front.set(Fault::Delay(Duration::from_millis(300)));
    create_backup(world, "killed", of_namespaces(&["killed"])).await?;
    phase_reached(world, "killed", BackupPhase::InProgress).await?;
    world.controllers[0].restart().await?;
    s3(world)?.front.set(Fault::None);
    let backup = world.backup_ended("killed").await?;
    ensure!(
        backup.phase() == BackupPhase::Completed,
        "a restart made it {}: {:?}",
        backup.phase(),
        backup.status
    );
    let entries = s3(world)?.inspect_tarball(BUCKET, "backups/killed/killed.tar.gz").await?;
    ensure!(entries.len() > 800, "only {} entries", entries.len());
    Ok(())
}

async fn an_outage_of_the_bucket_delays_the_end_and_loses_nothing(world: &mut World) -> anyhow::Result<()> {
    config_maps(world, "outage", 50).await?;
    s3(world)?.front.set(Fault::Delay(Duration::from_millis(200)));
    create_backup(world, "outage", of_namespaces(&["outage"])).await?;
    phase_reached(world, "outage", BackupPhase::InProgress).await?;
    s3(world)?.front.set(Fault::Refuse);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let phase = backups(world).get("outage").await?.phase();
    s3(world)?.front.set(Fault::None);
    ensure!(phase.is_active(), "{phase} while nothing could be stored");
    let backup = world.backup_ended("outage").await?;
    ensure!(backup.phase() == BackupPhase::Completed, "{:?}", backup.status);
    s3(world)?.inspect_tarball(BUCKET, "backups/outage/outage.tar.gz").await?;
    Ok(())
}

async fn an_outage_of_the_api_server_delays_the_end_and_loses_nothing(
    world: &mut World,
) -> anyhow::Result<()> {
    let front = world.plane.front.as_ref();
    let front = front.ok_or(crate::Skip("there is no proxy before an API server that was there"))?;
    config_maps(world, "rolling", 200).await?;
    s3(world)?.front.set(Fault::Delay(Duration::from_millis(200)));
    create_backup(world, "rolling", of_namespaces(&["rolling"])).await?;
    phase_reached(world, "rolling", BackupPhase::InProgress).await?;
    front.set(Fault::Refuse);
    tokio::time::sleep(Duration::from_secs(4)).await;
    front.set(Fault::None);
    s3(world)?.front.set(Fault::None);
    let backup = world.backup_ended("rolling").await?;
    ensure!(backup.phase() == BackupPhase::Completed, "{:?}", backup.status);
    Ok(())
}

pub fn backups(world: &World) -> Api<Backup> {
    Api::namespaced(world.client.clone(), NAMESPACE)
}

pub fn restores(world: &World) -> Api<Restore> {
    Api::namespaced(world.client.clone(), NAMESPACE)
}

pub fn s3(world: &World) -> anyhow::Result<&S3> {
    world.s3.as_ref().ok_or_else(|| crate::Skip("there is no S3 server without Go").into())
}

pub fn of_namespaces(names: &[&str]) -> BackupSpec {
    BackupSpec {
        included_namespaces: names.iter().map(ToString::to_string).collect(),
        ..BackupSpec::default()
    }
}

pub async fn create_backup(world: &World, name: &str, spec: BackupSpec) -> anyhow::Result<Backup> {
    Ok(backups(world).create(&PostParams::default(), &Backup::new(name, spec)).await?)
}

pub async fn restore(world: &World, name: &str, spec: RestoreSpec) -> anyhow::Result<Restore> {
    restores(world).create(&PostParams::default(), &Restore::new(name, spec)).await?;
    world.restore_ended(name).await
}

async fn phase_reached(world: &World, name: &str, phase: BackupPhase) -> anyhow::Result<()> {
    eventually(&format!("backup {name} is {phase}"), Duration::from_secs(30), async || {
        let now = backups(world).get(name).await?.phase();
        Ok::<_, kube::Error>(when(now == phase, now.to_string()))
    })
    .await
}

/// A namespace with so many ConfigMaps.
pub async fn config_maps(world: &World, namespace: &str, count: usize) -> anyhow::Result<()> {
    backup_tests::install::ensure_namespace(&world.client, namespace).await?;
    let resource = kube::core::ApiResource::erase::<ConfigMap>(&());
    let objects = (0..count).map(|number| {
        let object = serde_json::json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": format!("item-{number}"), "namespace": namespace },
            "data": { "number": number.to_string(), "filling": "x".repeat(500) } });
        (resource.clone(), object)
    });
    backup_tests::app::create_all(&world.client, objects.collect()).await
}

/// Waits for the service account that every namespace gets.
pub async fn service_account(world: &World, namespace: &str) -> anyhow::Result<()> {
    let api: Api<ServiceAccount> = Api::namespaced(world.client.clone(), namespace);
    eventually("the service account is there", Duration::from_secs(30), async || {
        Ok::<_, kube::Error>(when(api.get_opt("default").await?.is_some(), "not yet"))
    })
    .await
}

pub async fn delete_namespace(world: &World, name: &str) -> anyhow::Result<()> {
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    namespaces.delete(name, &DeleteParams::background()).await?;
    backup_tests::app::gone(&namespaces, name).await
}

pub async fn count_config_maps(world: &World, namespace: &str) -> anyhow::Result<usize> {
    let api: Api<ConfigMap> = Api::namespaced(world.client.clone(), namespace);
    Ok(api.list_metadata(&ListParams::default()).await?.items.len())
}
