//! Backups whose time is measured, each beside its floor.

use std::{
    io::Read as _,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use backup_core::api::BackupSpec;
use backup_tests::{
    World,
    kubectl_backup::Ran,
    world::{BUCKET, backups::of_namespaces},
};
use bytes::Bytes;
use flate2::read::MultiGzDecoder;

use super::floor;
use crate::bench::backup_watch::BackupWatch;

/// Pause between the floor and the backup: shortly after a list the API server delays another one
/// of the same type (kube-apiserver `pkg/storage/cacher/progress`, v1.34), and in practice a backup
/// does not follow a list of everything.
pub const PAUSE: Duration = Duration::from_secs(1);

/// Durations of each round (seconds).
#[derive(Default)]
pub struct Rounds {
    pub times: Vec<f64>,
    /// The floor: listing, and compressing.
    pub lists: Vec<f64>,
    pub squeezes: Vec<f64>,
    /// The last backup, packed and not.
    pub tarball: Bytes,
    pub tar: Vec<u8>,
}

impl Rounds {
    /// Backs up these namespaces, or everything if there are none.
    pub async fn measure(
        world: &World,
        prefix: &str,
        namespaces: &[&str],
        rounds: usize,
    ) -> anyhow::Result<Self> {
        let mut measured = Self::default();
        // The first round fills caches.
        for round in 0..=rounds {
            tokio::time::sleep(PAUSE).await;
            let start = Instant::now();
            let listed = floor::list(&world.client, namespaces).await?;
            let list = start.elapsed().as_secs_f64();
            tokio::time::sleep(PAUSE).await;
            let name = format!("{prefix}-{round}");
            let time = back_up(world, &name, of_namespaces(namespaces))
                .await?
                .as_secs_f64();
            let key = format!("backups/{name}/{name}.tar.gz");
            measured.tarball = world.s3()?.read(BUCKET, &key).await?;
            measured.tar = unpack(&measured.tarball)?;
            let start = Instant::now();
            floor::compress(&measured.tar);
            let squeeze = start.elapsed().as_secs_f64();
            let mib = measured.tar.len() >> 20;
            eprintln!(
                "{name}: {time:.3} s; listing {listed} objects {list:.3} s, compressing {mib} MiB {squeeze:.3} s"
            );
            if round > 0 {
                measured.times.push(time);
                measured.lists.push(list);
                measured.squeezes.push(squeeze);
            }
        }
        Ok(measured)
    }
}

/// Creates a Backup. Returns the time until it is Completed.
pub async fn back_up(world: &World, name: &str, spec: BackupSpec) -> anyhow::Result<Duration> {
    let mut watch = BackupWatch::start(&world.client).await?;
    let start = Instant::now();
    world.create_backup(name, spec).await?;
    Ok(watch.completes(name).await?.duration_since(start))
}

/// Runs a command that creates a Backup. Returns the times until the command ends, and until the
/// Backup is Completed.
pub async fn commanded(
    world: &World,
    name: &str,
    command: impl Future<Output = anyhow::Result<Ran>>,
) -> anyhow::Result<(Duration, Duration)> {
    let mut watch = BackupWatch::start(&world.client).await?;
    let start = Instant::now();
    let (ran, completed) = tokio::join!(command, watch.completes(name));
    Ok((ran?.elapsed, completed?.duration_since(start)))
}

fn unpack(tarball: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut tar = Vec::new();
    MultiGzDecoder::new(tarball)
        .read_to_end(&mut tar)
        .context("unpack the tarball")?;
    Ok(tar)
}
