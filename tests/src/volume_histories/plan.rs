//! The steps of a history. Pure.

use std::time::Duration;

use crate::history::random::Random;

/// Number of volumes, all of one namespace.
pub(super) const VOLUMES: usize = 3;

/// Number of steps of a history.
const MIN_STEPS: u64 = 6;
const MAX_STEPS: u64 = 14;
/// Maximum number of attempts of one upload that are killed.
const MAX_KILLS: u64 = 2;
/// Maximum time between the first write of an upload and its end by SIGKILL (microseconds). The
/// rate of these uploads is limited, so that many of them take longer.
const MAX_UPLOAD_DELAY: u64 = 120_000;
/// Square root of that time for a maintenance (microseconds), which does most of its work at once.
const MAX_MAINTENANCE_DELAY_ROOT: u64 = 64;
/// Bound on the numbers that choose a backup. More than there are.
const MAX_PICK: u64 = 1000;
/// Times that pass before a step. Only the last one is longer than the delay of a removal.
const WAITS: [Duration; 5] = [
    Duration::from_secs(15),
    Duration::from_hours(1),
    Duration::from_hours(5),
    Duration::from_hours(25),
    Duration::from_hours(73),
];

/// What is wrong on purpose: the histories have to catch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeMistake {
    /// A maintenance does not wait for uploads. It marks data that an upload relies on.
    BesideUpload,
    /// It also removes what was marked after a time that is shorter than that upload.
    ShortDelay,
    /// An upload does not note its snapshot.
    NoNotes,
}

/// When a program is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KillMoment {
    /// After this part of the time that such a program took the last time.
    AfterPart { percent: u32 },
    /// This long after its first write into the store.
    AfterFirstWrite { delay: Duration },
    /// It ends by itself, and its pod is gone before its outcome was read. Only of uploads.
    OutcomeLost,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A volume changes and is saved. The attempts before the last one are killed.
    Backup {
        volume: usize,
        kills: Vec<KillMoment>,
        /// No attempt follows those that are killed: the backup fails.
        is_given_up: bool,
    },
    /// Two volumes change and are saved side by side. The upload of the first one may be killed,
    /// and is repeated then.
    TwoBackups {
        volumes: [usize; 2],
        kill: Option<KillMoment>,
    },
    /// A volume changes and is saved. A maintenance is due while its upload runs.
    BackupBesideMaintenance {
        volume: usize,
        /// The newest backup of the volume is deleted before: the upload shares data with it that
        /// no snapshot needs.
        is_newest_deleted: bool,
    },
    /// A backup is deleted: one of those that there are, by this number.
    Delete {
        pick: u64,
    },
    /// A backup is restored. The first attempt may be killed, after this part of its time.
    Restore {
        pick: u64,
        kill_percent: Option<u32>,
    },
    Maintain {
        kill: Option<KillMoment>,
    },
    Check,
}

/// A step, and the time that passes before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlannedStep {
    pub(super) wait: Duration,
    pub(super) step: Step,
}

/// The steps of one history.
pub(super) fn plan(seed: u64, history: u64) -> Vec<PlannedStep> {
    let mut random = Random::of(seed, history);
    let steps = MIN_STEPS + random.below(MAX_STEPS - MIN_STEPS + 1);
    (0..steps)
        .map(|_| PlannedStep {
            wait: random.pick(&WAITS),
            step: step(&mut random),
        })
        .collect()
}

fn step(random: &mut Random) -> Step {
    let volume = usize::try_from(random.below(VOLUMES as u64)).unwrap_or_default();
    let next = (volume + 1) % VOLUMES;
    match random.below(100) {
        0..34 => backup(random, volume),
        34..42 => Step::TwoBackups {
            volumes: [volume, next],
            kill: random.one_in(3).then(|| upload_kill(random)),
        },
        42..51 => Step::BackupBesideMaintenance {
            volume,
            is_newest_deleted: random.one_in(2),
        },
        51..67 => Step::Delete {
            pick: random.below(MAX_PICK),
        },
        67..75 => Step::Restore {
            pick: random.below(MAX_PICK),
            kill_percent: random.one_in(3).then(|| percent(random, 0, 120)),
        },
        75..95 => Step::Maintain {
            kill: random.one_in(2).then(|| maintenance_kill(random)),
        },
        _ => Step::Check,
    }
}

fn backup(random: &mut Random, volume: usize) -> Step {
    let kills = if random.one_in(2) {
        1 + random.below(MAX_KILLS)
    } else {
        0
    };
    Step::Backup {
        volume,
        kills: (0..kills).map(|_| upload_kill(random)).collect(),
        is_given_up: kills > 0 && random.one_in(4),
    }
}

fn upload_kill(random: &mut Random) -> KillMoment {
    if random.one_in(8) {
        return KillMoment::OutcomeLost;
    }
    if random.one_in(4) {
        let percent = percent(random, 15, 150);
        return KillMoment::AfterPart { percent };
    }
    KillMoment::AfterFirstWrite {
        delay: Duration::from_micros(random.below(MAX_UPLOAD_DELAY)),
    }
}

fn maintenance_kill(random: &mut Random) -> KillMoment {
    if random.one_in(4) {
        let percent = percent(random, 30, 90);
        return KillMoment::AfterPart { percent };
    }
    let root = random.below(MAX_MAINTENANCE_DELAY_ROOT);
    KillMoment::AfterFirstWrite {
        delay: Duration::from_micros(root * root),
    }
}

/// A number from `least` on, of this many.
fn percent(random: &mut Random, least: u32, count: u64) -> u32 {
    least + u32::try_from(random.below(count)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_and_the_number_decide_the_steps() {
        assert_eq!(plan(1, 7), plan(1, 7));
        assert_ne!(plan(1, 7), plan(1, 8));
        assert_ne!(plan(1, 7), plan(2, 7));
    }

    #[test]
    fn every_kind_of_step_and_of_crash_is_planned() {
        let steps: Vec<Step> = (0..100)
            .flat_map(|history| plan(1, history))
            .map(|planned| planned.step)
            .collect();
        let has = |is_wanted: fn(&Step) -> bool| assert!(steps.iter().any(is_wanted));
        has(
            |step| matches!(step, Step::Backup { kills, is_given_up: true, .. } if kills.len() == 2),
        );
        has(|step| matches!(step, Step::Backup { kills, .. } if kills.is_empty()));
        has(
            |step| matches!(step, Step::Backup { kills, .. } if kills.contains(&KillMoment::OutcomeLost)),
        );
        has(|step| matches!(step, Step::TwoBackups { kill: Some(_), .. }));
        has(|step| {
            matches!(
                step,
                Step::BackupBesideMaintenance {
                    is_newest_deleted: true,
                    ..
                }
            )
        });
        has(|step| matches!(step, Step::Delete { .. }));
        has(|step| {
            matches!(
                step,
                Step::Restore {
                    kill_percent: Some(_),
                    ..
                }
            )
        });
        has(|step| matches!(step, Step::Maintain { kill: None }));
        has(|step| {
            matches!(
                step,
                Step::Maintain {
                    kill: Some(KillMoment::AfterPart { .. })
                }
            )
        });
        has(|step| *step == Step::Check);
    }
}
