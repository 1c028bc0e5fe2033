//! Counters, in the Prometheus text format.

use std::time::Duration;

use prometheus_client::{
    encoding::text::encode,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Metric, Registry},
};

/// Names of labels, and their values out of small fixed sets.
type Labels<const N: usize> = [(&'static str, String); N];

pub(crate) struct Metrics {
    registry: Registry,
    /// By kind and decision.
    decisions: Family<Labels<2>, Counter>,
    freed: Family<Labels<1>, Counter>,
    forwarded: Family<Labels<1>, Counter>,
    ledger_writes: Counter,
    ledger_conflicts: Counter,
    seconds: Histogram,
    certificate_ends: Gauge,
    profiles_unusable: Family<Labels<1>, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("backup_webhook");
        let seconds = Histogram::new(exponential_buckets(0.001, 2.0, 14));
        let r = &mut registry;
        r.register("admission_seconds", "Time to decide on a request, in seconds", seconds.clone());
        Self {
            decisions: register(r, "admissions", "Requests by kind and decision"),
            freed: register(r, "claims_freed", "Claims freed by this replica, by reason"),
            forwarded: register(r, "handed_over", "Requests handed to another replica"),
            ledger_writes: register(r, "ledger_writes", "Writes of the ledger that succeeded"),
            ledger_conflicts: register(r, "ledger_conflicts", "Writes of the ledger that came second"),
            certificate_ends: register(
                r,
                "certificate_end_timestamp_seconds",
                "When the certificate that is served ends, in seconds since 1970",
            ),
            profiles_unusable: register(
                r,
                "profiles_unusable",
                "1 for each profile that cannot be used, so that its kinds are refused",
            ),
            seconds,
            registry,
        }
    }
}

fn register<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

impl Metrics {
    /// A request was decided: `admitted`, `queued`, `forced`, `warned`, `passed` (needed no claim), `denied`, `invalid` or
    /// `errored`.
    pub(crate) fn decided(&self, kind: String, decision: &'static str, took: Duration) {
        self.decisions.get_or_create(&[("kind", kind), ("decision", decision.to_owned())]).inc();
        self.seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn certificate_ends(&self, at: i64) {
        self.certificate_ends.set(at);
    }

    pub(crate) fn profile_unusable(&self, name: &str) {
        self.profiles_unusable.get_or_create(&[("profile", name.to_owned())]).set(1);
    }

    pub(crate) fn forwarded(&self, answered: bool) {
        self.forwarded.get_or_create(&[("answered", answered.to_string())]).inc();
    }

    pub(crate) fn ledger_written(&self) {
        self.ledger_writes.inc();
    }

    pub(crate) fn ledger_conflict(&self) {
        self.ledger_conflicts.inc();
    }

    pub(crate) fn freed(&self, reason: &'static str) {
        self.freed.get_or_create(&[("reason", reason.to_owned())]).inc();
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
