//! Requests of users to the controller by objects: URLs of files, and which version runs with which
//! plugins.

use std::{collections::BTreeSet, time::Instant};

use backup_core::api::{
    DownloadRequest, ServerStatusRequest, download_request::DownloadRequestPhase,
    server_status_request::ServerStatusRequestSpec,
};
use backup_tests::{object_store::S3, world::downloads::download_request};
use flate2::read::MultiGzDecoder;
use futures::{TryStreamExt as _, future::try_join_all};
use kube::api::{WatchEvent, WatchParams};

use crate::prelude::*;

crate::tests! {
    files_of_backups_and_restores_are_downloaded_by_signed_urls,
    what_is_unknown_is_answered_at_once_with_the_reason,
    a_hundred_requests_are_answered_while_people_wait,
    requests_that_are_over_are_removed_and_others_stay,
}

// In the world with plugins.
crate::tests! { WITH_PLUGINS:
    operations_of_a_waiting_backup_are_downloaded,
    the_log_of_a_backup_in_progress_is_downloaded,
    operations_of_a_waiting_restore_are_downloaded,
    a_server_status_request_names_version_and_plugins,
}

/// The status code and the bytes behind a URL, without credentials.
async fn fetch(url: &str) -> anyhow::Result<(u16, Vec<u8>)> {
    let answer = reqwest::get(url).await?;
    Ok((answer.status().as_u16(), answer.bytes().await?.to_vec()))
}

/// The document behind a URL.
async fn document(url: &str) -> anyhow::Result<Value> {
    let (code, bytes) = fetch(url).await?;
    ensure!(code == 200, "{code}: {}", String::from_utf8_lossy(&bytes));
    Ok(serde_json::from_str(&unpacked(&bytes)?)?)
}

fn unpacked(bytes: &[u8]) -> anyhow::Result<String> {
    Ok(std::io::read_to_string(MultiGzDecoder::new(bytes))?)
}

async fn files_of_backups_and_restores_are_downloaded_by_signed_urls(
    world: &mut World,
) -> TestResult {
    let s3 = world.s3()?;
    let name = "downloaded";
    world.backed_up(name, 5).await?;
    world
        .restore(name, into_namespace(name, &format!("{name}-too")))
        .await?;

    for (kind, key) in [
        ("BackupLog", "backups/downloaded/downloaded-logs.gz"),
        ("BackupContents", "backups/downloaded/downloaded.tar.gz"),
        (
            "BackupVolumeSnapshots",
            "backups/downloaded/downloaded-volumesnapshots.json.gz",
        ),
        (
            "BackupItemOperations",
            "backups/downloaded/downloaded-itemoperations.json.gz",
        ),
        (
            "BackupResourceList",
            "backups/downloaded/downloaded-resource-list.json.gz",
        ),
        ("BackupResults", "backups/downloaded/downloaded-results.gz"),
        (
            "BackupVolumeInfos",
            "backups/downloaded/downloaded-volumeinfo.json.gz",
        ),
        (
            "RestoreLog",
            "restores/downloaded/restore-downloaded-logs.gz",
        ),
        (
            "RestoreResults",
            "restores/downloaded/restore-downloaded-results.gz",
        ),
        (
            "RestoreResourceList",
            "restores/downloaded/restore-downloaded-resource-list.json.gz",
        ),
        (
            "RestoreItemOperations",
            "restores/downloaded/restore-downloaded-itemoperations.json.gz",
        ),
        (
            "RestoreVolumeInfo",
            "restores/downloaded/downloaded-volumeinfo.json.gz",
        ),
    ] {
        let (code, bytes) = fetch(&world.url_of(kind, name).await?).await?;
        ensure!(
            code == 200 && bytes == s3.read(BUCKET, key).await?,
            "{kind}: {code}, {} bytes",
            bytes.len()
        );
    }
    // Files that only older backups have: the URL leads to a 404, which Velero's command line
    // expects.
    for kind in [
        "CSIBackupVolumeSnapshots",
        "CSIBackupVolumeSnapshotContents",
    ] {
        let (code, _) = fetch(&world.url_of(kind, name).await?).await?;
        ensure!(code == 404, "{kind}: {code}");
    }
    // A URL gives access to one file only.
    let url = world.url_of("BackupResults", name).await?;
    ensure!(
        !url.contains(backup_tests::object_store::SECRET),
        "the secret is in the URL"
    );
    let (code, _) = fetch(&url.replace("-results.gz", "-logs.gz")).await?;
    ensure!(code == 403, "another file: {code}");
    let log = world.controllers[0].tail(100_000);
    ensure!(!log.contains("X-Amz-Signature"), "a URL is in the log");
    Ok(())
}

async fn what_is_unknown_is_answered_at_once_with_the_reason(world: &mut World) -> TestResult {
    let lost = json!({ "provider": "example.io/nobody", "objectStorage": { "bucket": "b" } });
    world.apply_location("unknown", lost).await?;
    let local = json!({ "provider": "local", "objectStorage": { "bucket": world.folder().join("unsigned") } });
    world.apply_location("unsigned", local).await?;
    for location in ["unknown", "unsigned", "nowhere"] {
        let name = format!("in-{location}");
        world
            .create_backup(&name, into_location(location, &["default"]))
            .await?;
        world.backup_ended(&name).await?;
    }
    world
        .create_restore("from-nothing", from_backup("never-was"))
        .await?;
    for (kind, of, reason) in [
        (
            "BackupLog",
            "never-was",
            "backup never-was not found in namespace velero",
        ),
        (
            "RestoreLog",
            "never-was",
            "restore never-was not found in namespace velero",
        ),
        (
            "RestoreResults",
            "from-nothing",
            "backup never-was, which restore from-nothing is from not found",
        ),
        (
            "BackupLog",
            "in-nowhere",
            "BackupStorageLocation nowhere not found",
        ),
        (
            "BackupLog",
            "in-unknown",
            "no plugin offers an object store example.io/nobody",
        ),
        (
            "BackupLog",
            "in-unsigned",
            "there are no URLs for files in file://",
        ),
    ] {
        let begun = Instant::now();
        let status = world.ask_for_file(kind, of).await?;
        ensure!(
            begun.elapsed() < Duration::from_secs(3),
            "{kind} of {of} took {:?}",
            begun.elapsed()
        );
        let message = status.message.unwrap_or_default();
        ensure!(
            status.phase == Some(DownloadRequestPhase::Failed) && status.download_url.is_none(),
            "{kind} of {of}: {:?}",
            status.phase
        );
        ensure!(message.contains(reason), "{kind} of {of}: {message}");
    }
    Ok(())
}

/// Latencies of `count` concurrent requests: from the creation of each to its answer, as seen by a
/// watch.
async fn answers(world: &World, count: usize, of: &str) -> anyhow::Result<Vec<Duration>> {
    let api = world.api::<DownloadRequest>();
    let version = api
        .list(&kube::api::ListParams::default().limit(1))
        .await?
        .metadata
        .resource_version;
    let mut seen = Box::pin(
        api.watch(
            &WatchParams::default().timeout(60),
            &version.unwrap_or_default(),
        )
        .await?,
    );
    let prefix = format!("many-{}-", jiff::Timestamp::now().as_millisecond());
    let (prefix, api) = (prefix.as_str(), &api);
    // Opening connections is not measured: they are open when the requests are made.
    try_join_all((0..count).map(|_| api.get_opt("no-request"))).await?;
    let created = try_join_all((0..count).map(|number| async move {
        let name = format!("{prefix}{number}");
        let asked = download_request(
            &name,
            if number % 2 == 0 {
                "BackupLog"
            } else {
                "BackupVolumeInfos"
            },
            of,
        );
        let begun = Instant::now();
        api.create_object(&asked).await?;
        Ok::<_, kube::Error>((name, begun))
    }));
    let answered = async {
        let mut answered = std::collections::BTreeMap::new();
        while answered.len() < count {
            let event = seen.try_next().await?.context("the watch ended")?;
            if let WatchEvent::Modified(request) = event
                && request.status.phase == Some(DownloadRequestPhase::Processed)
                && let Some(name) = request
                    .metadata
                    .name
                    .filter(|name| name.starts_with(prefix))
            {
                answered.entry(name).or_insert_with(Instant::now);
            }
        }
        anyhow::Ok(answered)
    };
    let (created, answered) = tokio::try_join!(async { Ok(created.await?) }, answered)?;
    let mut took: Vec<Duration> = created
        .into_iter()
        .map(|(name, begun)| answered[&name].duration_since(begun))
        .collect();
    took.sort();
    Ok(took)
}

async fn a_hundred_requests_are_answered_while_people_wait(world: &mut World) -> TestResult {
    let _: &S3 = world.s3()?;
    let name = "asked-often";
    world.backed_up(name, 1).await?;
    for round in ["first", "again"] {
        let took = answers(world, 100, name).await?;
        let (half, most, all) = (took[50], took[95], took[99]);
        println!(
            "  {round}: 100 at once are answered: half in {half:?}, 95 in {most:?}, all in {all:?}"
        );
        // The target is 250 ms with a release build; this is a busy machine with a debug build.
        ensure!(most < Duration::from_secs(5), "95 of 100 took {most:?}");
    }
    // A single request while those exist.
    let took = answers(world, 1, name).await?;
    println!("  one more is answered in {:?}", took[0]);
    ensure!(took[0] < Duration::from_secs(1), "{:?}", took[0]);
    Ok(())
}

async fn requests_that_are_over_are_removed_and_others_stay(world: &mut World) -> TestResult {
    let (api, status) = (
        world.api::<DownloadRequest>(),
        world.api::<ServerStatusRequest>(),
    );
    let ago = |seconds| jiff::Timestamp::now() - jiff::SignedDuration::from_secs(seconds);
    let spec = json!({ "target": { "kind": "BackupLog", "name": "never-was" } });
    for (name, end) in [("over", ago(1)), ("not-over", ago(-300))] {
        let object = json!({ "apiVersion": "velero.io/v1", "kind": "DownloadRequest", "metadata": { "name": name }, "spec": spec,
            "status": { "phase": "Processed", "downloadURL": "http://x", "expiration": end } });
        api.create_json(object).await?;
    }
    for (name, end) in [("over", ago(61)), ("not-over", ago(0))] {
        let object = json!({ "apiVersion": "velero.io/v1", "kind": "ServerStatusRequest", "metadata": { "name": name },
            "status": { "phase": "Processed", "processedTimestamp": end } });
        status.create_json(object).await?;
    }
    api.wait_gone("over", Duration::from_secs(10)).await?;
    status.wait_gone("over", Duration::from_secs(10)).await?;
    // A request that had not expired yet does so while it is watched.
    api.merge_patch("not-over", json!({ "status": { "expiration": ago(-1) } }))
        .await?;
    api.wait_gone("not-over", Duration::from_secs(10)).await?;
    ensure!(
        status.get_opt("not-over").await?.is_some(),
        "one that was just answered is gone"
    );
    Ok(())
}

async fn operations_of_a_waiting_backup_are_downloaded(world: &mut World) -> TestResult {
    let plugins = world.plugins()?;
    let name = "asked-waiting";
    world
        .scripted(
            name,
            &[
                ("a", "operate", "start=1s"),
                ("b", "operate", "start=released"),
            ],
        )
        .await?;
    world.create_backup(name, of_scripted(name)).await?;
    let one_of_two = |backup: &Backup| {
        let status = &backup.status;
        (
            status.backup_item_operations_completed,
            status.backup_item_operations_attempted,
        ) == (1, 2)
    };
    world
        .backups()
        .wait_until(
            name,
            "has completed one of two operations",
            POINT_TIMEOUT,
            one_of_two,
        )
        .await?;
    let operations = document(&world.url_of("BackupItemOperations", name).await?).await?;
    let phases: BTreeSet<&str> = operations
        .as_array()
        .context("no list")?
        .iter()
        .filter_map(|one| one["status"]["phase"].as_str())
        .collect();
    ensure!(
        phases.contains("Completed") && phases.len() == 2,
        "{operations}"
    );
    document(&world.url_of("BackupResults", name).await?).await?;
    let (code, log) = fetch(&world.url_of("BackupLog", name).await?).await?;
    let log = unpacked(&log)?;
    ensure!(code == 200 && log.contains("level=info"), "{code}: {log}");
    ensure!(
        world.partial_files("backups/asked-waiting/").await?.len() == 3,
        "not written under private keys"
    );

    plugins.release()?;
    world.backup_ends(name, BackupPhase::Completed).await?;
    world.no_partial_files("backups/asked-waiting/").await?;
    let operations = document(&world.url_of("BackupItemOperations", name).await?).await?;
    let ended = |one: &Value| one["status"]["phase"] == "Completed";
    ensure!(
        operations
            .as_array()
            .is_some_and(|all| all.len() == 2 && all.iter().all(ended)),
        "{operations}"
    );
    Ok(())
}

async fn the_log_of_a_backup_in_progress_is_downloaded(world: &mut World) -> TestResult {
    world.plugins()?;
    let name = "asked-early";
    world
        .scripted(
            name,
            &[
                ("a", "mark", "say=info:early"),
                ("b", "mark", "slow=8s say=info:late"),
            ],
        )
        .await?;
    world.create_backup(name, of_scripted(name)).await?;
    let mut urls = BTreeSet::new();
    eventually("the log comes so far", POINT_TIMEOUT, async || {
        let url = world.url_of("BackupLog", name).await?;
        let (code, log) = fetch(&url).await?;
        let log = if code == 200 {
            unpacked(&log)?
        } else {
            String::new()
        };
        ensure!(
            !log.contains("late"),
            "it was not asked for early enough: {log}"
        );
        if code == 200 {
            urls.insert(url);
        }
        Ok(when(log.contains("early"), format!("{code}: {log}")))
    })
    .await?;
    let kept = world.partial_files("backups/asked-early/").await?;
    ensure!(!kept.is_empty() && kept.len() <= urls.len(), "{kept:?}");
    for nothing_yet in ["BackupContents", "BackupResults"] {
        let (code, _) = fetch(&world.url_of(nothing_yet, name).await?).await?;
        ensure!(code == 404, "{nothing_yet}: {code}");
    }
    world.backup_ends(name, BackupPhase::Completed).await?;
    world.no_partial_files("backups/asked-early/").await?;
    let (_, log) = fetch(&world.url_of("BackupLog", name).await?).await?;
    let log = unpacked(&log)?;
    says(&log, &["early", "late"])?;
    Ok(())
}

async fn operations_of_a_waiting_restore_are_downloaded(world: &mut World) -> TestResult {
    let name = "asked-moving";
    world.plugins()?;
    world
        .scripted_backup(name, &[("a", "move", "start=8s")])
        .await?;
    world
        .create_restore(name, into_namespace(name, &format!("{name}-too")))
        .await?;
    world
        .restore_reaches(name, RestorePhase::WaitingForPluginOperations)
        .await?;
    let operations = document(&world.url_of("RestoreItemOperations", name).await?).await?;
    ensure!(
        operations.as_array().is_some_and(|all| all.len() == 1),
        "{operations}"
    );
    ensure!(
        operations[0]["status"]["phase"] != "Completed",
        "{operations}"
    );
    ensure!(
        world.partial_files("restores/asked-moving/").await?.len() == 1,
        "not written under a private key"
    );
    world.restore_ends(name, RestorePhase::Completed).await?;
    let operations = document(&world.url_of("RestoreItemOperations", name).await?).await?;
    ensure!(
        operations[0]["status"]["phase"] == "Completed",
        "{operations}"
    );
    ensure!(
        world
            .partial_files("restores/asked-moving/")
            .await?
            .is_empty(),
        "private keys stay"
    );
    Ok(())
}

async fn a_server_status_request_names_version_and_plugins(world: &mut World) -> TestResult {
    world.plugins()?;
    let api = world.api::<ServerStatusRequest>();
    let begun = Instant::now();
    api.create_object(&ServerStatusRequest::new(
        "which",
        ServerStatusRequestSpec::default(),
    ))
    .await?;
    let answered = |request: &ServerStatusRequest| request.status.phase.is_some();
    let status = api
        .wait_until("which", "is answered", Duration::from_secs(5), answered)
        .await?
        .status;
    ensure!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    let version = status.server_version.unwrap_or_default();
    ensure!(version.starts_with("backup-controller v"), "{version}");
    ensure!(status.processed_timestamp.is_some(), "no time");
    let names: BTreeSet<(&str, &str)> = status
        .plugins
        .iter()
        .map(|plugin| (plugin.kind.as_str(), plugin.name.as_str()))
        .collect();
    for expected in [
        ("BackupItemAction", "velero.io/pod"),
        ("RestoreItemAction", "velero.io/service"),
        ("ItemBlockAction", "velero.io/pvc"),
        ("ObjectStore", "velero.io/aws"),
        ("ObjectStore", "example.io/folder"),
        ("BackupItemActionV2", "example.io/operate"),
    ] {
        ensure!(
            names.contains(&expected),
            "{expected:?} is missing: {names:?}"
        );
    }
    ensure!(
        names.len() == status.plugins.len(),
        "one is there twice: {:?}",
        status.plugins
    );
    Ok(())
}
