//! Times in Kubernetes' format.

use jiff::Timestamp;

/// The time without its fraction of a second, as API objects store it.
pub fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}
