//! The brake of retention, and what it records on a location. Pure.
//!
//! Retention stops where a location would have lost too many backups within an hour: the clock of
//! the API server has jumped, expirations were edited, or an old copy of a bucket was restored. A
//! user's consent replaces the limit, as for synchronisation ([`crate::sync::Request`]).

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{
    api::go_json::is_default,
    brake::{Brake, BrakeDecision},
    sync::Request,
    text::counted,
};

/// Time over which losses are summed up.
const WINDOW: SignedDuration = SignedDuration::from_hours(1);
/// Removals within this time are recorded as one, so that the record is short.
const MERGE: SignedDuration = SignedDuration::from_mins(5);
/// A removal further in the future was recorded by a wrong clock.
const MAX_CLOCK_DIFFERENCE: SignedDuration = SignedDuration::from_mins(1);

/// What retention has done at a location, as an annotation of the BackupStorageLocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RetentionRecord {
    pub at: Timestamp,
    /// The request that it answers, if a user requested it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// Number of backups whose removal was requested then.
    #[serde(skip_serializing_if = "is_default")]
    pub removed: u64,
    /// Number of expired backups that were not removed because too many have expired at once.
    #[serde(skip_serializing_if = "is_default")]
    pub refused: u64,
    /// Why nothing was removed, if backups have expired that could be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Removals of backups that were older than an hour, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recent: Vec<RecentRemovals>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecentRemovals {
    pub at: Timestamp,
    pub count: u64,
}

/// The backups of a location when retention looks at them.
#[derive(Clone, Debug, Default)]
pub struct RetentionLoad {
    /// Start of each backup with data.
    pub held: Vec<Timestamp>,
    /// Start of each of these that has expired and is removed.
    pub due: Vec<Timestamp>,
    /// Number of all that are removed, also those without data.
    pub removals: u64,
}

/// What retention does at a location, and what it records first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionDecision {
    pub may_remove: bool,
    pub record: RetentionRecord,
}

impl RetentionRecord {
    /// Reads the annotation; the default if it is missing or unreadable.
    pub fn read(annotation: Option<&str>) -> Self {
        annotation
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    }

    pub fn annotation(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Decides whether all that has expired is removed. `request` is a user's, with the number of
    /// removals that the user agrees to.
    ///
    /// Compares the backups that the location had an hour ago with those that it would have after
    /// the removal, so that schedules which replace their backups quickly lose none.
    pub fn decide(
        &self,
        brake: Brake,
        load: &RetentionLoad,
        request: Option<&Request>,
        now: Timestamp,
    ) -> RetentionDecision {
        let begin = now.checked_sub(WINDOW).unwrap_or(Timestamp::MIN);
        let mut recent = self.recent.clone();
        recent.retain(|one| one.at > begin && one.at.duration_since(now) <= MAX_CLOCK_DIFFERENCE);
        let removed: u64 = recent.iter().map(|one| one.count).sum();
        let before = count(load.held.iter().filter(|at| **at <= begin)) + removed;
        let after = count(load.held.iter()).saturating_sub(count(load.due.iter()));
        let lost = before.saturating_sub(after);
        let agreed = request.and_then(|request| request.remove);
        let decision = brake.decide(load.removals, lost, before, agreed);
        let mut record = Self {
            at: now,
            request: request.map(|request| request.id.clone()),
            ..Self::default()
        };
        let may_remove = decision == BrakeDecision::Free;
        if may_remove {
            record.removed = load.removals;
            if agreed.is_some() {
                // The user has seen what the location has lost.
                recent.clear();
            } else {
                remember(&mut recent, load, begin, now);
            }
        } else {
            record.refused = load.removals;
            record.reason = Some(reason(decision, load.removals, lost, before));
        }
        record.recent = recent;
        RetentionDecision { may_remove, record }
    }

    /// Whether it differs from an earlier record in more than its time. Old removals do not count.
    pub fn is_news(&self, before: &Self) -> bool {
        self.removed > 0
            || self.request.is_some()
            || (self.refused, &self.reason) != (before.refused, &before.reason)
    }
}

fn count<T>(all: impl Iterator<Item = T>) -> u64 {
    all.count() as u64
}

/// Adds the removal of backups that existed at the begin of the window.
fn remember(
    recent: &mut Vec<RecentRemovals>,
    load: &RetentionLoad,
    begin: Timestamp,
    now: Timestamp,
) {
    let count = count(load.due.iter().filter(|at| **at <= begin));
    if count == 0 {
        return;
    }
    match recent.last_mut() {
        Some(last) if now.duration_since(last.at) < MERGE => last.count += count,
        _ => recent.push(RecentRemovals { at: now, count }),
    }
}

fn reason(decision: BrakeDecision, removals: u64, lost: u64, before: u64) -> String {
    let expired = counted(removals, "backup");
    match decision {
        BrakeDecision::BeyondConsent(agreed) => {
            format!("{expired} would be removed, more than the {agreed} that were agreed to")
        }
        BrakeDecision::NeedsConsent | BrakeDecision::Free => format!(
            "{expired} would be removed, by which the location would have lost {lost} of {before} within an hour; \
             check the clock of the API server, and status.expiration of the backups"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BRAKE: Brake = Brake {
        free: 5,
        percent: 30,
    };

    fn now() -> Timestamp {
        "2026-03-01T12:00:00Z".parse().unwrap()
    }

    fn minutes_ago(minutes: i64) -> Timestamp {
        now() - SignedDuration::from_mins(minutes)
    }

    fn load(held: &[i64], due: &[i64]) -> RetentionLoad {
        RetentionLoad {
            held: held.iter().copied().map(minutes_ago).collect(),
            due: due.iter().copied().map(minutes_ago).collect(),
            removals: due.len() as u64,
        }
    }

    fn after(removed: &[(i64, u64)]) -> RetentionRecord {
        RetentionRecord {
            recent: removed
                .iter()
                .map(|(minutes, count)| RecentRemovals {
                    at: minutes_ago(*minutes),
                    count: *count,
                })
                .collect(),
            ..RetentionRecord::default()
        }
    }

    #[test]
    fn table_of_what_the_brake_stops() {
        const NONE: &[(i64, u64)] = &[];
        let days = |count: i64| (1..=count).map(|day| day * 24 * 60).collect::<Vec<_>>();
        let minutes =
            |from: i64, to: i64, step: usize| (from..=to).step_by(step).collect::<Vec<_>>();
        for (what, held, due, recent, free) in [
            ("one of a month", days(31), vec![31 * 1440], NONE, true),
            ("an expired one alone", days(1), days(1), &[], true),
            ("few, though all", days(5), days(5), &[], true),
            ("the clock has jumped", days(30), days(30), &[], false),
            ("a third at once", days(30), days(10), &[], false),
            ("just the share", days(30), days(9), &[], true),
            // In small parts: the first ones were removed before.
            ("a third in parts", days(28), days(8), &[(30, 2)], false),
            ("longer ago", days(28), days(8), &[(61, 2)], true),
            ("by a wrong clock", days(28), days(8), &[(-600, 20)], true),
            // Every five minutes, kept for an hour; and for half an hour.
            (
                "many new ones",
                minutes(0, 60, 5),
                vec![60],
                &[(50, 5), (30, 6)],
                true,
            ),
            ("none is that old", minutes(0, 30, 5), vec![30], &[], true),
            // The same, and nothing new is made.
            (
                "no new ones",
                vec![60],
                vec![60],
                &[(50, 5), (30, 6)],
                false,
            ),
            // Hourly, kept for a day; nothing was made for ten hours.
            (
                "after an outage",
                minutes(600, 1980, 60),
                minutes(1440, 1980, 60),
                &[],
                false,
            ),
        ] {
            let decision = after(recent).decide(BRAKE, &load(&held, &due), None, now());
            assert_eq!(decision.may_remove, free, "{what}: {decision:?}");
            let number = due.len() as u64;
            let record = &decision.record;
            let expected = if free { (number, 0) } else { (0, number) };
            assert_eq!((record.removed, record.refused), expected, "{what}");
            assert_eq!(record.reason.is_none(), free, "{what}");
            let off = Brake {
                percent: 100,
                ..BRAKE
            };
            assert!(
                after(recent)
                    .decide(off, &load(&held, &due), None, now())
                    .may_remove
            );
        }
    }

    #[test]
    fn consent_is_to_a_number_and_is_answered() {
        let held: Vec<i64> = (1..=30).map(|day| day * 24 * 60).collect();
        let load = load(&held, &held);
        for (remove, free) in [
            (None, false),
            (Some(29), false),
            (Some(30), true),
            (Some(99), true),
        ] {
            let request = Request {
                id: "r".to_owned(),
                remove,
            };
            let decision = after(&[]).decide(BRAKE, &load, Some(&request), now());
            assert_eq!(decision.may_remove, free, "{remove:?}");
            assert_eq!(decision.record.request.as_deref(), Some("r"));
            assert!(decision.record.is_news(&decision.record));
        }
        let request = Request {
            id: "r".to_owned(),
            remove: Some(30),
        };
        let agreed = after(&[(9, 20)]).decide(BRAKE, &load, Some(&request), now());
        let later = RetentionLoad {
            held: vec![minutes_ago(90); 10],
            due: vec![minutes_ago(90)],
            removals: 1,
        };
        let next = agreed.record.decide(BRAKE, &later, None, now());
        assert!(
            next.may_remove,
            "what was agreed to counts as lost: {next:?}"
        );
        let refused = after(&[]).decide(BRAKE, &load, None, now()).record;
        assert_eq!(
            refused.reason.as_deref(),
            Some(
                "30 backups would be removed, by which the location would have lost 30 of 30 within an hour; \
                 check the clock of the API server, and status.expiration of the backups"
            )
        );
        let again = refused.decide(BRAKE, &load, None, now() + SignedDuration::from_mins(1));
        assert!(
            !again.record.is_news(&refused),
            "the record would be written for ever"
        );
        assert!(refused.is_news(&RetentionRecord::default()));
    }

    #[test]
    fn the_record_is_short_however_often_something_is_removed() {
        let mut record = RetentionRecord::default();
        for minute in 0..600 {
            let at = minutes_ago(600 - minute);
            let load = RetentionLoad {
                held: vec![minutes_ago(9000); 4000],
                due: vec![minutes_ago(9000)],
                removals: 1,
            };
            record = record.decide(BRAKE, &load, None, at).record;
        }
        assert!(record.recent.len() <= 12, "{record:?}");
        let removed: u64 = record.recent.iter().map(|one| one.count).sum();
        assert!((55..=60).contains(&removed), "{removed}");
        let text = record.annotation();
        assert!(text.len() < 1000, "{text}");
        assert_eq!(RetentionRecord::read(Some(&text)), record);
        assert_eq!(RetentionRecord::read(Some("?")), RetentionRecord::default());
    }
}
