//! `cargo xtask bench volumes`: saving and restoring the data of a volume, beside restic and kopia
//! in the same run.
//!
//! The three programs take turns at each step: each saves the volume, then it is changed, then each
//! saves it again and restores it. Each has a bucket of its own, and loses its cache before each
//! step, as a new pod has none. A step of another program is left out if the mover is not to be
//! compared with it: kopia takes minutes to restore tiny files.

mod cost;
mod data;
mod programs;

use std::{fmt::Write as _, path::Path};

use anyhow::Context as _;
use backup_tests::{
    World,
    binaries::{build_kopia, build_restic},
};
use clap::Args as ClapArgs;

use self::{
    cost::Cost,
    data::{Contents, Volume},
    programs::{Kind, Program, Subject},
};
use super::{
    stats::median,
    table::{Row, Table, Target, mib},
};

/// Maximum memory of the mover (MiB).
const MAX_MEMORY_MIB: f64 = 256.0;

/// What to measure.
#[derive(ClapArgs)]
pub struct Args {
    /// Number of files of 4 to 44 KiB; 0 leaves them out.
    #[arg(long, default_value_t = 20_000)]
    small: u32,
    /// Size of each of four large files (MiB); 0 leaves them out.
    #[arg(long, default_value_t = 512)]
    large: u32,
    /// Number of files of 15 to 20 bytes; 0 leaves them out.
    #[arg(long, default_value_t = 400_000)]
    tiny: u32,
    /// How often each step is measured; the median counts.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=20))]
    rounds: u8,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    FirstBackup,
    SecondBackup,
    Restore,
}

impl Step {
    const ALL: [Self; 3] = [Self::FirstBackup, Self::SecondBackup, Self::Restore];

    fn text(self) -> &'static str {
        match self {
            Self::FirstBackup => "first backup",
            Self::SecondBackup => "second backup, 1% changed",
            Self::Restore => "restore",
        }
    }

    /// Maximum ratio between the time of the mover and that of another program. `None`: they are
    /// not compared.
    fn max_ratio(self, contents: Contents, other: Kind) -> Option<f64> {
        match (self, other) {
            (Self::FirstBackup, _) => Some(1.1),
            (Self::SecondBackup, _) => Some(1.2),
            (Self::Restore, Kind::Kopia) => (contents == Contents::Small).then_some(1.0 / 3.0),
            (Self::Restore, _) => Some(1.0),
        }
    }
}

/// What one program took for one step, once for each round.
#[derive(Clone, Debug, Default)]
struct StepCosts(Vec<Cost>);

impl StepCosts {
    fn seconds(&self) -> f64 {
        median(self.0.iter().map(|cost| cost.seconds))
    }

    fn peak_kib(&self) -> u64 {
        let peaks = self.0.iter().map(|cost| cost.peak_kib);
        peaks.max().unwrap_or_default()
    }

    /// Such as `7.0 s (10.5 s of CPU time, 134 MiB)`.
    fn text(&self) -> String {
        let cpu = median(self.0.iter().map(|cost| cost.cpu_seconds));
        let memory = mib(self.peak_kib());
        let seconds = self.seconds();
        format!("{seconds:.2} s ({cpu:.1} s of CPU time, {memory:.0} MiB)")
    }
}

/// One program's costs of one volume.
struct Results {
    kind: Kind,
    steps: [StepCosts; 3],
    /// Size of its bucket after each backup (MB), in the last round.
    stored: [f64; 2],
}

pub async fn measure(world: &World, args: &Args, table: &mut Table) -> anyhow::Result<()> {
    let programs = programs(world, table);
    // Only the store is needed.
    for process in world.plane.processes() {
        process.pause()?;
    }
    for (contents, amount) in [
        (Contents::Small, args.small),
        (Contents::Large, args.large),
        (Contents::Tiny, args.tiny),
    ] {
        if amount > 0 {
            eprintln!("creating {}", contents.text(amount));
            let folder = world.folder().join("volume");
            let volume = Volume::create(&folder, contents, amount)?;
            let results = volume_results(world, &programs, &volume, args.rounds).await;
            std::fs::remove_dir_all(&folder)?;
            add_rows(&volume, &results?, table);
        }
    }
    Ok(())
}

/// The mover first.
fn programs(world: &World, table: &mut Table) -> Vec<Program> {
    let mut programs = vec![Program {
        kind: Kind::Mover,
        path: world.programs().mover.clone(),
    }];
    for (kind, built) in [(Kind::Restic, build_restic()), (Kind::Kopia, build_kopia())] {
        match built {
            Ok(path) => programs.push(Program { kind, path }),
            Err(error) => table.note(format!(
                "{} is left out, as it cannot be built: {error:#}",
                kind.name()
            )),
        }
    }
    programs
}

async fn volume_results(
    world: &World,
    programs: &[Program],
    volume: &Volume,
    rounds: u8,
) -> anyhow::Result<Vec<Results>> {
    let mut results: Vec<Results> = programs
        .iter()
        .map(|program| Results {
            kind: program.kind,
            steps: <[StepCosts; 3]>::default(),
            stored: [0.0; 2],
        })
        .collect();
    for round in 0..rounds {
        round_results(world, programs, volume, round, &mut results)
            .await
            .with_context(|| format!("{}, round {round}", volume.text()))?;
    }
    Ok(results)
}

async fn round_results(
    world: &World,
    programs: &[Program],
    volume: &Volume,
    round: u8,
    results: &mut [Results],
) -> anyhow::Result<()> {
    let mut subjects = Vec::new();
    let run = format!("{}-{round}", volume.contents.name());
    for program in programs {
        subjects.push(Subject::create(world, program, &run).await?);
    }
    for step in Step::ALL {
        if step == Step::SecondBackup {
            volume.change(round)?;
        }
        for (subject, results) in subjects.iter_mut().zip(&mut *results) {
            let kind = results.kind;
            if kind != Kind::Mover && step.max_ratio(volume.contents, kind).is_none() {
                continue;
            }
            let cost = match step {
                Step::FirstBackup | Step::SecondBackup => subject.back_up(&volume.folder).await?,
                Step::Restore => subject.restore(&volume.folder).await?,
            };
            eprintln!(
                "{}, {}, {}: {:.2} s",
                volume.text(),
                step.text(),
                kind.name(),
                cost.seconds
            );
            results.steps[step as usize].0.push(cost);
            if let Some(stored) = results.stored.get_mut(step as usize) {
                *stored = megabytes(size_of(&subject.objects())?);
            }
        }
    }
    for subject in subjects {
        subject.remove()?;
    }
    Ok(())
}

fn add_rows(volume: &Volume, results: &[Results], table: &mut Table) {
    let Some((mover, others)) = results.split_first() else {
        return;
    };
    for step in Step::ALL {
        let cost = &mover.steps[step as usize];
        let mut found = cost.text();
        let mut beside = Vec::new();
        let mut asked = Vec::new();
        let mut is_met = true;
        for other in others {
            let Some(most) = step.max_ratio(volume.contents, other.kind) else {
                continue;
            };
            let name = other.kind.name();
            let other = &other.steps[step as usize];
            let ratio = cost.seconds() / other.seconds();
            // Never an error: it is written to memory.
            let _ = write!(found, ", {ratio:.2} times {name}");
            beside.push(format!("{name} {}", other.text()));
            asked.push(format!("{most:.2} times {name}"));
            is_met &= ratio <= most;
        }
        table.row(&Row {
            what: format!("{} of {}", step.text(), volume.text()),
            found,
            beside: beside.join("; "),
            target: if asked.is_empty() {
                Target::none()
            } else {
                Target::new(asked.join(", "), is_met)
            },
        });
    }
    let peak = |results: &Results| results.steps.iter().map(StepCosts::peak_kib).max();
    let beside = others.iter().map(|other| {
        let memory = mib(peak(other).unwrap_or_default());
        format!("{} {memory:.0} MiB", other.kind.name())
    });
    table.memory(
        format!("peak memory of the mover with {}", volume.text()),
        peak(mover).unwrap_or_default(),
        beside.collect::<Vec<_>>().join("; "),
        MAX_MEMORY_MIB,
    );
    let stored = results.iter().map(|one| {
        let [first, second] = one.stored;
        let name = one.kind.name();
        format!("{name} {first:.1} MB, then {:.1} MB more", second - first)
    });
    table.note(format!(
        "In the bucket, {}: {}",
        volume.text(),
        stored.collect::<Vec<_>>().join("; ")
    ));
}

/// Size of all files in a folder (bytes).
fn size_of(folder: &Path) -> std::io::Result<u64> {
    let mut size = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        size += if entry.file_type()?.is_dir() {
            size_of(&entry.path())?
        } else {
            entry.metadata()?.len()
        };
    }
    Ok(size)
}

#[allow(clippy::cast_precision_loss)]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
