//! The metrics of both programs. Each is declared in one line: name, type, labels, meaning. What a program serves and the page
//! docs/operate/metrics.md come from these lines, so that neither can leave one out.

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
