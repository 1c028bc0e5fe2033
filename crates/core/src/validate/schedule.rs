//! Errors in the spec of a Schedule: in its cron expression, and in the template of its backups.

use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::{Finding, backup, copies, engine_backup, raw_backup, undecodable_backup};
use crate::{
    api::schedule::ScheduleSpec,
    cron::{Cron, Dialect},
};

/// All errors in the spec of a Schedule. The expression is an error if none of these dialects
/// accepts it: a caller that does not know the controller's dialect (`--cron-dialect`) passes all,
/// and leaves the rest to the controller.
pub fn schedule(spec: &ScheduleSpec, dialects: &[Dialect]) -> Vec<Finding> {
    let found = with_expression(&spec.schedule, dialects, backup(&spec.template));
    copies::and_of_schedule(found, spec)
}

/// All reasons for which this engine refuses a Schedule that can be found without the cluster.
pub fn engine_schedule(spec: &ScheduleSpec, dialects: &[Dialect]) -> Vec<Finding> {
    let found = with_expression(&spec.schedule, dialects, engine_backup(&spec.template));
    copies::and_of_schedule(found, spec)
}

/// The same for the `spec` of a whole Schedule, as JSON, including undecodable fields of the
/// template.
pub fn raw_schedule(object: &Value, dialects: &[Dialect]) -> Vec<Finding> {
    let expression = object["spec"]["schedule"].as_str().unwrap_or_default();
    let mut found = with_expression(expression, dialects, raw_backup(&template(object)));
    found.extend(copies::raw(object));
    found
}

/// The undecodable fields of the template of a whole Schedule, as JSON.
pub fn undecodable_schedule(object: &Value) -> Vec<Finding> {
    let of_template = undecodable_backup(&template(object));
    let of_template = of_template.into_iter().map(in_template);
    of_template.chain(copies::undecodable(object)).collect()
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
