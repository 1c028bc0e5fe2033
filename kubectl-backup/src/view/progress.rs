//! How far something that runs has come: a bar, how fast it goes, and how long it will take.

use std::fmt::Write as _;

use super::{Attempts, Count, Description};
use crate::print::{Tone, human};

const WIDTH: i64 = 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) done: i64,
    pub(crate) total: i64,
    pub(crate) unit: &'static str,
}

/// Operations once they are all that is waited for, items before that; nothing for what does not run or cannot be counted.
pub(crate) fn share(description: &Description) -> Option<Share> {
    if description.completed.is_some() || !matches!(description.tone, Tone::Busy | Tone::Warn) {
        return None;
    }
    let operations = |all: Attempts| Share { done: all.ended(), total: all.attempted, unit: "operations" };
    let items = |Count { done, total }| Share { done, total, unit: "items" };
    let share = if description.phase.starts_with("Waiting") {
        description.operations.map(operations)
    } else {
        description.items.map(items)
    };
    share.filter(|share| share.total > 0)
}

/// `[█████░░░░░]  50%  2400 of 4812 items, 48 a second, about 50s left`. `begin` is how far it had come `seconds` ago.
pub(crate) fn bar(share: Share, begin: Share, seconds: f64) -> String {
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
