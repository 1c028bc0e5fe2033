//! The selection of a stored backup, and of a restore that has begun. Their objects can be edited
//! afterwards, by hand or from a repository, without any effect on stored or restored items, so the
//! controller records the selection: of a Backup when it publishes the end, of a Restore when it
//! begins. Pure.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    api::{Backup, BackupSpec, Restore, RestoreSpec},
    labels::STORED_SCOPE_ANNOTATION,
    phase::{Phase as _, Stage},
    resources::NON_RESTORABLE,
};

/// Maximum length of a recorded selection (bytes). A longer one is not recorded.
const MAX_BYTES: usize = 16 * 1024;

/// A spec with fields that select items.
pub trait SelectingSpec: Clone + PartialEq + Serialize + DeserializeOwned {
    /// Only the fields that select items, and the targets of a restore.
    #[must_use]
    fn selection(&self) -> Self;
}

/// An object whose selection is recorded.
pub trait Scoped {
    type Spec: SelectingSpec;

    fn spec(&self) -> &Self::Spec;

    /// The annotation, if the object is in a phase in which the controller has written it. Before
    /// that, an annotation can only come from another object, of which this one is a copy.
    fn note(&self) -> Option<&str>;
}

impl SelectingSpec for BackupSpec {
    fn selection(&self) -> Self {
        Self {
            included_namespaces: self.included_namespaces.clone(),
            excluded_namespaces: self.excluded_namespaces.clone(),
            included_resources: self.included_resources.clone(),
            excluded_resources: self.excluded_resources.clone(),
            included_cluster_scoped_resources: self.included_cluster_scoped_resources.clone(),
            excluded_cluster_scoped_resources: self.excluded_cluster_scoped_resources.clone(),
            included_namespace_scoped_resources: self.included_namespace_scoped_resources.clone(),
            excluded_namespace_scoped_resources: self.excluded_namespace_scoped_resources.clone(),
            label_selector: self.label_selector.clone(),
            or_label_selectors: self.or_label_selectors.clone(),
            include_cluster_resources: self.include_cluster_resources,
            resource_policy: self.resource_policy.clone(),
            ..Self::default()
        }
    }
}

impl SelectingSpec for RestoreSpec {
    fn selection(&self) -> Self {
        Self {
            schedule_name: self
                .schedule_name
                .clone()
                .filter(|_| self.backup_name.is_none()),
            // Values that the controller fills in are not the user's choice.
            excluded_resources: self
                .excluded_resources
                .iter()
                .filter(|name| !NON_RESTORABLE.contains(&name.as_str()))
                .cloned()
                .collect(),
            hooks: None,
            uploader_config: None,
            item_operation_timeout: None,
            drill: None,
            ..self.clone()
        }
    }
}

impl Scoped for Backup {
    type Spec = BackupSpec;

    fn spec(&self) -> &BackupSpec {
        &self.spec
    }

    fn note(&self) -> Option<&str> {
        let is_stored = matches!(
            self.phase().stage(),
            Stage::Completed | Stage::PartiallyFailed | Stage::Deleting
        );
        annotated(self.metadata.annotations.as_ref().filter(|_| is_stored))
    }
}

impl Scoped for Restore {
    type Spec = RestoreSpec;

    fn spec(&self) -> &RestoreSpec {
        &self.spec
    }

    fn note(&self) -> Option<&str> {
        let has_begun = match self.phase().stage() {
            Stage::InProgress
            | Stage::WaitingForOperations { .. }
            | Stage::Finalizing { .. }
            | Stage::Completed
            | Stage::PartiallyFailed => true,
            // It may have failed before it began.
            Stage::Failed => self.status.start_timestamp.is_some(),
            _ => false,
        };
        annotated(self.metadata.annotations.as_ref().filter(|_| has_begun))
    }
}

fn annotated(annotations: Option<&BTreeMap<String, String>>) -> Option<&str> {
    annotations?
        .get(STORED_SCOPE_ANNOTATION)
        .map(String::as_str)
}

/// The annotation of an object that is processed with this spec; `None` if the selection is too
/// long.
pub fn annotation(spec: &impl SelectingSpec) -> Option<String> {
    serde_json::to_string(&spec.selection())
        .ok()
        .filter(|text| text.len() <= MAX_BYTES)
}

/// The recorded selection of the backup or restore; otherwise the spec of the object.
pub fn scope<O: Scoped>(object: &O) -> Cow<'_, O::Spec> {
    noted(object).map_or(Cow::Borrowed(object.spec()), Cow::Owned)
}

/// Whether the object's selection has changed since its work was done.
pub fn is_edited<O: Scoped>(object: &O) -> bool {
    noted(object).is_some_and(|noted| noted != object.spec().selection())
}

fn noted<O: Scoped>(object: &O) -> Option<O::Spec> {
    serde_json::from_str(object.note()?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn backup(phase: &str, namespace: &str, noted: Option<String>) -> Backup {
        let annotations = noted.map(|text| json!({ STORED_SCOPE_ANNOTATION: text }));
        serde_json::from_value(json!({ "metadata": { "name": "b", "annotations": annotations },
            "spec": { "includedNamespaces": [namespace], "ttl": "1h" }, "status": { "phase": phase } }))
        .unwrap()
    }

    fn restore(phase: &str, target: &str, noted: Option<String>) -> Restore {
        let annotations = noted.map(|text| json!({ STORED_SCOPE_ANNOTATION: text }));
        serde_json::from_value(json!({ "metadata": { "name": "r", "annotations": annotations },
            "spec": { "backupName": "b", "namespaceMapping": { "shop": target }, "itemOperationTimeout": "1h",
                "scheduleName": "nightly", "excludedResources": ["nodes"] },
            "status": { "phase": phase, "startTimestamp": "2026-11-03T03:00:00Z" } }))
        .unwrap()
    }

    #[test]
    fn what_is_stored_is_what_was_asked_for_then() {
        let noted = annotation(&backup("Completed", "shop", None).spec);
        assert_eq!(noted.as_deref(), Some(r#"{"includedNamespaces":["shop"]}"#));
        for (phase, now, noted, shown, edited) in [
            ("Completed", "shop", noted.clone(), "shop", false),
            ("Completed", "other", noted.clone(), "shop", true),
            ("PartiallyFailed", "other", noted.clone(), "shop", true),
            ("Deleting", "other", noted.clone(), "shop", true),
            // A copy of another backup.
            ("InProgress", "other", noted.clone(), "other", false),
            ("FailedValidation", "other", noted, "other", false),
            ("Completed", "other", None, "other", false),
            (
                "Completed",
                "other",
                Some("no JSON".to_owned()),
                "other",
                false,
            ),
        ] {
            let backup = backup(phase, now, noted);
            let found = (
                scope(&backup).included_namespaces.clone(),
                is_edited(&backup),
            );
            assert_eq!(found, (vec![shown.to_owned()], edited), "{phase} {now}");
        }
    }

    #[test]
    fn what_was_restored_is_what_was_asked_for_when_it_began() {
        let noted = annotation(&restore("New", "copy", None).spec);
        assert_eq!(
            noted.as_deref(),
            Some(r#"{"backupName":"b","namespaceMapping":{"shop":"copy"}}"#)
        );
        for (phase, now, noted, shown, edited) in [
            ("Completed", "copy", noted.clone(), "copy", false),
            ("InProgress", "other", noted.clone(), "copy", true),
            ("PartiallyFailed", "other", noted.clone(), "copy", true),
            ("Failed", "other", noted.clone(), "copy", true),
            // A copy of another restore.
            ("New", "other", noted.clone(), "other", false),
            ("FailedValidation", "other", noted, "other", false),
            ("Completed", "other", None, "other", false),
        ] {
            let restore = restore(phase, now, noted.clone());
            let found = (
                scope(&restore).namespace_mapping["shop"].clone(),
                is_edited(&restore),
            );
            assert_eq!(found, (shown.to_owned(), edited), "{phase} {now}");
            let mut failed_before = restore;
            failed_before.status.start_timestamp = None;
            assert!(phase != "Failed" || !is_edited(&failed_before));
        }
    }

    #[test]
    fn a_selection_that_is_too_long_is_not_noted() {
        let spec = BackupSpec {
            included_namespaces: vec!["n".repeat(63); 300],
            ..BackupSpec::default()
        };
        assert_eq!(annotation(&spec), None);
    }
}
