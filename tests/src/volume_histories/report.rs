//! The results of a run of histories, as numbers.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use anyhow::ensure;

use super::{
    plan::VolumeMistake,
    record::{HistoryRecord, VolumeEvent, VolumePromise, VolumeViolation},
};

/// Number of histories from which each expected event has to happen.
const MIN_LONG_RUN: u64 = 200;
/// Maximum number of violations that are shown.
const MAX_SHOWN: usize = 10;
/// Maximum length of a violation that is shown (characters).
const MAX_DETAIL: usize = 400;

/// What came of many histories.
#[derive(Clone, Debug, Default)]
pub struct VolumeHistoryReport {
    pub(super) seed: u64,
    pub(super) mistake: Option<VolumeMistake>,
    pub(super) histories: u64,
    pub(super) events: BTreeMap<VolumeEvent, u64>,
    /// Broken promises, with the number of the history.
    pub(super) violations: Vec<(u64, VolumeViolation)>,
    /// The steps of the first history with a violation, with its number.
    pub(super) log: Option<(u64, Vec<String>)>,
    /// The folders of histories with a violation are in it.
    pub(super) folder: PathBuf,
    pub(super) elapsed: Duration,
}

impl VolumeHistoryReport {
    /// Adds a history that is over.
    pub(super) fn add(&mut self, number: u64, record: HistoryRecord) {
        self.histories += 1;
        for (event, count) in record.events {
            *self.events.entry(event).or_default() += count;
        }
        let is_first = self.log.as_ref().is_none_or(|(first, _)| number < *first);
        if !record.violations.is_empty() && is_first {
            self.log = Some((number, record.log));
        }
        let violations = record.violations.into_iter();
        self.violations
            .extend(violations.map(|violation| (number, violation)));
    }

    /// How often each promise was broken.
    fn broken(&self) -> BTreeMap<VolumePromise, usize> {
        let mut broken = BTreeMap::new();
        for (_, violation) in &self.violations {
            *broken.entry(violation.promise).or_default() += 1;
        }
        broken
    }

    /// Whether the mistake was caught, if there is one.
    pub(super) fn is_caught(&self) -> bool {
        let promise = self.mistake.map(VolumeMistake::breaks);
        promise.is_some_and(|promise| {
            let mut violations = self.violations.iter();
            violations.any(|(_, violation)| violation.promise == promise)
        })
    }

    /// Expected events that did not happen.
    fn missed(&self) -> Vec<VolumeEvent> {
        let expected = VolumeEvent::EXPECTED.into_iter();
        expected
            .filter(|event| !self.events.contains_key(event))
            .collect()
    }

    /// Fails if a promise was broken, or a mistake was not caught; in a long run also if an
    /// expected event did not happen.
    pub fn verdict(&self) -> anyhow::Result<()> {
        let broken = self.broken();
        if let Some(mistake) = self.mistake {
            ensure!(
                self.is_caught(),
                "{mistake:?} was not caught, so this proves nothing about ours: {broken:?}"
            );
            return Ok(());
        }
        ensure!(
            broken.is_empty(),
            "promises were broken (seed {}): {broken:?}",
            self.seed
        );
        let missed = self.missed();
        ensure!(
            self.histories < MIN_LONG_RUN || missed.is_empty(),
            "events that never happened: {missed:?}"
        );
        Ok(())
    }
}

impl VolumeMistake {
    /// The promise that this mistake has to break.
    fn breaks(self) -> VolumePromise {
        match self {
            Self::BesideUpload => VolumePromise::Restorable,
            Self::ShortDelay => VolumePromise::NeverLost,
            Self::NoNotes => VolumePromise::NoSnapshotIsLeft,
        }
    }
}

impl fmt::Display for VolumeHistoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.elapsed.as_secs_f64();
        writeln!(
            f,
            "seed {}: {} histories of a repository in {seconds:.1} s",
            self.seed, self.histories
        )?;
        for (event, count) in &self.events {
            let event = format!("{event:?}");
            writeln!(f, "  {event:<34} {count}")?;
        }
        let count = self.violations.len();
        writeln!(f, "  {count} violations {:?}", self.broken())?;
        for (history, violation) in self.violations.iter().take(MAX_SHOWN) {
            let violation = violation.to_string();
            writeln!(f, "  history {history}: {violation:.MAX_DETAIL$}")?;
        }
        let Some((number, log)) = self.log.as_ref().filter(|_| self.mistake.is_none()) else {
            return Ok(());
        };
        let folder = self.folder.display();
        writeln!(
            f,
            "  the steps of history {number} (its folder is in {folder}):"
        )?;
        for line in log {
            writeln!(f, "    {line:.MAX_DETAIL$}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(mistake: Option<VolumeMistake>, promises: &[VolumePromise]) -> VolumeHistoryReport {
        let mut report = VolumeHistoryReport {
            mistake,
            ..VolumeHistoryReport::default()
        };
        let mut record = HistoryRecord::default();
        for promise in promises {
            record.violate(*promise, "detail".to_owned());
        }
        report.add(7, record);
        report
    }

    #[test]
    fn a_broken_promise_fails_the_run() {
        assert!(report(None, &[]).verdict().is_ok());
        let broken = report(None, &[VolumePromise::SameFiles]);
        assert!(broken.verdict().is_err());
        let text = broken.to_string();
        assert!(text.contains("history 7: SameFiles: detail"), "{text}");
        assert!(text.contains("the steps of history 7"), "{text}");
    }

    #[test]
    fn a_mistake_has_to_break_its_promise() {
        let short = Some(VolumeMistake::ShortDelay);
        assert!(report(short, &[]).verdict().is_err());
        assert!(
            report(short, &[VolumePromise::Restorable])
                .verdict()
                .is_err()
        );
        assert!(report(short, &[VolumePromise::NeverLost]).verdict().is_ok());
        let no_notes = Some(VolumeMistake::NoNotes);
        assert!(
            report(no_notes, &[VolumePromise::SpaceIsFreed])
                .verdict()
                .is_err()
        );
        assert!(
            report(no_notes, &[VolumePromise::NoSnapshotIsLeft])
                .verdict()
                .is_ok()
        );
        let beside = Some(VolumeMistake::BesideUpload);
        assert!(
            report(beside, &[VolumePromise::Restorable])
                .verdict()
                .is_ok()
        );
    }

    #[test]
    fn a_long_run_without_an_expected_event_fails() {
        let mut long = report(None, &[]);
        long.histories = MIN_LONG_RUN;
        assert!(long.verdict().is_err());
        long.events = VolumeEvent::EXPECTED.map(|event| (event, 1)).into();
        assert!(long.verdict().is_ok());
    }
}
