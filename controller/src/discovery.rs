//! What the cluster serves: every type that can be backed up, in its preferred version, and the names people use for it.

use std::time::Duration;

use backup_core::resources::{ResourceType, group_resource};
use kube::{
    Client,
    core::discovery::v2::{APIGroupDiscovery, APIResourceDiscovery},
};

use backup_runtime::retry;

const BUDGET: Duration = Duration::from_secs(30);

/// The types that the cluster served when this was loaded.
#[derive(Clone, Debug, Default)]
pub struct ServedTypes {
    types: Vec<ResourceType>,
    names: Vec<Names>,
    /// Groups and versions (`metrics.k8s.io/v1beta1`) whose server did not answer. Their types are missing here.
    pub failed: Vec<String>,
}

#[derive(Clone, Debug)]
struct Names {
    group: String,
    plural: String,
    singular: String,
    kind: String,
    short: Vec<String>,
    versions: Vec<String>,
}

impl ServedTypes {
    /// Asks the API server, by aggregated discovery (two requests).
    ///
    /// # Errors
    /// If the API server does not answer for 30 s. A single API group that is unavailable is no error: see
    /// [`ServedTypes::failed`].
    pub async fn load(client: &Client) -> Result<Self, kube::Error> {
        let core = retry::read(BUDGET, || client.list_core_api_versions_aggregated()).await?;
        let groups = retry::read(BUDGET, || client.list_api_groups_aggregated()).await?;
        Ok(Self::of(core.items.into_iter().chain(groups.items)))
    }

    /// From discovery documents, in order of priority.
    fn of(groups: impl IntoIterator<Item = APIGroupDiscovery>) -> Self {
        let mut served = Self::default();
        for group in groups {
            let name = group.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
            // Versions come in order of preference; a type counts in the first that has it.
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

    /// Just these types, each called by its plural name and kind.
    #[cfg(test)]
    pub fn just(types: &[ResourceType]) -> Self {
        let names = types.iter().map(|resource| Names {
            group: resource.group.clone(),
            plural: resource.plural.clone(),
            singular: resource.kind.to_lowercase(),
            kind: resource.kind.clone(),
            short: Vec::new(),
            versions: vec![resource.version.clone()],
        });
        Self { names: names.collect(), types: types.to_vec(), failed: Vec::new() }
    }

    fn add(&mut self, group: &str, version: &str, resource: APIResourceDiscovery) {
        let (Some(plural), Some(kind)) =
            (resource.resource, resource.response_kind.and_then(|kind| kind.kind))
        else {
            return;
        };
        if let Some(known) =
            self.names.iter_mut().find(|names| names.group == group && names.plural == plural)
        {
            known.versions.push(version.to_owned());
            return;
        }
        self.names.push(Names {
            group: group.to_owned(),
            plural: plural.clone(),
            singular: resource.singular_resource.unwrap_or_default(),
            kind: kind.clone(),
            short: resource.short_names,
            versions: vec![version.to_owned()],
        });
        let served = ResourceType {
            group: group.to_owned(),
            version: version.to_owned(),
            plural,
            kind,
            namespaced: resource.scope.as_deref() == Some("Namespaced"),
            verbs: resource.verbs,
        };
        if served.can_be_backed_up() {
            self.types.push(served);
        }
    }

    /// Every type that can be listed, read, created and deleted, in its preferred version, without subresources. In the
    /// API server's order of priority.
    pub fn types(&self) -> &[ResourceType] {
        &self.types
    }

    /// The type of this name, for example `pods` or `deployments.apps`.
    pub fn by_group_resource(&self, group_resource: &str) -> Option<&ResourceType> {
        self.types.iter().find(|served| served.group_resource() == group_resource)
    }

    /// The full name of a type that a person calls `po`, `pods`, `Pod`, `deploy`, `deployments.apps` or
    /// `deployments.v1.apps`; none if nothing served is called so. Of several types of one name the first in the API
    /// server's order of priority is meant, as in kubectl. Case does not matter.
    pub fn resolve(&self, name: &str) -> Option<String> {
        let name = name.to_ascii_lowercase();
        let (head, rest) =
            name.split_once('.').map_or((name.as_str(), None), |(head, rest)| (head, Some(rest)));
        // Plural names win over short names and kinds of other types.
        let plural = self.names.iter().find(|names| names.plural == head && names.lives_in(rest));
        let found = plural
            .or_else(|| self.names.iter().find(|names| names.is_called(head) && names.lives_in(rest)))?;
        Some(group_resource(&found.plural, &found.group))
    }
}

impl Names {
    fn is_called(&self, name: &str) -> bool {
        self.singular == name
            || self.kind.eq_ignore_ascii_case(name)
            || self.short.iter().any(|short| short == name)
    }

    /// `rest` is a group, a version, or `version.group`.
    fn lives_in(&self, rest: Option<&str>) -> bool {
        let Some(rest) = rest else { return true };
        let served = |version: &str| self.versions.iter().any(|other| other == version);
        rest == self.group
            || rest.split_once('.').is_some_and(|(version, group)| group == self.group && served(version))
            || (self.group.is_empty() && served(rest))
    }
}

#[cfg(test)]
mod tests;
