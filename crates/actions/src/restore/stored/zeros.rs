//! Zeros that a resource modifier sets. A built-in type omits some of its fields if they are false,
//! empty or 0, which means the same; so a zero that a user sets and the server omits is no loss. A
//! zero in the backup was stored by a server: if it is missing, something is lost. Whether a custom
//! resource may omit one depends on its definition, so there it counts as a loss, too.

use serde_json::{Map, Value};

use super::Object;

/// `wanted` without the zeros that are neither in `unmodified` nor in `stored`.
pub(super) fn without(wanted: &Object, unmodified: &Object, stored: &Object) -> Object {
    let mut wanted = wanted.clone();
    remove(&mut wanted, Some(unmodified), stored);
    wanted
}

fn remove(
    wanted: &mut Map<String, Value>,
    before: Option<&Map<String, Value>>,
    stored: &Map<String, Value>,
) {
    wanted.retain(|key, value| {
        let was = before.and_then(|before| before.get(key));
        if was == Some(value) {
            return true;
        }
        let Some(stored) = stored.get(key) else {
            return !is_zero(value);
        };
        remove_inside(value, was, stored);
        true
    });
}

fn remove_inside(wanted: &mut Value, before: Option<&Value>, stored: &Value) {
    match (wanted, stored) {
        (Value::Object(wanted), Value::Object(stored)) => {
            remove(wanted, before.and_then(Value::as_object), stored);
        }
        (Value::Array(wanted), Value::Array(stored)) => {
            let before = before.and_then(Value::as_array);
            for (index, element) in wanted.iter_mut().enumerate() {
                let was = before.and_then(|before| counterpart(before, index, element));
                let Some(stored) = counterpart(stored, index, element) else {
                    continue;
                };
                if was != Some(element) {
                    remove_inside(element, was, stored);
                }
            }
        }
        _ => {}
    }
}

/// The element of the same name; if elements have no names, the one at the same position.
fn counterpart<'a>(list: &'a [Value], index: usize, element: &Value) -> Option<&'a Value> {
    match element.get("name").filter(|name| name.is_string()) {
        Some(name) => list.iter().find(|other| other.get("name") == Some(name)),
        None => list.get(index),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.values().all(is_zero),
    }
}
