//! What was seen of two webhooks in rounds that took turns.

use super::{
    cpu::Used,
    load::Burst,
    report::Report,
    stats::{Sample, median, paired_ratio},
};

/// What was seen of one webhook over all rounds.
#[derive(Default)]
pub struct Seen {
    rates: Vec<f64>,
    pub took: Sample,
    /// What those got to hear that were refused.
    pub refused: Vec<String>,
    pub used: Used,
    /// What the API server was asked to do for each creation, if that was looked at.
    pub asked: String,
}

impl Seen {
    pub fn add(&mut self, burst: Burst) {
        self.rates.push(burst.rate());
        self.took.extend(burst.took);
        self.refused.extend(burst.refused);
    }

    pub fn rounds(&self) -> usize {
        self.rates.len()
    }

    /// Creations in a second, in the round in the middle.
    pub fn rate(&self) -> f64 {
        median(self.rates.iter().copied())
    }

    /// This throughput as a share of another's, in the pair of rounds in the middle.
    pub fn share_of(&self, other: &Self) -> f64 {
        paired_ratio(&self.rates, &other.rates)
    }

    pub fn note(&self, what: &str, report: &mut Report) {
        let (count, rounds) = (self.took.len(), self.rounds());
        let (median, p99, used) = (self.took.median(), self.took.p99(), self.used.per_creation(count));
        let refused = self.refused.first().map_or_else(
            || "none refused".to_owned(),
            |why| format!("{} refused, the first with \"{why}\"", self.refused.len()),
        );
        report.note(format!(
            "{what}: {count} creations in {rounds} rounds, {refused}, median {median:.1} ms, 99th percentile {p99:.1} ms; \
             processor time for each creation: {used}."
        ));
    }
}

/// The order of the quarters of a round, by its number: of two webhooks, `false` and `true`, each has one early and one
/// late quarter, or both in the middle. What gets slower or faster meanwhile hits both.
pub fn quarters(round: usize) -> [bool; 4] {
    if round.is_multiple_of(2) { [false, true, true, false] } else { [true, false, false, true] }
}
