//! Which types are backed up, in which order, and which items come first within their type. Pure.

use std::collections::{BTreeMap, HashSet};

use backup_core::resources::{
    CLAIMS, DEFINITIONS, NAMESPACES, PODS, ResourceFilter, ResourceType, VOLUMES, cohabitant,
};

/// Types of the core group that come first: the objects most likely to change are read close
/// together in time.
const CORE_FIRST: [&str; 3] = [PODS, CLAIMS, VOLUMES];

#[derive(Clone, Debug, Default)]
pub(crate) struct Types {
    /// Types to list, in order; without namespaces.
    pub(crate) listed: Vec<ResourceType>,
    /// Namespaces, if they are selected. They come last: some are known only from their items.
    pub(crate) namespaces: Option<ResourceType>,
    /// CustomResourceDefinitions, if they are served at all.
    pub(crate) definitions: Option<ResourceType>,
}

impl Types {
    /// Chooses among the served types, core first, `extensions` last, otherwise as served; of two
    /// types that stand for the same objects the first (Velero `pkg/backup/item_collector.go`,
    /// v1.18).
    pub(crate) fn choose<'a>(
        served: impl IntoIterator<Item = &'a ResourceType>,
        filter: &ResourceFilter,
    ) -> Self {
        let mut all: Vec<&ResourceType> = served
            .into_iter()
            .filter(|resource| resource.can_be_backed_up())
            .collect();
        all.sort_by_key(|resource| rank(resource));
        let mut types = Self::default();
        let mut met = HashSet::new();
        for resource in all {
            let name = resource.group_resource();
            if name == DEFINITIONS {
                types.definitions = Some(resource.clone());
            }
            let twin_met = cohabitant(&resource.plural, &resource.group)
                .is_some_and(|twin| met.contains(&twin));
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
            let place = CORE_FIRST
                .iter()
                .position(|plural| *plural == resource.plural);
            (0, place.unwrap_or(CORE_FIRST.len()))
        }
        "extensions" => (2, 0),
        _ => (1, 0),
    }
}

/// Items that a backup puts first within their type, in the order given (`spec.orderedResources`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OrderedResources {
    by_type: BTreeMap<String, Vec<String>>,
    /// Keys that name no type of this backup.
    pub(crate) unknown: Vec<String>,
}

impl OrderedResources {
    /// `listed` are the types of the backup. A key is a plural name of any group, or another name
    /// of a type.
    pub(crate) fn new(
        spec: &BTreeMap<String, String>,
        listed: &[ResourceType],
        resolve: &dyn Fn(&str) -> Option<String>,
    ) -> Self {
        let mut ordered = Self::default();
        for (key, names) in spec {
            let full = resolve(key);
            // Of several groups with this plural the first one, as for all names that users write.
            let of_key = listed.iter().find(|resource| {
                resource.plural == *key
                    || full
                        .as_ref()
                        .is_some_and(|full| resource.group_resource() == *full)
            });
            let names = names
                .split(',')
                .map(str::trim)
                .filter(|name| !name.is_empty())
                .map(str::to_owned);
            match of_key {
                Some(resource) => ordered
                    .by_type
                    .entry(resource.group_resource())
                    .or_default()
                    .extend(names),
                None => ordered.unknown.push(key.clone()),
            }
        }
        ordered
    }

    /// Names, with their namespaces if they have one.
    pub(crate) fn of_type(&self, group_resource: &str) -> &[String] {
        self.by_type.get(group_resource).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use backup_core::api::BackupSpec;

    use super::*;
    use crate::testing::resource;

    fn served(names: &[(&str, &str)]) -> Vec<ResourceType> {
        names
            .iter()
            .map(|(group, plural)| resource(group, plural, "X", true))
            .collect()
    }

    fn names(types: &Types) -> Vec<String> {
        types
            .listed
            .iter()
            .map(ResourceType::group_resource)
            .collect()
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
        assert_eq!(
            names(&Types::choose(&served, &everything())),
            ["events", "deployments.apps"]
        );
    }

    #[test]
    fn what_cannot_be_restored_is_not_listed() {
        let mut served = served(&[("metrics.k8s.io", "pods"), ("", "secrets")]);
        served[0].verbs = vec!["get".to_owned(), "list".to_owned()];
        assert_eq!(names(&Types::choose(&served, &everything())), ["secrets"]);
    }

    #[test]
    fn namespaces_and_definitions_are_known_apart() {
        let served = served(&[
            ("", "namespaces"),
            ("apiextensions.k8s.io", "customresourcedefinitions"),
        ]);
        let types = Types::choose(&served, &everything());
        assert!(types.namespaces.is_some() && types.definitions.is_some());
        assert_eq!(names(&types), [DEFINITIONS]);
        let spec = BackupSpec {
            included_resources: vec!["secrets".to_owned()],
            ..BackupSpec::default()
        };
        let types = Types::choose(&served, &ResourceFilter::for_backup(&spec, &|_| None));
        assert!(types.namespaces.is_none() && types.definitions.is_some());
        assert!(names(&types).is_empty());
    }

    #[test]
    fn an_ordered_key_names_a_type_of_any_group_or_is_reported() {
        let listed = served(&[("", "pods"), ("apps", "deployments"), ("x", "deployments")]);
        let asked = [
            ("pods", "b/2, a/1,,"),
            ("deployments", "a/d"),
            ("po", "c/3"),
            ("nodes", "n"),
        ]
        .map(|(key, names)| (key.to_owned(), names.to_owned()));
        let resolve = |name: &str| (name == "po").then(|| "pods".to_owned());
        let ordered = OrderedResources::new(&asked.into(), &listed, &resolve);
        assert_eq!(ordered.unknown, ["nodes"]);
        assert_eq!(ordered.of_type("pods"), ["c/3", "b/2", "a/1"]);
        assert_eq!(ordered.of_type("deployments.apps"), ["a/d"]);
        assert_eq!(ordered.by_type.len(), 2);
    }
}
