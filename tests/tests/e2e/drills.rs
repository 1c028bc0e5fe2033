//! What a store can do to a backup. After every drill each final key has exactly one version, nothing is left half
//! uploaded, and Go's tar and gzip open what is there.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use backup_core::{
    api::{Backup, BackupPhase, BackupSpec, BackupStorageLocation},
    labels::BLOCKED_ANNOTATION,
};
use backup_tests::{
    World,
    faulty_s3::{Asked, FaultyS3, Mood},
    install::NAMESPACE,
    object_store::S3,
    proxy::Fault,
    wait::{Probe, eventually, when},
};
use k8s_openapi::api::core::v1::ConfigMap;
use object_store::ObjectStoreExt as _;
use serde_json::json;

use crate::main_job::{backups, create_backup, of_namespaces, s3};

crate::tests! {
    object_lock_with_retention_and_versions_is_no_hindrance,
    a_policy_that_denies_overwriting_is_no_hindrance,
    a_policy_that_denies_all_writes_for_a_while_delays_the_end,
    both_last_uploads_failing_in_finalizing_keep_it_there,
    both_last_uploads_failing_in_finalizing_partially_failed_keep_it_there,
    a_store_that_answers_with_every_error_once_gets_everything_once,
    a_store_that_loses_every_answer_once_gets_everything_once,
    a_connection_that_is_cut_in_the_middle_of_a_part_is_begun_again,
    a_slow_store_is_waited_for,
    a_store_that_goes_down_at_the_end_is_finished_when_it_is_back,
    an_upload_that_a_lifecycle_rule_removes_is_collected_again,
    foreign_bytes_under_a_final_key_are_shown_and_left_alone,
    a_full_local_disk_delays_the_end_and_loses_nothing,
}

/// A store of a drill's own, behind a proxy.
pub struct Drill<'a> {
    world: &'a World,
    s3: &'a S3,
    pub front: FaultyS3,
    pub name: &'static str,
}

/// Which end of a bucket there is.
#[derive(Clone, Copy, PartialEq)]
pub enum Bucket {
    Versioned,
    Locked,
}

impl<'a> Drill<'a> {
    /// A bucket, a location, and a namespace with so much that contents take several parts, all of one name.
    pub async fn start(world: &'a World, name: &'static str, bucket: Bucket) -> anyhow::Result<Self> {
        let s3 = s3(world)?;
        match bucket {
            Bucket::Versioned => s3.create_versioned_bucket(name).await?,
            Bucket::Locked => s3.create_locked_bucket(name).await?,
        }
        let front = FaultyS3::start(s3.address()).await?;
        location(world, name, name, &front.url()).await?;
        noise(world, name, 22).await?;
        Ok(Self { world, s3, front, name })
    }

    pub async fn backup(&self) -> anyhow::Result<()> {
        create_backup(self.world, self.name, of(self.name)).await.map(drop)
    }

    async fn ended_as(&self, phase: BackupPhase) -> anyhow::Result<()> {
        let backup = self.world.backup_ended(self.name).await?;
        ensure!(backup.phase() == phase, "{:?}", backup.status);
        ensure!(reason(&backup).is_empty(), "the reason still stands there: {}", reason(&backup));
        whole(self.s3, self.name, self.name, &backup).await?;
        // Its proxy ends with the drill; nobody has to ask for it for ever.
        let locations: kube::Api<BackupStorageLocation> =
            kube::Api::namespaced(self.world.client.clone(), NAMESPACE);
        locations.delete(self.name, &kube::api::DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until the backup says why it does not go on.
    async fn blocked(&self, phase: &BackupPhase) -> anyhow::Result<String> {
        blocked(self.world, self.name, phase).await
    }
}

pub fn of(name: &str) -> BackupSpec {
    BackupSpec { storage_location: Some(name.to_owned()), ..of_namespaces(&[name]) }
}

pub async fn location(world: &World, name: &str, bucket: &str, url: &str) -> anyhow::Result<()> {
    let spec = json!({
        "provider": "aws", "objectStorage": { "bucket": bucket },
        "config": { "region": "us-east-1", "s3ForcePathStyle": "true", "s3Url": url },
        "credential": { "name": "cloud-credentials", "key": "cloud" },
    });
    world.apply_location(name, spec).await?;
    world.location_available(name).await
}

/// A namespace with so many ConfigMaps of half a MiB that does not compress well.
pub async fn noise(world: &World, namespace: &str, count: u64) -> anyhow::Result<()> {
    backup_tests::install::ensure_namespace(&world.client, namespace).await?;
    let resource = kube::core::ApiResource::erase::<ConfigMap>(&());
    // The same for all: compression does not look back so far.
    let mut state: u64 = 1;
    let text: String = (0..512 * 1024)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'!' + u8::try_from((state >> 58) & 63).unwrap_or_default())
        })
        .map(|c| if c == '"' || c == '\\' { '~' } else { c })
        .collect();
    let objects = (0..count).map(|number| {
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "noise": text },
            "metadata": { "name": format!("item-{number}"), "namespace": namespace } });
        (resource.clone(), object)
    });
    backup_tests::app::create_all(&world.client, objects.collect()).await
}

fn reason(backup: &Backup) -> &str {
    let annotations = backup.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(BLOCKED_ANNOTATION)).map_or("", String::as_str)
}

/// Waits until a backup says why it does not go on in this phase.
pub async fn blocked(world: &World, name: &str, phase: &BackupPhase) -> anyhow::Result<String> {
    let what = format!("backup {name} is blocked in {phase}");
    let backup = eventually(&what, Duration::from_mins(2), async || {
        let backup = backups(world).get(name).await?;
        let seen = format!("{} {:?}", backup.phase(), reason(&backup));
        let there = !reason(&backup).is_empty() && backup.phase() == *phase;
        Ok::<_, kube::Error>(if there { Probe::Ready(backup) } else { Probe::NotYet(seen) })
    })
    .await?;
    ensure!(backup.status.completion_timestamp.is_none(), "completed before it is stored");
    Ok(reason(&backup).to_owned())
}

/// What must be true of a store once a backup has ended. The entries of its tarball.
pub async fn whole(
    s3: &S3,
    bucket: &str,
    name: &str,
    ended: &Backup,
) -> anyhow::Result<Vec<serde_json::Value>> {
    let folder = format!("backups/{name}/");
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (key, is_deletion) in s3.versions(bucket).await? {
        let Some(file) = key.strip_prefix(&folder).filter(|file| !file.starts_with(".private/")) else {
            continue;
        };
        ensure!(!is_deletion, "{key} was deleted");
        *counts.entry(file.to_owned()).or_default() += 1;
    }
    ensure!(
        counts.len() == 9 && counts.values().all(|count| *count == 1),
        "not one version of each file: {counts:?}"
    );
    let uploads = s3.uploads(bucket).await?;
    ensure!(uploads.is_empty(), "left half uploaded: {uploads:?}");
    let contents = format!("{folder}{name}.tar.gz");
    let entries = match ended.status.backup_item_operations_attempted {
        0 => s3.inspect_tarball(bucket, &contents).await?,
        _ => s3.inspect_replaced(bucket, &contents).await?,
    };
    ensure!(entries.len() > 3, "only {} entries", entries.len());
    let metadata =
        s3.bucket(bucket)?.get(&format!("{folder}velero-backup.json").into()).await?.bytes().await?;
    let stored: Backup = serde_json::from_slice(&metadata)?;
    ensure!(
        stored.phase() == ended.phase()
            && stored.status.completion_timestamp == ended.status.completion_timestamp
            && stored.metadata.uid == ended.metadata.uid,
        "the cluster says {:?}, the store {:?}",
        ended.status,
        stored.status
    );
    Ok(entries)
}

async fn object_lock_with_retention_and_versions_is_no_hindrance(world: &mut World) -> anyhow::Result<()> {
    let drill = Drill::start(world, "drill-lock", Bucket::Locked).await?;
    drill.front.rule(once(Asked::writes, Mood::LoseAnswer));
    drill.backup().await?;
    drill.ended_as(BackupPhase::Completed).await
}

/// As bucket policies on AWS do it: whoever writes must ask that nothing is there (`s3:if-none-match`).
async fn a_policy_that_denies_overwriting_is_no_hindrance(world: &mut World) -> anyhow::Result<()> {
    let drill = Drill::start(world, "drill-overwriting", Bucket::Versioned).await?;
    let lose = once(Asked::writes, Mood::LoseAnswer);
    drill.front.rule(move |asked| {
        let denied = asked.makes_visible() && !asked.only_new;
        if denied { Mood::Answer(403) } else { lose(asked) }
    });
    drill.backup().await?;
    drill.ended_as(BackupPhase::Completed).await
}

async fn a_policy_that_denies_all_writes_for_a_while_delays_the_end(world: &mut World) -> anyhow::Result<()> {
    let drill = Drill::start(world, "drill-denied", Bucket::Versioned).await?;
    drill.front.rule(|asked| if asked.writes() { Mood::Answer(403) } else { Mood::Pass });
    drill.backup().await?;
    let reason = drill.blocked(&BackupPhase::Finalizing).await?;
    ensure!(reason.contains("AccessDenied") && reason.contains("policy of the bucket"), "{reason}");
    // And once more after the collection.
    drill.front.rule(|asked| {
        let late = asked.key.contains("/.private/record-") || asked.makes_final();
        if late && asked.writes() { Mood::Answer(403) } else { Mood::Pass }
    });
    eventually("the record is denied", Duration::from_mins(2), async || {
        let asked = drill.front.asked();
        anyhow::Ok(when(asked.iter().any(|asked| asked.key.contains("/.private/record-")), "not yet"))
    })
    .await?;
    drill.blocked(&BackupPhase::Finalizing).await?;
    ensure!(drill.s3.keys(drill.name).await?.iter().all(|key| key.contains("/.")), "visible too early");
    drill.front.calm();
    drill.ended_as(BackupPhase::Completed).await
}

async fn both_last_uploads_failing_in_finalizing_keep_it_there(world: &mut World) -> anyhow::Result<()> {
    let drill = Drill::start(world, "drill-finalizing", Bucket::Versioned).await?;
    both_last_uploads_fail(&drill, BackupPhase::Finalizing, BackupPhase::Completed).await
}

async fn both_last_uploads_failing_in_finalizing_partially_failed_keep_it_there(
    world: &mut World,
) -> anyhow::Result<()> {
    // A group whose API server is not there: of its types nothing can be known.
    let services: kube::Api<kube::core::DynamicObject> =
        kube::Api::all_with(world.client.clone(), &api_services());
    let service = json!({ "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": { "name": "v1.gone.example.com" },
        "spec": { "group": "gone.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
            "insecureSkipTLSVerify": true, "service": { "namespace": "default", "name": "gone" } } });
    services.create(&kube::api::PostParams::default(), &serde_json::from_value(service)?).await?;
    let result = async {
        let drill = Drill::start(world, "drill-finalizing-pf", Bucket::Versioned).await?;
        both_last_uploads_fail(&drill, BackupPhase::FinalizingPartiallyFailed, BackupPhase::PartiallyFailed)
            .await
    }
    .await;
    services.delete("v1.gone.example.com", &kube::api::DeleteParams::default()).await?;
    result
}

fn api_services() -> kube::core::ApiResource {
    kube::core::ApiResource {
        group: "apiregistration.k8s.io".into(),
        version: "v1".into(),
        api_version: "apiregistration.k8s.io/v1".into(),
        kind: "APIService".into(),
        plural: "apiservices".into(),
    }
}

async fn both_last_uploads_fail(
    drill: &Drill<'_>,
    waits: BackupPhase,
    end: BackupPhase,
) -> anyhow::Result<()> {
    drill.front.rule(|asked| if asked.makes_final() { Mood::Answer(403) } else { Mood::Pass });
    drill.backup().await?;
    let reason = drill.blocked(&waits).await?;
    ensure!(reason.contains(".tar.gz"), "{reason}");
    let metadata = |asked: &Asked| asked.key.ends_with("/velero-backup.json") && asked.writes();
    drill.front.rule(move |asked| if metadata(asked) { Mood::Answer(403) } else { Mood::Pass });
    eventually("the metadata is denied", Duration::from_mins(2), async || {
        anyhow::Ok(when(drill.front.asked().iter().any(metadata), "not yet"))
    })
    .await?;
    let backup = backups(drill.world).get(drill.name).await?;
    ensure!(backup.phase() == waits && backup.status.completion_timestamp.is_none(), "{:?}", backup.status);
    let keys = drill.s3.keys(drill.name).await?;
    ensure!(keys.iter().any(|key| key.ends_with(".tar.gz")), "contents come first: {keys:?}");
    drill.front.calm();
    drill.ended_as(end).await
}

/// A rule that has a mood for each different request once.
fn once(
    which: impl Fn(&Asked) -> bool + Send + Sync + 'static,
    mood: Mood,
) -> impl Fn(&Asked) -> Mood + Send + Sync {
    let seen: Arc<Mutex<HashSet<Asked>>> = Arc::default();
    move |asked| {
        // Ids of uploads differ from try to try; a part is the same part.
        let query = asked.query.split('&').filter(|pair| !pair.starts_with("uploadId=")).collect();
        let same = Asked { query, ..asked.clone() };
        let first = seen.lock().is_ok_and(|mut seen| seen.insert(same));
        if first && which(asked) { mood } else { Mood::Pass }
    }
}

async fn a_store_that_answers_with_every_error_once_gets_everything_once(
    world: &mut World,
) -> anyhow::Result<()> {
    for (status, name) in
        [(500, "drill-500"), (503, "drill-503"), (429, "drill-429"), (409, "drill-409"), (412, "drill-412")]
    {
        let drill = Drill::start(world, name, Bucket::Versioned).await?;
        drill.front.rule(once(Asked::writes, Mood::Answer(status)));
        drill.backup().await?;
        drill
            .ended_as(BackupPhase::Completed)
            .await
            .with_context(|| format!("a store that says {status}"))?;
    }
    Ok(())
}

async fn a_store_that_loses_every_answer_once_gets_everything_once(world: &mut World) -> anyhow::Result<()> {
    let drill = Drill::start(world, "drill-answers", Bucket::Versioned).await?;
    drill.front.rule(once(|_| true, Mood::LoseAnswer));
    drill.backup().await?;
    drill.ended_as(BackupPhase::Completed).await
}

async fn a_connection_that_is_cut_in_the_middle_of_a_part_is_begun_again(
    world: &mut World,
) -> anyhow::Result<()> {
    let s3 = s3(world)?;
    s3.create_versioned_bucket("drill-cut").await?;
    location(world, "drill-cut", "drill-cut", &s3.url()).await?;
    noise(world, "drill-cut", 22).await?;
    s3.front.set(Fault::CutAfter(3 << 20));
    create_backup(world, "drill-cut", of("drill-cut")).await?;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let phase = backups(world).get("drill-cut").await?.phase();
    s3.front.set(Fault::None);
    ensure!(phase.is_active(), "{phase} while no part could be stored");
    let backup = world.backup_ended("drill-cut").await?;
    ensure!(backup.phase() == BackupPhase::Completed, "{:?}", backup.status);
    whole(s3, "drill-cut", "drill-cut", &backup).await.map(drop)
}

async fn a_slow_store_is_waited_for(world: &mut World) -> anyhow::Result<()> {
    let drill = Drill::start(world, "drill-slow", Bucket::Versioned).await?;
    drill.front.rule(|asked| if asked.writes() { Mood::Slow(Duration::from_secs(1)) } else { Mood::Pass });
    drill.backup().await?;
    drill.ended_as(BackupPhase::Completed).await
}

async fn a_store_that_goes_down_at_the_end_is_finished_when_it_is_back(
    world: &mut World,
) -> anyhow::Result<()> {
    let drill = Drill::start(world, "drill-down", Bucket::Versioned).await?;
    // Its record is taken; then nothing answers.
    drill.front.rule(|asked| {
        if asked.makes_final() || !asked.writes() && asked.key.ends_with(".tar.gz") {
            Mood::Answer(503)
        } else {
            Mood::Pass
        }
    });
    drill.backup().await?;
    drill.blocked(&BackupPhase::Finalizing).await?;
    let first = drill.s3.bucket(drill.name)?.get(&record(drill.name, 1).into()).await?.bytes().await?;
    drill.front.calm();
    drill.ended_as(BackupPhase::Completed).await?;
    ensure!(first.windows(11).any(|text| text == b"record.json"), "no record was there");
    Ok(())
}

fn record(name: &str, number: u64) -> String {
    format!("backups/{name}/.private/record-{number}")
}

async fn an_upload_that_a_lifecycle_rule_removes_is_collected_again(world: &mut World) -> anyhow::Result<()> {
    let drill = Drill::start(world, "drill-lifecycle", Bucket::Versioned).await?;
    drill.front.rule(|asked| if asked.makes_final() { Mood::Answer(403) } else { Mood::Pass });
    drill.backup().await?;
    drill.blocked(&BackupPhase::Finalizing).await?;
    let uploads = drill.s3.request(http::Method::GET, &format!("{}?uploads=", drill.name), "").await?;
    let id =
        uploads.split_once("<UploadId>").and_then(|(_, rest)| rest.split_once('<')).context("no upload")?.0;
    let key = format!("backups/{0}/{0}.tar.gz", drill.name);
    drill.s3.request(http::Method::DELETE, &format!("{}/{key}?uploadId={id}", drill.name), "").await?;
    drill.front.calm();
    drill.ended_as(BackupPhase::Completed).await?;
    let second = record(drill.name, 2);
    ensure!(drill.front.asked().iter().any(|asked| asked.key == second), "it was not decided anew");
    Ok(())
}

async fn foreign_bytes_under_a_final_key_are_shown_and_left_alone(world: &mut World) -> anyhow::Result<()> {
    let drill = Drill::start(world, "drill-foreign", Bucket::Versioned).await?;
    drill.front.rule(|asked| if asked.makes_final() { Mood::Answer(403) } else { Mood::Pass });
    drill.backup().await?;
    drill.blocked(&BackupPhase::Finalizing).await?;
    let key = format!("backups/{0}/{0}-results.gz", drill.name);
    let bucket = drill.s3.bucket(drill.name)?;
    bucket.put(&key.as_str().into(), "foreign".into()).await?;
    drill.front.calm();
    eventually("the conflict is shown", Duration::from_mins(2), async || {
        let backup = backups(world).get(drill.name).await?;
        let shown = reason(&backup).contains("-results.gz exists already");
        Ok::<_, kube::Error>(when(shown, format!("{} {}", backup.phase(), reason(&backup))))
    })
    .await?;
    let bytes = bucket.get(&key.as_str().into()).await?.bytes().await?;
    ensure!(bytes == "foreign", "it was overwritten");
    let backup = backups(world).get(drill.name).await?;
    ensure!(backup.phase() == BackupPhase::Finalizing, "{}", backup.phase());
    // Somebody puts it away, versions and all.
    let text = drill
        .s3
        .request(
            http::Method::GET,
            &format!("{}?versions=&prefix={}", drill.name, key.replace('/', "%2F")),
            "",
        )
        .await?;
    let version =
        text.split_once("<VersionId>").and_then(|(_, rest)| rest.split_once('<')).context("no version")?.0;
    drill.s3.request(http::Method::DELETE, &format!("{}/{key}?versionId={version}", drill.name), "").await?;
    drill.ended_as(BackupPhase::Completed).await
}

async fn a_full_local_disk_delays_the_end_and_loses_nothing(world: &mut World) -> anyhow::Result<()> {
    let disk = world.folder().join("small-disk");
    std::fs::create_dir_all(&disk)?;
    let mount = |options: &str| {
        let mut command = std::process::Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&disk);
        command.output().is_ok_and(|output| output.status.success())
    };
    if !mount("size=12m") {
        return Err(crate::Skip("a small disk needs the right to mount one").into());
    }
    let result = full_disk(world, &disk, &mount).await;
    let _ = std::process::Command::new("umount").arg("-l").arg(&disk).status();
    result
}

async fn full_disk(
    world: &World,
    disk: &std::path::Path,
    mount: &dyn Fn(&str) -> bool,
) -> anyhow::Result<()> {
    let spec = json!({ "provider": "local", "objectStorage": { "bucket": disk.join("store") } });
    world.apply_location("drill-disk", spec).await?;
    world.location_available("drill-disk").await?;
    noise(world, "drill-disk", 22).await?;
    create_backup(world, "drill-disk", of("drill-disk")).await?;
    let reason = blocked(world, "drill-disk", &BackupPhase::Finalizing).await?;
    ensure!(reason.contains("No space left on device"), "{reason}");
    ensure!(mount("remount,size=200m"), "the disk could not be made larger");
    let backup = world.backup_ended("drill-disk").await?;
    ensure!(backup.phase() == BackupPhase::Completed, "{:?}", backup.status);
    whole_folder(&disk.join("store"), "drill-disk").await
}

/// What must be true of a store that is a folder on this machine once a backup has ended.
pub async fn whole_folder(store: &std::path::Path, name: &str) -> anyhow::Result<()> {
    let folder = store.join("backups").join(name);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&folder)?.chain(std::fs::read_dir(folder.join(".private"))?) {
        files.push(entry?.file_name().into_string().unwrap_or_default());
    }
    // Nine files, the private folder, and the claim in it.
    ensure!(files.len() == 11 && files.contains(&"owner".to_owned()), "{files:?}");
    let output = tokio::process::Command::new(backup_tests::binaries::build_control_plane()?)
        .arg("inspect")
        .arg(folder.join(format!("{name}.tar.gz")))
        .output()
        .await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
