//! Verification of a backup by its schedule, beside reading the same files.

use std::{
    io,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use backup_core::{
    api::{Backup, Schedule},
    labels::{SCHEDULE_NAME, VERIFICATION_ANNOTATION, VERIFIED_ANNOTATION, annotation},
    verification::Verification,
};
use backup_tests::{World, api::ApiExt as _, world::BUCKET};
use flate2::read::MultiGzDecoder;
use kube::runtime::wait::await_condition;
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::{Args, BACKUP, BackupFiles, TIMEOUT, set_delay, speed};
use crate::bench::{
    stats::median,
    table::{Row, Table},
};

/// Maximum ratio between the time of a verification and that of reading the files.
const MAX_RATIO: f64 = 1.5;
/// Pause before each measurement: the times of two results have to differ, and have whole seconds.
const PAUSE: Duration = Duration::from_secs(2);
/// Name of the schedule.
const SCHEDULE: &str = "bench-verification";

pub async fn measure(
    world: &World,
    files: &BackupFiles,
    args: &Args,
    table: &mut Table,
) -> anyhow::Result<()> {
    let label = json!({ "metadata": { "labels": { SCHEDULE_NAME: SCHEDULE } } });
    world.backups().merge_patch(BACKUP, label).await?;
    let verify = json!({ "every": "24h", "which": "newest" });
    let schedule = json!({
        "apiVersion": "velero.io/v1", "kind": "Schedule", "metadata": { "name": SCHEDULE },
        "spec": { "schedule": "0 0 1 1 *", "template": {}, "verify": verify },
    });
    let schedules = world.api::<Schedule>();
    schedules.create_json(schedule).await?;
    // The first one fills caches.
    let mut last = result_after(world, "").await?;

    let unpacking = unpacking(&files.contents)?;
    let s3 = world.s3()?;
    for delay in args.delays() {
        let mut times = Vec::new();
        let mut floors = Vec::new();
        set_delay(&[s3], delay);
        for _ in 0..args.rounds {
            sleep(PAUSE).await;
            let start = Instant::now();
            s3.stream_down(BUCKET, &files.keys).await?;
            floors.push(start.elapsed().as_secs_f64());
            let due = json!({ "metadata": { "annotations": { VERIFICATION_ANNOTATION: null } } });
            let start = Instant::now();
            schedules.merge_patch(SCHEDULE, due).await?;
            last = result_after(world, &last).await?;
            times.push(start.elapsed().as_secs_f64());
        }
        set_delay(&[s3], Duration::ZERO);
        eprintln!("verification: {times:?} beside {floors:?}");
        let [time, floor] = [times, floors].map(median);
        table.row(&Row::times(
            format!(
                "verification of a backup of {} objects, {}",
                args.objects,
                speed(delay)
            ),
            time,
            format!("reading its files {floor:.2} s; unpacking the tarball alone {unpacking:.2} s"),
            floor,
            MAX_RATIO,
        ));
    }
    Ok(())
}

/// The time to unpack a tarball that is in memory (seconds).
fn unpacking(tarball: &[u8]) -> anyhow::Result<f64> {
    let start = Instant::now();
    io::copy(&mut MultiGzDecoder::new(tarball), &mut io::sink()).context("unpack the tarball")?;
    Ok(start.elapsed().as_secs_f64())
}

/// Waits until the backup has another result than `last`, and returns it as it is stored. Errors:
/// the backup is not whole.
async fn result_after(world: &World, last: &str) -> anyhow::Result<String> {
    let verified = await_condition(world.backups(), BACKUP, |backup: Option<&Backup>| {
        let result = backup.and_then(|backup| annotation(backup, VERIFIED_ANNOTATION));
        result.is_some_and(|result| result != last)
    });
    let verified = timeout(TIMEOUT, verified).await;
    let backup = verified.with_context(|| format!("no verification within {TIMEOUT:?}"))??;
    let backup = backup.context("the backup is gone")?;
    let result = annotation(&backup, VERIFIED_ANNOTATION);
    ensure!(
        Verification::read(result).is_some_and(|one| one.findings == 0 && one.compared),
        "{result:?}"
    );
    Ok(result.unwrap_or_default().to_owned())
}
