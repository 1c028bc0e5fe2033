//! How a run of the program ended.

use std::time::Duration;

use backup_core::{
    data_movement::{
        CheckReport, MaintainReport, MoverFailure, MoverFailures, MoverOutcome, MoverResult,
        failure_reason,
    },
    text::{counted, shortened},
};

use crate::{MoverError, Report};

/// Kubernetes keeps this much of a termination message (bytes).
pub(crate) const MAX_TERMINATION_MESSAGE: usize = 4096;

fn outcome(operation: &str, failures: MoverFailures) -> MoverOutcome {
    let (result, message) = if failures.count == 0 {
        (MoverResult::Complete, "complete".to_owned())
    } else {
        let message = format!("complete but for {}", counted(failures.count, "failure"));
        (MoverResult::Incomplete, message)
    };
    MoverOutcome {
        operation: operation.to_owned(),
        result,
        message,
        failures,
        ..MoverOutcome::default()
    }
}

pub(crate) fn done(operation: &str, report: Report) -> MoverOutcome {
    MoverOutcome {
        snapshot: report.snapshot,
        files: report.files,
        bytes: report.bytes,
        new_bytes: report.new_bytes,
        ..outcome(operation, report.failures)
    }
}

/// Damage is a failure of the repository, not of the check.
pub(crate) fn checked(mut report: CheckReport) -> MoverOutcome {
    let failures = std::mem::take(&mut report.failures);
    let mut outcome = outcome("check", failures);
    if outcome.failures.count > 0 {
        outcome.reason = Some(failure_reason::DAMAGED.to_owned());
        outcome.message = format!(
            "the repository is damaged at {}; {} cannot be restored whole",
            counted(outcome.failures.count, "place"),
            counted(report.affected_count, "snapshot")
        );
    }
    outcome.check = Some(Box::new(report));
    outcome
}

pub(crate) fn maintained(report: MaintainReport) -> MoverOutcome {
    MoverOutcome {
        maintenance: Some(Box::new(report)),
        ..outcome("maintain", MoverFailures::default())
    }
}

pub(crate) fn failed(operation: &str, error: &MoverError) -> MoverOutcome {
    let result = match error {
        MoverError::Cancelled => MoverResult::Cancelled,
        _ => MoverResult::Failed,
    };
    let mut failures = MoverFailures::default();
    if let MoverError::Damaged { object, reason } = error {
        failures.count = 1;
        failures.first.push(MoverFailure {
            path: object.clone(),
            reason: reason.clone(),
        });
    }
    MoverOutcome {
        result,
        reason: Some(error.category().to_owned()),
        message: error.to_string(),
        ..outcome(operation, failures)
    }
}

pub(crate) fn after(outcome: MoverOutcome, duration: Duration, moved_bytes: u64) -> MoverOutcome {
    MoverOutcome {
        seconds: duration.as_secs_f64(),
        moved_bytes,
        ..outcome
    }
}

/// JSON of at most this many bytes. Names of files and snapshots are left out from the end; the
/// counts stay.
pub(crate) fn json_within(outcome: &MoverOutcome, max_bytes: usize) -> String {
    let mut shorter = outcome.clone();
    loop {
        let text = shorter.json();
        if text.len() <= max_bytes {
            return text;
        }
        let affected = shorter.check.as_mut().map(|check| &mut check.affected);
        match affected {
            Some(affected) if affected.len() > shorter.failures.first.len() => {
                affected.pop();
            }
            _ if shorter.failures.first.pop().is_some() => {}
            _ if shorter.message.is_empty() => return String::new(),
            _ => {
                let chars = shorter.message.chars().count();
                // Shorter each time, with the ellipsis.
                shorter.message = match chars / 2 {
                    0 | 1 => String::new(),
                    half => shortened(&shorter.message, half - 1),
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use backup_core::data_movement::AffectedSnapshot;

    use super::*;
    use crate::failures::FailureLog;

    #[test]
    fn the_short_json_keeps_the_counts_and_fits() {
        let log = FailureLog::default();
        for number in 0..500 {
            let path = format!("a/rather/long/path/with/{}/{number}", "x".repeat(100));
            log.record(path.as_ref(), &"it is missing".repeat(9));
        }
        let affected = AffectedSnapshot {
            id: "0".repeat(64),
            host: "host".repeat(20),
            label: String::new(),
            tags: String::new(),
            example: "e".repeat(100),
        };
        let outcome = checked(CheckReport {
            failures: log.collected(),
            affected_count: 70,
            affected: vec![affected; 70],
            ..CheckReport::default()
        });
        let text = json_within(&outcome, MAX_TERMINATION_MESSAGE);
        assert!(text.len() <= MAX_TERMINATION_MESSAGE);
        let read: MoverOutcome = serde_json::from_str(&text).unwrap();
        assert_eq!(read.failures.count, 500);
        assert!(!read.failures.first.is_empty());
        assert_eq!(read.check.unwrap().affected_count, 70);
        let wordy = failed("backup", &MoverError::panicked(&"ä".repeat(9000)));
        assert!(json_within(&wordy, MAX_TERMINATION_MESSAGE).len() <= MAX_TERMINATION_MESSAGE);
        assert_eq!(json_within(&wordy, 10), "");
    }

    #[test]
    fn a_failure_for_damage_names_the_damaged_object() {
        let pack = format!("data/4f/{}", "4f".repeat(32));
        let outcome = failed("restore", &MoverError::damaged(&pack, "it is missing"));
        assert_eq!(outcome.result, MoverResult::Failed);
        assert_eq!(outcome.reason.as_deref(), Some("damaged"));
        assert_eq!(outcome.failures.count, 1);
        assert_eq!(outcome.failures.first[0].path, pack);
        let other = failed("restore", &MoverError::Cancelled);
        assert_eq!(other.failures.count, 0);
    }

    #[test]
    fn only_complete_work_has_exit_code_0() {
        let whole = done("backup", Report::default());
        assert_eq!(whole.result.code(), 0);
        let log = FailureLog::default();
        log.record("a".as_ref(), &"gone");
        let incomplete = done(
            "backup",
            Report {
                failures: log.collected(),
                ..Report::default()
            },
        );
        assert_eq!(incomplete.result.code(), 3);
        let cancelled = failed("backup", &MoverError::Cancelled);
        assert_eq!(cancelled.result.code(), 130);
    }
}
