//! How a controller reads cron expressions, as it says on each Schedule: `robfig Europe/Paris`.

use std::{fmt, str::FromStr};

use jiff::tz::TimeZone;

use super::{Cron, Dialect, InvalidCron, named_zone};

#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    dialect: Dialect,
    zone: TimeZone,
}

impl Reading {
    /// By this library, and in this zone where an expression names none. None if the zone has no name that others know.
    pub fn of(dialect: Dialect, zone: &TimeZone) -> Option<Self> {
        let name = if zone.is_unknown() { "UTC" } else { zone.iana_name()? };
        format!("{dialect} {name}").parse().ok()
    }

    /// Reads an expression so.
    pub fn cron(&self, text: &str) -> Result<Cron, InvalidCron> {
        Cron::parse(text, self.dialect, &self.zone)
    }
}

/// By default: as robfig's library does, in UTC.
impl Default for Reading {
    fn default() -> Self {
        Self { dialect: Dialect::default(), zone: TimeZone::UTC }
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // All that are made here have a name.
        write!(f, "{} {}", self.dialect, self.zone.iana_name().unwrap_or("UTC"))
    }
}

impl FromStr for Reading {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (dialect, name) =
            text.split_once(' ').ok_or("expected a dialect and a time zone, such as \"robfig UTC\"")?;
        Ok(Self { dialect: dialect.parse()?, zone: named_zone(name)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_reading_is_read_as_that_reading() {
        for (dialect, zone, text) in [
            (Dialect::Robfig, TimeZone::UTC, Some("robfig UTC")),
            (Dialect::Netresearch, TimeZone::unknown(), Some("netresearch UTC")),
            (Dialect::Robfig, named_zone("Europe/Paris").unwrap(), Some("robfig Europe/Paris")),
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
        let next =
            |text: &str| reading.cron(text).unwrap().next("2026-11-03T00:00:00Z".parse().unwrap()).unwrap();
        assert_eq!(next("0 3 * * *").to_string(), "2026-11-03T18:00:00Z");
        assert_eq!(next("TZ=UTC 0 3 * * *").to_string(), "2026-11-03T03:00:00Z");
    }
}
