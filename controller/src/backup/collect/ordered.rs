//! Items that a backup wants first among those of their type (`spec.orderedResources`), in the order given. Each is read by
//! itself, right before its type is listed (Velero `pkg/backup/item_collector.go`, v1.18).

use std::collections::BTreeMap;

use backup_actions::ItemId;
use backup_core::resources::ResourceType;
use backup_runtime::errors::plain;
use backup_store::Scope as Area;

use super::{CollectError, Collector, Present, Sink, fetch, take::Way};
use crate::backup::{items::Item, report::scope_of};

/// The wishes of a spec: names by type, and what was asked for in vain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ordered {
    by_type: BTreeMap<String, Vec<String>>,
    /// Keys that name no type of this backup.
    pub unknown: Vec<String>,
}

impl Ordered {
    /// From `spec.orderedResources`, for the types that are listed. A key is a plural name, whatever the group, or anything
    /// else that names a type.
    pub fn of(
        asked: &BTreeMap<String, String>,
        listed: &[ResourceType],
        resolve: &dyn Fn(&str) -> Option<String>,
    ) -> Self {
        let mut ordered = Self::default();
        for (key, names) in asked {
            let full = resolve(key);
            let mut of_key = listed.iter().filter(|resource| {
                resource.plural == *key
                    || full.as_ref().is_some_and(|full| resource.group_resource() == *full)
            });
            let names: Vec<String> =
                names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
            // Of several groups with this plural the first one, as everywhere where a person writes a name.
            match of_key.next() {
                Some(resource) => ordered.by_type.entry(resource.group_resource()).or_default().extend(names),
                None => ordered.unknown.push(key.clone()),
            }
        }
        ordered
    }
}

impl<S: Sink> Collector<'_, S> {
    /// Takes the items of a type that are wanted first. One that is not there, or not selected, is a warning.
    pub(super) async fn take_ordered(&mut self, of: &Present) -> Result<(), CollectError> {
        let order = self.order;
        for asked in order.ordered.by_type.get(&of.group_resource).into_iter().flatten() {
            self.go_on()?;
            let (namespace, name) = match asked.split_once('/') {
                Some((namespace, name)) => (Some(namespace), name),
                None => (None, asked.as_str()),
            };
            if namespace.is_some() != of.resource.namespaced {
                let form = if of.resource.namespaced { "namespace/name" } else { "name" };
                let message =
                    format!("spec.orderedResources names {asked:?} of {}; write {form}", of.group_resource);
                self.report.warn(Area::Velero, message);
                continue;
            }
            let id = ItemId {
                group_resource: of.group_resource.clone(),
                namespace: namespace.map(str::to_owned),
                name: name.to_owned(),
            };
            match fetch::object(self.client, &of.resource, namespace, name).await {
                Ok(Some(text)) if self.is_selected(&text) => {
                    self.take(of, &text, Way::Listed, 0).await?;
                }
                Ok(found) => {
                    let why = if found.is_none() { "does not exist" } else { "is not selected" };
                    let message = format!("spec.orderedResources names {id}, which {why}");
                    self.report.warn(scope_of(namespace), message);
                }
                // It may still come by in the list of its type, out of its order.
                Err(error) => self.report.warn(
                    scope_of(namespace),
                    format!(
                        "{} was to come first, and is not in its place, because it could not be read: {}",
                        id,
                        plain(&error)
                    ),
                ),
            }
        }
        Ok(())
    }

    /// What the list of its type would have been asked for.
    fn is_selected(&self, text: &str) -> bool {
        Item::parse(text).is_ok_and(|item| {
            item.namespace().is_none_or(|namespace| self.order.scope.includes(namespace))
                && (self.order.labels.everything() || self.order.labels.matches(&item.labels()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(group: &str, plural: &str) -> ResourceType {
        ResourceType { group: group.to_owned(), plural: plural.to_owned(), ..ResourceType::default() }
    }

    #[test]
    fn a_key_names_a_type_of_any_group_and_one_that_names_none_is_told() {
        let listed = [resource("", "pods"), resource("apps", "deployments"), resource("x", "deployments")];
        let asked = [("pods", "b/2, a/1,,"), ("deployments", "a/d"), ("po", "c/3"), ("nodes", "n")]
            .map(|(key, names)| (key.to_owned(), names.to_owned()));
        let resolve = |name: &str| (name == "po").then(|| "pods".to_owned());
        let ordered = Ordered::of(&asked.into(), &listed, &resolve);
        assert_eq!(ordered.unknown, ["nodes"]);
        assert_eq!(ordered.by_type["pods"], ["c/3", "b/2", "a/1"]);
        assert_eq!(ordered.by_type["deployments.apps"], ["a/d"]);
        assert_eq!(ordered.by_type.len(), 2);
    }
}
