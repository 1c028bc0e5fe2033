//! Medians and ratios.

use std::time::Duration;

/// Durations of a repeated task.
#[derive(Clone, Debug, Default)]
pub struct Sample(Vec<Duration>);

impl Sample {
    pub fn push(&mut self, took: Duration) {
        self.0.push(took);
    }

    pub fn extend(&mut self, took: impl IntoIterator<Item = Duration>) {
        self.0.extend(took);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The median (milliseconds).
    pub fn median(&self) -> f64 {
        median(self.milliseconds())
    }

    /// The 99th percentile (milliseconds).
    pub fn p99(&self) -> f64 {
        quantile(self.milliseconds(), 0.99)
    }

    fn milliseconds(&self) -> impl Iterator<Item = f64> {
        self.0.iter().map(|took| took.as_secs_f64() * 1e3)
    }
}

/// The median of some numbers: the mean of the middle two if their number is even; NaN if there are
/// none.
pub fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = numbers.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count => f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]),
    }
}

/// The median of the ratios of paired rounds: a slowdown that affects both rounds of a pair cancels
/// out.
pub fn paired_ratio(of: &[f64], to: &[f64]) -> f64 {
    median(of.iter().zip(to).map(|(one, other)| one / other))
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss
)]
fn quantile(numbers: impl IntoIterator<Item = f64>, share: f64) -> f64 {
    let mut sorted: Vec<f64> = numbers.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    // With few numbers, the 99th percentile is the highest.
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted
        .get(rank.saturating_sub(1))
        .copied()
        .unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        for (numbers, expected) in [
            (&[3.0, 1.0, 2.0][..], 2.0),
            (&[4.0, 1.0, 2.0, 3.0], 2.5),
            (&[7.0], 7.0),
        ] {
            assert!(
                (median(numbers.iter().copied()) - expected).abs() < 1e-9,
                "{numbers:?}"
            );
        }
    }

    #[test]
    fn of_few_numbers_the_highest_is_the_99th_percentile() {
        assert!((quantile([1.0, 3.0, 2.0], 0.99) - 3.0).abs() < 1e-9);
        let hundred = (1..=100).map(f64::from);
        assert!((quantile(hundred, 0.99) - 99.0).abs() < 1e-9);
        assert!(median([]).is_nan());
    }

    #[test]
    fn what_slows_both_of_a_pair_leaves_no_trace() {
        assert!((paired_ratio(&[80.0, 8.0, 40.0], &[100.0, 10.0, 50.0]) - 0.8).abs() < 1e-9);
    }
}
