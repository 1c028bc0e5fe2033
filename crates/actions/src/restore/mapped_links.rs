//! Links into namespaces that a restore maps, in objects of any type. Pure.
//!
//! The label `kubernetes.io/metadata.name` of a namespace is always its name, so namespace
//! selectors by this label are mapped in every type. Other fields are mapped if their meaning is
//! known ([`super::built_in`]). The remaining links are found by field names, and the user must
//! decide: the original may be intended.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    json::{self, Object},
    rules::RestoreRules,
};

/// The label of each namespace that holds its name.
pub(super) const METADATA_NAME: &str = "kubernetes.io/metadata.name";

/// Maximum number of fields of one object that are named; others are only counted.
const MAX_NAMED: usize = 8;

/// Applies the mapping to namespace selectors by name, in any field.
pub(super) fn map_selectors(item: &mut Object, rules: &RestoreRules) {
    for (key, value) in item {
        match value {
            Value::Object(inner) => {
                if key == "namespaceSelector" {
                    map_selector(inner, rules);
                } else {
                    map_selectors(inner, rules);
                }
            }
            Value::Array(list) => {
                list.iter_mut()
                    .filter_map(Value::as_object_mut)
                    .for_each(|inner| map_selectors(inner, rules));
            }
            _ => {}
        }
    }
}

fn map_selector(selector: &mut Object, rules: &RestoreRules) {
    if let Some(name) = selector
        .get_mut("matchLabels")
        .and_then(|labels| labels.get_mut(METADATA_NAME))
    {
        map_name(name, rules);
    }
    let expressions = selector
        .get_mut("matchExpressions")
        .and_then(Value::as_array_mut);
    for expression in expressions
        .into_iter()
        .flatten()
        .filter(|one| one["key"] == METADATA_NAME)
    {
        expression
            .get_mut("values")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
            .for_each(|name| map_name(name, rules));
    }
}

fn map_name(name: &mut Value, rules: &RestoreRules) {
    if let Some(target) = name.as_str().map(|name| rules.target(name).to_owned()) {
        *name = target.into();
    }
}

/// Applies the namespace mapping to the Service at `path`.
pub(super) fn map_service(item: &mut Object, path: &[&str], rules: &RestoreRules) {
    let Some(service) = json::object_mut(item, path) else {
        return;
    };
    let target =
        json::text(service, &[], "namespace").map(|source| rules.target(source).to_owned());
    if let Some(target) = target {
        service.insert("namespace".to_owned(), target.into());
    }
}

/// Links to namespaces of the backup that are restored under other names.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LeftLinks {
    /// The first fields: `spec.parameters.namespace`.
    pub fields: Vec<String>,
    pub total: usize,
    /// The namespaces that the links lead to.
    pub namespaces: BTreeSet<String>,
}

/// The fields in `made` that still link to a namespace of the backup although it is restored under
/// another name.
pub fn left(from_backup: &Object, made: &Object, rules: &RestoreRules) -> LeftLinks {
    let mut left = LeftLinks::default();
    let body = made
        .iter()
        .filter(|(key, _)| !["apiVersion", "kind", "metadata", "status"].contains(&key.as_str()));
    for (key, value) in body {
        left.find(key, key, from_backup.get(key), value, rules);
    }
    left
}

impl LeftLinks {
    fn find(
        &mut self,
        path: &str,
        key: &str,
        from: Option<&Value>,
        made: &Value,
        rules: &RestoreRules,
    ) {
        match made {
            Value::String(name)
                if from.and_then(Value::as_str) == Some(name)
                    && rules.target(name) != name
                    && names_namespaces(key) =>
            {
                self.total += 1;
                self.namespaces.insert(name.clone());
                if self.fields.len() < MAX_NAMED {
                    self.fields.push(path.to_owned());
                }
            }
            Value::Array(list) => {
                for (at, value) in list.iter().enumerate() {
                    let from = from.and_then(|from| from.get(at));
                    self.find(&format!("{path}[{at}]"), key, from, value, rules);
                }
            }
            Value::Object(fields) => {
                for (key, value) in fields {
                    self.find(
                        &format!("{path}.{key}"),
                        key,
                        from.and_then(|from| from.get(key)),
                        value,
                        rules,
                    );
                }
            }
            _ => {}
        }
    }
}

/// Whether a field of this name contains names of namespaces: `namespace`, `targetNamespaces`,
/// `csi.storage.k8s.io/provisioner-secret-namespace`, and `matchNames` as in Prometheus' selectors.
fn names_namespaces(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    key.ends_with("namespace") || key.ends_with("namespaces") || key == "matchnames"
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn rules() -> RestoreRules {
        let namespaces = [("a", "b"), ("b", "c"), ("same", "same")]
            .map(|(from, to)| (from.to_owned(), to.to_owned()));
        RestoreRules {
            namespaces: Arc::new(namespaces.into()),
            ..RestoreRules::default()
        }
    }

    #[test]
    fn a_selector_by_the_name_of_a_namespace_follows_the_mapping_wherever_it_is() {
        let selectors = |one: &str, other: &str| {
            json!({"spec": {"ingress": [{"from": [{"namespaceSelector": {
                "matchLabels": {METADATA_NAME: one, "team": "a"},
                "matchExpressions": [{"key": METADATA_NAME, "operator": "NotIn", "values": [other, "else"]}, {"key": "team", "values": ["a"]}],
            }}]}], "podSelector": {"matchLabels": {METADATA_NAME: "a"}}}})
        };
        let mut item = selectors("a", "b").as_object().unwrap().clone();
        map_selectors(&mut item, &rules());
        assert_eq!(Value::Object(item), selectors("b", "c"));
    }

    #[rstest]
    #[case::parameters_of_a_class(json!({"spec": {"parameters": {"namespace": "a"}}}), "spec.parameters.namespace")]
    #[case::secret_of_a_storage_class(json!({"parameters": {"csi.storage.k8s.io/node-stage-secret-namespace": "a"}}),
        "parameters.csi.storage.k8s.io/node-stage-secret-namespace")]
    #[case::subject_of_a_flow_schema(json!({"spec": {"rules": [{"subjects": [{"serviceAccount": {"namespace": "a"}}]}]}}),
        "spec.rules[0].subjects[0].serviceAccount.namespace")]
    #[case::parameters_of_a_policy(json!({"spec": {"paramRef": {"namespace": "a"}}}), "spec.paramRef.namespace")]
    #[case::of_a_list(json!({"spec": {"targetNamespaces": ["else", "a"]}}), "spec.targetNamespaces[1]")]
    #[case::of_prometheus(json!({"spec": {"namespaceSelector": {"matchNames": ["a"]}}}), "spec.namespaceSelector.matchNames[0]")]
    fn what_does_not_follow_is_found_by_its_name(#[case] item: Value, #[case] field: &str) {
        let item = item.as_object().unwrap();
        let found = left(item, item, &rules());
        let expected = LeftLinks {
            fields: vec![field.to_owned()],
            total: 1,
            namespaces: ["a".to_owned()].into(),
        };
        assert_eq!(found, expected);
        assert_eq!(
            left(item, item, &RestoreRules::default()),
            LeftLinks::default(),
            "nothing is mapped"
        );
    }

    #[test]
    fn what_follows_or_is_no_link_is_not_found() {
        let (from, made) = (
            json!({"spec": {"namespace": "a"}}),
            json!({"spec": {"namespace": "b"}}),
        );
        let others = json!({"metadata": {"namespace": "a"}, "spec": {"namespace": "same", "name": "a", "tenantNamespace": "else"}});
        for (from, made) in [(&from, &made), (&others, &others)] {
            assert_eq!(
                left(
                    from.as_object().unwrap(),
                    made.as_object().unwrap(),
                    &rules()
                ),
                LeftLinks::default()
            );
        }
    }
}
