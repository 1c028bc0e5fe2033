//! Named places where a test can have the process killed, as by `kill -9`.
//!
//! Only in builds with debug assertions: a release build holds nothing of it, so that no environment can stop a program
//! that people run. `BACKUP_CRASH_AT=<point>` kills the process when it first comes to that point; the kit of the
//! end-to-end tests goes through all of [`POINTS`].

/// Every point, in the order in which a backup comes past them.
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

/// Comes past a point.
#[cfg(debug_assertions)]
pub fn point(name: &str) {
    static AT: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("BACKUP_CRASH_AT").ok());
    if AT.as_deref() == Some(name) {
        // No destructor, no flush, nothing said: what a lost machine leaves.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

/// Comes past a point; nothing in a release build.
#[cfg(not(debug_assertions))]
#[inline]
pub fn point(_name: &str) {}
