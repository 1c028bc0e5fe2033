//! Items that are not what their place in the backup says. Pure.

use backup_core::resources::ResourceType;
use backup_runtime::path;

use backup_actions::restore::json::{self, Object};

/// Why an item can not be what its place in the backup says it is.
pub(super) fn why(
    object: &Object,
    resource: &ResourceType,
    namespace: Option<&str>,
    api_version: &str,
    name: &str,
) -> Option<String> {
    if !path::is_segment(name) {
        return Some("its name is not one that the API server takes".to_owned());
    }
    if namespace.is_some_and(|namespace| !backup_core::names::is_object_name(namespace)) {
        return Some("its namespace is not one that the API server takes".to_owned());
    }
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let kind = json::text(object, &[], "kind").unwrap_or_default();
    if group != resource.group || kind != resource.kind || !backup_core::names::is_object_name(version) {
        return Some(format!(
            "the backup holds a {api_version} {kind} where a {} {} belongs",
            resource.api_version(),
            resource.kind
        ));
    }
    match (resource.namespaced, namespace) {
        (true, None) => Some("it has no namespace, but its type needs one".to_owned()),
        (false, Some(_)) => Some("it has a namespace, but its type has none".to_owned()),
        _ => None,
    }
}
