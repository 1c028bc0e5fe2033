//! The rules by which a controller reads cron expressions, as written on each Schedule: `robfig
//! Europe/Paris`.

use std::{fmt, str::FromStr};

use jiff::{SignedDuration, Timestamp, tz::TimeZone};

use super::{Cron, Dialect, InvalidCron, named_zone};

#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    dialect: Dialect,
    zone: TimeZone,
}

impl Reading {
    /// By this library, and in this zone if an expression names none. `None` if the zone has no
    /// IANA name.
    pub fn of(dialect: Dialect, zone: &TimeZone) -> Option<Self> {
        let name = if zone.is_unknown() {
            "UTC"
        } else {
            zone.iana_name()?
        };
        format!("{dialect} {name}").parse().ok()
    }

    /// Reads an expression by these rules.
    pub fn cron(&self, text: &str) -> Result<Cron, InvalidCron> {
        Cron::parse(text, self.dialect, &self.zone)
    }
}

/// How the two libraries differ on one expression.
#[derive(Clone, Debug, PartialEq)]
pub enum ReadingDifference {
    /// Only one of them accepts it.
    Refused { by: Dialect, why: String },
    /// They run it at different times: the first time that only one of them has, and that library.
    OtherTime { at: Timestamp, by: Dialect },
}

impl fmt::Display for ReadingDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { by, why } => write!(f, "{by} ({}) refuses it: {why}", by.users()),
            Self::OtherTime { at, by } => {
                write!(f, "{by} ({}) alone runs it at {at}", by.users())
            }
        }
    }
}

/// Maximum number of runs compared.
const MAX_COMPARED_RUNS: usize = 400;
/// Maximum time span compared: twelve years, which include each kind of year. Runs of rare
/// schedules are slow to find.
const MAX_COMPARED_TIME: SignedDuration = SignedDuration::from_hours(12 * 366 * 24);

impl Reading {
    /// How the other library differs on this expression, from `now` on. `None` if both give the
    /// same next runs, or neither accepts it.
    pub fn difference(&self, text: &str, now: Timestamp) -> Option<ReadingDifference> {
        let other = Self {
            dialect: self.dialect.other(),
            zone: self.zone.clone(),
        };
        let (mine, theirs) = match (self.cron(text), other.cron(text)) {
            (Ok(mine), Ok(theirs)) => (mine, theirs),
            (Ok(_), Err(error)) => {
                return Some(ReadingDifference::Refused {
                    by: other.dialect,
                    why: error.to_string(),
                });
            }
            (Err(error), Ok(_)) => {
                return Some(ReadingDifference::Refused {
                    by: self.dialect,
                    why: error.to_string(),
                });
            }
            (Err(_), Err(_)) => return None,
        };
        let mut at = now;
        for _ in 0..MAX_COMPARED_RUNS {
            if at.duration_since(now) > MAX_COMPARED_TIME {
                return None;
            }
            let (next, by) = match (mine.next(at), theirs.next(at)) {
                (Some(mine), Some(theirs)) if mine == theirs => {
                    at = mine;
                    continue;
                }
                (Some(mine), Some(theirs)) if mine > theirs => (theirs, other.dialect),
                (Some(mine), _) => (mine, self.dialect),
                (None, Some(theirs)) => (theirs, other.dialect),
                (None, None) => return None,
            };
            return Some(ReadingDifference::OtherTime { at: next, by });
        }
        None
    }
}

/// The default: robfig's library, in UTC.
impl Default for Reading {
    fn default() -> Self {
        Self {
            dialect: Dialect::default(),
            zone: TimeZone::UTC,
        }
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Every zone created here has a name.
        write!(
            f,
            "{} {}",
            self.dialect,
            self.zone.iana_name().unwrap_or("UTC")
        )
    }
}

impl FromStr for Reading {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (dialect, name) = text
            .split_once(' ')
            .ok_or("expected a dialect and a time zone, such as \"robfig UTC\"")?;
        Ok(Self {
            dialect: dialect.parse()?,
            zone: named_zone(name)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_other_library_makes_of_an_expression_is_named() {
        // A Saturday.
        let now: Timestamp = "2026-08-01T12:00:00Z".parse().unwrap();
        for (zone, text, expected) in [
            ("UTC", "0 3 * * *", None),
            ("UTC", "0 3 * * 1-5", None),
            ("UTC", "@every 2h", None),
            ("UTC", "nonsense", None),
            ("UTC", "@yearly", None),
            (
                "UTC",
                "0 3 1-7 * 0",
                Some("robfig (Velero up to 1.18.2) alone runs it at 2026-08-03T03:00:00Z"),
            ),
            (
                "UTC",
                "0 3 * * 1-7",
                Some("robfig (Velero up to 1.18.2) refuses it"),
            ),
            (
                "UTC",
                "0 3 * * FRI-MON",
                Some("robfig (Velero up to 1.18.2) refuses it"),
            ),
            (
                "UTC",
                "*/70 * * * *",
                Some("netresearch (Velero after that) refuses it"),
            ),
            // The night of a clock change.
            (
                "Europe/Paris",
                "30 2 * * *",
                Some("netresearch (Velero after that) alone runs it at 2027-03-28T01:30:00Z"),
            ),
        ] {
            for dialect in Dialect::ALL {
                let reading: Reading = format!("{dialect} {zone}").parse().unwrap();
                let found = reading.difference(text, now).map(|found| found.to_string());
                let is_same = match (&found, expected) {
                    (Some(found), Some(expected)) => found.starts_with(expected),
                    (found, expected) => found.is_none() && expected.is_none(),
                };
                assert!(is_same, "{dialect} {text}: {found:?}, not {expected:?}");
            }
        }
    }

    #[test]
    fn what_is_said_of_a_reading_is_read_as_that_reading() {
        for (dialect, zone, text) in [
            (Dialect::Robfig, TimeZone::UTC, Some("robfig UTC")),
            (
                Dialect::Netresearch,
                TimeZone::unknown(),
                Some("netresearch UTC"),
            ),
            (
                Dialect::Robfig,
                named_zone("Europe/Paris").unwrap(),
                Some("robfig Europe/Paris"),
            ),
            (Dialect::Robfig, TimeZone::fixed(jiff::tz::offset(3)), None),
        ] {
            let reading = Reading::of(dialect, &zone);
            assert_eq!(reading.as_ref().map(ToString::to_string).as_deref(), text);
            if let Some(reading) = reading {
                assert_eq!(reading.to_string().parse(), Ok(reading));
            }
        }
        for wrong in ["", "robfig", "robfig europe/paris", "quartz UTC"] {
            assert!(wrong.parse::<Reading>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_zone_counts_where_an_expression_names_none() {
        let reading: Reading = "robfig Asia/Tokyo".parse().unwrap();
        let next = |text: &str| {
            reading
                .cron(text)
                .unwrap()
                .next("2026-11-03T00:00:00Z".parse().unwrap())
                .unwrap()
        };
        assert_eq!(next("0 3 * * *").to_string(), "2026-11-03T18:00:00Z");
        assert_eq!(next("TZ=UTC 0 3 * * *").to_string(), "2026-11-03T03:00:00Z");
    }
}
