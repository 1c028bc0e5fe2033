//! Faults of a store during a backup. After every drill each final key has exactly one version, no
//! upload is incomplete, and Go's tar and gzip can read the archive.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use backup_tests::{
    faulty_s3::{Asked, FaultyS3, Mood},
    install::{api_services, register_unreachable_group},
    object_store::S3,
    proxy::Fault,
    world::stored::is_whole_in_folder,
};
use object_store::ObjectStoreExt as _;

use crate::prelude::*;

const RETRIES_TIMEOUT: Duration = Duration::from_mins(2);

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
    a_store_that_ignores_conditions_is_named_and_overwrites_nothing,
    answers_that_are_cut_short_are_read_to_their_end,
    a_full_local_disk_delays_the_end_and_loses_nothing,
}

/// A separate store for each drill, behind a proxy.
struct Drill<'a> {
    world: &'a World,
    s3: &'a S3,
    front: FaultyS3,
    name: &'static str,
}

/// The kind of bucket.
#[derive(Clone, Copy, PartialEq)]
enum Bucket {
    Versioned,
    Locked,
}

impl<'a> Drill<'a> {
    /// A bucket, a location, and a namespace whose contents take several parts, all with the same
    /// name.
    async fn start(world: &'a World, name: &'static str, bucket: Bucket) -> anyhow::Result<Self> {
        let s3 = world.s3()?;
        match bucket {
            Bucket::Versioned => s3.create_versioned_bucket(name).await?,
            Bucket::Locked => s3.create_locked_bucket(name).await?,
        }
        let front = world.faulty_s3().await?;
        world.s3_location(name, &front.url()).await?;
        world.noise(name, 22).await?;
        Ok(Self {
            world,
            s3,
            front,
            name,
        })
    }

    async fn backup(&self) -> anyhow::Result<()> {
        self.world
            .create_backup(self.name, of_place(self.name))
            .await
            .map(drop)
    }

    async fn ended_as(&self, phase: BackupPhase) -> anyhow::Result<()> {
        let backup = self.world.backup_ends(self.name, phase).await?;
        let reason = blocked_reason(&backup);
        ensure!(reason.is_empty(), "the reason still stands there: {reason}");
        is_whole(self.s3, self.name, self.name, &backup).await?;
        // Its proxy ends with the drill, and would be retried for ever.
        self.world.remove_location(self.name).await
    }

    /// The text of the first element with this name in an answer of the store.
    async fn element(&self, path: &str, name: &str) -> anyhow::Result<String> {
        let answer = self.s3.request(http::Method::GET, path, "").await?;
        let rest = answer
            .split_once(&format!("<{name}>"))
            .map(|(_, rest)| rest);
        let text = rest
            .and_then(|rest| rest.split_once('<'))
            .with_context(|| format!("no {name}"))?
            .0;
        Ok(text.to_owned())
    }

    /// Waits until the backup says why it is blocked.
    async fn blocked(&self, phase: &BackupPhase) -> anyhow::Result<String> {
        self.world.backup_blocked(self.name, phase).await
    }
}

async fn object_lock_with_retention_and_versions_is_no_hindrance(world: &mut World) -> TestResult {
    let drill = Drill::start(world, "drill-lock", Bucket::Locked).await?;
    drill.front.rule(once(Asked::writes, Mood::LoseAnswer));
    drill.backup().await?;
    drill.ended_as(BackupPhase::Completed).await
}

/// Like bucket policies on AWS: writers must send the condition that the key does not exist
/// (`s3:if-none-match`).
async fn a_policy_that_denies_overwriting_is_no_hindrance(world: &mut World) -> TestResult {
    let drill = Drill::start(world, "drill-overwriting", Bucket::Versioned).await?;
    let lose = once(Asked::writes, Mood::LoseAnswer);
    drill.front.rule(move |asked| {
        let denied = asked.makes_visible() && !asked.only_new;
        if denied {
            Mood::Answer(403)
        } else {
            lose(asked)
        }
    });
    drill.backup().await?;
    drill.ended_as(BackupPhase::Completed).await
}

async fn a_policy_that_denies_all_writes_for_a_while_delays_the_end(
    world: &mut World,
) -> TestResult {
    let drill = Drill::start(world, "drill-denied", Bucket::Versioned).await?;
    drill.front.affect(Mood::Answer(403), Asked::writes);
    drill.backup().await?;
    let reason = drill.blocked(&BackupPhase::Finalizing).await?;
    says(&reason, &["AccessDenied", "policy of the bucket"])?;
    // The same again after the collection.
    drill.front.affect(Mood::Answer(403), |asked| {
        let late = asked.key.contains("/.private/record-") || asked.makes_final();
        late && asked.writes()
    });
    let record = |asked: &Asked| asked.key.contains("/.private/record-");
    drill
        .front
        .wait_for_request("the record is denied", RETRIES_TIMEOUT, record)
        .await?;
    drill.blocked(&BackupPhase::Finalizing).await?;
    ensure!(
        drill
            .s3
            .keys(drill.name)
            .await?
            .iter()
            .all(|key| key.contains("/.")),
        "visible too early"
    );
    drill.front.calm();
    drill.ended_as(BackupPhase::Completed).await
}

async fn failing_last_uploads_keep_a_backup_finalizing(world: &mut World) -> TestResult {
    let drill = Drill::start(world, "drill-finalizing", Bucket::Versioned).await?;
    both_last_uploads_fail(&drill, BackupPhase::Finalizing, BackupPhase::Completed).await
}

async fn failing_last_uploads_keep_a_backup_finalizing_with_errors(
    world: &mut World,
) -> TestResult {
    // The types of such a group cannot be discovered.
    let service = register_unreachable_group(&world.client, "gone.example.com").await?;
    let result = async {
        let drill = Drill::start(world, "drill-finalizing-pf", Bucket::Versioned).await?;
        both_last_uploads_fail(
            &drill,
            BackupPhase::FinalizingPartiallyFailed,
            BackupPhase::PartiallyFailed,
        )
        .await
    }
    .await;
    api_services(&world.client).delete_object(&service).await?;
    result
}

async fn both_last_uploads_fail(
    drill: &Drill<'_>,
    waits: BackupPhase,
    end: BackupPhase,
) -> anyhow::Result<()> {
    drill.front.affect(Mood::Answer(403), Asked::makes_final);
    drill.backup().await?;
    let reason = drill.blocked(&waits).await?;
    says(&reason, &[".tar.gz"])?;
    let metadata = |asked: &Asked| asked.key.ends_with("/velero-backup.json") && asked.writes();
    drill.front.affect(Mood::Answer(403), metadata);
    drill
        .front
        .wait_for_request("the metadata is denied", RETRIES_TIMEOUT, metadata)
        .await?;
    let backup = drill.world.backups().get(drill.name).await?;
    ensure!(
        backup.phase() == waits && backup.status.completion_timestamp.is_none(),
        "{:?}",
        backup.status
    );
    let keys = drill.s3.keys(drill.name).await?;
    ensure!(
        keys.iter().any(|key| key.ends_with(".tar.gz")),
        "contents come first: {keys:?}"
    );
    drill.front.calm();
    drill.ended_as(end).await
}

/// A rule that applies a mood once to each different request.
fn once(
    which: impl Fn(&Asked) -> bool + Send + Sync + 'static,
    mood: Mood,
) -> impl Fn(&Asked) -> Mood + Send + Sync {
    let seen: Arc<Mutex<HashSet<Asked>>> = Arc::default();
    move |asked| {
        // Upload ids differ between retries; a part is the same part.
        let query = asked
            .query
            .split('&')
            .filter(|pair| !pair.starts_with("uploadId="))
            .collect();
        let same = Asked {
            query,
            ..asked.clone()
        };
        let first = seen.lock().is_ok_and(|mut seen| seen.insert(same));
        if first && which(asked) {
            mood
        } else {
            Mood::Pass
        }
    }
}

async fn a_store_that_gives_each_error_once_gets_everything_once(world: &mut World) -> TestResult {
    // Each has its own bucket, so they run in parallel.
    let world = &*world;
    let stores = [
        (500, "drill-500"),
        (503, "drill-503"),
        (429, "drill-429"),
        (409, "drill-409"),
        (412, "drill-412"),
    ];
    let drills = stores.map(async |(status, name)| {
        let drill = Drill::start(world, name, Bucket::Versioned).await?;
        drill.front.rule(once(Asked::writes, Mood::Answer(status)));
        drill.backup().await?;
        let ended = drill.ended_as(BackupPhase::Completed).await;
        ended.with_context(|| format!("a store that says {status}"))
    });
    futures::future::try_join_all(drills).await.map(drop)
}

async fn a_store_that_loses_every_answer_once_gets_everything_once(
    world: &mut World,
) -> TestResult {
    let drill = Drill::start(world, "drill-answers", Bucket::Versioned).await?;
    drill.front.rule(once(|_| true, Mood::LoseAnswer));
    drill.backup().await?;
    drill.ended_as(BackupPhase::Completed).await
}

async fn an_upload_that_is_cut_in_the_middle_of_a_part_goes_on(world: &mut World) -> TestResult {
    let s3 = world.s3()?;
    s3.create_versioned_bucket("drill-cut").await?;
    world.s3_location("drill-cut", &s3.url()).await?;
    world.noise("drill-cut", 22).await?;
    s3.front.set(Fault::CutAfter(3 << 20));
    world
        .create_backup("drill-cut", of_place("drill-cut"))
        .await?;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let phase = world.backups().get("drill-cut").await?.phase();
    s3.front.set(Fault::None);
    ensure!(phase.is_active(), "{phase} while no part could be stored");
    let backup = world
        .backup_ends("drill-cut", BackupPhase::Completed)
        .await?;
    is_whole(s3, "drill-cut", "drill-cut", &backup)
        .await
        .map(drop)
}

async fn a_slow_store_is_waited_for(world: &mut World) -> TestResult {
    let drill = Drill::start(world, "drill-slow", Bucket::Versioned).await?;
    drill
        .front
        .affect(Mood::Slow(Duration::from_secs(1)), Asked::writes);
    drill.backup().await?;
    drill.ended_as(BackupPhase::Completed).await
}

async fn a_backup_is_finished_when_a_store_that_went_down_is_back(world: &mut World) -> TestResult {
    let drill = Drill::start(world, "drill-down", Bucket::Versioned).await?;
    // Its record is stored; then the store is unavailable.
    drill.front.affect(Mood::Answer(503), |asked| {
        asked.makes_final() || !asked.writes() && asked.key.ends_with(".tar.gz")
    });
    drill.backup().await?;
    drill.blocked(&BackupPhase::Finalizing).await?;
    let first = drill
        .s3
        .bucket(drill.name)?
        .get(&record(drill.name, 1).into())
        .await?
        .bytes()
        .await?;
    drill.front.calm();
    drill.ended_as(BackupPhase::Completed).await?;
    ensure!(
        first.windows(11).any(|text| text == b"record.json"),
        "no record was there"
    );
    Ok(())
}

fn record(name: &str, number: u64) -> String {
    format!("backups/{name}/.private/record-{number}")
}

async fn an_upload_that_a_lifecycle_rule_removes_is_collected_again(
    world: &mut World,
) -> TestResult {
    let drill = Drill::start(world, "drill-lifecycle", Bucket::Versioned).await?;
    drill.front.affect(Mood::Answer(403), Asked::makes_final);
    drill.backup().await?;
    drill.blocked(&BackupPhase::Finalizing).await?;
    let id = drill
        .element(&format!("{}?uploads=", drill.name), "UploadId")
        .await?;
    let key = format!("backups/{0}/{0}.tar.gz", drill.name);
    drill
        .s3
        .request(
            http::Method::DELETE,
            &format!("{}/{key}?uploadId={id}", drill.name),
            "",
        )
        .await?;
    drill.front.calm();
    drill.ended_as(BackupPhase::Completed).await?;
    let second = record(drill.name, 2);
    ensure!(
        drill.front.asked().iter().any(|asked| asked.key == second),
        "it was not decided anew"
    );
    Ok(())
}

async fn foreign_bytes_under_a_final_key_are_shown_and_left_alone(world: &mut World) -> TestResult {
    let drill = Drill::start(world, "drill-foreign", Bucket::Versioned).await?;
    let key = format!("backups/{0}/{0}-results.gz", drill.name);
    let bucket = drill.s3.bucket(drill.name)?;
    // They appear between the record, which decides the files, and their write.
    let writes = |asked: &Asked| asked.makes_final() && asked.key.ends_with("-results.gz");
    drill.front.affect(Mood::Held, writes);
    drill.backup().await?;
    drill
        .front
        .wait_for_request("the results are on their way", RETRIES_TIMEOUT, writes)
        .await?;
    bucket.put(&key.as_str().into(), "foreign".into()).await?;
    drill.front.calm();
    let conflict = |backup: &Backup| blocked_reason(backup).contains("-results.gz exists already");
    world
        .backups()
        .wait_until(drill.name, "shows the conflict", RETRIES_TIMEOUT, conflict)
        .await?;
    let bytes = bucket.get(&key.as_str().into()).await?.bytes().await?;
    ensure!(bytes == "foreign", "it was overwritten");
    let backup = world.backups().get(drill.name).await?;
    ensure!(backup.phase() == BackupPhase::Finalizing);
    // The file is deleted with all versions.
    let versions = format!(
        "{}?versions=&prefix={}",
        drill.name,
        key.replace('/', "%2F")
    );
    let version = drill.element(&versions, "VersionId").await?;
    drill
        .s3
        .request(
            http::Method::DELETE,
            &format!("{}/{key}?versionId={version}", drill.name),
            "",
        )
        .await?;
    drill.ended_as(BackupPhase::Completed).await
}

async fn a_store_that_ignores_conditions_is_named_and_overwrites_nothing(
    world: &mut World,
) -> TestResult {
    let (s3, name, taken) = (world.s3()?, "drill-unconditional", "drill-taken");
    s3.create_bucket(name).await?;
    world.store_completed(name, taken)?;
    let front = world.faulty_s3().await?;
    // Such a store would overwrite an existing object.
    let files = s3.files(name);
    front.rule(move |asked| {
        if asked.only_new && asked.makes_visible() {
            let _ = std::fs::remove_file(files.join(&asked.key));
        }
        Mood::Pass
    });
    world
        .apply_s3_location(name, &front.url(), &json!({ "backupSyncPeriod": "0s" }))
        .await?;
    world.location_available(name).await?;
    world
        .wait_for_event("NoConditionalWrites", |object, _| {
            object.name.as_deref() == Some(name)
        })
        .await?;
    world.noise(name, 22).await?;
    let ended = world.back_up(name, of_place(name)).await?;
    is_whole(s3, name, name, &ended).await?;
    let metadata = format!("backups/{taken}/velero-backup.json");
    let before = s3.read(name, &metadata).await?;
    world.create_backup(taken, of_place(name)).await?;
    world.backup_ends(taken, BackupPhase::Failed).await?;
    ensure!(
        s3.read(name, &metadata).await? == before,
        "it was overwritten"
    );
    world.remove_location(name).await
}

async fn answers_that_are_cut_short_are_read_to_their_end(world: &mut World) -> TestResult {
    let drill = Drill::start(world, "drill-bodies", Bucket::Versioned).await?;
    world.back_up(drill.name, of_place(drill.name)).await?;
    drill.front.rule(once(
        |asked| !asked.writes() && !asked.key.is_empty(),
        Mood::CutShort,
    ));
    let back = "drill-bodies-back";
    world
        .restore(back, into_namespace(drill.name, back))
        .await?;
    ensure!(
        world.count_config_maps(back).await? >= 22,
        "not all are there"
    );
    let contents = format!("{}.tar.gz", drill.name);
    let reads = drill
        .front
        .asked()
        .iter()
        .filter(|asked| asked.key.ends_with(&contents))
        .count();
    ensure!(reads > 1, "nothing was cut");
    drill.ended_as(BackupPhase::Completed).await
}

async fn a_full_local_disk_delays_the_end_and_loses_nothing(world: &mut World) -> TestResult {
    let disk = world.folder().join("small-disk");
    std::fs::create_dir_all(&disk)?;
    let mount = |options: &str| {
        let mut command = std::process::Command::new("mount");
        command
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(&disk);
        command.output().is_ok_and(|output| output.status.success())
    };
    if !mount("size=12m") {
        return Err(Skip("a small disk needs the right to mount one").into());
    }
    let result = full_disk(world, &disk, &mount).await;
    let _ = std::process::Command::new("umount")
        .arg("-l")
        .arg(&disk)
        .status();
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
    world
        .create_backup("drill-disk", of_place("drill-disk"))
        .await?;
    let reason = world
        .backup_blocked("drill-disk", &BackupPhase::Finalizing)
        .await?;
    says(&reason, &["No space left on device"])?;
    ensure!(
        mount("remount,size=200m"),
        "the disk could not be made larger"
    );
    world
        .backup_ends("drill-disk", BackupPhase::Completed)
        .await?;
    is_whole_in_folder(&disk.join("store"), "drill-disk").await
}
