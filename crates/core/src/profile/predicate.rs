//! Conditions on an object that a profile can use.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::path;

/// Maximum nesting of predicates in a file: `in`, `condition` and `set` count one, each `all`,
/// `any`, `not` one more.
pub(crate) const MAX_DEPTH: usize = 8;

/// A condition on an object. Paths are dotted names of fields; a dot within a name is written `\.`.
///
/// In YAML each is a mapping of one key: `in: {path: status.phase, values: [Completed]}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Predicate {
    /// The field has one of these values. Strings, numbers and booleans are compared in their
    /// printed form; a missing field has no value.
    In {
        path: String,
        values: Vec<String>,
    },
    /// The object has a condition of this type and status.
    Condition {
        #[serde(default = "conditions")]
        path: String,
        #[serde(rename = "type")]
        type_: String,
        #[serde(default = "yes")]
        status: String,
        /// Accepted reasons of the condition; empty for any reason.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        reasons: Vec<String>,
    },
    /// The field has a meaningful value. Go's zero values are not, because many types print them
    /// for a field that was never set: null, `""`, `false`, `0`, `[]`, `{}`.
    Set {
        path: String,
    },
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
}

fn conditions() -> String {
    "status.conditions".into()
}

fn yes() -> String {
    "True".into()
}

impl Default for Predicate {
    fn default() -> Self {
        Self::Any(Vec::new())
    }
}

impl Predicate {
    pub fn holds(&self, object: &Value) -> bool {
        match self {
            Self::In { path, values } => path::at(object, path)
                .is_some_and(|found| values.iter().any(|value| prints_as(found, value))),
            Self::Condition {
                path,
                type_,
                status,
                reasons,
            } => path::at(object, path)
                .and_then(Value::as_array)
                .is_some_and(|list| {
                    list.iter().any(|condition| {
                        has_text(condition, "type", type_)
                            && has_text(condition, "status", status)
                            && (reasons.is_empty()
                                || reasons.iter().any(|r| has_text(condition, "reason", r)))
                    })
                }),
            Self::Set { path } => path::at(object, path).is_some_and(says_something),
            Self::All(parts) => parts.iter().all(|part| part.holds(object)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(object)),
            Self::Not(part) => !part.holds(object),
        }
    }

    /// Nesting depth: 1 for a condition without parts.
    pub(super) fn depth(&self) -> usize {
        1 + match self {
            Self::In { .. } | Self::Condition { .. } | Self::Set { .. } => 0,
            Self::All(parts) | Self::Any(parts) => parts.iter().map(Self::depth).max().unwrap_or(0),
            Self::Not(part) => part.depth(),
        }
    }
}

fn has_text(condition: &Value, field: &str, wanted: &str) -> bool {
    condition.get(field).and_then(Value::as_str) == Some(wanted)
}

/// Whether this text is the printed form of a scalar.
fn prints_as(value: &Value, text: &str) -> bool {
    match value {
        Value::String(value) => value == text,
        Value::Bool(value) => text == if *value { "true" } else { "false" },
        Value::Number(value) => value.to_string() == text,
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

/// Whether a value is not a zero value of Go.
fn says_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(value) => value.as_f64() != Some(0.0),
        Value::String(value) => !value.is_empty(),
        Value::Array(value) => !value.is_empty(),
        Value::Object(value) => !value.is_empty(),
    }
}

#[cfg(test)]
mod tests;
