//! Checks whether the names in the spec of a Restore are in the backup. Pure.
//!
//! A missing name is most likely a mistake: if the restore continued without it, the user would not
//! notice that it did something else, and a mapping that applies to nothing restores over the
//! original. So it is an error before anything is written. A pattern that matches nothing is a
//! warning, and so is an exclude that excludes nothing.

use std::collections::BTreeSet;

use backup_core::{
    api::RestoreSpec,
    resources::{NAMESPACES, NON_RESTORABLE},
    selection::{IncludesExcludes, glob_match, is_glob},
    text::listed,
    validate::Finding,
};

/// Maximum number of names in a message.
const MAX_LISTED: usize = 5;

/// Namespaces and types in a backup.
pub(super) struct BackupNames<'a> {
    pub(super) backup: &'a str,
    /// Namespaces of items, and Namespace objects of the backup.
    pub(super) namespaces: &'a BTreeSet<String>,
    /// As `deployments.apps`.
    pub(super) types: &'a BTreeSet<String>,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct NameCheck {
    /// Why the restore must not begin.
    pub(super) errors: Vec<Finding>,
    pub(super) warnings: Vec<Finding>,
}

/// `resolve` completes the name of a type; it returns `None` if neither the cluster nor the backup
/// has such a type.
pub(super) fn check(
    spec: &RestoreSpec,
    held: &BackupNames<'_>,
    resolve: &dyn Fn(&str) -> Option<String>,
) -> NameCheck {
    let mut found = NameCheck::default();
    found.namespaces(spec, held);
    found.mapping(spec, held);
    found.types(
        "spec.includedResources",
        &spec.included_resources,
        held,
        resolve,
    );
    found.excluded_types(
        "spec.excludedResources",
        &spec.excluded_resources,
        held,
        resolve,
    );
    if let Some(status) = &spec.restore_status {
        let field = "spec.restoreStatus.includedResources";
        found.types(field, &status.included_resources, held, resolve);
        let field = "spec.restoreStatus.excludedResources";
        found.excluded_types(field, &status.excluded_resources, held, resolve);
    }
    found
}

impl NameCheck {
    fn error(&mut self, field: &str, message: String) {
        self.errors.push(Finding::new(field, message));
    }

    fn warn(&mut self, field: &str, message: String) {
        self.warnings.push(Finding::new(field, message));
    }

    fn namespaces(&mut self, spec: &RestoreSpec, held: &BackupNames<'_>) {
        for name in spec
            .included_namespaces
            .iter()
            .filter(|name| !held.has_namespace(name))
        {
            let field = "spec.includedNamespaces";
            if is_glob(name) {
                self.warn(
                    field,
                    format!("{name:?} matches no namespace of {}", held.backup()),
                );
            } else {
                self.error(field, held.lacks_namespace(name));
            }
        }
        for name in spec
            .excluded_namespaces
            .iter()
            .filter(|name| !held.has_namespace(name))
        {
            let message = format!(
                "{name:?} leaves nothing out: {} has no such namespace",
                held.backup()
            );
            self.warn("spec.excludedNamespaces", message);
        }
    }

    /// A mapping that applies to nothing would restore into the original namespace. The absence of
    /// an included namespace is an error of that field alone.
    fn mapping(&mut self, spec: &RestoreSpec, held: &BackupNames<'_>) {
        let selected = IncludesExcludes::new(&spec.included_namespaces, &spec.excluded_namespaces);
        for source in spec.namespace_mapping.keys() {
            let field = format!("spec.namespaceMapping.{source}");
            if !held.namespaces.contains(source) {
                if !spec.included_namespaces.contains(source) {
                    self.error(&field, held.lacks_namespace(source));
                }
            } else if !selected.includes(source) {
                let message = format!(
                    "namespace {source:?} is not among the namespaces that are restored; include it, or remove the mapping"
                );
                self.error(&field, message);
            }
        }
    }

    fn types(
        &mut self,
        field: &str,
        names: &[String],
        held: &BackupNames<'_>,
        resolve: &dyn Fn(&str) -> Option<String>,
    ) {
        for name in names {
            let resolved = resolve(name);
            let full = resolved.as_ref().unwrap_or(name);
            // Namespaces are created with their items.
            if full == NAMESPACES || held.has_type(full) {
                continue;
            }
            if is_glob(name) {
                self.warn(
                    field,
                    format!("{name:?} matches no type of {}", held.backup()),
                );
                continue;
            }
            let backup = held.backup;
            let remedy = format!(
                "correct or remove it (`kubectl backup ls {backup} NAMESPACE` lists types)"
            );
            if resolved.is_some() {
                self.error(
                    field,
                    format!(
                        "{} holds no {full} (named as {name:?}); {remedy}",
                        held.backup()
                    ),
                );
            } else {
                let message = format!(
                    "no type is called {name:?}, in {} or in this cluster; {remedy}",
                    held.backup()
                );
                self.error(field, message);
            }
        }
    }

    /// A known type may always be excluded; an unknown one is most likely a typing error.
    fn excluded_types(
        &mut self,
        field: &str,
        names: &[String],
        held: &BackupNames<'_>,
        resolve: &dyn Fn(&str) -> Option<String>,
    ) {
        for name in names {
            if NON_RESTORABLE.contains(&name.as_str())
                || is_glob(name)
                || resolve(name).is_some()
                || held.has_type(name)
            {
                continue;
            }
            let message = format!(
                "{name:?} leaves nothing out: no type is called so, in {} or in this cluster",
                held.backup()
            );
            self.warn(field, message);
        }
    }
}

impl BackupNames<'_> {
    fn backup(&self) -> String {
        format!("backup {:?}", self.backup)
    }

    fn has_namespace(&self, pattern: &str) -> bool {
        pattern == "*" || has(self.namespaces, pattern)
    }

    fn has_type(&self, pattern: &str) -> bool {
        pattern == "*" || has(self.types, pattern)
    }

    fn lacks_namespace(&self, name: &str) -> String {
        let backup = self.backup();
        let some: Vec<&str> = self
            .namespaces
            .iter()
            .map(String::as_str)
            .take(MAX_LISTED)
            .collect();
        if some.is_empty() {
            return format!("namespace {name:?} is not in {backup}, which holds no namespace");
        }
        let some = listed(&some, self.namespaces.len());
        format!("namespace {name:?} is not in {backup}, which holds {some}; correct or remove it")
    }
}

fn has(names: &BTreeSet<String>, pattern: &str) -> bool {
    names.contains(pattern)
        || is_glob(pattern) && names.iter().any(|name| glob_match(pattern, name))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn checked(spec: Value) -> NameCheck {
        let namespaces = ["prod", "shop"].map(str::to_owned).into();
        let types = ["configmaps", "deployments.apps", "widgets.example.com"]
            .map(str::to_owned)
            .into();
        let held = BackupNames {
            backup: "b",
            namespaces: &namespaces,
            types: &types,
        };
        let known = [
            ("cm", "configmaps"),
            ("secrets", "secrets"),
            ("deploy", "deployments.apps"),
            ("ns", "namespaces"),
        ];
        let resolve = |name: &str| {
            let found = known
                .iter()
                .find(|(short, full)| [*short, *full].contains(&name));
            found.map(|(_, full)| (*full).to_owned())
        };
        check(&serde_json::from_value(spec).unwrap(), &held, &resolve)
    }

    fn errors(spec: Value) -> Vec<String> {
        let found = checked(spec);
        assert_eq!(found.warnings, [], "{found:?}");
        found.errors.iter().map(ToString::to_string).collect()
    }

    #[rstest::rstest]
    #[case::nothing(json!({}))]
    #[case::namespaces(json!({"includedNamespaces": ["prod", "s*"], "excludedNamespaces": ["shop"]}))]
    #[case::all(json!({"includedNamespaces": ["*"], "includedResources": ["*"]}))]
    #[case::mapped(json!({"namespaceMapping": {"prod": "copy"}}))]
    #[case::mapped_of_a_glob(json!({"includedNamespaces": ["p*"], "namespaceMapping": {"prod": "copy"}}))]
    #[case::types(json!({"includedResources": ["cm", "deploy", "configmaps", "widgets.example.com", "*.apps"]}))]
    #[case::namespaces_come_with_their_items(json!({"includedResources": ["ns", "namespaces"]}))]
    #[case::what_is_left_out_may_be_absent(json!({"excludedResources": ["secrets", "nodes", "csinodes.storage.k8s.io"]}))]
    #[case::status(json!({"restoreStatus": {"includedResources": ["deploy", "*"]}}))]
    fn what_is_in_the_backup_is_found(#[case] spec: Value) {
        assert_eq!(checked(spec), NameCheck::default());
    }

    #[rstest::rstest]
    #[case::namespace(json!({"includedNamespaces": ["prood"]}), "spec.includedNamespaces: namespace \"prood\" is not in backup \"b\", which holds prod, shop")]
    #[case::mapping(json!({"namespaceMapping": {"prood": "copy"}}), "spec.namespaceMapping.prood: namespace \"prood\" is not in backup \"b\"")]
    #[case::mapping_not_included(
        json!({"includedNamespaces": ["shop"], "namespaceMapping": {"prod": "copy"}}),
        "spec.namespaceMapping.prod: namespace \"prod\" is not among the namespaces that are restored"
    )]
    #[case::mapping_excluded(
        json!({"excludedNamespaces": ["prod"], "namespaceMapping": {"prod": "copy"}}),
        "spec.namespaceMapping.prod: namespace \"prod\" is not among"
    )]
    #[case::unknown_type(json!({"includedResources": ["deploymnets"]}), "spec.includedResources: no type is called \"deploymnets\", in backup \"b\" or in this cluster")]
    #[case::known_type(json!({"includedResources": ["cm", "secrets"]}), "spec.includedResources: backup \"b\" holds no secrets")]
    #[case::status(json!({"restoreStatus": {"includedResources": ["secrets"]}}), "spec.restoreStatus.includedResources: backup \"b\" holds no secrets")]
    fn a_name_that_is_not_in_the_backup_is_an_error(#[case] spec: Value, #[case] expected: &str) {
        let errors = errors(spec);
        assert!(
            errors.len() == 1 && errors[0].starts_with(expected),
            "{errors:?}"
        );
    }

    #[rstest::rstest]
    #[case::namespaces(json!({"includedNamespaces": ["x-*", "prod"]}), "spec.includedNamespaces")]
    #[case::types(json!({"includedResources": ["*.x.io", "cm"]}), "spec.includedResources")]
    #[case::exclude(json!({"excludedNamespaces": ["shpo"]}), "spec.excludedNamespaces")]
    #[case::excluded_type(json!({"excludedResources": ["secretz"]}), "spec.excludedResources")]
    #[case::status(json!({"restoreStatus": {"excludedResources": ["secretz"]}}), "spec.restoreStatus.excludedResources")]
    fn a_pattern_without_a_match_and_an_idle_exclude_are_warnings(
        #[case] spec: Value,
        #[case] field: &str,
    ) {
        let found = checked(spec);
        let fields: Vec<&str> = found
            .warnings
            .iter()
            .map(|one| one.field.as_str())
            .collect();
        assert_eq!((fields, found.errors), (vec![field], vec![]));
    }

    #[test]
    fn everything_that_is_not_there_is_named_at_once() {
        let spec = json!({
            "includedNamespaces": ["prood", "dev"], "includedResources": ["secretz"], "namespaceMapping": {"shpo": "copy"},
        });
        assert_eq!(errors(spec).len(), 4);
    }

    /// Such as a drill, which maps each namespace that it includes.
    #[test]
    fn a_namespace_that_is_included_and_mapped_is_named_once() {
        let spec =
            json!({ "includedNamespaces": ["prood"], "namespaceMapping": { "prood": "copy" } });
        let errors = errors(spec);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(
            errors[0].starts_with("spec.includedNamespaces: "),
            "{errors:?}"
        );
    }
}
