//! Resolves users' names of types in a backup: by the types of the cluster, or else of the backup
//! itself.

use std::collections::BTreeSet;

use backup_core::{
    api::RestoreSpec,
    resources::{DEFINITIONS, builtin_types},
    selection::ObjectName,
};
use backup_store::{Contents, StoreError};
use serde::Deserialize;

use crate::discovery::ServedTypes;

pub(super) struct TypeNames<'a> {
    served: &'a ServedTypes,
    /// The types that the backup holds.
    pub(super) held: BTreeSet<String>,
    /// Types whose definitions are in the backup; only read where a name needs them.
    defined: ServedTypes,
    /// Kinds of items that the cluster does not serve, and their types; also only read if needed.
    unserved: Vec<(String, String)>,
}

impl<'a> TypeNames<'a> {
    /// With `all`, names that are not in the spec can be resolved, too. Fails if the local disk
    /// fails.
    pub(super) fn read(
        spec: &RestoreSpec,
        served: &'a ServedTypes,
        contents: &Contents,
        all: bool,
    ) -> Result<Self, StoreError> {
        let held = contents.types().into_iter().collect();
        let mut names = Self {
            served,
            held,
            defined: ServedTypes::default(),
            unserved: Vec::new(),
        };
        if all || !mentioned(spec).all(|name| names.is_in_backup(name)) {
            names.defined = defined(contents)?;
            names.unserved = unserved(contents, served)?;
        }
        Ok(names)
    }

    fn is_in_backup(&self, name: &str) -> bool {
        self.held.contains(name)
            || self
                .resolve(name)
                .is_some_and(|full| self.held.contains(&full))
    }

    /// The full name of the type with this name; of several, one that the backup holds.
    pub(super) fn resolve(&self, name: &str) -> Option<String> {
        let served = self.served.resolve(name);
        if served.as_ref().is_some_and(|full| self.held.contains(full)) {
            return served;
        }
        self.in_backup(name).or(served)
    }

    fn in_backup(&self, name: &str) -> Option<String> {
        let plural = name.to_ascii_lowercase();
        let by_plural = self
            .held
            .iter()
            .find(|full| full.split('.').next() == Some(plural.as_str()));
        if let Some(full) = by_plural {
            return Some(full.clone());
        }
        let builtin = builtin_types(name)
            .map(|of_type| of_type.group_resource())
            .find(|full| self.held.contains(full));
        if builtin.is_some() {
            return builtin;
        }
        let defined = self
            .defined
            .resolve(name)
            .filter(|full| self.held.contains(full));
        if defined.is_some() {
            return defined;
        }
        let (_, full) = self
            .unserved
            .iter()
            .find(|(kind, _)| kind.eq_ignore_ascii_case(name))?;
        Some(full.clone())
    }
}

/// Names of types in a spec.
fn mentioned(spec: &RestoreSpec) -> impl Iterator<Item = &str> {
    let lists = [&spec.included_resources, &spec.excluded_resources];
    let status = spec
        .restore_status
        .iter()
        .flat_map(|status| [&status.included_resources, &status.excluded_resources]);
    let objects = spec
        .included_objects
        .iter()
        .filter_map(|text| Some(ObjectName::parse(text)?.of_type));
    lists
        .into_iter()
        .chain(status)
        .flatten()
        .map(String::as_str)
        .chain(objects)
}

/// The types of the definitions in a backup. One that cannot be read becomes an error when it is
/// restored.
fn defined(contents: &Contents) -> Result<ServedTypes, StoreError> {
    let mut types = ServedTypes::default();
    for item in contents.items(DEFINITIONS) {
        match contents.object(item) {
            Ok(definition) => types.add_definition(&definition),
            Err(error) if error.is_transient() => return Err(error),
            Err(_) => {}
        }
    }
    Ok(types)
}

/// The kinds that the cluster does not serve, and their types in the backup.
fn unserved(
    contents: &Contents,
    served: &ServedTypes,
) -> Result<Vec<(String, String)>, StoreError> {
    let mut kinds = Vec::new();
    for group_resource in contents.types() {
        let Some(first) = contents.items(&group_resource).first() else {
            continue;
        };
        if served.by_group_resource(&group_resource).is_some() {
            continue;
        }
        match contents.read(first) {
            Ok(bytes) => {
                let Head { kind } = serde_json::from_slice(&bytes).unwrap_or_default();
                kinds.push((kind, group_resource));
            }
            Err(error) if error.is_transient() => return Err(error),
            // It becomes an error when it is restored.
            Err(_) => {}
        }
    }
    Ok(kinds)
}

#[derive(Debug, Default, Deserialize)]
struct Head {
    #[serde(default)]
    kind: String,
}
