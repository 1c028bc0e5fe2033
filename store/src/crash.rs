//! Named places where a test can have the process killed, as by `kill -9`, or paused, as by `kill -STOP`.
//!
//! Only in builds with debug assertions: a release build holds nothing of it, so that no environment can stop a program
//! that people run. `BACKUP_CRASH_AT=<point>` kills the process when it first comes to that point, `BACKUP_PAUSE_AT=<point>`
//! stops it there until somebody lets it go on. With `<point>#3` it is the third time. The kit of the end-to-end tests goes through all of [`POINTS`], [`OPERATION_POINTS`],
//! [`EXECUTION_POINTS`], [`SNAPSHOT_POINTS`], [`VOLUME_POINTS`], [`REFUSAL_POINTS`] and [`SYNC_POINTS`].

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

/// The points around a snapshot that a plugin takes, in order.
pub const SNAPSHOT_POINTS: &[&str] = &["before-snapshot", "after-snapshot", "after-snapshot-recorded"];

/// The points around a volume that a plugin makes of a snapshot, in order.
pub const VOLUME_POINTS: &[&str] = &["before-volume", "after-volume", "after-volume-recorded"];

/// The points of a backup that is refused, and of one that fails, each right before this is published.
pub const REFUSAL_POINTS: [&str; 2] = ["before-refusal-patch", "before-failure-patch"];

/// The point between the backup of a schedule's slot and the note that it is there.
pub const SCHEDULE_POINT: &str = "after-scheduled";

/// The points of a backup that is brought from a bucket: it is there and its objects are not, and all of it is there and
/// that is not noted.
pub const SYNC_POINTS: [&str; 2] = ["after-synced", "after-extras"];

/// Comes past a point.
#[cfg(debug_assertions)]
pub fn point(name: &str) {
    use std::sync::LazyLock;

    use rustix::process::{Signal, getpid, kill_process};

    static CRASH: LazyLock<Option<Nth>> = LazyLock::new(|| Nth::told_by("BACKUP_CRASH_AT"));
    static PAUSE: LazyLock<Option<Nth>> = LazyLock::new(|| Nth::told_by("BACKUP_PAUSE_AT"));
    if CRASH.as_ref().is_some_and(|at| at.is_now(name)) {
        // No destructor, no flush, nothing said: what a lost machine leaves.
        let _ = kill_process(getpid(), Signal::KILL);
    }
    if PAUSE.as_ref().is_some_and(|at| at.is_now(name)) {
        let _ = kill_process(getpid(), Signal::STOP);
    }
}

/// A point, and how often it is still passed before something happens there.
#[cfg(debug_assertions)]
struct Nth {
    point: String,
    left: std::sync::atomic::AtomicI64,
}

#[cfg(debug_assertions)]
impl Nth {
    fn told_by(variable: &str) -> Option<Self> {
        let told = std::env::var(variable).ok()?;
        let (point, nth) = told.split_once('#').unwrap_or((&told, "1"));
        Some(Self { point: point.to_owned(), left: nth.parse::<i64>().unwrap_or(1).into() })
    }

    fn is_now(&self, point: &str) -> bool {
        self.point == point && self.left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) == 1
    }
}

/// Comes past a point; nothing in a release build.
#[cfg(not(debug_assertions))]
#[inline]
pub fn point(_name: &str) {}
