//! Times as Kubernetes writes them.

use jiff::Timestamp;

/// The time without its fraction of a second, as objects of the API hold it.
pub fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}
