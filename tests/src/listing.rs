//! A plain listing of the objects that the API server serves, to compare a cluster before and
//! after. It is independent of our own code, which cannot prove its own results.

use std::collections::{BTreeMap, BTreeSet};

use kube::{
    Api, Client, Discovery,
    api::{DynamicObject, ListParams},
    discovery::{Scope, verbs},
};
use serde_json::Value;

/// Objects by `group/Kind namespace/name`, without the fields that the API server generates.
pub type Listing = BTreeMap<String, Value>;

/// Kinds that the cluster's own controllers create, under random names, to follow other objects.
const FOLLOWERS: [&str; 4] = ["Event", "EndpointSlice", "Lease", "ControllerRevision"];

/// Lists every object in these namespaces, the namespaces themselves, and the cluster-scoped
/// objects whose names start with one of the prefixes.
pub async fn list(
    client: &Client,
    namespaces: &[&str],
    cluster_prefixes: &[&str],
) -> anyhow::Result<Listing> {
    let wanted: BTreeSet<&str> = namespaces.iter().copied().collect();
    let mut all = Listing::new();
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if !capabilities.supports_operation(verbs::LIST)
                || FOLLOWERS.contains(&resource.kind.as_str())
            {
                continue;
            }
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let mut page = ListParams::default().limit(500);
            loop {
                let list = api.list(&page).await?;
                for object in list.items {
                    let name = object.metadata.name.clone().unwrap_or_default();
                    let namespace = object.metadata.namespace.clone();
                    let ours = match (&capabilities.scope, namespace.as_deref()) {
                        (Scope::Namespaced, Some(namespace)) => wanted.contains(namespace),
                        _ if resource.kind == "Namespace" => wanted.contains(name.as_str()),
                        _ => cluster_prefixes
                            .iter()
                            .any(|prefix| name.starts_with(prefix)),
                    };
                    if ours {
                        let key = format!(
                            "{}/{} {}/{name}",
                            resource.group,
                            resource.kind,
                            namespace.unwrap_or_default()
                        );
                        all.insert(
                            key,
                            normalise(&resource.kind, serde_json::to_value(&object)?),
                        );
                    }
                }
                match list.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(token) => page = ListParams::default().limit(500).continue_token(&token),
                    None => break,
                }
            }
        }
    }
    Ok(all)
}

/// Removes fields that no restore can bring back: those that the API server and the cluster's
/// controllers generate for each object, and the labels with the source of a restored object.
fn normalise(kind: &str, mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in [
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "generation",
            "managedFields",
            "selfLink",
            "generateName",
        ] {
            metadata.remove(field);
        }
        if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
            labels.remove("velero.io/backup-name");
            labels.remove("velero.io/restore-name");
        }
        if metadata
            .get("labels")
            .and_then(Value::as_object)
            .is_some_and(serde_json::Map::is_empty)
        {
            metadata.remove("labels");
        }
        // The controller of Endpoints creates the Endpoints of a restored Service, at another time.
        if let Some(annotations) = metadata
            .get_mut("annotations")
            .and_then(Value::as_object_mut)
        {
            annotations.remove("endpoints.kubernetes.io/last-change-trigger-time");
        }
        for owner in metadata
            .get_mut("ownerReferences")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            owner["uid"] = Value::Null;
        }
    }
    // Admission mounts a new token volume of the ServiceAccount into each pod, under a random name.
    if kind == "Pod" {
        forget_token_names(&mut object["spec"]);
    }
    // A Service gets a new address, as it would from any manifest that names none.
    if kind == "Service" && object["spec"]["clusterIP"] != "None" {
        for field in ["clusterIP", "clusterIPs"] {
            object["spec"][field] = Value::Null;
        }
    }
    object
}

fn forget_token_names(value: &mut Value) {
    match value {
        Value::String(text) if text.starts_with("kube-api-access-") => {
            "kube-api-access".clone_into(text);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_token_names),
        Value::Object(fields) => fields.values_mut().for_each(forget_token_names),
        _ => {}
    }
}

/// The differences of two objects: JSON paths with both values.
fn paths(path: &str, old: &Value, new: &Value, found: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let fields: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for field in fields {
                let side = |map: &serde_json::Map<String, Value>| {
                    map.get(field).cloned().unwrap_or_default()
                };
                paths(&format!("{path}.{field}"), &side(old), &side(new), found);
            }
        }
        (old, new) if old != new => found.push(format!("{path}: {old} became {new}")),
        _ => {}
    }
}

/// The differences, one line each; empty when the listings are equal.
pub fn differences(before: &Listing, after: &Listing) -> Vec<String> {
    let mut lines = Vec::new();
    for (key, old) in before {
        match after.get(key) {
            None => lines.push(format!("missing: {key}")),
            Some(new) => {
                let mut found = Vec::new();
                paths("", old, new, &mut found);
                lines.extend(found.iter().map(|path| format!("different: {key} {path}")));
            }
        }
    }
    lines.extend(
        after
            .keys()
            .filter(|key| !before.contains_key(*key))
            .map(|key| format!("new: {key}")),
    );
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lost_changed_or_extra_object_is_a_difference_and_a_new_uid_is_not() {
        let object = |uid: &str, data: &str| {
            normalise(
                "ConfigMap",
                json!({ "metadata": { "name": "a", "uid": uid }, "data": data }),
            )
        };
        let before = Listing::from([
            ("a".to_owned(), object("1", "x")),
            ("b".to_owned(), object("2", "x")),
        ]);
        let same = Listing::from([
            ("a".to_owned(), object("3", "x")),
            ("b".to_owned(), object("4", "x")),
        ]);
        assert!(differences(&before, &same).is_empty());
        let other = Listing::from([
            ("a".to_owned(), object("3", "y")),
            ("c".to_owned(), object("5", "x")),
        ]);
        assert_eq!(differences(&before, &other).len(), 3);
    }
}
