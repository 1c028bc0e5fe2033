//! Changes of a resource modifier, in the comparison with an object of the cluster.
//!
//! That object was rewritten by the same rules as the item before the modifier: the rewriting may
//! have removed values that the modifier sets, and the cluster has added defaults to values that
//! the modifier adds. Neither counts as a difference.

use serde_json::Value;

use crate::restore::{equality::same, json::Object};

/// Sets `seen`, the rewritten object of the cluster, to `wanted` wherever the modifier has changed
/// a value and the object has it. `in_cluster` is the unchanged object.
pub(super) fn accept(seen: &mut Object, in_cluster: &Object, wanted: &Object, unmodified: &Object) {
    for (key, value) in wanted {
        let before = unmodified.get(key);
        if before == Some(value) {
            continue;
        }
        let found = in_cluster.get(key);
        let is_covered = [found, seen.get(key)]
            .into_iter()
            .flatten()
            .any(|found| covers(found, value, before));
        if is_covered {
            seen.insert(key.clone(), value.clone());
        } else if let (
            Value::Object(value),
            Some(Value::Object(found)),
            Some(Value::Object(before)),
        ) = (value, found, before)
        {
            let mut inner = match seen.remove(key) {
                Some(Value::Object(inner)) => inner,
                _ => Object::new(),
            };
            accept(&mut inner, found, value, before);
            seen.insert(key.clone(), Value::Object(inner));
        }
    }
}

/// Whether a value matches the wanted one. A value that the modifier has added may have more
/// fields: the cluster adds defaults.
fn covers(found: &Value, wanted: &Value, before: Option<&Value>) -> bool {
    if before == Some(wanted) {
        return same(found, wanted, Value::is_null);
    }
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            let before = before.and_then(Value::as_object);
            let has_all = wanted.iter().all(|(key, value)| {
                let inner = before.and_then(|before| before.get(key));
                found
                    .get(key)
                    .map_or_else(|| value.is_null(), |found| covers(found, value, inner))
            });
            has_all
                && (before.is_none()
                    || found
                        .iter()
                        .all(|(key, value)| wanted.contains_key(key) || value.is_null()))
        }
        (Value::Array(found), Value::Array(wanted)) => {
            let before = before.and_then(Value::as_array);
            let is_same_length = before.is_some_and(|before| before.len() == wanted.len());
            let mut pairs = found.iter().zip(wanted).enumerate();
            found.len() == wanted.len()
                && pairs.all(|(index, (found, item))| {
                    let before = before.and_then(|before| {
                        let equal = before.iter().find(|before| *before == item);
                        equal.or_else(|| before.get(index).filter(|_| is_same_length))
                    });
                    covers(found, item, before)
                })
        }
        _ => same(found, wanted, Value::is_null),
    }
}
