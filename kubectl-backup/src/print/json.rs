//! Objects as JSON and YAML.

use serde::Serialize;

use crate::{cli::Output, error::Problem};

/// An object in the form asked for. `Table`, `Wide` and `Name` are no forms of an object: they give JSON.
pub fn object<T: Serialize>(value: &T, output: Output) -> Result<String, Problem> {
    let cannot = |error: &dyn std::fmt::Display| Problem::Other {
        message: format!("cannot print: {error}"),
        remedy: None,
    };
    match output {
        Output::Yaml => serde_saphyr::to_string(value).map_err(|error| cannot(&error)),
        _ => serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(|error| cannot(&error)),
    }
}

/// A manifest: an object as a person would write it, without the status that only a server fills.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest<'a, S: Serialize> {
    /// Group and version.
    pub api_version: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// Name, namespace, labels.
    pub metadata: &'a kube::core::ObjectMeta,
    /// What is asked for.
    pub spec: &'a S,
}

/// What kubectl calls a List.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct List<T: Serialize> {
    /// Always "v1".
    pub api_version: &'static str,
    /// Always "List".
    pub kind: &'static str,
    /// The objects.
    pub items: Vec<T>,
}

impl<T: Serialize> From<Vec<T>> for List<T> {
    fn from(items: Vec<T>) -> Self {
        Self { api_version: "v1", kind: "List", items }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reads_like_another_type_is_quoted_in_yaml() {
        let value = serde_json::json!({"a": "yes", "b": "1.10", "c": "0 3 * * *", "d": "", "e": "null", "f": "2026-11-03T03:00:00Z", "g": ["*"]});
        let text = object(&value, Output::Yaml).unwrap();
        let back: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(back, value, "{text}");
        assert!(text.contains("a: \"yes\"") && text.contains("f: \"2026"), "{text}");
    }
}
