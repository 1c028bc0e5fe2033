//! The main job: backed-up objects are lost and restored, and Completed means completed.

use std::collections::BTreeSet;

use backup_tests::{
    app::App,
    listing::{differences, list},
    proxy::Fault,
};

use crate::prelude::*;

crate::tests! {
    what_came_back_is_what_was_there,
    completed_means_contents_and_metadata_are_in_the_bucket,
    a_restore_goes_into_mapped_namespaces,
    a_killed_controller_finishes_what_it_had_begun,
    an_outage_of_the_bucket_delays_the_end_and_loses_nothing,
    an_outage_of_the_api_server_delays_the_end_and_loses_nothing,
}

async fn what_came_back_is_what_was_there(world: &mut World) -> TestResult {
    let app = App::new("main", 60);
    app.create(&world.client).await?;
    let namespaces = app.namespaces();
    let names = namespaces.each_ref().map(String::as_str);
    let before = list(&world.client, &names, &["main"]).await?;
    ensure!(
        before.len() > 300,
        "the application has only {} objects",
        before.len()
    );

    world.back_up("main-job", BackupSpec::default()).await?;
    app.destroy(&world.client).await?;
    ensure!(
        list(&world.client, &names, &["main"]).await?.is_empty(),
        "something is left after the destruction"
    );

    let spec = RestoreSpec {
        included_namespaces: namespaces.to_vec(),
        include_cluster_resources: Some(true),
        ..from_backup("main-job")
    };
    world.restore("main-job", spec).await?;
    // The cluster's controllers adopt restored objects at their own pace.
    eventually(
        "what came back is what was there",
        Duration::from_secs(30),
        async || {
            let different = differences(&before, &list(&world.client, &names, &["main"]).await?);
            anyhow::Ok(when(different.is_empty(), different.join("\n")))
        },
    )
    .await
}

async fn completed_means_contents_and_metadata_are_in_the_bucket(world: &mut World) -> TestResult {
    let backup = world.backed_up("stored", 30).await?;
    let s3 = world.s3()?;

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
        ensure!(
            keys.contains(file),
            "{file} is not in the bucket; there are {keys:?}"
        );
    }
    let bytes = s3.read(BUCKET, "backups/stored/velero-backup.json").await?;
    let stored: Backup = serde_json::from_slice(&bytes)?;
    ensure!(
        stored.phase() == BackupPhase::Completed,
        "{:?}",
        stored.status
    );
    ensure!(
        stored.status.completion_timestamp == backup.status.completion_timestamp,
        "two completion times"
    );
    ensure!(
        stored.metadata.uid == backup.metadata.uid,
        "the stored backup is another one"
    );
    let has_times = stored.status.start_timestamp.is_some() && stored.status.expiration.is_some();
    ensure!(has_times, "{:?}", stored.status);

    let names = world.backup_entries("stored").await?;
    ensure!(
        names[0] == "metadata/version",
        "the first entry is {:?}",
        names[0]
    );
    for number in 0..30 {
        for folder in ["", "v1-preferredversion/"] {
            let path = format!("resources/configmaps/{folder}namespaces/stored/item-{number}.json");
            ensure!(
                names.iter().filter(|name| **name == path).count() == 1,
                "{path} is not there once"
            );
        }
    }
    let namespace = "resources/namespaces/cluster/stored.json".to_owned();
    ensure!(
        names.contains(&namespace),
        "the namespace itself is missing"
    );
    Ok(())
}

async fn a_restore_goes_into_mapped_namespaces(world: &mut World) -> TestResult {
    world.config_maps("here", 5).await?;
    world.back_up("mapped", of_namespaces(&["here"])).await?;
    let mapping = [("here".to_owned(), "there".to_owned())].into();
    let spec = RestoreSpec {
        namespace_mapping: mapping,
        ..from_backup("mapped")
    };
    world.restore("mapped", spec).await?;
    let there: Api<ConfigMap> = Api::namespaced(world.client.clone(), "there");
    let item = there.get("item-3").await?;
    let labels = item.metadata.labels.unwrap_or_default();
    ensure!(
        labels
            .get("velero.io/restore-name")
            .is_some_and(|name| name == "mapped"),
        "{labels:?}"
    );
    ensure!(
        item.data.is_some_and(|data| data["number"] == "3"),
        "other data"
    );
    Ok(())
}

async fn a_killed_controller_finishes_what_it_had_begun(world: &mut World) -> TestResult {
    world.config_maps("killed", 400).await?;
    world
        .s3()?
        .front
        .set(Fault::Delay(Duration::from_millis(300)));
    world.start_backup("killed").await?;
    world
        .backup_reaches("killed", BackupPhase::InProgress)
        .await?;
    world.controllers[0].restart().await?;
    world.s3()?.front.set(Fault::None);
    world.backup_ends("killed", BackupPhase::Completed).await?;
    let entries = world
        .s3()?
        .inspect_tarball(BUCKET, "backups/killed/killed.tar.gz")
        .await?;
    ensure!(entries.len() > 800, "only {} entries", entries.len());
    Ok(())
}

async fn an_outage_of_the_bucket_delays_the_end_and_loses_nothing(world: &mut World) -> TestResult {
    world.config_maps("outage", 50).await?;
    world
        .s3()?
        .front
        .set(Fault::Delay(Duration::from_millis(200)));
    world.start_backup("outage").await?;
    world
        .backup_reaches("outage", BackupPhase::InProgress)
        .await?;
    world.s3()?.front.set(Fault::Refuse);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let phase = world.backups().get("outage").await?.phase();
    world.s3()?.front.set(Fault::None);
    ensure!(phase.is_active(), "{phase} while nothing could be stored");
    world.backup_ends("outage", BackupPhase::Completed).await?;
    world
        .s3()?
        .inspect_tarball(BUCKET, "backups/outage/outage.tar.gz")
        .await?;
    Ok(())
}

async fn an_outage_of_the_api_server_delays_the_end_and_loses_nothing(
    world: &mut World,
) -> TestResult {
    let front = world.plane_front()?;
    world.config_maps("rolling", 200).await?;
    world
        .s3()?
        .front
        .set(Fault::Delay(Duration::from_millis(200)));
    world.start_backup("rolling").await?;
    world
        .backup_reaches("rolling", BackupPhase::InProgress)
        .await?;
    front.set(Fault::Refuse);
    tokio::time::sleep(Duration::from_secs(4)).await;
    front.set(Fault::None);
    world.s3()?.front.set(Fault::None);
    world.backup_ends("rolling", BackupPhase::Completed).await?;
    Ok(())
}
