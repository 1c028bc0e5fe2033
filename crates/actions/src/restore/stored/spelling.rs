//! Values that an API server stores in a normalized form: quantities, times and durations.

use backup_core::api::GoDuration;
use jiff::Timestamp;

/// Whether two texts mean the same value.
pub(super) fn is_same(asked: &str, stored: &str) -> bool {
    asked == stored
        || same_quantity(asked, stored)
        || same_time(asked, stored)
        || same_duration(asked, stored)
}

/// `1000m` and `1`, `1024Mi` and `1Gi`.
fn same_quantity(asked: &str, stored: &str) -> bool {
    // Nano units are the finest that a quantity has.
    matches!((nanos(asked), nanos(stored)), (Some(asked), Some(stored)) if asked == stored)
}

/// A quantity in billionths.
fn nanos(text: &str) -> Option<i128> {
    const UNITS: [(&str, i128, i128); 15] = [
        ("Ki", 1 << 10, 1),
        ("Mi", 1 << 20, 1),
        ("Gi", 1 << 30, 1),
        ("Ti", 1 << 40, 1),
        ("Pi", 1 << 50, 1),
        ("Ei", 1 << 60, 1),
        ("n", 1, 1_000_000_000),
        ("u", 1, 1_000_000),
        ("m", 1, 1000),
        ("k", 1000, 1),
        ("M", 1_000_000, 1),
        ("G", 1_000_000_000, 1),
        ("T", 1_000_000_000_000, 1),
        ("P", 1_000_000_000_000_000, 1),
        ("E", 1_000_000_000_000_000_000, 1),
    ];
    let suffix = UNITS
        .iter()
        .find_map(|(unit, by, of)| Some((text.strip_suffix(unit)?, *by, *of)));
    let (number, by, of) = match suffix {
        Some(found) => found,
        None => match text.split_once(['e', 'E']) {
            Some((number, power)) => match power.parse::<i32>().ok()? {
                power @ 0..=18 => (number, 10_i128.pow(power.unsigned_abs()), 1),
                power @ -9..0 => (number, 1, 10_i128.pow(power.unsigned_abs())),
                _ => return None,
            },
            None => (text, 1, 1),
        },
    };
    let (sign, number) = match number.strip_prefix('-') {
        Some(number) => (-1, number),
        None => (1, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + fraction.len() == 0
        || fraction.len() > 9
        || !has_only_digits(whole)
        || !has_only_digits(fraction)
    {
        return None;
    }
    let digits: i128 = format!("0{whole}{fraction:0<9}").parse().ok()?;
    digits.checked_mul(by)?.checked_div(of)?.checked_mul(sign)
}

fn has_only_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// With or without fractions of seconds, in any zone.
fn same_time(asked: &str, stored: &str) -> bool {
    second(asked).is_some_and(|asked| second(stored) == Some(asked))
}

/// The second of a time (since 1970); `None` if the text is no time.
fn second(text: &str) -> Option<i64> {
    // Minimum length of a time.
    if text.len() < 20 || text.as_bytes().get(10) != Some(&b'T') {
        return None;
    }
    text.parse().map(Timestamp::as_second).ok()
}

/// `1h` and `1h0m0s`.
fn same_duration(asked: &str, stored: &str) -> bool {
    duration(asked).is_some_and(|asked| duration(stored) == Some(asked))
}

fn duration(text: &str) -> Option<GoDuration> {
    if !text.ends_with(['s', 'm', 'h']) {
        return None;
    }
    text.parse().ok()
}
