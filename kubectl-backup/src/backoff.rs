//! Pauses between polls.

use std::time::Duration;

use backup_client::backoff::Backoff;

/// Longest pause between two polls.
pub(crate) const MAX_POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Pauses between two polls of an object that the user waits for.
pub(crate) fn pauses() -> impl Iterator<Item = Duration> {
    let backoff = Backoff {
        first: Duration::from_millis(200),
        cap: MAX_POLL_INTERVAL,
    };
    backoff.delays()
}
