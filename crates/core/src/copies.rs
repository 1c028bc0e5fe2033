//! Copies of a backup in other locations: which are wanted, and until when. Pure.

use jiff::Timestamp;

use crate::{
    api::{
        Backup, BackupPhase, GoDuration,
        backup::{BackupCopy, BackupCopyStatus, CopyPhase},
        backup_storage_location::LocationPhase,
    },
    restorability::Place,
    time::whole_seconds,
};

impl Backup {
    /// The copies that its spec names, each with its location. Its own location has no copy.
    pub fn wanted_copies(&self) -> Vec<&BackupCopy> {
        let own = self.spec.storage_location.as_deref().unwrap_or_default();
        let mut wanted: Vec<&BackupCopy> = Vec::new();
        for copy in &self.spec.copies {
            let is_new = wanted.iter().all(|other| other.location != copy.location);
            if is_new && !copy.location.is_empty() && copy.location != own {
                wanted.push(copy);
            }
        }
        wanted
    }

    /// Whether it names a copy in its own location, which is never made.
    pub fn names_own_location(&self) -> bool {
        let own = self.spec.storage_location.as_deref().unwrap_or_default();
        let mut copies = self.spec.copies.iter();
        !own.is_empty() && copies.any(|copy| copy.location == own)
    }

    /// The state of the copy in this location, if there is one.
    pub fn copy_in(&self, location: &str) -> Option<&BackupCopyStatus> {
        let copies = &self.status.copies;
        copies.iter().find(|copy| copy.location == location)
    }

    /// The locations of copies that are due and not complete.
    pub fn incomplete_copies(&self) -> Vec<&str> {
        if !self.has_copyable_files() {
            return Vec::new();
        }
        let is_incomplete = |copy: &&BackupCopy| {
            let state = self.copy_in(&copy.location).map(BackupCopyStatus::phase);
            !matches!(
                state,
                Some(CopyPhase::Completed | CopyPhase::Deleting | CopyPhase::Expired)
            )
        };
        let wanted = self.wanted_copies().into_iter().filter(is_incomplete);
        wanted.map(|copy| copy.location.as_str()).collect()
    }

    /// The copies that are due and have failed, or wait: then their message says for what.
    pub fn stopped_copies(&self) -> impl Iterator<Item = &BackupCopyStatus> {
        let incomplete = self.incomplete_copies().into_iter();
        incomplete
            .filter_map(move |location| self.copy_in(location))
            .filter(|copy| copy.phase() == CopyPhase::Failed || !copy.message.is_empty())
    }

    /// Whether it has ended with files that can be restored, and is not being deleted.
    pub fn has_copyable_files(&self) -> bool {
        let phase = self.phase();
        self.metadata.deletion_timestamp.is_none()
            && matches!(phase, BackupPhase::Completed | BackupPhase::PartiallyFailed)
    }

    /// The copies that can be read.
    pub fn complete_copies(&self) -> impl Iterator<Item = &BackupCopyStatus> {
        self.status.copies.iter().filter(|copy| copy.is_complete())
    }
}

impl BackupCopy {
    /// Whether the copy has no time of its own, and goes with the backup, which may be kept beyond
    /// its time ([`crate::retention`]).
    pub fn lasts_with_backup(&self) -> bool {
        self.ttl.is_none_or(GoDuration::is_zero)
    }

    /// The time at which the copy may be deleted; `None`: never.
    pub fn expiration(&self, backup: &Backup) -> Option<Timestamp> {
        let status = &backup.status;
        let Some(ttl) = self.ttl.filter(|ttl| !ttl.is_zero()) else {
            return status.expiration.as_ref().map(|time| time.0);
        };
        let created = &backup.metadata.creation_timestamp;
        let start = status.start_timestamp.as_ref().or(created.as_ref())?.0;
        start.checked_add(ttl.as_std()).ok().map(whole_seconds)
    }
}

impl Place {
    /// Why a complete copy there cannot be read, or may not be readable; `None` if it can.
    pub fn copy_problem(&self) -> Option<String> {
        match self {
            Self::Found {
                phase: Some(LocationPhase::Available),
                ..
            }
            | Self::Copied(_) => None,
            Self::Found {
                phase: Some(phase), ..
            } => Some(format!("its location is {phase}")),
            Self::Found { phase: None, .. } => Some("its location was not checked yet".to_owned()),
            Self::Gone => Some("its location does not exist".to_owned()),
            Self::Unread(why) => Some(format!("its location could not be read: {why}")),
        }
    }
}

impl BackupCopyStatus {
    /// The phase; New if the status has none.
    pub fn phase(&self) -> CopyPhase {
        self.phase.clone().unwrap_or(CopyPhase::New)
    }

    pub fn is_complete(&self) -> bool {
        self.phase == Some(CopyPhase::Completed)
    }

    /// Whether its time is over.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expiration
            .as_ref()
            .is_some_and(|expiration| expiration.0 <= now)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn backup(spec: &serde_json::Value) -> Backup {
        serde_json::from_value(json!({
            "metadata": { "name": "b", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": spec,
            "status": { "startTimestamp": "2026-01-01T01:00:00Z", "expiration": "2026-01-31T01:00:00Z" },
        }))
        .unwrap()
    }

    #[test]
    fn a_location_has_one_copy_and_its_own_location_none() {
        let backup = backup(&json!({
            "storageLocation": "first",
            "copies": [
                { "location": "first" }, { "location": "second", "ttl": "1h" }, { "location": "" },
                { "location": "third" }, { "location": "second", "ttl": "2h" },
            ],
        }));
        let wanted = backup.wanted_copies();
        let wanted: Vec<_> = wanted
            .iter()
            .map(|copy| (copy.location.as_str(), copy.ttl.map(GoDuration::as_secs)))
            .collect();
        assert_eq!(wanted, [("second", Some(3600)), ("third", None)]);
    }

    #[test]
    fn a_copy_in_its_own_location_is_noticed() {
        let named = |spec: &serde_json::Value| backup(spec).names_own_location();
        let copies = json!([{ "location": "second" }, { "location": "first" }]);
        assert!(named(
            &json!({ "storageLocation": "first", "copies": copies })
        ));
        assert!(!named(
            &json!({ "storageLocation": "third", "copies": copies })
        ));
        assert!(!named(&json!({ "copies": [{ "location": "" }] })));
    }

    #[test]
    fn a_copy_can_be_read_in_an_available_location_alone() {
        let place = |status: serde_json::Value| {
            let object = json!({ "metadata": { "name": "second" },
                "spec": { "provider": "aws", "objectStorage": { "bucket": "b" } }, "status": status });
            Place::of(&serde_json::from_value(object).unwrap())
        };
        for (place, problem) in [
            (place(json!({ "phase": "Available" })), None),
            (
                place(json!({ "phase": "Unavailable" })),
                Some("its location is Unavailable"),
            ),
            (place(json!({})), Some("its location was not checked yet")),
            (Place::Gone, Some("its location does not exist")),
            (
                Place::Unread("forbidden".to_owned()),
                Some("its location could not be read: forbidden"),
            ),
        ] {
            assert_eq!(place.copy_problem().as_deref(), problem);
        }
    }

    #[test]
    fn a_copy_is_stopped_if_it_has_failed_or_says_why_it_waits() {
        for (phase, message, expected) in [
            ("Failed", "", 1),
            ("New", "its location is read-only", 1),
            ("InProgress", "503", 1),
            ("New", "", 0),
            ("InProgress", "", 0),
            ("Completed", "its removal waits for restores", 0),
            ("Deleting", "its removal waits for restores", 0),
        ] {
            let mut backup = backup(&json!({ "copies": [{ "location": "second" }] }));
            backup.status.phase = Some(BackupPhase::Completed);
            backup.status.copies.push(BackupCopyStatus {
                location: "second".to_owned(),
                phase: Some(phase.into()),
                message: message.to_owned(),
                ..BackupCopyStatus::default()
            });
            let stopped = backup.stopped_copies().count();
            assert_eq!(stopped, expected, "{phase} {message}");
        }
    }

    #[test]
    fn copies_are_incomplete_until_they_are_complete_or_over() {
        for (phase, state, expected) in [
            ("Completed", None, 1),
            ("Completed", Some("New"), 1),
            ("Completed", Some("InProgress"), 1),
            ("Completed", Some("Failed"), 1),
            ("Completed", Some("Later"), 1),
            ("Completed", Some("Completed"), 0),
            ("Completed", Some("Deleting"), 0),
            ("Completed", Some("Expired"), 0),
            ("PartiallyFailed", None, 1),
            ("Failed", None, 0),
            ("InProgress", None, 0),
            ("Deleting", None, 0),
        ] {
            let mut backup = backup(&json!({ "copies": [{ "location": "second" }] }));
            backup.status.phase = Some(phase.into());
            backup
                .status
                .copies
                .extend(state.map(|state| BackupCopyStatus {
                    location: "second".to_owned(),
                    phase: Some(state.into()),
                    ..BackupCopyStatus::default()
                }));
            let found = backup.incomplete_copies().len();
            assert_eq!(found, expected, "{phase} {state:?}");
        }
    }

    #[test]
    fn a_copy_is_kept_by_its_own_time_or_as_long_as_the_backup() {
        let mut backup = backup(&json!({}));
        let of = |ttl: Option<&str>, backup: &Backup| {
            let copy = BackupCopy {
                location: "second".to_owned(),
                ttl: ttl.map(|ttl| ttl.parse().unwrap()),
                ..BackupCopy::default()
            };
            copy.expiration(backup).map(|at| at.to_string())
        };
        let own = Some("2026-01-31T01:00:00Z".to_owned());
        assert_eq!(of(None, &backup), own);
        assert_eq!(of(Some("0s"), &backup), own);
        let later = Some("2026-01-01T02:30:00Z".to_owned());
        assert_eq!(of(Some("1h30m"), &backup), later);
        backup.status.start_timestamp = None;
        let later = Some("2026-01-01T01:30:00Z".to_owned());
        assert_eq!(of(Some("1h30m"), &backup), later);
        backup.status.expiration = None;
        assert_eq!(of(None, &backup), None);
    }
}
