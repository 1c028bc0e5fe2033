//! How much of what plugins say goes into our own log.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::log_line::{Level, LogLine};

/// Lines that go into our own log, in [`LINES_EVERY`].
const LINES: u64 = 100;
const LINES_EVERY: Duration = Duration::from_secs(10);

/// So many lines go into our own log in a while; the rest is dropped.
#[derive(Debug, Default)]
pub(crate) struct LogRateLimit(Mutex<Option<(Instant, u64)>>);

impl LogRateLimit {
    /// Writes a line into our own log, if it matters and there is room.
    pub(crate) fn log(&self, said: &LogLine) {
        if said.level == Level::Debug || !self.take() {
            return;
        }
        let text = &said.text;
        match said.level {
            Level::Debug => {}
            Level::Info => tracing::info!("{text}"),
            Level::Warning => tracing::warn!("{text}"),
            Level::Error => tracing::error!("{text}"),
        }
    }

    fn take(&self) -> bool {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, count) = taken.take().unwrap_or_else(|| (Instant::now(), 0));
        let (since, count) = if since.elapsed() < LINES_EVERY { (since, count) } else { (Instant::now(), 0) };
        *taken = Some((since, count + 1));
        count < LINES
    }
}
