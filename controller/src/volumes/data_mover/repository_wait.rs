//! The time that a transfer waits for its repository to be made or opened: an annotation of the
//! DataUpload or DataDownload. Other waits do not count, such as for a maintenance or for other
//! transfers. Pure.

use std::{collections::BTreeMap, time::Duration};

use backup_core::api::GoDuration;
use jiff::Timestamp;
use serde_json::{Value, json};

/// Annotation of a DataUpload or DataDownload: when it began to wait for its repository. Not set
/// while it waits for something else.
pub(super) const WAIT_ANNOTATION: &str = "backup-controller/repository-awaited";

type Annotations = BTreeMap<String, String>;

fn begin(annotations: &Annotations) -> Option<Timestamp> {
    annotations.get(WAIT_ANNOTATION)?.parse().ok()
}

/// Whether the wait has taken this long.
pub(super) fn is_over(annotations: &Annotations, timeout: Duration, now: Timestamp) -> bool {
    begin(annotations).is_some_and(|begin| {
        // A time in the future, from a wrong clock, counts as now.
        let waited = Duration::try_from(now.duration_since(begin)).unwrap_or_default();
        waited >= timeout
    })
}

/// The message of a transfer whose repository was not ready in time. `why`: what it waited for.
pub(super) fn too_late(timeout: Duration, why: &str) -> String {
    format!(
        "its repository was not ready within {} (--data-mover-prepare-timeout): {why}",
        GoDuration::from(timeout)
    )
}

/// Patch of a transfer that waits for its repository: what is awaited, and since when. `None` if it
/// says so already.
pub(super) fn awaiting(
    annotations: &Annotations,
    message: Option<&str>,
    why: &str,
    now: Timestamp,
) -> Option<Value> {
    let has_begun = begin(annotations).is_some();
    if has_begun && message == Some(why) {
        return None;
    }
    let mut patch = json!({ "status": { "message": why } });
    if !has_begun {
        patch["metadata"]["annotations"][WAIT_ANNOTATION] = json!(now.to_string());
    }
    Some(patch)
}

/// Patch of a transfer that does not wait for its repository any longer; `None` if it did not.
pub(super) fn ended(annotations: &Annotations) -> Option<Value> {
    annotations
        .contains_key(WAIT_ANNOTATION)
        .then(|| json!({ "metadata": { "annotations": { WAIT_ANNOTATION: null } } }))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn now() -> Timestamp {
        "2026-11-01T12:00:00Z".parse().unwrap()
    }

    fn since(time: &str) -> Annotations {
        [(WAIT_ANNOTATION.to_owned(), time.to_owned())].into()
    }

    #[rstest]
    #[case::long_ago("2026-11-01T11:30:00Z", true)]
    #[case::just_before("2026-11-01T11:30:01Z", false)]
    #[case::in_the_future("2026-11-01T13:00:00Z", false)]
    #[case::unreadable("yesterday", false)]
    fn a_wait_is_over_after_its_timeout(#[case] begin: &str, #[case] expected: bool) {
        let timeout = Duration::from_mins(30);
        assert_eq!(is_over(&since(begin), timeout, now()), expected);
        assert!(!is_over(&Annotations::new(), timeout, now()));
    }

    #[test]
    fn the_begin_of_a_wait_is_written_once_and_its_reason_when_it_changes() {
        let none = Annotations::new();
        let patch = awaiting(&none, None, "why", now()).unwrap();
        assert_eq!(patch["status"], json!({ "message": "why" }));
        let begin = patch["metadata"]["annotations"][WAIT_ANNOTATION].as_str();
        let waiting = since(begin.unwrap());
        assert!(!is_over(&waiting, Duration::from_secs(1), now()));
        assert_eq!(awaiting(&waiting, Some("why"), "why", now()), None);
        let patch = awaiting(&waiting, Some("why"), "other", now()).unwrap();
        assert_eq!(patch, json!({ "status": { "message": "other" } }));
        let expected = json!({ "metadata": { "annotations": { WAIT_ANNOTATION: null } } });
        assert_eq!(ended(&waiting), Some(expected));
        assert_eq!(ended(&none), None);
    }

    #[test]
    fn a_timeout_has_the_unit_that_fits() {
        for (seconds, shown) in [(20, "20s"), (90, "1m30s"), (1800, "30m0s")] {
            let message = too_late(Duration::from_secs(seconds), "why");
            let expected = format!("within {shown} (--data-mover-prepare-timeout): why");
            assert!(message.ends_with(&expected), "{message}");
        }
    }
}
