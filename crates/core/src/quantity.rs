//! Sizes in the notation of Kubernetes: `10Gi`, `1500M`, `1e9`, `0.5Ti`.
//!
//! Kubernetes: `k8s.io/apimachinery/pkg/api/resource`, v1.34.

const BINARY: [(&str, u32); 6] = [
    ("Ki", 10),
    ("Mi", 20),
    ("Gi", 30),
    ("Ti", 40),
    ("Pi", 50),
    ("Ei", 60),
];
const DECIMAL: [(&str, u32); 6] = [
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];

/// The number of bytes, rounded up; `None` if it is no size, or an unrealistic one (2^100 bytes and
/// more).
pub fn bytes(text: &str) -> Option<u128> {
    if let Some((number, power)) = suffix(text, &BINARY) {
        return scaled(number, 2, power);
    }
    if let Some((number, power)) = suffix(text, &DECIMAL) {
        return scaled(number, 10, power);
    }
    if let Some(number) = text.strip_suffix('m') {
        return Some(scaled(number, 1, 0)?.div_ceil(1000));
    }
    match text.split_once(['e', 'E']) {
        Some((number, power)) => scaled(number, 10, power.parse().ok()?),
        None => scaled(text, 1, 0),
    }
}

/// A number of bytes in the largest unit that divides it: `10Gi`, `1500`.
pub fn binary(bytes: u64) -> String {
    let largest = BINARY
        .iter()
        .rev()
        .find(|(_, power)| bytes > 0 && bytes.trailing_zeros() >= *power);
    match largest {
        Some((unit, power)) => format!("{}{unit}", bytes >> power),
        None => bytes.to_string(),
    }
}

fn suffix<'a>(text: &'a str, units: &[(&str, u32)]) -> Option<(&'a str, u32)> {
    units
        .iter()
        .find_map(|(unit, power)| Some((text.strip_suffix(unit)?, *power)))
}

/// `number` × `base`^`power`, rounded up.
fn scaled(number: &str, base: u128, power: u32) -> Option<u128> {
    let number = number.strip_prefix('+').unwrap_or(number);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + fraction.len() == 0
        || fraction.len() > 18
        || !has_only_digits(whole)
        || !has_only_digits(fraction)
    {
        return None;
    }
    let parsed: u128 = format!("0{whole}{fraction}").parse().ok()?;
    let divisor = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let product = parsed.checked_mul(base.checked_pow(power)?)?;
    Some(product.div_ceil(divisor)).filter(|bytes| *bytes < 1 << 100)
}

fn has_only_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("0", Some(0))]
    #[case("10Gi", Some(10 << 30))]
    #[case("1.5Ki", Some(1536))]
    #[case("1500M", Some(1_500_000_000))]
    #[case("2k", Some(2000))]
    #[case("1e9", Some(1_000_000_000))]
    #[case("1E", Some(1_000_000_000_000_000_000))]
    #[case("+.5Ti", Some(1 << 39))]
    #[case("0.3", Some(1))]
    #[case("1500m", Some(2))]
    #[case("8Ei", Some(8 << 60))]
    #[case("", None)]
    #[case(".", None)]
    #[case("-1", None)]
    #[case("ten", None)]
    #[case("1e99", None)]
    #[case("1Gi1", None)]
    #[case("99999999999999999999999999999999999999999", None)]
    fn sizes_are_read_as_kubernetes_writes_them(
        #[case] text: &str,
        #[case] expected: Option<u128>,
    ) {
        assert_eq!(bytes(text), expected);
    }

    #[test]
    fn sizes_are_written_in_the_largest_unit_and_read_back() {
        for (size, text) in [
            (0, "0"),
            (1000, "1000"),
            (1024, "1Ki"),
            (10 << 30, "10Gi"),
            (3 << 29, "1536Mi"),
        ] {
            assert_eq!(binary(size), text);
            assert_eq!(bytes(text), Some(u128::from(size)));
        }
    }
}
