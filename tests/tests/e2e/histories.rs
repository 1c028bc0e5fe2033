//! A few hundred histories; `cargo xtask histories` plays ten thousand.

use std::collections::BTreeMap;

use backup_tests::history::{self, Options, Promise};

use crate::prelude::*;

crate::tests! {
    in_histories_full_of_faults_no_promise_is_broken,
    histories_catch_the_naive_webhook,
}

/// Enough for each fault of a process to happen once.
const HISTORIES: u64 = 200;
const SEED: u64 = 1;
/// Runs with the naive webhook: the slower the machine, the more rarely two objects of one history
/// work together.
const NAIVE_ROUNDS: u64 = 5;

fn options() -> Options {
    Options {
        count: HISTORIES,
        seed: SEED,
        faults: true,
        ..Options::default()
    }
}

async fn in_histories_full_of_faults_no_promise_is_broken(world: &mut World) -> TestResult {
    world.needs_own_plane()?;
    let report = history::run(world, &options()).await?;
    print!("{report}");
    report.verdict()
}

/// Shows that the histories would detect a collision.
async fn histories_catch_the_naive_webhook(world: &mut World) -> TestResult {
    world.needs_own_plane()?;
    let mut broken = BTreeMap::new();
    for seed in SEED..=NAIVE_ROUNDS {
        let options = Options {
            count: 40,
            seed,
            faults: false,
            naive: true,
            ..options()
        };
        let report = history::run(world, &options).await?;
        println!(
            "    {} histories, {} conflicts, broken: {:?}",
            report.histories,
            report.conflicts,
            report.broken()
        );
        broken.extend(report.broken());
        if [Promise::WorkApart, Promise::AdmittedApart]
            .iter()
            .all(|promise| broken.contains_key(promise))
        {
            return Ok(());
        }
    }
    bail!("not caught: the histories prove nothing about ours: {broken:?}")
}
