//! How the files of a schedule's backups are verified, and the last result. Pure.

use backup_core::{
    api::{Schedule, schedule::BackupChoice},
    labels::{VERIFICATION_ANNOTATION, annotation},
    text::counted,
    verification::ScheduleVerification,
};
use jiff::Timestamp;
use serde::Serialize;

use crate::print::{ago, plain};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VerifyView {
    /// Time between two verifications; empty if it is missing.
    every: String,
    /// Which backup is verified: `newest`, `random` or `all`.
    which: String,
    /// Null before the first one.
    last: Option<ScheduleVerification>,
}

impl VerifyView {
    /// `None` if the files are not verified.
    pub(super) fn of(schedule: &Schedule) -> Option<Self> {
        let spec = schedule.spec.verify.as_ref()?;
        let which = spec.which.as_ref().unwrap_or(&BackupChoice::Newest);
        Some(Self {
            every: spec
                .every
                .map_or_else(String::new, |every| every.to_string()),
            which: plain(which.as_str()),
            last: ScheduleVerification::read(annotation(schedule, VERIFICATION_ANNOTATION)),
        })
    }

    /// "one backup every 24h0m0s (newest), last 3h ago: nightly-1 is whole"
    pub(super) fn text(&self, now: Timestamp) -> String {
        let Self { every, which, last } = self;
        let last = last.as_ref().map_or_else(
            || "none yet".to_owned(),
            |last| {
                let result = match last.findings {
                    0 => "is whole".to_owned(),
                    faults => format!("is not whole ({})", counted(faults, "fault")),
                };
                let backup = plain(&last.backup);
                format!("last {}: {backup} {result}", ago(last.at, now))
            },
        );
        format!("one backup every {every} ({which}), {last}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(annotation: Option<&str>) -> String {
        let annotations =
            annotation.map(|text| json!({ VERIFICATION_ANNOTATION: text.to_owned() }));
        let object = json!({ "metadata": { "name": "nightly", "annotations": annotations },
            "spec": { "schedule": "@daily", "template": {}, "verify": { "every": "24h" } } });
        let schedule = serde_json::from_value(object).unwrap();
        let view = VerifyView::of(&schedule).unwrap();
        view.text("2026-11-03T08:00:00Z".parse().unwrap())
    }

    #[test]
    fn the_last_verification_is_shown_with_its_backup() {
        assert_eq!(text(None), "one backup every 24h0m0s (newest), none yet");
        let last = |findings: usize| {
            let annotation = json!({ "backup": "nightly-1", "at": "2026-11-03T05:00:00Z", "findings": findings });
            text(Some(&annotation.to_string()))
        };
        assert_eq!(
            last(0),
            "one backup every 24h0m0s (newest), last 3h ago: nightly-1 is whole"
        );
        assert_eq!(
            last(2),
            "one backup every 24h0m0s (newest), last 3h ago: nightly-1 is not whole (2 faults)"
        );
        let none = Schedule::new(
            "nightly",
            backup_core::api::schedule::ScheduleSpec::default(),
        );
        assert_eq!(VerifyView::of(&none), None);
    }
}
