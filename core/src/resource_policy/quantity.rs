//! Amounts as Kubernetes writes them.

use std::fmt;

/// An amount such as `10Gi`, `1.5T` or `500m`, in billionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity(i128);

/// Digits after the point that count.
const SCALE: u32 = 9;

impl Quantity {
    /// Reads an amount. None if it is none, or larger than any volume.
    pub fn parse(text: &str) -> Option<Self> {
        let split = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')));
        let (number, suffix) = text.split_at(split.unwrap_or(text.len()));
        let (negative, number) = match number.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, number.strip_prefix('+').unwrap_or(number)),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || whole.len() > 18 || fraction.len() > SCALE as usize {
            return None;
        }
        let digits = format!("{whole}{fraction:0<width$}", width = SCALE as usize);
        let billionths: i128 = digits.parse().ok()?;
        let value = match factor(suffix)? {
            Factor::Times(by) => billionths.checked_mul(by)?,
            Factor::Part(of) => billionths / of,
        };
        Some(Self(if negative { -value } else { value }))
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }
}

/// For people; in whole units where possible.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0 / 10_i128.pow(SCALE))
    }
}

enum Factor {
    Times(i128),
    Part(i128),
}

fn factor(suffix: &str) -> Option<Factor> {
    let decimal = |power: u32| Some(Factor::Times(10_i128.pow(power)));
    let binary = |power: u32| Some(Factor::Times(1024_i128.pow(power)));
    match suffix {
        "" => decimal(0),
        "n" => Some(Factor::Part(1_000_000_000)),
        "u" => Some(Factor::Part(1_000_000)),
        "m" => Some(Factor::Part(1_000)),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        other => {
            let power: i32 = other.strip_prefix(['e', 'E'])?.parse().ok()?;
            let size = power.unsigned_abs();
            if size > 18 {
                None
            } else if power < 0 {
                Some(Factor::Part(10_i128.pow(size)))
            } else {
                decimal(size)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("1Ki", "1024")]
    #[case("1.5Gi", "1610612736")]
    #[case("2k", "2000")]
    #[case("0.5M", "500000")]
    #[case("1500m", "1.5")]
    #[case("1e3", "1000")]
    #[case("12E2", "1200")]
    #[case("1E", "1000P")]
    #[case("+3", "3")]
    fn amounts_are_equal_however_they_are_written(#[case] one: &str, #[case] other: &str) {
        assert_eq!(Quantity::parse(one).unwrap(), Quantity::parse(other).unwrap());
    }

    #[test]
    fn larger_is_larger() {
        let parse = |text| Quantity::parse(text).unwrap();
        assert!(parse("1G") < parse("1Gi") && parse("999Mi") < parse("1Gi") && parse("-1") < parse("0"));
        assert_eq!(parse("10Gi").to_string(), "10737418240");
    }

    #[rstest::rstest]
    #[case("")]
    #[case("Gi")]
    #[case("10 Gi")]
    #[case("10GB")]
    #[case("ten")]
    #[case("1e99")]
    #[case("1.2.3")]
    fn what_is_no_amount_is_refused(#[case] text: &str) {
        assert_eq!(Quantity::parse(text), None);
    }
}
