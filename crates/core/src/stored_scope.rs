//! What a stored backup was asked to hold. Its object can be edited afterwards, by hand or from a repository; that changes nothing of
//! what is stored, so the controller notes the selection when it publishes the end. Pure.

use std::borrow::Cow;

use crate::{
    api::{Backup, BackupSpec},
    labels::STORED_SCOPE_ANNOTATION,
    phase::{Phase as _, Stage},
};

/// Longest selection that is noted (bytes). Of a longer one the object alone is known.
const MAX_BYTES: usize = 16 * 1024;

/// The fields of a spec that choose what is in a backup.
fn selection(spec: &BackupSpec) -> BackupSpec {
    BackupSpec {
        included_namespaces: spec.included_namespaces.clone(),
        excluded_namespaces: spec.excluded_namespaces.clone(),
        included_resources: spec.included_resources.clone(),
        excluded_resources: spec.excluded_resources.clone(),
        included_cluster_scoped_resources: spec.included_cluster_scoped_resources.clone(),
        excluded_cluster_scoped_resources: spec.excluded_cluster_scoped_resources.clone(),
        included_namespace_scoped_resources: spec.included_namespace_scoped_resources.clone(),
        excluded_namespace_scoped_resources: spec.excluded_namespace_scoped_resources.clone(),
        label_selector: spec.label_selector.clone(),
        or_label_selectors: spec.or_label_selectors.clone(),
        include_cluster_resources: spec.include_cluster_resources,
        resource_policy: spec.resource_policy.clone(),
        ..BackupSpec::default()
    }
}

/// The annotation of a Backup that is stored with this spec; `None` if the selection is too long for one.
pub fn annotation(stored: &BackupSpec) -> Option<String> {
    serde_json::to_string(&selection(stored)).ok().filter(|text| text.len() <= MAX_BYTES)
}

/// The selection of what is stored, where it is noted; else the spec of the object.
pub fn scope(backup: &Backup) -> Cow<'_, BackupSpec> {
    noted(backup).map_or(Cow::Borrowed(&backup.spec), Cow::Owned)
}

/// Whether the object asks for another selection by now than the stored backup was made with.
pub fn is_edited(backup: &Backup) -> bool {
    noted(backup).is_some_and(|noted| noted != selection(&backup.spec))
}

/// Before its end a Backup can only have a note of another one, of which it is a copy.
fn noted(backup: &Backup) -> Option<BackupSpec> {
    let is_stored =
        matches!(backup.phase().stage(), Stage::Completed | Stage::PartiallyFailed | Stage::Deleting);
    let annotations = backup.metadata.annotations.as_ref().filter(|_| is_stored)?;
    serde_json::from_str(annotations.get(STORED_SCOPE_ANNOTATION)?).ok()
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

    #[test]
    fn what_is_stored_is_what_was_asked_for_then() {
        let noted = annotation(&backup("Completed", "shop", None).spec);
        assert_eq!(noted.as_deref(), Some(r#"{"includedNamespaces":["shop"]}"#));
        for (phase, now, noted, shown, edited) in [
            ("Completed", "shop", noted.clone(), "shop", false),
            ("Completed", "other", noted.clone(), "shop", true),
            ("PartiallyFailed", "other", noted.clone(), "shop", true),
            ("Deleting", "other", noted.clone(), "shop", true),
            // A copy of another one.
            ("InProgress", "other", noted.clone(), "other", false),
            ("FailedValidation", "other", noted, "other", false),
            ("Completed", "other", None, "other", false),
            ("Completed", "other", Some("no JSON".to_owned()), "other", false),
        ] {
            let backup = backup(phase, now, noted);
            let found = (scope(&backup).included_namespaces.clone(), is_edited(&backup));
            assert_eq!(found, (vec![shown.to_owned()], edited), "{phase} {now}");
        }
    }

    #[test]
    fn a_selection_that_is_too_long_is_not_noted() {
        let spec = BackupSpec { included_namespaces: vec!["n".repeat(63); 300], ..BackupSpec::default() };
        assert_eq!(annotation(&spec), None);
    }
}
