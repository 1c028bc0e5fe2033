//! Schedules against a restore that was refused, in simulated time: a restore that tries again gets
//! in, one that does not keeps no backup out.

use proptest::prelude::*;

use super::*;
use crate::transition::{EndRules, ObservedState};

/// Time between two looks of a collector (seconds).
const LOOK: u64 = 10;

/// Backups that are created periodically, each while the one before it may still be running.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    period: u64,
    takes: u64,
    offset: u64,
}

/// A ledger, its running objects, and a collector.
struct Simulation {
    ledger: Ledger,
    /// Name, and time of its end.
    running: Vec<(ObjectKey, u64)>,
    collector: Collector,
    start: Instant,
}

impl Simulation {
    fn new() -> Self {
        let collector = Collector::new(Times::default(), EndRules::default());
        Self {
            ledger: Ledger::default(),
            running: Vec::new(),
            collector,
            start: Instant::now(),
        }
    }

    /// Simulates one second, without the restore. Returns whether a backup was admitted.
    fn second(&mut self, now: u64, schedules: &[Schedule]) -> bool {
        let over: Vec<ObjectKey> = self
            .running
            .extract_if(.., |(_, end)| *end <= now)
            .map(|(key, _)| key)
            .collect();
        for key in over {
            self.ledger.release(&key, &key.name);
        }
        if now.is_multiple_of(LOOK) {
            self.look(now);
        }
        let mut admitted = false;
        for (n, schedule) in schedules.iter().enumerate() {
            if now >= schedule.offset && (now - schedule.offset).is_multiple_of(schedule.period) {
                let key = backup(&format!("{n}-{now}"));
                let everything = Footprint::everything();
                if self
                    .ledger
                    .admit(&key, &key.name, &everything, "", &Ask::default())
                    .is_ok()
                {
                    self.ledger.activate(&key, &key.name).unwrap();
                    self.running.push((key, now + schedule.takes));
                    admitted = true;
                }
            }
        }
        admitted
    }

    fn look(&mut self, now: u64) {
        let now = self.start + Duration::from_secs(now);
        for claim in self.ledger.claims.clone() {
            let runs = self.running.iter().any(|(key, _)| *key == claim.key);
            let uid = runs.then(|| claim.key.name.clone());
            let observed = ObservedState {
                uid,
                settled: true,
                ..ObservedState::default()
            };
            for judged in self.collector.judge_entries(&claim, &observed, now) {
                judged
                    .transition
                    .apply(&mut self.ledger, &judged.key, &judged.entry);
            }
        }
    }

    /// Requests the restore. Returns whether it was admitted.
    fn ask(&mut self, now: u64) -> bool {
        let (key, uid, everything) = (restore("r"), format!("r-{now}"), Footprint::everything());
        let admitted = self
            .ledger
            .admit(&key, &uid, &everything, "", &Ask::default())
            .is_ok();
        if !admitted {
            self.ledger
                .leave_intent(&key, &uid, &everything, "", &Ask::default());
        }
        admitted
    }
}

fn any_schedules() -> impl Strategy<Value = Vec<Schedule>> {
    let one = (10..400u64, 1..300u64, 0..100u64);
    proptest::collection::vec(
        one.prop_map(|(period, takes, offset)| Schedule {
            period,
            takes,
            offset,
        }),
        1..5,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn schedules_do_not_starve_a_restore_that_comes_again(
        schedules in any_schedules(),
        first in 0..600u64,
        pause in 1..110u64,
    ) {
        let mut simulation = Simulation::new();
        let longest = schedules.iter().map(|schedule| schedule.takes).max().unwrap();
        // Refused twice, its intent keeps new backups out; then the running ones have to end.
        let bound = first + 3 * pause + longest;
        let admitted = (0..=bound).find(|now| {
            simulation.second(*now, &schedules);
            *now >= first && (now - first).is_multiple_of(pause) && simulation.ask(*now)
        });
        prop_assert!(admitted.is_some(), "it was never admitted until {bound} s");
    }

    #[test]
    fn a_restore_that_gave_up_keeps_nobody_out_for_long(
        schedules in any_schedules(),
        first in 0..600u64,
    ) {
        let mut simulation = Simulation::new();
        let mut free = None;
        for now in 0..first + 1000 {
            let asks = now == first;
            let admitted = simulation.second(now, &schedules);
            if asks && simulation.ask(now) {
                return Ok(());
            }
            if now > first && simulation.running.is_empty() {
                free.get_or_insert(now);
            }
            let Some(free) = free else { continue };
            let due = schedules.iter().any(|one| now >= one.offset && (now - one.offset).is_multiple_of(one.period));
            if due && now > free + 30 {
                prop_assert!(admitted, "kept out at {now} s, though nothing was in its way since {free} s");
                return Ok(());
            }
        }
    }
}
