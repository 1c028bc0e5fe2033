//! Finds every field that cannot be decoded; a decoder stops at the first one.
//!
//! Every field is decoded alone, in an otherwise empty struct, so that one failure does not hide
//! another. Nor does it hide errors in the decodable fields: they are checked as if the others were
//! not set.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{Finding, Findings, copies};
use crate::api::{
    BackupSpec, DrillSpec, RestoreSpec,
    backup::{BackupCopy, BackupHooks, BackupResourceHook, BackupResourceHookSpec, ExecHook},
    restore::{
        ExecRestoreHook, InitRestoreHook, RestoreHooks, RestoreResourceHook,
        RestoreResourceHookSpec,
    },
};

use Deeper::{Lists, Objects};

/// All errors in the `spec` of a whole Backup, as JSON: undecodable fields, and errors in the other
/// fields.
pub fn raw_backup(object: &Value) -> Vec<Finding> {
    let spec = &object["spec"];
    let own = spec["storageLocation"].as_str();
    let of_copies = raw_copies("spec.copies", &spec["copies"], own);
    let mut others = object.clone();
    if let Some(copies) = others.pointer_mut("/spec/copies") {
        *copies = Value::Null;
    }
    let mut found = with_others(&others, undecodable_backup(&others), super::engine_backup);
    found.extend(of_copies);
    found
}

/// The undecodable fields of the `spec` of a whole Backup, as JSON.
pub fn undecodable_backup(object: &Value) -> Vec<Finding> {
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

/// All errors in the `spec` of a whole Restore, as JSON: undecodable fields, and errors in the
/// other fields.
pub fn raw_restore(object: &Value) -> Vec<Finding> {
    with_others(object, undecodable_restore(object), super::engine_restore)
}

/// The undecodable fields of the `spec` of a whole Restore, as JSON.
pub fn undecodable_restore(object: &Value) -> Vec<Finding> {
    let lists = ["postHooks"];
    let mut found = Findings(raw::<RestoreSpec, RestoreHooks, RestoreResourceHookSpec>(
        object,
        &lists,
        |path, hook, found| {
            fields::<RestoreResourceHook>(
                path,
                hook,
                json!({}),
                &Objects(&["exec", "init"]),
                found,
            );
            inner::<ExecRestoreHook>(path, hook, "exec", json!({ "command": [] }), found);
            inner::<InitRestoreHook>(path, hook, "init", json!({}), found);
        },
    ));
    inner::<DrillSpec>("spec", &object["spec"], "drill", json!({}), &mut found);
    found.0
}

/// All errors in copies, as JSON; `own` is the location of the backup itself, if it is known.
pub(super) fn raw_copies(field: &str, copies: &Value, own: Option<&str>) -> Vec<Finding> {
    let mut found = Findings::default();
    let Value::Array(list) = copies else {
        if !copies.is_null() {
            found.say(field, format!("must be a list, not {}", kind(copies)));
        }
        return found.0;
    };
    copies::check_number(field, list.len(), &mut found);
    for (at, copy) in list.iter().enumerate() {
        let path = format!("{field}[{at}]");
        if copy.is_null() {
            found.say(path, "must be an object, not null");
            continue;
        }
        let location = &copy["location"];
        let mut earlier = list[..at].iter().map(|other| &other["location"]);
        let is_second = earlier.any(|other| other == location);
        let base = json!({ "location": "" });
        let errors = raw_field::<BackupCopy>(&path, copy, &base, |copy| {
            copies::of_one(&path, copy, is_second, own)
        });
        found.0.extend(errors);
    }
    found.0
}

/// Errors in one field of a spec, as JSON: fields of it that cannot be decoded, and errors in the
/// others, which are checked as if those were not set. An unset field has none. `base` has the
/// required fields of `T`.
pub(super) fn raw_field<T: DeserializeOwned>(
    path: &str,
    value: &Value,
    base: &Value,
    check: impl Fn(&T) -> Vec<Finding>,
) -> Vec<Finding> {
    if value.is_null() {
        return Vec::new();
    }
    let mut found = Findings::default();
    fields::<T>(path, value, base.clone(), &Objects(&[]), &mut found);
    let undecodable: Vec<String> = found.0.iter().map(|one| one.field.clone()).collect();
    let mut others = value.clone();
    if let Value::Object(fields) = &mut others {
        fields.retain(|key, _| !undecodable.contains(&format!("{path}.{key}")));
        for (key, value) in base.as_object().into_iter().flatten() {
            fields.entry(key).or_insert_with(|| value.clone());
        }
    }
    if let Ok(decoded) = serde_json::from_value::<T>(others) {
        // An undecodable field is not missing, neither itself nor as a part of the whole.
        let errors = check(&decoded).into_iter().filter(|error| {
            !undecodable
                .iter()
                .any(|field| field.starts_with(&error.field))
        });
        found.0.extend(errors);
    }
    found.0
}

/// Adds the errors in decodable fields. Undecodable ones are treated as unset: each alone, or if
/// that leaves no valid spec (it is required, or an item of a list) the whole field of the spec
/// that contains it.
fn with_others<Spec: DeserializeOwned>(
    object: &Value,
    mut found: Vec<Finding>,
    check: impl Fn(&Spec) -> Vec<Finding>,
) -> Vec<Finding> {
    let each: Vec<String> = found.iter().map(|finding| finding.field.clone()).collect();
    let whole: Vec<String> = each.iter().map(|field| of_spec(field).to_owned()).collect();
    let decoded = [each, whole].into_iter().find_map(|unread| {
        let mut object = object.clone();
        for field in &unread {
            if let Some(value) = object.pointer_mut(&pointer(field)) {
                *value = Value::Null;
            }
        }
        // An object without a spec has an empty one.
        let spec = object
            .get("spec")
            .filter(|spec| !spec.is_null())
            .cloned()
            .unwrap_or_else(|| json!({}));
        let spec = serde_json::from_value::<Spec>(spec).ok()?;
        Some((unread, spec))
    });
    if let Some((unread, spec)) = decoded {
        found.extend(
            check(&spec)
                .into_iter()
                .filter(|finding| !unread.iter().any(|field| finding.field.starts_with(field))),
        );
    }
    found
}

/// The path of a field as a JSON pointer. None of our field names has a dot or a bracket.
fn pointer(field: &str) -> String {
    format!(
        "/{}",
        field.replace('[', "/").replace(']', "").replace('.', "/")
    )
}

/// The field of the spec that contains a field: `spec.hooks` for `spec.hooks.resources[0]`.
fn of_spec(field: &str) -> &str {
    let end = field
        .match_indices(['.', '['])
        .nth(1)
        .map_or(field.len(), |(at, _)| at);
    &field[..end]
}

/// Checks the fields of a spec one by one. Its hooks are in `lists` of their resources; `hook`
/// checks one hook.
fn raw<Spec: DeserializeOwned, Hooks: DeserializeOwned, Resource: DeserializeOwned>(
    object: &Value,
    lists: &[&str],
    hook: impl Fn(&str, &Value, &mut Findings),
) -> Vec<Finding> {
    let mut found = Findings::default();
    let spec = &object["spec"];
    let hooks = &spec["hooks"];
    if !object.is_object() {
        found.say("", "must be an object");
    } else if !spec.is_null() {
        // An object without a spec selects everything. No Backup has a drill.
        let deeper = Objects(&["hooks", "drill"]);
        fields::<Spec>("spec", spec, json!({}), &deeper, &mut found);
    }
    if hooks.is_object() {
        fields::<Hooks>(
            "spec.hooks",
            hooks,
            json!({}),
            &Lists(&["resources"]),
            &mut found,
        );
    }
    for (path, resource) in items("spec.hooks.resources", &hooks["resources"]) {
        fields::<Resource>(
            &path,
            resource,
            json!({ "name": "" }),
            &Lists(lists),
            &mut found,
        );
        for list in lists {
            for (path, one) in items(&format!("{path}.{list}"), &resource[list]) {
                hook(&path, one, &mut found);
            }
        }
    }
    found.0
}

/// Checks the object in this field, if it is an object.
fn inner<T: DeserializeOwned>(
    path: &str,
    outer: &Value,
    field: &str,
    base: Value,
    found: &mut Findings,
) {
    if outer[field].is_object() {
        fields::<T>(
            &format!("{path}.{field}"),
            &outer[field],
            base,
            &Objects(&[]),
            found,
        );
    }
}

/// Fields that the caller checks itself, if they have this shape.
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

/// Decodes each field of an object alone into `T`. `base` has the required fields of `T`.
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
    let base = if let Value::Object(base) = base {
        base
    } else {
        Map::new()
    };
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

/// The items of a list with their paths; empty if it is no list.
fn items<'a>(path: &str, value: &'a Value) -> impl Iterator<Item = (String, &'a Value)> {
    let path = path.to_owned();
    value
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
        .map(move |(at, item)| (format!("{path}[{at}]"), item))
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
