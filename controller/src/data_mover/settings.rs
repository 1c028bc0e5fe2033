//! Settings of the pods that move volume data.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MoverSettings {
    /// Image with `backup-mover` as its entrypoint.
    pub(crate) image: String,
    pub(crate) memory_limit: String,
    /// Timeout from the acceptance of a transfer until its pod runs.
    pub(crate) prepare_timeout: Duration,
    /// Maximum number of transfers between their acceptance and their end.
    pub(crate) concurrency: usize,
}
