//! Small helpers to walk JSON objects.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

pub type Object = Map<String, Value>;

/// The object at `path`, if every step exists and is an object.
pub fn object<'a>(from: &'a Object, path: &[&str]) -> Option<&'a Object> {
    let mut here = from;
    for step in path {
        here = here.get(*step)?.as_object()?;
    }
    Some(here)
}

pub(crate) fn object_mut<'a>(from: &'a mut Object, path: &[&str]) -> Option<&'a mut Object> {
    let mut here = from;
    for step in path {
        here = here.get_mut(*step)?.as_object_mut()?;
    }
    Some(here)
}

/// Sets `key` in the object at `path`; steps that are missing, null or of another type are replaced
/// by empty objects.
pub fn set(into: &mut Object, path: &[&str], key: &str, value: Value) {
    let Some((step, rest)) = path.split_first() else {
        into.insert(key.to_owned(), value);
        return;
    };
    let mut inner = match into.remove(*step) {
        Some(Value::Object(inner)) => inner,
        _ => Object::new(),
    };
    set(&mut inner, rest, key, value);
    into.insert((*step).to_owned(), Value::Object(inner));
}

/// The list `key` of the object at `path`, for changing.
pub(crate) fn list_mut<'a>(
    from: &'a mut Object,
    path: &[&str],
    key: &str,
) -> Option<&'a mut Vec<Value>> {
    object_mut(from, path)?.get_mut(key)?.as_array_mut()
}

pub fn text<'a>(from: &'a Object, path: &[&str], key: &str) -> Option<&'a str> {
    object(from, path)?.get(key)?.as_str()
}

/// Whether `key` of the object at `path` is the boolean true.
pub(crate) fn is_true(from: &Object, path: &[&str], key: &str) -> bool {
    object(from, path)
        .and_then(|o| o.get(key))
        .and_then(Value::as_bool)
        == Some(true)
}

/// Removes keys of the object at `path`; removes the object itself if it had keys and is empty
/// afterwards.
pub fn remove(from: &mut Object, path: &[&str], keys: &[&str]) {
    let Some(target) = object_mut(from, path) else {
        return;
    };
    let before = target.len();
    for key in keys {
        target.remove(*key);
    }
    if before == 0 || !target.is_empty() {
        return;
    }
    if let Some((last, parents)) = path.split_last()
        && let Some(parent) = object_mut(from, parents)
    {
        parent.remove(*last);
    }
}

pub fn labels(item: &Object) -> BTreeMap<String, String> {
    let labels = object(item, &["metadata", "labels"]).into_iter().flatten();
    labels
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}
