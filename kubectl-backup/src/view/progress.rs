//! The progress of running work: a bar, the rate, and the remaining time.

use std::fmt::{self, Display, Formatter, Write as _};

use backup_core::{phase::Stage, text::counted};
use jiff::Timestamp;

use super::{Count, WorkStatus};
use crate::print::human;

const BAR_WIDTH: i64 = 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) done: i64,
    pub(crate) total: i64,
    /// Unit in the singular: `item`.
    pub(crate) unit: &'static str,
}

/// Progress in operations once the work waits only for them, before that in items; `None` if it
/// does not run or cannot be counted.
pub(crate) fn share(status: &WorkStatus<'_>) -> Option<Share> {
    let ended = status.completed.is_some() || status.stage.is_terminal();
    if ended || matches!(status.stage, Stage::Deleting | Stage::Unknown) {
        return None;
    }
    if matches!(status.stage, Stage::WaitingForOperations { .. }) {
        let all = status.operations;
        let share = Share {
            done: all.ended(),
            total: all.attempted,
            unit: "operation",
        };
        return Some(share).filter(|share| share.total > 0);
    }
    items(status)
}

/// Progress in items.
pub(crate) fn items(status: &WorkStatus<'_>) -> Option<Share> {
    let share = status.items.map(|Count { done, total }| Share {
        done,
        total,
        unit: "item",
    });
    share.filter(|share| share.total > 0)
}

impl Display for Share {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { done, total, unit } = self;
        write!(f, "{done} of {}", counted(*total, unit))
    }
}

/// Measures the rate since the first call with the current unit.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    begin: Option<(Share, Timestamp)>,
}

impl Meter {
    pub(crate) fn bar(&mut self, share: Share, now: Timestamp) -> String {
        let begin = self.begin.filter(|(begin, _)| begin.unit == share.unit);
        let (begin, at) = *self.begin.insert(begin.unwrap_or((share, now)));
        bar(share, begin, now.duration_since(at).as_secs_f64())
    }
}

/// `[█████░░░░░]  50%  2400 of 4812 items, 48 a second, about 50s left`. `begin` is the progress of
/// `seconds` ago.
fn bar(share: Share, begin: Share, seconds: f64) -> String {
    let Share { done, total, .. } = share;
    let full = scaled(share, BAR_WIDTH);
    let percent = scaled(share, 100);
    let mut text = format!(
        "[{}{}] {percent:>3}%  {share}",
        repeated("█", full),
        repeated("░", BAR_WIDTH - full)
    );
    let came = done - begin.done;
    if seconds > 0.0 && came > 0 {
        let rate = double(came) / seconds;
        let left = double((total - done).max(0));
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

/// The done part of a share, on a scale from 0 to `scale`.
fn scaled(share: Share, scale: i64) -> i64 {
    let Share { done, total, .. } = share;
    (done.clamp(0, total) * scale)
        .checked_div(total)
        .unwrap_or_default()
}

fn repeated(sign: &str, count: i64) -> String {
    sign.repeat(usize::try_from(count).unwrap_or_default())
}

/// A count as a double: counts of items are far below the limit of exact integers in a double.
#[allow(clippy::cast_precision_loss)]
fn double(count: i64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_says_how_far_how_fast_and_how_long() {
        let items = |done, total| Share {
            done,
            total,
            unit: "item",
        };
        for (share, begin, seconds, ends) in [
            (items(0, 10), items(0, 10), 0.0, "░]   0%  0 of 10 items"),
            (items(5, 10), items(5, 10), 3.0, "░]  50%  5 of 10 items"),
            (
                items(2400, 4800),
                items(0, 4000),
                50.0,
                "░]  50%  2400 of 4800 items, 48 a second, about 50s left",
            ),
            (
                items(1, 4),
                items(0, 4),
                60.0,
                "░]  25%  1 of 4 items, 1.0 a minute, about 3m left",
            ),
            (
                items(10, 10),
                items(0, 10),
                1.0,
                "█] 100%  10 of 10 items, 10 a second, about 0s left",
            ),
            (items(12, 10), items(12, 10), 1.0, "█] 100%  12 of 10 items"),
            (items(0, 1), items(0, 1), 1.0, "░]   0%  0 of 1 item"),
        ] {
            let text = bar(share, begin, seconds);
            assert!(text.ends_with(ends), "{text}");
            assert_eq!(text.chars().filter(|c| "█░".contains(*c)).count(), 30);
        }
    }

    #[test]
    fn how_fast_it_goes_is_measured_from_the_first_look_at_what_is_counted() {
        let mut meter = Meter::default();
        let at = |second: i64| Timestamp::from_second(1_000 + second).unwrap();
        let items = |done| Share {
            done,
            total: 100,
            unit: "item",
        };
        assert!(meter.bar(items(10), at(0)).ends_with("10 of 100 items"));
        assert!(
            meter
                .bar(items(30), at(10))
                .ends_with("30 of 100 items, 2 a second, about 35s left")
        );
        let operations = |done| Share {
            done,
            total: 4,
            unit: "operation",
        };
        assert!(
            meter
                .bar(operations(1), at(20))
                .ends_with("1 of 4 operations")
        );
        let text = meter.bar(operations(2), at(80));
        assert!(
            text.ends_with("2 of 4 operations, 1.0 a minute, about 2m left"),
            "{text}"
        );
    }
}
