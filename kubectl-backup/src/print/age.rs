//! Times for users: "3d4h", "14m", "in 29d"; and if the exact time matters, in UTC: "2026-12-03
//! 03:00Z".

use jiff::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// A duration in at most two units, as kubectl prints ages (k8s.io/apimachinery
/// `pkg/util/duration.HumanDuration`).
///
/// Minus one second is attributed to clock differences and shown as `0s`; lower values are
/// `<invalid>`.
pub(crate) fn human(seconds: i64) -> String {
    if seconds < -1 {
        "<invalid>".to_owned()
    } else if seconds < 0 {
        "0s".to_owned()
    } else if seconds < 2 * MINUTE {
        format!("{seconds}s")
    } else if seconds < 10 * MINUTE {
        pair(seconds / MINUTE, "m", seconds % MINUTE, "s")
    } else if seconds < 3 * HOUR {
        format!("{}m", seconds / MINUTE)
    } else if seconds < 8 * HOUR {
        pair(seconds / HOUR, "h", seconds % HOUR / MINUTE, "m")
    } else if seconds < 2 * DAY {
        format!("{}h", seconds / HOUR)
    } else if seconds < 8 * DAY {
        pair(seconds / DAY, "d", seconds % DAY / HOUR, "h")
    } else if seconds < 2 * YEAR {
        format!("{}d", seconds / DAY)
    } else if seconds < 8 * YEAR {
        pair(seconds / YEAR, "y", seconds % YEAR / DAY, "d")
    } else {
        format!("{}y", seconds / YEAR)
    }
}

fn pair(major: i64, unit: &str, minor: i64, small: &str) -> String {
    if minor == 0 {
        format!("{major}{unit}")
    } else {
        format!("{major}{unit}{minor}{small}")
    }
}

/// Whole seconds from one time to another; negative if `to` is earlier.
pub(crate) fn seconds(from: Timestamp, to: Timestamp) -> i64 {
    to.as_second() - from.as_second()
}

/// "2h ago". A time in the future (by clock differences) is "just now".
pub(crate) fn ago(then: Timestamp, now: Timestamp) -> String {
    let passed = seconds(then, now);
    if passed < 1 {
        "just now".to_owned()
    } else {
        format!("{} ago", human(passed))
    }
}

/// "2h ago", or "never".
pub(crate) fn ago_or_never(then: Option<Timestamp>, now: Timestamp) -> String {
    then.map_or_else(|| "never".to_owned(), |then| ago(then, now))
}

/// "in 29d", or "5m ago" if it has passed.
pub(crate) fn until(then: Timestamp, now: Timestamp) -> String {
    let left = seconds(now, then);
    if left > 0 {
        format!("in {}", human(left))
    } else {
        ago(then, now)
    }
}

/// "2026-12-03".
pub(crate) fn day(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d").to_string()
}

/// "2026-12-03 03:00Z".
pub(crate) fn minute(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%MZ").to_string()
}

/// "2026-12-03 03:00:00Z".
pub(crate) fn moment(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// A duration, exact below a day: "14m12s", "3h0m7s".
pub(crate) fn took(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let hours = seconds / HOUR;
    let minutes = seconds % HOUR / MINUTE;
    let rest = seconds % MINUTE;
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        (..24, _) => format!("{hours}h{minutes}m{rest}s"),
        _ => human(seconds),
    }
}

/// The age of something first seen at this time; a text that is no time is returned unchanged.
pub(crate) fn since(text: &str, now: Timestamp) -> String {
    text.parse::<Timestamp>()
        .map_or_else(|_| text.to_owned(), |at| human(seconds(at, now).max(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_those_of_kubectl() {
        // The test cases of k8s.io/apimachinery pkg/util/duration/duration_test.go, and the limits
        // of every range.
        for (seconds, text) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (1, "1s"),
            (70, "70s"),
            (119, "119s"),
            (120, "2m"),
            (190, "3m10s"),
            (599, "9m59s"),
            (600, "10m"),
            (70 * MINUTE, "70m"),
            (179 * MINUTE + 59, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 10 * MINUTE, "3h10m"),
            (8 * HOUR - 1, "7h59m"),
            (8 * HOUR, "8h"),
            (47 * HOUR + 59 * MINUTE, "47h"),
            (2 * DAY, "2d"),
            (2 * DAY + HOUR, "2d1h"),
            (8 * DAY - 1, "7d23h"),
            (8 * DAY, "8d"),
            (2 * YEAR - 1, "729d"),
            (2 * YEAR, "2y"),
            (2 * YEAR + DAY, "2y1d"),
            (8 * YEAR - 1, "7y364d"),
            (8 * YEAR, "8y"),
            (10 * YEAR + 200 * DAY, "10y"),
        ] {
            assert_eq!(human(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn a_stopwatch_shows_seconds() {
        for (seconds, text) in [
            (-5, "0s"),
            (7, "7s"),
            (60, "1m0s"),
            (852, "14m12s"),
            (3 * HOUR + 7, "3h0m7s"),
            (DAY, "24h"),
            (3 * DAY, "3d"),
        ] {
            assert_eq!(took(seconds), text);
        }
    }

    #[test]
    fn what_is_past_and_to_come_reads_as_such() {
        let now: Timestamp = "2026-11-03T05:14:12Z".parse().unwrap();
        for (then, text) in [
            ("2026-11-03T03:14:12Z", "120m ago"),
            ("2026-11-03T05:14:12Z", "just now"),
            ("2026-12-03T03:00:00Z", "in 29d"),
        ] {
            assert_eq!(until(then.parse().unwrap(), now), text);
        }
        assert_eq!(
            ago("2026-11-03T05:15:12Z".parse().unwrap(), now),
            "just now"
        );
        let shown = [day(now), minute(now), moment(now)];
        assert_eq!(
            shown,
            ["2026-11-03", "2026-11-03 05:14Z", "2026-11-03 05:14:12Z"]
        );
    }
}
