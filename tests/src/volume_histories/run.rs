//! Plays histories side by side.

use std::{
    fs,
    num::NonZero,
    path::{self, Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Instant,
};

use anyhow::{Context as _, anyhow};
use parking_lot::Mutex;

use super::{
    plan::{VolumeMistake, plan},
    player::{Stage, play},
    record::HistoryRecord,
    report::VolumeHistoryReport,
};
use crate::{binaries::target, moved_clock::MovedClock};

/// The progress is printed each time that this many histories have ended.
const PROGRESS_INTERVAL: u64 = 100;

/// Histories of a repository of volume data.
#[derive(Clone, Debug)]
pub struct VolumeHistories {
    /// `backup-mover`.
    pub program: PathBuf,
    pub count: u64,
    /// Decides steps and files. The moments of crashes also depend on the machine.
    pub seed: u64,
    /// Number of the first history.
    pub first: u64,
    pub mistake: Option<VolumeMistake>,
    /// Whether the progress is printed.
    pub progress: bool,
}

impl VolumeHistories {
    /// Plays the histories, one for each core at a time. With a mistake it ends once that is
    /// caught.
    ///
    /// Returns an error if the test kit itself fails; violations are in the report.
    pub fn play(&self) -> anyhow::Result<VolumeHistoryReport> {
        // The location has to be an absolute path.
        let folder = path::absolute(target())?.join("volume-histories");
        let begun = Instant::now();
        let end = self.first.saturating_add(self.count);
        let next = AtomicU64::new(self.first);
        let report = Mutex::new(VolumeHistoryReport {
            seed: self.seed,
            mistake: self.mistake,
            folder: folder.clone(),
            ..VolumeHistoryReport::default()
        });
        let workers = thread::available_parallelism().map_or(1, NonZero::get);
        thread::scope(|scope| {
            let workers: Vec<_> = (0..workers)
                .map(|_| {
                    scope.spawn(|| {
                        let worked = self.work(&folder, &next, &report);
                        if worked.is_err() {
                            // The others end, too.
                            next.store(end, Ordering::Relaxed);
                        }
                        worked
                    })
                })
                .collect();
            workers.into_iter().try_for_each(|worker| {
                worker
                    .join()
                    .unwrap_or_else(|_| Err(anyhow!("a history panicked")))
            })
        })?;
        let mut report = report.into_inner();
        report.elapsed = begun.elapsed();
        Ok(report)
    }

    /// Plays one history after the other, as long as there are any.
    fn work(
        &self,
        folder: &Path,
        next: &AtomicU64,
        report: &Mutex<VolumeHistoryReport>,
    ) -> anyhow::Result<()> {
        let of_clock = tempfile::tempdir()?;
        let clock = MovedClock::new(of_clock.path())?;
        let end = self.first.saturating_add(self.count);
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= end || report.lock().is_caught() {
                return Ok(());
            }
            let record = self
                .history(number, folder, &clock)
                .with_context(|| format!("history {number} of seed {}", self.seed))?;
            let mut report = report.lock();
            report.add(number, record);
            if self.progress && report.histories.is_multiple_of(PROGRESS_INTERVAL) {
                let count = report.violations.len();
                println!("{} histories, {count} violations", report.histories);
            }
        }
    }

    /// Plays a history in its folder, which stays if there is a violation.
    fn history(
        &self,
        number: u64,
        folder: &Path,
        clock: &MovedClock,
    ) -> anyhow::Result<HistoryRecord> {
        let folder = folder.join(format!("{}-{number}", self.seed));
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        let stage = Stage {
            program: &self.program,
            clock,
            folder: &folder,
            seed: self.seed,
            number,
            mistake: self.mistake,
        };
        let record = play(stage, &plan(self.seed, number))?;
        if record.violations.is_empty() || self.mistake.is_some() {
            fs::remove_dir_all(&folder)?;
        } else {
            fs::write(folder.join("steps.log"), record.log.join("\n"))?;
        }
        Ok(record)
    }
}
