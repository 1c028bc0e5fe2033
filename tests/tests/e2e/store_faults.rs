//! What a store can do to a backup. After every drill each final key has exactly one version, nothing is left half
//! uploaded, and Go's tar and gzip open what is there.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use backup_core::api::{BackupPhase, BackupStorageLocation};
use backup_tests::{
    World,
    faulty_s3::{Asked, FaultyS3, Mood},
    install::NAMESPACE,
    object_store::S3,
    proxy::Fault,
    wait::{eventually, when},
    world::{
        backups::{blocked_reason, of_place},
        stored::{is_whole, is_whole_in_folder},
    },
};
use object_store::ObjectStoreExt as _;
use serde_json::json;

crate::tests! {
    object_lock_with_retention_and_versions_is_no_hindrance,
    a_policy_that_denies_overwriting_is_no_hindrance,
    a_policy_that_denies_all_writes_for_a_while_delays_the_end,
    failing_last_uploads_keep_a_backup_finalizing,
    failing_last_uploads_keep_a_backup_finalizing_with_errors,
    a_store_that_gives_each_error_once_gets_everything_once,
    a_store_that_loses_every_answer_once_gets_everything_once,
    an_upload_that_is_cut_in_the_middle_of_a_part_goes_on,
    a_slow_store_is_waited_for,
    a_backup_is_finished_when_a_store_that_went_down_is_back,
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
        let s3 = world.s3()?;
        match bucket {
            Bucket::Versioned => s3.create_versioned_bucket(name).await?,
            Bucket::Locked => s3.create_locked_bucket(name).await?,
        }
        let front = world.faulty_s3().await?;
        world.s3_location(name, &front.url()).await?;
        world.noise(name, 22).await?;
        Ok(Self { world, s3, front, name })
    }

    pub async fn backup(&self) -> anyhow::Result<()> {
        self.world.create_backup(self.name, of_place(self.name)).await.map(drop)
    }

    async fn ended_as(&self, phase: BackupPhase) -> anyhow::Result<()> {
        let backup = self.world.backup_ended(self.name).await?;
        ensure!(backup.phase() == phase, "{:?}", backup.status);
        ensure!(
            blocked_reason(&backup).is_empty(),
            "the reason still stands there: {}",
            blocked_reason(&backup)
        );
        is_whole(self.s3, self.name, self.name, &backup).await?;
        // Its proxy ends with the drill; nobody has to ask for it for ever.
        let locations: kube::Api<BackupStorageLocation> =
            kube::Api::namespaced(self.world.client.clone(), NAMESPACE);
        locations.delete(self.name, &kube::api::DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until the backup says why it does not go on.
    async fn blocked(&self, phase: &BackupPhase) -> anyhow::Result<String> {
        self.world.backup_blocked(self.name, phase).await
    }
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

async fn failing_last_uploads_keep_a_backup_finalizing(world: &mut World) -> anyhow::Result<()> {
    let drill = Drill::start(world, "drill-finalizing", Bucket::Versioned).await?;
    both_last_uploads_fail(&drill, BackupPhase::Finalizing, BackupPhase::Completed).await
}

async fn failing_last_uploads_keep_a_backup_finalizing_with_errors(world: &mut World) -> anyhow::Result<()> {
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
    let backup = drill.world.backups().get(drill.name).await?;
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

async fn a_store_that_gives_each_error_once_gets_everything_once(world: &mut World) -> anyhow::Result<()> {
    // Each has its own bucket: they need not wait for one another.
    let world = &*world;
    let stores =
        [(500, "drill-500"), (503, "drill-503"), (429, "drill-429"), (409, "drill-409"), (412, "drill-412")];
    let drills = stores.map(async |(status, name)| {
        let drill = Drill::start(world, name, Bucket::Versioned).await?;
        drill.front.rule(once(Asked::writes, Mood::Answer(status)));
        drill.backup().await?;
        let ended = drill.ended_as(BackupPhase::Completed).await;
        ended.with_context(|| format!("a store that says {status}"))
    });
    futures::future::try_join_all(drills).await.map(drop)
}

async fn a_store_that_loses_every_answer_once_gets_everything_once(world: &mut World) -> anyhow::Result<()> {
    let drill = Drill::start(world, "drill-answers", Bucket::Versioned).await?;
    drill.front.rule(once(|_| true, Mood::LoseAnswer));
    drill.backup().await?;
    drill.ended_as(BackupPhase::Completed).await
}

async fn an_upload_that_is_cut_in_the_middle_of_a_part_goes_on(world: &mut World) -> anyhow::Result<()> {
    let s3 = world.s3()?;
    s3.create_versioned_bucket("drill-cut").await?;
    world.s3_location("drill-cut", &s3.url()).await?;
    world.noise("drill-cut", 22).await?;
    s3.front.set(Fault::CutAfter(3 << 20));
    world.create_backup("drill-cut", of_place("drill-cut")).await?;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let phase = world.backups().get("drill-cut").await?.phase();
    s3.front.set(Fault::None);
    ensure!(phase.is_active(), "{phase} while no part could be stored");
    let backup = world.backup_ends("drill-cut", BackupPhase::Completed).await?;
    is_whole(s3, "drill-cut", "drill-cut", &backup).await.map(drop)
}

async fn a_slow_store_is_waited_for(world: &mut World) -> anyhow::Result<()> {
    let drill = Drill::start(world, "drill-slow", Bucket::Versioned).await?;
    drill.front.rule(|asked| if asked.writes() { Mood::Slow(Duration::from_secs(1)) } else { Mood::Pass });
    drill.backup().await?;
    drill.ended_as(BackupPhase::Completed).await
}

async fn a_backup_is_finished_when_a_store_that_went_down_is_back(world: &mut World) -> anyhow::Result<()> {
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
    let key = format!("backups/{0}/{0}-results.gz", drill.name);
    let bucket = drill.s3.bucket(drill.name)?;
    // They come between the record, which decides what is to be there, and the write of it.
    let writes = |asked: &Asked| asked.makes_final() && asked.key.ends_with("-results.gz");
    drill.front.rule(move |asked| if writes(asked) { Mood::Held } else { Mood::Pass });
    drill.backup().await?;
    eventually("the results are on their way", Duration::from_mins(2), async || {
        anyhow::Ok(when(drill.front.asked().iter().any(writes), "not yet"))
    })
    .await?;
    bucket.put(&key.as_str().into(), "foreign".into()).await?;
    drill.front.calm();
    eventually("the conflict is shown", Duration::from_mins(2), async || {
        let backup = world.backups().get(drill.name).await?;
        let shown = blocked_reason(&backup).contains("-results.gz exists already");
        Ok::<_, kube::Error>(when(shown, format!("{} {}", backup.phase(), blocked_reason(&backup))))
    })
    .await?;
    let bytes = bucket.get(&key.as_str().into()).await?.bytes().await?;
    ensure!(bytes == "foreign", "it was overwritten");
    let backup = world.backups().get(drill.name).await?;
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
    world.noise("drill-disk", 22).await?;
    world.create_backup("drill-disk", of_place("drill-disk")).await?;
    let reason = world.backup_blocked("drill-disk", &BackupPhase::Finalizing).await?;
    ensure!(reason.contains("No space left on device"), "{reason}");
    ensure!(mount("remount,size=200m"), "the disk could not be made larger");
    world.backup_ends("drill-disk", BackupPhase::Completed).await?;
    is_whole_in_folder(&disk.join("store"), "drill-disk").await
}
