//! Named places where a test can have the process killed, as by `kill -9`, or paused, as by `kill -STOP`.
//!
//! Only in builds with debug assertions: a release build holds nothing of it, so that no environment can stop a program
//! that people run. `BACKUP_CRASH_AT=<point>` kills the process when it first comes to that point (`<point>#3`: when it does so
//! for the third time), `BACKUP_PAUSE_AT=<point>`
//! stops it there until somebody lets it go on; the kit of the end-to-end tests goes through all of [`POINTS`], [`OPERATION_POINTS`],
//! [`EXECUTION_POINTS`] and [`REFUSAL_POINTS`].

/// Every point of a backup without operations, in the order in which it comes past them.
pub const POINTS: &[&str] = &[
    "after-owner-marker",
    "mid-collection",
    "after-finalizing-patch",
    "before-record",
    "after-record",
    "after-contents",
    "after-logs.gz",
    "after-results.gz",
    "after-resource-list.json.gz",
    "after-volumeinfo.json.gz",
    "after-itemoperations.json.gz",
    "after-volumesnapshots.json.gz",
    "after-podvolumebackups.json.gz",
    "before-metadata",
    "after-metadata",
    "before-terminal-patch",
    "after-terminal-patch",
];

/// The points between collection and end of a backup whose actions have started operations, in order.
pub const OPERATION_POINTS: &[&str] = &[
    "before-operations",
    "after-operations-recorded",
    "after-operations-kept",
    "after-operations",
    "after-renewal",
];

/// The points around an action that may start what nobody could find again, in order.
pub const EXECUTION_POINTS: &[&str] = &["before-execution", "after-execution", "after-execution-recorded"];

/// The points of a backup that is refused, and of one that fails, each right before this is published.
pub const REFUSAL_POINTS: [&str; 2] = ["before-refusal-patch", "before-failure-patch"];

/// Comes past a point.
#[cfg(debug_assertions)]
pub fn point(name: &str) {
    use std::sync::{
        LazyLock, Once,
        atomic::{AtomicU32, Ordering},
    };

    use rustix::process::{Signal, getpid, kill_process};

    /// The point, and how often it is passed before.
    static CRASH: LazyLock<Option<(String, u32)>> = LazyLock::new(|| {
        let told = std::env::var("BACKUP_CRASH_AT").ok()?;
        Some(match told.split_once('#') {
            Some((point, nth)) => (point.to_owned(), nth.parse::<u32>().unwrap_or(1).saturating_sub(1)),
            None => (told, 0),
        })
    });
    static PASSED: AtomicU32 = AtomicU32::new(0);
    static PAUSE: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("BACKUP_PAUSE_AT").ok());
    static PAUSED: Once = Once::new();
    if let Some((at, before)) = &*CRASH
        && at == name
        && PASSED.fetch_add(1, Ordering::Relaxed) == *before
    {
        // No destructor, no flush, nothing said: what a lost machine leaves.
        let _ = kill_process(getpid(), Signal::KILL);
    }
    if PAUSE.as_deref() == Some(name) {
        PAUSED.call_once(|| {
            let _ = kill_process(getpid(), Signal::STOP);
        });
    }
}

/// Comes past a point; nothing in a release build.
#[cfg(not(debug_assertions))]
#[inline]
pub fn point(_name: &str) {}
