//! Filter policies: which items of a type are selected, in a namespace or among cluster-scoped
//! items.
//!
//! Velero: `internal/resourcepolicies`, `pkg/restore/restore.go` and `pkg/backup/item_collector.go`
//! as of 2026-08 (after 1.18). Types that the spec excludes stay excluded. In a namespace that a
//! policy names, only the listed types are selected. Listed cluster-scoped types are filtered, and
//! the others follow the spec. Label selectors of a spec are ignored wherever a policy applies.

use std::collections::BTreeMap;

use crate::selection::{IncludesExcludes, LabelFilter, glob_match};

/// The filter policies of a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FilterPolicies {
    pub cluster_scoped: Vec<KindFilter>,
    pub namespaced: Vec<NamespacePolicy>,
}

/// The selection in some namespaces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamespacePolicy {
    /// Names and globs.
    pub namespaces: Vec<String>,
    pub kinds: Vec<KindFilter>,
}

/// The selection among the items of some types.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KindFilter {
    /// As users write them (`ConfigMap`, `deployments.apps`); empty, or `*`: all types that no
    /// other filter lists.
    pub kinds: Vec<String>,
    pub labels: LabelFilter,
    pub names: IncludesExcludes,
}

/// Completes the name of a type, and tells whether it is namespaced, if known.
pub type Resolve<'a> = dyn Fn(&str) -> Option<(String, Option<bool>)> + 'a;

/// The policies' rule for a type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PolicyRule<'a> {
    /// No rule: the filters of the spec apply.
    None,
    /// Items that pass this filter are selected.
    Filter(&'a KindFilter),
    /// The type is not listed in its namespace.
    Unlisted,
}

impl KindFilter {
    /// Whether it applies to all types that no other filter lists.
    pub fn is_catch_all(&self) -> bool {
        self.kinds.is_empty() || self.kinds == ["*"]
    }

    /// Whether it names the type `group_resource`.
    fn lists(&self, group_resource: &str) -> bool {
        self.kinds.iter().any(|kind| kind == group_resource)
    }

    /// Whether an item is selected. `labels` is called only if needed.
    pub fn selects(&self, name: &str, labels: impl FnOnce() -> BTreeMap<String, String>) -> bool {
        self.names.includes(name) && self.labels.selects(labels)
    }
}

impl FilterPolicies {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The rule for a type (`plural.group`) in a namespace, or for cluster-scoped items (`None`). A
    /// policy with the exact name of the namespace precedes those whose globs match it, of which
    /// the first applies.
    pub fn rule(&self, group_resource: &str, namespace: Option<&str>) -> PolicyRule<'_> {
        let Some(namespace) = namespace else {
            return self
                .cluster_scoped
                .iter()
                .find(|filter| filter.lists(group_resource))
                .map_or(PolicyRule::None, PolicyRule::Filter);
        };
        let exact = self
            .namespaced
            .iter()
            .find(|policy| policy.namespaces.iter().any(|name| name == namespace));
        let policy = exact.or_else(|| {
            self.namespaced.iter().find(|policy| {
                policy
                    .namespaces
                    .iter()
                    .any(|name| glob_match(name, namespace))
            })
        });
        let Some(policy) = policy else {
            return PolicyRule::None;
        };
        policy
            .kinds
            .iter()
            .find(|filter| filter.lists(group_resource))
            .or_else(|| policy.kinds.iter().find(|filter| filter.is_catch_all()))
            .map_or(PolicyRule::Unlisted, PolicyRule::Filter)
    }

    /// The policies with full type names, and the errors in the names, as sentences for users.
    pub fn resolved(&self, resolve: &Resolve<'_>) -> (Self, Vec<String>) {
        let mut policies = self.clone();
        let mut problems = Vec::new();
        complete(
            &mut policies.cluster_scoped,
            false,
            "clusterScopedFilterPolicy",
            resolve,
            &mut problems,
        );
        for (at, policy) in policies.namespaced.iter_mut().enumerate() {
            complete(
                &mut policy.kinds,
                true,
                &format!("namespacedFilterPolicies[{at}]"),
                resolve,
                &mut problems,
            );
        }
        (policies, problems)
    }
}

/// Completes the names of the types, and adds the errors in them.
fn complete(
    filters: &mut [KindFilter],
    in_namespaces: bool,
    at: &str,
    resolve: &Resolve<'_>,
    problems: &mut Vec<String>,
) {
    let mut listed: Vec<String> = Vec::new();
    for filter in filters.iter_mut().filter(|filter| !filter.is_catch_all()) {
        for kind in &mut filter.kinds {
            let Some((full, namespaced)) = resolve(kind) else {
                problems.push(format!(
                    "{at}: no resource is called {kind}: it selects nothing"
                ));
                continue;
            };
            if namespaced.is_some_and(|namespaced| namespaced != in_namespaces) {
                let is = if in_namespaces {
                    "cluster-scoped"
                } else {
                    "namespace-scoped"
                };
                problems.push(format!("{at}: {kind} is {is}: it selects nothing there"));
            }
            if listed.contains(&full) {
                problems.push(format!(
                    "{at}: {kind} is {full}, which is listed before; the first filter counts"
                ));
            }
            listed.push(full.clone());
            *kind = full;
        }
    }
}

#[cfg(test)]
mod tests;
