//! Errors in the spec of a Schedule: in its cron expression, in the template of its backups, in how
//! their files are verified, and in their drills.

use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::{
    Finding, backup, drill::scheduled_drill, engine_backup, raw::raw_field, raw_backup,
    undecodable_backup,
};
use crate::{
    api::{
        GoDuration,
        schedule::{BackupChoice, ScheduleSpec, VerifySpec},
    },
    cron::{Cron, Dialect},
};

/// Minimum time between two verifications.
const MIN_VERIFY_INTERVAL: GoDuration = GoDuration::from_secs(60);

/// All errors in the spec of a Schedule. The expression is an error if none of these dialects
/// accepts it: a caller that does not know the controller's dialect (`--cron-dialect`) passes all,
/// and leaves the rest to the controller.
pub fn schedule(spec: &ScheduleSpec, dialects: &[Dialect]) -> Vec<Finding> {
    let mut found = with_expression(&spec.schedule, dialects, backup(&spec.template));
    found.extend(of_stored(spec));
    found
}

/// Errors in what is done with stored backups.
fn of_stored(spec: &ScheduleSpec) -> Vec<Finding> {
    let mut found: Vec<Finding> = spec.verify.iter().flat_map(verify).collect();
    found.extend(spec.drill.iter().flat_map(scheduled_drill));
    found
}

/// All reasons for which this engine refuses a Schedule that can be found without the cluster.
pub fn engine_schedule(spec: &ScheduleSpec, dialects: &[Dialect]) -> Vec<Finding> {
    let mut found = with_expression(&spec.schedule, dialects, engine_backup(&spec.template));
    found.extend(of_stored(spec));
    found
}

/// The same for the `spec` of a whole Schedule, as JSON, including undecodable fields of the
/// template, of `verify` and of `drill`.
pub fn raw_schedule(object: &Value, dialects: &[Dialect]) -> Vec<Finding> {
    let expression = object["spec"]["schedule"].as_str().unwrap_or_default();
    let mut found = with_expression(expression, dialects, raw_backup(&template(object)));
    found.extend(raw_field("spec.verify", &object["spec"]["verify"], verify));
    let drill = &object["spec"]["drill"];
    found.extend(raw_field("spec.drill", drill, scheduled_drill));
    found
}

/// The undecodable fields of the template of a whole Schedule, as JSON.
pub fn undecodable_schedule(object: &Value) -> Vec<Finding> {
    undecodable_backup(&template(object))
        .into_iter()
        .map(in_template)
        .collect()
}

fn with_expression(text: &str, dialects: &[Dialect], of_template: Vec<Finding>) -> Vec<Finding> {
    // The default zone never makes an expression invalid.
    let wrong: Option<Vec<_>> = dialects
        .iter()
        .map(|dialect| Cron::parse(text, *dialect, &TimeZone::UTC).err())
        .collect();
    let first = wrong.and_then(|all| all.into_iter().next());
    let of_expression = first.map(|error| Finding::new("spec.schedule", error.to_string()));
    of_expression
        .into_iter()
        .chain(of_template.into_iter().map(in_template))
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

/// Errors in how files are verified.
fn verify(spec: &VerifySpec) -> Vec<Finding> {
    let mut found = Vec::new();
    match spec.every {
        None => {
            let message = "is required: give the time between two verifications, such as \"24h\"";
            found.push(Finding::new("spec.verify.every", message));
        }
        Some(every) => {
            if every < MIN_VERIFY_INTERVAL {
                let message = format!("{every} is less than {MIN_VERIFY_INTERVAL}, the least");
                found.push(Finding::new("spec.verify.every", message));
            }
        }
    }
    if let Some(BackupChoice::Unknown(other)) = &spec.which {
        let known = BackupChoice::KNOWN.join(", ");
        let message = format!("{other:?} is not known; expected one of {known}");
        found.push(Finding::new("spec.verify.which", message));
    }
    found
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::unset(Value::Null, "")]
    #[case::newest(json!({ "every": "24h" }), "")]
    #[case::all(json!({ "every": "1m", "which": "all" }), "")]
    #[case::no_interval(json!({ "which": "random" }), "spec.verify.every: is required: give the time between two verifications, such as \"24h\"")]
    #[case::often(json!({ "every": "59s" }), "spec.verify.every: 59s is less than 1m0s, the least")]
    #[case::negative(json!({ "every": "-24h" }), "spec.verify.every: -24h0m0s is less than 1m0s, the least")]
    #[case::days(json!({ "every": "7d" }), "spec.verify.every: \"7d\" is not a duration: expected numbers with units such as \"720h\", \"1h30m\" or \"45s\" (days are written in hours: 7d is \"168h\")")]
    #[case::unknown(
        json!({ "every": "0", "which": "oldest" }),
        "spec.verify.every: 0s is less than 1m0s, the least; spec.verify.which: \"oldest\" is not known; expected one of newest, random, all"
    )]
    #[case::no_text(json!({ "every": "24h", "which": 7 }), "spec.verify.which: invalid type: integer `7`, expected a string")]
    #[case::no_object(json!("daily"), "spec.verify: must be an object, not a text")]
    fn how_files_are_verified_is_checked(#[case] verify: Value, #[case] expected: &str) {
        let object =
            json!({ "spec": { "schedule": "@daily", "template": {}, "verify": verify.clone() } });
        let found = raw_schedule(&object, &Dialect::ALL);
        let text: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(text.join("; "), expected);
        let Ok(spec) = serde_json::from_value::<ScheduleSpec>(object["spec"].clone()) else {
            return;
        };
        assert_eq!(engine_schedule(&spec, &Dialect::ALL), found);
        assert_eq!(schedule(&spec, &Dialect::ALL), found);
        assert!(undecodable_schedule(&object).is_empty());
    }
}
