//! Compares the stored object with the request that wrote it. Pure.
//!
//! The answer to a write contains the stored object. Requested fields that are missing in it were
//! pruned by a definition, or removed by a webhook or by the server itself. Fields that the server
//! adds, defaults or only writes in another form are no loss.

use backup_core::resources::builtin_types;
use serde_json::{Number, Value};

use super::{
    equality,
    json::{self, Object},
    mapped_links::METADATA_NAME,
};

mod contained;
mod spelling;
mod zeros;

/// Maximum number of fields of one object that are named; others are only counted.
const MAX_NAMED: usize = 8;
/// Maximum length of lists that are compared in any order; longer ones are compared by position.
const MAX_UNORDERED: usize = 256;

/// Fields of `metadata` that the server sets.
const OF_SERVER: [&str; 8] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "selfLink",
    "generateName",
    "namespace",
];
/// Fields that servers of some versions omit if they are empty, with the same meaning.
const SAME_WHEN_EMPTY: [&str; 7] = [
    "status",
    "resources",
    "securityContext",
    "strategy",
    "updateStrategy",
    "loadBalancer",
    "metadata",
];
/// Labels and annotations that the server overrides with its own values.
const SET_BY_SERVER: [&str; 2] = [METADATA_NAME, "deprecated.daemonset.template.generation"];

/// A write request to an API server.
#[derive(Clone, Copy, Debug)]
pub struct WriteRequest<'a> {
    pub group_resource: &'a str,
    /// The object, or a merge patch.
    pub body: &'a Object,
    /// The object without the changes of resource modifiers, if they have changed it.
    pub unmodified: Option<&'a Object>,
}

/// Requested fields that were not stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostFields {
    /// The first lost fields: `spec.tls.minVersion`, `spec.containers[app].image`.
    pub named: Vec<String>,
    pub total: usize,
}

impl LostFields {
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }
}

impl std::fmt::Display for LostFields {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&backup_core::text::listed(&self.named, self.total))
    }
}

impl WriteRequest<'_> {
    /// The requested fields that the answer to a write lacks. Most answers lack nothing, and are
    /// only scanned. Errors: the answer is no JSON object.
    pub fn lost_in_answer(&self, answer: &[u8]) -> Result<LostFields, serde_json::Error> {
        if self.group_resource != "services" && contained::contains(answer, self.body)? {
            return Ok(LostFields::default());
        }
        Ok(self.lost(&serde_json::from_slice(answer)?))
    }

    /// The requested fields that an object lacks, or has with another value.
    pub fn lost(&self, stored: &Object) -> LostFields {
        self.compared(stored, true)
    }

    /// The requested fields that an object lacks entirely. For an object that others may have
    /// changed meanwhile.
    pub fn absent(&self, stored: &Object) -> LostFields {
        self.compared(stored, false)
    }

    fn compared(&self, stored: &Object, changed: bool) -> LostFields {
        let mut comparison = Comparison {
            changed,
            lost: LostFields::default(),
        };
        let with_zeros = self.unmodified.filter(|_| self.is_built_in());
        let body = with_zeros.map(|unmodified| zeros::without(self.body, unmodified, stored));
        let body = body
            .as_ref()
            .unwrap_or(self.body)
            .iter()
            .filter(|(key, _)| key.as_str() != "stringData");
        for (key, asked) in body {
            comparison.field(key, key, asked, stored.get(key));
        }
        let mut lost = comparison.lost;
        if changed
            && self.group_resource == "services"
            && is_headless(stored)
            && !self.may_be_headless()
        {
            lost.total += 1;
            lost.named
                .push("spec.clusterIP (an address; the service stays headless)".to_owned());
        }
        lost
    }

    fn is_built_in(&self) -> bool {
        builtin_types(self.group_resource)
            .any(|of_type| of_type.group_resource() == self.group_resource)
    }

    /// Whether the request is for a service that may have no address.
    fn may_be_headless(&self) -> bool {
        let Some(spec) = json::object(self.body, &["spec"]) else {
            return true;
        };
        // A patch without the field requests nothing about it.
        let leaves = !json::object(self.body, &["metadata"])
            .is_some_and(|of| of.contains_key("name"))
            && !spec.contains_key("clusterIP");
        leaves || is_headless(self.body)
    }
}

fn is_headless(service: &Object) -> bool {
    json::text(service, &["spec"], "clusterIP") == Some("None")
}

/// Whether a write has changed more of an object than every write does.
pub fn is_changed(before: &Object, after: &Object) -> bool {
    !equality::same_objects(&without_marks(before), &without_marks(after))
}

/// The object without the fields of the server and the labels of a restore.
fn without_marks(object: &Object) -> Object {
    let mut object = super::transform::stripped(object);
    for label in super::existing::OURS {
        json::remove(&mut object, &["metadata", "labels"], &[label]);
    }
    object
}

struct Comparison {
    /// Whether a field with another value counts as lost, too.
    changed: bool,
    lost: LostFields,
}

impl Comparison {
    fn field(&mut self, path: &str, key: &str, asked: &Value, stored: Option<&Value>) {
        let is_metadata = path.starts_with("metadata.");
        let is_own = is_metadata && path.split('.').count() == 2 && OF_SERVER.contains(&key);
        if is_own || is_metadata && SET_BY_SERVER.contains(&key) {
            return;
        }
        if matches!(stored, None | Some(Value::Null)) && is_nothing(path, key, asked) {
            return;
        }
        match stored {
            None => self.lose(path),
            Some(stored) => self.value(path, asked, stored),
        }
    }

    fn value(&mut self, path: &str, asked: &Value, stored: &Value) {
        match (asked, stored) {
            (Value::Null, _) => {}
            (Value::Array(asked), Value::Null) if asked.is_empty() => {}
            (Value::Object(asked), Value::Object(stored)) => {
                for (key, asked) in asked {
                    let stored = stored.get(key);
                    self.field(&join(path, key), key, asked, stored);
                }
            }
            (Value::Array(asked), Value::Array(stored)) => self.list(path, asked, stored),
            _ => {
                if self.changed && asked != stored && !Self::is_same(path, asked, stored) {
                    self.lose(path);
                }
            }
        }
    }

    /// Every requested element must be contained in a different stored element.
    fn list(&mut self, path: &str, asked: &[Value], stored: &[Value]) {
        let mut left: Vec<Option<&Value>> = stored.iter().map(Some).collect();
        let mut unmatched = Vec::new();
        let unordered = asked.len().max(stored.len()) <= MAX_UNORDERED;
        for (index, element) in asked.iter().enumerate() {
            let here = left
                .get_mut(index)
                .filter(|left| left.is_some_and(|left| Self::holds(path, element, left)));
            if let Some(here) = here {
                *here = None;
            } else {
                unmatched.push((index, element));
            }
        }
        for (index, element) in unmatched {
            if unordered
                && let Some(at) = left
                    .iter()
                    .position(|left| left.is_some_and(|left| Self::holds(path, element, left)))
            {
                left[at] = None;
                continue;
            }
            let name = element.get("name").filter(|name| name.is_string());
            let shown = name
                .and_then(Value::as_str)
                .map_or_else(|| index.to_string(), str::to_owned);
            let path = format!("{path}[{shown}]");
            let counterpart =
                counterpart(index, element, name, &left).and_then(|at| left[at].take());
            if let Some(stored) = counterpart {
                self.value(&path, element, stored);
            } else if !element.is_null() {
                self.lose(&path);
            }
        }
    }

    fn holds(path: &str, asked: &Value, stored: &Value) -> bool {
        let mut inner = Self {
            changed: true,
            lost: LostFields::default(),
        };
        inner.value(path, asked, stored);
        inner.lost.is_empty()
    }

    /// Whether a scalar is stored in another form.
    fn is_same(path: &str, asked: &Value, stored: &Value) -> bool {
        if let (Value::Number(asked), Value::Number(stored)) = (asked, stored) {
            return same_number(asked, stored);
        }
        // Free text must be stored unchanged.
        let top = path.split(['.', '[']).next().unwrap_or_default();
        let is_text = matches!(top, "data" | "binaryData" | "metadata");
        match (scalar_text(asked), scalar_text(stored)) {
            (Some(asked), Some(stored)) => !is_text && spelling::is_same(&asked, &stored),
            _ => false,
        }
    }

    fn lose(&mut self, path: &str) {
        self.lost.total += 1;
        if self.lost.named.len() < MAX_NAMED {
            self.lost
                .named
                .push(backup_core::text::shortened(path, 128));
        }
    }
}

/// The position of the stored element of a list that has the name of a requested one, or without a
/// name the place.
fn counterpart(
    index: usize,
    element: &Value,
    name: Option<&Value>,
    left: &[Option<&Value>],
) -> Option<usize> {
    if name.is_some() {
        return left
            .iter()
            .position(|left| left.is_some_and(|left| left.get("name") == name));
    }
    let here = left.get(index).copied().flatten();
    (here.is_some_and(Value::is_object) && element.is_object()).then_some(index)
}

fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Whether a value counts as absent. A zero does not: the server of the backed-up cluster has
/// stored it.
fn is_nothing(path: &str, key: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty() && may_be_empty(path, key),
        Value::Object(map) => {
            may_be_empty(path, key)
                && map
                    .iter()
                    .all(|(key, value)| is_nothing(&join(path, key), key, value))
        }
        _ => false,
    }
}

/// Whether an empty list or map at this path counts as absent.
fn may_be_empty(path: &str, key: &str) -> bool {
    !path.contains(['.', '[']) || path.starts_with("metadata.") || SAME_WHEN_EMPTY.contains(&key)
}

fn same_number(a: &Number, b: &Number) -> bool {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a == b,
        _ => a.as_f64() == b.as_f64(),
    }
}

/// A key with dots is written in brackets.
fn join(path: &str, key: &str) -> String {
    if key.contains('.') {
        format!("{path}[{key}]")
    } else {
        format!("{path}.{key}")
    }
}

#[cfg(test)]
mod tests;
