//! Durations as Go writes them (`metav1.Duration`): `720h0m0s`, `1h30m`, `1.5s`, `250ms`.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A duration that parses and prints exactly as Go's `time.Duration` does. Nanoseconds, signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(i64);

/// Why a text is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a duration: expected numbers with units such as \"720h\", \"1h30m\" or \"45s\"{}",
    days(text)
)]
pub struct InvalidDuration {
    text: String,
}

/// What to write in place of days, which this notation does not have.
fn days(text: &str) -> String {
    let days = text
        .split_once('d')
        .and_then(|(days, _)| days.parse::<u32>().ok());
    days.map_or_else(String::new, |days| {
        format!(
            " (days are written in hours: {days}d is \"{}h\")",
            u64::from(days) * 24
        )
    })
}

const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000), // U+00B5
    ("μs", 1_000), // U+03BC
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 3600 * SECOND),
];
const SECOND: i64 = 1_000_000_000;

impl GoDuration {
    /// From whole seconds; saturates at about 292 years.
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(SECOND))
    }

    /// As a standard duration; negative becomes zero.
    pub fn as_std(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }

    /// Whole seconds, rounded towards zero.
    pub const fn as_secs(self) -> i64 {
        self.0 / SECOND
    }

    /// Zero, which Velero reads as "not set" for `ttl` and the time-outs.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl From<Duration> for GoDuration {
    fn from(value: Duration) -> Self {
        Self(i64::try_from(value.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl FromStr for GoDuration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map(Self).ok_or_else(|| InvalidDuration {
            text: text.chars().take(64).collect(),
        })
    }
}

/// The grammar of Go's `time.ParseDuration`.
fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (whole, after) = rest.split_at(digits);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => after.split_at(
                after
                    .find(|c: char| !c.is_ascii_digit())
                    .unwrap_or(after.len()),
            ),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let scale = i128::from(UNITS.iter().find(|(name, _)| *name == unit)?.1);
        if !whole.is_empty() {
            total += whole
                .parse::<i64>()
                .ok()
                .map(i128::from)?
                .checked_mul(scale)?;
        }
        // Digits past the eighteenth are below a nanosecond in every unit.
        let kept = &fraction[..fraction.len().min(18)];
        if !kept.is_empty() {
            let denominator = 10_i128.checked_pow(u32::try_from(kept.len()).ok()?)?;
            total += kept.parse::<i128>().ok()?.checked_mul(scale)? / denominator;
        }
        if total > i128::from(i64::MAX) {
            return None;
        }
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

impl fmt::Display for GoDuration {
    /// The format of Go's `Duration.String`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let second = SECOND.unsigned_abs();
        if nanos == 0 {
            return f.write_str("0s");
        }
        if nanos < second {
            let (unit, scale) = if nanos < 1_000 {
                ("ns", 1)
            } else if nanos < 1_000_000 {
                ("µs", 1_000)
            } else {
                ("ms", 1_000_000)
            };
            return write!(
                f,
                "{}{}{unit}",
                nanos / scale,
                fraction(nanos % scale, scale)
            );
        }
        let hours = nanos / (3600 * second);
        let minutes = nanos / (60 * second) % 60;
        if hours > 0 {
            write!(f, "{hours}h{minutes}m")?;
        } else if minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        write!(
            f,
            "{}{}s",
            nanos / second % 60,
            fraction(nanos % second, second)
        )
    }
}

/// `.5` for 500 of 1000; nothing for zero.
fn fraction(part: u64, whole: u64) -> String {
    if part == 0 {
        return String::new();
    }
    let width = whole.ilog10() as usize;
    format!(".{}", format!("{part:0width$}").trim_end_matches('0'))
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

impl schemars::JsonSchema for GoDuration {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_and_parses_as_go_does() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (2_200_000, "2.2ms"),
            (3_300_000_000, "3.3s"),
            (245 * SECOND, "4m5s"),
            (245 * SECOND + 1_000_000, "4m5.001s"),
            (
                5 * 3600 * SECOND + 6 * 60 * SECOND + 7_001_000_000,
                "5h6m7.001s",
            ),
            (480_000_000_001, "8m0.000000001s"),
            (720 * 3600 * SECOND, "720h0m0s"),
            (i64::MAX, "2562047h47m16.854775807s"),
            (-90 * SECOND, "-1m30s"),
        ] {
            assert_eq!(GoDuration(nanos).to_string(), text);
            assert_eq!(text.parse(), Ok(GoDuration(nanos)), "{text}");
        }
        for (text, nanos) in [
            ("720h", 720 * 3600 * SECOND),
            ("1.5h", 5400 * SECOND),
            ("+5s", 5 * SECOND),
            (".5s", SECOND / 2),
            ("0", 0),
        ] {
            assert_eq!(text.parse(), Ok(GoDuration(nanos)), "{text}");
        }
        for text in [
            "",
            "3",
            "-",
            "s",
            ".",
            "-.",
            ".s",
            "1d",
            "tomorrow",
            "9223372036854775808ns",
            "3000000h",
            "1 h",
        ] {
            assert!(text.parse::<GoDuration>().is_err(), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_printed_is_read_back(nanos in i64::MIN + 1..i64::MAX) {
            proptest::prop_assert_eq!(GoDuration(nanos).to_string().parse(), Ok(GoDuration(nanos)));
        }
    }
}
