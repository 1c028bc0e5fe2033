//! The rules of all schedules. Pure.

use std::collections::BTreeMap;

use crate::{api::Schedule, keep::Keep, labels::valid_value, validate};

/// Rules by schedule, as far as they are known. A schedule that is missing here is gone.
#[derive(Clone, Debug, Default)]
pub struct ScheduleRules(BTreeMap<String, Result<Option<Keep>, String>>);

impl ScheduleRules {
    /// Adds a Schedule, or why it cannot be decoded.
    pub fn add(&mut self, name: &str, schedule: Result<&Schedule, String>) {
        let rules = schedule.and_then(|schedule| {
            let spec = &schedule.spec;
            let wrong = spec.keep.as_ref().map(validate::keep).unwrap_or_default();
            match wrong.first() {
                Some(finding) => Err(finding.to_string()),
                None => Ok(Keep::of(spec)),
            }
        });
        self.0.insert(valid_value(name), rules);
    }

    /// Replaces the rules of a schedule.
    pub fn set(&mut self, name: &str, keep: Option<Keep>) {
        self.0.insert(valid_value(name), Ok(keep));
    }

    /// The rules by the label value of a schedule's name: its own, or `None` if it is gone.
    pub(super) fn of(&self, schedule: &str) -> Option<&Result<Option<Keep>, String>> {
        self.0.get(schedule)
    }
}
