//! The results of a run of histories, as numbers.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use super::{
    check::{self, Promise, Rules, Violation},
    faults::Point,
    record::{Answer, Record},
};

const SHOWN: usize = 10;

#[derive(Clone, Debug, Default)]
pub struct Report {
    pub(crate) seed: u64,
    /// Folder of logs, and of the records of histories with a violation.
    pub(crate) folder: PathBuf,
    pub histories: u64,
    /// Histories with a conflict: only these count.
    pub(crate) counted: u64,
    /// Pairs of conflicting creations.
    pub conflicts: u64,
    pub(crate) operations: u64,
    /// Operations that create no checked object, by type.
    pub(crate) other_operations: BTreeMap<&'static str, u64>,
    pub(crate) admitted: u64,
    /// Creations that our webhook refused because of other objects.
    pub(crate) refused: u64,
    pub(crate) dry_runs: u64,
    /// Creations that failed in another way, by code; 0 means no answer.
    pub(crate) failed: BTreeMap<u16, u64>,
    /// Example of an answer for each such code.
    pub(crate) examples: BTreeMap<u16, String>,
    /// Pieces of work.
    pub(crate) works: u64,
    /// Failed restores that were revived.
    pub(crate) revivals: u64,
    /// Claims that were released by force.
    pub(crate) releases: u64,
    /// Items that restores wrote.
    pub(crate) writes: u64,
    /// The terminal phases of objects.
    pub(crate) ends: BTreeMap<String, u64>,
    /// Why objects failed: reasons without names and numbers.
    pub(crate) reasons: BTreeMap<String, u64>,
    /// Backups imported from a bucket.
    pub(crate) imported: u64,
    /// Objects that were stored after their claim had been collected.
    pub(crate) late: u64,
    /// Objects that were stored after their history had been judged.
    pub(crate) strays: u64,
    /// Errors that the operator met and survived.
    pub(crate) operator_errors: u64,
    /// One of them.
    pub(crate) operator_error: String,
    pub(crate) reached: BTreeMap<Point, u64>,
    /// Points that should have been reached and were not.
    pub(crate) missed: Vec<Point>,
    /// Broken promises, with the number of the history.
    pub(crate) violations: Vec<(u64, Violation)>,
    /// Failures of the kit itself.
    pub(crate) trouble: Vec<String>,
    /// Number of ledger versions, and the size of the largest.
    pub(crate) ledger: (u64, usize),
    pub(crate) elapsed: Duration,
}

impl Report {
    /// Adds a history that is over.
    pub(crate) fn add(&mut self, history: u64, record: &Record, rules: Rules) {
        self.histories += 1;
        let conflicts = check::conflicts(record) as u64;
        self.counted += u64::from(conflicts > 0);
        self.conflicts += conflicts;
        self.operations += record.attempts.len() as u64;
        for (what, count) in &record.other_operations {
            self.operations += count;
            *self.other_operations.entry(what).or_default() += count;
        }
        for attempt in &record.attempts {
            match &attempt.answer {
                _ if attempt.dry_run => self.dry_runs += 1,
                Answer::Done { .. } => self.admitted += 1,
                Answer::Refused { .. } => self.refused += 1,
                Answer::Other { code, text } => {
                    *self.failed.entry(*code).or_default() += 1;
                    self.examples.entry(*code).or_insert_with(|| text.clone());
                }
                Answer::Lost => *self.failed.entry(0).or_default() += 1,
            }
        }
        self.works += record.work.len() as u64;
        self.releases += record.releases.len() as u64;
        self.writes += record.writes.len() as u64;
        for (key, life) in &record.lives {
            self.revivals += u64::from(*key != life.uid);
            self.imported += u64::from(life.is_imported());
            *self.ends.entry(life.phase.clone()).or_default() += 1;
            if !life.failure_reason.is_empty() {
                *self
                    .reasons
                    .entry(shape_of(&life.failure_reason))
                    .or_default() += 1;
            }
        }
        self.late += check::late_arrivals(record, rules) as u64;
        self.operator_errors += record.operator_errors.len() as u64;
        if let Some(error) = record.operator_errors.first() {
            self.operator_error.clone_from(error);
        }
        self.violations.extend(
            check::check(record, rules)
                .into_iter()
                .map(|violation| (history, violation)),
        );
    }

    pub fn broken(&self) -> BTreeMap<Promise, usize> {
        let mut broken = BTreeMap::new();
        for (_, violation) in &self.violations {
            *broken.entry(violation.promise).or_default() += 1;
        }
        broken
    }

    /// Fails if a promise was broken, a point was not reached, or nothing was shown.
    pub fn verdict(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.violations.is_empty(),
            "promises were broken (seed {}): {:?}",
            self.seed,
            self.broken()
        );
        anyhow::ensure!(
            self.trouble.is_empty(),
            "the kit had trouble: {:?}",
            self.trouble
        );
        anyhow::ensure!(
            self.missed.is_empty(),
            "points that were never reached: {:?}",
            self.missed
        );
        anyhow::ensure!(self.counted > 0, "no history had a conflict");
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.elapsed.as_secs_f64();
        let count = u32::try_from(self.histories).map_or(f64::MAX, f64::from);
        let speed = count / seconds.max(0.001);
        writeln!(
            f,
            "seed {}: {} histories in {seconds:.1} s ({speed:.1} in a second)",
            self.seed, self.histories
        )?;
        writeln!(
            f,
            "  {} of them with {} conflicts",
            self.counted, self.conflicts
        )?;
        writeln!(
            f,
            "  {} operations: {} admitted, {} refused, {} dry runs; {} pieces of work, {} late arrivals, {} strays",
            self.operations,
            self.admitted,
            self.refused,
            self.dry_runs,
            self.works,
            self.late,
            self.strays
        )?;
        writeln!(
            f,
            "  {} revivals, {} claims taken by force, {} items written, {} imports; ends {:?}",
            self.revivals, self.releases, self.writes, self.imported, self.ends
        )?;
        writeln!(f, "  besides: {:?}", self.other_operations)?;
        for (reason, count) in &self.reasons {
            writeln!(f, "  {count} failed: {reason}")?;
        }
        for (code, count) in &self.failed {
            let example = self
                .examples
                .get(code)
                .map(String::as_str)
                .unwrap_or_default();
            let what = if *code == 0 {
                "no answer".to_owned()
            } else {
                format!("{code}, such as {example:.160}")
            };
            writeln!(f, "  {count} otherwise: {what}")?;
        }
        writeln!(
            f,
            "  {} versions of the ledger, the largest {} bytes",
            self.ledger.0, self.ledger.1
        )?;
        if self.operator_errors > 0 {
            writeln!(
                f,
                "  {} errors met by the operator, such as {:.200}",
                self.operator_errors, self.operator_error
            )?;
        }
        for (point, count) in &self.reached {
            writeln!(f, "  {point:<50} {count}")?;
        }
        for point in &self.missed {
            writeln!(f, "  {point:<50} NOT REACHED")?;
        }
        for trouble in self.trouble.iter().take(SHOWN) {
            writeln!(f, "  trouble: {trouble}")?;
        }
        writeln!(
            f,
            "  {} violations {:?}",
            self.violations.len(),
            self.broken()
        )?;
        for (history, violation) in self.violations.iter().take(SHOWN) {
            writeln!(f, "  history {history}: {violation}")?;
        }
        if !self.violations.is_empty() {
            writeln!(f, "  records and logs: {}", self.folder.display())?;
        }
        Ok(())
    }
}

/// A reason without the words that contain digits, such as names.
fn shape_of(reason: &str) -> String {
    let word = |word: &str| {
        if word.contains(|letter: char| letter.is_ascii_digit()) {
            "…".to_owned()
        } else {
            word.to_owned()
        }
    };
    let words: Vec<String> = reason.split(' ').take(16).map(word).collect();
    words.join(" ")
}
