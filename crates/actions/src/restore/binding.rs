//! Role bindings: subjects follow the namespace mapping.

use serde_json::Value;

use super::{
    json::{self, Object},
    rules::RestoreRules,
};

/// Prefix of the user name of a service account; namespace and name follow.
const USER: &str = "system:serviceaccount:";
/// Prefix of the group of all service accounts of a namespace.
const GROUP: &str = "system:serviceaccounts:";

/// Maps the namespace of every subject, also inside the names of users and groups.
pub(crate) fn rewrite(item: &mut Object, rules: &RestoreRules) {
    if rules.namespaces.is_empty() {
        return;
    }
    for subject in
        json::list_mut(item, &[], "subjects").into_iter().flatten().filter_map(Value::as_object_mut)
    {
        if let Some(target) = text(subject, "namespace").map(|ns| rules.target(ns).to_owned()) {
            subject.insert("namespace".to_owned(), Value::from(target));
        }
        if let Some(name) = text(subject, "name").and_then(|name| mapped(name, rules)) {
            subject.insert("name".to_owned(), Value::from(name));
        }
    }
}

fn text<'a>(subject: &'a Object, key: &str) -> Option<&'a str> {
    subject.get(key).and_then(Value::as_str)
}

fn mapped(name: &str, rules: &RestoreRules) -> Option<String> {
    if let Some(rest) = name.strip_prefix(USER) {
        let (namespace, account) = rest.split_once(':')?;
        return Some(format!("{USER}{}:{account}", rules.target(namespace)));
    }
    name.strip_prefix(GROUP).map(|namespace| format!("{GROUP}{}", rules.target(namespace)))
}
