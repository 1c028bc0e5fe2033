//! Finds each field that cannot be decoded, where the decoder itself stops at the first.
//!
//! Every field is decoded alone, in an otherwise empty struct, so that one failure does not hide another.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{Finding, Findings};
use crate::api::{
    BackupSpec, RestoreSpec,
    backup::{BackupHooks, BackupResourceHook, BackupResourceHookSpec, ExecHook},
    restore::{ExecRestoreHook, InitRestoreHook, RestoreHooks, RestoreResourceHook, RestoreResourceHookSpec},
};

use Deeper::{Lists, Objects};

/// What cannot be decoded in the `spec` of a whole Backup, as JSON.
pub fn raw_backup(object: &Value) -> Vec<Finding> {
    let lists = ["pre", "post"];
    raw::<BackupSpec, BackupHooks, BackupResourceHookSpec>(object, &lists, |path, hook, found| {
        fields::<BackupResourceHook>(
            path,
            hook,
            json!({ "exec": { "command": [] } }),
            &Objects(&["exec"]),
            found,
        );
        inner::<ExecHook>(path, hook, "exec", json!({ "command": [] }), found);
    })
}

/// What cannot be decoded in the `spec` of a whole Restore, as JSON.
pub fn raw_restore(object: &Value) -> Vec<Finding> {
    raw::<RestoreSpec, RestoreHooks, RestoreResourceHookSpec>(object, &["postHooks"], |path, hook, found| {
        fields::<RestoreResourceHook>(path, hook, json!({}), &Objects(&["exec", "init"]), found);
        inner::<ExecRestoreHook>(path, hook, "exec", json!({ "command": [] }), found);
        inner::<InitRestoreHook>(path, hook, "init", json!({}), found);
    })
}

/// Checks the fields of a spec one by one. Its hooks are in `lists` of the resources that they are for; `hook` looks into one.
fn raw<Spec: DeserializeOwned, Hooks: DeserializeOwned, Resource: DeserializeOwned>(
    object: &Value,
    lists: &[&str],
    hook: impl Fn(&str, &Value, &mut Findings),
) -> Vec<Finding> {
    let mut found = Findings::default();
    let (spec, hooks) = (&object["spec"], &object["spec"]["hooks"]);
    if !object.is_object() {
        found.say("", "must be an object");
    } else if !spec.is_null() {
        // An object without a spec asks for everything.
        fields::<Spec>("spec", spec, json!({}), &Objects(&["hooks"]), &mut found);
    }
    if hooks.is_object() {
        fields::<Hooks>("spec.hooks", hooks, json!({}), &Lists(&["resources"]), &mut found);
    }
    for (path, resource) in items("spec.hooks.resources", &hooks["resources"]) {
        fields::<Resource>(&path, resource, json!({ "name": "" }), &Lists(lists), &mut found);
        for list in lists {
            for (path, one) in items(&format!("{path}.{list}"), &resource[list]) {
                hook(&path, one, &mut found);
            }
        }
    }
    found.0
}

/// Checks the object that is in this field, if it is one.
fn inner<T: DeserializeOwned>(path: &str, outer: &Value, field: &str, base: Value, found: &mut Findings) {
    if outer[field].is_object() {
        fields::<T>(&format!("{path}.{field}"), &outer[field], base, &Objects(&[]), found);
    }
}

/// Fields that the caller looks into itself, where they are of this shape.
enum Deeper<'a> {
    Objects(&'a [&'a str]),
    Lists(&'a [&'a str]),
}

impl Deeper<'_> {
    fn has(&self, key: &str, value: &Value) -> bool {
        match self {
            Self::Objects(names) => value.is_object() && names.contains(&key),
            Self::Lists(names) => value.is_array() && names.contains(&key),
        }
    }
}

/// Decodes each field of an object alone into `T`. `base` has what `T` requires.
fn fields<T: DeserializeOwned>(
    path: &str,
    value: &Value,
    base: Value,
    deeper: &Deeper<'_>,
    found: &mut Findings,
) {
    let Value::Object(fields) = value else {
        found.say(path, format!("must be an object, not {}", kind(value)));
        return;
    };
    let base = if let Value::Object(base) = base { base } else { Map::new() };
    for required in base.keys().filter(|key| !fields.contains_key(*key)) {
        found.say(format!("{path}.{required}"), "is required");
    }
    for (key, value) in fields.iter().filter(|(key, value)| !deeper.has(key, value)) {
        let mut alone = base.clone();
        alone.insert(key.clone(), value.clone());
        if let Err(error) = serde_json::from_value::<T>(Value::Object(alone)) {
            found.say(format!("{path}.{key}"), error.to_string());
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
