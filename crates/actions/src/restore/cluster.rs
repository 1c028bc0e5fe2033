//! Objects that the cluster partly manages: namespaces, custom resource definitions, API services,
//! the CA of every namespace.

use serde_json::{Value, json};

use super::{
    json::{self as walk, Object},
    mapped_links::{self, METADATA_NAME},
    rules::RestoreRules,
};

/// API services that the API server registers for definitions and itself.
pub(crate) fn skip_api_service(item: &Object) -> Option<&'static str> {
    matches!(
        walk::text(
            item,
            &["metadata", "labels"],
            "kube-aggregator.kubernetes.io/automanaged"
        ),
        Some("true" | "onstart")
    )
    .then_some("the API server manages it")
}

/// The CA that the controller manager publishes into every namespace: the backup's may be of
/// another cluster.
pub(crate) fn skip_config_map(item: &Object) -> Option<&'static str> {
    (walk::text(item, &["metadata"], "name") == Some("kube-root-ca.crt"))
        .then_some("the cluster publishes its CA into every namespace")
}

/// Applies the namespace mapping.
pub(crate) fn rewrite_namespace(item: &mut Object, rules: &RestoreRules) {
    let Some(name) = walk::text(item, &["metadata"], "name").map(|n| rules.target(n).to_owned())
    else {
        return;
    };
    if walk::text(item, &["metadata", "labels"], METADATA_NAME).is_some() {
        walk::set(
            item,
            &["metadata", "labels"],
            METADATA_NAME,
            Value::from(name.as_str()),
        );
    }
    walk::set(item, &["metadata"], "name", Value::from(name));
}

/// Applies the namespace mapping to the Service.
pub(crate) fn rewrite_api_service(item: &mut Object, rules: &RestoreRules) {
    mapped_links::map_service(item, &["spec", "service"], rules);
}

/// `preserveUnknownFields: true` cannot be created any longer; it is replaced by its successor in
/// every schema. The namespace mapping is applied to the Service of a conversion.
pub(crate) fn rewrite_definition(item: &mut Object, rules: &RestoreRules) {
    mapped_links::map_service(
        item,
        &["spec", "conversion", "webhook", "clientConfig", "service"],
        rules,
    );
    if !walk::is_true(item, &["spec"], "preserveUnknownFields") {
        return;
    }
    let Some(spec) = walk::object_mut(item, &["spec"]) else {
        return;
    };
    spec.insert("preserveUnknownFields".to_owned(), json!(false));
    for version in walk::list_mut(spec, &[], "versions")
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
    {
        const SCHEMA: [&str; 2] = ["schema", "openAPIV3Schema"];
        walk::set(
            version,
            &SCHEMA,
            "x-kubernetes-preserve-unknown-fields",
            json!(true),
        );
        if walk::text(version, &SCHEMA, "type").is_none() {
            walk::set(version, &SCHEMA, "type", json!("object"));
        }
    }
}
