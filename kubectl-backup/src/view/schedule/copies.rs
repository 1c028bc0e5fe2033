//! The copies of a schedule's backups in other locations. Pure.

use backup_core::api::{Schedule, schedule::KeepRules};
use serde::Serialize;

use super::rules;
use crate::print::plain;

/// A copy of each backup of a schedule.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ScheduledCopyView {
    location: String,
    /// How long it is kept; null for as long as the backup.
    ttl: Option<String>,
    /// Number of periods by rule of retention.
    #[serde(skip_serializing_if = "Option::is_none")]
    keep: Option<KeepRules>,
}

/// The copies of the schedule, then those of its template.
pub(super) fn of(schedule: &Schedule) -> Vec<ScheduledCopyView> {
    let spec = &schedule.spec;
    let own = spec.copies.iter().map(|one| (&one.copy, one.keep.clone()));
    let of_template = spec.template.copies.iter().map(|copy| (copy, None));
    own.chain(of_template)
        .map(|(copy, keep)| ScheduledCopyView {
            location: plain(&copy.location),
            ttl: copy.ttl.map(|ttl| ttl.to_string()),
            keep,
        })
        .collect()
}

/// "offsite (kept for 48h0m0s, keeps weekly 4); archive (kept as long as the backup)"; `None` if
/// there are none.
pub(super) fn line(copies: &[ScheduledCopyView]) -> Option<String> {
    let all: Vec<String> = copies.iter().map(ScheduledCopyView::text).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

impl ScheduledCopyView {
    fn text(&self) -> String {
        let Self {
            location,
            ttl,
            keep,
        } = self;
        let time = ttl.as_ref().map_or_else(
            || "kept as long as the backup".to_owned(),
            |ttl| format!("kept for {ttl}"),
        );
        let keeps = keep
            .as_ref()
            .map_or_else(String::new, |keep| format!(", keeps {}", rules(keep)));
        format!("{location} ({time}{keeps})")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_copy_is_shown_with_its_time_and_its_rules() {
        let text = |copies: serde_json::Value, of_template: serde_json::Value| {
            let object = json!({ "metadata": { "name": "nightly" },
                "spec": { "schedule": "@daily", "copies": copies, "template": { "copies": of_template } } });
            line(&of(&serde_json::from_value(object).unwrap()))
        };
        assert_eq!(text(json!([]), json!([])), None);
        let offsite = json!([{ "location": "offsite", "ttl": "48h", "keep": { "weekly": 4 } }]);
        assert_eq!(
            text(offsite, json!([{ "location": "archive" }])).as_deref(),
            Some(
                "offsite (kept for 48h0m0s, keeps weekly 4); archive (kept as long as the backup)"
            )
        );
    }
}
