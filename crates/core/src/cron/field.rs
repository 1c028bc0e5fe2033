//! One field of an expression: its allowed values, as bits.

use super::Dialect;

pub(super) struct Bounds {
    what: &'static str,
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

pub(super) const MINUTES: Bounds = Bounds {
    what: "minute",
    min: 0,
    max: 59,
    names: &[],
};
pub(super) const HOURS: Bounds = Bounds {
    what: "hour",
    min: 0,
    max: 23,
    names: &[],
};
pub(super) const DAYS: Bounds = Bounds {
    what: "day of month",
    min: 1,
    max: 31,
    names: &[],
};
pub(super) const MONTHS: Bounds = Bounds {
    what: "month",
    min: 1,
    max: 12,
    names: &[
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ],
};
const NAMES: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const SIX: Bounds = Bounds {
    what: "day of week",
    min: 0,
    max: 6,
    names: NAMES,
};
const SEVEN: Bounds = Bounds { max: 7, ..SIX };

/// Sunday is 0, and also 7 with netresearch.
pub(super) fn weekdays(dialect: Dialect) -> &'static Bounds {
    match dialect {
        Dialect::Robfig => &SIX,
        Dialect::Netresearch => &SEVEN,
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Field {
    bits: u64,
    /// Given as `*` or `?`, alone or among others.
    pub(super) star: bool,
}

impl Field {
    pub(super) fn allows(self, value: i8) -> bool {
        u32::try_from(value).is_ok_and(|value| value < 64 && self.bits & (1 << value) != 0)
    }

    /// Sunday as 7 becomes 0.
    pub(super) fn sunday_is_zero(&mut self) {
        if self.bits & (1 << 7) != 0 {
            self.bits = (self.bits | 1) & !(1 << 7);
        }
    }
}

/// Reads a field. Empty pieces of a list are left out, as both libraries do.
pub(super) fn parse(text: &str, bounds: &Bounds, dialect: Dialect) -> Result<Field, String> {
    let mut field = Field::default();
    for piece in text.split(',').filter(|piece| !piece.is_empty()) {
        let found = range(piece, bounds, dialect)
            .map_err(|reason| format!("{piece:?} in the field {}: {reason}", bounds.what))?;
        field.bits |= found.bits;
        field.star |= found.star;
    }
    Ok(field)
}

/// `*`, a number or a range, with an optional step.
fn range(piece: &str, bounds: &Bounds, dialect: Dialect) -> Result<Field, String> {
    let mut parts = piece.split('/');
    let from_to = parts.next().unwrap_or_default();
    let step = parts.next();
    if parts.next().is_some() {
        return Err("there is more than one slash".to_owned());
    }
    let ends: Vec<&str> = from_to.split('-').collect();
    let is_star = matches!(ends.first(), Some(&("*" | "?")));
    let (first, mut last) = if is_star {
        // After `*` or `?`, any text behind a hyphen is ignored.
        (bounds.min, bounds.max)
    } else {
        match ends.as_slice() {
            [one] => (value(one, bounds)?, value(one, bounds)?),
            [low, high] => (value(low, bounds)?, value(high, bounds)?),
            _ => return Err("there is more than one hyphen".to_owned()),
        }
    };
    let mut star = is_star;
    let step = match step {
        None => 1,
        Some(step) => {
            let step = number(step)?;
            if ends.len() == 1 {
                last = bounds.max;
            }
            star = star && step <= 1;
            step
        }
    };
    if first < bounds.min || last > bounds.max {
        return Err(format!("expected {} to {}", bounds.min, bounds.max));
    }
    if step == 0 {
        return Err("a step of 0 leads nowhere".to_owned());
    }
    let size = bounds.max - bounds.min + 1;
    // A range past the end of the field wraps around to its beginning.
    let end = if first > last { last + size } else { last };
    if dialect == Dialect::Robfig && first > last {
        return Err("it begins after its end".to_owned());
    }
    if dialect == Dialect::Netresearch && step > 1 && step > end - first {
        return Err(format!(
            "a step of {step} is as large as the range, or larger"
        ));
    }
    let mut bits = 0;
    let mut at = first;
    while at <= end {
        bits |= 1_u64
            << if at > bounds.max {
                (at - bounds.min) % size + bounds.min
            } else {
                at
            };
        let Some(next) = at.checked_add(step) else {
            break;
        };
        at = next;
    }
    Ok(Field { bits, star })
}

fn value(text: &str, bounds: &Bounds) -> Result<u32, String> {
    let name = text.to_lowercase();
    match (bounds.min..)
        .zip(bounds.names)
        .find(|(_, known)| **known == name)
    {
        Some((value, _)) => Ok(value),
        None => number(text),
    }
}

/// Reads a number as Go's `strconv.Atoi` does.
fn number(text: &str) -> Result<u32, String> {
    match text.parse::<i64>() {
        // Larger than any field allows.
        Ok(number) if number >= 0 => Ok(u32::try_from(number).unwrap_or(u32::MAX)),
        _ => Err(format!("{text:?} is no number that is expected here")),
    }
}
