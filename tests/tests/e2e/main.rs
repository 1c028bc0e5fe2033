//! The end-to-end tests, on a real control plane and a real S3 server.
//!
//! They have a runner of their own because worlds are shared between tests and have to be ended by whoever started
//! them, and because a person who waits wants to see progress. A name as argument runs the tests that contain it.

mod api_outages;
mod bad_input;
mod blocks;
mod clients;
mod collection;
mod crash_points;
mod csi;
mod deletion;
mod deploy;
mod describing;
mod drills;
mod history;
mod hooks;
mod ledger;
mod locations;
mod lock;
mod locks;
mod main_job;
mod metrics;
mod moving_lists;
mod native_snapshots;
mod object_plugins;
mod operation_crashes;
mod operations_in_flight;
mod orphans;
mod percona;
mod plugin;
mod policy;
mod reading;
mod requests;
mod restore_plugins;
mod schedules;
mod strays;
mod sync;
mod sync_removal;
mod takeover;
mod two_clusters;
mod velero_plugins;
mod verifying;

use std::{process::ExitCode, time::Instant};

use backup_tests::{World, network};
use futures::future::LocalBoxFuture;

/// A test: what it promises, and how it is shown.
type Test = (&'static str, for<'w> fn(&'w mut World) -> LocalBoxFuture<'w, anyhow::Result<()>>);

/// The error of a test that can't run here.
#[derive(Debug)]
pub struct Skip(pub &'static str);

impl std::fmt::Display for Skip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Skip {}

/// A list of tests over functions `async fn(&mut World) -> anyhow::Result<()>`.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        pub const TESTS: &[crate::Test] = &[$((stringify!($name), |world| Box::pin($name(world)))),*];
    };
}
pub(crate) use tests;

#[tokio::main]
async fn main() -> ExitCode {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let mut passed = 0;
    let mut failures: Vec<String> = Vec::new();
    let shared = [
        deploy::TESTS,
        main_job::TESTS,
        bad_input::TESTS,
        collection::TESTS,
        metrics::TESTS,
        plugin::TESTS,
        requests::TESTS,
        lock::TESTS,
        clients::TESTS,
        locks::TESTS,
    ];
    let naive = [lock::CONTROL];
    for (kind, suites, builder) in [
        (
            "our webhook",
            shared.concat(),
            World::builder().controller_args(&["--store-validation-frequency=2s"]),
        ),
        (
            "a store that misbehaves",
            drills::TESTS.to_vec(),
            World::builder()
                .webhooks(1)
                .controller_args(&["--store-validation-frequency=2s", "--concurrent-backups=2"]),
        ),
        (
            "a controller that is killed",
            [crash_points::TESTS, operation_crashes::TESTS, moving_lists::TESTS].concat(),
            World::builder().webhooks(1).api_server_args(moving_lists::FROM_ETCD).controller_args(&[
                "--features=EnableCSI",
                "--item-operation-sync-frequency=1s",
                "--store-validation-frequency=2s",
                crash_points::ALONE,
            ]),
        ),
        (
            "an API server that is stopped",
            api_outages::TESTS.to_vec(),
            World::builder().webhooks(1).controller_args(&[
                "--features=EnableCSI",
                "--item-operation-sync-frequency=1s",
                "--store-validation-frequency=2s",
                "--concurrent-backups=4",
                api_outages::BUDGET,
            ]),
        ),
        (
            "snapshots of CSI volumes",
            csi::TESTS.to_vec(),
            World::builder().controller_args(&[
                "--features=EnableCSI,EnableAPIGroupVersions",
                "--item-operation-sync-frequency=1s",
                "--store-validation-frequency=2s",
                csi::PATIENCE,
            ]),
        ),
        (
            "buckets that other clusters have filled",
            [sync::TESTS, sync_removal::TESTS, strays::TESTS, locations::TESTS, two_clusters::TESTS].concat(),
            World::builder().controller_args(&["--store-validation-frequency=2s"]),
        ),
        (
            "plugins of Velero's kind",
            [
                velero_plugins::TESTS,
                operations_in_flight::TESTS,
                blocks::TESTS,
                object_plugins::TESTS,
                restore_plugins::TESTS,
                requests::WITH_PLUGINS,
                native_snapshots::TESTS,
            ]
            .concat(),
            World::builder().webhooks(1).plugins().controller_args(&[
                "--item-operation-sync-frequency=1s",
                "--plugin-timeout=15s",
                crash_points::ALONE,
                "--store-validation-frequency=2s",
                "--concurrent-backups=2",
            ]),
        ),
        (
            "schedules, and backups that expire",
            [schedules::TESTS, deletion::TESTS].concat(),
            World::builder().webhooks(1).controller_args(&[
                "--garbage-collection-frequency=2s",
                "--store-validation-frequency=1s",
                "--concurrent-backups=4",
                crash_points::ALONE,
            ]),
        ),
        (
            "a node with scripted commands",
            hooks::TESTS.to_vec(),
            World::builder().webhooks(1).controller_args(&["--store-validation-frequency=2s"]),
        ),
        (
            "two controllers, and the leader is paused",
            [reading::BESIDE_A_LEADER, takeover::TESTS].concat(),
            World::builder().webhooks(1).controllers(2).files().controller_args(&[
                "--features=EnableCSI",
                "--item-operation-sync-frequency=1s",
                "--store-validation-frequency=2s",
                "--concurrent-backups=8",
            ]),
        ),
        (
            "readers who reach nothing but the API server",
            [reading::TESTS, describing::TESTS, verifying::TESTS].concat(),
            World::builder().webhooks(1).files().plugins().controller_args(&[
                "--item-operation-sync-frequency=1s",
                "--store-validation-frequency=2s",
                crash_points::ALONE,
            ]),
        ),
        (
            "a grace of one second",
            [orphans::TESTS, clients::BESIDE_A_SIBLING].concat(),
            World::builder().webhook_args(&[orphans::GRACE]).controller_args(&[orphans::GRACE]),
        ),
        (
            "a ledger that is lost and found",
            ledger::TESTS.to_vec(),
            World::builder()
                .webhook_args(&[orphans::GRACE])
                .controller_args(&[orphans::GRACE, "--store-validation-frequency=2s"]),
        ),
        (
            "another operator's databases, and replicas that know one another",
            percona::TESTS.to_vec(),
            World::builder().peers().webhook_args(&["--guard=percona-ps"]).controllers(0),
        ),
        (
            "every policy, and no programs",
            [policy::TESTS, policy::phases::TESTS, policy::read_keys::TESTS, policy::registration::TESTS]
                .concat(),
            World::builder().webhooks(0).controllers(0),
        ),
        (
            "two API servers, for histories",
            history::TESTS.to_vec(),
            World::builder().api_servers(2).webhooks(0).controllers(0),
        ),
        ("the naive webhook", naive.concat(), World::builder().naive_webhook().controllers(0)),
    ] {
        let chosen: Vec<_> =
            suites.into_iter().filter(|(name, _)| name.contains(&filter) || kind.contains(&filter)).collect();
        if chosen.is_empty() || network::is_inside() != builder.needs_network() {
            if !chosen.is_empty() && !network::is_inside() {
                // The others that need one are started for themselves.
                let ran = apart(if kind.contains(&filter) { kind } else { &filter }, &chosen);
                passed += ran.0;
                failures.extend(ran.1);
            }
            continue;
        }
        println!("starting a world with {kind}");
        let mut world = match builder.start().await {
            Ok(world) => world,
            Err(error) => {
                println!("FAILED to start: {error:#}");
                failures.extend(chosen.iter().map(|(name, _)| format!("{name}: its world did not start")));
                continue;
            }
        };
        for (name, test) in chosen {
            let start = Instant::now();
            let result = match world.calm().await {
                Ok(()) => test(&mut world).await,
                Err(error) => Err(error),
            };
            match result {
                Ok(()) => {
                    passed += 1;
                    println!("test {name} ... ok ({:.1} s)", start.elapsed().as_secs_f64());
                }
                Err(error) if error.is::<Skip>() => println!("test {name} ... skipped: {error}"),
                Err(error) => {
                    println!("test {name} ... FAILED\n{error:?}\n{}", world.logs(12));
                    failures.push(told(name, &error));
                }
            }
        }
    }
    // Once more in the end, where whoever gets no more than the end of the output sees it.
    for failure in &failures {
        println!("FAILED {failure}");
    }
    let verdict = if failures.is_empty() { "ok" } else { "FAILED" };
    println!("test result: {verdict}. {passed} passed; {} failed", failures.len());
    if failures.is_empty() && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the tests of a world that needs a network of its own there, by this program; how many passed, and what failed.
fn apart(filter: &str, chosen: &[Test]) -> (usize, Vec<String>) {
    let mut ended = 0;
    let mut failures = Vec::new();
    let ran = network::run_inside(&[filter], |line| {
        ended += usize::from(line.starts_with("test ") && line.contains(" ... ok ("));
        failures.extend(
            line.strip_prefix("FAILED ").filter(|line| !line.starts_with("to start")).map(str::to_owned),
        );
        if !line.starts_with("FAILED ") && !line.starts_with("test result: ") {
            println!("{line}");
        }
    });
    match ran {
        Ok(ok) if ok == failures.is_empty() => {}
        Ok(_) => failures.push("the tests in a network of their own ended without a word".to_owned()),
        Err(error) if error.is::<network::NoNetwork>() => {
            for (name, _) in chosen {
                println!("test {name} ... skipped: {error}");
            }
        }
        Err(error) => failures.extend(chosen.iter().map(|(name, _)| format!("{name}: {error:#}"))),
    }
    (ended, failures)
}

/// What failed and why, without the logs that an error may carry: a few lines.
fn told(name: &str, error: &anyhow::Error) -> String {
    const LONGEST: usize = 2000;
    let causes: Vec<String> =
        error.chain().map(ToString::to_string).filter(|cause| !cause.starts_with("--- ")).collect();
    format!("{name}: {}", causes.join(": ").chars().take(LONGEST).collect::<String>())
}
