//! Helpers for JSON of any shape.

use serde_json::{Map, Value};

/// A non-empty text.
pub fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
}

/// The items of a list; empty if there is no list.
pub fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

pub fn object<'a>(value: &'a mut Value, pointer: &str) -> Option<&'a mut Map<String, Value>> {
    value.pointer_mut(pointer).and_then(Value::as_object_mut)
}

/// Sets entries of the `labels` or `annotations` of an object.
pub fn entries<const N: usize>(object: &mut Value, kind: &str, entries: [(&str, &str); N]) {
    if !object["metadata"][kind].is_object() {
        object["metadata"][kind] = Value::Object(Map::new());
    }
    for (key, value) in entries {
        object["metadata"][kind][key] = Value::from(value);
    }
}
