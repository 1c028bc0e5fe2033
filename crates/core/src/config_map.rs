//! Reads YAML that users write into a ConfigMap. All errors are found at once, each with its
//! position.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize as _;
use serde_json::{Map, Value};

use crate::validate::{Finding, label_selector};

/// Reads the value of the only key of a ConfigMap; `what` names the value in errors.
pub fn only_value(
    field: &str,
    what: &str,
    data: &BTreeMap<String, String>,
) -> Result<Value, Finding> {
    let mut texts = data.values();
    let (Some(text), None) = (texts.next(), texts.next()) else {
        let message = format!(
            "the ConfigMap has {} keys; {what} is the value of its only key",
            data.len()
        );
        return Err(Finding::new(field, message));
    };
    yaml(text).map_err(|error| Finding::new(field, format!("{what} is no YAML: {error}")))
}

/// Reads YAML (and so JSON, too).
pub fn yaml(text: &str) -> Result<Value, String> {
    serde_saphyr::from_str(text).map_err(|error| error.to_string())
}

/// Reads parts of a value, and collects findings.
pub struct ConfigReader {
    /// The field of the object that refers to the ConfigMap; findings start with it.
    field: &'static str,
    pub findings: Vec<Finding>,
}

impl ConfigReader {
    pub fn new(field: &'static str) -> Self {
        Self {
            field,
            findings: Vec::new(),
        }
    }

    pub fn find(&mut self, at: &str, message: impl Into<String>) {
        let field = if at.is_empty() {
            self.field.to_owned()
        } else {
            format!("{}: {at}", self.field)
        };
        self.findings.push(Finding::new(field, message));
    }

    /// Returns the result, or the findings if there are any.
    pub fn finish<T>(self, read: T) -> Result<T, Vec<Finding>> {
        if self.findings.is_empty() {
            Ok(read)
        } else {
            Err(self.findings)
        }
    }

    /// The members of a map, all of which must be known. A null value is an empty map.
    pub fn fields<'v>(
        &mut self,
        value: &'v Value,
        at: &str,
        known: &[&str],
    ) -> Option<&'v Map<String, Value>> {
        let Some(fields) = value.as_object() else {
            if !value.is_null() || at.is_empty() {
                self.find(
                    at,
                    format!("is not a map; it may have {}", known.join(", ")),
                );
            }
            return None;
        };
        for name in fields.keys().filter(|name| !known.contains(&name.as_str())) {
            self.find(
                &join(at, name),
                format!("is not known; known are {}", known.join(", ")),
            );
        }
        Some(fields)
    }

    pub fn list<'v>(
        &mut self,
        fields: &'v Map<String, Value>,
        at: &str,
        name: &str,
    ) -> Option<&'v Vec<Value>> {
        match fields.get(name)? {
            Value::Null => None,
            Value::Array(list) => Some(list),
            _ => {
                self.find(&join(at, name), "is not a list");
                None
            }
        }
    }

    pub fn texts(&mut self, fields: &Map<String, Value>, at: &str, name: &str) -> Vec<String> {
        let list = self
            .list(fields, at, name)
            .into_iter()
            .flatten()
            .enumerate();
        list.filter_map(|(index, value)| {
            let text = value.as_str().map(str::to_owned);
            if text.is_none() {
                self.find(
                    &format!("{}[{index}]", join(at, name)),
                    format!("{value} is not a text"),
                );
            }
            text
        })
        .collect()
    }

    /// A label selector that Kubernetes accepts.
    pub fn label_selector(&mut self, value: &Value, at: &str) -> Option<LabelSelector> {
        self.fields(value, at, &["matchLabels", "matchExpressions"])?;
        match LabelSelector::deserialize(value) {
            Ok(selector) => {
                self.findings
                    .extend(label_selector(&format!("{}: {at}", self.field), &selector));
                Some(selector)
            }
            Err(error) => {
                self.find(at, format!("is no label selector: {error}"));
                None
            }
        }
    }

    pub fn text(&mut self, fields: &Map<String, Value>, at: &str, name: &str) -> String {
        match fields.get(name) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => {
                self.find(&join(at, name), format!("{other} is not a text"));
                String::new()
            }
        }
    }
}

pub fn join(at: &str, name: &str) -> String {
    if at.is_empty() {
        name.to_owned()
    } else {
        format!("{at}.{name}")
    }
}
