//! Settings of the pods that move volume data.

use std::{num::NonZeroU64, time::Duration};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MoverSettings {
    /// Image with `backup-mover` as its entrypoint.
    pub(crate) image: String,
    pub(crate) memory_limit: String,
    /// Bytes per second that each pod sends to the store; `None` is no limit.
    pub(crate) upload_limit: Option<NonZeroU64>,
    /// Bytes per second that each pod reads from the store; `None` is no limit.
    pub(crate) download_limit: Option<NonZeroU64>,
    /// Timeout from the acceptance of a transfer until its pod runs.
    pub(crate) prepare_timeout: Duration,
    /// Maximum number of transfers between their acceptance and their end.
    pub(crate) concurrency: usize,
}

impl MoverSettings {
    /// The limits of bandwidth, as arguments of `backup-mover`.
    pub(super) fn bandwidth_args(&self) -> Vec<String> {
        [
            ("--upload-limit", self.upload_limit),
            ("--download-limit", self.download_limit),
        ]
        .into_iter()
        .filter_map(|(flag, limit)| Some(format!("{flag}={}", limit?)))
        .collect()
    }
}
