//! Names of objects.

use sha2::{Digest as _, Sha256};

use crate::digest::hex;

/// The name of an object created from `prefix` at this time: `<prefix>-YYYYMMDDhhmmss` in UTC, as
/// Velero names the backups of a schedule (`pkg/apis/velero/v1/schedule_types.go`, v1.18).
pub fn timestamped(prefix: &str, at: jiff::Timestamp) -> String {
    format!("{prefix}-{}", at.strftime("%Y%m%d%H%M%S"))
}

/// The name of an object that a user creates without a name: the same with microseconds, so that
/// two creations within a second differ.
pub fn unnamed(prefix: &str, at: jiff::Timestamp) -> String {
    format!("{}-{}", timestamped(prefix, at), at.strftime("%6f"))
}

/// A deterministic name of at most 63 characters: `<prefix>-<name>-<hash of parts>`. The name part
/// is shortened to fit, so that the result can be a label value, too.
pub fn derived(prefix: &str, name: &str, parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    let hash = hex(&hash.finalize()[..5]);
    let room = 63_usize.saturating_sub(prefix.len() + hash.len() + 2);
    let name = name[..name.floor_char_boundary(room)]
        .trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    format!("{prefix}-{name}-{hash}")
}

/// Whether Kubernetes accepts this name for most objects: a DNS-1123 subdomain, at most 253
/// characters.
pub fn is_object_name(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_label)
}

/// Whether this is a DNS-1123 label of at most 63 characters, the form of namespace names.
pub fn is_dns_label(name: &str) -> bool {
    name.len() <= 63 && is_label(name)
}

/// Lower-case letters, digits and inner dashes. The caller checks the length.
fn is_label(part: &str) -> bool {
    !part.is_empty()
        && !part.starts_with('-')
        && !part.ends_with('-')
        && part
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamped_name_is_prefix_and_utc_seconds() {
        let at: jiff::Timestamp = "2026-03-04T05:06:07.9Z".parse().unwrap();
        assert_eq!(timestamped("nightly", at), "nightly-20260304050607");
    }

    #[test]
    fn what_is_created_within_a_second_without_a_name_has_names_that_differ() {
        let at: jiff::Timestamp = "2026-03-04T05:06:07.001234Z".parse().unwrap();
        let next = at + jiff::SignedDuration::from_micros(1);
        assert_eq!(unnamed("backup", at), "backup-20260304050607-001234");
        assert_eq!(unnamed("backup", next), "backup-20260304050607-001235");
    }

    #[test]
    fn a_derived_name_fits_is_valid_and_depends_on_every_part() {
        let name = |name: &str, parts: &[&str]| {
            let derived = derived("velero", name, parts);
            assert!(derived.len() <= 63 && is_object_name(&derived), "{derived}");
            derived
        };
        assert_eq!(name("data", &["u", "v"]), name("data", &["u", "v"]));
        assert!(name("data", &["u", "v"]).starts_with("velero-data-"));
        assert_ne!(name("data", &["u", "v"]), name("data", &["uv", ""]));
        let long = format!("{}.{}", "a".repeat(44), "b".repeat(200));
        assert_ne!(name(&long, &["1"]), name(&long, &["2"]));
    }

    #[test]
    fn object_names_are_dns_subdomains() {
        for good in ["a", "a-b", "a.b-c.d", "1", &"a".repeat(253)] {
            assert!(is_object_name(good), "{good}");
        }
        for bad in [
            "",
            "-a",
            "a-",
            "A",
            "a..b",
            ".a",
            "a_b",
            "a/b",
            "ä",
            &"a".repeat(254),
        ] {
            assert!(!is_object_name(bad), "{bad}");
        }
    }

    #[test]
    fn namespace_names_are_single_short_labels() {
        assert!(is_dns_label(&"a".repeat(63)));
        for bad in ["", "a.b", "A", &"a".repeat(64)] {
            assert!(!is_dns_label(bad), "{bad}");
        }
    }
}
