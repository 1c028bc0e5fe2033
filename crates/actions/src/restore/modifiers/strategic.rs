//! Strategic merge patches: merge patches that know which lists are merged
//! (`k8s.io/apimachinery/pkg/util/strategicpatch`).

use backup_core::config_map::join;
use serde_json::Value;

use super::merge_keys::{self, ListMerge};
use crate::restore::json::Object;

/// Says how an object, or the item of a list, that contains it is treated.
const DIRECTIVE: &str = "$patch";
/// Lists the only fields that an object keeps.
const RETAIN_KEYS: &str = "$retainKeys";
/// Prefix of a list of values to remove from the list named by the rest of the field name.
const DELETE_VALUES: &str = "$deleteFromPrimitiveList/";

/// Checks a patch for errors that do not depend on the item.
pub(super) fn check(patch: &Object) -> Result<(), String> {
    for (key, value) in patch {
        let known = match key.as_str() {
            DIRECTIVE => matches!(value.as_str(), Some("replace" | "delete")),
            RETAIN_KEYS => value.is_array(),
            _ => !key.starts_with('$') || key.starts_with(DELETE_VALUES) && value.is_array(),
        };
        if !known {
            return Err(format!(
                "{key}: {value} is not followed here; known are $patch with replace or delete, $retainKeys and \
                 {DELETE_VALUES}<field> with lists"
            ));
        }
        let inner = match value {
            Value::Array(items) => items.as_slice(),
            one => std::slice::from_ref(one),
        };
        for object in inner.iter().filter_map(Value::as_object) {
            check(object)?;
        }
    }
    Ok(())
}

/// Merges a patch that passed [`check`] into an item of this type.
pub(super) fn merge(
    item: &mut Value,
    patch: &Object,
    api_version: &str,
    kind: &str,
) -> Result<(), String> {
    if !merge_keys::is_known(api_version) {
        return Err(format!(
            "{api_version} {kind} is no type of Kubernetes itself, so how its lists are merged is not known: use mergePatches or \
             patches"
        ));
    }
    let Value::Object(object) = item else {
        return Err("it is no object".to_owned());
    };
    *object = Merge { kind }.objects(std::mem::take(object), patch, "")?;
    Ok(())
}

struct Merge<'a> {
    kind: &'a str,
}

impl Merge<'_> {
    fn objects(&self, mut original: Object, patch: &Object, at: &str) -> Result<Object, String> {
        match patch.get(DIRECTIVE).and_then(Value::as_str) {
            Some("delete") => return Ok(Object::new()),
            Some(_) => return Ok(plain_object(patch)),
            None => {}
        }
        if let Some(kept) = patch.get(RETAIN_KEYS).and_then(Value::as_array) {
            if let Some(other) = patch
                .keys()
                .find(|key| !key.starts_with('$') && !has_text(kept, key))
            {
                return Err(format!(
                    "{RETAIN_KEYS} does not name {other:?}, which the patch sets"
                ));
            }
            original.retain(|key, _| has_text(kept, key));
        }
        for (key, gone) in patch {
            if let Some(list) = key
                .strip_prefix(DELETE_VALUES)
                .and_then(|list| original.get_mut(list)?.as_array_mut())
                && let Some(gone) = gone.as_array()
            {
                list.retain(|value| !gone.contains(value));
            }
        }
        for (key, wanted) in patch.iter().filter(|(key, _)| !key.starts_with('$')) {
            let at = join(at, key);
            let merged = match (original.remove(key), wanted) {
                (_, Value::Null) => continue,
                (Some(Value::Object(original)), Value::Object(patch))
                    if !merge_keys::is_replaced(self.kind, &at) =>
                {
                    Value::Object(self.objects(original, patch, &at)?)
                }
                (Some(Value::Array(original)), Value::Array(patch)) => {
                    Value::Array(self.lists(original, patch, &at)?)
                }
                (_, wanted) => plain(wanted),
            };
            original.insert(key.clone(), merged);
        }
        Ok(original)
    }

    fn lists(&self, original: Vec<Value>, patch: &[Value], at: &str) -> Result<Vec<Value>, String> {
        match merge_keys::of(self.kind, at) {
            None => Ok(plain_list(patch)),
            Some(ListMerge::Values) => {
                let mut merged = original.clone();
                for value in patch {
                    if !merged.contains(value) {
                        merged.push(value.clone());
                    }
                }
                Ok(in_order(merged, patch, &original, |a, b| a == b))
            }
            Some(ListMerge::Key(key)) => self.keyed(original, patch, at, key),
        }
    }

    fn keyed(
        &self,
        mut original: Vec<Value>,
        patch: &[Value],
        at: &str,
        key: &str,
    ) -> Result<Vec<Value>, String> {
        if patch.iter().any(|item| directive(item) == Some("replace")) {
            let rest: Vec<Value> = patch
                .iter()
                .filter(|item| directive(item).is_none())
                .cloned()
                .collect();
            return Ok(plain_list(&rest));
        }
        if let Some(item) = patch.iter().find(|item| item.get(key).is_none()) {
            return Err(format!(
                "an item of {at} has no {key}, by which its items are told apart: {item}"
            ));
        }
        let (gone, rest): (Vec<&Value>, Vec<&Value>) =
            patch.iter().partition(|item| directive(item).is_some());
        original.retain(|item| !gone.iter().any(|gone| gone.get(key) == item.get(key)));
        let mut merged = original.clone();
        for wanted in &rest {
            match merged
                .iter_mut()
                .find(|item| item.get(key) == wanted.get(key))
            {
                Some(Value::Object(item)) => {
                    let Value::Object(wanted) = wanted else {
                        continue;
                    };
                    *item = self.objects(std::mem::take(item), wanted, at)?;
                }
                _ => merged.push(plain(wanted)),
            }
        }
        let rest: Vec<Value> = rest.into_iter().cloned().collect();
        Ok(in_order(merged, &rest, &original, |a, b| {
            a.get(key) == b.get(key)
        }))
    }
}

fn has_text(list: &[Value], text: &str) -> bool {
    list.iter().any(|one| one == text)
}

fn directive(item: &Value) -> Option<&str> {
    item.get(DIRECTIVE)?.as_str()
}

/// Orders a merged list: the patch's items in the patch's order, the others in the original order,
/// and a new item before the original items that follow it. (`mergeSortedSlice`; the first
/// container of a pod is the default of `kubectl exec`.)
fn in_order(
    merged: Vec<Value>,
    patch: &[Value],
    original: &[Value],
    same: impl Fn(&Value, &Value) -> bool,
) -> Vec<Value> {
    let (mut patched, others): (Vec<Value>, Vec<Value>) = merged
        .into_iter()
        .partition(|item| place(patch, item, &same).is_some());
    patched.sort_by_key(|item| place(patch, item, &same));
    let mut ordered = Vec::with_capacity(patched.len() + others.len());
    let mut others = others.into_iter().peekable();
    for item in patched {
        let index = place(original, &item, &same);
        while let Some(other) = others
            .next_if(|other| index.is_some_and(|index| place(original, other, &same) < Some(index)))
        {
            ordered.push(other);
        }
        ordered.push(item);
    }
    ordered.extend(others);
    ordered
}

fn place(list: &[Value], item: &Value, same: &impl Fn(&Value, &Value) -> bool) -> Option<usize> {
    list.iter().position(|other| same(other, item))
}

/// The value that a patch sets where no value was: without its nulls and directives.
fn plain(value: &Value) -> Value {
    match value {
        Value::Object(object) => Value::Object(plain_object(object)),
        Value::Array(items) => Value::Array(plain_list(items)),
        other => other.clone(),
    }
}

fn plain_object(object: &Object) -> Object {
    let set = object
        .iter()
        .filter(|(key, value)| !key.starts_with('$') && !value.is_null());
    set.map(|(key, value)| (key.clone(), plain(value)))
        .collect()
}

fn plain_list(items: &[Value]) -> Vec<Value> {
    items
        .iter()
        .filter(|item| item.get(DIRECTIVE).is_none())
        .map(plain)
        .collect()
}
