//! The metrics of the webhook.

use prometheus_client::metrics::{counter::Counter, gauge::Gauge, histogram::Histogram};

use crate::Series;

/// Upper bounds of the duration of a decision (seconds): up to the timeout of a review.
const DECISIONS: [f64; 14] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192,
];

metrics! {
    /// The metrics of a replica of the webhook. The values of labels come from small sets, whatever
    /// the requests contain.
    WebhookMetrics, "backup_webhook";
    build_info: Series<Gauge, 1> [version], "1, with the version of the program";
    ready: Gauge [], "1 if this replica can decide, else 0";
    registered: Series<Gauge, 1> [registration],
        "1 if the ValidatingWebhookConfiguration has the API server ask about each backup and restore, 0 if it is missing or lets some pass";
    admissions: Series<Counter, 2> [kind, decision],
        "Requests by kind and decision: admitted, queued, forced, warned, passed, denied, invalid, errored";
    refusals: Series<Counter, 2> [kind, reason],
        "Requests that were refused, by kind and reason, as the answer names it in details.causes";
    admission_seconds: Series<Histogram, 1> [kind] in DECISIONS, "Time to decide on a request";
    handed_over: Series<Counter, 1> [answered], "Requests handed to another replica";
    ledger_writes: Counter [], "Writes of the ledger that succeeded";
    ledger_conflicts: Counter [], "Writes of the ledger that came second";
    ledgers_closed: Series<Gauge, 1> [profile],
        "Ledgers of the profile that grant nothing: lost, damaged, or written by a newer version";
    claims_freed: Series<Counter, 1> [reason], "Claims freed by this replica, by reason";
    certificate_end_timestamp_seconds: Gauge [], "When the certificate that is served ends, Unix time";
    profiles_unusable: Series<Gauge, 1> [profile],
        "1 for each profile that cannot be used, so that its kinds are refused";
}
