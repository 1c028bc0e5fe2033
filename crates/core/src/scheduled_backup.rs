//! The Backup that a Schedule makes: by the controller at its time, or by the command on request.
//!
//! Velero: `FromSchedule` in `pkg/builder/backup_builder.go`, v1.18.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;

use crate::{
    api::{Backup, Schedule},
    keep::Keep,
    labels::{self, BREAK_GLASS_ANNOTATION, KEEP_ANNOTATION},
};

/// Marks by which deployment tools know their objects. A backup with one of them would look like an
/// object that was removed from the repository, and would be deleted: during its work, or all
/// backups at once.
const TRACKED: [&str; 8] = [
    "app.kubernetes.io/instance",
    "argocd.argoproj.io/",
    "kustomize.toolkit.fluxcd.io/",
    "helm.toolkit.fluxcd.io/",
    "fluxcd.io/",
    "meta.helm.sh/",
    "config.kubernetes.io/",
    "kubectl.kubernetes.io/",
];
/// Prefix of our annotations about the Schedule itself.
const OURS: &str = "backup-controller/";

/// A Backup of this name with everything that it gets from its Schedule: the template, copies,
/// labels, annotations with the rules that keep it, and the owner.
pub fn backup_of(schedule: &Schedule, name: &str) -> Backup {
    let mut backup = Backup::new(name, schedule.spec.template.clone());
    let mut copies = schedule.spec.copies.clone();
    for copy in std::mem::take(&mut backup.spec.copies) {
        if copies.iter().all(|other| other.location != copy.location) {
            copies.push(copy);
        }
    }
    backup.spec.copies = copies;
    let metadata = schedule.spec.template.metadata.clone().unwrap_or_default();
    let labels = metadata.labels.unwrap_or_else(|| schedule.labels().clone());
    let annotations = metadata
        .annotations
        .unwrap_or_else(|| schedule.annotations().clone());
    let name = schedule.name_any();
    let mut labels = inherited(labels);
    labels.insert(labels::SCHEDULE_NAME.to_owned(), labels::valid_value(&name));
    backup.metadata.labels = Some(labels);
    let mut annotations = inherited(annotations);
    // By these rules it is kept once the Schedule is gone, also in another cluster.
    let keep = Keep::of(&schedule.spec);
    annotations.extend(keep.map(|keep| (KEEP_ANNOTATION.to_owned(), keep.annotation())));
    backup.metadata.annotations = Some(annotations).filter(|all| !all.is_empty());
    if schedule.spec.use_owner_references_in_backup == Some(true) {
        backup.metadata.owner_references = Some(vec![OwnerReference {
            api_version: schedule.api_version.clone(),
            kind: schedule.kind.clone(),
            name,
            uid: schedule.uid().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: None,
        }]);
    }
    backup
}

fn inherited(all: BTreeMap<String, String>) -> BTreeMap<String, String> {
    all.into_iter()
        .filter(|(key, _)| is_inherited(key))
        .collect()
}

/// Whether a backup gets a label or annotation of its schedule.
fn is_inherited(key: &str) -> bool {
    key != BREAK_GLASS_ANNOTATION
        && !key.starts_with(OURS)
        && !TRACKED.iter().any(|tracked| {
            // A prefix also matches subdomains, but not other domains that end alike.
            let at = key.find(tracked);
            if tracked.ends_with('/') {
                at.is_some_and(|at| at == 0 || key[..at].ends_with('.'))
            } else {
                key == *tracked
            }
        })
}

/// Whether an existing backup was made by a schedule of this name.
pub fn is_of(backup: &Backup, schedule: &Schedule) -> bool {
    backup.schedule() == Some(labels::valid_value(&schedule.name_any()).as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn schedule(metadata: &Value, template: &Value) -> Schedule {
        let object = json!({ "apiVersion": "velero.io/v1", "kind": "Schedule", "metadata": metadata,
            "spec": { "schedule": "@daily", "template": template } });
        let mut schedule: Schedule = serde_json::from_value(object).unwrap();
        schedule.metadata.name = Some("nightly".to_owned());
        schedule.metadata.uid = Some("u".to_owned());
        schedule
    }

    fn made_by(schedule: &Schedule) -> Backup {
        backup_of(schedule, "nightly-20260304050600")
    }

    #[test]
    fn a_backup_has_the_given_name_and_the_spec_of_the_template() {
        let schedule = schedule(
            &json!({}),
            &json!({ "includedNamespaces": ["a"], "ttl": "24h0m0s", "new": 1 }),
        );
        let made = made_by(&schedule);
        assert_eq!(made.name_any(), "nightly-20260304050600");
        assert_eq!(made.spec, schedule.spec.template);
        assert!(is_of(&made, &schedule) && made.metadata.owner_references.is_none());
        assert_eq!(made.status, Backup::default().status);
    }

    #[test]
    fn a_backup_has_the_copies_of_its_schedule_and_of_the_template() {
        let template = json!({ "copies": [{ "location": "third" }, { "location": "second" }] });
        let mut schedule = schedule(&json!({}), &template);
        schedule.spec.copies =
            serde_json::from_value(json!([{ "location": "second", "ttl": "1h" }])).unwrap();
        let made = made_by(&schedule);
        let locations = made.spec.copies.iter().map(|copy| copy.location.as_str());
        assert_eq!(locations.collect::<Vec<_>>(), ["second", "third"]);
    }

    #[test]
    fn tracking_labels_are_never_copied_wherever_they_come_from() {
        let tracked = json!({ "argocd.argoproj.io/instance": "x", "app.kubernetes.io/instance": "x",
            "kustomize.toolkit.fluxcd.io/name": "x", "helm.toolkit.fluxcd.io/namespace": "x", "team": "a",
            "notargocd.argoproj.io.example/x": "stays" });
        let notes = json!({ "argocd.argoproj.io/tracking-id": "x", "kubectl.kubernetes.io/last-applied-configuration": "{}",
            "backup-lock/break-glass": "now", "backup-controller/skipped": "x", "meta.helm.sh/release-name": "x",
            "notified.argocd.argoproj.io/x": "x", "backup-lock/on-conflict": "queue" });
        let inherits = schedule(
            &json!({ "labels": tracked, "annotations": notes }),
            &json!({}),
        );
        let given = schedule(
            &json!({}),
            &json!({ "metadata": { "labels": tracked, "annotations": notes } }),
        );
        for schedule in [inherits, given] {
            let made = made_by(&schedule);
            let keys: Vec<&str> = made.labels().keys().map(String::as_str).collect();
            assert_eq!(
                keys,
                [
                    "notargocd.argoproj.io.example/x",
                    "team",
                    "velero.io/schedule-name"
                ]
            );
            let keys: Vec<&str> = made.annotations().keys().map(String::as_str).collect();
            assert_eq!(keys, ["backup-lock/on-conflict"]);
        }
    }

    #[test]
    fn a_template_that_has_labels_replaces_those_of_the_schedule() {
        let of_both = schedule(
            &json!({ "labels": { "a": "schedule" }, "annotations": { "b": "schedule" } }),
            &json!({ "metadata": { "labels": { "c": "template" } } }),
        );
        let made = made_by(&of_both);
        assert!(made.labels().contains_key("c") && !made.labels().contains_key("a"));
        assert_eq!(made.annotations()["b"], "schedule");
    }

    #[test]
    fn a_backup_records_the_rules_that_keep_it_and_no_other_rules() {
        let text = r#"{"rules":{"daily":9}}"#;
        let forged = json!({ "annotations": { KEEP_ANNOTATION: text } });
        let mut with_rules = schedule(&forged, &json!({}));
        assert!(made_by(&with_rules).metadata.annotations.is_none());
        with_rules.spec.keep = serde_json::from_value(json!({ "daily": 7 })).unwrap();
        with_rules.spec.schedule = "TZ=Europe/Paris @daily".to_owned();
        let made = made_by(&with_rules);
        assert_eq!(
            made.annotations()[KEEP_ANNOTATION],
            r#"{"rules":{"daily":7},"zone":"Europe/Paris"}"#
        );
    }

    #[test]
    fn an_owner_is_named_where_that_is_asked_for() {
        let mut owner = schedule(&json!({}), &json!({}));
        owner.spec.use_owner_references_in_backup = Some(true);
        let made = made_by(&owner);
        let owners = made.metadata.owner_references.unwrap();
        assert_eq!(
            (
                owners[0].kind.as_str(),
                owners[0].uid.as_str(),
                owners[0].controller
            ),
            ("Schedule", "u", Some(true))
        );
    }
}
