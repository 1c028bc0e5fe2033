//! rustic_core's progress as counters.

use std::sync::Arc;

use rustic_core::{Progress as RusticProgressBar, ProgressBars, ProgressType, RusticProgress};

use crate::Progress;

/// Counts the bytes of files; everything else that rustic_core shows is left out.
#[derive(Clone, Debug)]
pub(super) struct Bars(pub(super) Arc<Progress>);

impl ProgressBars for Bars {
    fn progress(&self, progress_type: ProgressType, _prefix: &str) -> RusticProgressBar {
        match progress_type {
            ProgressType::Bytes => RusticProgressBar::new(ByteCounter(self.0.clone())),
            ProgressType::Spinner | ProgressType::Counter => RusticProgressBar::hidden(),
        }
    }
}

#[derive(Clone, Debug)]
struct ByteCounter(Arc<Progress>);

impl RusticProgress for ByteCounter {
    fn is_hidden(&self) -> bool {
        // Otherwise the size of the source is not determined.
        false
    }

    fn set_length(&self, bytes: u64) {
        self.0.set_total(bytes);
    }

    fn set_title(&self, _title: &str) {}

    fn inc(&self, bytes: u64) {
        self.0.add_bytes(bytes);
    }

    fn finish(&self) {}
}
