//! Finds why a schedule makes no backups that last until its next one; `status`, `schedules` and
//! `doctor` share the answer. Pure.

use std::fmt;

use backup_core::{
    api::{Schedule, schedule::SchedulePhase},
    restorability::{NotWritable, Place, Places},
};
use jiff::{SignedDuration, Timestamp};

use super::reading;
use crate::print::{Tone, human, plain, seconds};

/// Time (seconds) after which a new schedule counts as ignored by the controller.
const NOT_LOOKED_AT_SECONDS: i64 = 60;
/// Longest acceptable time between two runs: `@yearly` is acceptable.
const MAX_GAP: SignedDuration = SignedDuration::from_hours(24 * 366);
/// Number of future runs that are computed to find the longest time between two: a year of monthly
/// runs.
const COMPUTED_RUNS: usize = 13;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Obstacle {
    /// Validation errors, one sentence each.
    Invalid(Vec<String>),
    Paused,
    NotLookedAt,
    /// The expression, which matches no day.
    NeverDue(String),
    /// Each backup is refused because of its location; `is` says why, for example "is read-only".
    Refused {
        location: String,
        is: String,
    },
    /// More than a year may pass between two backups.
    Rare(SignedDuration),
    /// A backup expires before the next one is made.
    ShortLived {
        ttl: SignedDuration,
        gap: SignedDuration,
    },
}

impl Obstacle {
    /// The most severe obstacle. If the user may not read locations, they are ignored.
    pub(crate) fn of(schedule: &Schedule, places: Option<&Places>, now: Timestamp) -> Option<Self> {
        let phase = schedule.status.phase.as_ref();
        if phase == Some(&SchedulePhase::FailedValidation) {
            let errors = schedule.status.validation_errors.iter();
            return Some(Self::Invalid(errors.map(|text| plain(text)).collect()));
        }
        if schedule.spec.paused {
            return Some(Self::Paused);
        }
        let is_new = matches!(phase, None | Some(SchedulePhase::New));
        let created = schedule.metadata.creation_timestamp.as_ref();
        if is_new && created.is_some_and(|at| seconds(at.0, now) > NOT_LOOKED_AT_SECONDS) {
            return Some(Self::NotLookedAt);
        }
        // An expression that cannot be read here is left to the controller.
        let cron = reading(schedule)
            .unwrap_or_default()
            .cron(&schedule.spec.schedule)
            .ok();
        let runs = cron.map(|cron| {
            std::iter::successors(cron.next(now), |at| cron.next(*at))
                .take(COMPUTED_RUNS)
                .collect::<Vec<_>>()
        });
        if runs.as_ref().is_some_and(Vec::is_empty) {
            return Some(Self::NeverDue(plain(&schedule.spec.schedule)));
        }
        let refused = places.and_then(|places| refused(schedule, places));
        refused.or_else(|| short_lived(schedule, &runs?, now))
    }

    pub(crate) fn tone(&self) -> Tone {
        match self {
            Self::Paused | Self::Rare(_) | Self::ShortLived { .. } => Tone::Warn,
            Self::Invalid(_) | Self::NotLookedAt | Self::NeverDue(_) | Self::Refused { .. } => {
                Tone::Bad
            }
        }
    }

    /// A remark for the status in a list; `None` if the status already says it.
    pub(crate) fn remark(&self) -> Option<String> {
        match self {
            Self::Invalid(_) | Self::Paused | Self::NotLookedAt => None,
            Self::NeverDue(_) => Some("never due".to_owned()),
            Self::Refused { location, is } => Some(format!("location {location} {is}")),
            Self::Rare(gap) => Some(format!("no backup for up to {}", human(gap.as_secs()))),
            Self::ShortLived { ttl, gap } => Some(format!(
                "kept for {}, next after up to {}",
                human(ttl.as_secs()),
                human(gap.as_secs())
            )),
        }
    }
}

/// The text after the schedule's name in a sentence.
impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(_) => f.write_str("is not valid"),
            Self::Paused => f.write_str("is paused"),
            Self::NotLookedAt => f.write_str("was never checked by the controller"),
            Self::NeverDue(expression) => write!(f, "is never due: no day fits {expression:?}"),
            Self::Refused { location, is } => {
                write!(
                    f,
                    "stores in location {location}, which {is}: each backup of it is refused"
                )
            }
            Self::Rare(gap) => write!(f, "makes no backup for up to {}", human(gap.as_secs())),
            Self::ShortLived { ttl, gap } => {
                let ttl = human(ttl.as_secs());
                let gap = human(gap.as_secs());
                write!(
                    f,
                    "keeps each backup for {ttl}, and makes the next one up to {gap} later"
                )
            }
        }
    }
}

fn refused(schedule: &Schedule, places: &Places) -> Option<Obstacle> {
    let named = schedule
        .spec
        .template
        .storage_location
        .as_deref()
        .filter(|name| !name.is_empty());
    let name = named.or_else(|| places.default_name())?;
    let is = match places.find(name) {
        Place::Gone => "does not exist".to_owned(),
        place => match place.not_writable()? {
            NotWritable::ReadOnly => "is read-only".to_owned(),
            NotWritable::Phase(phase) => format!("is {}", plain(phase.as_str())),
        },
    };
    Some(Obstacle::Refused {
        location: plain(name),
        is,
    })
}

/// Without `ttl` the controller's default applies, which is unknown here.
fn short_lived(schedule: &Schedule, runs: &[Timestamp], now: Timestamp) -> Option<Obstacle> {
    let wait = runs.first()?.duration_since(now);
    let between = runs
        .windows(2)
        .filter_map(|pair| Some(pair.last()?.duration_since(*pair.first()?)))
        .max();
    let gap = between.map_or(wait, |gap| gap.max(wait));
    if gap > MAX_GAP {
        return Some(Obstacle::Rare(gap));
    }
    let ttl = schedule.spec.template.ttl.filter(|ttl| !ttl.is_zero())?;
    let ttl = SignedDuration::from_secs(ttl.as_secs());
    (ttl < gap).then_some(Obstacle::ShortLived { ttl, gap })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn places() -> Places {
        let location = |name: &str, over: &Value| {
            let mut location = json!({ "metadata": { "name": name },
                "spec": { "provider": "aws", "objectStorage": { "bucket": "b" } }, "status": { "phase": "Available" } });
            json_patch::merge(&mut location, over);
            serde_json::from_value(location).unwrap()
        };
        let marked = |created: &str| json!({ "spec": { "default": true }, "metadata": { "creationTimestamp": created } });
        Places::of(&[
            location("good", &marked("2026-01-02T00:00:00Z")),
            location("fixed", &json!({ "spec": { "accessMode": "ReadOnly" } })),
            location("before", &marked("2026-01-01T00:00:00Z")),
            location("away", &json!({ "status": { "phase": "Unavailable" } })),
            location("new", &json!({ "status": null })),
        ])
    }

    fn of(over: &Value) -> Option<Obstacle> {
        let mut schedule = json!({ "metadata": { "name": "s", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "schedule": "0 3 * * *", "template": {} }, "status": { "phase": "Enabled" } });
        json_patch::merge(&mut schedule, over);
        let schedule = serde_json::from_value(schedule).unwrap();
        let now = "2026-11-28T05:00:00Z".parse().unwrap();
        Obstacle::of(&schedule, Some(&places()), now)
    }

    #[test]
    fn each_thing_that_keeps_a_schedule_from_it_is_found() {
        for (over, sentence, remark) in [
            (json!({}), "", ""),
            (
                json!({ "status": { "phase": "FailedValidation" } }),
                "is not valid",
                "",
            ),
            (json!({ "spec": { "paused": true } }), "is paused", ""),
            (
                json!({ "status": null }),
                "was never checked by the controller",
                "",
            ),
            (
                json!({ "spec": { "schedule": "0 0 31 2 *" } }),
                "is never due: no day fits \"0 0 31 2 *\"",
                "never due",
            ),
            (
                json!({ "spec": { "template": { "storageLocation": "good" } } }),
                "",
                "",
            ),
            (
                json!({ "spec": { "template": { "storageLocation": "new" } } }),
                "",
                "",
            ),
            (
                json!({ "spec": { "template": { "storageLocation": "fixed" } } }),
                "stores in location fixed, which is read-only: each backup of it is refused",
                "location fixed is read-only",
            ),
            (
                json!({ "spec": { "template": { "storageLocation": "lost" } } }),
                "stores in location lost, which does not exist: each backup of it is refused",
                "location lost does not exist",
            ),
            (
                json!({ "spec": { "template": { "storageLocation": "away" } } }),
                "stores in location away, which is Unavailable: each backup of it is refused",
                "location away is Unavailable",
            ),
            (
                json!({ "spec": { "schedule": "0 0 29 2 *" } }),
                "makes no backup for up to 4y1d",
                "no backup for up to 4y1d",
            ),
            (json!({ "spec": { "schedule": "@yearly" } }), "", ""),
            (
                json!({ "spec": { "schedule": "@yearly", "template": { "ttl": "9000h" } } }),
                "",
                "",
            ),
            (
                json!({ "spec": { "schedule": "0 0 1 1 *", "template": { "ttl": "1h" } } }),
                "keeps each backup for 60m, and makes the next one up to 366d later",
                "kept for 60m, next after up to 366d",
            ),
            (
                json!({ "spec": { "schedule": "0 3 * * 1-5", "template": { "ttl": "48h" } } }),
                "keeps each backup for 2d, and makes the next one up to 3d later",
                "kept for 2d, next after up to 3d",
            ),
            (json!({ "spec": { "template": { "ttl": "24h" } } }), "", ""),
        ] {
            let found = of(&over);
            assert_eq!(
                found.as_ref().map(ToString::to_string).unwrap_or_default(),
                sentence
            );
            assert_eq!(
                found
                    .as_ref()
                    .and_then(Obstacle::remark)
                    .unwrap_or_default(),
                remark
            );
        }
    }

    #[test]
    fn the_newest_default_counts_and_what_cannot_be_read_says_nothing() {
        assert_eq!(places().default_name(), Some("good"));
        let schedule = Schedule::new(
            "s",
            serde_json::from_value(
                json!({ "schedule": "@daily", "template": { "storageLocation": "x" } }),
            )
            .unwrap(),
        );
        let now = Timestamp::UNIX_EPOCH;
        assert!(Obstacle::of(&schedule, Some(&places()), now).is_some());
        assert_eq!(
            Obstacle::of(&schedule, Some(&Places(Err("forbidden".to_owned()))), now),
            None
        );
        assert_eq!(Obstacle::of(&schedule, None, now), None);
    }
}
