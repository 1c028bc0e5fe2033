//! Errors in the spec of a Schedule: in its cron expression, in its rules of retention, in how the
//! files of its backups are verified, in their drills, and in the template of its backups.

use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::{
    Finding, backup, copies,
    drill::{MAX_INTERVAL, NAMESPACES_OF_DRILL, scheduled_drill, unheld_namespaces},
    engine_backup, keep_rules,
    raw::{items, raw_copies, raw_field},
    raw_backup, undecodable_backup,
};
use crate::{
    api::{
        GoDuration,
        schedule::{BackupChoice, KeepRules, ScheduleSpec, VerifySpec},
    },
    cron::{Cron, Dialect},
    selection::IncludesExcludes,
};

const KEEP: &str = "spec.keep";
/// Minimum time between two verifications.
const MIN_VERIFY_INTERVAL: GoDuration = GoDuration::from_secs(60);

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
/// template, of the rules of retention, of `verify`, of `drill` and of copies.
pub fn raw_schedule(object: &Value, dialects: &[Dialect]) -> Vec<Finding> {
    let spec = &object["spec"];
    let expression = spec["schedule"].as_str().unwrap_or_default();
    let mut found = of_expression(expression, dialects);
    let none = json!({});
    found.extend(raw_keep(KEEP, &spec["keep"]));
    found.extend(raw_field("spec.verify", &spec["verify"], &none, verify));
    found.extend(raw_field(
        "spec.drill",
        &spec["drill"],
        &none,
        scheduled_drill,
    ));
    found.extend(unheld_namespaces(
        &strings(&spec["drill"]["includedNamespaces"]),
        &IncludesExcludes::new(
            &strings(&spec["template"]["includedNamespaces"]),
            &strings(&spec["template"]["excludedNamespaces"]),
        ),
    ));
    found.extend(raw_backup(&template(object)).into_iter().map(in_template));
    let own = spec["template"]["storageLocation"].as_str();
    found.extend(raw_copies(copies::OF_SCHEDULE, &spec["copies"], own));
    for (path, copy) in items(copies::OF_SCHEDULE, &spec["copies"]) {
        found.extend(raw_keep(&format!("{path}.keep"), &copy["keep"]));
    }
    found
}

/// The error of a Schedule, as JSON, whose drills name the namespace of the installation, which is
/// the Schedule's own.
pub fn drill_of_installation(object: &Value, namespace: &str) -> Option<Finding> {
    let names = strings(&object["spec"]["drill"]["includedNamespaces"]);
    names.iter().any(|name| name == namespace).then(|| {
        let message = format!(
            "{namespace:?} is the namespace of the installation, which would run twice; leave it out"
        );
        Finding::new(NAMESPACES_OF_DRILL, message)
    })
}

/// The strings of a list; none if it is no list.
fn strings(list: &Value) -> Vec<String> {
    let all = list.as_array().into_iter().flatten();
    all.filter_map(|one| one.as_str().map(str::to_owned))
        .collect()
}

/// Errors in all rules of retention: of the backups, and of copies.
pub fn keep(spec: &ScheduleSpec) -> Vec<Finding> {
    let of_copies = copies::keep(&spec.copies);
    of_backups(spec).chain(of_copies).collect()
}

/// Errors in the rules of retention of the backups.
fn of_backups(spec: &ScheduleSpec) -> impl Iterator<Item = Finding> {
    let rules = spec.keep.iter();
    rules.flat_map(|rules| keep_rules::check(KEEP, rules))
}

/// The same for rules as JSON, including fields that cannot be decoded.
fn raw_keep(field: &str, rules: &Value) -> Vec<Finding> {
    raw_field::<KeepRules>(field, rules, &json!({}), |rules| {
        keep_rules::check(field, rules)
    })
}

/// The undecodable fields of the template of a whole Schedule, as JSON.
pub fn undecodable_schedule(object: &Value) -> Vec<Finding> {
    let of_template = undecodable_backup(&template(object));
    let of_template = of_template.into_iter().map(in_template);
    of_template.chain(copies::undecodable(object)).collect()
}

fn all(spec: &ScheduleSpec, dialects: &[Dialect], template: Vec<Finding>) -> Vec<Finding> {
    let mut found = of_expression(&spec.schedule, dialects);
    found.extend(of_backups(spec));
    found.extend(spec.verify.iter().flat_map(verify));
    found.extend(spec.drill.iter().flat_map(scheduled_drill));
    let of_template = IncludesExcludes::new(
        &spec.template.included_namespaces,
        &spec.template.excluded_namespaces,
    );
    found.extend(
        spec.drill
            .iter()
            .flat_map(|drill| unheld_namespaces(&drill.included_namespaces, &of_template)),
    );
    found.extend(template.into_iter().map(in_template));
    copies::and_of_schedule(found, spec)
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
            } else if every > MAX_INTERVAL {
                let message = format!("{every} is more than {MAX_INTERVAL}, the most");
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
    #[case::hardly_ever(json!({ "every": "8784h1s" }), "spec.verify.every: 8784h0m1s is more than 8784h0m0s, the most")]
    #[case::once_a_year(json!({ "every": "8784h" }), "")]
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
    fn a_drill_of_what_no_backup_holds_is_found_in_both_forms() {
        let template = json!({ "excludedNamespaces": ["db"] });
        let drill = json!({ "every": "24h", "includedNamespaces": ["db", "shop"] });
        let object =
            json!({ "spec": { "schedule": "@daily", "template": template, "drill": drill } });
        let spec: ScheduleSpec = serde_json::from_value(object["spec"].clone()).unwrap();
        let raw = raw_schedule(&object, &Dialect::ALL);
        assert_eq!(raw.len(), 1, "{raw:?}");
        assert!(
            raw[0].to_string().contains("\"db\" is not among"),
            "{raw:?}"
        );
        assert_eq!(schedule(&spec, &Dialect::ALL), raw);
        assert_eq!(drill_of_installation(&object, "velero"), None);
        assert!(drill_of_installation(&object, "shop").is_some());
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
