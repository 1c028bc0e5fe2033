//! Fields of an object that our definitions do not have. The API server drops them from each object
//! that is written once our definitions are installed. Pure.

use backup_core::api::{VeleroKind, crd};
use serde_json::Value;

/// The schema of the spec of a kind, by our definition.
pub(crate) fn spec_schema<K: VeleroKind>() -> Value {
    let definition = serde_json::to_value(crd::definition::<K>()).unwrap_or_default();
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    definition.pointer(spec).cloned().unwrap_or_default()
}

/// Paths of the fields of a spec that the schema does not have, such as `spec.template.newField`.
pub(crate) fn unknown_fields(spec: &Value, schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare(spec, schema, "spec", &mut found);
    found
}

fn compare(value: &Value, schema: &Value, at: &str, found: &mut Vec<String>) {
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    match value {
        Value::Array(items) => {
            for item in items {
                compare(item, &schema["items"], at, found);
            }
        }
        Value::Object(fields) => {
            let Some(properties) = schema["properties"].as_object() else {
                // A map: its keys are no fields.
                for field in fields.values() {
                    compare(field, &schema["additionalProperties"], at, found);
                }
                return;
            };
            for (name, field) in fields {
                let at = format!("{at}.{name}");
                match properties.get(name) {
                    Some(schema) => compare(field, schema, &at, found),
                    None if found.contains(&at) => {}
                    None => found.push(at),
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use backup_core::api::Schedule;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_fields_that_no_definition_has_are_found() {
        let schema = spec_schema::<Schedule>();
        let hook = |name: &str| {
            json!({ "name": "h", "includedNamespaces": ["a"], "labelSelector": { "matchLabels": { "any": "x" } },
                "pre": [{ "exec": { "command": ["c"], name: "x" } }] })
        };
        for (spec, expected) in [
            (json!({ "schedule": "@daily", "template": {} }), &[][..]),
            (
                json!({ "template": { "orderedResources": { "pods": "a/b" }, "metadata": { "labels": { "l": "v" } },
                    "hooks": { "resources": [hook("container")] } } }),
                &[],
            ),
            (
                json!({ "later": 1, "template": { "newField": null, "hooks": { "resources": [hook("shell"), hook("shell")] } } }),
                &[
                    "spec.later",
                    "spec.template.hooks.resources.pre.exec.shell",
                    "spec.template.newField",
                ],
            ),
        ] {
            let mut found = unknown_fields(&spec, &schema);
            found.sort();
            assert_eq!(found, expected, "{spec}");
        }
    }
}
