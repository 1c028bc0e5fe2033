//! Sizes for users: "512 B", "1.0 GiB".

const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// A size; from 1 KiB on with one decimal digit.
pub(crate) fn size(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    // Tenths of the unit, rounded. Integers are exact where a float would not be.
    let mut tenths = (u128::from(bytes) * 10 + 512) / 1024;
    let mut units = UNITS.iter();
    let mut unit = units.next();
    while tenths >= 10_240
        && let Some(next) = units.next()
    {
        tenths = (tenths + 512) / 1024;
        unit = Some(next);
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, unit.unwrap_or(&""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_unit_in_which_they_are_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (1_048_575, "1.0 MiB"),
            (1_073_741_824, "1.0 GiB"),
            (2_200_000_000_000, "2.0 TiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
