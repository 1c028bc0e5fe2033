//! Equality of objects, and which values count as absent in it. Pure.

use serde_json::Value;

use super::json::Object;

/// Whether two objects that were rewritten by the same rules are equal. A null field counts as
/// absent. So does an empty one, but only at the top of the object and in its metadata: further
/// down the meaning may be the opposite, as an empty selector selects everything and an absent one
/// nothing.
pub fn same_objects(a: &Object, b: &Object) -> bool {
    a.iter().all(|(key, value)| match b.get(key) {
        None => counts_as_absent(key, value),
        Some(other) => {
            if key == "metadata" {
                same(value, other, is_nothing)
            } else {
                same(value, other, Value::is_null) || is_empty(value) && is_empty(other)
            }
        }
    }) && b
        .iter()
        .all(|(key, value)| a.contains_key(key) || counts_as_absent(key, value))
}

/// The same for a field at the top of an object.
fn counts_as_absent(key: &str, value: &Value) -> bool {
    if key == "metadata" {
        is_nothing(value)
    } else {
        is_empty(value)
    }
}

/// Whether two values are equal, where `is_absent` defines which values count as absent.
pub fn same(a: &Value, b: &Value, is_absent: fn(&Value) -> bool) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.iter().all(|(k, v)| {
                b.get(k)
                    .map_or_else(|| is_absent(v), |w| same(v, w, is_absent))
            }) && b.iter().all(|(k, w)| a.contains_key(k) || is_absent(w))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(x, y)| same(x, y, is_absent))
        }
        _ => a == b || (is_absent(a) && is_absent(b)),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// Whether a value is empty, or contains only empty values.
pub fn is_nothing(value: &Value) -> bool {
    is_empty(value)
        || value
            .as_object()
            .is_some_and(|map| map.values().all(is_nothing))
}
