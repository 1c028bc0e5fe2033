//! Tokens of service accounts, and the bindings that name accounts. The cluster issues tokens; they
//! are never restored.

use serde_json::Value;

use super::{
    json::{self, Object},
    rules::RestoreRules,
};

const TOKEN: &str = "kubernetes.io/service-account-token";
fn is_token(item: &Object) -> bool {
    item.get("type").and_then(|t| t.as_str()) == Some(TOKEN)
}

/// A token Secret is restored empty, and the token controller fills it for the new account. So is a
/// Secret with a name that clusters before Kubernetes 1.24 generated: newer clusters do not create
/// such Secrets automatically, and a pod may use it.
pub(crate) fn rewrite_secret(item: &mut Object) {
    if is_token(item) {
        json::remove(
            item,
            &["metadata", "annotations"],
            &["kubernetes.io/service-account.uid"],
        );
        json::remove(item, &["data"], &["token", "ca.crt", "namespace"]);
    }
}

/// Prefix of the user name of a service account; namespace and name follow.
const USER: &str = "system:serviceaccount:";
/// Prefix of the group of all service accounts of a namespace.
const GROUP: &str = "system:serviceaccounts:";

/// Maps the namespace of every subject, including the names of users and groups.
pub(crate) fn rewrite_binding(item: &mut Object, rules: &RestoreRules) {
    if rules.namespaces.is_empty() {
        return;
    }
    for subject in json::list_mut(item, &[], "subjects")
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
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
    name.strip_prefix(GROUP)
        .map(|namespace| format!("{GROUP}{}", rules.target(namespace)))
}
