//! Finds each field that cannot be decoded, where the decoder itself stops at the first.
//!
//! Every field is decoded alone, in an otherwise empty struct, so that one failure does not hide another.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::Finding;
use crate::api::{
    BackupSpec, RestoreSpec,
    backup::{BackupHooks, BackupResourceHook, BackupResourceHookSpec, ExecHook},
    restore::{ExecRestoreHook, InitRestoreHook, RestoreHooks, RestoreResourceHook, RestoreResourceHookSpec},
};

/// What cannot be decoded in the `spec` of a whole Backup, as JSON.
pub fn raw_backup(object: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    spec::<BackupSpec>(object, &mut findings, |hooks, findings| {
        nested::<BackupHooks>("spec.hooks", hooks, json!({}), &["resources[]"], findings);
        for (field, hook) in items("spec.hooks.resources", &hooks["resources"]) {
            nested::<BackupResourceHookSpec>(
                &field,
                hook,
                json!({ "name": "" }),
                &["pre[]", "post[]"],
                findings,
            );
            for list in ["pre", "post"] {
                for (field, hook) in items(&format!("{field}.{list}"), &hook[list]) {
                    nested::<BackupResourceHook>(
                        &field,
                        hook,
                        json!({ "exec": { "command": [] } }),
                        &["exec"],
                        findings,
                    );
                    let exec = format!("{field}.exec");
                    if hook["exec"].is_object() {
                        nested::<ExecHook>(&exec, &hook["exec"], json!({ "command": [] }), &[], findings);
                    }
                }
            }
        }
    });
    findings
}

/// What cannot be decoded in the `spec` of a whole Restore, as JSON.
pub fn raw_restore(object: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    spec::<RestoreSpec>(object, &mut findings, |hooks, findings| {
        nested::<RestoreHooks>("spec.hooks", hooks, json!({}), &["resources[]"], findings);
        for (field, hook) in items("spec.hooks.resources", &hooks["resources"]) {
            nested::<RestoreResourceHookSpec>(
                &field,
                hook,
                json!({ "name": "" }),
                &["postHooks[]"],
                findings,
            );
            for (field, hook) in items(&format!("{field}.postHooks"), &hook["postHooks"]) {
                nested::<RestoreResourceHook>(&field, hook, json!({}), &["exec", "init"], findings);
                let (exec, init) = (format!("{field}.exec"), format!("{field}.init"));
                if hook["exec"].is_object() {
                    nested::<ExecRestoreHook>(&exec, &hook["exec"], json!({ "command": [] }), &[], findings);
                }
                if hook["init"].is_object() {
                    nested::<InitRestoreHook>(&init, &hook["init"], json!({}), &[], findings);
                }
            }
        }
    });
    findings
}

/// Checks the fields of a spec one by one; `hooks` looks deeper into the hooks.
fn spec<T: DeserializeOwned>(
    object: &Value,
    findings: &mut Vec<Finding>,
    hooks: impl Fn(&Value, &mut Vec<Finding>),
) {
    if !object.is_object() {
        findings.push(Finding::new("", "must be an object"));
        return;
    }
    let spec = &object["spec"];
    if spec.is_null() {
        // An object without a spec asks for everything.
        return;
    }
    nested::<T>("spec", spec, json!({}), &["hooks"], findings);
    if spec["hooks"].is_object() {
        hooks(&spec["hooks"], findings);
    }
}

/// Decodes each field of an object alone into `T`. `base` has what `T` requires; `deeper` are the objects, and
/// with `[]` the lists, that the caller looks into itself.
fn nested<T: DeserializeOwned>(
    path: &str,
    value: &Value,
    base: Value,
    deeper: &[&str],
    findings: &mut Vec<Finding>,
) {
    let Value::Object(fields) = value else {
        findings.push(Finding::new(path, format!("must be an object, not {}", kind(value))));
        return;
    };
    let base = if let Value::Object(base) = base { base } else { Map::new() };
    for required in base.keys().filter(|key| !fields.contains_key(*key)) {
        findings.push(Finding::new(format!("{path}.{required}"), "is required"));
    }
    for (key, value) in fields {
        let looked_into = match value {
            Value::Object(_) => deeper.contains(&key.as_str()),
            Value::Array(_) => deeper.contains(&format!("{key}[]").as_str()),
            _ => false,
        };
        if looked_into {
            continue;
        }
        let mut alone = base.clone();
        alone.insert(key.clone(), value.clone());
        if let Err(error) = serde_json::from_value::<T>(Value::Object(alone)) {
            findings.push(Finding::new(format!("{path}.{key}"), error.to_string()));
        }
    }
}

/// The items of a list with their paths; nothing if it is no list.
fn items<'a>(path: &str, value: &'a Value) -> impl Iterator<Item = (String, &'a Value)> {
    let path = path.to_owned();
    value.as_array().into_iter().flatten().enumerate().map(move |(at, item)| (format!("{path}[{at}]"), item))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
