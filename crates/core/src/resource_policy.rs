//! Resource policies: rules in a ConfigMap for the volumes and the items of a backup, or the items
//! of a restore (`spec.resourcePolicy`).
//!
//! Velero: `internal/resourcepolicies`, v1.18. Read strictly: a policy that is not fully understood
//! is not partly applied.

mod filters;
mod namespaces;
mod read;
mod volume;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

pub use filters::{FilterPolicies, KindFilter, NamespacePolicy, PolicyRule, Resolve};
pub use namespaces::NamespaceLabels;
pub use read::{GLOBAL_POLICIES, read, read_for_restore, read_global};
pub use volume::Volume;

use crate::api::BackupSpec;
use crate::resources::full_names;
use crate::selection::IncludesExcludes;

const INCLUDE_EXCLUDE: &str = "includeExcludePolicy";
const CLUSTER_SCOPED: &str = "clusterScopedFilterPolicy";
const NAMESPACED: &str = "namespacedFilterPolicies";
/// The parameter of the action `snapshot` that names a VolumeSnapshotClass (Velero
/// `internal/resourcepolicies`, after 1.18).
const SNAPSHOT_CLASS: &str = "snapshotClass";

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResourcePolicy {
    /// Rules for volumes; the first rule whose conditions all match applies.
    pub volumes: Vec<VolumePolicy>,
    /// Types that are included or excluded, unless the Backup itself names them.
    pub types: TypeLists,
    /// Namespaces that are included or excluded by their labels.
    pub namespaces: NamespaceLabels,
    pub filters: FilterPolicies,
}

/// An administrator's rules for the volumes of all backups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GlobalVolumePolicies {
    /// Rules that come after the backup's own rules.
    pub volumes: Vec<VolumePolicy>,
    /// Names of the parts of the policy that are ignored: only rules for volumes can apply to all
    /// backups.
    pub ignored: Vec<&'static str>,
}

/// An action for volumes that match all conditions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VolumePolicy {
    /// Conditions; if there are none, every volume matches.
    pub conditions: Conditions,
    pub action: VolumeAction,
}

/// How the data of a volume is handled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VolumeAction {
    pub kind: VolumeActionKind,
    pub parameters: BTreeMap<String, Value>,
}

impl VolumeAction {
    fn snapshot_class(&self) -> Option<String> {
        self.parameters
            .get(SNAPSHOT_CLASS)
            .and_then(Value::as_str)
            .map(str::to_owned)
    }
}

/// See [`VolumeAction`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VolumeActionKind {
    #[default]
    Skip,
    /// Its files are copied while a pod uses it.
    FsBackup,
    Snapshot,
    /// Handled by a plugin.
    Custom,
}

/// Conditions on a volume. An unset condition matches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    /// Minimum and maximum capacity (bytes); `None` is no limit.
    pub capacity: (Option<u128>, Option<u128>),
    pub storage_classes: Vec<String>,
    /// An NFS volume, of this server and path if set.
    pub nfs: Option<NfsCondition>,
    /// A CSI volume, of this driver and with these attributes if set.
    pub csi: Option<CsiCondition>,
    /// Kinds of source, such as `hostPath`.
    pub volume_types: Vec<String>,
    /// Labels that the claim must have, among others.
    pub claim_labels: BTreeMap<String, String>,
    pub claim_phases: Vec<String>,
    /// Empty is any.
    pub claim_volume_mode: String,
    /// Exactly the modes of the claim; empty is any (Velero `pvcAccessModesCondition`, after 1.18).
    pub claim_access_modes: BTreeSet<String>,
}

/// See [`Conditions::nfs`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NfsCondition {
    /// Empty is any.
    pub server: String,
    /// Empty is any.
    pub path: String,
}

/// See [`Conditions::csi`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsiCondition {
    /// Empty is any.
    pub driver: String,
    /// Attributes that the volume must have, among others.
    pub volume_attributes: BTreeMap<String, String>,
}

/// Lists of types, by scope. `*` is not supported here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeLists {
    pub included_cluster_scoped: Vec<String>,
    pub excluded_cluster_scoped: Vec<String>,
    pub included_namespace_scoped: Vec<String>,
    pub excluded_namespace_scoped: Vec<String>,
}

impl ResourcePolicy {
    /// The policy's action for a volume; `None` if no rule matches.
    pub fn action_for(&self, volume: &Volume) -> Option<&VolumeAction> {
        self.volumes
            .iter()
            .find(|rule| rule.conditions.hold(volume))
            .map(|rule| &rule.action)
    }

    /// The policy of a backup with the rules for all backups appended to its own, so that its own
    /// rules are tried first (Velero `GetResourcePoliciesFromBackupWithGlobal`, v1.18.3).
    #[must_use]
    pub fn with_global(mut self, global: GlobalVolumePolicies) -> Self {
        self.volumes.extend(global.volumes);
        self
    }

    /// The names of the non-empty parts other than rules for volumes.
    pub fn selecting_parts(&self) -> Vec<&'static str> {
        let parts = [
            (
                INCLUDE_EXCLUDE,
                self.types.is_empty() && self.namespaces.is_empty(),
            ),
            (CLUSTER_SCOPED, self.filters.cluster_scoped.is_empty()),
            (NAMESPACED, self.filters.namespaced.is_empty()),
        ];
        parts
            .into_iter()
            .filter(|(_, is_empty)| !is_empty)
            .map(|(part, _)| part)
            .collect()
    }
}

/// The decision about the data of a volume.
#[derive(Clone, Debug, PartialEq)]
pub enum VolumePlan {
    /// It is not in the backup, on purpose.
    Skip {
        reason: String,
    },
    Snapshot {
        /// The VolumeSnapshotClass that the policy names for it.
        class: Option<String>,
    },
    /// Its files should be copied.
    FsBackup,
    Custom {
        parameters: BTreeMap<String, Value>,
    },
}

/// Decides about one volume. Order of precedence: a rule of the policy; a pod that requests a copy
/// of its files; the Backup's setting for all volumes (Velero `internal/volumehelper`, v1.18).
pub fn plan(
    spec: &BackupSpec,
    policy: Option<&ResourcePolicy>,
    volume: &Volume,
    pod_asks_for_files: bool,
) -> VolumePlan {
    let no_snapshots = spec.snapshot_volumes == Some(false);
    let Some(action) = policy.and_then(|policy| policy.action_for(volume)) else {
        return if pod_asks_for_files {
            VolumePlan::FsBackup
        } else if no_snapshots {
            skip("spec.snapshotVolumes is false")
        } else {
            VolumePlan::Snapshot { class: None }
        };
    };
    match action.kind {
        VolumeActionKind::Skip => skip("the resource policy says so"),
        VolumeActionKind::FsBackup => VolumePlan::FsBackup,
        VolumeActionKind::Snapshot => {
            if no_snapshots {
                skip("spec.snapshotVolumes is false")
            } else {
                VolumePlan::Snapshot {
                    class: action.snapshot_class(),
                }
            }
        }
        VolumeActionKind::Custom => VolumePlan::Custom {
            parameters: action.parameters.clone(),
        },
    }
}

fn skip(reason: &str) -> VolumePlan {
    VolumePlan::Skip {
        reason: reason.to_owned(),
    }
}

impl TypeLists {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The spec with these lists added, for types that its own lists do not mention (Velero
    /// `pkg/util/collections/includes_excludes.go`, v1.18). `resolve` completes names as users
    /// write them.
    #[must_use]
    pub fn added_to(
        &self,
        spec: &BackupSpec,
        resolve: &dyn Fn(&str) -> Option<String>,
    ) -> BackupSpec {
        let mut spec = spec.clone();
        add_unmentioned(
            &self.excluded_namespace_scoped,
            &mut spec.excluded_namespace_scoped_resources,
            &spec.included_namespace_scoped_resources,
            resolve,
        );
        add_unmentioned(
            &self.included_namespace_scoped,
            &mut spec.included_namespace_scoped_resources,
            &spec.excluded_namespace_scoped_resources,
            resolve,
        );
        add_unmentioned(
            &self.excluded_cluster_scoped,
            &mut spec.excluded_cluster_scoped_resources,
            &spec.included_cluster_scoped_resources,
            resolve,
        );
        add_unmentioned(
            &self.included_cluster_scoped,
            &mut spec.included_cluster_scoped_resources,
            &spec.excluded_cluster_scoped_resources,
            resolve,
        );
        spec
    }
}

/// Adds the names to a list of a spec that neither this list nor the other one matches.
fn add_unmentioned(
    names: &[String],
    list: &mut Vec<String>,
    other: &[String],
    resolve: &dyn Fn(&str) -> Option<String>,
) {
    for name in full_names(names, resolve) {
        let own = IncludesExcludes::new(&full_names(list, resolve), &full_names(other, resolve));
        if !own.names(&name) && !own.excludes(&name) {
            list.push(name);
        }
    }
}

#[cfg(test)]
mod tests;
