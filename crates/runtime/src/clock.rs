//! Monotonic time that also advances while the machine is suspended.

use std::time::Duration;

/// Time since an arbitrary start. Unlike `std::time::Instant` it counts suspended time on Linux
/// (`CLOCK_BOOTTIME`), so that a leader that was suspended does not rely on an expired lease.
#[derive(Clone, Copy, Debug, Default)]
pub enum Clock {
    #[default]
    Boot,
    /// tokio's clock since this time, which a test can pause and advance.
    Tokio(tokio::time::Instant),
}

impl Clock {
    pub fn now(self) -> Duration {
        match self {
            Self::Boot => boot_time(),
            Self::Tokio(start) => Duration::from_secs(1_000_000) + start.elapsed(),
        }
    }
}

#[cfg(unix)]
fn boot_time() -> Duration {
    #[cfg(target_os = "linux")]
    let id = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let id = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(id);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// Leader election does not run on Windows, but the command is built for it.
#[cfg(not(unix))]
fn boot_time() -> Duration {
    static START: std::sync::LazyLock<std::time::Instant> =
        std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed()
}
