//! Which BackupStorageLocation a backup goes to, and whether it can.

use backup_core::{
    api::{BackupSpec, BackupStorageLocation, LocationPhase},
    validate::Finding,
};
use kube::ResourceExt as _;

use crate::location::{choose_default, is_read_only};

const FIELD: &str = "spec.storageLocation";

/// The name of the location, and what keeps the backup from going there.
pub fn choose(
    spec: &BackupSpec,
    locations: &[BackupStorageLocation],
    fallback: &str,
) -> (String, Vec<Finding>) {
    let asked = spec.storage_location.as_deref().filter(|name| !name.is_empty());
    let name = asked
        .map(str::to_owned)
        .or_else(|| choose_default(locations, fallback))
        .unwrap_or_else(|| fallback.to_owned());
    let problem = match locations.iter().find(|location| location.name_any() == name) {
        Some(location) => problem(location, &name),
        None if asked.is_some() => Some(format!(
            "BackupStorageLocation {name:?} does not exist; existing ones: {}",
            names(locations)
        )),
        None => Some(format!(
            "no location was named, none is marked as the default, and {name:?} does not exist; name one of: {}",
            names(locations)
        )),
    };
    let findings = problem.map(|message| Finding { field: FIELD.to_owned(), message }).into_iter().collect();
    (name, findings)
}

/// A location that was not validated yet is tried.
fn problem(location: &BackupStorageLocation, name: &str) -> Option<String> {
    if is_read_only(location) {
        return Some(format!("BackupStorageLocation {name:?} is read-only (spec.accessMode)"));
    }
    let message = location.status.message.as_deref().filter(|text| !text.is_empty());
    match &location.status.phase {
        None | Some(LocationPhase::Available) => None,
        Some(phase) => Some(format!(
            "BackupStorageLocation {name:?} is {phase}: {}",
            message.unwrap_or("no reason was given; see its status")
        )),
    }
}

fn names(locations: &[BackupStorageLocation]) -> String {
    if locations.is_empty() {
        return "none".to_owned();
    }
    locations.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>().join(", ")
}
