//! The next time of an expression with fields: month, day, hour and minute are advanced until all
//! of them match.
//!
//! Around clock changes this copies Velero's libraries exactly, so that a schedule is due when it
//! was due with Velero: hours and minutes are advanced by elapsed time, days by the calendar.

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

use super::{Dialect, Fields};

const MAX_YEARS: i16 = 5;
/// Maximum number of search steps, days and hours together; five years have fewer.
const MAX_STEPS: u32 = 100_000;

#[derive(Clone, Copy)]
struct Moment<'a> {
    second: i64,
    wall: DateTime,
    zone: &'a TimeZone,
}

impl<'a> Moment<'a> {
    fn at(second: i64, zone: &'a TimeZone) -> Option<Self> {
        let wall = zone.to_datetime(Timestamp::from_second(second).ok()?);
        Some(Self { second, wall, zone })
    }

    /// The moment at which the wall clock shows this. As Go's `time.Date`: a time that is skipped
    /// or repeated is read with the offset on one side of the change.
    fn date(wall: DateTime, zone: &'a TimeZone) -> Option<Self> {
        let naive = TimeZone::UTC.to_timestamp(wall).ok()?.as_second();
        let guess = offset(zone, naive)?;
        let second = if guess == 0 {
            naive
        } else {
            naive - offset(zone, naive - guess)?
        };
        Self::at(second, zone)
    }

    fn plus(self, seconds: i64) -> Option<Self> {
        Self::at(self.second + seconds, self.zone)
    }

    fn midnight(self) -> Option<Self> {
        Self::date(self.wall.date().at(0, 0, 0, 0), self.zone)
    }
}

/// The seconds by which the zone is ahead of UTC at a time (seconds since 1970).
fn offset(zone: &TimeZone, second: i64) -> Option<i64> {
    let at = Timestamp::from_second(second).ok()?;
    Some(i64::from(zone.to_offset(at).seconds()))
}

/// The first time after `after` (seconds since 1970).
pub(super) fn next(fields: &Fields, dialect: Dialect, zone: &TimeZone, after: i64) -> Option<i64> {
    let mut now = Moment::at(after + 1, zone)?;
    let last_year = now.wall.year() + MAX_YEARS;
    // Whether the smaller fields have been reset already.
    let mut begun = false;
    let mut steps = MAX_STEPS;
    'wrap: loop {
        if now.wall.year() > last_year {
            return None;
        }
        while !fields.month.allows(now.wall.month()) {
            steps = steps.checked_sub(1)?;
            if !begun {
                begun = true;
                now = Moment::date(now.wall.date().first_of_month().at(0, 0, 0, 0), zone)?;
            }
            now = Moment::date(next_month(now.wall)?, zone)?;
            if now.wall.month() == 1 {
                continue 'wrap;
            }
        }
        while !is_day(fields, dialect, now.wall) {
            steps = steps.checked_sub(1)?;
            if !begun {
                begun = true;
                now = now.midnight()?;
            }
            let tomorrow = now
                .wall
                .date()
                .tomorrow()
                .ok()?
                .to_datetime(now.wall.time());
            now = Moment::date(tomorrow, zone)?;
            // A day without midnight.
            let hour = i64::from(now.wall.hour());
            if hour > 12 {
                now = now.plus((24 - hour) * 3600)?;
            } else if hour > 0 {
                now = now.plus(-hour * 3600)?;
            }
            if now.wall.day() == 1 {
                continue 'wrap;
            }
        }
        while !fields.hour.allows(now.wall.hour()) {
            steps = steps.checked_sub(1)?;
            if !begun {
                begun = true;
                now = Moment::date(now.wall.date().at(now.wall.hour(), 0, 0, 0), zone)?;
            }
            let before = now.wall.hour();
            now = now.plus(3600)?;
            let skipped = now.wall.hour() - before == 2 && fields.hour.allows(now.wall.hour() - 1);
            if dialect == Dialect::Netresearch && skipped {
                // The matching hour does not exist on this day.
                break;
            }
            if now.wall.hour() == 0 {
                continue 'wrap;
            }
        }
        while !fields.minute.allows(now.wall.minute()) {
            steps = steps.checked_sub(1)?;
            if !begun {
                begun = true;
                now = Moment::at(now.second - now.second.rem_euclid(60), zone)?;
            }
            now = now.plus(60)?;
            if now.wall.minute() == 0 {
                continue 'wrap;
            }
        }
        while now.wall.second() != 0 {
            steps = steps.checked_sub(1)?;
            now = now.plus(1)?;
            begun = true;
            if now.wall.second() == 0 {
                continue 'wrap;
            }
        }
        return Some(now.second);
    }
}

/// The same day of the next month; a day that does not exist there runs over into the month after.
fn next_month(wall: DateTime) -> Option<DateTime> {
    let first = wall.date().first_of_month();
    let next = first.last_of_month().tomorrow().ok()?;
    let day = i64::from(wall.date().day()) - 1;
    Some(
        next.checked_add(jiff::Span::new().days(day))
            .ok()?
            .to_datetime(wall.time()),
    )
}

fn is_day(fields: &Fields, dialect: Dialect, wall: DateTime) -> bool {
    let day = fields.day.allows(wall.day());
    let weekday = fields
        .weekday
        .allows(wall.weekday().to_sunday_zero_offset());
    let either = dialect == Dialect::Robfig && !fields.day.star && !fields.weekday.star;
    if either {
        day || weekday
    } else {
        day && weekday
    }
}
