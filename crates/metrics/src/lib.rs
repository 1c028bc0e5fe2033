//! The metrics of both programs. Each is declared in one line: name, type, labels, meaning. The
//! served metrics and the page docs/operate/metrics.md come from these lines, so that neither can
//! miss one.

#[macro_use]
mod declare;
mod controller;
#[cfg(test)]
mod queries;
mod webhook;

pub use controller::ControllerMetrics;
pub use declare::{CONTENT_TYPE, Description, LabelValues, Series};
pub use prometheus_client::metrics::{counter::Counter, gauge::Gauge, histogram::Histogram};
pub use webhook::WebhookMetrics;
