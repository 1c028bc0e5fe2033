//! Fuzzing with the stable toolchain: a check gets mutations of valid inputs, and must not panic at
//! any.
//!
//! 1. Every seed, and every file of the corpus (`corpus/<name>` in the folder of the crate), is
//!    checked unchanged.
//! 2. Mutations are checked: [`ITERATIONS`] of them, or as many as fit into `BACKUP_FUZZ_SECONDS`.
//!    The same seed (`BACKUP_FUZZ_SEED`) gives the same inputs in the same order.
//! 3. A check returns its result as text. An input with a new result is mutated further: so the
//!    search follows the distinctions that the code makes, without instrumentation.
//! 4. An input at which the check panics, takes longer than [`SLOW`], or needs more memory than
//!    [`MEMORY`], becomes a file of the corpus, and is checked by every later run. The current
//!    input is also in the folder for temporary files, for errors that end the process, such as a
//!    stack overflow.

use std::{
    any::Any,
    collections::HashSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

mod mutate;

use mutate::Mutator;

/// Variable with the time of a run of one target (seconds); without it a run has [`ITERATIONS`]
/// mutations.
const SECONDS: &str = "BACKUP_FUZZ_SECONDS";
const SEED: &str = "BACKUP_FUZZ_SEED";
const ITERATIONS: u64 = 1_000;
/// Maximum number of inputs that are mutated further.
const KEPT: usize = 4_000;
/// Maximum CPU time for one input: other programs may use the core meanwhile.
const SLOW: Duration = Duration::from_secs(10);
/// Maximum growth of the process's memory (KiB), in a run that has the process to itself.
const MEMORY: u64 = 256 * 1024;

/// A fuzz target.
#[derive(Debug)]
pub struct Fuzz<'a> {
    /// The folder of the crate: `env!("CARGO_MANIFEST_DIR")`.
    pub folder: &'a str,
    /// Also the name of its corpus.
    pub name: &'a str,
    pub seeds: Vec<Vec<u8>>,
    /// Converts the mutated input for the check: compresses it, or repairs a checksum without which
    /// nothing else is read.
    pub wrap: fn(&[u8]) -> Vec<u8>,
}

impl<'a> Fuzz<'a> {
    /// Inputs are checked as they are mutated.
    pub fn new(folder: &'a str, name: &'a str, seeds: Vec<Vec<u8>>) -> Self {
        Self {
            folder,
            name,
            seeds,
            wrap: <[u8]>::to_vec,
        }
    }

    /// Fuzzes this check, which returns the result for an input as text: an error, or what was
    /// read. Panics at the first input that makes the check panic, and names the file of that
    /// input.
    pub fn run(self, check: impl Fn(&[u8]) -> String) {
        self.run_as(&Wanted::from_environment(), check);
    }

    fn run_as(&self, wanted: &Wanted, check: impl Fn(&[u8]) -> String) {
        let mut pool = self.seeds.clone();
        pool.extend(self.corpus());
        let (start, memory) = (Instant::now(), peak_memory());
        let mut known = HashSet::new();
        for input in &pool {
            known.insert(self.check(input, &check));
        }
        let mut mutator = Mutator::new(wanted.seed);
        let mut count = 0;
        while wanted
            .time
            .map_or(count < wanted.iterations, |time| start.elapsed() < time)
        {
            let input = mutator.mutate(&pool);
            if known.insert(self.check(&input, &check)) && pool.len() < KEPT {
                pool.push(input.clone());
            }
            count += 1;
            if wanted.time.is_some() && peak_memory().saturating_sub(memory) > MEMORY {
                self.fail(
                    &input,
                    &format!("the memory of the process has grown by more than {MEMORY} KiB"),
                );
            }
        }
        let _ = std::fs::remove_file(self.at_hand());
        if wanted.time.is_some() {
            println!(
                "{}: {count} inputs, {} different results",
                self.name,
                known.len()
            );
        }
    }

    /// Checks an input; returns a hash of the result.
    fn check(&self, input: &[u8], check: &impl Fn(&[u8]) -> String) -> u64 {
        std::fs::write(self.at_hand(), input).unwrap();
        let start = time_of_thread();
        let result = catch_unwind(AssertUnwindSafe(|| check(&(self.wrap)(input))));
        let result = result.unwrap_or_else(|panic| self.fail(input, &words(&*panic)));
        let took = time_of_thread().saturating_sub(start);
        if took > SLOW {
            self.fail(input, &format!("it took {took:?}"));
        }
        kind_of(&result)
    }

    fn fail(&self, input: &[u8], why: &str) -> ! {
        let mut hasher = DefaultHasher::new();
        input.hash(&mut hasher);
        let folder = self.corpus_folder();
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join(format!("found-{:016x}", hasher.finish()));
        std::fs::write(&file, input).unwrap();
        panic!("{}: {why}; the input is {}", self.name, file.display());
    }

    fn corpus_folder(&self) -> PathBuf {
        PathBuf::from(self.folder).join("corpus").join(self.name)
    }

    /// The files of the corpus, by name.
    fn corpus(&self) -> Vec<Vec<u8>> {
        let Ok(entries) = std::fs::read_dir(self.corpus_folder()) else {
            return Vec::new();
        };
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
            .into_iter()
            .map(|file| std::fs::read(file).unwrap())
            .collect()
    }

    fn at_hand(&self) -> PathBuf {
        std::env::temp_dir().join(format!("fuzz-{}-{}", self.name, std::process::id()))
    }
}

fn time_of_thread() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime)
        .try_into()
        .unwrap_or_default()
}

struct Wanted {
    /// `None`: a fixed number of iterations.
    time: Option<Duration>,
    iterations: u64,
    seed: u64,
}

impl Wanted {
    fn from_environment() -> Self {
        let number = |name| Some(std::env::var(name).ok()?.parse().unwrap());
        let time = number(SECONDS).map(Duration::from_secs);
        Self {
            time,
            iterations: ITERATIONS,
            seed: number(SEED).unwrap_or(1),
        }
    }
}

/// Hash of a result without its numbers and quoted texts.
fn kind_of(result: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    let plain = result.split(['"', '`']).step_by(2);
    let letters = plain
        .flat_map(str::chars)
        .filter(|letter| !letter.is_ascii_digit());
    letters.take(200).collect::<String>().hash(&mut hasher);
    hasher.finish()
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
        .unwrap_or_default()
}

/// Peak memory of this process so far (KiB); 0 where the file does not exist.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bug that no seed triggers: it takes two mutations in a row, the first of which changes the
    /// result.
    #[test]
    fn a_mistake_two_steps_away_is_found_and_kept() {
        let folder = std::env::temp_dir().join(format!("fuzz-corpus-{}", std::process::id()));
        let text = folder.to_str().unwrap();
        let wanted = Wanted {
            time: None,
            iterations: 20_000,
            seed: 1,
        };
        let run = || {
            Fuzz::new(text, "numbers", vec![br#"{"a":1,"b":[1]}"#.to_vec()]).run_as(
                &wanted,
                |input| {
                    let Ok(value) = serde_json::from_slice::<serde_json::Value>(input) else {
                        return "no JSON".into();
                    };
                    let Some(number) = value["a"].as_i64() else {
                        return "no number".into();
                    };
                    let first = format!("negative: {}", number < 0);
                    assert!(
                        number >= 0 || !value["b"].is_null(),
                        "a negative a without b"
                    );
                    first
                },
            );
        };
        for _ in 0..2 {
            let failed = words(&*catch_unwind(run).unwrap_err());
            assert!(
                failed.contains("a negative a without b") && failed.contains("found-"),
                "{failed}"
            );
        }
        assert_eq!(
            std::fs::read_dir(folder.join("corpus/numbers"))
                .unwrap()
                .count(),
            1
        );
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_same_seed_makes_the_same_inputs() {
        let inputs = |seed| {
            let mut mutator = Mutator::new(seed);
            let pool = [br#"{"a":[1,2,3]}"#.to_vec(), b"plain bytes".to_vec()];
            (0..200).map(|_| mutator.mutate(&pool)).collect::<Vec<_>>()
        };
        assert_eq!(inputs(7), inputs(7));
        assert_ne!(inputs(7), inputs(8));
    }
}
