//! Counters, in the Prometheus text format.

use std::time::Duration;

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

/// What became of a request. Both labels come from small fixed sets: guarded kinds and decisions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Decided {
    kind: String,
    decision: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Freed {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Forwarded {
    answered: bool,
}

/// All metrics of this process, in a registry of their own.
pub struct Metrics {
    registry: Registry,
    decisions: Family<Decided, Counter>,
    freed: Family<Freed, Counter>,
    forwarded: Family<Forwarded, Counter>,
    ledger_writes: Counter,
    ledger_conflicts: Counter,
    seconds: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("backup_webhook");
        let decisions = Family::default();
        registry.register("admissions", "Requests by kind and decision", Family::clone(&decisions));
        let freed = Family::default();
        registry.register("claims_freed", "Claims freed by this replica, by reason", Family::clone(&freed));
        let forwarded = Family::default();
        registry.register("handed_over", "Requests handed to another replica", Family::clone(&forwarded));
        let ledger_writes = Counter::default();
        registry.register("ledger_writes", "Writes of the ledger that succeeded", ledger_writes.clone());
        let ledger_conflicts = Counter::default();
        registry.register(
            "ledger_conflicts",
            "Writes of the ledger that came second",
            ledger_conflicts.clone(),
        );
        let seconds = Histogram::new(exponential_buckets(0.001, 2.0, 14));
        registry.register("admission_seconds", "Time to decide on a request, in seconds", seconds.clone());
        Self { registry, decisions, freed, forwarded, ledger_writes, ledger_conflicts, seconds }
    }

    /// A request was decided: `admitted`, `queued`, `forced`, `warned`, `passed` (needed no claim), `denied`, `invalid` or
    /// `errored`.
    pub fn decided(&self, kind: String, decision: &'static str, took: Duration) {
        self.decisions.get_or_create(&Decided { kind, decision }).inc();
        self.seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn forwarded(&self, answered: bool) {
        self.forwarded.get_or_create(&Forwarded { answered }).inc();
    }

    pub fn ledger_written(&self) {
        self.ledger_writes.inc();
    }

    pub(crate) fn ledger_conflict(&self) {
        self.ledger_conflicts.inc();
    }

    pub fn freed(&self, reason: &'static str) {
        self.freed.get_or_create(&Freed { reason }).inc();
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
