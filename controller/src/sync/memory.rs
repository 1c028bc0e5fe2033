//! What a process remembers of a location between two passes, so that a folder that can't be used is not read every minute.
//! Lost with the process, which then looks at everything once.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use backup_core::api::{BackupStorageLocation, backup_storage_location::BackupStorageLocationSpec};
use kube::ResourceExt as _;

/// However long a folder can't be used, it is looked at this often.
const RARELY: Duration = Duration::from_hours(1);
/// A folder that could not be used for a time is looked at again after this part of it.
const PART: u32 = 8;

/// Why a folder was not brought into the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Skip {
    /// A word out of a bounded set.
    pub(super) what: &'static str,
    /// A sentence.
    pub(super) reason: String,
    /// Whether it may be otherwise in a moment: it is looked at in every pass.
    pub(super) passing: bool,
}

impl Skip {
    pub(super) fn new(what: &'static str, reason: impl Into<String>) -> Self {
        Self { what, reason: reason.into(), passing: false }
    }

    pub(super) fn passing(what: &'static str, reason: impl Into<String>) -> Self {
        Self { passing: true, ..Self::new(what, reason) }
    }
}

#[derive(Clone, Debug)]
struct Skipped {
    skip: Skip,
    first: Duration,
    looked: Duration,
}

/// What is remembered of one location.
#[derive(Clone, Debug, Default)]
pub(super) struct Remembered {
    /// When the last pass began, on the monotonic clock.
    pub(super) passed: Option<Duration>,
    skipped: HashMap<String, Skipped>,
}

impl Remembered {
    /// Forgets folders that are not among the missing any more.
    pub(super) fn keep_only(&mut self, missing: &dyn Fn(&str) -> bool) {
        self.skipped.retain(|name, _| missing(name));
    }

    /// Why a folder is not to be looked at now; none if it is.
    pub(super) fn still(&self, name: &str, now: Duration) -> Option<&Skip> {
        let skipped = self.skipped.get(name).filter(|skipped| !skipped.skip.passing)?;
        let known = skipped.looked.saturating_sub(skipped.first);
        (now < skipped.looked + (known / PART).min(RARELY)).then_some(&skipped.skip)
    }

    /// A folder was looked at and can't be used.
    pub(super) fn skipped(&mut self, name: &str, skip: Skip, now: Duration) {
        match self.skipped.get_mut(name) {
            // Another reason: something is going on there.
            Some(known) if known.skip.what == skip.what => *known = Skipped { skip, looked: now, ..*known },
            _ => {
                self.skipped.insert(name.to_owned(), Skipped { skip, first: now, looked: now });
            }
        }
    }
}

/// What is remembered of all. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    /// When the process began, on the monotonic clock.
    pub(super) started: Duration,
    locations: Arc<Mutex<HashMap<String, Known>>>,
}

#[derive(Debug)]
struct Known {
    uid: Option<String>,
    spec: BackupStorageLocationSpec,
    remembered: Remembered,
}

impl Known {
    fn is(&self, location: &BackupStorageLocation) -> bool {
        self.uid == location.metadata.uid && self.spec == location.spec
    }
}

impl Memory {
    pub(super) fn new(started: Duration) -> Self {
        Self { started, locations: Arc::default() }
    }

    /// Takes out what is remembered of a location as it is now; one that has changed is a new one.
    pub(super) fn of(&self, location: &BackupStorageLocation) -> Remembered {
        let all = self.locations.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get(&location.name_any()).filter(|known| known.is(location));
        known.map(|known| known.remembered.clone()).unwrap_or_default()
    }

    pub(super) fn keep(&self, location: &BackupStorageLocation, remembered: Remembered) {
        let known = Known { uid: location.metadata.uid.clone(), spec: location.spec.clone(), remembered };
        self.locations.lock().unwrap_or_else(PoisonError::into_inner).insert(location.name_any(), known);
    }

    pub(super) fn forget(&self, name: &str) {
        self.locations.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Whether this process has compared the location as it is now.
    pub(super) fn has_passed(&self, location: &BackupStorageLocation) -> bool {
        let all = self.locations.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&location.name_any())
            .is_some_and(|known| known.is(location) && known.remembered.passed.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_can_not_be_used_is_looked_at_less_and_less() {
        let mut remembered = Remembered::default();
        let (mut looks, mut last, mut longest) = (0_u32, Duration::ZERO, Duration::ZERO);
        for minute in 0..(7 * 24 * 60) {
            let now = Duration::from_mins(minute);
            if remembered.still("b", now).is_none() {
                remembered.skipped("b", Skip::new("unfinished", "no metadata"), now);
                (looks, longest) = (looks + 1, longest.max(now.saturating_sub(last)));
                last = now;
            }
        }
        assert!((100..300).contains(&looks), "{looks} looks in a week");
        assert_eq!(longest, RARELY);
        // A backup that takes an hour is seen soon after it.
        let mut remembered = Remembered::default();
        for minute in 0..60 {
            let now = Duration::from_mins(minute);
            if remembered.still("b", now).is_none() {
                remembered.skipped("b", Skip::new("unfinished", "no metadata"), now);
            }
        }
        assert!(remembered.still("b", Duration::from_mins(68)).is_none());
        remembered.keep_only(&|_| false);
        assert!(remembered.skipped.is_empty());
    }

    #[test]
    fn another_reason_and_a_passing_one_are_looked_at_in_the_next_pass() {
        let mut remembered = Remembered::default();
        let hours = Duration::from_hours;
        remembered.skipped("b", Skip::new("unfinished", ""), hours(0));
        remembered.skipped("b", Skip::new("unfinished", ""), hours(8));
        assert!(remembered.still("b", hours(8) + Duration::from_mins(59)).is_some());
        remembered.skipped("b", Skip::new("unreadable", ""), hours(9));
        assert!(remembered.still("b", hours(9)).is_none());
        remembered.skipped("b", Skip::passing("schedule_unknown", ""), hours(0));
        remembered.skipped("b", Skip::passing("schedule_unknown", ""), hours(9));
        assert!(remembered.still("b", hours(9)).is_none());
    }

    #[test]
    fn a_location_that_points_elsewhere_is_a_new_one() {
        let memory = Memory::new(Duration::ZERO);
        let mut location = BackupStorageLocation::new("default", BackupStorageLocationSpec::default());
        memory.keep(&location, Remembered { passed: Some(Duration::ZERO), ..Remembered::default() });
        assert!(memory.has_passed(&location) && memory.of(&location).passed.is_some());
        location.spec.object_storage.bucket = "other".to_owned();
        assert!(!memory.has_passed(&location) && memory.of(&location).passed.is_none());
    }
}
