//! Time spans of a profile: `120s`, `2m`, `1h 30m`.

use std::time::Duration;

use jiff::SignedDuration;
use serde::{Deserialize, Deserializer, Serializer, de::Error as _, ser::Error as _};

/// Maximum time span in a profile. A longer one must be a mistake: it would block a scope for days.
const MAX_SPAN: SignedDuration = SignedDuration::from_hours(24);

/// For `serde(with)`: in the form that users write, such as `2m`.
pub(super) fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    let span = SignedDuration::try_from(*span).map_err(S::Error::custom)?;
    serializer.collect_str(&format_args!("{span:#}"))
}

/// For `serde(with)`: jiff's friendly format, from zero to a day.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).ok_or_else(|| {
        let shown: String = text.chars().take(64).collect();
        D::Error::custom(format!(
            "{shown:?} is not a time span: expected numbers with units, such as \"120s\" or \"2m\", from \"0s\" to \"24h\""
        ))
    })
}

fn parse(text: &str) -> Option<Duration> {
    let span = text
        .parse::<SignedDuration>()
        .ok()
        .filter(|span| *span <= MAX_SPAN)?;
    Duration::try_from(span).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_numbers_with_units() {
        for (text, seconds) in [
            ("0s", 0),
            ("120s", 120),
            ("2m", 120),
            ("2m 30s", 150),
            ("1h30m", 5400),
            ("24h", 86400),
        ] {
            assert_eq!(parse(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        for text in [
            "",
            "120",
            "soon",
            "-1s",
            "2m ago",
            "25h",
            "1d",
            "9999999999999999999s",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
