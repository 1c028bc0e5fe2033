//! Updates of the metrics that `backup-metrics` declares.

use std::time::Duration;

use backup_metrics::WebhookMetrics;

pub(crate) struct Metrics {
    series: WebhookMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        let series = WebhookMetrics::default();
        series.build_info.set([env!("CARGO_PKG_VERSION")], Some(1));
        Self { series }
    }
}

impl Metrics {
    /// A request was decided: `admitted`, `queued`, `forced`, `warned`, `passed` (needed no claim),
    /// `denied`, `invalid` or `errored`.
    pub(crate) fn decided(&self, kind: &str, decision: &str, took: Duration) {
        self.series.admissions.of([kind, decision]).inc();
        self.series
            .admission_seconds
            .of([kind])
            .observe(took.as_secs_f64());
    }

    pub(crate) fn refused(&self, kind: &str, reason: &str) {
        self.series.refusals.of([kind, reason]).inc();
    }

    pub(crate) fn certificate_ends(&self, at: i64) {
        self.series.certificate_end_timestamp_seconds.set(at);
    }

    pub(crate) fn profile_unusable(&self, name: &str) {
        self.series.profiles_unusable.of([name]).set(1);
    }

    /// Whether a registration has the API server call this webhook for every request that it
    /// should.
    pub(crate) fn registered(&self, registration: &str, asks: bool) {
        self.series
            .registered
            .of([registration])
            .set(i64::from(asks));
    }

    pub(crate) fn forwarded(&self, answered: bool) {
        self.series
            .handed_over
            .of([if answered { "true" } else { "false" }])
            .inc();
    }

    pub(crate) fn ledger_written(&self) {
        self.series.ledger_writes.inc();
    }

    pub(crate) fn ledger_conflict(&self) {
        self.series.ledger_conflicts.inc();
    }

    /// Number of ledgers of a profile that grant nothing.
    pub(crate) fn ledgers_closed(&self, profile: &str, count: usize) {
        self.series
            .ledgers_closed
            .of([profile])
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn freed(&self, reason: &str) {
        self.series.claims_freed.of([reason]).inc();
    }

    /// All metrics as text; `ready` is the state of this replica.
    pub(crate) fn text(&self, ready: bool) -> String {
        self.series.ready.set(i64::from(ready));
        self.series.encode()
    }
}
