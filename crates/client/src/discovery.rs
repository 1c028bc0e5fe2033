//! The types that the cluster serves and that can be backed up, with their versions and the names
//! users use for them.

use std::time::Duration;

use backup_core::resources::ResourceType;
use futures::TryFutureExt as _;
use kube::{
    Client,
    core::discovery::v2::{APIGroupDiscovery, APIResourceDiscovery},
};
use serde_json::{Map, Value};

use crate::{
    errors::{is_transient, plain},
    retry,
};

const RETRY_BUDGET: Duration = Duration::from_secs(30);

/// The types that the cluster served when this was loaded.
#[derive(Clone, Debug, Default)]
pub struct ServedTypes {
    all: Vec<ServedType>,
    /// Groups and versions (`metrics.k8s.io/v1beta1`) whose server did not answer. Their types are
    /// missing here.
    pub failed: Vec<String>,
}

/// A type in its preferred version, with its other names.
#[derive(Clone, Debug)]
struct ServedType {
    resource: ResourceType,
    singular: String,
    short: Vec<String>,
    /// Less preferred versions, in the order of the API server.
    others: Vec<ResourceType>,
}

/// The subject of a failed read, and the cause.
#[derive(Debug, thiserror::Error)]
#[error("{subject} cannot be read: {}", plain(.source))]
pub struct ReadError {
    subject: &'static str,
    source: kube::Error,
}

impl ReadError {
    fn of(subject: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self { subject, source }
    }

    /// Whether the cause may pass without user action.
    pub fn is_transient(&self) -> bool {
        is_transient(&self.source)
    }
}

impl From<kube::Error> for ReadError {
    fn from(source: kube::Error) -> Self {
        Self {
            subject: "the API server",
            source,
        }
    }
}

impl ServedTypes {
    /// Reads the types from the API server, by aggregated discovery (two requests). A single API
    /// group that is unavailable is no error: see [`ServedTypes::failed`].
    pub async fn load(client: &Client) -> Result<Self, ReadError> {
        let core = retry::read(RETRY_BUDGET, || client.list_core_api_versions_aggregated());
        let groups = retry::read(RETRY_BUDGET, || client.list_api_groups_aggregated());
        let (core, groups) = tokio::try_join!(
            core.map_err(ReadError::of(
                "which core types the API server serves (/api)"
            )),
            groups.map_err(ReadError::of(
                "which API groups the API server serves (/apis)"
            )),
        )?;
        Ok(Self::of(core.items.into_iter().chain(groups.items)))
    }

    /// From discovery documents, in order of priority.
    fn of(groups: impl IntoIterator<Item = APIGroupDiscovery>) -> Self {
        let mut served = Self::default();
        for group in groups {
            let name = group
                .metadata
                .and_then(|metadata| metadata.name)
                .unwrap_or_default();
            // Versions come in order of preference; the first one with a type is its preferred
            // version.
            for version in group.versions {
                let version_name = version.version.unwrap_or_default();
                if version.freshness.as_deref() == Some("Stale") {
                    served.failed.push(format!("{name}/{version_name}"));
                    continue;
                }
                for resource in version.resources {
                    served.add(&name, &version_name, resource);
                }
            }
        }
        served
    }

    /// Only these types, each with its plural name and kind. For tests.
    pub fn just(types: &[ResourceType]) -> Self {
        let all = types.iter().map(|resource| ServedType {
            resource: resource.clone(),
            singular: resource.kind.to_lowercase(),
            short: Vec::new(),
            others: Vec::new(),
        });
        Self {
            all: all.collect(),
            failed: Vec::new(),
        }
    }

    /// Adds a type in a less preferred version. For tests.
    #[must_use]
    pub fn and_in(mut self, version: &str, group_resource: &str) -> Self {
        for known in self
            .all
            .iter_mut()
            .filter(|known| known.resource.group_resource() == group_resource)
        {
            known.others.push(ResourceType {
                version: version.to_owned(),
                ..known.resource.clone()
            });
        }
        self
    }

    fn add(&mut self, group: &str, version: &str, resource: APIResourceDiscovery) {
        let (Some(plural), Some(kind)) = (
            resource.resource,
            resource.response_kind.and_then(|kind| kind.kind),
        ) else {
            return;
        };
        let served = ResourceType {
            group: group.to_owned(),
            version: version.to_owned(),
            plural,
            kind,
            namespaced: resource.scope.as_deref() == Some("Namespaced"),
            verbs: resource.verbs,
            status_is_data: !resource
                .subresources
                .iter()
                .any(|of| of.subresource.as_deref() == Some("status")),
        };
        let known = self.all.iter_mut().find(|known| {
            known.resource.group == served.group && known.resource.plural == served.plural
        });
        if let Some(known) = known {
            known.others.push(served);
            return;
        }
        self.all.push(ServedType {
            resource: served,
            singular: resource.singular_resource.unwrap_or_default(),
            short: resource.short_names,
            others: Vec::new(),
        });
    }

    /// Adds the type of a CustomResourceDefinition as if it were served already, in its storage
    /// version.
    pub fn add_definition(&mut self, definition: &Map<String, Value>) {
        let Some(spec) = definition.get("spec") else {
            return;
        };
        let versions = spec["versions"].as_array().into_iter().flatten();
        let Some(stored) = versions.clone().find(|version| version["storage"] == true) else {
            return;
        };
        let resource = defined_type(spec, stored);
        if self
            .all
            .iter()
            .any(|served| served.resource.group_resource() == resource.group_resource())
        {
            return;
        }
        let short = spec
            .pointer("/names/shortNames")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let others =
            versions.filter(|version| version["storage"] != true && version["served"] == true);
        self.all.push(ServedType {
            resource,
            singular: text_at(spec, "/names/singular"),
            short: short.filter_map(Value::as_str).map(str::to_owned).collect(),
            others: others.map(|version| defined_type(spec, version)).collect(),
        });
    }

    /// Whether the server of a version of this group did not answer.
    pub fn is_away(&self, group: &str) -> bool {
        self.failed
            .iter()
            .any(|version| version.split('/').next() == Some(group))
    }

    /// All types, also those that cannot be backed up.
    pub fn all(&self) -> impl Iterator<Item = &ResourceType> {
        self.all.iter().map(|served| &served.resource)
    }

    /// The types that can be listed, read, created and deleted, in their preferred versions and the
    /// order of the API server.
    pub fn types(&self) -> impl Iterator<Item = &ResourceType> {
        self.all().filter(|resource| resource.can_be_backed_up())
    }

    /// The type of this name, for example `pods` or `deployments.apps`.
    pub fn by_group_resource(&self, group_resource: &str) -> Option<&ResourceType> {
        self.types()
            .find(|resource| resource.group_resource() == group_resource)
    }

    /// The less preferred versions of a type that can be backed up in them, in the order of the API
    /// server.
    pub fn other_versions(&self, group_resource: &str) -> impl Iterator<Item = &ResourceType> {
        let of_type = self
            .all
            .iter()
            .filter(move |served| served.resource.group_resource() == group_resource);
        of_type
            .flat_map(|served| &served.others)
            .filter(|resource| resource.can_be_backed_up())
    }

    /// The versions of a type, the preferred one first.
    pub fn versions(&self, group_resource: &str) -> Vec<&str> {
        let preferred = self.by_group_resource(group_resource);
        let all = preferred
            .into_iter()
            .chain(self.other_versions(group_resource));
        all.map(|resource| resource.version.as_str()).collect()
    }

    /// The full name of a type that a user calls `po`, `Pod`, `deploy` or `deployments.v1.apps`, in
    /// any case. If several types have the name, the first in the order of the API server is taken,
    /// as in kubectl.
    pub fn resolve(&self, name: &str) -> Option<String> {
        let name = name.to_ascii_lowercase();
        let (head, rest) = name
            .split_once('.')
            .map_or((name.as_str(), None), |(head, rest)| (head, Some(rest)));
        // Plural names win over short names and kinds of other types.
        let found = self
            .living_in(rest)
            .find(|served| served.resource.plural == head)
            .or_else(|| self.living_in(rest).find(|served| served.is_called(head)))?;
        Some(found.resource.group_resource())
    }

    /// See [`ServedType::lives_in`].
    fn living_in(&self, rest: Option<&str>) -> impl Iterator<Item = &ServedType> {
        self.all.iter().filter(move |served| served.lives_in(rest))
    }
}

/// The type of a CustomResourceDefinition with this spec, in one of its versions.
fn defined_type(spec: &Value, version: &Value) -> ResourceType {
    ResourceType {
        group: text_at(spec, "/group"),
        version: version["name"].as_str().unwrap_or_default().to_owned(),
        plural: text_at(spec, "/names/plural"),
        kind: text_at(spec, "/names/kind"),
        namespaced: spec["scope"] == "Namespaced",
        verbs: ["create", "delete", "get", "list"]
            .map(str::to_owned)
            .to_vec(),
        status_is_data: version.pointer("/subresources/status").is_none(),
    }
}

/// The text at a JSON pointer; empty if there is none.
fn text_at(value: &Value, pointer: &str) -> String {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

impl ServedType {
    fn is_called(&self, name: &str) -> bool {
        self.singular == name
            || self.resource.kind.eq_ignore_ascii_case(name)
            || self.short.iter().any(|short| short == name)
    }

    /// `rest` is a group, a version, or `version.group`.
    fn lives_in(&self, rest: Option<&str>) -> bool {
        let Some(rest) = rest else { return true };
        let own = &self.resource.group;
        rest == own
            || rest
                .split_once('.')
                .is_some_and(|(version, group)| group == own && self.has_version(version))
            || (own.is_empty() && self.has_version(rest))
    }

    fn has_version(&self, version: &str) -> bool {
        [&self.resource]
            .into_iter()
            .chain(&self.others)
            .any(|resource| resource.version == version)
    }
}

#[cfg(test)]
mod tests;
