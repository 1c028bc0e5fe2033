//! Checks whether a Restore can run, given the state of the cluster. Pure; all errors are found at
//! once.

use std::collections::{BTreeMap, BTreeSet};

use backup_actions::restore::{
    ActionConfigs, ConfigMapData,
    modifiers::{self, ResourceModifiers},
};
use backup_core::{
    api::{Backup, BackupPhase, BackupStorageLocation, LocationPhase, Restore, RestoreSpec},
    labels,
    resource_policy::{self, FilterPolicies},
    resources::{self, VersionPriorities},
    selection::IncludesExcludes,
    stored_scope,
    validate::{self, Finding},
};
use backup_lock::Footprint;
use jiff::Timestamp;

use crate::config_maps;

/// The data read from the cluster.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) backup: Option<Backup>,
    /// The location that the backup is read from: its own, or that of a copy.
    pub(crate) location: Option<BackupStorageLocation>,
    /// The data of the ConfigMap with the resource modifiers that the Restore names, if there is
    /// one.
    pub(crate) modifier: Option<BTreeMap<String, String>>,
    /// The modifiers for restores that name none, if this one uses them.
    pub(crate) default_modifier: Option<DefaultModifier>,
    /// The data of the ConfigMap with the filter policies that the Restore names, if there is one.
    pub(crate) policy: Option<BTreeMap<String, String>>,
    /// The ConfigMaps that configure built-in actions.
    pub(crate) action_configs: Vec<ConfigMapData>,
    /// The versions that users prefer; set with `--features=EnableAPIGroupVersions`.
    pub(crate) version_priorities: Option<VersionPriorities>,
}

/// The ConfigMap with the modifiers that the administrator has set for restores that name none.
#[derive(Debug)]
pub(crate) struct DefaultModifier {
    pub(crate) name: String,
    /// `None`: there is no such ConfigMap.
    pub(crate) data: Option<BTreeMap<String, String>>,
}

impl Facts {
    /// Name of the location with the files of backup and restore; empty if it is not known.
    pub(super) fn location_name(&self) -> &str {
        let read = self
            .location
            .as_ref()
            .and_then(|location| location.metadata.name.as_deref());
        read.unwrap_or_else(|| self.own_location())
    }

    /// The location of the copy that is read instead of the backup's own files.
    pub(super) fn copy_location(&self) -> Option<&str> {
        Some(self.location_name()).filter(|name| *name != self.own_location())
    }

    fn own_location(&self) -> &str {
        let backup = self.backup.as_ref();
        let own = backup.and_then(|backup| backup.spec.storage_location.as_deref());
        own.unwrap_or_default()
    }

    /// The versions that users prefer, if the layout of the backup has folders of versions (Velero
    /// `pkg/restore/restore.go`, `execute`, v1.18).
    pub(super) fn versions(&self) -> Option<&VersionPriorities> {
        let format = self.backup.as_ref()?.status.format_version.as_deref()?;
        self.version_priorities
            .as_ref()
            .filter(|_| format >= "1.1.0")
    }

    /// Messages about preferred versions that are ignored.
    pub(super) fn ignored_versions(&self) -> impl Iterator<Item = &String> {
        self.version_priorities
            .iter()
            .flat_map(|priorities| &priorities.ignored)
    }
}

/// Start time and name of a Completed backup of this schedule: the newest is restored. `None` for
/// any other backup.
pub(super) fn started_for(schedule: &str, backup: &Backup) -> Option<(Option<Timestamp>, String)> {
    let candidate = backup.phase() == BackupPhase::Completed && backup.schedule() == Some(schedule);
    let started = backup.status.start_timestamp.as_ref().map(|time| time.0);
    candidate.then(|| (started, backup.metadata.name.clone().unwrap_or_default()))
}

/// Everything that keeps the restore from running, each finding with its field.
pub(super) fn findings(spec: &RestoreSpec, facts: &Facts) -> Vec<Finding> {
    let mut found = validate::engine_restore(spec);
    validate::add_new(
        &mut found,
        Configuration::read(spec, facts).err().into_iter().flatten(),
    );
    let (field, what) = match (
        non_empty(spec.backup_name.as_ref()),
        non_empty(spec.schedule_name.as_ref()),
    ) {
        (Some(name), None) => ("spec.backupName", format!("backup {name:?}")),
        (None, Some(name)) => (
            "spec.scheduleName",
            format!("a Completed backup of schedule {name:?}"),
        ),
        // Both or none: reported by the rules that need no cluster.
        _ => return found,
    };
    if found.iter().any(|finding| finding.field == field) {
        return found;
    }
    let Some(backup) = &facts.backup else {
        found.push(Finding::new(
            field,
            format!(
                "{what} was not found in this namespace; `kubectl backup get` lists what there is"
            ),
        ));
        return found;
    };
    found.extend(backup_finding(field, backup));
    found.extend(prune_finding(spec, backup));
    found.extend(location_finding(field, backup, facts.location.as_ref()));
    found
}

pub(super) fn non_empty(name: Option<&String>) -> Option<&str> {
    name.map(String::as_str).filter(|name| !name.is_empty())
}

fn backup_finding(field: &str, backup: &Backup) -> Option<Finding> {
    let name = backup.metadata.name.as_deref().unwrap_or_default();
    let phase = backup.phase();
    if backup.metadata.deletion_timestamp.is_some() || phase == BackupPhase::Deleting {
        return Some(Finding::new(
            field,
            format!("backup {name:?} is being deleted; restore from another"),
        ));
    }
    (!matches!(phase, BackupPhase::Completed | BackupPhase::PartiallyFailed)).then(|| {
        Finding::new(
            field,
            format!("backup {name:?} is {phase}; only a backup that is Completed or PartiallyFailed can be restored"),
        )
    })
}

/// Only what the backup was asked for, and holds completely, tells which objects it does not have.
/// It does not record what a resource policy left out: in the namespace of the backup itself, such
/// objects are older than the backup and kept for that reason.
fn prune_finding(spec: &RestoreSpec, backup: &Backup) -> Option<Finding> {
    if spec.prune != Some(true) {
        return None;
    }
    let name = backup.metadata.name.as_deref().unwrap_or_default();
    let is_elsewhere = !spec.namespace_mapping.is_empty()
        || labels::annotation(backup, labels::IMPORTED_ANNOTATION).is_some();
    let why = if backup.phase() == BackupPhase::PartiallyFailed {
        format!(
            "backup {name:?} is PartiallyFailed: objects that it lacks because of an error would be removed; restore from a Completed \
             backup, or without this field"
        )
    } else if is_elsewhere && stored_scope::scope(backup).resource_policy.is_some() {
        format!(
            "backup {name:?} has a resource policy, and which objects that left out is not recorded: they would be removed from mapped \
             namespaces, and with a backup of another cluster; restore without this field"
        )
    } else {
        return None;
    };
    Some(Finding::new("spec.prune", why))
}

fn location_finding(
    field: &str,
    backup: &Backup,
    location: Option<&BackupStorageLocation>,
) -> Option<Finding> {
    let name = backup.metadata.name.as_deref().unwrap_or_default();
    let at = location.and_then(|location| location.metadata.name.as_deref());
    let at = at.or(backup.spec.storage_location.as_deref());
    let at = at.unwrap_or_default();
    let Some(location) = location else {
        return Some(Finding::new(
            field,
            format!("backup {name:?} is in BackupStorageLocation {at:?}, which does not exist"),
        ));
    };
    (location.status.phase == Some(LocationPhase::Unavailable)).then(|| {
        let why = location
            .status
            .message
            .as_deref()
            .unwrap_or("no reason was given");
        Finding::new(
            field,
            format!(
                "backup {name:?} is in BackupStorageLocation {at:?}, which is Unavailable: {why}"
            ),
        )
    })
}

/// Settings of users in ConfigMaps.
#[derive(Debug, Default)]
pub(super) struct Configuration {
    pub(super) modifiers: Option<ResourceModifiers>,
    pub(super) filters: FilterPolicies,
    pub(super) actions: ActionConfigs,
}

impl Configuration {
    /// The error lists everything that is wrong with it.
    pub(super) fn read(spec: &RestoreSpec, facts: &Facts) -> Result<Self, Vec<Finding>> {
        match (
            modifiers(spec, facts),
            filters(spec, facts),
            ActionConfigs::read(&facts.action_configs),
        ) {
            (Ok(modifiers), Ok(filters), Ok(actions)) => Ok(Self {
                modifiers,
                filters,
                actions,
            }),
            (modifiers, filters, actions) => {
                let wrong = [modifiers.err(), filters.err(), actions.err()];
                Err(wrong.into_iter().flatten().flatten().collect())
            }
        }
    }
}

/// Whether a restore uses the modifiers that the administrator has set (Velero
/// `pkg/controller/restore_controller.go`, after 1.18): its own replace them.
pub(super) fn follows_default_modifier(spec: &RestoreSpec) -> bool {
    spec.resource_modifier.is_none() && spec.skip_default_resource_modifier != Some(true)
}

/// The resource modifiers that the Restore names, or else the default ones. The error lists
/// everything that is wrong with them.
fn modifiers(spec: &RestoreSpec, facts: &Facts) -> Result<Option<ResourceModifiers>, Vec<Finding>> {
    let own = config_maps::read(
        modifiers::FIELD,
        spec.resource_modifier.as_ref(),
        facts.modifier.as_ref(),
        |data| modifiers::read(modifiers::FIELD, data),
    );
    let Some(default) = facts
        .default_modifier
        .as_ref()
        .filter(|_| follows_default_modifier(spec))
    else {
        return own;
    };
    let reference = config_maps::reference(&default.name);
    let read = config_maps::read(
        modifiers::DEFAULT,
        Some(&reference),
        default.data.as_ref(),
        |data| modifiers::read(modifiers::DEFAULT, data),
    );
    read.map_err(|mut findings| {
        for finding in &mut findings {
            finding
                .message
                .push_str("; or restore with spec.skipDefaultResourceModifier");
        }
        findings
    })
}

/// The filter policies that the Restore names, or else empty ones. The error lists everything that
/// is wrong with them.
fn filters(spec: &RestoreSpec, facts: &Facts) -> Result<FilterPolicies, Vec<Finding>> {
    let read = config_maps::read(
        "spec.resourcePolicy",
        spec.resource_policy.as_ref(),
        facts.policy.as_ref(),
        resource_policy::read_for_restore,
    );
    read.map(Option::unwrap_or_default)
}

/// The spec to run and publish: names filled in, non-restorable resources excluded.
pub(super) fn prepared(restore: &Restore, backup: &Backup) -> RestoreSpec {
    let mut spec = restore.spec.clone();
    spec.backup_name.clone_from(&backup.metadata.name);
    if non_empty(spec.schedule_name.as_ref()).is_none() {
        spec.schedule_name = backup.schedule().map(ToOwned::to_owned);
    }
    for resource in resources::NON_RESTORABLE {
        if !spec.excluded_resources.iter().any(|r| r == resource) {
            spec.excluded_resources.push((*resource).to_owned());
        }
    }
    spec
}

/// Why a restore must not begin with its claim, or with the contents of the backup; `namespaces`
/// are the namespaces of its items.
pub(super) fn refusal(
    spec: &RestoreSpec,
    backup: &Backup,
    namespaces: &BTreeSet<String>,
    claimed: &Footprint,
) -> Option<String> {
    if Footprint::of_restore(spec, Some(&backup.spec)).includes_cluster()
        && !claimed.includes_cluster()
    {
        return Some(
            "its spec, or that of its backup, was changed after the restore was admitted: cluster-scoped resources are selected \
             now, and are not in its claim; create a new restore"
                .to_owned(),
        );
    }
    let selected = IncludesExcludes::new(&spec.included_namespaces, &spec.excluded_namespaces);
    let mut sources: BTreeMap<&str, &str> = BTreeMap::new();
    for source in namespaces.iter().filter(|source| selected.includes(source)) {
        let target = spec.namespace_mapping.get(source).unwrap_or(source);
        if let Some(other) = sources.insert(target, source) {
            return Some(format!(
                "spec.namespaceMapping leads {other:?} and {source:?} into one namespace, {target:?}, where their objects would take \
                 each other's place; map them to two, or leave one out with spec.excludedNamespaces"
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests;
