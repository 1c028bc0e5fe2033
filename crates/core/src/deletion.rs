//! The state of a waiting deletion of a backup, stored in our annotation of the Backup, as Velero's
//! status has no field for it.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{api::go_json::is_default, text::counted};

/// Minimum and maximum time until the next check of a wait without a date, or past it.
const MIN_PAUSE: SignedDuration = SignedDuration::from_mins(10);
const MAX_PAUSE: SignedDuration = SignedDuration::from_hours(6);
/// Added to the date, as clocks of stores differ from ours.
const CLOCK_MARGIN: SignedDuration = SignedDuration::from_secs(1);

/// The file versions that a store keeps of a backup whose deletion has hidden all of its files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Waits {
    /// When the wait began.
    pub since: Timestamp,
    pub again: Timestamp,
    pub kept: u64,
    /// The latest lock date of any of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Number of versions under legal hold, which has no date.
    #[serde(skip_serializing_if = "is_default")]
    pub held: u64,
    /// Why other versions are kept, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Uid of the owner of the backup's folder in the store; empty if it has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// Hidden snapshots of volumes with versions that are kept, as `namespace/id`: the files that
    /// name them are hidden, too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub snapshots: Vec<String>,
}

impl Waits {
    /// Reads the annotation; `None` if it is missing or unreadable.
    pub fn read(annotation: Option<&str>) -> Option<Self> {
        serde_json::from_str(annotation?).ok()
    }

    pub fn annotation(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Sets the next check: at the lock date; without one, or past it, at intervals that grow with
    /// the wait.
    pub fn plan(&mut self, now: Timestamp) {
        let pause = now.duration_since(self.since).clamp(MIN_PAUSE, MAX_PAUSE);
        let (from, after) = self
            .until
            .filter(|until| *until > now)
            .map_or((now, pause), |until| (until, CLOCK_MARGIN));
        self.again = from.saturating_add(after).unwrap_or(Timestamp::MAX);
    }
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.until {
            Some(until) => write!(f, "its deletion waits until {until} (object lock)")?,
            None => {
                f.write_str("its deletion waits until a legal hold is taken off (object lock)")?;
            }
        }
        let versions = counted(self.kept, "version");
        write!(f, ": the store keeps {versions} of its files")?;
        if self.held > 0 && self.until.is_some() {
            write!(
                f,
                ", {} of them under a legal hold, which has no date",
                self.held
            )?;
        }
        match &self.refused {
            None => Ok(()),
            Some(why) => write!(f, "; others stay: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn it_is_looked_at_when_the_lock_ends_and_without_a_date_ever_less_often() {
        let now = at("2026-11-01T12:00:00Z");
        for (until, since, again) in [
            (
                Some("2026-12-01T00:00:00Z"),
                "2026-11-01T12:00:00Z",
                "2026-12-01T00:00:01Z",
            ),
            // The store's clock is late.
            (
                Some("2026-11-01T12:00:00Z"),
                "2026-10-01T00:00:00Z",
                "2026-11-01T18:00:00Z",
            ),
            (
                Some("2026-11-01T11:59:59Z"),
                "2026-11-01T11:59:00Z",
                "2026-11-01T12:10:00Z",
            ),
            (None, "2026-11-01T12:00:00Z", "2026-11-01T12:10:00Z"),
            (None, "2026-11-01T11:00:00Z", "2026-11-01T13:00:00Z"),
            (None, "2026-01-01T00:00:00Z", "2026-11-01T18:00:00Z"),
        ] {
            let mut waits = Waits {
                since: at(since),
                until: until.map(at),
                snapshots: vec!["shop/4f1c".to_owned()],
                ..Waits::default()
            };
            waits.plan(now);
            assert_eq!(waits.again, at(again), "{until:?} {since}");
            assert_eq!(Waits::read(Some(&waits.annotation())), Some(waits));
        }
        assert_eq!((Waits::read(None), Waits::read(Some("?"))), (None, None));
    }

    #[test]
    fn it_is_told_until_when_and_what_stays() {
        let waits = Waits {
            kept: 3,
            until: Some(at("2026-12-01T00:00:00Z")),
            ..Waits::default()
        };
        assert_eq!(
            waits.to_string(),
            "its deletion waits until 2026-12-01T00:00:00Z (object lock): the store keeps 3 versions of its files"
        );
        let held = Waits {
            held: 1,
            ..waits.clone()
        };
        assert!(
            held.to_string()
                .ends_with("files, 1 of them under a legal hold, which has no date"),
            "{held}"
        );
        let held = Waits {
            until: None,
            kept: 1,
            refused: Some("why".to_owned()),
            ..held
        };
        assert_eq!(
            held.to_string(),
            "its deletion waits until a legal hold is taken off (object lock): the store keeps 1 version of its files; \
             others stay: why"
        );
    }
}
