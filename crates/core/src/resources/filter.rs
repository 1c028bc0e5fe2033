//! Which resource types a Backup or Restore selects.

use super::{NAMESPACES, NEVER_SELECTED, NON_RESTORABLE, ResourceType};
use crate::{
    api::{BackupSpec, RestoreSpec},
    selection::IncludesExcludes,
};

/// The type of the data mover's records, which every restore needs regardless of its filters.
const DATA_UPLOADS: &str = "datauploads.velero.io";

/// The resource filters of one Backup or Restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceFilter {
    /// Types that are always excluded.
    never: &'static [&'static str],
    /// Types that are always selected.
    always: &'static [&'static str],
    /// Whether the namespace filter excludes nothing.
    all_namespaces: bool,
    /// Whether an empty filter still excludes cluster-scoped types.
    only_related: bool,
    rules: Rules,
}

/// The two families of fields.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Rules {
    /// One list for all types, and a switch for the cluster-scoped ones.
    Combined {
        types: IncludesExcludes,
        cluster: Option<bool>,
    },
    Scoped {
        namespaced: IncludesExcludes,
        cluster: IncludesExcludes,
    },
}

impl ResourceFilter {
    /// The filter of a Backup. `resolve` completes a name as users write it (`po`, `deployments`)
    /// to a group resource; an unknown name stays unchanged and may be a glob.
    ///
    /// Velero's rules (`pkg/util/collections/includes_excludes.go`, v1.18), with one exception: a
    /// backup without any filter selects all cluster-scoped types. Velero intends that too, but
    /// fails because its server adds snapshots to the excludes; here these do not count.
    pub fn for_backup(spec: &BackupSpec, resolve: &dyn Fn(&str) -> Option<String>) -> Self {
        let rules = if uses_combined_fields(spec) {
            Rules::Combined {
                types: resolved(&spec.included_resources, &spec.excluded_resources, resolve),
                cluster: spec.include_cluster_resources,
            }
        } else {
            Rules::Scoped {
                namespaced: resolved(
                    &spec.included_namespace_scoped_resources,
                    &spec.excluded_namespace_scoped_resources,
                    resolve,
                ),
                cluster: resolved(
                    &spec.included_cluster_scoped_resources,
                    &spec.excluded_cluster_scoped_resources,
                    resolve,
                ),
            }
        };
        let namespaces =
            IncludesExcludes::new(&spec.included_namespaces, &spec.excluded_namespaces);
        Self {
            never: NEVER_SELECTED,
            always: &[],
            all_namespaces: namespaces.everything(),
            only_related: false,
            rules,
        }
    }

    /// The filter as Velero's server applies it since 1.17: without any filter in the spec,
    /// cluster-scoped types except namespaces are excluded; their objects are added with the items
    /// that need them.
    #[must_use]
    pub fn only_related(self) -> Self {
        Self {
            only_related: true,
            ..self
        }
    }

    /// The filter of a Restore; `resolve` as for a Backup.
    ///
    /// It does not decide about Namespaces that restored items need: they are created in any case.
    pub fn for_restore(spec: &RestoreSpec, resolve: &dyn Fn(&str) -> Option<String>) -> Self {
        let namespaces =
            IncludesExcludes::new(&spec.included_namespaces, &spec.excluded_namespaces);
        Self {
            never: NON_RESTORABLE,
            always: &[DATA_UPLOADS],
            all_namespaces: namespaces.everything(),
            only_related: false,
            rules: Rules::Combined {
                types: resolved(&spec.included_resources, &spec.excluded_resources, resolve),
                cluster: spec.include_cluster_resources,
            },
        }
    }

    /// The types whose status is restored; `None`: no type, except for objects that request it
    /// themselves.
    pub fn status_in_restore(
        spec: &RestoreSpec,
        resolve: &dyn Fn(&str) -> Option<String>,
    ) -> Option<IncludesExcludes> {
        let status = spec.restore_status.as_ref()?;
        Some(resolved(
            &status.included_resources,
            &status.excluded_resources,
            resolve,
        ))
    }

    /// Whether objects of this type are selected.
    pub fn includes(&self, resource: &ResourceType) -> bool {
        let name = resource.group_resource();
        if self.never.contains(&name.as_str()) {
            return false;
        }
        if self.always.contains(&name.as_str()) {
            return true;
        }
        match &self.rules {
            Rules::Combined { types, cluster } => {
                let scope = resource.namespaced
                    || cluster.unwrap_or_else(|| self.all_namespaces || name == NAMESPACES);
                scope && types.includes(&name)
            }
            Rules::Scoped {
                namespaced,
                cluster,
            } => {
                if resource.namespaced {
                    return namespaced.includes(&name);
                }
                let unfiltered = cluster.everything() && cluster.included().is_empty();
                let whole_cluster = !self.only_related
                    && unfiltered
                    && self.all_namespaces
                    && namespaced.everything();
                !cluster.excludes(&name)
                    && (whole_cluster || cluster.names(&name) || name == NAMESPACES)
            }
        }
    }

    /// Whether objects of this type are selected regardless of filters.
    pub fn needs(&self, group_resource: &str) -> bool {
        self.always.contains(&group_resource)
    }

    /// Whether the spec of a Restore names this type exactly, not by a pattern.
    pub fn asks_for(&self, group_resource: &str) -> bool {
        let Rules::Combined { types, .. } = &self.rules else {
            return false;
        };
        types.included().iter().any(|name| name == group_resource)
    }

    /// Whether the spec excludes this type, so that it is not added as a related item either.
    pub fn excludes(&self, resource: &ResourceType) -> bool {
        let name = resource.group_resource();
        match &self.rules {
            Rules::Combined { types, cluster } => {
                types.excludes(&name) || !resource.namespaced && *cluster == Some(false)
            }
            Rules::Scoped {
                namespaced,
                cluster,
            } => {
                if resource.namespaced {
                    namespaced.excludes(&name)
                } else {
                    cluster.excludes(&name)
                }
            }
        }
    }

    /// Whether objects of this type may be added as related items: namespaced types if they are
    /// selected, others unless they are excluded by name (Velero `pkg/backup/item_backupper.go`,
    /// v1.18).
    pub fn allows_related(&self, resource: &ResourceType) -> bool {
        let name = resource.group_resource();
        if resource.namespaced {
            self.includes(resource)
        } else {
            !self.never.contains(&name.as_str()) && (name == NAMESPACES || !self.excludes(resource))
        }
    }

    /// Whether objects of this type may be restored because others need them: the lists count, but
    /// cluster-scoped types need not be requested, only not excluded (Velero
    /// `pkg/restore/restore.go`, v1.18).
    pub fn allows_related_in_restore(&self, resource: &ResourceType) -> bool {
        let name = resource.group_resource();
        if self.never.contains(&name.as_str()) {
            return false;
        }
        if self.always.contains(&name.as_str()) {
            return true;
        }
        match &self.rules {
            Rules::Combined { types, cluster } => {
                types.includes(&name) && (resource.namespaced || *cluster != Some(false))
            }
            Rules::Scoped { .. } => self.includes(resource),
        }
    }
}

/// Whether a Backup filters by the older fields, which do not distinguish scopes.
pub fn uses_combined_fields(spec: &BackupSpec) -> bool {
    spec.include_cluster_resources.is_some()
        || !spec.included_resources.is_empty()
        || !spec.excluded_resources.is_empty()
}

/// Whether a Backup filters by the newer fields, one list for each scope.
pub(crate) fn uses_scoped_fields(spec: &BackupSpec) -> bool {
    [
        &spec.included_cluster_scoped_resources,
        &spec.excluded_cluster_scoped_resources,
        &spec.included_namespace_scoped_resources,
        &spec.excluded_namespace_scoped_resources,
    ]
    .iter()
    .any(|list| !list.is_empty())
}

/// Names of resources as users write them, completed (`deploy` is `deployments.apps`) if `resolve`
/// knows them; globs and unknown names stay unchanged.
pub fn full_names(names: &[String], resolve: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    names
        .iter()
        .map(|name| {
            let full = if name == "*" { None } else { resolve(name) };
            full.unwrap_or_else(|| name.clone())
        })
        .collect()
}

/// The lists with every name completed. Excludes that apply to every backup are dropped: a spec
/// that a Velero server has prepared must not look filtered because of them.
fn resolved(
    includes: &[String],
    excludes: &[String],
    resolve: &dyn Fn(&str) -> Option<String>,
) -> IncludesExcludes {
    let mut excludes = full_names(excludes, resolve);
    excludes.retain(|name| !NEVER_SELECTED.contains(&name.as_str()));
    IncludesExcludes::new(&full_names(includes, resolve), &excludes)
}

#[cfg(test)]
mod tests;
