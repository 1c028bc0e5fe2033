//! Errors in the spec of a Schedule: in its cron expression, in its rules of retention, and in the
//! template of its backups.

use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::{Finding, Findings, backup, engine_backup, raw, raw_backup, undecodable_backup};
use crate::{
    api::schedule::{KeepRules, ScheduleSpec},
    cron::{Cron, Dialect},
    keep::{MAX_PERIODS, Rule},
};

/// All errors in the spec of a Schedule. The expression is an error if none of these dialects
/// accepts it: a caller that does not know the controller's dialect (`--cron-dialect`) passes all,
/// and leaves the rest to the controller.
pub fn schedule(spec: &ScheduleSpec, dialects: &[Dialect]) -> Vec<Finding> {
    all(spec, dialects, backup(&spec.template))
}

/// All reasons for which this engine refuses a Schedule that can be found without the cluster.
pub fn engine_schedule(spec: &ScheduleSpec, dialects: &[Dialect]) -> Vec<Finding> {
    all(spec, dialects, engine_backup(&spec.template))
}

/// The same for the `spec` of a whole Schedule, as JSON, including undecodable fields of the
/// template and of the rules of retention.
pub fn raw_schedule(object: &Value, dialects: &[Dialect]) -> Vec<Finding> {
    let spec = &object["spec"];
    let expression = spec["schedule"].as_str().unwrap_or_default();
    let mut found = of_expression(expression, dialects);
    found.extend(raw_keep(&spec["keep"]));
    found.extend(raw_backup(&template(object)).into_iter().map(in_template));
    found
}

/// The undecodable rules of retention, and errors in the others.
fn raw_keep(rules: &Value) -> Vec<Finding> {
    let mut found = raw::keep("spec.keep", rules);
    let mut decodable = rules.clone();
    for finding in &found {
        let name = finding.field.strip_prefix("spec.keep.").unwrap_or_default();
        if let Value::Object(fields) = &mut decodable {
            fields.remove(name);
        }
    }
    let is_complete = found.is_empty();
    if let Ok(rules) = serde_json::from_value(decodable) {
        // An undecodable rule may keep something.
        let errors = keep(&rules)
            .into_iter()
            .filter(|finding| is_complete || finding.field != "spec.keep");
        found.extend(errors);
    }
    found
}

/// Errors in the rules of retention.
pub fn keep(rules: &KeepRules) -> Vec<Finding> {
    let mut found = Findings::default();
    for rule in Rule::ALL {
        let periods = rule.periods(rules);
        let field = format!("spec.keep.{}", rule.as_str());
        if periods < 0 {
            found.say(
                field,
                format!("{periods} is negative; give the number of backups to keep, or 0 for none"),
            );
        } else if periods > MAX_PERIODS {
            found.say(field, format!("{periods} is more than {MAX_PERIODS}"));
        }
    }
    if Rule::ALL.iter().all(|rule| rule.periods(rules) == 0) {
        let names = Rule::ALL.map(Rule::as_str).join(", ");
        found.say(
            "spec.keep",
            format!(
                "no rule keeps a backup; give a number to one of {names}, or leave spec.keep out"
            ),
        );
    }
    found.0
}

/// The undecodable fields of the template of a whole Schedule, as JSON.
pub fn undecodable_schedule(object: &Value) -> Vec<Finding> {
    undecodable_backup(&template(object))
        .into_iter()
        .map(in_template)
        .collect()
}

fn all(spec: &ScheduleSpec, dialects: &[Dialect], template: Vec<Finding>) -> Vec<Finding> {
    let mut found = of_expression(&spec.schedule, dialects);
    found.extend(spec.keep.as_ref().map(keep).unwrap_or_default());
    found.extend(template.into_iter().map(in_template));
    found
}

fn of_expression(text: &str, dialects: &[Dialect]) -> Vec<Finding> {
    // The default zone never makes an expression invalid.
    let wrong: Option<Vec<_>> = dialects
        .iter()
        .map(|dialect| Cron::parse(text, *dialect, &TimeZone::UTC).err())
        .collect();
    let first = wrong.and_then(|all| all.into_iter().next());
    first
        .map(|error| Finding::new("spec.schedule", error.to_string()))
        .into_iter()
        .collect()
}

/// A Backup whose spec is the template.
fn template(object: &Value) -> Value {
    json!({ "spec": object["spec"]["template"] })
}

/// Converts a finding in the spec of a Backup to one in a template.
fn in_template(finding: Finding) -> Finding {
    let field = finding.field.strip_prefix("spec").unwrap_or(&finding.field);
    Finding {
        field: format!("spec.template{field}"),
        message: finding.message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(keep: &Value) -> Vec<String> {
        let object = json!({ "spec": { "schedule": "@daily", "template": {}, "keep": keep } });
        let raw = raw_schedule(&object, &Dialect::ALL);
        if let Ok(spec) = serde_json::from_value::<ScheduleSpec>(object["spec"].clone()) {
            let decoded = engine_schedule(&spec, &Dialect::ALL);
            assert_eq!(raw, decoded, "{keep}");
            assert_eq!(schedule(&spec, &Dialect::ALL), decoded, "{keep}");
        }
        raw.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rules_that_cannot_be_meant_are_refused_with_all_reasons() {
        const NONE: &[&str] = &[];
        let nothing = "spec.keep: no rule keeps a backup; give a number to one of last, hourly, \
                       daily, weekly, monthly, yearly, or leave spec.keep out";
        for (keep, expected) in [
            (json!(null), NONE),
            (json!({ "daily": 7 }), NONE),
            (json!({ "hourly": 10_000, "daily": 0, "later": {} }), NONE),
            (json!({}), &[nothing]),
            (json!({ "last": 0, "yearly": 0 }), &[nothing]),
            (
                json!({ "last": -1, "weekly": 10_001, "yearly": i64::MIN }),
                &[
                    "spec.keep.last: -1 is negative; give the number of backups to keep, or 0 for none",
                    "spec.keep.weekly: 10001 is more than 10000",
                    "spec.keep.yearly: -9223372036854775808 is negative; give the number of backups \
                     to keep, or 0 for none",
                ],
            ),
            (
                json!("7 daily"),
                &["spec.keep: must be an object, not a text"],
            ),
            (
                json!({ "daily": "7", "monthly": 1.5, "weekly": -4 }),
                &[
                    "spec.keep.daily: invalid type: string \"7\", expected i64",
                    "spec.keep.monthly: invalid type: floating point `1.5`, expected i64",
                    "spec.keep.weekly: -4 is negative; give the number of backups to keep, or 0 for none",
                ],
            ),
        ] {
            assert_eq!(found(&keep), expected, "{keep}");
        }
    }

    #[test]
    fn errors_of_all_parts_are_found_at_once() {
        let object = json!({ "spec": { "schedule": "61 * * * *", "keep": { "daily": "x" },
            "template": { "ttl": "-1h" } } });
        let fields: Vec<String> = raw_schedule(&object, &Dialect::ALL)
            .into_iter()
            .map(|finding| finding.field)
            .collect();
        assert_eq!(
            fields,
            ["spec.schedule", "spec.keep.daily", "spec.template.ttl"]
        );
    }
}
