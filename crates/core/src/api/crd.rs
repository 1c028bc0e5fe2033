//! The CustomResourceDefinitions, built from the Rust types.
//!
//! They accept what Velero's accept (v1.18, `config/crd`), and the few newer fields that the types
//! name. As there, no kind has a status subresource: status is written with the object, and an
//! object can be created with one.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionNames, CustomResourceDefinitionSpec,
    CustomResourceDefinitionVersion, CustomResourceValidation, JSONSchemaProps,
};
use kube::core::{
    ObjectMeta,
    schema::{OptionalEnum, StructuralSchemaRewriter},
};
use schemars::{Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde_json::{Map, Value, json};

use super::{
    VeleroKind,
    kind::{GROUP, for_each_kind},
};
use crate::{cluster::INSTALLATION, labels::PART_OF};

/// All definitions, sorted by name.
pub fn all() -> Vec<CustomResourceDefinition> {
    let mut all = for_each_kind!(definition).to_vec();
    all.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    all
}

/// The definition of one kind.
pub fn definition<K: VeleroKind>() -> CustomResourceDefinition {
    let kind = K::kind(&()).into_owned();
    let plural = K::plural(&()).into_owned();
    CustomResourceDefinition {
        metadata: ObjectMeta {
            name: Some(format!("{plural}.{GROUP}")),
            labels: Some([(PART_OF.to_owned(), INSTALLATION.to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: CustomResourceDefinitionSpec {
            group: GROUP.to_owned(),
            names: CustomResourceDefinitionNames {
                list_kind: Some(format!("{kind}List")),
                singular: Some(kind.to_lowercase()),
                short_names: Some(K::SHORT_NAMES.iter().map(|&name| name.to_owned()).collect()),
                kind,
                plural,
                ..CustomResourceDefinitionNames::default()
            },
            scope: "Namespaced".to_owned(),
            versions: vec![CustomResourceDefinitionVersion {
                name: K::version(&()).into_owned(),
                served: true,
                storage: true,
                additional_printer_columns: Some(K::columns()),
                schema: Some(CustomResourceValidation {
                    open_api_v3_schema: Some(schema::<K>()),
                }),
                ..CustomResourceDefinitionVersion::default()
            }],
            ..CustomResourceDefinitionSpec::default()
        },
        status: None,
    }
}

/// A list of objects of any content: the schema of a container is too large to repeat.
pub(crate) fn any_objects(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        "x-kubernetes-preserve-unknown-fields": true
    })
}

/// An object of any content.
pub(crate) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// Bytes, base64 in JSON.
pub(crate) fn base64_bytes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "byte" })
}

/// The structural schema of a kind.
fn schema<K: VeleroKind>() -> JSONSchemaProps {
    let generator = SchemaSettings::openapi3()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .with_transform(StructuralSchemaRewriter)
        .with_transform(OptionalEnum)
        .into_generator();
    let mut schema = generator.into_root_schema_for::<K>().to_value();
    if let Value::Object(root) = &mut schema {
        tidy(root);
        root.remove("title");
        if let Some(Value::Object(properties)) = root.get_mut("properties") {
            properties.insert("apiVersion".to_owned(), json!({ "type": "string" }));
            properties.insert("kind".to_owned(), json!({ "type": "string" }));
            properties.insert("metadata".to_owned(), json!({ "type": "object" }));
        }
    }
    // Every schema that schemars makes is one; the tests would show an empty one.
    serde_json::from_value(schema).unwrap_or_default()
}

/// Brings a schema, and all in it, to what Velero's definitions say.
fn tidy(schema: &mut Map<String, Value>) {
    // Defaults are the server's business (Velero's definitions have none either), not the API
    // server's.
    schema.remove("default");
    let required: Vec<Value> = schema
        .get("required")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for (name, property) in properties {
            let Value::Object(property) = property else {
                continue;
            };
            tidy(property);
            // `null` is read as an empty list or map.
            if is_list_or_map(property) && !required.contains(&json!(name)) {
                property.insert("nullable".to_owned(), json!(true));
            }
            // An absent enum is absent, not `null`.
            if let Some(Value::Array(values)) = property.get_mut("enum") {
                values.retain(|value| !value.is_null());
                property.remove("nullable");
            }
        }
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(Value::Object(inner)) = schema.get_mut(inner) {
            tidy(inner);
        }
    }
    tidy_known_type(schema);
}

fn is_list_or_map(schema: &Map<String, Value>) -> bool {
    schema.get("type").is_some_and(|kind| kind == "array")
        || schema.contains_key("additionalProperties")
}

/// Types of Kubernetes are known by their fields. Their lists and the types themselves are replaced
/// as a whole when objects are merged, and their own descriptions, long and well known, are left
/// out.
fn tidy_known_type(schema: &mut Map<String, Value>) {
    let Some(Value::Object(properties)) = schema.get_mut("properties") else {
        return;
    };
    let mut fields: Vec<&str> = properties.keys().map(String::as_str).collect();
    fields.sort_unstable();
    match fields.as_slice() {
        ["matchExpressions", "matchLabels"] => {
            let expressions = &mut properties["matchExpressions"];
            expressions["x-kubernetes-list-type"] = json!("atomic");
            expressions["items"]["properties"]["values"]["x-kubernetes-list-type"] =
                json!("atomic");
            for field in properties.values_mut() {
                remove_descriptions(field);
            }
        }
        [
            "apiVersion",
            "fieldPath",
            "kind",
            "name",
            "namespace",
            "resourceVersion",
            "uid",
        ] => {
            for field in properties.values_mut() {
                remove_descriptions(field);
            }
        }
        ["key", "name", "optional"] => properties["name"]["default"] = json!(""),
        ["apiGroup", "kind", "name"] => {}
        _ => return,
    }
    schema.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
}

fn remove_descriptions(schema: &mut Value) {
    let Value::Object(schema) = schema else {
        return;
    };
    schema.remove("description");
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.values_mut().for_each(remove_descriptions);
    }
    if let Some(items) = schema.get_mut("items") {
        remove_descriptions(items);
    }
}

#[cfg(test)]
mod tests;
