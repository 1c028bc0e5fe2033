//! Errors in how a drill restores, and in the spec of a Restore that is one.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Finding, Findings};
use crate::{
    api::{
        DrillSettings, GoDuration, RestoreSpec,
        drill::DrillCheck,
        schedule::{BackupChoice, ScheduledDrill},
    },
    drill::{Expression, MAX_CHECKS, MAX_NAMESPACES, id_of_scratch},
    names::{is_dns_label, is_object_name},
    quantity,
    resources::{CLAIMS, DEFINITIONS, NAMESPACES, VOLUMES},
    selection::IncludesExcludes,
};

/// The namespaces that the drills of a schedule restore.
pub(super) const NAMESPACES_OF_DRILL: &str = "spec.drill.includedNamespaces";
/// Minimum time between two drills.
const MIN_INTERVAL: GoDuration = GoDuration::from_secs(300);
/// Maximum time between two drills, and between two verifications: 366 days.
pub(super) const MAX_INTERVAL: GoDuration = GoDuration::from_secs(366 * 24 * 3600);
/// Maximum length of the name of a check, which is part of the name of its Job.
const MAX_CHECK_NAME_CHARS: usize = 40;
/// Objects whose values no expression reads.
const SECRETS: &str = "secrets";
/// Types that no drill restores.
const NEVER_RESTORED: [&str; 3] = [VOLUMES, DEFINITIONS, NAMESPACES];

/// Errors in the drills of a schedule.
pub(super) fn scheduled_drill(spec: &ScheduledDrill) -> Vec<Finding> {
    let mut found = Findings::default();
    match spec.every {
        None => found.say(
            "spec.drill.every",
            "is required: give the time between two drills, such as \"24h\"",
        ),
        Some(every) => {
            if every < MIN_INTERVAL {
                let message = format!("{every} is less than {MIN_INTERVAL}, the least");
                found.say("spec.drill.every", message);
            } else if every > MAX_INTERVAL {
                let message = format!("{every} is more than {MAX_INTERVAL}, the most");
                found.say("spec.drill.every", message);
            }
        }
    }
    if let Some(BackupChoice::Unknown(other)) = &spec.which {
        let known = BackupChoice::KNOWN.join(", ");
        let message = format!("{other:?} is not known; expected one of {known}");
        found.say("spec.drill.which", message);
    }
    let names = &spec.included_namespaces;
    namespaces(NAMESPACES_OF_DRILL, names, &mut found);
    settings(&spec.settings, names, &mut found);
    found.0
}

/// The namespaces of a schedule's drills that its backups cannot hold.
pub(super) fn unheld_namespaces(names: &[String], template: &IncludesExcludes) -> Vec<Finding> {
    let mut found = Findings::default();
    for name in names.iter().filter(|name| is_dns_label(name)) {
        if id_of_scratch(name).is_some() {
            let message = format!("{name:?} is a scratch namespace, which backups leave out");
            found.say(NAMESPACES_OF_DRILL, message);
        } else if !template.includes(name) {
            let message = format!(
                "{name:?} is not among the namespaces of spec.template, so no backup holds it; include it there, or leave it out here"
            );
            found.say(NAMESPACES_OF_DRILL, message);
        }
    }
    found.0
}

/// Errors in the spec of a Restore that is a drill: nothing of it may touch what exists.
pub(super) fn restore_drill(spec: &RestoreSpec, found: &mut Findings) {
    let Some(drill) = &spec.drill else {
        return;
    };
    if spec.include_cluster_resources != Some(false) {
        let message = "has to be false for a drill: cluster-scoped objects have effects everywhere";
        found.say("spec.includeClusterResources", message);
    }
    if spec.restore_pvs != Some(drill.settings.volumes) {
        let message = if drill.settings.volumes {
            "has to be true for a drill with spec.drill.volumes"
        } else {
            "has to be false for a drill without spec.drill.volumes: its pods get empty volumes"
        };
        found.say("spec.restorePVs", message);
    }
    let policies = [
        ("existingResourcePolicy", &spec.existing_resource_policy),
        (
            "existingVolumeDataPolicy",
            &spec.existing_volume_data_policy,
        ),
    ];
    for (field, policy) in policies {
        let is_none = matches!(policy.as_deref(), None | Some("" | "none"));
        if !is_none {
            let message = "has to be \"none\" for a drill, which changes nothing that exists";
            found.say(format!("spec.{field}"), message);
        }
    }
    if spec.prune == Some(true) {
        found.say(
            "spec.prune",
            "removes objects, and a drill has nothing to remove: its namespaces are new; unset one of them",
        );
    }
    if spec.hooks.is_some() && !drill.settings.hooks {
        found.say(
            "spec.hooks",
            "are not run by a drill unless spec.drill.hooks is true; set that, or remove them",
        );
    }
    let names = &spec.included_namespaces;
    if names.is_empty() {
        let message = "has to name each namespace that the drill restores";
        found.say("spec.includedNamespaces", message);
    }
    namespaces("spec.includedNamespaces", names, found);
    let mut ids = BTreeSet::new();
    for name in names.iter().filter(|name| is_dns_label(name)) {
        let scratch = spec.namespace_mapping.get(name);
        if let Some(id) = scratch.and_then(|scratch| id_of_scratch(scratch)) {
            ids.insert(id);
        } else {
            found.say(
                format!("spec.namespaceMapping.{name}"),
                "has to be a scratch namespace: drill-, 8 hex digits, a dash and a name; `kubectl backup drill` chooses them",
            );
        }
    }
    if ids.len() > 1 {
        let message = "has scratch namespaces of several drills; they have to begin alike";
        found.say("spec.namespaceMapping", message);
    }
    settings(&drill.settings, names, found);
}

/// Names of namespaces without globs.
fn namespaces(field: &str, names: &[String], found: &mut Findings) {
    if names.len() > MAX_NAMESPACES {
        let message = format!("{} are more than {MAX_NAMESPACES}", names.len());
        found.say(field, message);
    }
    for name in names.iter().filter(|name| !is_dns_label(name)) {
        let message = format!("{name:?} cannot be the name of a namespace; a drill takes no globs");
        found.say(field, message);
    }
}

/// Errors in the settings of a drill of these namespaces; none are named if all are restored.
fn settings(drill: &DrillSettings, namespaces: &[String], found: &mut Findings) {
    for (name, limit) in &drill.quota {
        if name.is_empty() || quantity::bytes(limit).is_none() {
            let message = format!("{limit:?} is no quantity; give one such as \"20\" or \"4Gi\"");
            found.say(format!("spec.drill.quota.{name}"), message);
        }
    }
    for (at, name) in drill.additional_resources.iter().enumerate() {
        let field = format!("spec.drill.additionalResources[{at}]");
        restored_type(field, name, drill.volumes, found);
    }
    positive("spec.drill.readyTimeout", drill.ready_timeout, found);
    if drill.checks.len() > MAX_CHECKS {
        let message = format!("{} are more than {MAX_CHECKS}", drill.checks.len());
        found.say("spec.drill.checks", message);
    }
    let mut names = BTreeSet::new();
    for (at, one) in drill.checks.iter().enumerate() {
        let field = format!("spec.drill.checks[{at}]");
        if !names.insert(one.name.as_str()) {
            let message = format!("{:?} is the name of another one, too", one.name);
            found.say(format!("{field}.name"), message);
        }
        check(&field, one, namespaces, drill.volumes, found);
    }
}

/// Errors in the name of a type that a drill is to restore, or to check. `volumes`: whether the
/// drill restores claims.
fn restored_type(field: String, name: &str, volumes: bool, found: &mut Findings) {
    if name == CLAIMS {
        if !volumes {
            let message = format!("{name} are not restored by a drill without spec.drill.volumes");
            found.say(field, message);
        }
    } else if NEVER_RESTORED.contains(&name) {
        found.say(field, format!("{name} are not restored by a drill"));
    } else if !is_object_name(name) {
        let message = format!(
            "{name:?} is no type; give the plural and the group, such as \"certificates.cert-manager.io\""
        );
        found.say(field, message);
    }
}

/// Errors in a check. `volumes`: whether the drill restores claims.
fn check(
    field: &str,
    check: &DrillCheck,
    namespaces: &[String],
    volumes: bool,
    found: &mut Findings,
) {
    let DrillCheck {
        name,
        namespace,
        timeout,
        ..
    } = check;
    if !is_dns_label(name) || name.len() > MAX_CHECK_NAME_CHARS {
        let message = format!(
            "{name:?} cannot be the name of a check; expected up to {MAX_CHECK_NAME_CHARS} lower-case letters, digits and dashes"
        );
        found.say(format!("{field}.name"), message);
    }
    if !is_dns_label(namespace) {
        let message = format!("{namespace:?} cannot be the name of a namespace");
        found.say(format!("{field}.namespace"), message);
    } else if !namespaces.is_empty() && !namespaces.contains(namespace) {
        let message = format!("{namespace:?} is not among the namespaces that are restored");
        found.say(format!("{field}.namespace"), message);
    }
    positive(&format!("{field}.timeout"), *timeout, found);
    if check.expression.is_some() || check.resource.is_some() {
        expression(field, check, volumes, found);
    } else {
        job(field, &check.job, found);
    }
}

/// Errors in a check by an expression. `volumes`: whether the drill restores claims.
fn expression(field: &str, check: &DrillCheck, volumes: bool, found: &mut Findings) {
    if !check.job.is_null() || check.timeout.is_some() {
        let message = "has an expression and a Job or its timeout; make two checks of it";
        found.say(field, message);
    }
    match check.resource.as_deref() {
        None => {
            let message = "is required: give the type of the objects that the expression is about, such as \"deployments.apps\"";
            found.say(format!("{field}.resource"), message);
        }
        Some(SECRETS) => {
            let message = "values of secrets are not read by expressions; check them by a Job";
            found.say(format!("{field}.resource"), message);
        }
        Some(resource) => restored_type(format!("{field}.resource"), resource, volumes, found),
    }
    let text = check.expression.as_deref().unwrap_or_default();
    if let Err(why) = Expression::parse(text) {
        found.say(format!("{field}.expression"), why);
    }
}

/// Errors in the spec of the Job of a check.
fn job(field: &str, job: &Value, found: &mut Findings) {
    let containers = job.pointer("/template/spec/containers");
    let has_containers = containers
        .and_then(Value::as_array)
        .is_some_and(|all| !all.is_empty());
    if !has_containers {
        let message =
            "is no spec of a Job: template.spec.containers has to have the container that checks";
        found.say(format!("{field}.job"), message);
    }
}

fn positive(field: &str, duration: Option<GoDuration>, found: &mut Findings) {
    if let Some(duration) = duration.filter(|duration| *duration <= GoDuration::default()) {
        let message = format!("{duration} is no time to wait; give one such as \"10m\"");
        found.say(field, message);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::needless_pass_by_value)] // tables read better with values

    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::{
        api::DrillSpec,
        cron::Dialect,
        drill::restore_spec,
        validate::{raw_restore, raw_schedule},
    };

    fn text(found: &[Finding]) -> String {
        let all: Vec<String> = found.iter().map(ToString::to_string).collect();
        all.join("; ")
    }

    fn job() -> Value {
        json!({ "template": { "spec": { "containers": [{ "name": "c", "image": "i" }] } } })
    }

    #[rstest]
    #[case::unset(Value::Null, "")]
    #[case::newest(json!({ "every": "24h" }), "")]
    #[case::everything(
        json!({ "every": "5m", "which": "all", "includedNamespaces": ["shop"], "quota": { "pods": "20", "requests.memory": "4Gi" },
            "additionalResources": ["certificates.cert-manager.io"], "hooks": true, "volumes": true, "readyTimeout": "1m", "requireReady": true,
            "checks": [{ "name": "answers", "namespace": "shop", "job": job(), "timeout": "1m" },
                { "name": "ready", "namespace": "shop", "resource": "deployments.apps", "expression": "objects.size() > 0" }] }),
        ""
    )]
    #[case::expressions(
        json!({ "every": "24h", "checks": [
            { "name": "a", "namespace": "shop", "expression": "object.kind == 'X'", "job": job() },
            { "name": "b", "namespace": "shop", "resource": "secrets", "expression": "" },
            { "name": "c", "namespace": "shop", "resource": "namespaces", "expression": "true" }] }),
        "spec.drill.checks[0]: has an expression and a Job or its timeout; make two checks of it; spec.drill.checks[0].resource: \
         is required: give the type of the objects that the expression is about, such as \"deployments.apps\"; \
         spec.drill.checks[0].expression: names \"object\", which does not exist; the variable is objects, the list of restored \
         objects; spec.drill.checks[1].resource: values of secrets are not read by expressions; check them by a Job; \
         spec.drill.checks[1].expression: is empty; spec.drill.checks[2].resource: namespaces are not restored by a drill"
    )]
    #[case::no_interval(json!({ "which": "random" }), "spec.drill.every: is required: give the time between two drills, such as \"24h\"")]
    #[case::often(json!({ "every": "4m" }), "spec.drill.every: 4m0s is less than 5m0s, the least")]
    #[case::hardly_ever(json!({ "every": "10000h" }), "spec.drill.every: 10000h0m0s is more than 8784h0m0s, the most")]
    #[case::once_a_year(json!({ "every": "8784h" }), "")]
    #[case::undecodable(
        json!({ "checks": "all", "every": "1d", "hooks": 1 }),
        "spec.drill.checks: invalid type: string \"all\", expected a sequence; spec.drill.every: \"1d\" is not a duration: expected \
         numbers with units such as \"720h\", \"1h30m\" or \"45s\" (days are written in hours: 1d is \"24h\"); spec.drill.hooks: \
         invalid type: integer `1`, expected a boolean"
    )]
    #[case::nonsense(
        json!({ "every": "24h", "which": "oldest", "includedNamespaces": ["sh*"], "quota": { "pods": "many" },
            "additionalResources": ["persistentvolumeclaims", "Widget/x"], "readyTimeout": "0s" }),
        "spec.drill.which: \"oldest\" is not known; expected one of newest, random, all; spec.drill.includedNamespaces: \"sh*\" \
         cannot be the name of a namespace; a drill takes no globs; spec.drill.quota.pods: \"many\" is no quantity; give one such \
         as \"20\" or \"4Gi\"; spec.drill.additionalResources[0]: persistentvolumeclaims are not restored by a drill \
         without spec.drill.volumes; spec.drill.additionalResources[1]: \"Widget/x\" is no type; give the plural and the group, such as \
         \"certificates.cert-manager.io\"; spec.drill.readyTimeout: 0s is no time to wait; give one such as \"10m\""
    )]
    #[case::checks(
        json!({ "every": "24h", "includedNamespaces": ["shop"], "checks": [
            { "name": "a", "namespace": "shop", "job": job() },
            { "name": "a", "namespace": "db", "job": {}, "timeout": "-1s" },
            { "name": "A b", "namespace": "", "job": job() }] }),
        "spec.drill.checks[1].name: \"a\" is the name of another one, too; spec.drill.checks[1].namespace: \"db\" is not among the \
         namespaces that are restored; spec.drill.checks[1].timeout: -1s is no time to wait; give one such as \"10m\"; \
         spec.drill.checks[1].job: is no spec of a Job: template.spec.containers has to have the container that checks; \
         spec.drill.checks[2].name: \"A b\" cannot be the name of a check; expected up to 40 lower-case letters, digits and \
         dashes; spec.drill.checks[2].namespace: \"\" cannot be the name of a namespace"
    )]
    fn the_drills_of_a_schedule_are_checked(#[case] drill: Value, #[case] expected: &str) {
        let object = json!({ "spec": { "schedule": "@daily", "template": {}, "drill": drill } });
        assert_eq!(text(&raw_schedule(&object, &Dialect::ALL)), expected);
    }

    #[test]
    fn a_drill_has_limits() {
        let many: Vec<String> = (0..=MAX_NAMESPACES).map(|n| format!("n{n}")).collect();
        let check = |n: usize| json!({ "name": format!("c{n}"), "namespace": "n1", "job": job() });
        let checks: Vec<Value> = (0..=MAX_CHECKS).map(check).collect();
        let drill = json!({ "every": "24h", "includedNamespaces": many, "checks": checks });
        let object = json!({ "spec": { "schedule": "@daily", "template": {}, "drill": drill } });
        assert_eq!(
            text(&raw_schedule(&object, &Dialect::ALL)),
            "spec.drill.includedNamespaces: 51 are more than 50; spec.drill.checks: 11 are more than 10"
        );
    }

    /// The findings in the spec of a drill of namespace `shop` with these changes.
    fn of_restore(change: &Value) -> String {
        let namespaces = ["shop".to_owned()].into();
        let spec = restore_spec("b", "0123abcd", &namespaces, DrillSpec::default());
        let mut object = json!({ "spec": spec });
        json_patch::merge(&mut object["spec"], change);
        text(&raw_restore(&object))
    }

    #[rstest]
    #[case::nothing(json!({}), "")]
    #[case::no_drill(json!({ "drill": null, "includeClusterResources": true }), "")]
    #[case::hooks(json!({ "hooks": {}, "drill": { "hooks": true } }), "")]
    #[case::volumes(
        json!({ "restorePVs": true, "drill": { "volumes": true, "checks": [
            { "name": "a", "namespace": "shop", "resource": "persistentvolumeclaims", "expression": "objects.size() == 1" }] } }),
        ""
    )]
    #[case::volumes_that_are_not_wanted(
        json!({ "drill": { "volumes": true } }),
        "spec.restorePVs: has to be true for a drill with spec.drill.volumes"
    )]
    #[case::volumes_without_the_field(
        json!({ "restorePVs": true }),
        "spec.restorePVs: has to be false for a drill without spec.drill.volumes: its pods get empty volumes"
    )]
    #[case::no_boolean(
        json!({ "drill": { "volumes": "data" } }),
        "spec.drill.volumes: invalid type: string \"data\", expected a boolean"
    )]
    #[case::everything_at_once(
        json!({ "includeClusterResources": null, "restorePVs": null, "existingResourcePolicy": "update", "hooks": {}, "prune": true,
            "namespaceMapping": { "shop": "shop-copy" } }),
        "spec.includeClusterResources: has to be false for a drill: cluster-scoped objects have effects everywhere; spec.restorePVs: \
         has to be false for a drill without spec.drill.volumes: its pods get empty volumes; spec.existingResourcePolicy: has to be \
         \"none\" for a drill, which changes nothing that exists; spec.prune: removes objects, and a drill has nothing to remove: its \
         namespaces are new; unset one of them; spec.hooks: are not run by a drill unless spec.drill.hooks is \
         true; set that, or remove them; spec.namespaceMapping.shop: has to be a scratch namespace: drill-, 8 hex digits, a dash \
         and a name; `kubectl backup drill` chooses them"
    )]
    #[case::into_what_exists(
        json!({ "namespaceMapping": null }),
        "spec.namespaceMapping.shop: has to be a scratch namespace: drill-, 8 hex digits, a dash and a name; `kubectl backup drill` \
         chooses them"
    )]
    #[case::all_namespaces(
        json!({ "includedNamespaces": null }),
        "spec.includedNamespaces: has to name each namespace that the drill restores"
    )]
    #[case::globs(
        json!({ "includedNamespaces": ["*"] }),
        "spec.includedNamespaces: \"*\" cannot be the name of a namespace; a drill takes no globs"
    )]
    #[case::two_drills(
        json!({ "includedNamespaces": ["shop", "db"], "namespaceMapping": { "db": "drill-89abcdef-db" } }),
        "spec.namespaceMapping: has scratch namespaces of several drills; they have to begin alike"
    )]
    #[case::settings(
        json!({ "drill": { "quota": { "pods": "" }, "checks": [{ "name": "a", "namespace": "db", "job": { "template": 1 } }] } }),
        "spec.drill.quota.pods: \"\" is no quantity; give one such as \"20\" or \"4Gi\"; spec.drill.checks[0].namespace: \"db\" is \
         not among the namespaces that are restored; spec.drill.checks[0].job: is no spec of a Job: template.spec.containers has \
         to have the container that checks"
    )]
    #[case::undecodable(
        json!({ "drill": { "quota": 1, "readyTimeout": "soon" } }),
        "spec.drill.quota: invalid type: integer `1`, expected a map; spec.drill.readyTimeout: \"soon\" is not a duration: expected \
         numbers with units such as \"720h\", \"1h30m\" or \"45s\""
    )]
    #[case::no_object(json!({ "drill": true }), "spec.drill: invalid type: boolean `true`, expected struct DrillSpec")]
    fn a_drill_touches_nothing_that_exists(#[case] change: Value, #[case] expected: &str) {
        assert_eq!(of_restore(&change), expected);
    }
}
