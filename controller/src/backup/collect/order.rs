//! Which types are backed up, and in which order. Pure.

use std::collections::HashSet;

use backup_core::resources::{NAMESPACES, ResourceFilter, ResourceType, cohabitant};

/// Types of the core group that come first: what is most likely to change belongs together in time.
const CORE_FIRST: [&str; 3] = ["pods", "persistentvolumeclaims", "persistentvolumes"];
/// The type that defines types.
pub const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// The types of a backup.
#[derive(Clone, Debug, Default)]
pub struct Types {
    /// Types to list, in order; without namespaces.
    pub listed: Vec<ResourceType>,
    /// Namespaces, if they are selected. They come last: some are known by their items only.
    pub namespaces: Option<ResourceType>,
    /// CustomResourceDefinitions, if they are served at all.
    pub definitions: Option<ResourceType>,
}

impl Types {
    /// Chooses from the preferred versions of all served types, given as discovery lists them. Core first, `extensions`
    /// last, otherwise as served; of two types that stand for the same objects the first (Velero
    /// `pkg/backup/item_collector.go`, v1.18).
    pub fn choose(served: &[ResourceType], filter: &ResourceFilter) -> Self {
        let mut all: Vec<&ResourceType> =
            served.iter().filter(|resource| resource.can_be_backed_up()).collect();
        all.sort_by_key(|resource| rank(resource));
        let mut types = Self::default();
        let mut met = HashSet::new();
        for resource in all {
            let name = resource.group_resource();
            if name == CRDS {
                types.definitions = Some(resource.clone());
            }
            let twin_met =
                cohabitant(&resource.plural, &resource.group).is_some_and(|twin| met.contains(&twin));
            if !filter.includes(resource) || twin_met || !met.insert(name.clone()) {
                continue;
            }
            if name == NAMESPACES {
                types.namespaces = Some(resource.clone());
            } else {
                types.listed.push(resource.clone());
            }
        }
        types
    }
}

fn rank(resource: &ResourceType) -> (u8, usize) {
    match resource.group.as_str() {
        "" => {
            let place = CORE_FIRST.iter().position(|plural| *plural == resource.plural);
            (0, place.unwrap_or(CORE_FIRST.len()))
        }
        "extensions" => (2, 0),
        _ => (1, 0),
    }
}

#[cfg(test)]
mod tests {
    use backup_core::api::BackupSpec;

    use super::*;

    fn served(names: &[(&str, &str)]) -> Vec<ResourceType> {
        names
            .iter()
            .map(|(group, plural)| ResourceType {
                group: (*group).to_owned(),
                version: "v1".to_owned(),
                plural: (*plural).to_owned(),
                kind: "X".to_owned(),
                namespaced: true,
                verbs: ["list", "create", "get", "delete"].map(str::to_owned).to_vec(),
            })
            .collect()
    }

    fn names(types: &Types) -> Vec<String> {
        types.listed.iter().map(ResourceType::group_resource).collect()
    }

    fn everything() -> ResourceFilter {
        ResourceFilter::for_backup(&BackupSpec::default(), &|_| None)
    }

    #[test]
    fn pods_and_claims_come_first_and_extensions_last() {
        let served = served(&[
            ("extensions", "ingresses"),
            ("", "configmaps"),
            ("", "persistentvolumes"),
            ("apps", "statefulsets"),
            ("", "pods"),
            ("", "persistentvolumeclaims"),
            ("batch", "jobs"),
        ]);
        assert_eq!(
            names(&Types::choose(&served, &everything())),
            [
                "pods",
                "persistentvolumeclaims",
                "persistentvolumes",
                "configmaps",
                "statefulsets.apps",
                "jobs.batch",
                "ingresses.extensions"
            ]
        );
    }

    #[test]
    fn one_of_two_types_with_the_same_objects_is_backed_up() {
        let served = served(&[
            ("extensions", "deployments"),
            ("", "events"),
            ("apps", "deployments"),
            ("events.k8s.io", "events"),
        ]);
        assert_eq!(names(&Types::choose(&served, &everything())), ["events", "deployments.apps"]);
    }

    #[test]
    fn what_cannot_be_restored_is_not_listed() {
        let mut served = served(&[("metrics.k8s.io", "pods"), ("", "secrets")]);
        served[0].verbs = vec!["get".to_owned(), "list".to_owned()];
        assert_eq!(names(&Types::choose(&served, &everything())), ["secrets"]);
    }

    #[test]
    fn namespaces_and_definitions_are_known_apart() {
        let served = served(&[("", "namespaces"), ("apiextensions.k8s.io", "customresourcedefinitions")]);
        let types = Types::choose(&served, &everything());
        assert!(types.namespaces.is_some() && types.definitions.is_some());
        assert_eq!(names(&types), [CRDS]);
        let spec = BackupSpec { included_resources: vec!["secrets".to_owned()], ..BackupSpec::default() };
        let types = Types::choose(&served, &ResourceFilter::for_backup(&spec, &|_| None));
        assert!(types.namespaces.is_none() && types.definitions.is_some());
        assert!(names(&types).is_empty());
    }
}
