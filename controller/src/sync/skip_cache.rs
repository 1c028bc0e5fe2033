//! Reasons why folders of a bucket were not imported, so that they are not read in every pass. Lost
//! with the process; the next one reads every folder once.

use std::{collections::HashMap, time::Duration};

use backup_core::api::{BackupStorageLocation, backup_storage_location::BackupStorageLocationSpec};
use kube::ResourceExt as _;
use parking_lot::Mutex;

use super::{folder_outcome::Skip, inspection::Inspections};

/// Longest time before a skipped folder is read again.
const MAX_BACKOFF: Duration = Duration::from_hours(1);
/// Backoff: a folder is read again after 1/8 of the time for which it has been skipped.
const BACKOFF_DIVISOR: u32 = 8;

#[derive(Clone, Debug)]
struct SkippedFolder {
    skip: Skip,
    first: Duration,
    last: Duration,
}

#[derive(Clone, Debug, Default)]
pub(super) struct LocationCache {
    /// End of the last pass (monotonic clock).
    pub(super) passed: Option<Duration>,
    pub(super) inspected: Inspections,
    skipped: HashMap<String, SkippedFolder>,
}

impl LocationCache {
    /// Removes folders that are no longer missing in the cluster.
    pub(super) fn retain(&mut self, is_missing: &dyn Fn(&str) -> bool) {
        self.skipped.retain(|name, _| is_missing(name));
    }

    /// Why a folder is skipped now; `None` if it must be read.
    pub(super) fn skip_now(&self, name: &str, now: Duration) -> Option<&Skip> {
        let skipped = self
            .skipped
            .get(name)
            .filter(|skipped| !skipped.skip.transient)?;
        let known = skipped.last.saturating_sub(skipped.first);
        (now < skipped.last + (known / BACKOFF_DIVISOR).min(MAX_BACKOFF)).then_some(&skipped.skip)
    }

    pub(super) fn record(&mut self, name: &str, skip: Skip, now: Duration) {
        // Another reason restarts the backoff: the folder is changing.
        let first = self
            .skipped
            .get(name)
            .filter(|known| known.skip.what == skip.what)
            .map_or(now, |known| known.first);
        let skipped = SkippedFolder {
            skip,
            first,
            last: now,
        };
        self.skipped.insert(name.to_owned(), skipped);
    }
}

#[derive(Debug, Default)]
pub(crate) struct SkipCache(Mutex<HashMap<String, Entry>>);

#[derive(Debug)]
struct Entry {
    uid: Option<String>,
    spec: BackupStorageLocationSpec,
    cache: LocationCache,
}

impl Entry {
    fn is(&self, location: &BackupStorageLocation) -> bool {
        self.uid == location.metadata.uid && self.spec == location.spec
    }
}

impl SkipCache {
    /// The cache for a location with its current spec; empty if the location has changed.
    pub(super) fn get(&self, location: &BackupStorageLocation) -> LocationCache {
        let entries = self.0.lock();
        let entry = entries
            .get(&location.name_any())
            .filter(|entry| entry.is(location));
        entry.map(|entry| entry.cache.clone()).unwrap_or_default()
    }

    pub(super) fn put(&self, location: &BackupStorageLocation, cache: LocationCache) {
        let entry = Entry {
            uid: location.metadata.uid.clone(),
            spec: location.spec.clone(),
            cache,
        };
        self.0.lock().insert(location.name_any(), entry);
    }

    pub(super) fn forget(&self, name: &str) {
        self.0.lock().remove(name);
    }

    /// Whether this process has compared the location with its current spec.
    pub(super) fn has_passed(&self, location: &BackupStorageLocation) -> bool {
        self.get(location).passed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use backup_core::sync::NoteKind;

    use super::*;

    #[test]
    fn a_folder_that_can_not_be_used_is_looked_at_less_and_less() {
        let mut cache = LocationCache::default();
        let (mut looks, mut last, mut longest) = (0_u32, Duration::ZERO, Duration::ZERO);
        for minute in 0..(7 * 24 * 60) {
            let now = Duration::from_mins(minute);
            if cache.skip_now("b", now).is_none() {
                cache.record("b", Skip::new(NoteKind::Unfinished, "no metadata"), now);
                (looks, longest) = (looks + 1, longest.max(now.saturating_sub(last)));
                last = now;
            }
        }
        assert!((100..300).contains(&looks), "{looks} looks in a week");
        assert_eq!(longest, MAX_BACKOFF);
        // A backup that takes an hour is found soon after its end.
        let mut cache = LocationCache::default();
        for minute in 0..60 {
            let now = Duration::from_mins(minute);
            if cache.skip_now("b", now).is_none() {
                cache.record("b", Skip::new(NoteKind::Unfinished, "no metadata"), now);
            }
        }
        assert!(cache.skip_now("b", Duration::from_mins(68)).is_none());
        cache.retain(&|_| false);
        assert!(cache.skipped.is_empty());
    }

    #[test]
    fn another_reason_and_a_passing_one_are_looked_at_in_the_next_pass() {
        let mut cache = LocationCache::default();
        let hours = Duration::from_hours;
        cache.record("b", Skip::new(NoteKind::Unfinished, ""), hours(0));
        cache.record("b", Skip::new(NoteKind::Unfinished, ""), hours(8));
        assert!(
            cache
                .skip_now("b", hours(8) + Duration::from_mins(59))
                .is_some()
        );
        cache.record("b", Skip::new(NoteKind::Unreadable, ""), hours(9));
        assert!(cache.skip_now("b", hours(9)).is_none());
        cache.record(
            "b",
            Skip::transient(NoteKind::ScheduleUnknown, ""),
            hours(0),
        );
        cache.record(
            "b",
            Skip::transient(NoteKind::ScheduleUnknown, ""),
            hours(9),
        );
        assert!(cache.skip_now("b", hours(9)).is_none());
    }

    #[test]
    fn a_location_that_points_elsewhere_is_a_new_one() {
        let cache = SkipCache::default();
        let mut location =
            BackupStorageLocation::new("default", BackupStorageLocationSpec::default());
        cache.put(
            &location,
            LocationCache {
                passed: Some(Duration::ZERO),
                ..LocationCache::default()
            },
        );
        assert!(cache.has_passed(&location) && cache.get(&location).passed.is_some());
        location.spec.object_storage.bucket = "other".to_owned();
        assert!(!cache.has_passed(&location) && cache.get(&location).passed.is_none());
    }
}
