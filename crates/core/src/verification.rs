//! The last verification of a backup's stored files, stored in our annotation of the Backup. Pure.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Time and result of the last complete read of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    pub at: Timestamp,
    /// Number of errors in the files.
    pub findings: usize,
}

impl Verification {
    /// Reads the annotation; `None` if it is missing or unreadable.
    pub fn read(annotation: Option<&str>) -> Option<Self> {
        serde_json::from_str(annotation?).ok()
    }

    pub fn annotation(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verification_is_read_as_it_was_written() {
        let verification = Verification {
            at: "2026-11-03T05:14:12Z".parse().unwrap(),
            findings: 2,
        };
        assert_eq!(
            verification.annotation(),
            r#"{"at":"2026-11-03T05:14:12Z","findings":2}"#
        );
        assert_eq!(
            Verification::read(Some(&verification.annotation())),
            Some(verification)
        );
        assert_eq!(
            [None, Some("yesterday")].map(Verification::read),
            [None, None]
        );
    }
}
