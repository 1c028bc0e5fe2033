//! Runs the tests: worlds in parallel, the tests of one world one after another.
//!
//! A separate runner, because worlds are shared between tests and must be ended by the code that
//! started them, and because users want to see progress. Names as arguments run the tests that
//! contain one of them; `--list` lists all.

use std::{collections::VecDeque, process::ExitCode, time::Instant};

use backup_tests::{Skip, World, WorldBuilder, network};
use futures::future::LocalBoxFuture;
use parking_lot::Mutex;
use tokio::runtime::Handle;

/// A test: its name, which states a promise, and its function.
pub type Test = (
    &'static str,
    for<'w> fn(&'w mut World) -> LocalBoxFuture<'w, anyhow::Result<()>>,
);

/// A world and the tests that share it.
pub struct Suite {
    pub name: &'static str,
    pub tests: Vec<Test>,
    pub world: WorldBuilder,
}

/// Variable with the number of worlds that run at the same time.
const WORLDS: &str = "BACKUP_TESTS_WORLDS";
/// Maximum number of worlds at the same time; each needs about a gigabyte of memory.
const MAX_WORLDS: usize = 8;
/// The argument with the name of the only suite to run: this program passes it to itself in a
/// separate network.
const ONLY_SUITE: &str = "--suite=";

/// The results of all tests so far.
#[derive(Default)]
struct Outcome {
    passed: usize,
    failures: Vec<String>,
}

/// Runs the requested tests.
pub fn run(suites: Vec<Suite>) -> ExitCode {
    let filters: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let only = std::env::args().find_map(|arg| Some(arg.strip_prefix(ONLY_SUITE)?.to_owned()));
    let chosen = suites
        .into_iter()
        .filter(|suite| only.as_ref().is_none_or(|only| only == suite.name))
        .filter_map(|suite| suite.matching(&filters));
    if std::env::args().any(|arg| arg == "--list") {
        chosen
            .flat_map(|suite| suite.tests)
            .for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let (queue, outcome) = (
        Mutex::new(chosen.collect::<VecDeque<_>>()),
        Mutex::default(),
    );
    let (handle, start) = (Handle::current(), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..worlds_at_once() {
            scope.spawn(|| {
                while let Some(suite) = next(&queue) {
                    if suite.world.needs_network() && !network::is_inside() {
                        suite.run_inside(&filters, &outcome);
                    } else {
                        handle.block_on(suite.run(&outcome));
                    }
                }
            });
        }
    });
    // Repeated at the end, for readers who only see the end of the output.
    let Outcome { passed, failures } = &*outcome.lock();
    for failure in failures {
        println!("FAILED {failure}");
    }
    let verdict = if failures.is_empty() { "ok" } else { "FAILED" };
    let seconds = start.elapsed().as_secs();
    println!(
        "test result: {verdict}. {passed} passed; {} failed; {seconds} s",
        failures.len()
    );
    if failures.is_empty() && *passed > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Two worlds for each core, because a world waits about half of its time.
fn worlds_at_once() -> usize {
    if std::env::var_os("KUBECONFIG_FOR_TESTS").is_some() {
        // All worlds share that cluster.
        return 1;
    }
    let asked = std::env::var(WORLDS)
        .ok()
        .and_then(|text| text.parse().ok());
    asked.unwrap_or_else(|| {
        MAX_WORLDS.min(2 * std::thread::available_parallelism().map_or(1, usize::from))
    })
}

fn next(queue: &Mutex<VecDeque<Suite>>) -> Option<Suite> {
    queue.lock().pop_front()
}

impl Suite {
    /// The tests selected by the filters; all of them if there are none, or if one matches the name
    /// of the suite.
    fn matching(mut self, filters: &[String]) -> Option<Self> {
        let chosen = |name: &str| filters.iter().any(|filter| name.contains(filter));
        let all = filters.is_empty() || chosen(self.name);
        self.tests.retain(|(name, _)| all || chosen(name));
        (!self.tests.is_empty()).then_some(self)
    }

    async fn run(self, outcome: &Mutex<Outcome>) {
        let Self {
            name: suite,
            tests,
            world,
        } = self;
        println!("starting a world with {suite}");
        let mut world = match world.start().await {
            Ok(world) => world,
            Err(error) => {
                println!("FAILED to start {suite}: {error:#}");
                let failed = tests
                    .iter()
                    .map(|(name, _)| format!("{name}: its world did not start"));
                return outcome.lock().failures.extend(failed);
            }
        };
        for (name, test) in tests {
            let start = Instant::now();
            let result = match world.calm().await {
                Ok(()) => test(&mut world).await,
                Err(error) => Err(error),
            };
            match result {
                Ok(()) => {
                    outcome.lock().passed += 1;
                    println!(
                        "test {name} ... ok ({:.1} s)",
                        start.elapsed().as_secs_f64()
                    );
                }
                Err(error) if error.is::<Skip>() => println!("test {name} ... skipped: {error}"),
                Err(error) => {
                    println!("test {name} ... FAILED\n{error:?}\n{}", world.logs(12));
                    outcome.lock().failures.push(summary(name, &error));
                }
            }
        }
    }

    /// Runs the tests in a separate network, by this program.
    fn run_inside(self, filters: &[String], outcome: &Mutex<Outcome>) {
        let (mut passed, mut failures) = (0, Vec::new());
        let suite = format!("{ONLY_SUITE}{}", self.name);
        let args: Vec<&str> = filters
            .iter()
            .map(String::as_str)
            .chain([suite.as_str()])
            .collect();
        let ran = network::run_inside("dev", &args, |line| {
            passed += usize::from(line.starts_with("test ") && line.contains(" ... ok ("));
            failures.extend(
                line.strip_prefix("FAILED ")
                    .filter(|line| !line.starts_with("to start"))
                    .map(str::to_owned),
            );
            if !line.starts_with("FAILED ") && !line.starts_with("test result: ") {
                println!("{line}");
            }
        });
        match ran {
            Ok(ok) if ok == failures.is_empty() => {}
            Ok(_) => failures.push(format!("the tests of {} ended without a result", self.name)),
            Err(error) if error.is::<network::NoNetwork>() => {
                for (name, _) in self.tests {
                    println!("test {name} ... skipped: {error}");
                }
            }
            Err(error) => failures.extend(
                self.tests
                    .iter()
                    .map(|(name, _)| format!("{name}: {error:#}")),
            ),
        }
        let mut outcome = outcome.lock();
        outcome.passed += passed;
        outcome.failures.extend(failures);
    }
}

/// A short summary of a failure, without the logs that an error may contain.
fn summary(name: &str, error: &anyhow::Error) -> String {
    const MAX_SUMMARY_CHARS: usize = 2000;
    let causes: Vec<String> = error
        .chain()
        .map(ToString::to_string)
        .filter(|cause| !cause.starts_with("--- "))
        .collect();
    format!(
        "{name}: {}",
        causes
            .join(": ")
            .chars()
            .take(MAX_SUMMARY_CHARS)
            .collect::<String>()
    )
}
