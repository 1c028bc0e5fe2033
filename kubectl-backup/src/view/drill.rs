//! Drills: how far one is, what came of the last one of a backup, and those of a schedule. Pure.

use backup_core::{
    api::{Restore, RestorePhase, Schedule, schedule::BackupChoice},
    drill::{DrillResult, DrillState, LastDrill},
    labels::{LAST_DRILL_ANNOTATION, annotation},
};
use jiff::Timestamp;
use serde::Serialize;

use crate::print::{ago, plain};

/// How far a drill is, as a clause; `None` if the Restore is no drill.
pub(crate) fn stage(restore: &Restore) -> Option<String> {
    restore.spec.drill.as_ref()?;
    let state = DrillState::of(restore);
    let Some(result) = &state.result else {
        let phase = restore.phase();
        return Some(match &state.ready {
            _ if !phase.is_terminal() => format!("its restore is {}", plain(phase.as_str())),
            None => "its workloads are waited for".to_owned(),
            Some(_) => "its checks run".to_owned(),
        });
    };
    let rest = if state.is_over {
        ""
    } else {
        "; its scratch namespaces are being removed"
    };
    Some(format!("{}{rest}", outcome(result)))
}

/// Why the drill has failed; `None` if it has not, or not yet, or if the Restore is no drill.
pub(super) fn failure(restore: &Restore) -> Option<String> {
    restore.spec.drill.as_ref()?;
    let result = DrillState::of(restore).result?;
    result.has_failed().then(|| plain(&result.failure))
}

/// Whether the drill has ended well; `None` before its result. `of_restore` is the end of its
/// restore, which alone counts if that did not end well, or if the Restore is no drill.
pub(super) fn ended(restore: &Restore, of_restore: Option<bool>) -> Option<bool> {
    if restore.spec.drill.is_none() || of_restore != Some(true) {
        return of_restore;
    }
    let result = DrillState::of(restore).result?;
    Some(!result.has_failed())
}

/// The remark next to the phase of a restore in a list, which says nothing about the checks of a
/// drill: that the drill has failed, or how far a drill without a result is.
pub(super) fn remark(restore: &Restore) -> Option<String> {
    if failure(restore).is_some() {
        return Some("drill failed".to_owned());
    }
    let waits =
        restore.phase() == RestorePhase::Completed && DrillState::of(restore).result.is_none();
    stage(restore).filter(|_| waits)
}

/// "succeeded in 41s, 312 of 312 items", or "failed: " with the reason.
fn outcome(result: &DrillResult) -> String {
    let text = if result.has_failed() {
        format!("failed: {}", result.failure)
    } else {
        format!("succeeded {}", result.counts())
    };
    plain(&text)
}

/// "restored 14h ago in 41s, 312 of 312 items, 3 checks passed"
pub(crate) fn last(result: &DrillResult, now: Timestamp) -> String {
    plain(&result.text(&ago(result.at, now)))
}

/// The drills of a schedule's backups.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DrillsView {
    /// Time between two drills; empty if it is missing.
    every: String,
    /// Which backup is restored: `newest`, `random` or `all`.
    which: String,
    /// Null before the first one.
    last: Option<LastDrill>,
}

impl DrillsView {
    /// `None` if there are none.
    pub(super) fn of(schedule: &Schedule) -> Option<Self> {
        let spec = schedule.spec.drill.as_ref()?;
        let which = spec.which.as_ref().unwrap_or(&BackupChoice::Newest);
        Some(Self {
            every: spec
                .every
                .map_or_else(String::new, |every| every.to_string()),
            which: plain(which.as_str()),
            last: LastDrill::read(annotation(schedule, LAST_DRILL_ANNOTATION)),
        })
    }

    /// "one backup every 24h0m0s (newest), last: nightly-1 restored 14h ago in 41s, 312 of 312 items"
    pub(super) fn text(&self, now: Timestamp) -> String {
        let Self { every, which, last } = self;
        let last = last.as_ref().map_or_else(
            || "none yet".to_owned(),
            |one| {
                let backup = plain(&one.backup);
                format!("last: {backup} {}", self::last(&one.result, now))
            },
        );
        format!("one backup every {every} ({which}), {last}")
    }
}

#[cfg(test)]
mod tests {
    use backup_core::{drill::Readiness, labels::DRILL_STATE_ANNOTATION};
    use serde_json::json;

    use super::*;

    fn at(text: &str) -> Timestamp {
        format!("2026-11-03T{text}Z").parse().unwrap()
    }

    fn result(failure: &str) -> DrillResult {
        DrillResult {
            seconds: 41,
            items: 312,
            restored: 312,
            checks: 3,
            passed: 3,
            ..DrillResult::of_nothing("r", failure.to_owned(), at("05:00:00"))
        }
    }

    fn drill(phase: &str, state: &DrillState) -> Restore {
        let annotations = json!({ DRILL_STATE_ANNOTATION: state.annotation() });
        let object = json!({ "metadata": { "name": "r", "annotations": annotations },
            "spec": { "drill": {} }, "status": { "phase": phase } });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_drill_has_ended_once_it_has_a_result() {
        let with = |result: Option<DrillResult>| DrillState {
            result,
            ..DrillState::default()
        };
        for (state, of_restore, expected) in [
            (with(None), Some(true), None),
            (with(Some(result(""))), Some(true), Some(true)),
            (with(Some(result("check a"))), Some(true), Some(false)),
            (with(None), Some(false), Some(false)),
            (with(None), None, None),
        ] {
            let drill = drill("Completed", &state);
            assert_eq!(ended(&drill, of_restore), expected, "{state:?}");
        }
        assert_eq!(ended(&Restore::default(), Some(true)), Some(true));
    }

    #[test]
    fn each_stage_of_a_drill_is_said() {
        let begun = DrillState::default();
        let ready = DrillState {
            ready: Some(Readiness::of(1, Vec::new(), false, at("05:00:00"))),
            ..begun.clone()
        };
        let ended = |failure: &str, is_over| DrillState {
            result: Some(result(failure)),
            is_over,
            ..ready.clone()
        };
        for (phase, state, expected) in [
            ("InProgress", &begun, "its restore is InProgress"),
            ("Completed", &begun, "its workloads are waited for"),
            ("Completed", &ready, "its checks run"),
            (
                "Completed",
                &ended("", false),
                "succeeded in 41s, 312 of 312 items, 3 checks passed; its scratch namespaces are being removed",
            ),
            (
                "Completed",
                &ended("", true),
                "succeeded in 41s, 312 of 312 items, 3 checks passed",
            ),
            ("Failed", &ended("no bucket", true), "failed: no bucket"),
        ] {
            assert_eq!(stage(&drill(phase, state)).as_deref(), Some(expected));
        }
        let none = Restore::new("r", backup_core::api::RestoreSpec::default());
        assert_eq!(stage(&none), None);
    }

    #[test]
    fn a_list_says_what_the_phase_of_a_drill_does_not() {
        let begun = DrillState::default();
        let ended = |failure: &str| DrillState {
            result: Some(result(failure)),
            ..DrillState::default()
        };
        for (phase, state, expected) in [
            ("InProgress", &begun, None),
            ("Completed", &begun, Some("its workloads are waited for")),
            ("Completed", &ended(""), None),
            ("Completed", &ended("check a"), Some("drill failed")),
            ("PartiallyFailed", &ended("1 error"), Some("drill failed")),
        ] {
            assert_eq!(remark(&drill(phase, state)).as_deref(), expected, "{phase}");
        }
        let none = Restore::new("r", backup_core::api::RestoreSpec::default());
        assert_eq!((remark(&none), failure(&none)), (None, None));
    }

    #[test]
    fn the_last_drill_is_shown_with_its_backup() {
        let text = |last: Option<LastDrill>| {
            let annotations = last.map(|last| json!({ LAST_DRILL_ANNOTATION: last.annotation() }));
            let object = json!({ "metadata": { "name": "nightly", "annotations": annotations },
                "spec": { "schedule": "@daily", "template": {}, "drill": { "every": "24h", "which": "all" } } });
            let schedule = serde_json::from_value(object).unwrap();
            DrillsView::of(&schedule).unwrap().text(at("08:00:00"))
        };
        assert_eq!(text(None), "one backup every 24h0m0s (all), none yet");
        assert_eq!(
            text(Some(LastDrill::after(None, "nightly-1", result("")))),
            "one backup every 24h0m0s (all), last: nightly-1 restored 3h ago in 41s, 312 of 312 items, 3 checks passed"
        );
        assert_eq!(
            text(Some(LastDrill::after(
                None,
                "nightly-1",
                result("check a: exit code 1")
            ))),
            "one backup every 24h0m0s (all), last: nightly-1 failed 3h ago: check a: exit code 1 (in 41s, 312 of 312 items, 3 checks passed)"
        );
        let none = Schedule::new(
            "nightly",
            backup_core::api::schedule::ScheduleSpec::default(),
        );
        assert_eq!(DrillsView::of(&none), None);
    }
}
