//! Named points where a test can have the process killed, as by `kill -9`, or paused, as by `kill
//! -STOP`.
//!
//! Only in builds with debug assertions: a release build contains none of it, so no environment
//! variable can stop a program in production. `BACKUP_CRASH_AT=<point>` kills the process when it
//! first reaches that point, `BACKUP_PAUSE_AT=<point>` stops it there until it gets a `SIGCONT`;
//! `<point>#3` is the third time. The end-to-end tests cover all points.

use std::sync::{
    LazyLock,
    atomic::{AtomicI64, Ordering},
};

/// All points of a backup without operations, in the order in which it reaches them.
pub const POINTS: &[&str] = &[
    "after-owner-marker",
    "mid-collection",
    "before-claim-returned",
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

/// The points of a restore without operations from its claim on the folder to its end, in order;
/// named like the same steps of a backup.
pub const RESTORE_POINTS: &[&str] = &[
    "after-owner-marker",
    "after-finalizing-patch",
    "before-record",
    "after-record",
    "after-logs.gz",
    "after-resource-list.json.gz",
    "after-itemoperations.json.gz",
    "after-volumeinfo.json.gz",
    "after-results.gz",
    "before-terminal-patch",
    "after-terminal-patch",
];

/// The points between collection and end of a backup whose actions have started operations, in
/// order.
pub const OPERATION_POINTS: &[&str] = &[
    "before-operations",
    "after-operations-recorded",
    "after-operations-kept",
    "after-operations",
    "after-renewal",
];

/// The points around an action that may start work which cannot be found again, in order.
pub const EXECUTION_POINTS: &[&str] = &[
    "before-execution",
    "after-execution",
    "after-execution-recorded",
];

/// The points around a snapshot that a plugin creates, in order.
pub const SNAPSHOT_POINTS: &[&str] = &[
    "before-snapshot",
    "after-snapshot",
    "after-snapshot-recorded",
];

/// The points around a volume that a plugin creates from a snapshot, in order.
pub const VOLUME_POINTS: &[&str] = &["before-volume", "after-volume", "after-volume-recorded"];

/// The points of the deletion of a backup that has started and is not committed, in order.
pub const DELETION_POINTS: [&str; 4] = [
    "before-abandonment",
    "after-abandonment",
    "after-snapshots-removed",
    "before-let-go",
];

/// The points of a refused backup and of a failed one, each right before that is published.
pub const REFUSAL_POINTS: [&str; 2] = ["before-refusal-patch", "before-failure-patch"];

/// The point between creating the backup of a schedule's slot and recording it.
pub const SCHEDULE_POINT: &str = "after-scheduled";

/// The points of a backup imported from a bucket: it exists without its objects, and all of them
/// exist but that is not recorded.
pub const SYNC_POINTS: [&str; 2] = ["after-synced", "after-extras"];

/// The points of a copy of a backup into another location, in order.
pub const COPY_POINTS: [&str; 5] = [
    "after-copy-claimed",
    "after-copy-note",
    "after-copied-file",
    "before-copied-metadata",
    "after-copied-metadata",
];

/// The points of a drill from its first scratch namespace to its end, in order.
pub const DRILL_POINTS: [&str; 5] = [
    "after-scratch-namespace",
    "after-workloads",
    "before-drill-result",
    "after-drill-result",
    "after-scratch-removal",
];

/// Marks a point; does nothing in a release build.
pub fn point(name: &str) {
    static CRASH: LazyLock<Option<Nth>> = LazyLock::new(|| Nth::from_env("BACKUP_CRASH_AT"));
    static PAUSE: LazyLock<Option<Nth>> = LazyLock::new(|| Nth::from_env("BACKUP_PAUSE_AT"));
    if !cfg!(debug_assertions) {
        return;
    }
    if CRASH.as_ref().is_some_and(|at| at.is_now(name)) {
        // No destructor, no flush, no message: as when the machine fails.
        stop(true);
    }
    if PAUSE.as_ref().is_some_and(|at| at.is_now(name)) {
        stop(false);
    }
}

/// Has the operating system kill this process, or pause it.
#[cfg(unix)]
fn stop(for_good: bool) {
    use rustix::process::{Signal, getpid, kill_process};
    let _ = kill_process(getpid(), if for_good { Signal::KILL } else { Signal::STOP });
}

/// Programs with such points run on Linux; the command is built for Windows, too.
#[cfg(not(unix))]
fn stop(_: bool) {}

/// A point, and the number of times it is passed before the process is stopped there.
struct Nth {
    point: String,
    left: AtomicI64,
}

impl Nth {
    fn from_env(variable: &str) -> Option<Self> {
        let value = std::env::var(variable).ok()?;
        let (point, nth) = value.split_once('#').unwrap_or((&value, "1"));
        Some(Self {
            point: point.to_owned(),
            left: nth.parse::<i64>().unwrap_or(1).into(),
        })
    }

    fn is_now(&self, point: &str) -> bool {
        self.point == point && self.left.fetch_sub(1, Ordering::Relaxed) == 1
    }
}
