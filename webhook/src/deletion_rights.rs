//! Checks whether the author of a Restore with `spec.prune` may delete directly what it may remove.
//! It does not depend on `--check-restore-rights`: a user who may restore may lack the right to
//! delete.

use std::collections::BTreeSet;

use backup_core::{resources::builtin_types, selection::is_glob, text::listed};
use backup_lock::Footprint;
use k8s_openapi::api::{authentication::v1::UserInfo, authorization::v1::ResourceAttributes};
use serde_json::Value;

use crate::{
    authorization::{Authorization, right},
    owner_rights::subject,
};

/// Maximum number of rights that a message names; the others are counted.
const MAX_NAMED_RIGHTS: usize = 8;
/// All groups, or all types of a group.
const ALL: &str = "*";

/// A type whose objects may be removed; `*` is any.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DeletedType {
    plural: String,
    group: String,
}

impl DeletedType {
    fn new(plural: &str, group: &str) -> Self {
        Self {
            plural: plural.to_owned(),
            group: group.to_owned(),
        }
    }

    /// The right to delete these objects in a namespace; empty: in the whole cluster.
    fn right(&self, namespace: &str) -> ResourceAttributes {
        right("delete", &self.group, &self.plural, namespace)
    }
}

/// Whether a Restore with this spec removes objects.
pub(crate) fn is_needed(spec: &Value) -> bool {
    spec["prune"] == Value::Bool(true)
}

/// The types of which a Restore may remove objects. A name that only the cluster can complete
/// counts as all types.
fn deleted_types(spec: &Value) -> BTreeSet<DeletedType> {
    let all = || BTreeSet::from([DeletedType::new(ALL, ALL)]);
    let names = spec["includedResources"].as_array().map(Vec::as_slice);
    let names = names.unwrap_or_default();
    let mut types = BTreeSet::new();
    for name in names {
        let of_name = name.as_str().map(types_named).unwrap_or_default();
        if of_name.is_empty() {
            return all();
        }
        types.extend(of_name);
    }
    if types.is_empty() { all() } else { types }
}

fn types_named(name: &str) -> Vec<DeletedType> {
    let builtin: Vec<DeletedType> = builtin_types(name)
        .map(|of_type| DeletedType::new(of_type.plural, of_type.group))
        .collect();
    if !builtin.is_empty() || is_glob(name) {
        return builtin;
    }
    let name = name.to_ascii_lowercase();
    // Groups of custom resources have a dot; after a built-in type without one comes a version.
    name.split_once('.')
        .filter(|(_, group)| group.contains('.'))
        .map(|(plural, group)| DeletedType::new(plural, group))
        .into_iter()
        .collect()
}

/// The rights that a user lacks for what a Restore may remove from the namespaces that it writes,
/// as a list for a message; `None` if none is missing.
pub(crate) async fn lacking(
    authorization: &Authorization,
    user: &UserInfo,
    spec: &Value,
    written: &Footprint,
) -> Result<Option<String>, String> {
    let everywhere = BTreeSet::from([String::new()]);
    let namespaces = written.names().unwrap_or(&everywhere);
    let types = deleted_types(spec);
    let rights = namespaces
        .iter()
        .flat_map(|namespace| types.iter().map(move |of_type| of_type.right(namespace)));
    let lacking = authorization.lacking(user, rights.collect()).await?;
    let named = lacking.iter();
    let named: Vec<String> = named
        .map(|right| format!("delete {}", subject(right)))
        .collect();
    let first = named.get(..MAX_NAMED_RIGHTS).unwrap_or(&named);
    Ok((!named.is_empty()).then(|| listed(first, named.len())))
}

#[cfg(test)]
mod tests {
    use backup_core::resources::group_resource;
    use serde_json::json;

    use super::*;

    #[rstest::rstest]
    #[case::no_list(json!(null), "*.*")]
    #[case::all(json!(["*"]), "*.*")]
    #[case::builtin(json!(["cm", "deploy"]), "configmaps, deployments.apps")]
    #[case::several_of_a_name(json!(["ev"]), "events, events.events.k8s.io")]
    #[case::with_version(json!(["deployments.v1.apps", "secrets.v1"]), "deployments.apps, secrets")]
    #[case::custom(json!(["Widgets.example.com"]), "widgets.example.com")]
    #[case::only_the_cluster_knows(json!(["cm", "widgets"]), "*.*")]
    #[case::a_glob(json!(["*.example.com"]), "*.*")]
    #[case::no_text(json!([7]), "*.*")]
    fn the_types_that_a_restore_may_remove_are_named(
        #[case] included: Value,
        #[case] expected: &str,
    ) {
        let types = deleted_types(&json!({ "includedResources": included }));
        let names: Vec<String> = types
            .iter()
            .map(|of_type| group_resource(&of_type.plural, &of_type.group))
            .collect();
        assert_eq!(names.join(", "), expected);
    }

    #[test]
    fn only_a_restore_that_removes_objects_needs_the_right_to_delete() {
        for (spec, needed) in [
            (json!({ "prune": true }), true),
            (json!({ "prune": false }), false),
            (json!({ "prune": "true" }), false),
            (json!({}), false),
        ] {
            assert_eq!(is_needed(&spec), needed, "{spec}");
        }
    }
}
