//! A bar, how fast it goes, and how long it will take.

use std::fmt::Write as _;

use super::age::human;
use crate::view::progress::Share;

/// Columns of the bar.
const WIDTH: i64 = 30;

/// `[█████░░░░░]  50%  2400 of 4812 items, 48 a second, about 50s left`. `begin` is how far it had come `seconds` ago.
pub fn bar(share: Share, begin: Share, seconds: f64) -> String {
    let Share { done, total, unit } = share;
    let part = |of: i64| (done.clamp(0, total) * of).checked_div(total).unwrap_or_default();
    let (full, percent) = (part(WIDTH), part(100));
    let repeat = |what: &str, count: i64| what.repeat(usize::try_from(count).unwrap_or_default());
    let mut text = format!(
        "[{}{}] {percent:>3}%  {done} of {total} {unit}",
        repeat("█", full),
        repeat("░", WIDTH - full)
    );
    let came = done - begin.done;
    if seconds > 0.0 && came > 0 && begin.unit == unit {
        // Whole numbers of items are far below where a double is exact.
        #[allow(clippy::cast_precision_loss)]
        let (rate, left) = (came as f64 / seconds, (total - done).max(0) as f64);
        let rate_text = match rate {
            ..1.0 => format!("{:.1} a minute", rate * 60.0),
            _ => format!("{rate:.0} a second"),
        };
        #[allow(clippy::cast_possible_truncation)]
        let left = human((left / rate).ceil().min(1e9) as i64);
        let _ = write!(text, ", {rate_text}, about {left} left");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_says_how_far_how_fast_and_how_long() {
        let items = |done, total| Share { done, total, unit: "items" };
        for (share, begin, seconds, ends) in [
            (items(0, 10), items(0, 10), 0.0, "░]   0%  0 of 10 items"),
            (items(5, 10), items(5, 10), 3.0, "░]  50%  5 of 10 items"),
            (
                items(2400, 4800),
                items(0, 4000),
                50.0,
                "░]  50%  2400 of 4800 items, 48 a second, about 50s left",
            ),
            (items(1, 4), items(0, 4), 60.0, "░]  25%  1 of 4 items, 1.0 a minute, about 3m left"),
            (items(10, 10), items(0, 10), 1.0, "█] 100%  10 of 10 items, 10 a second, about 0s left"),
            (items(12, 10), items(12, 10), 1.0, "█] 100%  12 of 10 items"),
            (items(3, 10), Share { done: 0, total: 1, unit: "operations" }, 1.0, "░]  30%  3 of 10 items"),
        ] {
            let text = bar(share, begin, seconds);
            assert!(text.ends_with(ends), "{text}");
            assert_eq!(text.chars().filter(|c| "█░".contains(*c)).count(), 30);
        }
    }
}
