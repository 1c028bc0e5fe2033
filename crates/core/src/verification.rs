//! Verifications of stored files: the last one of a backup, in our annotation of the Backup, and the
//! last one by a schedule, in our annotation of the Schedule. Pure.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Time and result of the last complete read of the files of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    pub at: Timestamp,
    /// Number of errors in the files.
    pub findings: usize,
    /// The first error, with the name of its file; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub first: String,
    /// Whether the files were compared with the digests that were stored with them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compared: bool,
}

impl Verification {
    /// Reads the annotation; `None` if it is missing or unreadable.
    pub fn read(annotation: Option<&str>) -> Option<Self> {
        serde_json::from_str(annotation?).ok()
    }

    pub fn annotation(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// "whole", or "not whole" with the first error.
    pub fn result(&self) -> String {
        match (self.findings, self.first.as_str()) {
            (0, _) => "whole".to_owned(),
            (_, "") => "not whole".to_owned(),
            (_, first) => format!("not whole ({first})"),
        }
    }
}

/// The last verification that a schedule asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleVerification {
    /// Name of the Backup.
    pub backup: String,
    pub at: Timestamp,
    /// Number of errors in the files.
    pub findings: usize,
    /// Time of the last verification without errors, of any backup of the schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<Timestamp>,
}

impl ScheduleVerification {
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

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_verification_is_read_as_it_was_written() {
        let mut verification = Verification {
            at: at("2026-11-03T05:14:12Z"),
            findings: 2,
            first: String::new(),
            compared: false,
        };
        assert_eq!(
            verification.annotation(),
            r#"{"at":"2026-11-03T05:14:12Z","findings":2}"#
        );
        for (first, compared, result) in [
            ("", false, "not whole"),
            (
                "b.tar.gz: it is missing",
                true,
                "not whole (b.tar.gz: it is missing)",
            ),
        ] {
            verification.first = first.to_owned();
            verification.compared = compared;
            let read = Verification::read(Some(&verification.annotation()));
            assert_eq!(read.as_ref(), Some(&verification));
            assert_eq!(verification.result(), result);
        }
        assert_eq!(
            [None, Some("yesterday")].map(Verification::read),
            [None, None]
        );
    }

    #[test]
    fn the_last_verification_of_a_schedule_is_read_as_it_was_written() {
        let last = ScheduleVerification {
            backup: "nightly-1".to_owned(),
            at: at("2026-11-03T05:14:12Z"),
            findings: 1,
            whole: Some(at("2026-11-02T05:14:12Z")),
        };
        assert_eq!(
            ScheduleVerification::read(Some(&last.annotation())),
            Some(last)
        );
        assert_eq!(ScheduleVerification::read(Some("{}")), None);
    }
}
