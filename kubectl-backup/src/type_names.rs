//! Names of types as users write them: `deployments.apps`, `deployments`, `deployment`,
//! `Deployment` or `deploy`.
//!
//! Names of built-in types are known without a request. For other types discovery is used; if it
//! does not answer, only plural and singular names are known, derived from the backup itself.

use std::{collections::BTreeMap, time::Duration};

use backup_core::resources::builtin_types;
use kube::core::discovery::v2::{APIGroupDiscovery, APIResourceDiscovery};

use crate::{fetched::within, session::Session};

/// Timeout for discovery.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// A type as the user has written it, and the types that it may mean.
#[derive(Clone, Debug, Default)]
pub(crate) struct TypeQuery {
    typed: String,
    meant: Vec<NamedType>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NamedType {
    group: String,
    plural: String,
    kind: String,
}

impl TypeQuery {
    /// Uses discovery if the name is not that of a built-in type.
    pub(crate) async fn new(session: &Session, typed: &str) -> Self {
        let mut query = Self::offline(typed);
        if query.meant.is_empty() {
            let asked = within(DISCOVERY_TIMEOUT, async { Ok(discovery(session).await) });
            let groups = asked.await.known().cloned().unwrap_or_default();
            query.meant = served(&groups, &query.typed);
        }
        query
    }

    /// Uses only the names of built-in types.
    pub(crate) fn offline(typed: &str) -> Self {
        let typed = typed.to_lowercase();
        let meant = builtin_types(&typed).map(|one| NamedType {
            group: one.group.to_owned(),
            plural: one.plural.to_owned(),
            kind: one.kind.to_lowercase(),
        });
        Self {
            meant: meant.collect(),
            typed,
        }
    }

    /// Whether the cluster, or Kubernetes itself, has a type with this name.
    pub(crate) const fn is_known(&self) -> bool {
        !self.meant.is_empty()
    }

    /// Whether the query means this type, given as `deployments.apps`.
    pub(crate) fn is(&self, group_resource: &str) -> bool {
        let (plural, group) = group_resource
            .split_once('.')
            .unwrap_or((group_resource, ""));
        self.meant
            .iter()
            .any(|one| one.group == group && one.plural == plural)
            || is_spelled(&self.typed, plural, group)
    }

    /// Whether the query means this type, given as in lists of items: `apps/v1/Deployment`.
    pub(crate) fn is_kind(&self, kind: &str) -> bool {
        let (version, kind) = kind.rsplit_once('/').unwrap_or(("", kind));
        let group = version.rsplit_once('/').map_or("", |(group, _)| group);
        let kind = kind.to_lowercase();
        self.meant
            .iter()
            .any(|one| one.group == group && one.kind == kind)
            || plurals(&kind)
                .into_iter()
                .chain([kind])
                .any(|name| is_spelled(&self.typed, &name, group))
    }
}

/// The types that the API server serves; groups without an answer are left out.
async fn discovery(session: &Session) -> Vec<APIGroupDiscovery> {
    let (core, groups) = tokio::join!(
        session.client.list_core_api_versions_aggregated(),
        session.client.list_api_groups_aggregated()
    );
    core.into_iter()
        .chain(groups)
        .flat_map(|list| list.items)
        .collect()
}

/// A type whose objects the cluster can list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServedType {
    /// `deployments.apps`
    pub(crate) group_resource: String,
    pub(crate) kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) is_namespaced: bool,
}

/// All types whose objects the cluster can list, sorted by name.
pub(crate) async fn served_types(session: &Session) -> Vec<ServedType> {
    listed_types(&discovery(session).await)
}

fn listed_types(groups: &[APIGroupDiscovery]) -> Vec<ServedType> {
    let mut found = BTreeMap::new();
    for group in groups {
        let name = group
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.name.as_deref())
            .unwrap_or_default();
        for resource in group.versions.iter().flat_map(|version| &version.resources) {
            let Some(plural) = resource.resource.as_deref() else {
                continue;
            };
            if !resource.verbs.iter().any(|verb| verb == "list") {
                continue;
            }
            let kind = resource
                .response_kind
                .as_ref()
                .and_then(|kind| kind.kind.clone());
            let group_resource = if name.is_empty() {
                plural.to_owned()
            } else {
                format!("{plural}.{name}")
            };
            let served = ServedType {
                group_resource: group_resource.clone(),
                kind: kind.unwrap_or_default(),
                short_names: resource.short_names.clone(),
                is_namespaced: resource.scope.as_deref() == Some("Namespaced"),
            };
            found.entry(group_resource).or_insert(served);
        }
    }
    found.into_values().collect()
}

/// Whether the text is the plural or singular name of the type, with or without its group.
fn is_spelled(typed: &str, plural: &str, group: &str) -> bool {
    let (typed, typed_group) = typed
        .split_once('.')
        .map_or((typed, None), |(name, group)| (name, Some(group)));
    typed_group.is_none_or(|typed| typed == group)
        && (typed == plural || plurals(typed).iter().any(|one| one == plural))
}

/// Possible plurals of a kind.
fn plurals(kind: &str) -> Vec<String> {
    let mut all = vec![format!("{kind}s"), format!("{kind}es")];
    all.extend(kind.strip_suffix('y').map(|stem| format!("{stem}ies")));
    all
}

/// The served types with this name.
fn served(groups: &[APIGroupDiscovery], typed: &str) -> Vec<NamedType> {
    let (head, rest) = typed
        .split_once('.')
        .map_or((typed, None), |(head, rest)| (head, Some(rest)));
    let mut found = Vec::new();
    for group in groups {
        let name = group
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.name.clone())
            .unwrap_or_default();
        for version in &group.versions {
            let served_version = version.version.as_deref().unwrap_or_default();
            let is_meant = rest.is_none_or(|rest| {
                rest == name || rest == served_version || rest == format!("{served_version}.{name}")
            });
            for resource in version
                .resources
                .iter()
                .filter(|resource| is_meant && is_called(resource, head))
            {
                let kind = resource
                    .response_kind
                    .as_ref()
                    .and_then(|kind| kind.kind.clone());
                let (Some(plural), Some(kind)) = (resource.resource.clone(), kind) else {
                    continue;
                };
                let named = NamedType {
                    group: name.clone(),
                    plural,
                    kind: kind.to_lowercase(),
                };
                if !found.contains(&named) {
                    found.push(named);
                }
            }
        }
    }
    found
}

fn is_called(resource: &APIResourceDiscovery, head: &str) -> bool {
    let kind = resource
        .response_kind
        .as_ref()
        .and_then(|kind| kind.kind.as_deref());
    let names = [
        resource.resource.as_deref(),
        resource.singular_resource.as_deref(),
        kind,
    ];
    names
        .into_iter()
        .flatten()
        .any(|name| name.eq_ignore_ascii_case(head))
        || resource.short_names.iter().any(|short| short == head)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_are_known_by_what_people_call_them() {
        let is = |typed: &str, group_resource: &str| TypeQuery::offline(typed).is(group_resource);
        for typed in [
            "deployments.apps",
            "deployments",
            "deployment",
            "Deployment",
            "deployment.apps",
            "deploy",
            "deploy.apps",
        ] {
            assert!(is(typed, "deployments.apps"), "{typed}");
        }
        assert!(is("networkpolicy", "networkpolicies.networking.k8s.io") && is("cm", "configmaps"));
        assert!(is("ingress", "ingresses.networking.k8s.io") && is("endpoints", "endpoints"));
        assert!(is("widget", "widgets.example.com"), "as it is spelled");
        for typed in [
            "deployments.extensions",
            "deploy.extensions",
            "",
            "deployments.apps.x",
            "cm",
        ] {
            assert!(!is(typed, "deployments.apps"), "{typed}");
        }
    }

    #[test]
    fn types_are_known_by_their_kind_in_a_list() {
        let is = |typed: &str, kind: &str| TypeQuery::offline(typed).is_kind(kind);
        assert!(is("deploy", "apps/v1/Deployment") && is("deployments.apps", "apps/v1/Deployment"));
        assert!(is("pv", "v1/PersistentVolume") && is("widgets", "example.com/v1/Widget"));
        assert!(
            !is("deployments.extensions", "apps/v1/Deployment")
                && !is("pvc", "v1/PersistentVolume")
        );
    }

    #[test]
    fn short_names_of_custom_resources_are_those_that_the_cluster_serves() {
        let group = json!({ "metadata": { "name": "example.com" }, "versions": [{ "version": "v1", "resources": [
            { "resource": "widgets", "responseKind": { "group": "", "version": "", "kind": "Widget" },
              "scope": "Namespaced", "singularResource": "widget", "shortNames": ["wd"], "verbs": ["get"] },
        ] }] });
        let groups: Vec<APIGroupDiscovery> = vec![serde_json::from_value(group).unwrap()];
        for typed in [
            "wd",
            "wd.example.com",
            "wd.v1.example.com",
            "widget",
            "widgets",
        ] {
            let query = TypeQuery {
                typed: typed.to_owned(),
                meant: served(&groups, typed),
            };
            assert!(
                query.is("widgets.example.com") && query.is_kind("example.com/v1/Widget"),
                "{typed}"
            );
        }
        for typed in ["wd.example.org", "w"] {
            assert_eq!(served(&groups, typed), [], "{typed}");
        }
    }
}
